"""The consumers and the asynchronous client of the library, at a server in memory."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

import rmqtool
from rmqtool.api.async_cluster import AsyncCluster
from tests.support.waiting import PATIENCE, come_true, run


@pytest.fixture
def topic(address: str) -> str:
    name = f"T{uuid4().hex}"
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", name, queues=4)
    return name


def fill(address: str, topic: str, number: int, **parts: Any) -> None:
    with rmqtool.connect(address) as cluster, cluster.producer() as producer:
        for future in [producer.send_async(topic, str(one), **parts) for one in range(number)]:
            future.result(PATIENCE)


def committed(address: str, group: str, topic: str) -> int:
    with rmqtool.connect(address) as cluster:
        return sum(place["committed"] for place in cluster.groups()[group]["topics"].get(topic, {}).values())


def rest(cluster: rmqtool.Cluster, topic: str, group: str, number: int) -> list[str | None]:
    """Consume until so many messages have come and no more come in a second."""
    found: list[str | None] = []
    end = time.monotonic() + PATIENCE
    while len(found) < number:
        assert time.monotonic() < end, found
        found += [one["body"] for one in cluster.consume(topic, group, timeout=1)]
    return found


def test_consume_ends_after_its_limit_and_goes_on_there(address: str, topic: str) -> None:
    fill(address, topic, 10)
    with rmqtool.connect(address) as cluster:
        taken = [one["body"] for one in cluster.consume(topic, "G1", start="first", limit=4)]
        assert len(taken) == 4
        taken += rest(cluster, topic, "G1", 6)
    assert sorted(map(int, taken)) == list(range(10))
    assert committed(address, "G1", topic) == 10


def test_a_message_in_whose_loop_an_error_was_raised_comes_again(address: str, topic: str) -> None:
    fill(address, topic, 3)
    with rmqtool.connect(address) as cluster:
        seen = []

        def fail() -> None:
            with cluster.consumer(topic, "G2", start="first") as consumer:
                for message in consumer:
                    seen.append(message["body"])
                    if len(seen) == 2:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        again = rest(cluster, topic, "G2", 2)
    assert len(seen) == 2
    assert set(again) == {"0", "1", "2"} - {seen[0]}


def test_poll_and_commit(address: str, topic: str) -> None:
    fill(address, topic, 20)
    with rmqtool.connect(address) as cluster, cluster.consumer(topic, "G3", start="first") as consumer:
        found: list[Any] = []
        while len(found) < 20 and (batch := consumer.poll(8, timeout=PATIENCE)):
            assert len(batch) <= 8
            found += batch
        consumer.commit()
        assert committed(address, "G3", topic) == 20
        assert consumer.poll(timeout=0) == []


def test_handlers_run_at_the_same_time_and_what_fails_comes_again(address: str, topic: str) -> None:
    fill(address, topic, 8)
    with rmqtool.connect(address) as cluster:
        cluster.group("create", "G4", {"retryMaxTimes": 1})
        barrier, begun, done = threading.Barrier(4), count(), []
        with cluster.consumer(topic, "G4", start="first") as consumer:

            def handle(message: Any) -> bool:
                # The fifth may begin before the fourth is done.
                if next(begun) < 4:
                    barrier.wait(PATIENCE)
                done.append(message["body"])
                if len(done) == 8:
                    consumer.stop()
                return message["body"] != "5"

            consumer.run(handle, concurrency=4)
        assert sorted(map(int, done)) == list(range(8))
        assert committed(address, "G4", topic) == 8
        retried = rmqtool.connect(address)
        with retried:
            assert [one["body"] for one in retried.scan(topics="SCHEDULE_TOPIC_XXXX")].count("5") == 1


def test_retry_sends_a_message_back(address: str, topic: str) -> None:
    fill(address, topic, 1)
    with rmqtool.connect(address) as cluster:
        cluster.group("create", "G5", {"retryMaxTimes": 0})
        with cluster.consumer(topic, "G5", start="first") as consumer:
            (message,) = consumer.poll(timeout=PATIENCE)
            consumer.retry(message)
            with pytest.raises(rmqtool.RmqtoolError, match="this message is not out"):
                consumer.retry(message)
        assert [one["body"] for one in cluster.scan(topics="%DLQ%G5")] == ["0"]


@pytest.mark.parametrize("strategy", ["average", "circle", "hash"])
def test_two_members_share_the_queues(address: str, topic: str, strategy: str) -> None:
    fill(address, topic, 40)

    async def share() -> list[list[str]]:
        async with rmqtool.connect_async(address) as cluster:
            group, taken = f"G{strategy}", [list[str](), list[str]()]
            settings = {"start": "first", "strategy": strategy}
            members = [cluster.consumer(topic, group, **settings) for _ in taken]
            for member in members:
                await member.start()
            for member in members:
                await member._joined.share_out()

            async def consume(at: int) -> None:
                async for message in members[at]:
                    taken[at].append(message["body"])

            tasks = [asyncio.create_task(consume(at)) for at in range(2)]
            await come_true(lambda: len({*taken[0], *taken[1]}) == 40)
            for task, member in zip(tasks, members, strict=True):
                member.stop()
                await task
                await member.close()
            return taken

    first, second = run(share())
    # By their hashes all four queues of a topic may be one member's: the name of the topic is another one each time.
    assert strategy == "hash" or (first and second)
    assert sorted({int(one) for one in first + second}) == list(range(40))


def test_the_asynchronous_client_has_the_same_verbs(address: str, topic: str) -> None:
    async def use() -> None:
        async with rmqtool.connect_async(address) as cluster:
            sent = await cluster.produce(topic, "hello", keys="k9")
            async with cluster.producer(group="P9") as producer:
                later = [producer.send_soon(topic, str(number)) for number in range(5)]
                assert {one.status for one in await asyncio.gather(*later)} == {"PUT_OK"}
                assert len(await producer.send_batch(topic, ["a", "b"])) == 2
                await producer.send_oneway(topic, "c")
            found = await cluster.query("k9", topics=topic)
            assert found["messages"][0]["offsetMsgId"] == sent.offset_msg_id
            bodies: list[Any] = []
            while len(bodies) < 9:
                bodies = [message["body"] async for message in cluster.scan(topics=topic)]
            assert sorted(bodies) == sorted(["hello", *map(str, range(5)), "a", "b", "c"])
            assert len([message async for message in cluster.scan(topics=topic, limit=3)]) == 3
            assert topic in [one["topic"] for one in await cluster.topics()]
            assert "brokers" in await cluster.info()
            consumer, taken = cluster.consumer(topic, "G9", start="first", timeout=1), 0
            async with consumer:
                while taken < 9:
                    taken += len(await consumer.poll(timeout=PATIENCE))
                taken += len([message async for message in consumer])
            assert taken == 9
            assert (await cluster.groups())["G9"]["topics"][topic]

    run(use())


def test_a_transaction_is_awaited(address: str, topic: str) -> None:
    async def use() -> list[str]:
        async with rmqtool.connect_async(address) as cluster:
            producer = cluster.producer(group="PT", check=lambda message: "rollback")

            async def work(_: Any) -> str:
                return "commit"

            await producer.send_in_transaction(topic, "yes", work)
            return [message["body"] async for message in cluster.scan(topics=topic)]

    assert run(use()) == ["yes"]


def test_the_other_ways_to_connect(address: str, topic: str) -> None:
    """Headers in the binary form, and the second port of the broker."""
    with rmqtool.connect(address, binary=True) as cluster:
        assert cluster.produce(topic, "binary").status == "PUT_OK"
    with rmqtool.connect(address, vip=True) as cluster:
        assert cluster.produce(topic, "fast").status == "PUT_OK"
        assert [one["body"] for one in cluster.scan(topics=topic)] == ["binary", "fast"]
        open_now = cluster.connections._open
        assert len(open_now) == 3  # the name server, and both ports of the broker


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda c: c.consumer("T", "G", topic="x"), "unexpected keyword argument"),
        (lambda c: c.consumer("T", ""), "group"),
        (lambda c: c.consumer("T", "G", strategy="best"), 'there is no strategy "best"'),
        (lambda c: c.consumer("T", "G", tags="a", where="b = 1"), "by tag or by SQL"),
        (lambda c: c.consumer("NoSuchTopic", "G"), 'there is no topic "NoSuchTopic"'),
    ],
)
def test_wrong_words_are_sentences(address: str, use: Any, words: str) -> None:
    with (
        rmqtool.connect(address) as cluster,
        pytest.raises((rmqtool.RmqtoolError, TypeError), match=words),
        use(cluster) as consumer,
    ):
        consumer.poll(timeout=0)


def test_a_client_that_is_not_open_says_how(address: str) -> None:
    with pytest.raises(rmqtool.RmqtoolError, match="this client is not open"):
        run(AsyncCluster(address).info())
