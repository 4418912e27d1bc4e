"""The questions of consumers about queues, as protocols that a store, or a view of its files, answers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from rmqtool.engine.consume_queue import ConsumeQueue
from rmqtool.engine.get import Limits
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message


class Residence(Enum):
    """Where a message is: nowhere, in memory, or on disk."""

    ABSENT = "absent"
    MEMORY = "in memory"
    DISK = "on disk"


class QueueView(Protocol):
    """The queues of a store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message; 0 for a queue that never had one."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset for a time, by the rules of the store's version."""

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:
        """Return where a message is. Young messages are in memory, by the broker's rule or by the kernel's answer."""


class StoredView(Protocol):
    """The queues in a store's files, which do not tell what is in memory."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset for a time, as a broker answers."""

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool | None:
        """Return whether a broker assumes that a message is on disk only; None if there is no such message."""

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[tuple[int, int, int | None, int]]:
        """Yield queue offset, physical offset, tags code and number of messages of the entries from ``begin`` on."""

    def read(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset."""


class StoredQueueView:
    """The queues in a store's files as a ``QueueView``."""

    def __init__(self, stored: StoredView) -> None:
        self._stored = stored

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message; 0 for a queue that never had one."""
        return self._stored.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message."""
        return self._stored.max_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset for a time, by the rules of the store's version."""
        return self._stored.offset_by_time(topic, queue_id, timestamp)

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:
        """Return where a message is, by the broker's rule: on disk if it is far from the end of the log."""
        is_on_disk = self._stored.is_on_disk(topic, queue_id, queue_offset)
        if is_on_disk is None:
            return Residence.ABSENT
        return Residence.DISK if is_on_disk else Residence.MEMORY


class OpenQueueView:
    """The queues of a store that is open, as its broker sees them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._in_memory = Limits(store.setup.config).in_memory

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message there is; 0 of a queue that never had one."""
        return max(self._store.reader.bounds(topic, queue_id).min_offset, 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message will have."""
        return self._store.reader.bounds(topic, queue_id).max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset that a broker of the store's version answers for a time."""
        return self._store.reader.offset_by_time(topic, queue_id, timestamp)

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:
        """Return where a message is, by the broker's rule: on disk if it is far from the end of the log."""
        queue = self._store.find_queue(topic, queue_id)
        low, high = self._store.reader.bounds(topic, queue_id)
        if not low <= queue_offset < high:
            return Residence.ABSENT
        if not isinstance(queue, ConsumeQueue):
            return Residence.MEMORY
        units = queue.read_units(queue_offset, 1)
        if not units:
            return Residence.ABSENT
        behind = self._store.commit_log.committed_offset - units[0].physical_offset
        return Residence.DISK if behind > self._in_memory else Residence.MEMORY
