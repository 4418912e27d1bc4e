"""Our client at the server in $NAMESRV_ADDR, which ``serve --exec`` sets, else at one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

import rmqtool
from rmqtool.api.consume import consuming
from rmqtool.cli import main
from rmqtool.errors import Exit


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    names = os.environ.get("NAMESRV_ADDR")
    if names is not None:
        yield f"rocketmq://{names}"
        return
    with rmqtool.serve(memory=True) as served:
        yield f"rocketmq://{served.names}"


@pytest.fixture
def topic() -> str:
    return f"T{uuid4().hex}"


def test_what_is_produced_is_scanned_and_found(address: str, topic: str) -> None:
    with rmqtool.connect(address) as cluster:
        sent = cluster.produce(topic, "hello", keys="k1", tags="a")
        assert [(one["body"], one["tags"]) for one in cluster.scan(topics=topic)] == [("hello", "a")]
        (found,) = cluster.query("k1", topics=topic)["messages"]
        assert found["offsetMsgId"] == sent.offset_msg_id


def test_a_batch_goes_to_one_queue(address: str, topic: str) -> None:
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", topic, queues=4)
        with cluster.producer() as producer:
            sent = producer.send_batch(topic, ["one", "two", "three"])
    assert {one.queue_id for one in sent} == {sent[0].queue_id}
    assert [one.queue_offset for one in sent] == [0, 1, 2]


def test_messages_of_one_queue_by_their_tags(address: str, topic: str) -> None:
    """The broker leaves out other hashes; "BB" has the hash of "Aa", so it comes, and is left out here."""
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", topic, queues=1)
        with cluster.producer() as producer:
            for number in range(200):
                producer.send(topic, str(number), tags=("x", "BB", "y", "Aa")[number % 4] if number < 100 else "x")
        found = [one["body"] for one in cluster.scan(topics=topic, tags="Aa || y")]
        assert list(map(int, found)) == [number for number in range(100) if number % 4 > 1]
        assert list(cluster.scan(topics=topic, tags="z")) == []


def test_a_group_consumes_each_message_once(address: str, topic: str) -> None:
    group = f"G{topic}"
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", topic, queues=4)
        with cluster.producer() as producer:
            for number in range(40):
                producer.send(topic, str(number))
        taken = []
        for _ in range(2):
            with consuming(cluster, group, {"commit": True, "start": "first", "members": 2}, topics=topic) as found:
                taken += [event["body"] for event in found if isinstance(event, dict)]
        assert sorted(map(int, taken)) == list(range(40))
        places = cluster.groups()[group]["topics"][topic]
        assert sum(place["committed"] for place in places.values()) == 40


def test_the_command_is_a_member_among_others(
    address: str, topic: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with rmqtool.connect(address) as cluster:
        cluster.produce(topic, "hello")
    words = ["consume", address, "-t", topic, "-g", f"G{topic}", "--from", "first", "--commit"]
    assert main([*words, "--template", "{body}\\n"]) == Exit.DONE
    assert capsysbinary.readouterr().out == b"hello\n"
    for more in (["--pop"], ["-q", "0"], ["--broadcast"]):
        assert main([*words, *more]) == Exit.USAGE
    assert main(["consume", "rocketmq://127.0.0.1:1", "-t", topic, "-g", "G", "--commit"]) == Exit.REMOTE


def test_a_look_without_commit_leaves_the_group_where_it_is(address: str, topic: str) -> None:
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", topic, queues=2)
        with cluster.producer() as producer:
            sent = [producer.send(topic, str(number)).queue_id for number in range(6)]
        for queue, expected in ((None, 6), (1, sent.count(1))):
            with consuming(cluster, "", {}, topics=topic, queue=queue) as found:
                assert len([event for event in found if isinstance(event, dict)]) == expected
        assert "" not in cluster.groups()
