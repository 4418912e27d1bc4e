"""The screens of ``info``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from shlex import quote
from typing import Any

from rmqtool.findings import Finding, Severity
from rmqtool.render import text
from rmqtool.render.findings import finding_lines, verdict_lines
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind

TOPICS = (
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("kind", "kind"),
    Column("queues", "on disk", Kind.COUNT),
    Column("configuredQueues", "queues", Kind.COUNT, spare=True),
    Column("messages", "messages", Kind.COUNT),
    Column("groups", "groups", Kind.COUNT),
    Column("lag", "lag", Kind.COUNT),
)
QUEUES = (
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("queueId", "queue", Kind.OFFSET),
    Column("minOffset", "min", Kind.OFFSET),
    Column("maxOffset", "max", Kind.OFFSET),
    Column("messages", "messages", Kind.COUNT),
    Column("firstAvailable", "first offset still on disk", Kind.OFFSET),
)
GROUPS = (
    Column("group", "group", cut=Cut.MIDDLE),
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("queueId", "queue", Kind.OFFSET),
    Column("minOffset", "min", Kind.OFFSET),
    Column("committed", "committed", Kind.OFFSET),
    Column("maxOffset", "max", Kind.OFFSET),
    Column("lag", "lag", Kind.COUNT),
)
FILES = (
    Column("file", "file"),
    Column("size", "size", Kind.SIZE),
    Column("kind", "kind", spare=True),
    Column("modified", "modified", Kind.TIME, spare=True),
)
CONFIG = (
    Column("name", "setting"),
    Column("value", "value", cut=Cut.MIDDLE),
    Column("origin", "from"),
    Column("about", "effect", cut=Cut.END, spare=True),
)

# Of a live cluster: a queue is one of a broker.
_BROKER = Column("broker", "broker", cut=Cut.MIDDLE)
CLUSTER_TOPICS = TOPICS
CLUSTER_QUEUES = (QUEUES[0], _BROKER, *QUEUES[1:5], Column("lastUpdateTimestamp", "last stored", Kind.TIME))
CLUSTER_GROUPS = (*GROUPS[:2], _BROKER, *GROUPS[2:], Column("oldestUnreadTimestamp", "unread since", Kind.TIME))

_LABEL = 12
_NAMED = 6


def overview_lines(
    output: Output, shown: Mapping[str, Any], findings: list[Finding], own: Collection[str], store: str
) -> Iterator[str]:
    """Yield the screen of a store at a glance; ``shown`` is the JSON object, ``own`` are the broker's own groups.

    ``store`` is how it is typed.
    """
    if shown["layout"] == "tier":
        yield from _tier_lines(output, shown)
        for finding in findings:
            yield from finding_lines(finding, output)
        yield from _verdict(output, findings, f"rmqtool check {store}")
        return
    yield from _lines(output, "store", f"{text.neutral(shown['store'])}   {shown['layout']}, as {shown['version']}")
    yield from _lines(output, "", f"({text.neutral(shown['versionReason'])})")
    yield from _lines(output, "broker", _broker_words(shown))
    yield from _log_lines(output, shown)
    yield from _lines(output, "queues", _queue_words(shown["topics"]))
    if "tier" in shown:
        yield from _lines(output, "tier", f"{text.neutral(shown['tier']['path'])}   {_tier_words(shown['tier'])}")
    yield from _lines(output, "index", _index_words(output, shown["index"]))
    yield from _lines(output, "checkpoint", _checkpoint_words(output, shown["checkpoint"]))
    yield from _lines(output, "groups", _group_words(shown["groups"], own))
    for finding in findings:
        yield from finding_lines(finding, output)
    # After a crash the question is what the next start deletes; otherwise what is in the messages.
    crashed = any(one.code == "ST-ABORT" and one.severity is not Severity.NOTICE for one in findings)
    yield from _verdict(output, findings, f"rmqtool {'recover' if crashed else 'check'} {store}")


def _tier_words(tier: Mapping[str, Any]) -> str:
    return f"{text.counted(tier['queues'], 'queue')}, {text.size(tier['bytes'])}"


def _tier_lines(output: Output, shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a tier has; the rest of what a broker keeps is in its store."""
    tier, log = shown["tier"], shown["commitLog"]
    yield from _lines(output, "tier", text.neutral(tier["path"]))
    named = text.neutral(f"{tier['broker']} of {tier['cluster']}")
    host = f"   {shown['broker']['host']}" if "host" in shown["broker"] else ""
    yield from _lines(output, "broker", f"{named}{host}")
    yield from _lines(output, "logs", f"{text.counted(log['files'], 'file')}, {text.size(log['maxOffset'])}")
    if "firstStoreTimestamp" in log and "lastStoreTimestamp" in log:
        first, last = _time(output, log["firstStoreTimestamp"]), _time(output, log["lastStoreTimestamp"])
        yield from _lines(output, "", f"stored {first} to {last}")
    yield from _lines(output, "queues", _queue_words(shown["topics"]))
    yield from _lines(output, "index", _index_words(output, shown["index"]))


