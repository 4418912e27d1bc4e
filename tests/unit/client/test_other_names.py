"""Habits of users of other clients: they work, or the error says what the thing is called here."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rmqtool
from rmqtool.errors import RmqtoolError
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with rmqtool.serve(memory=True) as served:
        address = f"rocketmq://{served.names}"
        with rmqtool.connect(address) as cluster:
            cluster.topic("create", "Orders", queues=2)
            for number in range(4):
                cluster.produce("Orders", str(number))
        yield address


@pytest.fixture
def cluster(address: str) -> Iterator[Any]:
    with rmqtool.connect(address) as opened:
        yield opened


HABITS: list[tuple[Callable[[Any], object], str]] = [
    (lambda c: c.producer().produce("Orders", value="x"), "has no attribute 'produce'; here: send"),
    (lambda c: c.producer().send_and_wait("Orders", b"x"), r"here: send\(topic, body\)"),
    (lambda c: c.producer().send("Orders", "x", headers={"a": "b"}), "did you mean 'properties'"),
    (lambda c: c.producer().send("Orders", {"a": 1}), "a body is bytes or a text, not dict"),
    (lambda c: c.producer(acks="all"), "unexpected keyword argument 'acks'; it takes group"),
    (lambda c: c.consumer("Orders", group="G").subscribe(["Orders"]), "here: name the topics when you make it"),
    (lambda c: c.consumer("Orders", group="G").seek(0), "here: its start is a setting"),
    (lambda c: c.consumer("Orders", group="G", auto_offset_reset="earliest"), "did you mean 'start'"),
    (lambda c: c.list_topics(), r"here: topics\(\)"),
    (lambda c: c.create_topic("New"), 'here: topic\\("create"'),
    (lambda c: c.topic("create", "New", partitions=3), "did you mean 'queues'"),
    (lambda c: c.anything, "a Cluster has no attribute 'anything'$"),
    (lambda c: rmqtool.connect(f"rocketmq://{c.address}", security_protocol="SSL"), "did you mean 'tls'"),
    (lambda c: getattr(rmqtool, "KafkaProducer"), "here: rmqtool.connect"),  # noqa: B009
]


@pytest.mark.parametrize(("habit", "said"), HABITS)
def test_a_habit_is_answered_with_the_name_that_it_has_here(
    cluster: Any, habit: Callable[[Any], object], said: str
) -> None:
    with pytest.raises((AttributeError, ImportError, TypeError, RmqtoolError), match=said):
        habit(cluster)


def test_words_of_kafka_for_the_start_are_known(cluster: Any) -> None:
    with cluster.consumer("Orders", group="Early", start="earliest", timeout=1) as consumer:
        found = consumer.poll(timeout=PATIENCE)
        while len(found) < 4:
            found += consumer.poll(timeout=PATIENCE)
        assert len(found) == 4
        assert list(consumer) == []
    with cluster.consumer("Orders", group="Late", start="latest", timeout=0.3) as consumer:
        assert list(consumer) == []


def test_a_consumer_may_be_started_and_stopped_by_hand(address: str) -> None:
    async def main() -> list[str | None]:
        async with rmqtool.connect_async(address) as service:
            consumer = service.consumer("Orders", group="Hand", start="first")
            await consumer.start()
            try:
                return [message["body"] for message in await consumer.poll(4, timeout=PATIENCE)]
            finally:
                await consumer.stop()

    assert len(asyncio.run(main())) > 0


def test_errors_are_caught_by_their_names(cluster: Any) -> None:
    with pytest.raises(rmqtool.NotFound):
        cluster.produce("Orders", "x", queue=99)
    for name in ("NotSent", "RequestRefused", "SendUnknown", "NoReply"):
        assert issubclass(getattr(rmqtool, name), rmqtool.RmqtoolError)


def test_a_program_that_ends_with_sends_under_way_says_nothing_of_tasks(address: str) -> None:
    program = f"""
import rmqtool
with rmqtool.connect({address!r}) as cluster:
    cluster.producer().send_async("Orders", "x")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
