"""The window of one queue at its consumer, and when it may be filled.

Messages can be finished in any order. The offset to commit is the lowest unfinished one. upstream: ProcessQueue,
ConsumeMessageConcurrentlyService, DefaultMQPushConsumerImpl.correctTagsOffset.

``check_pull`` decides whether a consumer may fetch more. upstream: DefaultMQPushConsumerImpl.pullMessage,
messageQueueChanged.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

Payload = TypeVar("Payload")

# The delay level of messages that took too long, and the most that are sent back in one round.
EXPIRED_DELAY_LEVEL, MOST_EXPIRED = 3, 16
CONSUME_TIMEOUT = 15 * 60 * 1000
# A queue without a pull for this long (ms) is dropped and taken again.
PULL_IDLE_LIMIT = 120_000


@dataclass(slots=True)
class CachedMessage(Generic[Payload]):
    """A message in the window; ``size`` is that of its body, ``consume_start`` when it was given to a consumer."""

    queue_offset: int
    size: int
    payload: Payload
    reconsume_times: int = 0
    consume_start: int | None = None


class ProcessQueue(Generic[Payload]):
    """The window of one queue. ``count`` and ``size`` include messages that an orderly consumer has taken."""

    def __init__(self, now: int = 0) -> None:
        self.count = 0
        self.size = 0
        self.is_dropped = False
        self.last_pull = now
        # For orderly consumers: whether the broker has granted the queue, and when it did so last.
        self.is_locked = False
        self.last_lock = now
        self._messages: dict[int, CachedMessage[Payload]] = {}
        self._offsets: list[int] = []
        self._taken: dict[int, CachedMessage[Payload]] = {}
        self._max_offset = 0

    def put(self, messages: Iterable[CachedMessage[Payload]]) -> None:
        """Add messages. A message that is in the window already is replaced."""
        for message in messages:
            if message.queue_offset not in self._messages:
                self.count += 1
                self.size += message.size
                self._max_offset = message.queue_offset
            self._insert(message)

    def remove(self, messages: Iterable[CachedMessage[Payload]]) -> int:
        """Remove finished messages; return the offset to commit, -1 if the window was empty."""
        if not self._offsets:
            return -1
        for message in messages:
            removed = self._discard(message.queue_offset)
            if removed is not None:
                self._uncount(removed)
        return self._offsets[0] if self._offsets else self._max_offset + 1

    def find(self, queue_offset: int) -> CachedMessage[Payload] | None:
        """Return a message that waits or is being consumed in parallel."""
        return self._messages.get(queue_offset)

    @property
    def span(self) -> int:
        """The distance of the last waiting message from the first."""
        return self._offsets[-1] - self._offsets[0] if self._offsets else 0

    @property
    def is_empty(self) -> bool:
        """Whether no message waits. An orderly consumer may have taken some."""
        return not self._offsets

    def take(self, count: int) -> list[CachedMessage[Payload]]:
        """Give the next messages to an orderly consumer."""
        offsets, self._offsets = self._offsets[:count], self._offsets[count:]
        messages = [self._messages.pop(offset) for offset in offsets]
        self._taken.update(zip(offsets, messages, strict=True))
        return messages

    def commit(self) -> int:
        """Finish everything that was taken; return the offset to commit, -1 if nothing was."""
        if not self._taken:
            return -1
        greatest = max(self._taken)
        for message in self._taken.values():
            self._uncount(message)
        self._taken.clear()
        return greatest + 1

    def rollback(self) -> None:
        """Return everything that was taken to the window."""
        self.put_back(list(self._taken.values()))

    def put_back(self, messages: Iterable[CachedMessage[Payload]]) -> None:
        """Return some of the taken messages to the window, to be consumed again."""
        for message in messages:
            self._taken.pop(message.queue_offset, None)
            self._insert(message)

    def send_back_expired(
        self, now: int, send_back: Callable[[CachedMessage[Payload], int], bool], timeout: int = CONSUME_TIMEOUT
    ) -> int:
        """Send back messages that were not finished in time; return their number.

        Each step looks at the first message of the window only, because it holds up the progress. ``send_back`` is
        called with a message and its delay level, and returns whether it worked.
        """
        sent = 0
        while sent < MOST_EXPIRED and self._offsets:
            first = self._messages[self._offsets[0]]
            if first.consume_start is None or now - first.consume_start <= timeout:
                break
            if not send_back(first, EXPIRED_DELAY_LEVEL):
                break
            self.remove([first])
            sent += 1
        return sent

    def filtered_offset(self, next_offset: int) -> int | None:
        """Return the offset to commit after a pull without matching messages; None while messages are unfinished.

        Without it, messages that the filter leaves out would hold up the progress.
        """
        return next_offset if self.count == 0 else None

    def is_pull_expired(self, now: int) -> bool:
        """Return whether the last pull is too long ago: something must be wrong."""
        return now - self.last_pull > PULL_IDLE_LIMIT

    def _insert(self, message: CachedMessage[Payload]) -> None:
        offset = message.queue_offset
        if offset not in self._messages:
            if not self._offsets or offset > self._offsets[-1]:
                self._offsets.append(offset)
            else:
                insort(self._offsets, offset)
        self._messages[offset] = message

    def _discard(self, queue_offset: int) -> CachedMessage[Payload] | None:
        found = self._messages.pop(queue_offset, None)
        if found is not None:
            del self._offsets[bisect_left(self._offsets, queue_offset)]
        return found

    def _uncount(self, message: CachedMessage[Payload]) -> None:
        self.count -= 1
        self.size -= message.size


MIB = 1 << 20
UNLIMITED = -1

# How long (ms) a pull is postponed: for a full window, a paused consumer, an error, a busy broker.
FLOW_CONTROL_PAUSE, PAUSED_PAUSE, ERROR_PAUSE, BUSY_PAUSE = 50, 1_000, 1_000, 20
PULL_BATCH_SIZE = 32


@dataclass(frozen=True)
class Thresholds:
    """How much of one queue a consumer keeps; sizes in MiB. The limits of a topic are shared by its queues."""

    count: int = 1000
    size: int = 100
    span: int = 2000
    topic_count: int = UNLIMITED
    topic_size: int = UNLIMITED

    def shared_by(self, queues: int) -> Thresholds:
        """Return the thresholds of one queue for a consumer with this number of queues of the topic."""
        found = self
        if queues and self.topic_count != UNLIMITED:
            found = replace(found, count=max(1, self.topic_count // queues))
        if queues and self.topic_size != UNLIMITED:
            found = replace(found, size=max(1, self.topic_size // queues))
        return found


class Reason(StrEnum):
    """Why a queue is not pulled from now."""

    DROPPED = "the queue was given to another consumer"
    NOT_RUNNING = "the consumer is not running"
    PAUSED = "the consumer is paused"
    COUNT = "too many messages wait"
    SIZE = "too many bytes wait"
    SPAN = "the first and the last waiting message are too far apart"
    NOT_LOCKED = "the queue is not locked"


@dataclass(frozen=True)
class Refusal:
    """Why there is no pull, and after how long (ms) to ask again (None: never)."""

    reason: Reason
    pause: int | None


@dataclass
class ConsumerState:
    """The state of a consumer that decides about its pulls."""

    is_running: bool = True
    is_paused: bool = False
    is_orderly: bool = False


def check_pull(window: ProcessQueue[Any], state: ConsumerState, thresholds: Thresholds) -> Refusal | None:
    """Return the first reason why a window may not be filled, None if it may."""
    if window.is_dropped:
        return Refusal(Reason.DROPPED, None)
    if not state.is_running:
        return Refusal(Reason.NOT_RUNNING, ERROR_PAUSE)
    if state.is_paused:
        return Refusal(Reason.PAUSED, PAUSED_PAUSE)
    if window.count > thresholds.count:
        return Refusal(Reason.COUNT, FLOW_CONTROL_PAUSE)
    if window.size // MIB > thresholds.size:
        return Refusal(Reason.SIZE, FLOW_CONTROL_PAUSE)
    if state.is_orderly:
        return None if window.is_locked else Refusal(Reason.NOT_LOCKED, ERROR_PAUSE)
    return Refusal(Reason.SPAN, FLOW_CONTROL_PAUSE) if window.span > thresholds.span else None
