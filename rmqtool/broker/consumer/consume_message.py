"""Ordered consumption: a queue belongs to one consumer at a time, and waits where it cannot go on.

Upstream: ``RebalanceLockManager``, ``ConsumeMessageOrderlyService``, ``ConsumeOrderlyContext``.

What becomes of a batch that was consumed in parallel with others.

Upstream: ``ConsumeMessageConcurrentlyService.processConsumeResult``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from rmqtool.broker.consumer.process_queue import CachedMessage, ProcessQueue
from rmqtool.engine.clock import Clock
from rmqtool.formats.message_queues import MessageQueue

Payload = TypeVar("Payload")

# A failed message that could not be sent back is given to the consumer again after so long.
LOCAL_RETRY = 5_000


class ConsumeConcurrentlyStatus(StrEnum):
    """What the consumer says; an exception is RECONSUME_LATER."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


def finish_batch(
    window: ProcessQueue[Payload],
    messages: Sequence[CachedMessage[Payload]],
    status: ConsumeConcurrentlyStatus,
    *,
    send_back: Callable[[CachedMessage[Payload]], bool] | None,
    ack_index: int | None = None,
) -> tuple[int, list[CachedMessage[Payload]]]:
    """Take a batch out of its window; return the offset to commit, and what must be consumed again here.

    Messages behind ``ack_index`` failed. ``send_back`` has the broker retry a message and says whether it will; a
    broadcasting consumer has none, and what failed is dropped. The offset is -1 when nothing is to be committed; it
    only ever increases. What could not be sent back stays in the window, to be tried again after LOCAL_RETRY.
    """
    done = len(messages) if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else 0
    if done and ack_index is not None:
        done = min(max(ack_index + 1, 0), done)
    retried = []
    if send_back is not None:
        for message in messages[done:]:
            # One that took too long has been sent back already.
            if window.find(message.queue_offset) is message and not send_back(message):
                message.reconsume_times += 1
                retried.append(message)
    kept = {message.queue_offset for message in retried}
    offset = window.remove([message for message in messages if message.queue_offset not in kept])
    return (-1 if window.is_dropped else offset), retried


# A lock that its owner has not renewed for so long is anybody's; the owner believes in it half that time.
BROKER_LOCK_LIFE, CLIENT_LOCK_LIFE, RENEW_PERIOD = 60_000, 30_000, 20_000
# A queue is consumed for so long at a stretch, and then yields to others.
MAX_CONTINUOUS, YIELD_PAUSE = 60_000, 10
DEFAULT_SUSPEND, LEAST_SUSPEND, MOST_SUSPEND = 1_000, 10, 30_000


class _Lock(NamedTuple):
    client_id: str
    renewed: int


class QueueLocks:
    """The broker's side: which consumer of a group has which queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock those of ``queues`` that are free, expired or the client's own, and return them."""
        return {queue for queue in queues if self._try_lock(group, client_id, queue)}

    def _try_lock(self, group: str, client_id: str, queue: MessageQueue) -> bool:
        owner = self.find_owner(group, queue)
        if owner is not None and owner != client_id:
            return False
        self._groups.setdefault(group, {})[queue] = _Lock(client_id, self._clock.monotonic())
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back those of ``queues`` that are the client's."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def find_owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that has the queue, None when nobody has or its lock has expired."""
        lock = self._groups.get(group, {}).get(queue)
        if lock is None or self._clock.monotonic() - lock.renewed > BROKER_LOCK_LIFE:
            return None
        return lock.client_id


def is_lock_held(window: ProcessQueue[Any], now: int) -> bool:
    """Tell whether a consumer may still take its queue for locked."""
    return window.is_locked and now - window.last_lock <= CLIENT_LOCK_LIFE


class ConsumeOrderlyStatus(StrEnum):
    """What the consumer says; an exception is SUSPEND_CURRENT_QUEUE_A_MOMENT.

    COMMIT and ROLLBACK are for consumers that commit themselves.
    """

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class OrderlyStep(NamedTuple):
    """What to do after a batch: commit an offset (-1: none, and it may decrease), and wait before the next batch."""

    commit_offset: int
    suspend: int | None


class OrderlyPolicy(NamedTuple):
    """How a consumer goes on.

    ``send_back`` gives up on a message that was tried ``max_reconsume_times`` times and says whether the broker took
    it; -1 times is for ever.
    """

    auto_commit: bool = True
    max_reconsume_times: int = -1
    suspend: int = DEFAULT_SUSPEND
    send_back: Callable[[CachedMessage[Any]], bool] | None = None


def finish_ordered(
    window: ProcessQueue[Any],
    messages: Sequence[CachedMessage[Any]],
    status: ConsumeOrderlyStatus,
    policy: OrderlyPolicy,
) -> OrderlyStep:
    """Commit what was taken from a window, or put it back to be consumed again."""
    suspend = min(max(policy.suspend, LEAST_SUSPEND), MOST_SUSPEND)
    if status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
        if _must_try_again(messages, policy):
            window.put_back(messages)
            return OrderlyStep(-1, suspend)
        # All of them were given up: that is as good as consumed.
        return OrderlyStep(_committed(window) if policy.auto_commit else -1, None)
    if not policy.auto_commit:
        if status is ConsumeOrderlyStatus.ROLLBACK:
            window.rollback()
            return OrderlyStep(-1, suspend)
        if status is ConsumeOrderlyStatus.SUCCESS:
            return OrderlyStep(-1, None)
    return OrderlyStep(_committed(window), None)


def _committed(window: ProcessQueue[Any]) -> int:
    offset = window.commit()
    return -1 if window.is_dropped else offset


def _must_try_again(messages: Sequence[CachedMessage[Any]], policy: OrderlyPolicy) -> bool:
    """Count a failed try of each message; tell whether any of them is left to be tried again."""
    left = False
    for message in messages:
        is_last = 0 <= policy.max_reconsume_times <= message.reconsume_times
        if is_last and policy.send_back is not None and policy.send_back(message):
            continue
        message.reconsume_times += 1
        left = True
    return left
