"""What clients rely on beside messages: that the silent ones are forgotten, short heartbeats, traces, subscriptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rmqtool
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from tests.support.manual_clock import SetForward
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served

LIMIT = 1_000_000


def members(client: WireClient, group: str) -> list[str]:
    return sorted(json.loads(client.ask(38, {"consumerGroup": group}).body)["consumerIdList"])


def received_until_closed(client: WireClient) -> None:
    while client.receive():
        continue


def test_who_is_silent_for_too_long_is_forgotten_and_a_short_heartbeat_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rmqtool.broker.client_registry.EXPIRY", 2 * LIMIT)
    monkeypatch.setattr("rmqtool.server.lifecycle._EXPIRY", 0.1)
    clock = SetForward(monkeypatch)
    with served() as server, WireClient(server.broker) as silent, WireClient(server.broker) as client:
        silent.ask(34, {}, heartbeat("silent", "Expiry", {"Expiry": "TagA"}))
        client.ask(34, {}, heartbeat("short", "Expiry", {"Expiry": "TagA"}))
        assert members(client, "Expiry") == ["short", "silent"]
        short = json.loads(heartbeat("short", "Expiry", {}))
        for consumer in short["consumerDataSet"]:
            consumer["subscriptionDataSet"] = []
        short |= {"withoutSub": True, "heartbeatFingerprint": 7}
        clock.advance(LIMIT)
        answer = client.ask(34, {}, json.dumps(short).encode())
        assert answer.ext["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        clock.advance(LIMIT)
        wait_for(lambda: "silent" not in members(client, "Expiry"))
        # The one that only sent short ones is there, with the subscription of its first.
        assert members(client, "Expiry") == ["short"]
        group = json.loads(client.ask(203, {"consumerGroup": "Expiry"}).body)
        assert group["subscriptionTable"]["Expiry"]["subString"] == "TagA"
        # Its connection is closed after what it was told.
        with pytest.raises(ConnectionError):
            received_until_closed(silent)


def test_traces_are_stored_as_messages() -> None:
    with served() as server, WireClient(server.broker) as client:
        assert client.ask(310, send_fields("RMQ_SYS_TRACE_TOPIC"), b"Pub\x01trace").code == ResponseCode.SUCCESS
        client.ask(30, {"topic": "RMQ_SYS_TRACE_TOPIC", "queueId": 0})
        assert b"Pub\x01trace" in client.ask(11, pull_fields("RMQ_SYS_TRACE_TOPIC")).body


def test_a_subscription_that_is_older_than_the_pull_is_no_reason_to_refuse_it() -> None:
    """upstream answers 25 until the next heartbeat, at each start of a group; here tags of the heartbeat are used."""
    with served() as server, WireClient(server.broker) as client:
        client.ask(310, send_fields("Newer", "TAGS\x01A\x02"), b"a")
        client.ask(310, send_fields("Newer", "TAGS\x01B\x02"), b"b")
        client.ask(34, {}, heartbeat("c", "Newer", {"Newer": "B"}))
        client.ask(30, {"topic": "Newer", "queueId": 0})
        pulled = client.ask(11, pull_fields("Newer", group="Newer") | {"sysFlag": 0, "subVersion": 1 << 50})
        assert pulled.code == ResponseCode.SUCCESS
        record = decode_record(pulled.body)
        assert isinstance(record, Message)
        assert record.raw_body == b"b"


@pytest.mark.parametrize(("version", "stored"), [("4.9", 1), ("5.3", 0)])
def test_a_consumer_that_gets_another_offset_is_told_of_in_a_message(tmp_path: Path, version: str, stored: int) -> None:
    rmqtool.init(tmp_path / "store", version=version, conf={"mappedFileSizeCommitLog": str(1 << 20)})
    with rmqtool.serve(tmp_path / "store") as server, WireClient(server.broker) as client:
        client.ask(310, send_fields("Moved"), b"x")
        client.ask(30, {"topic": "Moved", "queueId": 0})
        answer = client.ask(11, pull_fields("Moved", 5))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
        event = {"topic": "OFFSET_MOVED_EVENT", "queueId": 0}
        wait_for(lambda: int(client.ask(30, event).ext["offset"]) >= stored)
        assert int(client.ask(30, event).ext["offset"]) == stored
        if stored:
            record = decode_record(client.ask(11, pull_fields("OFFSET_MOVED_EVENT")).body)
            assert isinstance(record, Message)
            assert (record.properties["TAGS"], record.properties["KEYS"]) == ("G", "G")
            queue = {"brokerName": "DEFAULT_BROKER", "queueId": 0, "topic": "Moved"}
            told = {"consumerGroup": "G", "messageQueue": queue, "offsetNew": 1, "offsetRequest": 5}
            assert json.loads(record.raw_body) == told
