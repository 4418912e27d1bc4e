"""Members joining and leaving: §12.3."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rmqtool.broker.consumer.consume_message import QueueLocks
from rmqtool.broker.consumer.process_queue import ProcessQueue
from rmqtool.broker.consumer.rebalance import AverageByCircle, Change, ConsumerGroup, Member, Rebalancer
from rmqtool.config import Version
from rmqtool.formats.message_queue import MessageQueue
from tests.support.manual_clock import ManualClock


def queues(count: int, topic: str = "T") -> list[MessageQueue]:
    return [MessageQueue(topic, "b", queue_id) for queue_id in range(count)]


def group(*members: str, count: int = 4, rebalancer: Rebalancer | None = None) -> tuple[ConsumerGroup, ManualClock]:
    clock = ManualClock()
    found = ConsumerGroup("g", Version.V5_3, clock, rebalancer)
    found.set_queues(queues(count))
    for member in members:
        found.join(member)
    return found, clock


def held(of: ConsumerGroup) -> dict[str, list[int]]:
    return {name: [queue.queue_id for queue in sorted(member.windows)] for name, member in of.members.items()}


def pulled(of: ConsumerGroup, now: int) -> None:
    for member in of.members.values():
        for window in member.windows.values():
            window.last_pull = now


def test_a_member_that_joins_gets_its_share() -> None:
    shared, _ = group("c0")
    assert shared.tick() == [Change("c0", queue, is_taken=True) for queue in queues(4)]
    window = shared.members["c0"].windows[queues(4)[3]]
    shared.join("c1")
    changes = shared.tick()
    assert changes == [
        *(Change("c0", queue, is_taken=False) for queue in queues(4)[2:]),
        *(Change("c1", queue, is_taken=True) for queue in queues(4)[2:]),
    ]
    assert held(shared) == {"c0": [0, 1], "c1": [2, 3]}
    assert window.is_dropped


def test_what_a_member_leaves_goes_to_the_others() -> None:
    shared, _ = group("c0", "c1")
    shared.tick()
    assert shared.leave("c0") == [Change("c0", queue, is_taken=False) for queue in queues(2)]
    shared.tick()
    assert held(shared) == {"c1": [0, 1, 2, 3]}
    shared.leave("c1")
    assert shared.tick() == []


def test_nothing_moves_without_a_change() -> None:
    shared, clock = group("c0", "c1")
    shared.tick()
    windows = dict(shared.members["c0"].windows)
    for _ in range(5):
        clock.advance(20_000)
        pulled(shared, clock.monotonic())
        assert shared.tick() == []
    assert shared.members["c0"].windows == windows
    assert all(window is windows[queue] for queue, window in shared.members["c0"].windows.items())


def test_more_members_than_queues() -> None:
    shared, _ = group("c0", "c1", "c2", count=2)
    shared.tick()
    assert held(shared) == {"c0": [0], "c1": [1], "c2": []}


def test_every_topic_is_shared_for_itself() -> None:
    shared, _ = group("c0", "c1", count=1)
    shared.set_queues([*queues(1), *queues(1, "U")])
    shared.tick()
    assert {name: len(member.windows) for name, member in shared.members.items()} == {"c0": 2, "c1": 0}


def test_queues_that_are_new_or_gone() -> None:
    shared, _ = group("c0", count=2, rebalancer=Rebalancer(AverageByCircle()))
    shared.tick()
    shared.set_queues(queues(3)[1:])
    assert shared.tick() == [
        Change("c0", queues(1)[0], is_taken=False),
        Change("c0", queues(3)[2], is_taken=True),
    ]


def test_broadcasting_members_have_all_queues() -> None:
    shared, _ = group("c0", "c1", rebalancer=Rebalancer(broadcasting=True))
    shared.tick()
    assert held(shared) == {"c0": [0, 1, 2, 3], "c1": [0, 1, 2, 3]}


def test_progress_is_safe_before_anybody_else_takes_a_queue() -> None:
    seen: list[tuple[str, int, bool]] = []

    def on_drop(member: Member, queue: MessageQueue, window: ProcessQueue[Any]) -> bool:
        taken = any(queue in other.windows for other in shared.members.values() if other is not member)
        seen.append((member.client_id, queue.queue_id, taken or window.is_dropped))
        return True

    shared, _ = group("c0", count=2, rebalancer=Rebalancer(on_drop=on_drop))
    shared.tick()
    shared.join("c1")
    shared.tick()
    shared.leave("c1")
    assert seen == [("c0", 1, False), ("c1", 1, False)]


@pytest.mark.parametrize(("version", "period"), [(Version.V4_9, 20_000), (Version.V5_3, 1_000)])
def test_a_queue_in_use_stays_until_it_is_not(version: Version, period: int) -> None:
    busy = True
    clock = ManualClock()
    rebalancer = Rebalancer(on_drop=lambda _member, _queue, _window: not busy)
    shared = ConsumerGroup("g", version, clock, rebalancer)
    shared.set_queues(queues(2))
    shared.join("c0")
    shared.tick()
    shared.join("c1")
    assert shared.tick() == []
    assert held(shared) == {"c0": [0, 1], "c1": []}
    busy = False
    clock.advance(period - 1)
    assert shared.tick() == []
    clock.advance(1)
    shared.tick()
    assert held(shared) == {"c0": [0], "c1": [1]}


def test_an_ordered_queue_is_taken_with_its_lock() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    locks.lock("g", "elsewhere", queues(1))
    shared = ConsumerGroup("g", Version.V5_3, clock, Rebalancer(locks=locks))
    shared.set_queues(queues(2))
    shared.join("c0")
    shared.tick()
    assert held(shared) == {"c0": [1]}
    assert locks.find_owner("g", queues(2)[1]) == "c0"
    locks.unlock("g", "elsewhere", queues(1))
    clock.advance(1_000)
    shared.tick()
    assert held(shared) == {"c0": [0, 1]}
    assert all(window.is_locked for window in shared.members["c0"].windows.values())
    shared.leave("c0")
    assert locks.find_owner("g", queues(2)[1]) is None


def test_locks_are_renewed_and_lost_ones_known() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    shared = ConsumerGroup("g", Version.V5_3, clock, Rebalancer(locks=locks))
    shared.set_queues(queues(2))
    shared.join("c0")
    shared.tick()
    clock.advance(50_000)
    assert shared.renew_locks() == []
    clock.advance(50_000)
    assert locks.lock("g", "elsewhere", queues(1)) == set()
    clock.advance(10_001)
    assert locks.lock("g", "elsewhere", queues(1)) == set(queues(1))
    assert shared.renew_locks() == queues(1)
    assert [window.is_locked for window in shared.members["c0"].windows.values()] == [False, True]
    assert group("c0")[0].renew_locks() == []


def test_a_queue_that_nobody_pulls_from_is_taken_anew() -> None:
    shared, clock = group("c0", count=1)
    shared.tick()
    first = shared.members["c0"].windows[queues(1)[0]]
    clock.advance(120_001)
    assert [change.is_taken for change in shared.tick()] == [False, True]
    assert first.is_dropped
    assert shared.members["c0"].windows[queues(1)[0]] is not first


@pytest.mark.parametrize("seed", range(10))
def test_any_joining_and_leaving_keeps_every_queue_with_one_member(seed: int) -> None:
    chance = Random(seed)
    shared, clock = group(count=17)
    for _ in range(60):
        if len(shared.members) > 1 and chance.random() < 0.5:
            shared.leave(chance.choice(sorted(shared.members)))
        else:
            shared.join(f"c{chance.randrange(40)}")
        shared.tick()
        of_all = [queue for member in shared.members.values() for queue in member.windows]
        assert sorted(of_all) == queues(17)
        clock.advance(1000)
        pulled(shared, clock.monotonic())
