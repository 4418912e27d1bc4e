"""What operators ask of a broker and its name server with mqadmin, frame by frame: settings, states, offsets."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.administration import stats_of_group, topic_stats
from rmqtool.broker.processors.replies import in_steps
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.bodies.broker import ConsumeStats, TopicStatsTable
from rmqtool.remoting.bodies.clients import GetConsumerStatusBody
from rmqtool.remoting.command import ANSWER, RemotingCommand
from rmqtool.remoting.frames import encode_frame
from rmqtool.remoting.requests.topics import GetTopicStatsInfo
from tests.support.engine_stores import small_store
from tests.support.waiting import wait_for_end
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with served() as found:
        yield found


def port(server: Any) -> int:
    return int(server.broker.rpartition(":")[2])


@pytest.fixture
def client(server: Any) -> Iterator[WireClient]:
    with WireClient(server.broker) as found:
        yield found


def test_the_state_says_what_brokers_say(client: WireClient) -> None:
    assert client.ask(310, send_fields("State"), b"x" * 100).code == 0
    table: dict[str, str] = json.loads(client.ask(28).body)["table"]
    assert re.fullmatch(r"\[ 0 days, 0 hours, \d minutes, \d+ seconds \]", table["runtime"])
    puts, size = int(table["putMessageTimesTotal"]), int(table["putMessageSizeTotal"])
    assert puts == int(table["msgPutTotalTodayNow"])
    assert float(table["putMessageAverageSize"]) == size / puts > 100
    assert re.fullmatch(r"Total : \d+\.\d GiB, Free : \d+\.\d GiB\.", table["commitLogDirCapacity"])
    assert 0 <= float(table["consumeQueueDiskRatio"]) <= float(table["commitLogDiskRatio"]) <= 1
    # mqadmin clusterList shows these of 5.x.
    assert {"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "ackThreadPoolQueueSize"} <= table.keys()


def test_groups_are_created_in_a_list(client: WireClient) -> None:
    groups = {"groupConfigList": [{"groupName": "First", "retryMaxTimes": 2}, {"groupName": "Second"}]}
    assert client.ask(225, {}, json.dumps(groups).encode()).code == ResponseCode.SUCCESS
    table = json.loads(client.ask(201).body)["subscriptionGroupTable"]
    assert (table["First"]["retryMaxTimes"], table["Second"]["retryMaxTimes"]) == (2, 16)
    # The one before the bad name is there.
    bad = {"groupConfigList": [{"groupName": "Third"}, {"groupName": "no such name!"}, {"groupName": "Fourth"}]}
    assert client.ask(225, {}, json.dumps(bad).encode()).code == ResponseCode.INVALID_PARAMETER
    table = json.loads(client.ask(201).body)["subscriptionGroupTable"]
    assert "Third" in table
    assert "Fourth" not in table


def test_queues_of_deleted_topics_are_left_to_retention(client: WireClient) -> None:
    assert client.ask(316).code == ResponseCode.SUCCESS


def test_settings_stay_as_they_are(server: Any, client: WireClient) -> None:
    refused = client.ask(25, {}, b"fileReservedTime=1\n")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark is not None
    assert "--conf NAME=VALUE" in refused.remark
    shown = client.ask(26).body
    # The others are those that mqadmin exportConfigs shows.
    for line in (b"fileReservedTime=72", b"brokerId=0", b"slaveReadEnable=false", b"listenPort=%d" % port(server)):
        assert line + b"\n" in shown
    with WireClient(server.names) as names:
        assert names.ask(318, {}, b"orderMessageEnable=true\n").code == ResponseCode.NO_PERMISSION


def test_what_members_no_longer_subscribe_to_is_not_shown(client: WireClient) -> None:
    client.ask(34, {}, heartbeat("c", "Now", {"New": "*"}))
    for topic in ("New", "Old"):
        assert client.ask(310, send_fields(topic), b"x").code == 0
        client.ask(15, {"consumerGroup": "Now", "topic": topic, "queueId": 0, "commitOffset": 1})
    shown = client.ask(208, {"consumerGroup": "Now"}).body
    assert (b'"topic":"New"' in shown, b'"topic":"Old"' in shown) == (True, False)


def test_what_is_pulled_and_not_committed_is_in_flight(client: WireClient) -> None:
    def shown() -> tuple[int, int]:
        stats = ConsumeStats.decode(client.ask(208, {"consumerGroup": "Flying", "topic": "Flight"}).body)
        (queue,) = [one for queue, one in stats.offset_table.items() if queue.queue_id == 0]
        return queue.consumer_offset, queue.pull_offset or 0

    client.ask(34, {}, heartbeat("c", "Flying", {"Flight": "*"}))
    for _ in range(3):
        assert client.ask(310, send_fields("Flight"), b"x").code == 0
    client.ask(15, {"consumerGroup": "Flying", "topic": "Flight", "queueId": 0, "commitOffset": 1})
    client.ask(30, {"topic": "Flight", "queueId": 0})
    assert client.ask(11, pull_fields("Flight", 2) | {"consumerGroup": "Flying"}).code == 0
    # upstream: commitPullOffset takes the next offset of the answer.
    assert shown() == (1, 3)
    total = json.loads(re.sub(rb"\{\{.*?\}\}", b"{}", client.ask(317, {"isOrder": "false"}).body.replace(b"\n", b"")))
    assert total["totalInflightDiff"] == 2
    # A commit is never behind a pull, and a reset forgets what was pulled.
    client.ask(15, {"consumerGroup": "Flying", "topic": "Flight", "queueId": 0, "commitOffset": 3})
    assert shown() == (3, 3)
    reset = {"topic": "Flight", "group": "Flying", "timestamp": 0, "isForce": "true"}
    assert client.ask(222, reset).code == 0
    assert shown()[1] == shown()[0]


def test_rates_are_those_of_the_last_minute() -> None:
    broker = Broker(small_store(), ("127.0.0.1", 10911))
    broker.topics.create("Rates")
    broker.counts.put_calls["Rates"] = broker.counts.puts["Rates"] = 1
    broker.counts.get_calls["Rates", "Rated"], broker.counts.gets["Rates", "Rated"] = 1, 30
    shown: Callable[..., Any] = in_steps
    asked = Asked(RemotingCommand(202, {}), GetTopicStatsInfo(topic="Rates"), None, ("", 0))  # type: ignore[arg-type]
    assert TopicStatsTable.decode(shown(topic_stats(broker, asked)).body).topic_put_tps == 0
    # A first sample counts as if the counter had begun ten seconds before.
    broker.history.sample(broker.store.setup.clock.now(), broker.iter_counts())
    assert shown(stats_of_group(broker, "Rated", ["Rates"])).consume_tps == 3.0
    assert TopicStatsTable.decode(shown(topic_stats(broker, asked)).body).topic_put_tps == pytest.approx(0.1)


def test_members_are_asked_for_their_offsets(server: Any, client: WireClient) -> None:
    fields = {"topic": "Told", "group": "Telling"}
    missing = client.ask(223, fields)
    assert (missing.code, missing.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [Telling]",
    )
    with WireClient(server.broker) as one, WireClient(server.broker) as other:
        for number, member in enumerate((one, other)):
            member.ask(34, {}, heartbeat(f"member-{number}", "Telling", {"Told": "*"}))
        told: list[RemotingCommand] = []
        asking = threading.Thread(target=lambda: told.append(client.ask(223, fields)))
        asking.start()
        for number, member in enumerate((one, other)):
            while (asked := member.receive()).code != 221:
                pass
            assert (asked.ext["topic"], asked.ext["group"]) == ("Told", "Telling")
            place = '{"brokerName":"broker-a","queueId":0,"topic":"Told"}'
            body = f'{{"messageQueueTable":{{{place}:{number + 5}}}}}'.encode()
            # The second one cannot say it.
            code = ResponseCode.SUCCESS if number == 0 else ResponseCode.SYSTEM_ERROR
            member.socket.sendall(encode_frame(RemotingCommand(code, {}, body, asked.opaque, ANSWER)))
        wait_for_end(asking)
    (answer,) = told
    found = GetConsumerStatusBody.decode(answer.body).consumer_table
    assert found is not None
    assert {client_id: list(offsets.values()) for client_id, offsets in found.items()} == {"member-0": [5]}
