"""Popping from a cluster: the command and the consumers of the library, at a server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.client.popped_messages import _popped_of
from rmqtool.errors import Exit, RemoteError, UsageError
from rmqtool.remoting.command import RemotingCommand
from tests.support.builders import record
from tests.support.scripted_cluster import RecordingPeer, in_thread
from tests.support.scripted_peer import reply
from tests.support.waiting import PATIENCE


@pytest.fixture
def topic(address: str) -> str:
    name = f"T{uuid4().hex}"
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", name, queues=4)
        for number in range(12):
            cluster.produce(name, str(number), queue=number % 4, tags="odd" if number % 2 else "even")
    return name


Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def act(*words: str) -> tuple[int, list[str], str]:
        status = main(["consume", *words])
        out, err = capsys.readouterr()
        return status, out.splitlines(), err

    return act


def test_the_command_pops_each_message_once(address: str, topic: str, run: Run) -> None:
    words = [address, "-t", topic, "-g", f"G{topic}", "--pop", "--template", r"{body}\n"]
    assert run(*words, "-n", "5")[0] == Exit.DONE
    status, out, _ = run(*words)
    assert (status, len(out)) == (Exit.DONE, 7)
    assert run(*words)[1] == []
    with rmqtool.connect(address) as cluster:
        place = cluster.groups()[f"G{topic}"]["topics"][topic]
    assert sum(queue["committed"] for queue in place.values()) == 12


def test_a_queue_and_a_tag_narrow_it(address: str, topic: str, run: Run) -> None:
    words = [address, "-t", topic, "-g", f"G{topic}", "--pop", "--template", r"{body}\n"]
    assert sorted(run(*words, "-q", "3")[1], key=int) == ["3", "7", "11"]
    assert sorted(run(*words, "--tag", "even")[1], key=int) == ["0", "2", "4", "6", "8", "10"]


def test_what_a_program_refuses_comes_back(address: str, topic: str, run: Run) -> None:
    words = [address, "-t", topic, "-g", f"G{topic}", "--pop", "--invisible", "1s"]
    status, _, err = run(*words, "-n", "1", "--exec", "false")
    assert status == Exit.NO
    assert "the message will be delivered again" in err
    found: list[str] = []
    with rmqtool.connect(address) as cluster:
        for message in cluster.consume(topic, f"G{topic}", pop=True, start="first", limit=12, timeout=PATIENCE):
            found.append(str(message["body"]))
    assert sorted(found, key=int) == [str(number) for number in range(12)]


def test_others_options_are_refused(address: str, topic: str, run: Run) -> None:
    words = [address, "-t", topic, "-g", f"G{topic}", "--pop"]
    for more in (["--members", "2"], ["--orderly"], ["--commit"], ["--broadcast"], ["--from", "first"]):
        assert run(*words, *more)[0] == Exit.USAGE
    assert run(address, "-g", "G", "--pop")[2].startswith("rmqtool: missing topic for --pop")


def test_a_consumer_gives_back_what_it_did_not_begin(address: str, topic: str) -> None:
    with rmqtool.connect(address) as cluster:
        first = [one["body"] for one in cluster.consume(topic, "G1", pop=True, start="first", limit=2)]
        rest = [
            one["body"] for one in cluster.consume(topic, "G1", pop=True, start="first", limit=10, timeout=PATIENCE)
        ]
    assert sorted(map(int, filter(None, first + rest))) == list(range(12))


def test_handlers_may_take_their_time_and_a_failed_message_is_a_dead_letter_at_last(address: str, topic: str) -> None:
    with rmqtool.connect(address) as cluster:
        cluster.group("create", f"D{topic}", {"retryMaxTimes": 0})
        seen: list[Any] = []
        with cluster.consumer(topic, f"D{topic}", pop=True, start="earliest") as consumer:

            def handle(message: Any) -> bool:
                seen.append(message["body"])
                if len(seen) == 12:
                    consumer.stop()
                return message["body"] != "7"

            consumer.run(handle, concurrency=3)
        assert sorted(map(int, seen)) == list(range(12))
        assert [one["body"] for one in cluster.scan(topics=f"%DLQ%D{topic}")] == ["7"]


def test_it_works_on_a_loop(address: str, topic: str) -> None:
    async def body() -> list[str | None]:
        async with rmqtool.connect_async(address) as service:
            found = service.consume(topic, "Loop", pop=True, invisible=30, start="first", limit=12, timeout=PATIENCE)
            return [message["body"] async for message in found]

    assert len(set(asyncio.run(body()))) == 12


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pop": True, "orderly": True}, "takes no orderly"),
        ({"pop": True, "broadcast": True}, "takes no broadcast"),
        ({"pop": True, "start": "2026-01-01"}, "cannot begin at 2026-01-01"),
        ({"pop": True, "invisible": 0}, "a time in seconds, not 0"),
        ({"invisible": 5}, "for a consumer that pops"),
    ],
)
def test_settings_that_say_nothing_are_refused(address: str, settings: Any, said: str) -> None:
    with rmqtool.connect(address) as cluster, pytest.raises(UsageError, match=said):
        cluster.consumer("T", "G", **settings)


def test_receipts_are_those_of_the_answer() -> None:
    """By the answer of a real broker: its offsets are by kind of topic and queue."""
    body = record(topic=b"T", queue_id=1, queue_offset=7) + record(topic=b"T", queue_id=3, queue_offset=2)
    ext = {"popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "4", "restNum": "0"}
    ext |= {"startOffsetInfo": "0 1 6;0 3 2", "msgOffsetInfo": "0 1 7;0 3 2"}
    found = _popped_of(RemotingCommand(code=0, ext_fields=ext, body=body), "broker-a")
    receipts = [" ".join(map(str, one.receipt)) for one in found]
    assert receipts == ["6 1700000000000 60000 4 0 broker-a 1 7", "2 1700000000000 60000 4 0 broker-a 3 2"]


def test_a_clock_that_is_behind_is_said(run: Run) -> None:
    peer = RecordingPeer("T")
    peer.plays[200050] = lambda one: reply(one, 210, remark="the broker[127.0.0.1] pop message is timeout too much")
    with in_thread(peer):
        status, _, err = run(f"rocketmq://{peer.address}", "-t", "T", "-g", "G", "--pop")
    assert status == Exit.REMOTE
    assert "the clock of this machine is late" in err


def popping_peer(*answers: bytes, left: str = "0") -> RecordingPeer:
    """Return a broker that answers pops with these bodies, and then with nothing."""
    bodies = list(answers)
    times = {"popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "4"}
    peer = RecordingPeer("T")

    def pop(one: RemotingCommand) -> RemotingCommand:
        if not bodies:
            return reply(one, 210, times | {"restNum": "0"})
        body = bodies.pop(0)
        ext = times | {"restNum": left, "startOffsetInfo": "0 0 0"}
        return reply(one, 0 if body else 210, ext, body)

    peer.plays |= {200050: pop, 200051: reply}
    return peer


def test_a_round_without_messages_is_not_the_end_while_messages_are_left(run: Run) -> None:
    """Another client pops just now, or a tag passed over many: the broker says how many are left."""
    peer = popping_peer(record(b"one", b"T"), b"", b"", record(b"two", b"T", queue_offset=1), left="9")
    with in_thread(peer):
        words = [f"rocketmq://{peer.address}", "-t", "T", "-g", "G", "--pop", "--template", r"{body}\n"]
        assert run(*words)[:2] == (Exit.DONE, ["one", "two"])
    assert len(peer.asked(200051)) == 2


def test_messages_that_others_have_do_not_keep_the_command(run: Run) -> None:
    peer = popping_peer(*[b""] * 1000, left="9")
    with in_thread(peer):
        assert run(f"rocketmq://{peer.address}", "-t", "T", "-g", "G", "--pop")[0] == Exit.DONE
    assert len(peer.asked(200050)) == 11


def test_an_ack_that_fails_leaves_the_others_their_acks(run: Run) -> None:
    peer = popping_peer(b"".join(record(b"%d" % number, b"T", queue_offset=number) for number in range(3)))
    peer.plays[200051] = lambda one: reply(one, 1 if one.ext["offset"] == "1" else 0, remark="the disk is full")
    with in_thread(peer):
        words = [f"rocketmq://{peer.address}", "-t", "T", "-g", "G", "--pop", "--template", r"{body}\n"]
        status, out, err = run(*words)
    assert (status, out) == (Exit.NO, ["0", "1", "2"])
    assert [one.ext["offset"] for one in peer.asked(200051)] == ["0", "1", "2"]
    assert "T/0@1: " in err
    assert "the disk is full" in err
    assert "the message will be delivered again" in err


def test_an_answer_that_is_not_records_is_an_error() -> None:
    ext = {"popTime": "1", "invisibleTime": "60000", "reviveQid": "4", "restNum": "0"}
    with pytest.raises(RemoteError, match="bytes that are not records"):
        _popped_of(RemotingCommand(code=0, ext_fields=ext, body=b"x" * 200), "broker-a")
