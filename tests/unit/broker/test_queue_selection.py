"""Which queue a producer sends to: §12.1."""

from __future__ import annotations

import pytest

from rmqtool.broker.producer.client import LeastLatency, RoundRobin, queue_by_key, queue_index_by_key
from rmqtool.config import Version
from rmqtool.formats.message_queue import MessageQueue
from tests.support.manual_clock import ManualClock

QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(2)]
THREE = [MessageQueue("T", broker, 0) for broker in ("a", "b", "c")]


def test_one_queue_after_the_other() -> None:
    chosen = RoundRobin(2)
    assert [QUEUES.index(chosen.select(QUEUES)) for _ in range(6)] == [3, 0, 1, 2, 3, 0]


def test_the_counter_starts_again_before_it_is_negative() -> None:
    chosen = RoundRobin(0x7FFFFFFE)
    assert [chosen.next_index(4) for _ in range(3)] == [3, 0, 1]
    assert RoundRobin(-1).next_index(4) == 0


def test_c12_8_a_second_attempt_goes_to_another_broker() -> None:
    chosen = RoundRobin(3)
    assert chosen.select(QUEUES, "a").broker_name == "b"
    assert all(chosen.select(QUEUES, "b").broker_name == "a" for _ in range(5))
    alone = [queue for queue in QUEUES if queue.broker_name == "a"]
    assert chosen.select(alone, "a") in alone, "there is no other"


def test_c12_6_a_sharding_key_has_its_queue() -> None:
    assert queue_index_by_key("order-1", 4) == 2
    assert queue_by_key("order-1", QUEUES) == QUEUES[2]
    # The hash is the least int there is, whose absolute value Java does not have.
    assert queue_index_by_key("polygenelubricants", 7) == 2147483648 % 7


@pytest.mark.parametrize(
    ("version", "latencies"),
    [
        (
            Version.V4_9,
            {549: 0, 550: 30_000, 1000: 60_000, 2000: 120_000, 3000: 180_000, 14_999: 180_000, 15_000: 600_000},
        ),
        (
            Version.V5_3,
            {549: 0, 550: 2000, 1800: 5000, 3000: 6000, 5000: 10_000, 14_999: 10_000, 15_000: 30_000},
        ),
    ],
)
def test_slow_brokers_are_avoided_for_a_while(version: Version, latencies: dict[int, int]) -> None:
    for latency, avoided in latencies.items():
        clock = ManualClock()
        choice = LeastLatency(0, version, clock)
        choice.report("a", latency)
        if avoided:
            clock.advance(avoided - 1)
            assert not choice.is_available("a")
            clock.advance(1)
        assert choice.is_available("a")


@pytest.mark.parametrize(("version", "avoided"), [(Version.V4_9, 600_000), (Version.V5_3, 10_000)])
def test_failed_brokers_are_avoided_for_long(version: Version, avoided: int) -> None:
    clock = ManualClock()
    choice = LeastLatency(0, version, clock)
    choice.report("a", 3, failed=True)
    assert {choice.select(QUEUES).broker_name for _ in range(8)} == {"b"}
    clock.advance(avoided - 1)
    assert {choice.select(QUEUES).broker_name for _ in range(8)} == {"b"}
    clock.advance(1)
    assert {choice.select(QUEUES).broker_name for _ in range(8)} == {"a", "b"}


def test_only_4_9_forgives_for_one_fast_answer() -> None:
    for version, forgiven in ((Version.V4_9, True), (Version.V5_3, False)):
        choice = LeastLatency(0, version, ManualClock())
        choice.report("a", 3, failed=True)
        choice.report("a", 3)
        assert choice.is_available("a") is forgiven


def test_5_x_avoids_the_last_broker_and_those_it_cannot_reach() -> None:
    choice = LeastLatency(0, Version.V5_3, ManualClock())
    assert {choice.select(THREE, "a").broker_name for _ in range(9)} == {"b", "c"}
    for broker in "abc":
        choice.report(broker, 20_000, reachable=broker != "b")
    assert {choice.select(THREE, "a").broker_name for _ in range(9)} == {"c"}
    choice.report("c", 20_000, reachable=False)
    assert {choice.select(THREE, "a").broker_name for _ in range(9)} == {"a", "b", "c"}, "one after the other"


def test_4_9_takes_the_better_half_when_all_are_avoided() -> None:
    choice = LeastLatency(0, Version.V4_9, ManualClock())
    for broker, latency in (("a", 3000), ("b", 600), ("c", 15_000)):
        choice.report(broker, latency)
    assert {choice.select(THREE).broker_name for _ in range(9)} == {"b"}
    choice.report("d", 500_000)
    assert {choice.select(THREE).broker_name for _ in range(9)} == {"a", "b"}


def test_4_9_forgets_a_broker_without_queues() -> None:
    clock = ManualClock()
    choice = LeastLatency(0, Version.V4_9, clock)
    choice.report("a", 20_000)
    choice.report("gone", 600)
    assert choice.select(QUEUES[:2]).broker_name == "a"
    assert choice.is_available("gone"), "nothing is held against it any more"
