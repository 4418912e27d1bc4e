"""Queues in RocksDB, written by the engine.

Each entry is a row, and each queue has a row with its last entry (``max``). One more row tells how far the log is
dispatched. All of them are written together, pass by pass; a broker does the same. There are no rows for messages that
were removed before the queue began, where a queue in files has fillers.

upstream: RocksDBConsumeQueueStore.putMessagePosition, RocksDBConsumeQueueOffsetTable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from rmqtool.engine.message import QueueKey
from rmqtool.files.filesystem import WritableFileSystem
from rmqtool.formats import layouts, paths
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.consume_queue import FILLER, FILLER_UNIT, UNIT_SIZE, is_written
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.rocksdb_rows import (
    CHECKPOINT_TOPIC,
    BoundRowKey,
    QueueRowKey,
    encode_bound_key,
    encode_queue_key,
)
from rmqtool.store.database_copy import BeforeWrite, DatabaseCopy, Row
from rmqtool.store.listing import QueueId
from rmqtool.store.rocksdb import (
    Listed,
    QueueRow,
    find_database,
    iter_queue_rows,
    read_bounds,
    read_queue_row,
)

# The names of the two column families: queue entries, and the bounds of queues.
_ENTRIES, _BOUNDS = "default", "offset"
_UNIT = layouts.CONSUME_QUEUE_UNIT
_VALUE = layouts.ROCKSDB_QUEUE_VALUE
_OFFSET = layouts.LONG
_BOUND = layouts.ROCKSDB_OFFSET_VALUE
# The key of the row that tells how far the log is dispatched.
_CHECKPOINT_KEY = encode_bound_key(BoundRowKey(CHECKPOINT_TOPIC, "max", 0))


class LastEntry(NamedTuple):
    """The end of a queue: its next queue offset, and its last entry, if it has one."""

    max_offset: int
    last: ConsumeQueueUnit | None


class QueueRows:
    """The rows of all queues of a store: a working copy that the engine writes, and ``publish`` brings into the store.

    ``store_times`` has the store time of each record whose entries are about to be written, by physical offset.
    """

    def __init__(self, store: Listed, *, fresh: bool = False) -> None:
        fresh = fresh or not store.listing.has_rows(paths.CONSUME_QUEUE)
        self.copy = DatabaseCopy(store, paths.CONSUME_QUEUE, (_ENTRIES, _BOUNDS), fresh=fresh)
        # Whether the database began empty.
        self.is_empty = fresh
        self.store_times: dict[int, int] = {}
        self._pending: dict[bytes, Row] = {}
        # The end of the last dispatched record, and the value that is in the row for it.
        try:
            self._end = self._written_end = self.read_checkpoint()
        except BaseException:
            self.copy.close()
            raise
        self._last_time = 0
        # The queue of the last entry, and its keys without their queue offsets.
        self._prefixed: QueueKey | None = None
        self._prefix = b""

    def prove(self) -> None:
        """Read all rows; raise RowsUnread if RocksDB cannot."""
        for family in self.copy.rows.families:
            for _ in self.copy.rows.iter_rows(family):
                pass

    def read_checkpoint(self) -> int:
        """Return the physical offset up to which the log is dispatched, 0 without the row."""
        data = self.copy.rows.get(_BOUNDS, _CHECKPOINT_KEY)
        return layouts.LONG.decode(data).value if data is not None and len(data) == layouts.LONG.size else 0

    def iter_ends(self) -> Iterator[tuple[QueueId, LastEntry]]:
        """Yield the end of each queue that has an entry, or had one."""
        for queue, (_, end) in read_bounds(self.copy.rows).items():
            row = read_queue_row(self.copy.rows, queue, end - 1)
            yield queue, LastEntry(end, None if row is None else ConsumeQueueUnit(*row[:3]))

    def put_entries(self, key: QueueKey, queue_offset: int, units: bytes) -> None:
        """Add encoded entries from a queue offset on, up to the first that is not written; fillers get no row.

        They are written with ``write_pending``.
        """
        times, pending = self.store_times, self._pending
        last: tuple[int, ConsumeQueueUnit] | None = None
        for at, unit in enumerate(_UNIT.iter_decode(units), queue_offset):
            if not is_written(unit):
                break
            last = at, unit
            if unit == FILLER:
                continue
            self._last_time = times.get(unit.physical_offset, self._last_time)
            row_key = encode_queue_key(QueueRowKey(*key, at))
            pending[row_key] = Row(_ENTRIES, row_key, _VALUE.packer.pack(*unit, self._last_time))
            if unit.size != FILLER_SIZE:
                self._end = max(self._end, unit.physical_offset + unit.size)
        if last is not None:
            self.put_bound(key, "max", last[1].physical_offset, last[0])
            if last[1] == FILLER:
                # upstream, of 5.4: a queue that continues after removed messages has such a row.
                self.put_bound(key, "min", 0, last[0] + 1)

    def put_entry(self, key: QueueKey, queue_offset: int, unit: ConsumeQueueUnit, store_time: int) -> None:
        """Set one entry with the next ``write_pending``; the bounds of its queue stay as they are."""
        if key != self._prefixed:
            self._prefixed, self._prefix = key, encode_queue_key(QueueRowKey(*key, 0))[: -_OFFSET.size]
        row_key = self._prefix + _OFFSET.packer.pack(queue_offset)
        self._pending[row_key] = Row(_ENTRIES, row_key, _VALUE.packer.pack(*unit, store_time))

    def put_end(self, key: QueueKey, end: int, place: int) -> None:
        """Set the last entry of a queue: the next queue offset, and the physical offset of the last record."""
        self.put_bound(key, "max", place, end - 1)

    def remove(self, key: QueueKey, queue_offset: int) -> None:
        """Remove an entry with the next ``write_pending``; the bounds of its queue stay as they are."""
        row_key = encode_queue_key(QueueRowKey(*key, queue_offset))
        self._pending[row_key] = Row(_ENTRIES, row_key, None)

    def put_row(self, row: Row) -> None:
        """Write a row of any kind, or remove it if it has no value, with the next ``write_pending``."""
        self._pending[row.key] = row

    def remove_bounds(self, key: QueueKey) -> None:
        """Remove the bounds of a queue without entries."""
        for bound in ("max", "min"):
            row_key = encode_bound_key(BoundRowKey(key[0], bound, key[1]))
            self._pending[row_key] = Row(_BOUNDS, row_key, None)

    def cut(self, physical_offset: int) -> None:
        """Write the removals that wait; from now on the log counts as dispatched up to ``physical_offset`` at most."""
        self._end = min(self._end, physical_offset)
        self.write_pending()

    def put_checkpoint(self, end: int) -> None:
        """Set the physical offset up to which the log is dispatched."""
        self._end = end
        self._pending[_CHECKPOINT_KEY] = Row(_BOUNDS, _CHECKPOINT_KEY, layouts.LONG.pack(end))

    def put_bound(self, key: QueueKey, bound: str, place: int, queue_offset: int) -> None:
        """Set the row of a bound, max or min: a queue offset, and the physical offset of its record (0 for min)."""
        row_key = encode_bound_key(BoundRowKey(key[0], bound, key[1]))
        self._pending[row_key] = Row(_BOUNDS, row_key, _BOUND.packer.pack(place, queue_offset))

    def write_pending(self) -> None:
        """Write the gathered rows to the working copy."""
        self.store_times.clear()
        if self._pending:
            if self._end != self._written_end:
                self.put_checkpoint(self._end)
                self._written_end = self._end
            self.copy.write(self._pending.values())
            self._pending.clear()

    def read(self, key: QueueKey, queue_offset: int, most: int) -> list[QueueRow]:
        """Return up to ``most`` entries from a queue offset on."""
        found = []
        for row in iter_queue_rows(self.copy.rows, QueueId(*key), queue_offset):
            found.append(row)
            if len(found) >= most:
                break
        return found

    def publish(self, files: WritableFileSystem, before_write: BeforeWrite | None = None) -> bool:
        """Bring the written rows into the store, durably; return whether anything had to be written."""
        self.write_pending()
        return self.copy.publish(files, before_write)

    def close(self) -> None:
        """Remove the working copy."""
        self.copy.close()


def remove_topic(files: WritableFileSystem, topic: str) -> None:
    """Remove all rows of a topic from a store that is not open anywhere. upstream: RocksDBConsumeQueueStore.destroy."""
    listed = find_database(files, paths.CONSUME_QUEUE)
    if listed is None or not listed.listing.has_rows(paths.CONSUME_QUEUE):
        return
    with closing(QueueRows(listed)) as rows:
        for queue in [queue for queue in read_bounds(rows.copy.rows) if queue.topic == topic]:
            for row in iter_queue_rows(rows.copy.rows, queue):
                rows.remove(queue, row.queue_offset)
            rows.remove_bounds(queue)
        rows.publish(files)


class RowFiles:
    """The rows of one queue in the form of the files of a queue, so that the engine handles both alike."""

    # A file of one entry: the first entry of a queue needs no fillers before it.
    file_size = UNIT_SIZE

    def __init__(self, rows: QueueRows, key: QueueKey) -> None:
        self._rows = rows
        self._key = key

    def write(self, position: int, data: bytes) -> None:
        """Add entries; ``position`` is in bytes, as if the queue were in files."""
        self._rows.put_entries(self._key, position // UNIT_SIZE, data)

    def read(self, position: int, length: int) -> bytes:
        """Return entries, with fillers where rows are missing."""
        begin, most = position // UNIT_SIZE, length // UNIT_SIZE
        found: list[bytes] = []
        for row in self._rows.read(self._key, begin, most):
            missing = row.queue_offset - begin - len(found)
            if len(found) + missing >= most:
                break
            found += [FILLER_UNIT] * missing
            found.append(_UNIT.packer.pack(*row.value[:3]))
        return b"".join(found)

    def clear(self, begin: int, end: int) -> None:
        """Remove the entries of a range at the end of the queue."""
        first = begin // UNIT_SIZE
        for queue_offset in range(first, end // UNIT_SIZE):
            self._rows.remove(self._key, queue_offset)
        last = self._rows.read(self._key, first - 1, 1) if first else []
        if last and last[0].queue_offset == first - 1:
            self._rows.put_end(self._key, first, last[0].value.physical_offset)
        else:
            self._rows.remove_bounds(self._key)

    def remove(self, base: int) -> None:
        """Remove nothing: rows of removed messages stay until a broker compacts the database."""
