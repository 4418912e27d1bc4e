"""Ordered consumption: the lock of a queue, and what comes of a batch (§9.5)."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.broker.consumer.consume_message import (
    ConsumeOrderlyStatus,
    OrderlyPolicy,
    OrderlyStep,
    QueueLocks,
    finish_ordered,
    is_lock_held,
)
from rmqtool.broker.consumer.process_queue import CachedMessage, ProcessQueue
from rmqtool.formats.message_queue import MessageQueue
from tests.support.manual_clock import ManualClock

ONE, TWO = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
SUCCESS, COMMIT, ROLLBACK, SUSPEND = ConsumeOrderlyStatus


def test_c9_18_a_lock_is_its_owners_for_a_minute() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    assert locks.lock("g", "A", [ONE]) == {ONE}
    assert locks.lock("g", "B", [ONE, TWO]) == {TWO}
    assert locks.lock("h", "B", [ONE]) == {ONE}, "another group"
    clock.advance(60_000)
    assert locks.lock("g", "B", [ONE]) == set()
    clock.advance(1)
    assert locks.find_owner("g", ONE) is None
    assert locks.lock("g", "B", [ONE]) == {ONE}
    assert locks.lock("g", "A", [ONE]) == set()


def test_locking_again_renews() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    for _ in range(5):
        assert locks.lock("g", "A", [ONE]) == {ONE}
        clock.advance(20_000)
    clock.advance(40_000)
    assert locks.lock("g", "B", [ONE]) == set()


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks(ManualClock())
    locks.lock("g", "A", [ONE])
    locks.unlock("g", "B", [ONE])
    assert locks.find_owner("g", ONE) == "A"
    locks.unlock("g", "A", [ONE, TWO])
    assert locks.find_owner("g", ONE) is None
    locks.unlock("nobody", "A", [ONE])


def test_a_consumer_believes_in_its_lock_for_half_a_minute() -> None:
    queue = ProcessQueue[str](now=100)
    assert not is_lock_held(queue, 100)
    queue.is_locked = True
    assert is_lock_held(queue, 30_100)
    assert not is_lock_held(queue, 30_101)


def taken(*queue_offsets: int) -> tuple[ProcessQueue[Any], list[CachedMessage[Any]]]:
    queue = ProcessQueue[Any]()
    queue.put([CachedMessage(offset, 1, None) for offset in queue_offsets])
    return queue, queue.take(len(queue_offsets))


def again(queue: ProcessQueue[Any]) -> list[int]:
    return [message.queue_offset for message in queue.take(99)]


@pytest.mark.parametrize("status", [SUCCESS, COMMIT, ROLLBACK])
def test_c8_11_success_commits(status: ConsumeOrderlyStatus) -> None:
    """COMMIT and ROLLBACK mean nothing else where commits are automatic."""
    queue, messages = taken(3, 4, 5)
    assert finish_ordered(queue, messages, status, OrderlyPolicy()) == OrderlyStep(6, None)
    assert again(queue) == []


@pytest.mark.parametrize(("suspend", "expected"), [(1000, 1000), (9, 10), (-1, 10), (30_001, 30_000)])
@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_suspended_queue_tries_again(suspend: int, expected: int, *, auto_commit: bool) -> None:
    queue, messages = taken(3, 4)
    policy = OrderlyPolicy(auto_commit, suspend=suspend)
    assert finish_ordered(queue, messages, SUSPEND, policy) == OrderlyStep(-1, expected)
    assert [message.reconsume_times for message in messages] == [1, 1]
    assert again(queue) == [3, 4]


def test_what_was_tried_often_enough_goes_to_the_dead_letters() -> None:
    queue, messages = taken(3, 4)
    given_up: list[int] = []

    def send_back(message: CachedMessage[Any]) -> bool:
        given_up.append(message.queue_offset)
        return True

    policy = OrderlyPolicy(max_reconsume_times=1, send_back=send_back)
    messages[0].reconsume_times = 1
    assert finish_ordered(queue, messages, SUSPEND, policy) == OrderlyStep(-1, 1000)
    assert (given_up, again(queue)) == ([3], [3, 4])
    queue.rollback()
    messages = queue.take(2)
    assert finish_ordered(queue, messages, SUSPEND, policy) == OrderlyStep(5, None)
    assert given_up == [3, 3, 4]


def test_dead_letters_that_cannot_be_stored_are_tried_again() -> None:
    queue, messages = taken(3)
    policy = OrderlyPolicy(max_reconsume_times=0, send_back=lambda _message: False)
    assert finish_ordered(queue, messages, SUSPEND, policy) == OrderlyStep(-1, 1000)
    assert again(queue) == [3]


def test_a_consumer_that_commits_itself() -> None:
    queue, messages = taken(3, 4)
    by_hand = OrderlyPolicy(auto_commit=False)
    assert finish_ordered(queue, messages, SUCCESS, by_hand) == OrderlyStep(-1, None)
    queue.put([CachedMessage(5, 1, None)])
    messages = queue.take(1)
    assert finish_ordered(queue, messages, COMMIT, by_hand) == OrderlyStep(6, None), "all that was taken so far"
    queue, messages = taken(3, 4)
    finish_ordered(queue, messages[:1], SUCCESS, by_hand)
    assert finish_ordered(queue, messages[1:], ROLLBACK, by_hand) == OrderlyStep(-1, 1000)
    assert again(queue) == [3, 4]


def test_a_queue_that_is_somebody_elses_by_now_is_not_committed() -> None:
    queue, messages = taken(3)
    queue.is_dropped = True
    assert finish_ordered(queue, messages, SUCCESS, OrderlyPolicy()) == OrderlyStep(-1, None)
