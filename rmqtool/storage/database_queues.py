"""Read access to queues in RocksDB: their bounds and their rows.

Upstream: ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.layouts import RocksDBOffsetValue, RocksDBQueueValue
from rmqtool.formats.rocksdb_rows import CHECKPOINT_TOPIC, BoundRowKey, QueueRowKey
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.rocksdb import Database, Listed, has_rows

_VALUE = layouts.ROCKSDB_QUEUE_VALUE


class QueueRow(NamedTuple):
    """A unit of a RocksDB queue."""

    queue_offset: int
    value: RocksDBQueueValue


def has_database_queues(store: Listed) -> bool:
    """Return whether there is a RocksDB queue database that can hold rows."""
    return paths.CONSUME_QUEUE in store.listing.databases() and has_rows(store, paths.CONSUME_QUEUE)


def iter_bound_rows(database: Database) -> Iterator[tuple[QueueId, str, RocksDBOffsetValue]]:
    """Yield for each queue which message is its first (``min``), and which its last (``max``)."""
    for key, value in database.iter_rows("offset"):
        bound = rocksdb_rows.decode_bound_key(key)
        offset = rocksdb_rows.decode_bound_value(value)
        if isinstance(bound, BoundRowKey) and offset is not None and bound.topic != CHECKPOINT_TOPIC:
            yield QueueId(bound.topic, bound.queue_id), bound.bound, offset


def read_bounds(database: Database) -> dict[QueueId, tuple[int, int]]:
    """Return the first queue offset of each queue, and the next."""
    greatest: dict[QueueId, int] = {}
    smallest: dict[QueueId, int] = {}
    for queue, bound, offset in iter_bound_rows(database):
        table, add = (greatest, 1) if bound == "max" else (smallest, 0)
        table[queue] = offset.queue_offset + add
    return {queue: (smallest.get(queue, 0), end) for queue, end in greatest.items()}


def read_queue_row(database: Database, queue: QueueId, queue_offset: int) -> RocksDBQueueValue | None:
    """Return a row of a queue, None where there is none."""
    data = database.get("default", rocksdb_rows.encode_queue_key(QueueRowKey(*queue, queue_offset)))
    return _VALUE.decode(data) if data is not None and len(data) == _VALUE.size else None


def iter_queue_rows(database: Database, queue: QueueId, begin: int = 0) -> Iterator[QueueRow]:
    """Yield the rows of a queue from a queue offset on."""
    start = rocksdb_rows.encode_queue_key(QueueRowKey(*queue, begin))
    for key, data in database.iter_rows("default", start[: -layouts.LONG.size], start):
        place = rocksdb_rows.decode_queue_key(key)
        if isinstance(place, QueueRowKey) and len(data) == _VALUE.size:
            yield QueueRow(place.queue_offset, _VALUE.decode(data))
