"""Where the queues of a store begin and end: what a broker would answer for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.layouts import RocksDBQueueValue
from rmqtool.formats.paths import FileKind
from rmqtool.formats.rocksdb_rows import BoundRowKey, QueueRowKey
from rmqtool.storage.consume_queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.log_end import LogEnd
from rmqtool.storage.rocksdb import has_rows, open_database
from rmqtool.storage.store import Store


class QueueBounds(NamedTuple):
    """What a broker would answer for a queue; ``first_available`` where the first unit on disk lies elsewhere."""

    min_offset: int
    max_offset: int
    first_available: int | None = None


def simple_queues(store: Store) -> list[ConsumeQueueFiles]:
    """Return the simple queues that lie in files."""
    return [ConsumeQueueFiles(*item) for item in store.listing.queues(FileKind.CONSUME_QUEUE).items()]


def iter_file_bounds(
    store: Store, queues: list[ConsumeQueueFiles], end: LogEnd
) -> Iterator[tuple[QueueId, QueueBounds]]:
    """Yield the bounds of the queues that lie in files; ``queues`` are the simple ones, all of them."""
    log_min = store.commit_log.min_offset
    greatest = max((_queue_end(queue) for queue in queues), default=-1)
    # A clean start cuts queues that reach beyond the log; what a start after a crash does is the business of recover.
    clean = store.listing.find(paths.ABORT) is None
    cut = greatest >= end.physical_offset and clean and end.last is not None
    for queue in queues:
        max_offset = queue.cut_at(end.physical_offset) if cut else queue.max_offset
        min_offset = queue.min_offset(log_min, store.version)
        first = queue.first_offset if queue.first_offset != min_offset and queue.segments else None
        yield queue.queue, QueueBounds(min_offset, max_offset, first)
    for queue_id, segments in store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).items():
        batch = BatchQueueFiles(queue_id, segments)
        yield queue_id, QueueBounds(batch.min_offset(log_min), batch.max_offset)


def _queue_end(queue: ConsumeQueueFiles) -> int:
    unit = queue.last_unit
    return -1 if unit is None else unit.physical_offset + unit.size


def read_database_bounds(store: Store) -> dict[QueueId, QueueBounds]:
    """Return the bounds that a RocksDB queue database holds for queues without files."""
    if not has_database_queues(store):
        return {}
    greatest: dict[QueueId, int] = {}
    smallest: dict[QueueId, int] = {}
    with open_database(store, paths.CONSUME_QUEUE) as database:
        for key, value in database.iter_rows("offset"):
            bound = rocksdb_rows.decode_bound_key(key)
            offset = rocksdb_rows.decode_bound_value(value)
            if isinstance(bound, BoundRowKey) and offset is not None:
                table, add = (greatest, 1) if bound.bound == "max" else (smallest, 0)
                table[QueueId(bound.topic, bound.queue_id)] = offset.queue_offset + add
    known = store.listing.queues(FileKind.CONSUME_QUEUE)
    return {
        queue: QueueBounds(smallest.get(queue, 0), offset) for queue, offset in greatest.items() if queue not in known
    }


class QueueRow(NamedTuple):
    """A unit of a RocksDB queue."""

    queue_offset: int
    value: RocksDBQueueValue


def read_database_queue(store: Store, queue: QueueId) -> list[QueueRow]:
    """Return the units of a RocksDB queue whose records the log still has; expired rows linger in a database."""
    first = rocksdb_rows.encode_queue_key(QueueRowKey(queue.topic, queue.queue_id, 0))
    prefix = first[: -layouts.LONG.size]
    rows = []
    with open_database(store, paths.CONSUME_QUEUE) as database:
        for key, data in database.iter_rows("default", prefix):
            place = rocksdb_rows.decode_queue_key(key)
            if isinstance(place, QueueRowKey) and len(data) == layouts.ROCKSDB_QUEUE_VALUE.size:
                value = layouts.ROCKSDB_QUEUE_VALUE.decode(data)
                if value.physical_offset >= store.commit_log.min_offset:
                    rows.append(QueueRow(place.queue_offset, value))
    return rows


def has_database_queues(store: Store) -> bool:
    """Return whether there is a RocksDB queue database that can hold rows."""
    return paths.CONSUME_QUEUE in store.listing.databases() and has_rows(store, paths.CONSUME_QUEUE)
