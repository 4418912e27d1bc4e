"""Compares the bounds of queues in RocksDB with their rows.

A broker finds the rows of a queue through its two bounds. Without ``max`` the queue is empty for it; it serves no row
after ``max`` and none before ``min``, and numbers new messages after ``max``. The results are differences: ``checks``
reports them, and a recovery writes the bound that is due.

upstream: RocksDBConsumeQueueOffsetTable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.formats.layouts import RocksDBOffsetValue
from rmqtool.store.listing import QueueId
from rmqtool.store.rocksdb import Database, iter_bound_rows


@dataclass
class Bounds:
    """The bounds that a queue has in the database."""

    max: RocksDBOffsetValue | None = None
    min: RocksDBOffsetValue | None = None


@dataclass
class RowRange:
    """The rows of a queue that are right, as far as they decide its bounds.

    ``first`` is the queue offset of the first row whose message is in the log, ``last`` that of the last row; rows of
    messages that were removed from the log count for ``last`` alone. The places are physical offsets. -1: no such row.
    """

    first: int = -1
    first_place: int = -1
    last: int = -1
    last_place: int = -1

    def add(self, queue_offset: int, place: int, *, in_log: bool = True) -> None:
        """Add a row, in any order; of two with one queue offset the later one counts."""
        if queue_offset >= self.last:
            self.last, self.last_place = queue_offset, place
        if in_log and (self.first < 0 or queue_offset <= self.first):
            self.first, self.first_place = queue_offset, place


class BoundApart(NamedTuple):
    """A bound, ``max`` or ``min``, that differs from the rows. ``found``: the one there, or None."""

    bound: str
    found: RocksDBOffsetValue | None
    due: RocksDBOffsetValue


def read_all_bounds(database: Database) -> dict[QueueId, Bounds]:
    """Return the bounds of each queue that has any."""
    found: dict[QueueId, Bounds] = {}
    for queue, name, value in iter_bound_rows(database):
        setattr(found.setdefault(queue, Bounds()), name, value)
    return found


def iter_bounds_apart(rows: RowRange, bounds: Bounds) -> Iterator[BoundApart]:
    """Yield the bounds of a queue with rows that differ from them; a ``min`` before the first row is right.

    A broker of 5.4 begins a queue that it has in files already with two bounds of no place, and no row between them.
    """
    least, greatest = bounds.min, bounds.max
    if rows.last < 0 or (least is not None and greatest == (0, least.queue_offset - 1)):
        return
    due = RocksDBOffsetValue(rows.last_place, rows.last)
    if greatest != due:
        yield BoundApart("max", greatest, due)
    if least is not None and 0 <= rows.first < least.queue_offset:
        yield BoundApart("min", least, RocksDBOffsetValue(rows.first_place, rows.first))
