"""The next queue offset of every queue.

Upstream: ``topicQueueTable`` of ``CommitLog`` (4.9), ``QueueOffsetOperator`` (5.x). Only the writer changes it, and
only for what it stores: a message that is refused leaves no hole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

# A topic and the number of one of its queues.
QueueKey: TypeAlias = tuple[str, int]


class QueueOffsets:
    """Queue → the offset its next message gets."""

    def __init__(self, offsets: Mapping[QueueKey, int] | None = None) -> None:
        self.table: dict[QueueKey, int] = dict(offsets or {})

    def next(self, queue: QueueKey) -> int:
        """Return the offset the next message of ``queue`` gets."""
        return self.table.get(queue, 0)

    def advance(self, queue: QueueKey, count: int) -> None:
        """Count messages that were stored."""
        self.table[queue] = self.table.get(queue, 0) + count
