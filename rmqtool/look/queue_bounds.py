"""Where the queues of a store begin and end: what a broker would answer for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.filters.patterns import TopicPatterns
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.log.end import LogEnd, find_log_end
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.rocksdb import QueueRow, has_database_queues, iter_queue_rows, open_database, read_bounds


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
    greatest = greatest_end(queues)
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


def greatest_end(queues: Iterable[ConsumeQueueFiles]) -> int:
    """Return where the last message ends that a queue names; -1 where none names any."""
    return max(map(_queue_end, queues), default=-1)


def _queue_end(queue: ConsumeQueueFiles) -> int:
    unit = queue.last_unit
    return -1 if unit is None else unit.physical_offset + unit.size


def read_database_bounds(store: Store) -> dict[QueueId, QueueBounds]:
    """Return the bounds that a RocksDB queue database holds for queues without files."""
    if not has_database_queues(store):
        return {}
    known = store.listing.queues(FileKind.CONSUME_QUEUE)
    with open_database(store, paths.CONSUME_QUEUE) as database:
        return {queue: QueueBounds(*bounds) for queue, bounds in read_bounds(database).items() if queue not in known}


def read_database_queue(store: Store, queue: QueueId) -> list[QueueRow]:
    """Return the units of a RocksDB queue whose records the log still has; expired rows linger in a database."""
    log_min = store.commit_log.min_offset
    with open_database(store, paths.CONSUME_QUEUE) as database:
        return [row for row in iter_queue_rows(database, queue) if row.value.physical_offset >= log_min]


def count_messages(store: Store, topics: TopicPatterns, queue_id: int | None) -> int | None:
    """Return how many messages the queues of some topics hold; None where that cannot be told.

    A message of a light queue is one of its topic's, so light queues count only where they are asked for.
    """
    queues = simple_queues(store)
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
