"""Progress of a group that reads its queues all at once, in the order of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rmqtool.broker.group_progress import Progress
from rmqtool.broker.queue_view import StoredView
from rmqtool.formats.message_queues import MessageQueue


class PlacedView(StoredView, Protocol):
    """Queues that tell which of their messages lies where in the log."""

    def offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """Return the offset of the first message of a queue that lies at a place of the log or behind."""


class ReachedProgress:
    """Where in the log a member is, as offsets of its queues. They begin where its progress says."""

    def __init__(self, client_id: str, queues: Sequence[MessageQueue], stored: PlacedView, progress: Progress) -> None:
        self._client_id = client_id
        self._stored = stored
        self._progress = progress
        self.begins = {queue: progress.begin(client_id, queue) for queue in queues}
        # What is not there yet is not consumed.
        self._ends = {queue: stored.max_offset(queue.topic, queue.queue_id) for queue in queues}

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing to consume."""
        return all(begin >= self._ends[queue] for queue, begin in self.begins.items())

    def reach(self, physical_offset: int) -> None:
        """Store that everything before a place of the log is consumed."""
        for queue, begin in self.begins.items():
            if begin < self._ends[queue]:
                found = self._stored.offset_at(queue.topic, queue.queue_id, physical_offset)
                self._progress.commit(self._client_id, queue, max(found, begin))
        self._progress.save()

    def finish(self) -> None:
        """Store that everything is consumed that was there at the beginning."""
        for queue, end in self._ends.items():
            self._progress.commit(self._client_id, queue, max(end, self.begins[queue]))
        self._progress.save()
