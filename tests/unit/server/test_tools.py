"""What tools ask of a broker, frame by frame: its state, the progress of all groups, one member of a group."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.broker.rates import Rates, Sample
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.bodies.broker import ConsumeStatsList
from rmqtool.remoting.command import ANSWER, Language, RemotingCommand
from rmqtool.remoting.frames import encode_frame
from tests.support.waiting import wait_for_end
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with served() as found:
        yield found


@pytest.fixture
def client(server: Any) -> Iterator[WireClient]:
    with WireClient(server.broker) as found:
        yield found


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    rmqtool.init(tmp_path / "store", conf={"mappedFileSizeCommitLog": "1048576"})
    with (tmp_path / "store" / "broker.conf").open("a") as settings:
        settings.write("accessKey=open\nsecretKey=sesame\n")
    with rmqtool.serve(tmp_path / "store") as server, WireClient(server.broker) as client:
        answer = client.ask(26)
    assert answer.code == ResponseCode.SUCCESS
    assert json.loads(answer.ext["version"]).keys() == {"counter", "stateVersion", "timestamp"}
    lines = answer.body.decode().splitlines()
    assert "mappedFileSizeCommitLog=1048576" in lines
    (secret,) = [line for line in lines if line.startswith("secretKey=")]
    assert "sesame" not in secret


def test_the_state_counts_what_came_and_went(client: WireClient) -> None:
    def state() -> dict[str, str]:
        table: dict[str, str] = json.loads(client.ask(28).body)["table"]
        return table

    before = state()
    client.ask(34, {}, heartbeat("c", "Counting", {"State": "*"}))
    for number in range(3):
        assert client.ask(310, send_fields("State"), b"%d" % number).code == 0
    client.ask(30, {"topic": "State", "queueId": 0})
    assert client.ask(11, pull_fields("State") | {"consumerGroup": "Counting"}).code == 0
    after = state()
    assert int(after["msgPutTotalTodayNow"]) - int(before["msgPutTotalTodayNow"]) == 3
    assert int(after["msgGetTotalTodayNow"]) - int(before["msgGetTotalTodayNow"]) == 3
    assert int(after["commitLogMaxOffset"]) > int(before["commitLogMaxOffset"])
    assert (after["brokerActive"], after["putMessageFailedTimes"]) == ("true", "0")
    for name in ("putTps", "getTransferedTps", "getTransferredTps"):
        assert len([float(text) for text in after[name].split()]) == 3
    # mqadmin clusterList and brokerStatus read these.
    assert {"brokerVersionDesc", "sendThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills"} <= after.keys()
    assert {"earliestMessageTimeStamp", "commitLogDiskRatio", "pageCacheLockTimeMills"} <= after.keys()


def test_rates_are_those_of_the_last_seconds_and_days_begin_at_midnight() -> None:
    day = 86_400_000
    rates = Rates(UTC)
    rates.add(Sample(day - 20_000, 0, 0))
    rates.add(Sample(day - 10_000, 100, 10))
    assert rates.since(Sample(day - 5_000, 200, 60), 10) == (20.0, 10.0)
    assert rates.since(Sample(day - 5_000, 200, 60), 600) == (200 / 15, 4.0)
    assert rates.today_morning == Sample(0, 0, 0)
    rates.add(midnight := Sample(day, 300, 70))
    assert rates.today_morning == midnight
    rates.add(Sample(2 * day, 900, 90))
    assert (rates.yesterday_morning.puts, rates.today_morning.puts) == (300, 900)
    assert Rates(UTC).since(Sample(day, 1, 1), 10) == (0.0, 0.0)


def test_a_counter_over_time_is_not_kept(client: WireClient) -> None:
    answer = client.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "State"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The stats <TOPIC_PUT_NUMS> <State> not exist"


def test_the_progress_of_all_groups(client: WireClient) -> None:
    client.ask(34, {}, heartbeat("c", "Progress", {"Progressing": "*"}))
    for _ in range(3):
        client.ask(310, send_fields("Progressing"), b"x")
    client.ask(15, {"consumerGroup": "Progress", "topic": "Progressing", "queueId": 0, "commitOffset": 1})
    found = ConsumeStatsList.decode(client.ask(317, {"isOrder": "false"}).body)
    (stats,) = [one["Progress"] for one in found.consume_stats_list if "Progress" in one]
    (queue,) = [value for one in stats for key, value in one.offset_table.items() if key.queue_id == 0]
    assert (queue.broker_offset, queue.consumer_offset) == (3, 1)
    assert found.total_diff is not None
    assert found.total_diff >= 2
    ordered = ConsumeStatsList.decode(client.ask(317, {"isOrder": "true"}).body)
    assert {"Progress": []} in ordered.consume_stats_list
    # upstream: fetchAllConsumeStatsInBroker leaves out topics only if it is asked for ordered ones.
    order = {"topic": "Progressing", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": "true"}
    assert (
        client.ask(17, {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, **order}).code
        == 0
    )
    for is_order in ("true", "false"):
        found = ConsumeStatsList.decode(client.ask(317, {"isOrder": is_order}).body)
        (stats,) = [one["Progress"] for one in found.consume_stats_list if "Progress" in one]
        assert len(stats) == 1, is_order


def test_a_topic_is_deleted_with_its_progress(server: Any, client: WireClient) -> None:
    client.ask(34, {}, heartbeat("c", "Deleting", {"Deleted": "*"}))
    client.ask(310, send_fields("Deleted"), b"x")
    offset = {"consumerGroup": "Deleting", "topic": "Deleted", "queueId": 0}
    client.ask(15, offset | {"commitOffset": 1})
    assert client.ask(215, {"topic": "Deleted"}).code == ResponseCode.SUCCESS
    assert client.ask(351, {"topic": "Deleted"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(300, {"topic": "Deleted"}).body.count(b"Deleting") <= 1
    with WireClient(server.names) as names:
        assert names.ask(105, {"topic": "Deleted"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(215, {"topic": "Deleted"}).code == ResponseCode.SUCCESS
    assert client.ask(215, {"topic": "SCHEDULE_TOPIC_XXXX"}).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("code", [307, 309])
def test_a_member_of_a_group_is_asked(server: Any, client: WireClient, code: int) -> None:
    sent = client.ask(310, send_fields("Direct"), b"look at me")
    client.ask(30, {"topic": "Direct", "queueId": 0})
    fields = {"consumerGroup": "Asked", "clientId": "member", "msgId": sent.ext["msgId"], "brokerName": "b"}
    missing = client.ask(code, fields)
    assert (missing.code, missing.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <Asked> <member> not online")
    with WireClient(server.broker) as member:
        member.ask(34, {}, heartbeat("member", "Asked", {"Direct": "*"}))
        told: list[RemotingCommand] = []
        asking = threading.Thread(target=lambda: told.append(client.ask(code, fields)))
        asking.start()
        while (asked := member.receive()).code != code:
            pass
        assert asked.ext["clientId"] == "member"
        if code == 309:
            record = decode_record(asked.body)
            assert isinstance(record, Message)
            assert record.raw_body == b"look at me"
        member.socket.sendall(encode_frame(RemotingCommand(0, {}, b'{"said":"fine"}', asked.opaque, ANSWER)))
        wait_for_end(asking)
        assert [(one.code, one.body) for one in told] == [(0, b'{"said":"fine"}')]


def test_a_message_that_is_not_there_is_consumed_by_nobody(client: WireClient) -> None:
    client.ask(34, {}, heartbeat("here", "Absent", {"Direct": "*"}))
    answer = client.ask(309, {"consumerGroup": "Absent", "clientId": "here", "msgId": "no id", "brokerName": "b"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "no message has the id no id"


def test_with_4_9_the_members_of_a_group_are_told_to_reset_their_offsets() -> None:
    """Those in C++ get the offsets as a list; the answer is the same for all."""
    asked = {"topic": "Told", "group": "Told", "timestamp": -1, "isForce": True}
    queue = {"topic": "Told", "queueId": 0, "consumerGroup": "Told"}
    with served(version="4.9") as server, WireClient(server.broker) as client, WireClient(server.broker) as member:
        missing = client.ask(222, asked)
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert missing.remark == "[reset-offset] reset offset failed, no topic in this broker. topic=Told"
        for _ in range(3):
            client.ask(310, send_fields("Told", d=1), b"x")
        unknown = client.ask(222, asked)
        assert (unknown.code, unknown.remark) == (ResponseCode.SYSTEM_ERROR, "THe consumer group <Told> not exist")
        client.ask(15, queue | {"commitOffset": 1})
        offline = client.ask(222, asked)
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        reason = "Consumer not online, so can not reset offset, Group: Told Topic: Told Timestamp: -1"
        assert offline.remark == reason
        member.ask(34, {}, heartbeat("member", "Told", {"Told": "*"}))
        with WireClient(server.broker) as other:
            greeting = RemotingCommand(34, {}, heartbeat("other", "Told", {"Told": "*"}), 1, language=Language.CPP)
            other.socket.sendall(encode_frame(greeting))
            assert other.answer_to(1).code == 0
            done = client.ask(222, asked)
            assert done.code == 0
            assert done.body == b'{"offsetTable":{{"brokerName":"DEFAULT_BROKER","queueId":0,"topic":"Told"}:3}}'
            told = [next(iter(request_of(one, 220))) for one in (member, other)]
        assert [one.ext for one in told] == [
            {"topic": "Told", "group": "Told", "timestamp": "-1", "isForce": "true"},
        ] * 2
        assert all(one.is_oneway for one in told)
        assert told[0].body == done.body
        listed = b'{"offsetTable":[{"brokerName":"DEFAULT_BROKER","offset":3,"queueId":0,"topic":"Told"}]}'
        assert told[1].body == listed
        # The broker itself changes nothing, and takes the commits of members as before.
        assert client.ask(14, queue).ext["offset"] == "1"
        assert client.ask(15, queue | {"commitOffset": 3}).remark is None
        assert client.ask(14, queue).ext["offset"] == "3"
        back = client.ask(222, asked | {"timestamp": 0, "isForce": False})
        assert back.body.endswith(b":0}}")


def request_of(client: WireClient, code: int) -> Iterator[RemotingCommand]:
    """Yield the requests with a code that the server sends to a client."""
    while True:
        found = client.next_request()
        if found.code == code:
            yield found
