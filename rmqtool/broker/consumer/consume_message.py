"""The end of a message's consumption: finished, tried again, or given up; for parallel and for orderly consumers.

An orderly group locks its queues: a queue belongs to one consumer at a time, and waits at a message that fails.
upstream: ConsumeMessageConcurrentlyService.processConsumeResult, ConsumeMessageOrderlyService, ConsumeOrderlyContext,
RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from rmqtool.broker.consumer.process_queue import CachedMessage, ProcessQueue
from rmqtool.engine.clock import Clock
from rmqtool.formats.message_queue import MessageQueue

Payload = TypeVar("Payload")

# A failed message that could not be sent back is tried again here after this long (ms).
LOCAL_RETRY = 5_000


class ConsumeConcurrentlyStatus(StrEnum):
    """The result of a parallel consumer; an exception counts as RECONSUME_LATER."""

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
    """Remove a batch from its window; return the offset to commit, and the messages to consume again here.

    The messages after ``ack_index`` failed. ``send_back`` asks the broker to retry a message and returns whether it
    will. Broadcasting consumers do not have it, and their failed messages are dropped. An offset of -1 means no commit;
    offsets only increase. Messages that could not be sent back stay in the window and are tried again after
    LOCAL_RETRY.
    """
    done = len(messages) if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else 0
    if done and ack_index is not None:
        done = min(max(ack_index + 1, 0), done)
    retried = []
    if send_back is not None:
        for message in messages[done:]:
            # A message that took too long was sent back already.
            if window.find(message.queue_offset) is message and not send_back(message):
                message.reconsume_times += 1
                retried.append(message)
    kept = {message.queue_offset for message in retried}
    offset = window.remove([message for message in messages if message.queue_offset not in kept])
    return (-1 if window.is_dropped else offset), retried


# An unrenewed lock expires at the broker after the first time (ms), and for its owner after half of it.
BROKER_LOCK_LIFE, CLIENT_LOCK_LIFE, RENEW_PERIOD = 60_000, 30_000, 20_000
# A queue is consumed without a break for the first time (ms), then pauses for the second so that others get a turn.
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
        """Lock the ``queues`` that are free, expired or already the client's; return them."""
        return {queue for queue in queues if self._try_lock(group, client_id, queue)}

    def _try_lock(self, group: str, client_id: str, queue: MessageQueue) -> bool:
        owner = self.find_owner(group, queue)
        if owner is not None and owner != client_id:
            return False
        self._groups.setdefault(group, {})[queue] = _Lock(client_id, self._clock.monotonic())
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock the ``queues`` that are the client's."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def is_any_held(self, group: str) -> bool:
        """Tell whether a consumer of the group holds a queue. upstream: isLockAllExpired."""
        return any(self.find_owner(group, queue) is not None for queue in self._groups.get(group, ()))

    def find_owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that has the queue, None if it is free or its lock has expired."""
        lock = self._groups.get(group, {}).get(queue)
        if lock is None or self._clock.monotonic() - lock.renewed > BROKER_LOCK_LIFE:
            return None
        return lock.client_id


def is_lock_held(window: ProcessQueue[Any], now: int) -> bool:
    """Return whether a consumer may still treat its queue as locked."""
    return window.is_locked and now - window.last_lock <= CLIENT_LOCK_LIFE


class ConsumeOrderlyStatus(StrEnum):
    """The result of an orderly consumer; an exception counts as SUSPEND_CURRENT_QUEUE_A_MOMENT.

    COMMIT and ROLLBACK are for consumers that commit themselves.
    """

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class OrderlyStep(NamedTuple):
    """The step after a batch: the offset to commit (-1: none; it may decrease), and the pause before the next batch."""

    commit_offset: int
    suspend: int | None


class OrderlyPolicy(NamedTuple):
    """How an orderly consumer continues.

    ``send_back`` gives up a message after ``max_reconsume_times`` tries (-1: never) and returns whether the broker took
    it.
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
    """Commit what was taken from a window, or return it to be consumed again."""
    suspend = min(max(policy.suspend, LEAST_SUSPEND), MOST_SUSPEND)
    if status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
        if _must_try_again(messages, policy):
            window.put_back(messages)
            return OrderlyStep(-1, suspend)
        # All of them were given up, which counts as consumed.
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
    """Count a failed try of each message; return whether one of them must be tried again."""
    left = False
    for message in messages:
        is_last = 0 <= policy.max_reconsume_times <= message.reconsume_times
        if is_last and policy.send_back is not None and policy.send_back(message):
            continue
        message.reconsume_times += 1
        left = True
    return left
