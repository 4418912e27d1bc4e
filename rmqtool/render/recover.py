"""The screen of ``recover --apply``: what was damaged, what was written, and whether a broker may start now.

Also the screen of ``recover``: what a start would do, in the order people ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from shlex import quote
from typing import Any

from rmqtool.findings import Severity
from rmqtool.render import text
from rmqtool.render.check import lost_words
from rmqtool.render.findings import verdict_lines
from rmqtool.render.output import Output

_LABEL = 9
_SHOWN = 8
# Problems of files that a recovery of log, queues and index does not restore.
_ONLY_A_COPY_HELPS = {"offsets wiped", "empty table"}
_NO_LOG = "no log"

Row = Mapping[str, Any]


class Next(Enum):
    """The next command: the plan of a repair, a copy if a repair does not help, or a closer look.

    If the log is missing, its volume must be mounted first.
    """

    PLAN = auto()
    COPY = auto()
    LOOK = auto()
    MOUNT = auto()


def recovery_lines(output: Output, shown: Row, store: str, commands: Mapping[Next, list[str]]) -> Iterator[str]:
    """Yield the result of a rehearsal: ``shown`` is the JSON object, the last lines are some of the ``commands``."""
    how = "as after a clean stop" if shown["mode"] == "normal" else "as after a CRASH: abort is present"
    yield from text.hanging(
        f"A {shown['as']} broker started on {text.neutral(store)} would recover {how}.", output.look.width, 2
    )
    for label, words, style in _story(output, shown, store):
        head = f"  {label.ljust(_LABEL)}  "
        first, *rest = text.hanging(head + words, output.look.width, len(head))
        yield f"  {output.paint(label.ljust(_LABEL), style)}{first[2 + _LABEL :]}"
        yield from rest
    words = (
        "This is a rehearsal of a broker's start: nothing was changed. To recover without a broker, and keep "
        "all valid messages: repair (deals with damage, can be undone), or recover --apply (does neither)."
    )
    yield from text.hanging(words, output.look.width, 2)
    yield from _verdict(output, shown, commands)


def _is_safe(shown: Row) -> bool:
    """Return whether this start is complete, takes nothing from the store, and finds nothing missing."""
    destroyed = any(part["messages"] for part in shown["lost"] if not part["leftover"])
    harm = destroyed or shown["messagesUnreachable"] or any(trap["loses"] for trap in shown["traps"])
    return shown["starts"] is True and not harm and _is_missing(shown) is None


def _story(output: Output, shown: Row, store: str) -> Iterator[tuple[str, str, str]]:
    """Yield label, text and style of each line."""
    yield from _reading(output, shown)
    yield from _destroyed(output, shown)
    yield from _leftovers(output, shown["lost"], store)
    yield from _rewinds(shown["rewinds"])
    if shown["messagesUnreachable"]:
        count = text.counted(shown["messagesUnreachable"], "valid message is", "valid messages are")
        queues = [f"{text.count(row['messages'])} of {row['topic']}/{row['queueId']}" for row in shown["unreached"]]
        words = f"{count} in no queue: {_listed(queues)}. This start does not add them, so consumers do not get them"
        yield "UNREACHED", words, "warning"
    for config in shown["config"]:
        if config["loadedFrom"] == "bak" and not config["damaged"]:
            yield "CONFIG", f"{config['file']} is missing and would be loaded from its .bak", "warning"
    for trap in shown["traps"]:
        yield "TRAP", f"{trap['name']}: {text.neutral(trap['message'])}", "error" if trap["loses"] else "warning"
    for action in ("create", "resize", "modify"):
        yield from _files(action, shown["files"], deletes_keys=any(not one["rebuilt"] for one in shown["indexLost"]))


def _reading(output: Output, shown: Row) -> Iterator[tuple[str, str, str]]:
    scan, cut = shown["scan"], shown["cut"]
    if scan is not None:
        at = "" if scan["latestTimestamp"] is None else f" ({output.time(scan['latestTimestamp'])})"
        files = f"{scan['files']} of {text.counted(scan['ofFiles'], 'log file')} from {_name(scan['file'])}"
        yield "read", f"{files}, {text.size(scan['bytes'])}: {scan['reason']}{at}", "title"
        others = scan["ofFiles"] - scan["files"]
        if others:
            yield "not read", f"{text.counted(others, 'other file')} (rmqtool check reads them, too)", "title"
    # Where nothing is wrong, this is the end of the log; "stop" is for damage.
    label = "end" if cut is not None and cut["code"] is None and not shown["lost"] else "stop"
    if cut is not None:
        code = "" if cut["code"] is None else f" ({cut['code']})"
        yield label, f"at {_name(cut['file'])}@{cut['offset']}: {text.neutral(cut['message'])}{code}", "title"
    if not shown["loads"]:
        yield "REFUSES", f"it does not load the store: {text.neutral(shown['reason'])}", "error"
        return
    if shown["minPhyOffset"] < 0:
        yield "keep", "nothing: the log has no file", "title"
    else:
        there = f" (the place of the {label})" if _is_end(shown) else ""
        yield "keep", f"the log from {shown['minPhyOffset']} to {shown['maxPhyOffset']}{there}", "title"
    if shown["starts"] == "hangs":
        yield "HANGS", f"it never finishes its start: {text.neutral(shown['reason'])}", "error"
    elif not shown["starts"]:
        yield "FAILS", f"it does not start: {text.neutral(shown['reason'])}", "error"


def _is_end(shown: Row) -> bool:
    """Return whether the log ends where the start stops reading: one place, once in a file and once in the log."""
    cut = shown["cut"]
    base = "" if cut is None else cut["file"].rpartition("/")[2]
    return base.isdecimal() and int(base) + cut["offset"] == shown["maxPhyOffset"]


def _destroyed(output: Output, shown: Row) -> Iterator[tuple[str, str, str]]:
    deleted = {change["path"]: change.get("sizeBefore", 0) for change in shown["files"] if change["action"] == "delete"}
    cut = shown["cut"]
    lost: dict[str, list[Row]] = {}
    for part in shown["lost"]:
        if not part["leftover"]:
            lost.setdefault(part["file"], []).append(part)
    indexes = {index["file"] for index in shown["indexLost"]}
    queues = [path for path in deleted if path.startswith("consumequeue/")]
    for path, parts in lost.items():
        if path not in deleted:
            at = f"@{cut['offset']}" if cut is not None and cut["file"] == path else ""
            yield "CUT", f"{_name(path)}{at}: {_messages(output, parts)}", "error"
    for path, size in deleted.items():
        if path not in queues and path not in indexes:
            # Capitals are for losses.
            label, style = ("DELETE", "error") if path in lost else ("delete", "title")
            held = _messages(output, lost[path]) if path in lost else "no valid message"
            yield label, f"{_name(path)}, {text.size(size)}: {held}", style
    for again in (True, False):
        these = [index for index in shown["indexLost"] if index["rebuilt"] is again]
        if these:
            has_keys = any(index["entries"] for index in these) and not again
            label, style = ("DELETE", "error") if has_keys else ("rebuild" if again else "delete", "title")
            yield label, _index_files(output, these) + (", which are written again" if again else ""), style
    if queues:
        topics = {path.split("/")[1] for path in queues}
        count = f"{text.counted(len(queues), 'queue file')} of {text.counted(len(topics), 'topic')}"
        yield (
            "DELETE",
            f"{count}, {text.size(sum(deleted[path] for path in queues))}: {_listed(sorted(topics))}",
            "error",
        )


def _leftovers(output: Output, lost: Iterable[Row], store: str) -> Iterator[tuple[str, str, str]]:
    parts = [part for part in lost if part["leftover"]]
    if parts:
        file = quote(text.neutral(f"{store}/{parts[0]['file']}"))
        words = (
            f"after the end of the log: an earlier start cut off {_messages(output, parts)}. "
            f"To read them: rmqtool cat {file} --carve"
        )
        yield "LEFTOVER", words, "title"


def _messages(output: Output, parts: Iterable[Row]) -> str:
    by_topic = sorted(parts, key=lambda part: (-part["messages"], part["topic"]))
    total = text.counted(sum(part["messages"] for part in by_topic), "valid message")
    first = output.time(min(part["firstStoreTimestamp"] for part in by_topic))
    last = output.time(max(part["lastStoreTimestamp"] for part in by_topic))
    topics = _listed(f"{part['topic']} {text.count(part['messages'])}" for part in by_topic)
    return f"{total} stored {first} to {last}: {topics}"


def _index_files(output: Output, indexes: Collection[Row]) -> str:
    entries = sum(index["entries"] for index in indexes)
    files = f"{text.counted(len(indexes), 'index file')}: {_listed(index['file'] for index in indexes)}"
    if not entries:
        return f"{files}, without a key"
    first = output.time(min(index["beginTimestamp"] for index in indexes if index["entries"]))
    last = output.time(max(index["endTimestamp"] for index in indexes))
    keys = text.counted(entries, "key")
    return f"{files}; {keys} of messages stored {first} to {last}"


def _rewinds(rewinds: Collection[Row]) -> Iterator[tuple[str, str, str]]:
    for row in list(rewinds)[:_SHOWN]:
        again = text.counted(row["before"] - row["after"], "offset")
        words = f"{text.neutral(row['topic'])}/{row['queueId']} {row['before']} → {row['after']}"
        yield "REWIND", f"{words}: new messages would reuse {again}", "warning"
    if len(rewinds) > _SHOWN:
        yield "REWIND", f"and {text.counted(len(rewinds) - _SHOWN, 'other queue')}", "warning"


def _files(action: str, files: Collection[Row], *, deletes_keys: bool) -> Iterator[tuple[str, str, str]]:
    named = [change["path"] for change in files if change["action"] == action]
    if named:
        gone = "; other keys of the deleted files are gone" if deletes_keys else ""
        new = [name for name in named if action == "create" and name.startswith("index/")]
        if new:
            made = "a new index file" if len(new) == 1 else f"{text.count(len(new))} new index files"
            yield action, f"{made} with the keys of the messages that this start reads and keeps{gone}", "title"
        others = [name for name in named if name not in new]
        if others:
            yield action, _listed(others), "title"


def _listed(names: Iterable[str]) -> str:
    every = [text.neutral(name) for name in names]
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def _name(path: str) -> str:
    return text.neutral(path)


def _verdict(output: Output, shown: Row, commands: Mapping[Next, list[str]]) -> Iterator[str]:
    traps = {trap["name"] for trap in shown["traps"] if trap["loses"]}
    destroyed = sum(part["messages"] for part in shown["lost"] if not part["leftover"])
    unreachable = shown["messagesUnreachable"]
    severity: Severity | None = Severity.WARNING
    then = Next.MOUNT if _NO_LOG in traps else Next.COPY if traps & _ONLY_A_COPY_HELPS else Next.PLAN
    if destroyed:
        words = f"this start would delete {text.counted(destroyed, 'valid message')}{_gone_besides(shown)}"
        severity = Severity.ERROR
    elif shown["starts"] is not True:
        words = f"this broker would not start; {'but see TRAP above' if traps else 'trying would lose no message'}"
        severity, then = Severity.ERROR, then if traps else Next.LOOK
    elif traps:
        words = "no message would be deleted, but see TRAP above"
        severity = Severity.ERROR if _deleted_queues(shown) else Severity.WARNING
    elif unreachable:
        words = f"no message would be deleted, but {text.counted(unreachable, 'is', 'are')} in no queue"
        then = Next.LOOK  # check says which, and what helps: a repair, or a copy
    else:
        words = f"no message would be deleted{_gone(shown)}"
        if _is_safe(shown):
            # A start reads only a part of the log, so it says nothing about the rest.
            unread = shown["scan"] is not None and shown["scan"]["ofFiles"] > shown["scan"]["files"]
            rest = "; damage in the files that it does not read would stay" if unread else ""
            words = f"a {shown['as']} broker would start and delete no message{rest}"
        severity, then = _is_missing(shown), Next.LOOK
    yield from verdict_lines(output, words, severity, commands[then])


_LOST_NAMED = 5


def _gone(shown: Row) -> str:
    """Say which messages were missing before this start: it destroys nothing, but is not a clean result."""
    lost = sum(row["before"] - row["after"] for row in shown["rewinds"])
    hole = sum(hole["length"] for hole in shown["holes"])
    if hole:
        return f", but {text.size(hole)} in the middle of the log are missing already, with their messages"
    if not lost:
        return ""
    rows = [row for row in shown["rewinds"] if row["before"] > row["after"]]
    named = ", ".join(
        f"{text.count(row['before'] - row['after'])}\u00a0in\u00a0{text.neutral(row['topic'])}/{row['queueId']}"
        for row in (rows if len(rows) <= _LOST_NAMED else ())
    )
    return f", but {text.counted(lost, 'was', 'were')} lost already{f': {named}' if named else ''}"


def _gone_besides(shown: Row) -> str:
    """Say which messages were missing before a start that destroys others.

    It rewinds a queue by both: those that no valid message of the topic explains were lost before.
    """
    rewound: Counter[str] = Counter()
    queues: dict[str, list[int]] = {}
    for row in shown["rewinds"]:
        rewound[row["topic"]] += row["before"] - row["after"]
        queues.setdefault(row["topic"], []).append(row["queueId"])
    for part in (*shown["lost"], *shown["unreached"]):
        rewound[part["topic"]] -= part["messages"]
    gone = [(topic, count) for topic, count in sorted(rewound.items()) if count > 0]
    if not gone:
        return ""
    total = sum(count for _, count in gone)
    named = ", ".join(
        f"{text.count(count)}\u00a0in\u00a0{text.neutral(topic)}"
        + (f"/{queues[topic][0]}" if len(queues[topic]) == 1 else "")
        for topic, count in (gone if len(gone) <= _LOST_NAMED else ())
    )
    were = "was" if total == 1 else "were"
    return f"; at least {text.count(total)} {were} lost already{f': {named}' if named else ''}"


def _is_missing(shown: Row) -> Severity | None:
    """Return a warning if messages are missing already, or queues are removed: then no line is green."""
    gone = any(row["before"] > row["after"] for row in shown["rewinds"])
    return Severity.WARNING if gone or shown["holes"] or _deleted_queues(shown) else None


def _deleted_queues(shown: Row) -> bool:
    return any(change["action"] == "delete" and change["path"].startswith("consumequeue/") for change in shown["files"])


_RECOVERED_SHOWN = 12
_NO_UNDO = "this cannot be undone"
_RECOVERED_LABEL = 10


def recovered_lines(output: Output, shown: Mapping[str, Any], store: str) -> Iterator[str]:
    """Yield the lines of a recovery."""
    how = "it was not closed cleanly" if shown["mode"] == "abnormal" else "it was closed cleanly"
    head = f"{text.neutral(store)}: {how}; {text.counted(shown['messages'], 'valid message')}, all kept."
    yield from text.hanging(head, output.look.width, 2)
    for finding in _first(shown["findings"]):
        at = f" at {finding['offset']}" if "offset" in finding else ""
        where = f"{finding['file']}{at}: " if finding["file"] else ""
        queue = f"{finding['topic']}/{finding.get('queueId', 0)}: " if "topic" in finding and not where else ""
        yield from _labelled(output, finding["code"], finding["severity"], where + queue + finding["message"])
    yield from _more(shown["findings"], "other finding")
    for change in _first(shown["files"]):
        yield from _labelled(output, change["action"], "title", change["path"])
    yield from _more(shown["files"], "other file")
    for misfit in _first(shown["notRestored"]):
        queue = f"{misfit['topic']}/{misfit['queueId']} {misfit['queueOffset']}"
        words = f"{queue} (log {misfit['commitLogOffset']}): {misfit['reason']}"
        yield from _labelled(output, "LEFT OUT", "warning", words)
    yield from _more(shown["notRestored"], "other message left out", "other messages left out")
    if shown["lost"]:
        yield from _labelled(output, "LOST", "error", lost_words(shown["lost"]))
    yield from _verdict_applied(output, shown, store)


def earlier_lines(output: Output, shown: Mapping[str, Any], store: str, until: str) -> Iterator[str]:
    """Yield the lines of a store as it was at a time, as the user typed it: the messages left out, then the changes."""
    cut, changed = shown["cut"], shown["offsets"]
    kept = text.counted(shown["messages"], "message")
    at = output.time(shown["until"])
    head = f"{text.neutral(store)} as it was at {at}: {kept}, the log from {shown['minPhyOffset']} to "
    yield from text.hanging(f"{head}{shown['maxPhyOffset']}.", output.look.width, 2)
    if cut is not None:
        span = f"stored {output.time(cut['firstStoreTimestamp'])} to {output.time(cut['lastStoreTimestamp'])}"
        yield from _labelled(
            output, "LEFT OUT", "error", f"{text.counted(cut['messages'], 'message')} {span}, {text.size(cut['bytes'])}"
        )
        for topic, count in _first(sorted(cut["topics"].items(), key=lambda item: (-item[1], item[0]))):
            yield from _labelled(output, "", "title", f"{topic}  {text.count(count)}")
        yield from _more(list(cut["topics"]), "other topic")
    for one in _first(changed):
        place = f"{one['group']} in {one['topic']}/{one['queueId']}: {one['before']} → {one['after']}, the end"
        yield from _labelled(output, "OFFSET", "warning", place)
    yield from _more(changed, "other committed offset")
    for finding in _first(shown["findings"]):
        yield from _labelled(output, finding["code"], finding["severity"], finding["message"])
    yield from _more(shown["findings"], "other finding")
    target = shown["to"]
    what = "no message was stored then or later" if cut is None else "the store itself is unchanged"
    if target is None:
        command = f"rmqtool recover {quote(store)} --until {quote(until)} --to DIR"
        yield from verdict_lines(output, f"nothing was written; {what}", None, [command])
    else:
        yield from verdict_lines(
            output, f"the earlier store is in {text.neutral(target)}; {what}", None, [f"rmqtool check {quote(target)}"]
        )


def _labelled(output: Output, label: str, style: str, words: str) -> Iterator[str]:
    """Yield words after a label; colour codes take no width."""
    head = f"  {label.ljust(_RECOVERED_LABEL)}  "
    first, *rest = text.hanging(head + text.neutral(words), output.look.width, len(head))
    yield f"  {output.paint(label.ljust(_RECOVERED_LABEL), style)}{first[2 + _RECOVERED_LABEL :]}"
    yield from rest


def _first(rows: list[Any]) -> list[Any]:
    return rows[:_RECOVERED_SHOWN]


def _more(rows: list[Any], one: str, many: str = "") -> Iterator[str]:
    if len(rows) > _RECOVERED_SHOWN:
        yield f"  and {text.counted(len(rows) - _RECOVERED_SHOWN, one, many)}; --json shows them all"


def _verdict_applied(output: Output, shown: Mapping[str, Any], store: str) -> Iterator[str]:
    start = shown["brokerStart"]
    done = f"recovered ({_NO_UNDO})" if shown["files"] else "nothing to change"
    again = f"rmqtool recover {quote(store)}"
    stays = [one for one in shown["left"] if one["severity"] != Severity.NOTICE]
    if start is not None and start["messagesDeleted"]:
        lost = text.counted(start["messagesDeleted"], "message")
        headline = f"do not start a {start['as']} broker yet: it would cut the log at the damage and delete {lost}"
        yield from verdict_lines(output, headline, Severity.ERROR, [f"rmqtool repair {quote(store)}"])
    elif start is not None and not start["loads"]:
        headline = f"{done}, but a {start['as']} broker would not load this store"
        yield from verdict_lines(output, headline, Severity.WARNING, [again])
    elif start is not None and not start["losesNothing"]:
        headline = f"{done}, but the start of a {start['as']} broker would do harm"
        yield from verdict_lines(output, headline, Severity.WARNING, [again])
    elif stays or shown["notRestored"]:
        headline = f"{done}, but {_stays(stays, shown['notRestored'])}"
        yield from verdict_lines(output, headline, Severity.WARNING, [f"rmqtool check {quote(store)}"])
    else:
        yield from verdict_lines(output, f"recovered; {_NO_UNDO}" if shown["files"] else done)


def _stays(stays: Collection[Row], left_out: Collection[Row]) -> str:
    """Say what a recovery cannot repair."""
    damage = text.counted(len(stays), "damaged place stays in the log", "damaged places stay in the log")
    misfits = text.counted(len(left_out), "message is in no queue", "messages are in no queue")
    return " and ".join([*([damage] if stays else []), *([misfits] if left_out else [])])
