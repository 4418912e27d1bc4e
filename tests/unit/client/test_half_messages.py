"""Transactions: a half message, its end, and the answers to brokers that ask for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import rmqtool
from rmqtool.api.shapes import Message
from rmqtool.client.producer import SendResult
from rmqtool.remoting.bodies.clients import HeartbeatData
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.messages import CheckTransactionState, EndTransaction
from tests.support.builders import record
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_peer import SEND, ScriptedPeer, reply, routes_to, stored_at
from tests.support.waiting import wait_for

END, CHECK, HEARTBEAT, LEAVE = 37, 39, 34, 35
CLUSTER = (
    '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"%s"},"brokerName":"broker-a","cluster":"C"}},'
    '"clusterAddrTable":{"C":["broker-a"]}}'
)


@pytest.fixture
def broker() -> Iterator[ScriptedPeer]:
    peer = ScriptedPeer({SEND: stored_at(5, 0x77), END: lambda one: None if one.is_oneway else reply(one)})
    peer.plays |= {HEARTBEAT: reply, LEAVE: reply}
    with in_thread(peer):
        peer.plays[105] = routes_to({"broker-a": {0: peer.address}})
        peer.plays[106] = lambda one: reply(one, body=(CLUSTER % peer.address).encode())
        yield peer


def ends(broker: ScriptedPeer) -> list[EndTransaction]:
    return [EndTransaction.decode(one.ext) for one in broker.asked(END)]


def wait_for_ends(broker: ScriptedPeer, count: int) -> None:
    wait_for(lambda: len(broker.asked(END)) >= count)


@pytest.mark.parametrize(("said", "number"), [("commit", 8), ("rollback", 12)])
def test_a_transaction_ends_as_its_work_says(broker: ScriptedPeer, said: str, number: int) -> None:
    seen: list[SendResult] = []
    with rmqtool.connect(f"rocketmq://{broker.address}") as cluster, cluster.producer(group="P") as producer:

        def work(result: SendResult) -> str:
            seen.append(result)
            assert broker.asked(END) == [], "the work is done before the end"
            return said

        result = producer.send_in_transaction("T", "x", work, keys="k")
    (half,) = broker.asked(SEND)
    assert half.ext["f"] == "4"
    assert "TRAN_MSG\x01true" in half.ext["i"]
    assert "PGROUP\x01P" in half.ext["i"]
    (end,) = ends(broker)
    assert seen == [result]
    assert (end.commit_or_rollback, end.tran_state_table_offset, end.commit_log_offset) == (number, 5, 0x77)
    assert (end.producer_group, end.msg_id, end.from_transaction_check) == ("P", result.msg_id, False)


def test_a_transaction_whose_work_fails_stays_open(broker: ScriptedPeer) -> None:
    def fails(_: SendResult) -> str:
        raise LookupError("the database is away")

    with rmqtool.connect(f"rocketmq://{broker.address}") as cluster, cluster.producer(group="P") as producer:
        with pytest.raises(LookupError):
            producer.send_in_transaction("T", "x", fails)
        producer.send_in_transaction("T", "x", lambda _: "unknown")
        with pytest.raises(rmqtool.RmqtoolError, match="does not end with 'yes'"):
            producer.send_in_transaction("T", "x", lambda _: "yes")
    assert broker.asked(END) == []


def test_the_end_that_a_broker_refuses_is_an_error(broker: ScriptedPeer) -> None:
    broker.plays[END] = lambda one: reply(one, 1, remark="The producer group wrong")
    with (
        rmqtool.connect(f"rocketmq://{broker.address}") as cluster,
        cluster.producer(group="P") as producer,
        pytest.raises(rmqtool.RmqtoolError, match="The producer group wrong"),
    ):
        producer.send_in_transaction("T", "x", lambda _: "commit")


def asked(at: int, group: str = "P", body: bytes = b"pending") -> RemotingCommand:
    """Return the check of a broker, with the half message as it stores it."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01K{at}\x02".encode()
    header = CheckTransactionState(
        tran_state_table_offset=at, commit_log_offset=100 + at, msg_id=f"K{at}", transaction_id="X"
    )
    data = record(body, b"T", properties, queue_offset=at, physical_offset=100 + at)
    return RemotingCommand(CHECK, header.encode(), data, opaque=at, flag=2)


def test_a_broker_that_asks_is_told(broker: ScriptedPeer) -> None:
    answers = {"pending": "commit", "other": "rollback"}
    threads = set()

    def check(message: Message) -> str:
        threads.add(threading.current_thread().name)
        assert message["topic"] == "T"
        return answers[message["body"] or ""]

    with rmqtool.connect(f"rocketmq://{broker.address}") as cluster:
        cluster.producer(group="P", check=check)
        data = HeartbeatData.decode(broker.asked(HEARTBEAT)[0].body)
        assert [one.group_name for one in data.producer_data_set or ()] == ["P"]
        for request in (asked(1), asked(2, body=b"other"), asked(3, group="Q"), asked(4, body=b"no answer")):
            broker.ask_soon(request)
        wait_for_ends(broker, 2)
        time.sleep(0.1)
    found = {one.tran_state_table_offset: one for one in ends(broker)}
    assert {at: one.commit_or_rollback for at, one in found.items()} == {1: 8, 2: 12}, "the others stay open"
    assert (found[1].commit_log_offset, found[1].msg_id, found[1].transaction_id) == (101, "K1", "X")
    assert found[1].from_transaction_check
    assert all(one.is_oneway for one in broker.asked(END))
    assert "rmqtool-client" not in threads, "a slow check does not hold the connections up"
    assert [one.ext["producerGroup"] for one in broker.asked(LEAVE)] == ["P"]


def test_a_broker_that_comes_back_is_told_the_groups_again(broker: ScriptedPeer) -> None:
    with rmqtool.connect(f"rocketmq://{broker.address}") as cluster:
        producer = cluster.producer(group="P", check=lambda _: "unknown")
        before = len(broker.asked(HEARTBEAT))
        broker.hang_up_soon()
        # A message that is sent before the client knows would have an unknown fate.
        wait_for(lambda: cluster.connections.connection_now(broker.address) is None)
        producer.send("T", b"x")
        wait_for(lambda: len(broker.asked(HEARTBEAT)) > before)
