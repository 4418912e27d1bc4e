"""Queues of a store that is not there: what consumers ask about them, stated by a test."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqtool.broker.consumer.queue_view import Residence


@dataclass
class StatedQueue:
    """One queue: its offsets, where its message 0 is, and the offsets of times."""

    min_offset: int = 0
    max_offset: int = 0
    residence: Residence = Residence.ABSENT
    by_time: dict[int, int] = field(default_factory=dict)


@dataclass
class StatedQueues:
    """Queues by topic and number; one that is not stated was never used."""

    queues: dict[tuple[str, int], StatedQueue] = field(default_factory=dict)

    def _queue(self, topic: str, queue_id: int) -> StatedQueue:
        return self.queues.get((topic, queue_id), StatedQueue())

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self._queue(topic, queue_id).min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self._queue(topic, queue_id).max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return self._queue(topic, queue_id).by_time[timestamp]

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:
        assert queue_offset == 0, "only the first message of a queue is asked for"
        return self._queue(topic, queue_id).residence
