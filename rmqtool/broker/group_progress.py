"""Where a group goes on, and where that is kept: with the broker, or beside a broadcasting consumer.

Upstream: ``OffsetStore`` with ``RemoteBrokerOffsetStore`` and ``LocalFileOffsetStore``, ``RebalancePushImpl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rmqtool.broker.client_offsets import LocalOffsets
from rmqtool.broker.offset_requests import OffsetRequests
from rmqtool.broker.offsets import NOT_FOUND, ConsumerOffsets
from rmqtool.broker.queue_view import QueueView
from rmqtool.broker.start_point import ConsumeFromWhere, start_offset
from rmqtool.formats.message_queues import MessageQueue
from rmqtool.formats.topics import RETRY_PREFIX


@dataclass(frozen=True)
class Start:
    """Where to begin in queues: by upstream's policies, or at an ``offset``.

    ``is_asked`` says that somebody chose it, so that what brokers do with new groups on young topics does not count;
    ``goes_first`` that it counts even where there is progress.
    """

    where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    timestamp: int = 0
    offset: int | None = None
    is_asked: bool = False
    goes_first: bool = False

    def of(self, queues: QueueView, queue: MessageQueue, stored: int | None) -> int:
        """Return the offset to begin with, corrected as the first pull would."""
        topic, queue_id = queue.topic, queue.queue_id
        low, high = queues.min_offset(topic, queue_id), queues.max_offset(topic, queue_id)
        if self.offset is not None and stored is None and not topic.startswith(RETRY_PREFIX):
            stored = self.offset
        found = start_offset(stored, self.where, queues, topic, queue_id, self.timestamp)
        return min(max(found, low), high)


class Progress(Protocol):
    """The progress of the members of one group."""

    def begin(self, client_id: str, queue: MessageQueue) -> int:
        """Return where a member begins in a queue that it has just got."""

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:
        """Take note of the offset to consume next."""

    def save(self) -> None:
        """Make what was noted durable."""


class GroupProgress:
    """The progress that the broker keeps for a clustering group. Without ``keeps`` nothing is ever written."""

    def __init__(
        self, group: str, offsets: ConsumerOffsets, requests: OffsetRequests, start: Start, *, keeps: bool
    ) -> None:
        self._group = group
        self._offsets = offsets
        self._requests = requests
        self._queues = requests.queues
        self._start = start
        self._keeps = keeps

    def begin(self, client_id: str, queue: MessageQueue) -> int:  # noqa: ARG002  (the group's, whoever asks)
        """Return the offset that is stored, or what start and broker make of none."""
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        start = self._start
        if start.goes_first and not is_retry:
            return start.of(self._queues, queue, None)
        if start.is_asked and not is_retry:
            found = self._offsets.query_offset(self._group, queue.topic, queue.queue_id)
            return start.of(self._queues, queue, None if found == NOT_FOUND else found)
        return start.of(self._queues, queue, self._requests.query(self._group, queue.topic, queue.queue_id))

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:  # noqa: ARG002
        """Set the group's offset, if that changes anything."""
        if self._offsets.query_offset(self._group, queue.topic, queue.queue_id) != offset:
            self._offsets.commit_offset(self._group, queue.topic, queue.queue_id, offset)

    def save(self) -> None:
        """Write the broker's file."""
        if self._keeps:
            self._offsets.save()


class BroadcastProgress:
    """The progress of broadcasting consumers: each has a file of its own."""

    def __init__(self, locals_of: Mapping[str, LocalOffsets], queues: QueueView, start: Start, *, keeps: bool) -> None:
        self._locals = locals_of
        self._queues = queues
        self._start = start
        self._keeps = keeps

    def begin(self, client_id: str, queue: MessageQueue) -> int:
        """Return the offset in the member's file, or what its start makes of none."""
        found = NOT_FOUND if self._start.goes_first else self._locals[client_id].read_offset(queue)
        return self._start.of(self._queues, queue, None if found == NOT_FOUND else found)

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:
        """Set the member's offset."""
        self._locals[client_id].offsets.update(queue, offset, increase_only=False)

    def save(self) -> None:
        """Write the files that changed."""
        if self._keeps:
            for offsets in self._locals.values():
                offsets.save()
