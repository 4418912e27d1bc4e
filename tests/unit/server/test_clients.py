"""What unmodified clients ask, frame by frame, against a server in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import SerializeType
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with served() as found:
        yield found


@pytest.fixture
def client(server: Any) -> Iterator[WireClient]:
    with WireClient(server.broker) as found:
        yield found


def records_of(body: bytes) -> list[Message]:
    found, at = [], 0
    while at < len(body):
        record = decode_record(body, at)
        assert isinstance(record, Message)
        found.append(record)
        at += record.total_size
    return found


def test_a_route_is_that_of_the_one_broker(server: Any, client: WireClient) -> None:
    with WireClient(server.names) as names:
        missing = names.ask(105, {"topic": "RouteNo"})
        assert missing.code == ResponseCode.TOPIC_NOT_EXIST
        assert missing.remark == (
            "No topic route info in name server for the topic: RouteNo\n"
            "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        )
        template = json.loads(names.ask(105, {"topic": "TBW102"}).body)
        assert template["queueDatas"][0] == {
            "brokerName": "DEFAULT_BROKER",
            "perm": 7,
            "readQueueNums": 8,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        client.ask(310, send_fields("RouteYes"), b"x")
        found = names.ask(105, {"topic": "RouteYes"})
        # The Go client cuts routes by string operations: no blanks.
        assert found.body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"' + server.broker.encode() + b'"},"brokerName":"DEFAULT_BROKER",'
            b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
            b'"DEFAULT_BROKER","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )


def test_a_sent_message_is_pulled_as_it_was_sent(client: WireClient) -> None:
    key = "7F00000166624E0E2F2A5E87E0970000"
    sent = client.ask(310, send_fields("SendPull", f"TAGS\x01A\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02"), b"hello")
    assert sent.code == ResponseCode.SUCCESS
    assert sent.remark is None
    assert sent.ext.keys() == {"queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "queueOffset"}
    assert (sent.ext["transactionId"], sent.ext["queueOffset"], sent.ext["queueId"]) == (key, "0", "0")
    client.ask(30, {"topic": "SendPull", "queueId": 0})
    pulled = client.ask(11, pull_fields("SendPull"))
    assert pulled.code == ResponseCode.SUCCESS
    assert pulled.remark == "FOUND"
    assert dict(pulled.ext) == {
        "suggestWhichBrokerId": "0",
        "groupSysFlag": "0",
        "nextBeginOffset": "1",
        "maxOffset": "1",
        "minOffset": "0",
        "topicSysFlag": "0",
    }
    (record,) = records_of(pulled.body)
    assert (record.raw_body, record.tags, record.uniq_key) == (b"hello", "A", key)
    assert record.properties["CLUSTER"] == "DefaultCluster"
    viewed = client.ask(33, {"offset": record.physical_offset})
    assert viewed.body == pulled.body
    by_key = client.ask(12, _query("SendPull", key) | {"_UNIQUE_KEY_QUERY": True})
    assert by_key.body == pulled.body
    assert client.ask(12, _query("SendPull", "other")).code == ResponseCode.QUERY_NOT_FOUND


def _query(topic: str, key: str) -> dict[str, Any]:
    return {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("kind", list(SerializeType))
def test_both_forms_of_a_send_in_both_headers(server: Any, code: int, kind: SerializeType) -> None:
    long = {"producerGroup": "PG", "topic": "BothForms", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
    long |= {"queueId": 1, "sysFlag": 0, "bornTimestamp": 1, "flag": 7, "properties": "", "batch": False}
    with WireClient(server.broker, kind=kind) as client:
        sent = client.ask(code, long if code == 10 else send_fields("BothForms", e=1, h=7), b"body")
        assert (sent.code, sent.serialize_type, sent.ext["queueId"]) == (0, kind, "1")
        pulled = client.ask(11, pull_fields("BothForms", int(sent.ext["queueOffset"]), wait=60_000, queueId=1))
        assert records_of(pulled.body)[0].flag == 7


def test_a_send_that_is_oneway_gets_no_answer(client: WireClient) -> None:
    client.oneway(310, send_fields("Oneway"), b"x")
    # The next answer is that of the next request.
    assert client.ask(30, {"topic": "Oneway", "queueId": 0}).ext["offset"] == "1"


def test_a_batch_has_a_message_for_each_item(client: WireClient) -> None:
    items = b"".join(_item(body, f"UNIQ_KEY\x01{body.decode()}\x02") for body in (b"one", b"two"))
    sent = client.ask(320, send_fields("Batch", "UNIQ_KEY\x01batch\x02WAIT\x01true\x02", m=True), items)
    assert sent.code == 0
    assert len(sent.ext["msgId"].split(",")) == 2
    client.ask(30, {"topic": "Batch", "queueId": 0})
    records = records_of(client.ask(11, pull_fields("Batch")).body)
    assert [(one.raw_body, one.uniq_key) for one in records] == [(b"one", "one"), (b"two", "two")]


def _item(body: bytes, properties: str) -> bytes:
    text = properties.encode()
    parts = [bytes(8), bytes(4), len(body).to_bytes(4, "big"), body, len(text).to_bytes(2, "big"), text]
    return (sum(map(len, parts)) + 4).to_bytes(4, "big") + b"".join(parts)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "Sending message to topic[SCHEDULE_TOPIC_XXXX]"),
        ({"b": "no/topic"}, ResponseCode.INVALID_PARAMETER, "The specified topic contains illegal characters"),
        ({"b": "NoModel", "c": "Other"}, ResponseCode.TOPIC_NOT_EXIST, "topic[NoModel] not exist, apply first please!"),
        (
            {"b": "TBW102", "e": 8},
            ResponseCode.INVALID_PARAMETER,
            "request queueId[8] is illegal, TopicConfig [",
        ),
    ],
)
def test_sends_that_are_refused(client: WireClient, fields: dict[str, Any], code: int, remark: str) -> None:
    refused = client.ask(310, send_fields() | fields, b"x")
    assert refused.code == code
    assert refused.remark is not None
    assert refused.remark.startswith(remark)


def test_a_message_that_is_too_large_is_illegal(client: WireClient) -> None:
    refused = client.ask(310, send_fields("TooLarge"), bytes((4 << 20) + 1))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.remark is not None
    assert "msg body length limit 4194304B" in refused.remark


def test_a_pull_waits_for_a_message(server: Any, client: WireClient) -> None:
    client.ask(310, send_fields("Waits"), b"first")
    assert client.ask(30, {"topic": "Waits", "queueId": 0}).ext["offset"] == "1"
    waiting = client.send(11, pull_fields("Waits", 1, wait=60_000))
    with WireClient(server.broker) as other:
        other.ask(310, send_fields("Waits"), b"second")
    pulled = client.answer_to(waiting)
    assert pulled.code == 0
    assert [one.raw_body for one in records_of(pulled.body)] == [b"second"]


def test_a_pull_that_waits_in_vain_is_told_so(client: WireClient) -> None:
    client.ask(310, send_fields("InVain"), b"first")
    assert client.ask(30, {"topic": "InVain", "queueId": 0}).ext["offset"] == "1"
    pulled = client.ask(11, pull_fields("InVain", 1, wait=10))
    assert (pulled.code, pulled.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
    assert (pulled.ext["nextBeginOffset"], pulled.ext["maxOffset"]) == ("1", "1")


def test_a_pull_that_waits_skips_what_its_filter_does_not_want(server: Any, client: WireClient) -> None:
    client.ask(310, send_fields("Skips"), b"first")
    assert client.ask(30, {"topic": "Skips", "queueId": 0}).ext["offset"] == "1"
    waiting = client.send(11, pull_fields("Skips", 1, wait=60_000, subscription="B"))
    with WireClient(server.broker) as other:
        other.ask(310, send_fields("Skips", "TAGS\x01A\x02"), b"a")
        other.ask(310, send_fields("Skips", "TAGS\x01B\x02"), b"b")
    pulled = client.answer_to(waiting)
    assert [one.raw_body for one in records_of(pulled.body)] == [b"b"]
    assert pulled.ext["nextBeginOffset"] == "3"


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "PullNo"}, 17, "topic[PullNo] not exist, apply first please! "),
        ({"topic": "TBW102", "queueId": 8}, 29, "queueId[8] is illegal, topic:[TBW102]"),
        ({"topic": "TBW102", "sysFlag": 0}, 24, "the consumer's group info not exist"),
        ({"topic": "TBW102", "subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"topic": "TBW102", "subscription": "a >", "expressionType": "SQL92"}, 23, "parse the consumer's"),
        ({"topic": "TBW102", "queueOffset": 5}, 21, "NO_MESSAGE_IN_QUEUE"),
        ({"topic": "TBW102"}, 19, "NO_MESSAGE_IN_QUEUE"),
    ],
)
def test_pulls_without_messages(client: WireClient, fields: dict[str, Any], code: int, remark: str) -> None:
    found = client.ask(11, pull_fields(**fields) if "topic" not in fields else pull_fields() | fields)
    assert found.code == code
    assert found.remark is not None
    assert found.remark.startswith(remark)


def test_a_filter_by_sql(client: WireClient) -> None:
    for number in range(4):
        client.ask(310, send_fields("Sql", f"a\x01{number}\x02"), b"%d" % number)
    client.ask(30, {"topic": "Sql", "queueId": 0})
    pulled = client.ask(11, pull_fields("Sql", subscription="a > 1", expressionType="SQL92"))
    assert [one.raw_body for one in records_of(pulled.body)] == [b"2", b"3"]


def test_offsets_of_queues_and_groups(client: WireClient) -> None:
    queue = {"topic": "Offsets", "queueId": 0}
    group = queue | {"consumerGroup": "OffsetsGroup"}
    client.ask(310, send_fields("Offsets"), b"x")
    client.ask(34, {}, heartbeat("c", "OffsetsGroup"))
    assert client.ask(31, queue).ext["offset"] == "0"
    assert client.ask(30, queue).ext["offset"] == "1"
    assert client.ask(29, queue | {"timestamp": 0}).ext["offset"] == "0"
    assert int(client.ask(32, queue).ext["timestamp"]) > 1_600_000_000_000
    assert client.ask(14, group).ext["offset"] == "0"
    empty = client.ask(14, group | {"queueId": 1})
    assert (empty.code, empty.remark) == (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    client.oneway(15, group | {"commitOffset": 1})
    assert client.ask(14, group).ext["offset"] == "1"
    client.ask(11, pull_fields("Offsets", 1, group="OffsetsGroup", sysFlag=5, commitOffset=0))
    assert client.ask(14, group).ext["offset"] == "0"
    unknown = client.ask(15, group | {"consumerGroup": "Nobody", "commitOffset": 1})
    assert (unknown.code, unknown.remark) == (26, "Group Nobody not exist!")


def test_members_are_told_of_each_other(server: Any, client: WireClient) -> None:
    answer = client.ask(34, {}, heartbeat("one", "Members"))
    assert dict(answer.ext) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    told = client.next_request()
    assert (told.code, dict(told.ext), told.is_oneway) == (40, {"consumerGroup": "Members"}, True)
    with WireClient(server.broker) as other:
        other.ask(34, {}, heartbeat("two", "Members"))
        assert client.next_request().code == 40
        listed = json.loads(client.ask(38, {"consumerGroup": "Members"}).body)
        assert listed == {"consumerIdList": ["one", "two"]}
        other.ask(34, {}, heartbeat("two", "Members"))
    # It closed its connection without a word.
    assert client.next_request().code == 40
    assert json.loads(client.ask(38, {"consumerGroup": "Members"}).body) == {"consumerIdList": ["one"]}
    client.ask(35, {"clientID": "one", "consumerGroup": "Members"})
    gone = client.ask(38, {"consumerGroup": "Members"})
    assert (gone.code, gone.remark) == (1, "no consumer for this group, Members")
    assert not client.requests


def test_queues_are_locked_for_one_member(client: WireClient) -> None:
    queues = [{"topic": "Locks", "brokerName": "DEFAULT_BROKER", "queueId": number} for number in range(2)]

    def lock(client_id: str, wanted: list[dict[str, Any]], code: int = 41) -> Any:
        body = {"clientId": client_id, "consumerGroup": "Locks", "mqSet": wanted}
        return json.loads(client.ask(code, {}, json.dumps(body).encode()).body or b"{}")

    assert [one["queueId"] for one in lock("a", queues[:1])["lockOKMQSet"]] == [0]
    assert [one["queueId"] for one in lock("b", queues)["lockOKMQSet"]] == [1]
    lock("a", queues[:1], 42)
    assert sorted(one["queueId"] for one in lock("b", queues)["lockOKMQSet"]) == [0, 1]


def test_what_is_not_a_request(client: WireClient) -> None:
    unknown = client.ask(4711)
    assert (unknown.code, unknown.remark) == (3, " request type 4711 not supported")
    incomplete = client.ask(310, {"b": "Orders"}, b"x")
    assert incomplete.code == 1
    unreadable = client.ask(34, {}, b"{")
    assert (unreadable.code, unreadable.remark) == (1, "the body is not JSON: {")
    client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionError):
        client.receive()


def test_a_reply_reaches_the_client_that_asked(server: Any, client: WireClient) -> None:
    body = {"clientID": "asker", "consumerDataSet": [], "producerDataSet": [{"groupName": "PGA"}]}
    client.ask(34, {}, json.dumps(body).encode())
    properties = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c\x02"
    with WireClient(server.broker) as replier:
        opaque = replier.send(325, send_fields("DefaultCluster_REPLY_TOPIC", properties), b"reply")
        pushed = client.next_request()
        assert (pushed.code, pushed.body, pushed.is_oneway) == (326, b"reply", False)
        assert pushed.ext["producerGroup"] == "PG"
        assert "CORRELATION_ID\x01c" in pushed.ext["properties"]
        assert "PUSH_REPLY_TIME\x01" in pushed.ext["properties"]
        client.answer(pushed)
        answered = replier.answer_to(opaque)
        assert (answered.code, answered.ext["queueOffset"]) == (0, "0")
        nobody = replier.ask(325, send_fields("DefaultCluster_REPLY_TOPIC", properties.replace("asker", "gone")), b"x")
        assert (nobody.code, nobody.remark) == (1, "push reply message fail, channel of <gone> not found.")
        unnamed = replier.ask(325, send_fields("DefaultCluster_REPLY_TOPIC", "MSG_TYPE\x01reply\x02"), b"x")
        assert (unnamed.code, unnamed.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")


def test_a_message_comes_back_as_a_retry_and_then_as_a_dead_letter(client: WireClient) -> None:
    client.ask(34, {}, heartbeat("c", "Back", {"Back": "*"}))
    sent = client.ask(310, send_fields("Back", "UNIQ_KEY\x01k\x02"), b"again")
    offset = int(sent.ext["msgId"][16:], 16)
    fields = {"offset": offset, "group": "Back", "delayLevel": 1, "originTopic": "Back", "maxReconsumeTimes": 16}
    assert client.ask(36, fields).code == 0
    retried = client.ask(11, pull_fields("%RETRY%Back", wait=60_000, group="Back"))
    (record,) = records_of(retried.body)
    assert (record.raw_body, record.reconsume_times) == (b"again", 1)
    assert record.properties["RETRY_TOPIC"] == "Back"
    assert client.ask(36, fields | {"delayLevel": -1}).code == 0
    assert client.ask(30, {"topic": "%DLQ%Back", "queueId": 0}).ext["offset"] == "1"
    missing = client.ask(36, fields | {"offset": 1})
    assert (missing.code, missing.remark) == (1, "look message by offset failed, 1")


def test_a_transaction_is_seen_when_it_is_committed(client: WireClient) -> None:
    properties = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01t\x02"
    sent = client.ask(310, send_fields("Trans", properties, f=4), b"half")
    assert sent.code == 0
    queue = {"topic": "Trans", "queueId": 0}
    assert client.ask(30, queue).ext["offset"] == "0"
    end = {"producerGroup": "PG", "tranStateTableOffset": sent.ext["queueOffset"], "msgId": "t"}
    end |= {"commitLogOffset": int(sent.ext["msgId"][16:], 16), "commitOrRollback": 8, "fromTransactionCheck": False}
    assert client.ask(37, end).code == 0
    assert client.ask(30, queue).ext["offset"] == "1"
    wrong = client.ask(37, end | {"producerGroup": "Other"})
    assert wrong.code == 1


def test_topics_and_groups_are_made_by_tools(client: WireClient) -> None:
    topic = {"topic": "Made", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    topic |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
    assert client.ask(17, topic).code == 0
    assert json.loads(client.ask(351, {"topic": "Made"}).body)["writeQueueNums"] == 2
    assert client.ask(17, topic | {"readQueueNums": 3}).code == 0
    assert json.loads(client.ask(351, {"topic": "Made"}).body)["readQueueNums"] == 3
    assert client.ask(17, topic | {"topic": "TBW102"}).code == ResponseCode.INVALID_PARAMETER
    assert client.ask(200, {}, json.dumps({"groupName": "MadeGroup", "retryMaxTimes": 3}).encode()).code == 0
    assert json.loads(client.ask(352, {"group": "MadeGroup"}).body)["retryMaxTimes"] == 3
    assert client.ask(207, {"groupName": "MadeGroup"}).code == 0
    assert "MadeGroup" not in json.loads(client.ask(201).body)["subscriptionGroupTable"]


def test_the_offsets_of_a_group_are_reset(client: WireClient) -> None:
    client.ask(34, {}, heartbeat("c", "Reset", {"Reset": "*"}))
    for _ in range(3):
        client.ask(310, send_fields("Reset"), b"x")
    queue = {"topic": "Reset", "queueId": 0, "consumerGroup": "Reset"}
    client.ask(15, queue | {"commitOffset": 3})
    reset = client.ask(222, {"topic": "Reset", "group": "Reset", "timestamp": 0, "isForce": True, "queueId": -1})
    assert reset.code == 0
    assert b'{"brokerName":"DEFAULT_BROKER","queueId":0,"topic":"Reset"}:0' in reset.body
    assert client.ask(15, queue | {"commitOffset": 3}).remark == "Offset has been previously reset"
    moved = client.ask(11, pull_fields("Reset", 3, group="Reset"))
    assert (moved.code, moved.remark, moved.ext["nextBeginOffset"]) == (21, "OFFSET_RESET", "0")
    assert client.ask(15, queue | {"commitOffset": 1}).remark is None


def test_the_second_port_takes_everything_but_pulls(server: Any) -> None:
    with WireClient(server.vip) as client:
        assert client.ask(310, send_fields("Vip"), b"x").code == 0
        assert client.ask(11, pull_fields("Vip")).code == 3


def test_settings_of_all_clients(server: Any) -> None:
    setting = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    with WireClient(server.names) as names:
        missing = names.ask(101, setting)
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: T")
        names.ask(100, setting | {"value": "broker-a:4"})
        assert names.ask(101, setting).ext["value"] == "broker-a:4"
        assert json.loads(names.ask(219, setting).body) == {"table": {"T": "broker-a:4"}}
        names.ask(102, setting)
        assert names.ask(101, setting).code == 22
