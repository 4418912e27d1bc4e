"""The screen of ``diff``: which queues or topics differ, which messages, and how many in total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmqtool.findings import Severity
from rmqtool.render.findings import verdict_lines
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind
from rmqtool.render.text import count, counted, neutral

DIFFERENCES = (
    Column("kind", ""),
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("queueId", "queue", Kind.OFFSET),
    Column("queueOffset", "offset", Kind.OFFSET),
)
_SHOWN = (
    Column("kind", ""),
    Column("place", "queue @ offset", cut=Cut.MIDDLE),
    Column("storeTimestamp", "stored", Kind.TIME),
    Column("why", "differs in", cut=Cut.END),
)
_QUEUES = (
    Column("place", "queue", cut=Cut.MIDDLE),
    Column("messagesA", "in A", Kind.COUNT),
    Column("messagesB", "in B", Kind.COUNT),
    Column("shortA", "digest A"),
    Column("shortB", "digest B"),
)
_TOPICS = (
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("onlyA", "only in A", Kind.COUNT),
    Column("onlyB", "only in B", Kind.COUNT),
    Column("different", "different", Kind.COUNT),
)
_WORDS = {"onlyA": "only in A", "onlyB": "only in B", "different": "different"}
_MOST_QUEUES = 20
_DIGITS = 12
# Fields that depend on the place of a message; they may differ between equal messages.
_OF_PLACE = frozenset({"commitLogOffset", "offsetMsgId", "preparedTransactionOffset", "storeSize", "bodyCRC"})


def diff_lines(output: Output, head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the screen; ``head`` is the object of the contract without its rows."""
    for name in ("a", "b"):
        side = head[name]
        words = counted(side["messages"], "message")
        words += f", {counted(side['damaged'], 'damaged place')}" if side["damaged"] else ""
        yield f"{output.paint(name.upper(), 'title')}  {neutral(side['store'])}  {words}"
    if "topics" not in head:
        yield from _queue_lines(output, head.get("digests", ()))
        yield from _range_lines(output, head.get("ranges", ()))
    elif head["topics"]:
        yield from output.table_lines(head["topics"], _TOPICS)
    elif head["same"]:
        yield "no topic differs"
    shown = [_shown(row) for row in rows]
    if shown:
        yield from output.table_lines(shown, _SHOWN)
        total = sum(head[kind] for kind in _WORDS)
        if total > len(shown):
            yield f"… {count(total - len(shown))} more; -n N shows more, --json all of them"
    yield from _verdict(output, head)


def _queue_lines(output: Output, digests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    differing = [digest for digest in digests if digest["a"] != digest["b"]]
    rows = [
        {
            **digest,
            "place": f"{digest['topic']}/{digest['queueId']}",
            "shortA": (digest["a"] or "")[:_DIGITS],
            "shortB": (digest["b"] or "")[:_DIGITS],
        }
        for digest in differing[:_MOST_QUEUES]
    ]
    if rows:
        yield from output.table_lines(rows, _QUEUES)
    if len(differing) > _MOST_QUEUES:
        yield f"… {count(len(differing) - _MOST_QUEUES)} more queues differ; --json gives all of them"


def _range_lines(output: Output, ranges: Iterable[Mapping[str, int]]) -> Iterator[str]:
    some = list(ranges)
    for found in some[:_MOST_QUEUES]:
        words = f"{found['offset']} to {found['offset'] + found['length']} of the log"
        yield f"{output.paint('bytes', 'title')}  {words} ({count(found['length'])} bytes)"
    if len(some) > _MOST_QUEUES:
        yield f"… {count(len(some) - _MOST_QUEUES)} more ranges of bytes differ; --json gives all of them"


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    a, b = row.get("a"), row.get("b")
    either = a or b or {}
    place = f"{row['topic']}/{row['queueId']} @ {row['queueOffset']}" if row["topic"] else "no message"
    return {
        "kind": _WORDS[row["kind"]],
        "place": place,
        "storeTimestamp": either.get("storeTimestamp"),
        "why": _why(a, b) if row["kind"] == "different" else "",
    }


def _why(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> str:
    """Return how two messages differ."""
    if a is None or b is None:
        return f"no message in {'A' if a is None else 'B'}" if a or b else "damaged bytes"
    names = [name for name in a if a[name] != b[name] and name not in _OF_PLACE]
    return ", ".join(names) or "their queue entries, or bytes with the same meaning"


def diff_words(head: Mapping[str, Any]) -> str:
    """Return the result of a comparison in one line."""
    parts = [f"{count(head[kind])} {words}" for kind, words in _WORDS.items() if head[kind]]
    if parts:
        return f"the stores differ: {', '.join(parts)}"
    if head["complete"]:
        same = f"the stores are the same, compared by {head['by']}"
        places = counted(head["a"]["damaged"], "damaged place")
        return f"{same}, and both have the same {places}" if head["a"]["damaged"] else same
    return "no differences in the readable parts, but damaged parts were not compared"


def _verdict(output: Output, head: Mapping[str, Any]) -> Iterator[str]:
    damaged = head["a"]["damaged"] or head["b"]["damaged"] or not head["complete"]
    severity = Severity.ERROR if not head["same"] else Severity.WARNING if damaged else None
    yield from verdict_lines(output, diff_words(head), severity, _next(head) if severity is not None else ())


def _next(head: Mapping[str, Any]) -> list[str]:
    from shlex import quote

    damaged = [head[name]["store"] for name in ("a", "b") if head[name]["damaged"]]
    return [f"rmqtool check {quote(store)}" for store in damaged]
