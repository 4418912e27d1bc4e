"""The bounds of a store's queues: the first and the next offset that a broker would answer for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.filters.wanted import TopicPatterns
from rmqtool.formats import paths
from rmqtool.formats.consume_queue import is_filler
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.log.end import LogEnd, find_log_end, read_record
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles, greatest_end, simple_queues
from rmqtool.store.rocksdb import QueueRow, iter_queue_rows, open_database, read_queue_bounds


class QueueBounds(NamedTuple):
    """The bounds of a queue; ``first_available`` is set if the first entry on disk is for another offset."""

    min_offset: int
    max_offset: int
    first_available: int | None = None


# Entries that are looked at for the first message.
_LOOKED_AT = 64


def find_first_stored(store: Store, queue: ConsumeQueueFiles, begin: int, end: int) -> int | None:
    """Return when the first message of a queue between two offsets was stored; None without it."""
    for _, unit in queue.iter_units(begin, min(end, begin + _LOOKED_AT)):
        if not is_filler(unit):
            record = read_record(store.commit_log, unit.physical_offset)
            return None if record is None else record.store_timestamp
    return None


def iter_file_bounds(
    store: Store, queues: list[ConsumeQueueFiles], end: LogEnd
) -> Iterator[tuple[QueueId, QueueBounds]]:
    """Yield the bounds of the queues in files; ``queues`` must be all simple ones."""
    log_min = store.commit_log.min_offset
    greatest = greatest_end(queues)
    # A clean start cuts queues that point past the end of the log. After a crash, ``recover`` tells what a start does.
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


def read_database_bounds(store: Store) -> dict[QueueId, QueueBounds]:
    """Return the bounds of queues in RocksDB that have no files."""
    known = store.listing.queues(FileKind.CONSUME_QUEUE)
    return {queue: QueueBounds(*bounds) for queue, bounds in read_queue_bounds(store).items() if queue not in known}


def read_database_queue(store: Store, queue: QueueId) -> list[QueueRow]:
    """Return the entries of a queue in RocksDB whose records the log still has; a database keeps expired ones."""
    log_min = store.commit_log.min_offset
    with open_database(store, paths.CONSUME_QUEUE) as database:
        return [row for row in iter_queue_rows(database, queue) if row.value.physical_offset >= log_min]


def count_messages(store: Store, topics: TopicPatterns, queue_id: int | None) -> int | None:
    """Return how many messages the queues of some topics have, or None if that is unknown.

    A message of a light queue belongs to its topic too, so light queues count only if they are asked for.
    """
    queues = simple_queues(store.listing)
    try:
        end = find_log_end(store.commit_log, queues, dledger=store.is_dledger)
        bounds = dict(iter_file_bounds(store, queues, end)) | read_database_bounds(store)
    except (OptionalMissing, ReadFailed):
        return None
    return sum(
        found.max_offset - max(found.min_offset, 0)
        for queue, found in bounds.items()
        if topics.matches(queue.topic)
        and queue_id in (None, queue.queue_id)
        and (topics.patterns or not queue.topic.startswith(LMQ_PREFIX))
    )
