"""What sharing 1,000 queues among 100 members costs, over the least that says who has what."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import md5

import pytest

from rmqtool.broker.consumer.process_queue import ProcessQueue
from rmqtool.broker.consumer.rebalance import (
    Average,
    AverageByCircle,
    ConsistentHash,
    ConsumerGroup,
    Rebalancer,
    Strategy,
)
from rmqtool.config import Version
from rmqtool.formats.message_queue import MessageQueue
from tests.support.manual_clock import ManualClock

QUEUES = [MessageQueue("T", f"broker-{number // 8}", number % 8) for number in range(1000)]
MEMBERS = [f"10.0.0.{number}@4711#{number}" for number in range(100)]
NEWCOMER = "10.0.0.100@4711#100"
ROUNDS = 15
# One that joins moves nearly every queue to another member: as many windows are closed and made. The floor hashes every
# text that consistent hashing hashes, and makes all windows once.
AT_MOST = 2.5
STRATEGIES: dict[str, Strategy] = {
    "average": Average(),
    "circle": AverageByCircle(),
    "consistent hash": ConsistentHash(),
}


def joined(strategy: Strategy) -> Callable[[], object]:
    group = ConsumerGroup("g", Version.V5_3, ManualClock(), Rebalancer(strategy))
    group.set_queues(QUEUES)
    for member in MEMBERS:
        group.join(member)
    group.tick()
    group.join(NEWCOMER)
    return group.tick


def floor() -> object:
    for number in range(10):
        for member in MEMBERS:
            md5(f"{member}-{number}".encode()).digest()
    for queue in QUEUES:
        md5(str(queue).encode()).digest()
    return {queue: ProcessQueue[object](0) for queue in QUEUES}


def least(make: Callable[[], Callable[[], object]]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        function = make()
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.bench
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_member_that_joins_costs_little(name: str) -> None:
    moved = joined(STRATEGIES[name])()
    assert isinstance(moved, list)
    assert moved
    taken, plain = least(lambda: joined(STRATEGIES[name])), least(lambda: floor)
    print(f"\n{name}: {taken * 1e3:.1f} ms for {len(moved)} changes, {taken / plain:.2f} times the floor")
    assert taken <= AT_MOST * plain
