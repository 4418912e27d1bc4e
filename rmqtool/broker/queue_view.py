"""What consumers ask a store about a queue: a protocol that the store, or a view of its files, fulfils."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


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
