"""Queue offsets by time in a store without a broker: finds each queue's files or rows, bounds and end of the log.

``store.time_search`` has the searches themselves, as each version makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rmqtool.config import Version
from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.formats import layouts
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.layouts import BatchConsumeQueueUnit
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import LogEnd, find_log_end
from rmqtool.look.queue_bounds import QueueBounds, iter_file_bounds, read_database_bounds, read_database_queue
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import ConsumeQueueFiles, simple_queues
from rmqtool.store.rocksdb import has_database_queues
from rmqtool.store.time_search import (
    Boundary,
    QueueFile,
    StoreTimes,
    read_batch_files,
    search_4_9,
    search_5,
    search_batches,
    search_rows,
)

_UNIT = layouts.CONSUME_QUEUE_UNIT
_BATCH = layouts.BATCH_CONSUME_QUEUE_UNIT
_SYS_FLAG_AT = PREFIXES[0].field("sys_flag").offset
_HEAD = max(layout.size for layout in PREFIXES.values())


@dataclass
class TimeLookup:
    """Answers for one store, whose bounds are read once.

    ``bounds`` lacks the queues that cannot be read. ``unread`` has their errors, None for those in the database.
    """

    store: Store
    unread: dict[QueueId | None, ReadFailed] = field(default_factory=dict)

    @cached_property
    def _simple(self) -> dict[QueueId, ConsumeQueueFiles]:
        found: dict[QueueId, ConsumeQueueFiles] = {}
        for queue in simple_queues(self.store.listing):
            try:
                queue.min_offset(self.store.commit_log.min_offset, self.store.version)
                queue.require_ends()
            except ReadFailed as error:
                self.unread[queue.queue] = error
            else:
                found[queue.queue] = queue
        return found

    @cached_property
    def _end(self) -> LogEnd:
        return find_log_end(self.store.commit_log, self._simple.values(), dledger=self.store.is_dledger)

    @property
    def log_end(self) -> int:
        """The end of the last valid record."""
        return self._end.physical_offset

    @cached_property
    def bounds(self) -> dict[QueueId, QueueBounds]:
        """The bounds of every queue; without the extra for RocksDB, of the queues in files."""
        found = dict(iter_file_bounds(self.store, list(self._simple.values()), self._end))
        try:
            return {**read_database_bounds(self.store), **found}
        except OptionalMissing:
            return found
        except ReadFailed as error:
            self.unread[None] = error
            return found

    def find(self, queue: QueueId, timestamp: int, boundary: Boundary) -> int:
        """Return what a broker of the store's version answers. 4.9 ignores the boundary.

        The answer is 0 for a queue that does not exist, because a broker creates it. Raises ``OptionalMissing`` without
        the extra, and ``ReadFailed`` for a queue that cannot be read.
        """
        if queue not in self.bounds and (error := self.unread.get(queue) or self.unread.get(None)) is not None:
            raise error
        if queue in self._simple:
            end = self._end.physical_offset
            return _find_in_files(self.store, self._simple[queue], self.bounds[queue], end, timestamp, boundary)
        segments = self.store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).get(queue)
        if segments is not None:
            return _find_in_batches(read_batch_files(segments), self.bounds[queue], timestamp, boundary)
        rows = read_database_queue(self.store, queue) if has_database_queues(self.store) else []
        times = [row.value.store_time for row in rows]
        return rows[0].queue_offset + search_rows(times, timestamp, boundary) if rows else 0


def _find_in_files(
    store: Store, queue: ConsumeQueueFiles, bounds: QueueBounds, log_end: int, timestamp: int, boundary: Boundary
) -> int:
    """Return what a broker answers for a simple queue."""
    times = StoreTimes(store.commit_log, log_end)
    files = _queue_files(store, queue, bounds.max_offset)
    if store.version is Version.V4_9:
        return search_4_9(times, files, bounds.min_offset, timestamp)
    found = search_5(times, files, bounds.min_offset, timestamp, boundary)
    return min(max(found, bounds.min_offset), bounds.max_offset)


def _queue_files(store: Store, queue: ConsumeQueueFiles, max_offset: int) -> list[QueueFile]:
    mtimes = {file.path: file.mtime_ns // 1_000_000 for file in store.listing.of_kind(FileKind.CONSUME_QUEUE)}
    files: list[QueueFile] = []
    for segment in queue.segments:
        first = segment.base_offset // _UNIT.size
        if first >= max_offset and files:
            break  # a broker deletes the files after the end
        count = min(segment.size // _UNIT.size, max(max_offset - first, 0))
        data = queue.segments.open(segment).pread(count * _UNIT.size, 0)
        files.append(QueueFile(first, mtimes[segment.path], list(_UNIT.iter_decode(data))))
    return files


def _find_in_batches(
    files: Sequence[Sequence[BatchConsumeQueueUnit]], bounds: QueueBounds, timestamp: int, boundary: Boundary
) -> int:
    """Return what a broker answers for a batch queue; ``files`` has the entries of each file."""
    found = search_batches([file for file in files if file], timestamp, boundary)
    return min(max(found, bounds.min_offset), bounds.max_offset)
