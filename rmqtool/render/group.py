"""The screens of ``group``: the list, and one group with its settings and its place in each queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind
from rmqtool.render.text import neutral

GROUPS = (
    Column("group", "group", cut=Cut.MIDDLE),
    Column("consumeEnable", "consumes"),
    Column("consumeMessageOrderly", "orderly", spare=True),
    Column("consumeBroadcastEnable", "broadcasts", spare=True),
    Column("retryMaxTimes", "retries", Kind.OFFSET),
    Column("retryQueueNums", "retry queues", Kind.OFFSET, spare=True),
    Column("topics", "topics", Kind.COUNT),
    Column("lag", "lag", Kind.COUNT),
    Column("oldestUnreadTimestamp", "unread since", Kind.TIME),
)
_PLACES = (
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("queueId", "queue", Kind.OFFSET),
    Column("committed", "committed", Kind.OFFSET),
    Column("lag", "lag", Kind.COUNT),
    Column("oldestUnreadTimestamp", "unread since", Kind.TIME),
)
_INDENT, _NAME = "  ", 32


def _word(value: bool | int) -> str:
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


def group_list(output: Output, groups: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the list of groups."""
    rows = [
        {key: _word(value) if isinstance(value, bool) else value for key, value in row.items()}
        for row in group_rows(groups)
    ]
    yield from output.table_lines(rows, GROUPS) if rows else ["no groups"]


def group_rows(groups: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each group: its settings, how many topics it has, and its lag in all of them."""
    for name, group in groups.items():
        places = [place for queues in group["topics"].values() for place in queues.values()]
        yield {
            "group": name,
            **{key: value for key, value in group.items() if key != "deleted"},
            "topics": len(group["topics"]),
            **lag_of(places),
        }


def lag_of(places: Collection[Mapping[str, Any]]) -> dict[str, int | None]:
    """Return the lag of a group in some queues together, and since when a message there is unread."""
    times = [place["oldestUnreadTimestamp"] for place in places if "oldestUnreadTimestamp" in place]
    lag = sum(max(place["lag"] or 0, 0) for place in places)
    return {"lag": lag, "oldestUnreadTimestamp": min(times, default=None)}


def group_lines(output: Output, groups: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about one group."""
    for name, group in groups.items():
        if "deleted" in group:
            yield neutral(f"{name}  deleted, with its offsets; its messages to retry and its dead letters stay")
            return
        yield output.paint(neutral(name), "title")
        settings = {key: value for key, value in group.items() if key != "topics"}
        if all(value is None for value in settings.values()):
            yield f"{_INDENT}no settings: the broker knows it only by its offsets"
        else:
            for key, value in settings.items():
                yield f"{_INDENT}{key:{_NAME}}{_word(value)}"
        rows = [
            {"topic": topic, "queueId": queue, **place}
            for topic, queues in group["topics"].items()
            for queue, place in queues.items()
        ]
        if rows:
            yield ""
            yield from output.table_lines(rows, _PLACES)
        else:
            yield f"{_INDENT}no committed offsets"