def cluster_lines(output: Output, shown: Mapping[str, Any], own: Collection[str], store: str) -> Iterator[str]:
    """Yield the screen of a live cluster at a glance; ``store`` is how it is typed."""
    yield from _lines(output, "cluster", text.neutral(shown["cluster"]))
    for name, broker in shown["brokers"].items():
        addresses = ", ".join(f"{one} (id {number})" for number, one in broker["addresses"].items())
        rates = f"{broker['putTps']} messages/s in, {broker['getTps']} out"
        version = broker["version"] or "version not known"
        yield from _lines(output, "broker", text.neutral(f"{name}   {version}   {addresses}   {rates}"))
    yield from _lines(output, "queues", _queue_words(shown["topics"]))
    yield from _lines(output, "groups", _group_words(_known_lags(shown["groups"]), own))
    yield from verdict_lines(output, "the brokers answer", None, [f"rmqtool info {store} groups"])


def _known_lags(groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return the groups without queues that no longer exist: those have no lag."""
    return {
        group: {
            topic: {queue: place for queue, place in places.items() if place["lag"] is not None}
            for topic, places in topics.items()
        }
        for group, topics in groups.items()
    }


def _lines(output: Output, label: str, words: str) -> Iterator[str]:
    first, *others = text.hanging(label.ljust(_LABEL).replace(" ", "\u00a0") + words, output.look.width, _LABEL)
    yield output.paint(first[:_LABEL], "title") + first[_LABEL:]
    yield from others


def _time(output: Output, timestamp_ms: int) -> str:
    return output.time(timestamp_ms).replace(" ", "\u00a0")


def _broker_words(shown: Mapping[str, Any]) -> str:
    host = shown["broker"].get("host", "host not known: no message of the log was read")
    if shown["lock"] == "held":
        return f"{host}   in use: a broker or another rmqtool holds the lock"
    return f"{host}   not running (the lock is free){'; abort is present' if shown['abort'] else ''}"


def _log_lines(output: Output, shown: Mapping[str, Any]) -> Iterator[str]:
    log = shown["commitLog"]
    if not log["files"]:
        yield from _lines(output, "commit log", "no file")
        return
    files = f"{text.counted(log['files'], 'file')} of {text.size(log['fileSize'])}"
    yield from _lines(output, "commit log", f"{files}   offsets {log['minOffset']} to {log['maxOffset']}")
    # Either end is missing if its file could not be read.
    if "firstStoreTimestamp" in log and "lastStoreTimestamp" in log:
        first, last = _time(output, log["firstStoreTimestamp"]), _time(output, log["lastStoreTimestamp"])
        yield from _lines(output, "", f"stored {first} to {last}")


def _queue_words(topics: Mapping[str, Any]) -> str:
    """Say how many queues are on disk, and how many topics have none there."""
    queues = sum(len(topic["queues"]) for topic in topics.values())
    kinds: dict[str, int] = {}
    for topic in topics.values():
        if topic["queues"]:
            kinds[topic["kind"]] = kinds.get(topic["kind"], 0) + 1
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))
    there = sum(kinds.values())
    without = len(topics) - there
    rest = f"; {text.counted(without, 'more topic has', 'more topics have')} no queue files" if without else ""
    return f"{queues} of {text.counted(there, 'topic')}" + (f" ({words})" if words else "") + rest


def _index_words(output: Output, files: list[Mapping[str, Any]]) -> str:
    if not files:
        return "no file"
    entries = sum(file["entries"] for file in files)
    words = f"{text.counted(len(files), 'file')}, {text.counted(entries, 'entry', 'entries')}"
    newest = max(file["endTimestamp"] for file in files)
    return words + (f", newest ends {_time(output, newest)}" if newest > 0 else "")


def _checkpoint_words(output: Output, checkpoint: Mapping[str, int] | None) -> str:
    if checkpoint is None:
        return "missing"
    parts = (("log", "physicMsgTimestamp"), ("queues", "logicsMsgTimestamp"), ("index", "indexMsgTimestamp"))
    return ", ".join(
        f"{label} {_time(output, checkpoint[name]) if checkpoint[name] else 'never'}" for label, name in parts
    )


def _group_words(groups: Mapping[str, Any], own: Collection[str]) -> str:
    """Say how far consumer groups lag: the number that the list of groups ends with, too."""
    if not groups:
        return "none with committed offsets"
    lag_of = {
        group: sum(max(place["lag"], 0) for queues in topics.values() for place in queues.values())
        for group, topics in groups.items()
        if group not in own
    }
    lags = list(lag_of.values())
    count = f"{len(lags)}" + (f", and {len(groups) - len(lags)} of the broker's own" if len(lags) < len(groups) else "")
    past = sum(
        any(place["lag"] < 0 for queues in topics.values() for place in queues.values())
        for group, topics in groups.items()
        if group not in own
    )
    lagging = [group for group, lag in lag_of.items() if lag]
    parts = [count]
    if len(lagging) == 1:
        parts.append(f"1 group lags: {text.neutral(lagging[0])}, by {text.counted(sum(lags), 'message')}")
    elif lagging:
        parts.append(f"{text.count(len(lagging))} groups lag, by {text.counted(sum(lags), 'message')} in total")
    if past:
        parts.append(f"{past} with committed offsets past the end of a queue")
    return "; ".join(parts if len(parts) > 1 else [count, "no lag"])


def _verdict(output: Output, findings: list[Finding], next_command: str) -> Iterator[str]:
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    worst = next((severity for severity in Severity if counts[severity]), None)
    if worst in (None, Severity.NOTICE):
        count = counts[Severity.NOTICE]
        noticed = f", {text.counted(count, 'notice')}" if count else ""
        headline = f"quick look: no problems found{noticed} (messages not checked)"
    else:
        parts = [f"{count} {severity}{'s' if count > 1 else ''}" for severity, count in counts.items() if count]
        headline = f"quick look: {', '.join(parts)} (messages not checked)"
    yield from verdict_lines(output, headline, worst, [next_command])


def behind_lines(output: Output, rows: Iterable[Mapping[str, Any]], own: Collection[str], unread: str) -> Iterator[str]:
    """Yield the listed groups that lag, the furthest first; ``unread`` is the command that shows their unread messages.

    The broker's ``own`` groups do not count: their lag needs no action. A group is ahead of a queue if it consumed
    messages that are no longer there.
    """
    lags: dict[str, int] = {}
    ahead: dict[str, int] = {}
    for row in rows:
        if row["group"] in own:
            continue
        lags[row["group"]] = lags.get(row["group"], 0) + max(row["lag"] or 0, 0)
        if (row["lag"] or 0) < 0:
            ahead[row["group"]] = ahead.get(row["group"], 0) - row["lag"]
    behind = {group: lag for group, lag in lags.items() if lag}
    if ahead:
        words = f"ahead of {'its queue' if len(ahead) == 1 else 'their queues'}: {_most(ahead)}"
        yield from verdict_lines(output, f"{_groups(ahead)} {words}", Severity.WARNING)
    if behind:
        furthest = min(behind, key=lambda group: (-behind[group], group))
        words = f"{text.counted(len(behind), 'group lags', 'groups lag')}: {_most(behind)}"
        yield from verdict_lines(output, words, Severity.WARNING, [unread.format(quote(furthest))])
    elif lags and not ahead:
        yield from verdict_lines(output, "no group lags")


def _groups(named: Collection[str]) -> str:
    return text.counted(len(named), "group is", "groups are")


def _most(messages: Mapping[str, int]) -> str:
    """Return the groups with their messages, the largest number first."""
    ordered = sorted(messages, key=lambda group: (-messages[group], group))
    named = [f"{text.neutral(group)}\u00a0{text.count(messages[group])}" for group in ordered[:_NAMED]]
    rest = [f"and {text.count(len(ordered) - _NAMED)} more"] if len(ordered) > _NAMED else []
    return ", ".join(named + rest)
