"""The queues of a store for consumers without a broker: bounds, entries, messages. They take no lock.

Messages that a live broker adds are visible after ``refresh``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

from rmqtool.errors import ReadFailed
from rmqtool.formats.codes import MAX_EXT_ADDRESS
from rmqtool.formats.commit_log import Message
from rmqtool.formats.consume_queue import is_filler
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import read_record
from rmqtool.look.queue_bounds import QueueBounds, read_database_queue
from rmqtool.look.time_query import TimeLookup
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.rocksdb import QueueRow, has_database_queues
from rmqtool.store.time_search import Boundary

_PERCENT = 100
_EMPTY = QueueBounds(0, 0)

# An entry as consumers need it: queue offset, physical offset, hash of the tag if it is known, and how many
# messages the record has.
StoredUnit: TypeAlias = tuple[int, int, int | None, int]
_Queue: TypeAlias = ConsumeQueueFiles | BatchQueueFiles | list[QueueRow]


class StoredQueues:
    """Answers from a store, as it was at the last ``refresh``; ``open_store`` opens it."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self.store = open_store()
        self._look()

    def _look(self) -> None:
        self._lookup = TimeLookup(self.store)
        self._queues: dict[QueueId, _Queue] = {}

    def refresh(self) -> None:
        """Open the store again."""
        previous, self.store = self.store, self._open_store()
        previous.close()
        self._look()

    def close(self) -> None:
        self.store.close()

    def queues(self) -> set[tuple[str, int]]:
        """Return all queues that ever had a message."""
        return {(queue.topic, queue.queue_id) for queue in self._lookup.bounds}

    @property
    def unread(self) -> dict[QueueId | None, ReadFailed]:
        """The errors of the queues that cannot be read; None for those in the database."""
        _ = self._lookup.bounds
        return self._lookup.unread

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message; 0 for a queue that never had one."""
        return max(self._bounds(topic, queue_id).min_offset, 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message."""
        return self._bounds(topic, queue_id).max_offset

    def _bounds(self, topic: str, queue_id: int) -> QueueBounds:
        return self._lookup.bounds.get(QueueId(topic, queue_id), _EMPTY)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset that a broker of the store's version answers for a time."""
        return self._lookup.find(QueueId(topic, queue_id), timestamp, Boundary.LOWER)

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool | None:
        """Return whether a broker takes a message for being on disk, not in memory; None if it does not exist."""
        unit = next(self.units(topic, queue_id, queue_offset, queue_offset + 1), None)
        if unit is None:
            return None
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        ratio = self.store.config.access_message_in_memory_max_ratio
        return self._lookup.log_end - unit[1] > memory * ratio // _PERCENT

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[StoredUnit]:
        """Yield the entries of a queue from ``begin`` to before ``end``."""
        files = self._find(QueueId(topic, queue_id))
        if isinstance(files, ConsumeQueueFiles):
            end = min(end, self._bounds(topic, queue_id).max_offset)
            for offset, unit in files.iter_units(begin, end):
                if not is_filler(unit):
                    code = unit.tags_code
                    yield offset, unit.physical_offset, None if code <= MAX_EXT_ADDRESS else code, 1
        elif isinstance(files, BatchQueueFiles):
            for batch in files.iter_units():
                if begin < batch.msg_base_offset + batch.batch_size and batch.msg_base_offset < end:
                    yield batch.msg_base_offset, batch.physical_offset, batch.tags_code, batch.batch_size
        else:
            for row in files:
                if begin <= row.queue_offset < end:
                    yield row.queue_offset, row.value.physical_offset, row.value.tags_code, 1

    def _find(self, queue: QueueId) -> _Queue:
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = self._open(queue)
        return found

    def _open(self, queue: QueueId) -> _Queue:
        simple = self.store.listing.queues(FileKind.CONSUME_QUEUE).get(queue)
        if simple is not None:
            return ConsumeQueueFiles(queue, simple)
        batch = self.store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).get(queue)
        if batch is not None:
            return BatchQueueFiles(queue, batch)
        return read_database_queue(self.store, queue) if has_database_queues(self.store) else []

    def read(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset, or None."""
        return read_record(self.store.commit_log, physical_offset)

    def offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """Return the queue offset of the first message at or after a physical offset."""
        files, end = self._find(QueueId(topic, queue_id)), self.max_offset(topic, queue_id)
        if isinstance(files, ConsumeQueueFiles):
            return min(files.find_offset(physical_offset), end)
        units = self.units(topic, queue_id, self.min_offset(topic, queue_id), end)
        return next((offset for offset, place, _, _ in units if place >= physical_offset), end)
