"""What consumers ask a store about a queue: a protocol that the store, or a view of its files, fulfils."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from rmqtool.formats.commit_log import Message


class Residence(Enum):
    """Where a message is, as far as the memory of the machine is concerned."""

    ABSENT = "absent"
    MEMORY = "in memory"
    DISK = "on disk"


class QueueView(Protocol):
    """The queues of a store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message there is; 0 of a queue that never had one."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message will have."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset that a broker of the store's version answers for a time."""

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:
        """Return where a message is: young messages are in memory, by the broker's rule or by the kernel's word."""


class StoredView(Protocol):
    """The queues of a store's files, which know of places and not of memory."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message there is."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message will have."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset that a broker answers for a time."""

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool | None:
        """Return whether a broker takes a message for no longer in memory; None: it is not there."""

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[tuple[int, int, int | None, int]]:
        """Yield queue offset, physical offset, tags code and count of messages of the units from ``begin`` on."""

    def read(self, physical_offset: int) -> Message | None:
        """Return the message at a place of the log."""


class StoredQueueView:
    """The queues of a store's files, seen as a broker sees them."""

    def __init__(self, stored: StoredView) -> None:
        self._stored = stored

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first message there is; 0 of a queue that never had one."""
        return self._stored.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message will have."""
        return self._stored.max_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset that a broker of the store's version answers for a time."""
        return self._stored.offset_by_time(topic, queue_id, timestamp)

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:
        """Return where a message is, by the broker's rule: far behind the end of the log is on disk."""
        is_on_disk = self._stored.is_on_disk(topic, queue_id, queue_offset)
        if is_on_disk is None:
            return Residence.ABSENT
        return Residence.DISK if is_on_disk else Residence.MEMORY
