"""Requests that wait for a reply, and consumers that answer; broadcasting consumers. At a server of our own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import rmqtool
from rmqtool.api.consumer_settings import strategy_of
from rmqtool.api.shapes import Message
from rmqtool.errors import RmqtoolError, StoreInUse, UsageError
from rmqtool.formats.message_queue import MessageQueue, decode_local_offsets
from tests.support.waiting import PATIENCE


@pytest.fixture
def cluster(address: str) -> Iterator[rmqtool.Cluster]:
    with rmqtool.connect(address) as opened:
        yield opened


@pytest.fixture
def topic(cluster: rmqtool.Cluster) -> str:
    name = f"T{uuid4().hex}"
    cluster.topic("create", name, queues=2)
    return name


def test_a_request_gets_the_reply_of_a_consumer(cluster: rmqtool.Cluster, topic: str) -> None:
    with cluster.consumer(topic, group=f"G{topic}", start="first") as consumer:

        def handle(message: Message) -> None:
            # Large enough to be compressed on its way.
            consumer.reply(message, (message["body"] or "") * 3000, keys="k")

        thread = threading.Thread(target=consumer.run, args=(handle,))
        thread.start()
        try:
            with cluster.producer() as producer:
                found = [producer.request(topic, f"q{number}", timeout=PATIENCE) for number in range(3)]
        finally:
            consumer.stop()
            thread.join()
    assert [one["body"] for one in found] == ["q0" * 3000, "q1" * 3000, "q2" * 3000]
    assert {one["topic"] for one in found} == {"DefaultCluster_REPLY_TOPIC"}
    assert (found[0]["keys"], found[0]["bodyCodec"]) == ("k", "zlib")


def test_requests_and_replies_on_a_loop(address: str, topic: str) -> None:
    async def main() -> list[str]:
        async with rmqtool.connect_async(address) as service:
            consumer = service.consumer(topic, group=f"G{topic}", start="first")

            async def handle(message: Message) -> None:
                await consumer.reply(message, f"to {message['body']}")

            async with consumer, service.producer() as producer:
                running = asyncio.create_task(consumer.run(handle))
                asked = [producer.request(topic, str(number), timeout=PATIENCE) for number in range(10)]
                found = await asyncio.gather(*asked)
                consumer.stop()
                await running
        return [one["body"] for one in found]

    assert asyncio.run(main()) == [f"to {number}" for number in range(10)]


def test_a_request_without_a_reply_ends_and_says_so(cluster: rmqtool.Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        with pytest.raises(RmqtoolError, match=f"no reply to the message .* of topic {topic} came in 0.2 s") as caught:
            producer.request(topic, "anybody?", timeout=0.2)
        assert caught.value.code == "no-reply"
        (message,) = cluster.scan(topics=topic)
        with pytest.raises(RmqtoolError, match="has no queue 99"):
            producer.request(topic, "x", timeout=PATIENCE, queue=99)
        # The one that asked waits no longer: the reply is acknowledged, and dropped.
        assert producer.reply(message, "late").status == "PUT_OK"


def test_only_requests_can_be_answered_and_only_to_clients_that_are_there(
    address: str, cluster: rmqtool.Cluster, topic: str
) -> None:
    with cluster.producer() as producer:
        producer.send(topic, "plain")
        (plain,) = cluster.scan(topics=topic)
        with pytest.raises(UsageError, match="this message asks for no reply: it has no property TTL"):
            producer.reply(plain, "x")
        with rmqtool.connect(address) as other, other.producer() as asks, pytest.raises(RmqtoolError):
            asks.request(topic, "gone soon", timeout=0.1)
        asked = next(one for one in cluster.scan(topics=topic) if one["body"] == "gone soon")
        with pytest.raises(RmqtoolError, match=r"push reply message fail, channel of <.*> not found"):
            producer.reply(asked, "x")


def test_each_broadcasting_consumer_gets_all_messages_and_goes_on(
    cluster: rmqtool.Cluster, topic: str, tmp_path: Path
) -> None:
    group = f"G{topic}"
    with cluster.producer() as producer:
        for number in range(10):
            producer.send(topic, str(number))
        for name in ("a", "b"):
            file = tmp_path / name / "offsets.json"
            with cluster.consumer(
                topic, group=group, start="first", broadcast=True, offsets=file, timeout=1
            ) as consumer:
                found = consumer.poll(1, timeout=PATIENCE)
                while len(found) < 10:
                    found += consumer.poll(timeout=PATIENCE)
                found += consumer
                assert sorted(int(one["body"] or "") for one in found) == list(range(10))
        producer.send(topic, "more", queue=1)
    file = tmp_path / "a" / "offsets.json"
    with cluster.consumer(topic, group=group, broadcast=True, offsets=file, timeout=1) as consumer:
        found = consumer.poll(timeout=PATIENCE)
        assert [one["body"] for one in found] == ["more"]
        consumer.retry(found[0])  # it is not delivered again
        with (
            pytest.raises(StoreInUse, match="another broadcasting consumer uses"),
            cluster.consumer(topic, group=group, broadcast=True, offsets=file),
        ):
            pass
        assert list(consumer) == []
    table = decode_local_offsets(file.read_bytes())
    assert isinstance(table, dict)
    assert table == {
        MessageQueue(topic, "DEFAULT_BROKER", 0): 5,
        MessageQueue(topic, "DEFAULT_BROKER", 1): 6,
    }
    assert topic not in cluster.groups().get(group, {"topics": {}})["topics"], "brokers know no progress of it"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"broadcast": True, "orderly": True}, "takes every queue"),
        ({"broadcast": True, "strategy": "hash"}, "takes every queue"),
        ({"offsets": "x"}, "offsets is the file of a broadcasting consumer"),
        ({"strategy": "rooms:"}, 'there is no strategy "rooms:"'),
    ],
)
def test_settings_that_contradict_are_refused(
    cluster: rmqtool.Cluster, topic: str, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        cluster.consumer(topic, group="G", **settings)  # type: ignore[arg-type]


def test_strategies_by_their_names() -> None:
    queues = [MessageQueue("T", name, number) for name in ("A@a", "B@b") for number in range(2)]
    members = ["A-host@1", "B-host@2"]
    assert strategy_of("rooms:B").allocate(queues, members) == {members[0]: queues[2:3], members[1]: queues[3:]}
    named = [MessageQueue("T", name, number) for name in ("B-a", "A-b") for number in range(2)]
    assert strategy_of("nearby").allocate(named, members) == {members[0]: named[2:], members[1]: named[:2]}
