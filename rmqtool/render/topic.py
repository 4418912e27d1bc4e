"""The screens of ``topic``: a line for each topic, and one topic with its queues and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from rmqtool.render import text
from rmqtool.render.group import lag_of
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind

TOPIC_QUEUES = (
    Column("queueId", "queue", Kind.OFFSET),
    Column("minOffset", "first", Kind.OFFSET),
    Column("maxOffset", "end", Kind.OFFSET),
    Column("messages", "messages", Kind.COUNT),
)
_GROUPS = (
    Column("group", "group", cut=Cut.MIDDLE),
    Column("queues", "queues", Kind.COUNT),
    Column("lag", "lag", Kind.COUNT),
    Column("oldestUnreadTimestamp", "unread since", Kind.TIME),
)


def topic_queues(row: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for each queue of a topic that is shown."""
    for queue, bounds in row["queues"].items():
        least, most = bounds["minOffset"], bounds["maxOffset"]
        yield {"queueId": queue, "minOffset": least, "maxOffset": most, "messages": most - least}


def topic_lines(output: Output, row: Any) -> Iterator[str]:
    """Yield the lines about one topic: its settings, its queues, and how far its groups are."""
    yield output.paint(text.neutral(row["topic"]), "title")
    if row["perm"] is None:
        yield "  no settings, only queues"
    else:
        attributes = "".join(f"  {key}={value}" for key, value in row["attributes"].items())
        yield text.neutral(f"  {_topic_queues(row)}  {row['perm']}{'  ordered' * bool(row['order'])}{attributes}")
    if "brokers" in row:
        yield text.neutral(f"  at {', '.join(row['brokers'])}")
    yield ""
    queues = list(topic_queues(row))
    yield from output.table_lines(queues, TOPIC_QUEUES) if queues else ["no queue has a message"]
    yield ""
    groups = list(_group_rows(row))
    yield from output.table_lines(groups, _GROUPS) if groups else ["no group has a committed offset"]


def _group_rows(row: Any) -> Iterator[dict[str, Any]]:
    for group, places in row["groups"].items():
        yield {"group": group, "queues": len(places), **lag_of(places.values())}


# Up to this width names and numbers of a list are aligned.
_WIDEST = 32


def topic_screen(rows: Iterable[Any]) -> Callable[[Any], tuple[str]]:
    """Return the function that shows a row of the list."""
    return partial(_topic_screen, _topic_widths(list(rows)))


def _topic_widths(rows: list[Any]) -> tuple[int, ...]:
    """Return the greatest widths of name, number of queues and permission; a rare longer name is not aligned."""
    cells = [(row["topic"], _topic_queues(row), row["perm"]) for row in rows if "deleted" not in row]
    return tuple(min(max(map(len, column)), _WIDEST) for column in zip(*cells, strict=True))


def _topic_queues(row: Any) -> str:
    count = row["writeQueueNums"]
    read = f", {row['readQueueNums']} to read" if row["readQueueNums"] != count else ""
    return f"{count} queue{'s' * (count != 1)}{read}"


def _topic_screen(widths: tuple[int, ...], row: Any) -> tuple[str]:
    if "deleted" in row:
        return (
            text.neutral(f"{row['topic']}  deleted, with its queues; its messages stay in the log until they expire"),
        )
    attributes = "  ".join(f"{key}={value}" for key, value in row["attributes"].items())
    cells = zip((row["topic"], _topic_queues(row), row["perm"]), widths, strict=True)
    return (text.neutral("  ".join([*(cell.ljust(width) for cell, width in cells), attributes]).rstrip()),)
