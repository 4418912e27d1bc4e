"""The screen of ``repair``: the plan step by step, the remaining problems, what to type next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from shlex import quote
from typing import Any

from rmqtool.errors import Exit
from rmqtool.findings import Severity
from rmqtool.render import text
from rmqtool.render.check import lost_words
from rmqtool.render.findings import verdict_lines
from rmqtool.render.output import Output

_SHOWN = 12
_STYLES = {"derived": "title", "state": "warning", "primary": "error"}
_MEANING = {
    "derived": "rebuilt from the log, no message is at risk",
    "state": "changes what brokers and groups remember; needs --allow state",
    "primary": "writes into the commit log, the only copy of the messages; needs --allow primary",
}
# Actions by another name than in JSON.
_NAMES = {"bridge": "overwrite", "truncate": "cut"}
_CLASS, _ACTION = 7, 9
_OFFSETS = 32
# Added to a step that changes damage in the log: the messages that it gives up.
_MEANT = {
    "bridge": "; an empty placeholder overwrites the whole record, and consumers skip it",
    "truncate": "; the log is cut off here: EVERY message after it is deleted",
}

PAST_FIELDS = ("undo", "plan", "time", "steps", "store", "undone")

Row = Mapping[str, Any]


def repair_lines(
    output: Output, shown: Row, store: str, commands: Sequence[str], undo: str | None = None
) -> Iterator[str]:
    """Yield the lines of a plan, done or not; ``commands`` are what to type next, ``undo`` undoes the repair."""
    steps, left = shown["steps"], shown["left"]
    applied = shown["applied"]
    if steps:
        yield f"{text.neutral(store)}: plan {shown['plan']}{'' if applied else ' (nothing is written yet)'}"
        yield from _meanings(output, steps)
    # Steps that were not done come last, under "not done": named "bridge" or "delete" they look done.
    rows = list(_grouped(sorted(steps, key=lambda step: applied and not step["allowed"])))
    for row in rows[:_SHOWN]:
        yield from _step_lines(output, row, applied=applied)
    if len(rows) > _SHOWN:
        yield f"  and {text.count(len(rows) - _SHOWN)} other steps; --json shows them all"
    if steps and not applied:
        journal = f"every old byte is saved first, in the undo journal {text.neutral(_journal(store))}/"
        yield from _labelled(output, "undo", "title", f"{journal}; repair --undo last restores them")
    for name, value in shown.get("assumed", {}).items():
        words = (
            f"{name}={text.neutral(str(value))}: no remaining file shows it, and a broker with another value rejects "
            f"the new files. Give your broker's value: --conf {name}=..."
        )
        yield from _labelled(output, "assumed", "warning", words)
    for finding in left[:_SHOWN]:
        where = text.neutral(f"{finding['file'] or ''}{_at(finding)}")
        words = f"{finding['code']} {where}: {text.neutral(finding['message'])}"
        yield from _labelled(output, "left", finding["severity"], words)
    if len(left) > _SHOWN:
        yield f"  and {text.count(len(left) - _SHOWN)} other findings; --json shows them all"
    if shown["lost"]:
        yield from _labelled(output, "lost", "error", f"in all {lost_words(shown['lost'])}")
    yield from verdict_lines(output, *_verdict(shown, commands), commands)
    if undo is not None:
        yield f"Undo: {output.paint(text.neutral(undo), 'command')}"


def _meanings(output: Output, steps: Sequence[Row]) -> Iterator[str]:
    """Yield what the classes of the steps mean, before the steps use the words."""
    classes = [name for name in _MEANING if any(step["class"] == name for step in steps)]
    for name in classes if classes != ["derived"] else ():
        yield from text.hanging(f"({name}: {_MEANING[name]})", output.look.width, 1)


def _journal(store: str) -> str:
    """Return the default directory of undo journals, as ``repair --help`` names it."""
    return f"{store.rstrip('/') or store}-rmqtool-undo"


def _labelled(output: Output, label: str, style: str, words: str) -> Iterator[str]:
    """Yield words after a label; colour codes take no width."""
    head = f"  {label.ljust(_CLASS)}  "
    first, *rest = text.hanging(head + words, output.look.width, len(head))
    yield f"  {output.paint(label.ljust(_CLASS), style)}{first[2 + _CLASS :]}"
    yield from rest


def _at(finding: Row) -> str:
    return f"@{finding['offset']}" if "offset" in finding else ""


def _grouped(steps: Iterable[Row]) -> Iterator[tuple[Row, int, int]]:
    """Yield equal steps in one directory as one: the first, how many, and their bytes."""

    def alike(step: Row) -> tuple[object, ...]:
        directory = step["file"].rpartition("/")[0]
        return (step["class"], step["action"], directory if directory.count("/") > 1 else step["file"], step["reason"])

    for _, same in groupby(steps, alike):
        members = list(same)
        yield members[0], len(members), sum(step["bytes"] for step in members)


def _step_lines(output: Output, row: tuple[Row, int, int], *, applied: bool = True) -> Iterator[str]:
    step, count, size = row
    name = text.neutral(step["file"])
    if count > 1:
        name = f"{name.rpartition('/')[0]}/ {text.count(count)} files"
    # A derived step needs no permission. If it is not done it waits for other steps, as its reason says.
    waits = step["class"] == "derived" and not step["allowed"]
    left_out = "keep" if waits else "not done"
    action = left_out if applied and not step["allowed"] else _NAMES.get(step["action"]) or step["action"]
    leave = "" if step["allowed"] or waits else f"; needs --allow {step['class']}"
    if waits and not applied and "--allow" not in step["reason"]:
        leave = "; only with --allow primary"
    size_words = f", {text.size(size)}" if size else ""
    meant = _MEANT.get(step["action"], "")
    words = f"{name}{size_words}: {text.neutral(step['reason'])}{meant}{leave}"
    head = f"  {step['class'].ljust(_CLASS)}  {action.ljust(_ACTION)}  "
    if output.look.width is not None and len(head) + text.display_width(name) >= output.look.width:
        # A path gets its own line rather than be cut, so that it can be copied.
        first, rest = head, text.hanging(f"    {words}", output.look.width, len(head))
    else:
        first, *rest = text.hanging(head + words, output.look.width, len(head))
    yield f"  {output.paint(step['class'].ljust(_CLASS), _STYLES[step['class']])}{first[2 + _CLASS :].rstrip()}"
    yield from rest
    changes = step.get("offsets", ())
    for change in changes[:_OFFSETS]:
        before = "none" if change["before"] is None else text.count(change["before"])
        yield f"{' ' * len(head)}{text.neutral(change['topic'])}/{change['queueId']}  {before} -> {change['after']}"
    if len(changes) > _OFFSETS:
        yield f"{' ' * len(head)}and {text.count(len(changes) - _OFFSETS)} other queues; --json shows them all"


def _verdict(shown: Row, commands: Sequence[str]) -> tuple[str, Severity | None]:
    left, steps = shown["left"], shown["steps"]
    stays = text.counted(len(left), "problem")
    if not steps and left:
        # Without a further command to type, say that nothing more can be restored.
        end = "" if commands else f"; what {'it' if len(left) == 1 else 'they'} took cannot be restored from this store"
        return f"nothing can be repaired here; {stays} left{end}", Severity.WARNING
    if not steps:
        return "nothing to repair", None
    missing = [step for step in steps if not step["allowed"]]
    risks = ",".join(sorted({step["class"] for step in missing} - {"derived"}))
    if not shown["applied"]:
        of_them = "" if len(missing) == len(steps) else f"{text.count(len(missing))} of them "
        some = f", {of_them}only with --allow {risks}" if risks else ""
        after = f"; then {stays} left" if left else f"; then {_sound(shown)}"
        each = "" if len(steps) == len(list(_grouped(steps))) else " (one for each file)"
        return f"{text.counted(len(steps), 'step')}{each} to do{some}{after}{_for_good(shown)}", Severity.WARNING
    words = f"{text.counted(len(steps) - len(missing), 'step')} done"
    if missing:
        words += f", {text.count(len(missing))} not done{f' (needs --allow {risks})' if risks else ''}"
    if left:
        return f"{words}; {stays} left{_for_good(shown)}", Severity.WARNING
    return f"{words}; {_sound(shown)}{_for_good(shown)}", None


def _sound(shown: Row) -> str:
    return "no problems remain" if not shown.get("assumed") else "no problems remain if the assumed sizes are right"


def _for_good(shown: Row) -> str:
    """Say that a repair brings no message back, where one was lost: a placeholder only lets readers go on."""
    gives_up = any(step["action"] in _MEANT for step in shown["steps"])
    count = sum(int(queue["messages"]) for queue in shown["lost"])
    better = " (better, if a backup has this file of the log whole: copy it back; rmqtool diff BACKUP STORE)"
    backup = better if gives_up and not shown["applied"] else ""
    if count:
        return f"; {text.counted(count, 'message stays', 'messages stay')} lost{backup}"
    return f"; lost messages stay lost{backup}" if gives_up else ""


def undone_lines(output: Output, restored: Sequence[str], deleted: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an undo: the restored files, and the deleted ones that the repair had created."""
    for word, paths in (("restored", restored), ("deleted", deleted)):
        for path in paths[:_SHOWN]:
            yield f"  {word.ljust(8)}  {text.neutral(path or 'the times of the store directory')}"
        if len(paths) > _SHOWN:
            yield f"  and {text.count(len(paths) - _SHOWN)} others {word}"
    yield from verdict_lines(
        output, "undone: the store is as it was before this repair" if restored or deleted else "nothing to undo"
    )


