"""Queues in RocksDB, as a get reads them. Only their own broker writes them.

Upstream: ``RocksDBConsumeQueue``, ``RocksDBConsumeQueueTable``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import overload

from rmqtool.engine.queue_offsets import QueueKey
from rmqtool.engine.reading import Unit
from rmqtool.storage.database_queues import QueueRow, iter_queue_rows, read_bounds, read_queue_row
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.rocksdb import Database
from rmqtool.storage.time_search import Boundary, search_rows


class DatabaseQueue:
    """One queue; the log begins at ``log_min``, rows of what lies before linger."""

    def __init__(self, database: Database, queue: QueueId, bounds: tuple[int, int], log_min: int) -> None:
        self.min_offset, self.max_offset = bounds
        self._database = database
        self._queue = queue
        self._log_min = log_min

    def units(self, begin: int, most: int) -> Iterator[Unit] | None:
        """Return up to ``most`` units from an offset on: files have more to look at, a database has not."""
        rows = islice(iter_queue_rows(self._database, self._queue, begin), most)
        first = next(rows, None)
        return None if first is None else map(_unit, chain((first,), rows))

    def offset_by_time(self, timestamp: int, boundary: Boundary) -> int:
        """Return the queue offset for a time."""
        rows = iter_queue_rows(self._database, self._queue, self.min_offset)
        first = next((row.queue_offset for row in rows if row.value.physical_offset >= self._log_min), None)
        if first is None:
            return 0
        return first + search_rows(_Times(self._database, self._queue, first, self.max_offset), timestamp, boundary)


class _Times(Sequence[int]):
    """The store times of a queue from one offset to another, read one by one."""

    def __init__(self, database: Database, queue: QueueId, begin: int, end: int) -> None:
        self._database = database
        self._queue = queue
        self._offsets = range(begin, end)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...

    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        if isinstance(at, slice):
            return [self[one] for one in range(len(self))[at]]
        row = read_queue_row(self._database, self._queue, self._offsets[at])
        # upstream: where a row is missing the search goes on behind it.
        return -1 if row is None else row.store_time


def _unit(row: QueueRow) -> Unit:
    value = row.value
    return Unit(row.queue_offset, value.physical_offset, value.size, value.tags_code)


def open_queues(database: Database, log_min: int) -> dict[QueueKey, DatabaseQueue]:
    """Return the queues of a database."""
    return {queue: DatabaseQueue(database, queue, bounds, log_min) for queue, bounds in read_bounds(database).items()}
