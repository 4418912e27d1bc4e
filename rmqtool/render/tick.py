"""The screen of ``tick``: what was delivered or expired, by topic, and what still waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmqtool.render import text
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind

_COLUMNS = (
    Column("service", "service"),
    Column("event", "event"),
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("count", "count", Kind.COUNT),
)
_WAITS = {
    "delay": ("delayed message", "delayed messages"),
    "timer": ("timer", "timers"),
    "transaction": ("half message", "half messages"),
    "pop": ("popped message", "popped messages"),
}


def event_line(event: Mapping[str, Any], output: Output) -> str:
    """Return the line of one event, for a command that goes on."""
    if "files" in event:
        return f"Deleted {_expired(event)}."
    place = f"  {event['topic']}/{event['queueId']}@{event['queueOffset']}" if event.get("topic") else ""
    due = f"  due {text.timestamp(event['dueTimestamp'], output.look.zone)}" if "dueTimestamp" in event else ""
    return text.neutral(f"{event['service']}  {event.get('answer') or event['event']}{place}{due}")


def ticked_lines(output: Output, summary: Mapping[str, Any], removed: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines; ``removed`` are the expired segments."""
    if summary["counts"]:
        yield from output.table_lines(summary["counts"], _COLUMNS)
    else:
        yield "Nothing was due."
    for deleted in removed:
        yield f"Deleted {_expired(deleted)}:"
        yield from (f"  {path}" for path in deleted["files"])
    for service, waits in summary["waiting"].items():
        if waits["count"]:
            one, many = _WAITS[service]
            words = f"{text.count(waits['count'])} {one if waits['count'] == 1 else many}"
            next_due = waits.get("nextDue")
            when = f", the next due {text.timestamp(next_due, output.look.zone)}" if next_due is not None else ""
            yield f"Waiting: {words}{when}."
    left = summary["expired"]
    if left["segments"]:
        yield f"Not deleted: {_expired(left)}."
        yield "A broker would delete them; to do it now: rmqtool tick STORE --expire"
        yield from (f"  {file}" for file in left["files"])


def _expired(expired: Mapping[str, Any]) -> str:
    """Say how much expired, and why."""
    much = text.counted(expired["segments"], "segment")
    why = f"the disk is {expired['used']} % full" if expired["reason"] == "disk" else "older than fileReservedTime"
    return f"{much} of the log with {text.counted(expired['messages'], 'message')} ({why})"
