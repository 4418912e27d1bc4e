"""What operators' tools ask beside topics and groups, frame by frame, as brokers answered it in recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqtool.broker.rates import History, Span
from rmqtool.formats.response_codes import ResponseCode
from tests.support import wire
from tests.support.wire_client import WireClient, heartbeat, send_fields, served


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with served() as found:
        with WireClient(found.broker) as client:
            for number in range(3):
                assert client.ask(310, send_fields("Asked", "TAGS\x01TagA\x02"), b"%d" % number).code == 0
        yield found


@pytest.fixture
def client(server: Any) -> Iterator[WireClient]:
    with WireClient(server.broker) as found:
        yield found


def recorded(code: int) -> wire.Frame:
    """Return the first answer of a real broker to a request that succeeded."""
    return next(
        frame
        for frame, row in wire.with_rows(wire.decoded_frames())
        if row is not None and row.code == code and not frame.from_client and frame.code == 0 and frame.body
    )


ASKED = {
    321: {"topic": "Asked", "queueId": 0, "index": 0, "count": 2},
    328: {},
    907: {},
    2003: {},
}


@pytest.mark.parametrize("code", ASKED)
def test_an_answer_has_the_members_of_the_recorded_one(client: WireClient, code: int) -> None:
    found = client.ask(code, ASKED[code])
    assert found.code == ResponseCode.SUCCESS
    assert json.loads(found.body).keys() == json.loads(recorded(code).body).keys()


def test_entries_of_a_queue_are_read(client: WireClient) -> None:
    found = json.loads(client.ask(321, ASKED[321]).body)
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    # The recording has the hash of the same tag.
    assert [one["tagsCode"] for one in found["queueData"]] == [2598919, 2598919]
    assert found["queueData"][0].keys() == json.loads(recorded(321).body)["queueData"][0].keys()
    assert found["queueData"][0]["physicOffset"] == 0
    assert client.ask(321, ASKED[321] | {"topic": "AskedNo"}).code == ResponseCode.SYSTEM_ERROR


def test_all_producers_are_listed(client: WireClient) -> None:
    body = json.dumps({"clientID": "p1", "consumerDataSet": [], "producerDataSet": [{"groupName": "Makers"}]})
    client.ask(34, {}, body.encode())
    (maker,) = json.loads(client.ask(328).body)["data"]["Makers"]
    assert maker.keys() == {"clientId", "language", "lastUpdateTimestamp", "remoteIP", "version"}
    assert (maker["clientId"], maker["version"]) == ("p1", 479)


def test_counters_are_sampled_as_brokers_sample_them() -> None:
    history, now = History(), 1_700_000_000_000
    assert history.find("TOPIC_PUT_NUMS", "T") is None
    for second in range(0, 120, 10):
        history.sample(now + 1000 * second, [("TOPIC_PUT_NUMS", "T", second, 3 * second)])
    counter = history.find("TOPIC_PUT_NUMS", "T")
    assert counter is not None
    # Seven samples of ten seconds are a minute: 60 calls of 3 messages.
    assert counter.over(Span.MINUTE) == (180, 3.0, 3.0)
    # The first sample of the hour was one of nothing, and the next comes after ten minutes.
    assert counter.over(Span.HOUR) == (0, 0.0, 0.0)
    history.sample(now + 600_000, [("TOPIC_PUT_NUMS", "T", 600, 1800)])
    assert counter.over(Span.HOUR) == (1800, 1.5, 3.0)


def test_a_counter_that_nothing_was_counted_in_is_not_there(client: WireClient) -> None:
    found = client.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "NoSuch"})
    assert (found.code, found.remark) == (1, "The stats <TOPIC_PUT_NUMS> <NoSuch> not exist")


def test_routes_lose_the_write_bit_and_get_it_back(server: Any) -> None:
    with WireClient(server.names) as names:

        def perm() -> int:
            found: int = json.loads(names.ask(105, {"topic": "Asked"}).body)["queueDatas"][0]["perm"]
            return found

        assert perm() == 6
        wiped = names.ask(205, {"brokerName": "DEFAULT_BROKER"})
        assert int(wiped.ext["wipeTopicCount"]) > 0
        assert perm() == 4
        assert names.ask(205, {"brokerName": "another"}).ext["wipeTopicCount"] == "0"
        assert names.ask(327, {"brokerName": "DEFAULT_BROKER"}).ext == {"addTopicCount": wiped.ext["wipeTopicCount"]}
        assert perm() == 6
        assert b"returnOrderTopicConfigToBroker=true\n" in names.ask(319).body


def test_topics_are_made_by_the_list(client: WireClient) -> None:
    one = {"topicName": "Listed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False}
    one |= {"attributes": {}, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    body = json.dumps({"topicConfigList": [one, one | {"topicName": "Listed2"}]}).encode()
    assert client.ask(18, {}, body).code == 0
    assert json.loads(client.ask(351, {"topic": "Listed2"}).body)["readQueueNums"] == 2
    refused = client.ask(18, {}, json.dumps({"topicConfigList": [one | {"topicName": "TBW102"}]}).encode())
    assert refused.code == ResponseCode.INVALID_PARAMETER


def test_one_group_gets_the_offsets_of_another(client: WireClient) -> None:
    client.ask(34, {}, heartbeat("c", "From", {"Asked": "TagA"}))
    commit = {"consumerGroup": "From", "topic": "Asked", "queueId": 0, "commitOffset": 2}
    assert client.ask(15, commit).code == 0
    assert client.ask(314, {"srcGroup": "From", "destGroup": "Into", "topic": "Asked"}).code == 0
    asked = {"consumerGroup": "Into", "topic": "Asked", "queueId": 0}
    assert client.ask(14, asked).ext["offset"] == "2"
    assert json.loads(client.ask(343, {"group": "Into"}).body)["topicList"] == ["Asked"]
    told = json.loads(client.ask(345, {"group": "From", "topic": "Asked"}).body)
    assert told["subscriptionData"]["subString"] == "TagA"


def commit(client: WireClient, group: str, offset: int) -> None:
    assert client.ask(200, {}, json.dumps({"groupName": group}).encode()).code == 0
    fields = {"consumerGroup": group, "topic": "Asked", "queueId": 0, "commitOffset": offset}
    assert client.ask(15, fields).code == 0


def test_the_times_of_queues_are_told_for_a_group(client: WireClient) -> None:
    fields = {"topic": "Asked", "group": "Timed"}
    first = json.loads(client.ask(303, fields).body)["consumeTimeSpanSet"][0]
    assert first.keys() == {"consumeTimeStamp", "delayTime", "maxTimeStamp", "messageQueue", "minTimeStamp"}
    assert first["consumeTimeStamp"] == first["minTimeStamp"] <= first["maxTimeStamp"]
    commit(client, "Timed", 3)
    last = json.loads(client.ask(303, fields).body)["consumeTimeSpanSet"][0]
    assert (last["consumeTimeStamp"], last["delayTime"]) == (first["maxTimeStamp"], 0)
    assert client.ask(303, fields | {"topic": "AskedNo"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_the_least_offsets_of_groups_are_compared(client: WireClient) -> None:
    for group, offset in (("Low", 1), ("High", 2)):
        commit(client, group, offset)
    fields = {"topic": "Asked", "compareGroup": "High", "filterGroups": "Timed"}
    assert client.ask(308, fields).body == b'{"correctionOffsets":{"0":1}}'
    fields["compareGroup"] = "Low"
    assert client.ask(308, fields).body == b'{"correctionOffsets":{"0":1}}'
    assert (
        client.ask(308, fields | {"filterGroups": "Low,Timed"}).body
        == b'{"correctionOffsets":{"0":9223372036854775807}}'
    )