def past_lines(output: Output, row: Row) -> Iterator[str]:
    """Yield the lines of a past repair: when, which plan, what was done to which files."""
    state = "  (undone)" if row["undone"] else ""
    yield f"{output.time(row['time'])}  plan {text.neutral(row['plan'])}{state}"
    rows = list(_grouped(row["steps"]))
    for step in rows[:_SHOWN]:
        yield from _step_lines(output, step)
    if len(rows) > _SHOWN:
        yield f"  and {text.count(len(rows) - _SHOWN)} other steps; --json shows them all"
    yield f"  journal  {text.neutral(row['undo'])}"


def past_end_lines(output: Output, rows: Sequence[Row], store: str) -> Iterator[str]:
    """Yield the end of the list of repairs."""
    left = [row for row in rows if not row["undone"]]
    words = f"{text.counted(len(left), 'repair')} can be undone, the newest first" if left else "no repair to undo"
    yield from verdict_lines(output, words, None, [f"rmqtool repair {quote(store)} --undo last"] if left else [])


def show_past(output: Output, rows: Sequence[Row], notes: Iterable[str], store: str) -> Exit:
    """Show the past repairs of a store."""
    for note in notes:
        output.note(note)
    output.rows(rows, PAST_FIELDS, lambda row: past_lines(output, row))
    for line in past_end_lines(output, rows, store) if output.is_human else ():
        output.line(line)
    return Exit.DONE


def show_undone(output: Output, shown: Row) -> Exit:
    """Show what an undo restored."""
    output.single(shown, undone_lines(output, shown["files"], shown["deleted"]))
    return Exit.DONE
