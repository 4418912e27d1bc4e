"""The screen of ``tick``: what happened, by topic, and what still waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def ticked_lines(output: Output, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines."""
    if summary["counts"]:
        yield from output.table_lines(summary["counts"], _COLUMNS)
    else:
        yield "Nothing was due."
    for service, waits in summary["waiting"].items():
        if waits["count"]:
            one, many = _WAITS[service]
            words = f"{text.count(waits['count'])} {one if waits['count'] == 1 else many}"
            next_due = waits.get("nextDue")
            when = f", the next due {text.timestamp(next_due, output.look.zone)}" if next_due is not None else ""
            yield f"Waiting: {words}{when}."
