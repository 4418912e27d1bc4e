"""Filters that Spark pushes down, as bounds of the read.

Each filter is also handed back: Spark applies it to every row again. So a bound only has to leave out rows that
certainly do not match. A filter that does not bound the places of messages is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from rmqtool.exports.choice import Choice
from rmqtool.spark.options import to_milliseconds
from rmqtool.spark.queue_ranges import ClusterReader
from rmqtool.spark.reader import RocketMQReader

_IN_PATTERNS = re.compile(r"[*?\[]")


class _Pushing:
    """Narrows the choice of a reader by filters."""

    choice: Choice

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the choice; hand all filters back."""
        for one in filters:
            self.choice = narrowed(self.choice, one)
        return filters


class PushingReader(_Pushing, RocketMQReader):
    """A reader of stores that takes filters."""


class PushingClusterReader(_Pushing, ClusterReader):
    """A reader of a cluster that takes filters."""


def narrowed(choice: Choice, asked: Filter) -> Choice:
    """Return the choice without messages that the filter certainly refuses."""
    name = ".".join(getattr(asked, "attribute", ()))
    if name == "topic":
        return _with_topics(choice, asked)
    narrow = _BY_COLUMN.get(name)
    if narrow is None:
        return choice
    values = [value for value in _values(asked) if value is not None]
    if isinstance(asked, EqualTo | EqualNullSafe | In) and values:
        return narrow(choice, min(values), max(values))
    if not isinstance(asked, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return choice
    value = values[0]
    if isinstance(value, int):
        value += isinstance(asked, GreaterThan) - isinstance(asked, LessThan)
    is_least = isinstance(asked, GreaterThan | GreaterThanOrEqual)
    return narrow(choice, value, None) if is_least else narrow(choice, None, value)


def _values(asked: Filter) -> list[Any]:
    found = getattr(asked, "value", None)
    return list(found) if isinstance(asked, In) and found is not None else [found]


def _with_topics(choice: Choice, asked: Filter) -> Choice:
    values = [value for value in _values(asked) if isinstance(value, str)]
    if isinstance(asked, StringStartsWith):
        # If the options have patterns already, the intersection of both cannot be written as a list of patterns.
        return choice if choice.topics else replace(choice, topics=(_literal(values[0]) + "*",))
    if not isinstance(asked, EqualTo | EqualNullSafe | In) or not values:
        return choice
    both = tuple(_literal(topic) for topic in choice.selection().topics.select(values))
    return replace(choice, topics=both) if both else replace(choice, physical_end=0)


def _literal(topic: str) -> str:
    return _IN_PATTERNS.sub(lambda found: f"[{found[0]}]", topic)


# For each column: narrow the choice to values between least and greatest; each may be open.


def _queue_ids(choice: Choice, least: Any, most: Any) -> Choice:
    return replace(choice, queue_id=least) if least == most and choice.queue_id is None else choice


def _queue_offsets(choice: Choice, least: Any, most: Any) -> Choice:
    start, end = _both(choice.start_offset, choice.end_offset, least, _behind(most))
    return replace(choice, start_offset=start, end_offset=end)


def _physical_offsets(choice: Choice, least: Any, most: Any) -> Choice:
    start, end = _both(choice.physical_begin, choice.physical_end, least, _behind(most))
    return replace(choice, physical_begin=start or 0, physical_end=end)


def _store_times(choice: Choice, least: datetime | None, most: datetime | None) -> Choice:
    # Times are whole milliseconds in a store and are rounded down here, so one more millisecond may match.
    begin = None if least is None else to_milliseconds(least)
    begin, end = _both(choice.begin, choice.end, begin, None if most is None else to_milliseconds(most) + 1)
    return replace(choice, begin=begin, end=end)


_BY_COLUMN: dict[str, Callable[[Choice, Any, Any], Choice]] = {
    "queue_id": _queue_ids,
    "queue_offset": _queue_offsets,
    "commitlog_offset": _physical_offsets,
    "store_timestamp": _store_times,
}


def _behind(value: int | None) -> int | None:
    return None if value is None else value + 1


def _both(begin: int | None, end: int | None, least: int | None, behind: int | None) -> tuple[int | None, int | None]:
    """Return the intersection of two ranges: the greater begin, the lesser end."""
    begins = [value for value in (begin, least) if value is not None]
    ends = [value for value in (end, behind) if value is not None]
    return max(begins, default=None), min(ends, default=None)
