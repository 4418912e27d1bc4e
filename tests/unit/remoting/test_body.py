"""Bodies: what is written is what every client reads, what is read is what any of them writes."""

from __future__ import annotations

import pytest

from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.bodies.broker import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from rmqtool.remoting.bodies.clients import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    ResetOffsetBody,
    SubscriptionData,
)
from rmqtool.remoting.bodies.routes import BrokerData, ClusterInfo, DataVersion, QueueData, TopicRouteData
from rmqtool.remoting.body import BodyError, read_json

QUEUE = MessageQueue("T", "broker-a", 3)


def test_a_route_is_compact_and_its_ids_are_quoted() -> None:
    """Go cuts routes by string operations, and every client takes quoted ids."""
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_name="broker-a", cluster="C", broker_addrs={0: "127.0.0.1:10911"})],
        queue_datas=[
            QueueData(broker_name="broker-a", perm=6, read_queue_nums=4, write_queue_nums=4, topic_sys_flag=0)
        ],
        filter_server_table={},
    )
    assert route.encode() == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}],'
        b'"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert TopicRouteData.decode(route.encode()) == route


def test_bare_numbers_are_keys_too() -> None:
    data = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1", 12 :"h:2"},"brokerName":"b","cluster":"c"}},'
    data += b'"clusterAddrTable":{"c":["b"]}}'
    assert ClusterInfo.decode(data).broker_addr_table["b"].broker_addrs == {0: "h:1", 12: "h:2"}


def test_queues_are_keys_as_objects() -> None:
    """fastjson 2 reads nothing else, fastjson 1 writes nothing else; a key that is a text of JSON is read as well."""
    stats = TopicStatsTable(offset_table={QUEUE: TopicOffset(min_offset=0, max_offset=5, last_update_timestamp=9)})
    written = (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:'
        b'{"lastUpdateTimestamp":9,"maxOffset":5,"minOffset":0}}}'
    )
    assert stats.encode() == written
    assert TopicStatsTable.decode(written) == stats
    as_text = written.replace(
        b'{"brokerName":"broker-a","queueId":3,"topic":"T"}:',
        b'"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}" : ',
    )
    assert TopicStatsTable.decode(as_text) == stats
    reset = ResetOffsetBody(offset_table={QUEUE: 7, QUEUE._replace(topic='a"b{}:'): 8})
    assert ResetOffsetBody.decode(reset.encode()) == reset


def test_what_looks_like_a_key_inside_a_text_is_text() -> None:
    data = b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"x\\"{\\"a\\":1}: 5:","queueId":0,"topic":"T"}:'
    data += b'{"brokerOffset":1,"consumerOffset":0,"lastTimestamp":0}}}'
    stats = ConsumeStats.decode(data)
    key = MessageQueue("T", 'x"{"a":1}: 5:', 0)
    assert stats.offset_table == {key: OffsetWrapper(broker_offset=1, consumer_offset=0, last_timestamp=0)}


HEARTBEAT = b"""{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":%s,"consumeType":%s,"groupName":"G",
 "messageModel":%s,"subscriptionDataSet":[{"subString":"*","subVersion":1,"topic":"T","later":[1]}]}],"other":{}}"""


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ((b'"CONSUME_FROM_FIRST_OFFSET"', b'"CONSUME_PASSIVELY"', b'"CLUSTERING"'), "CONSUME_FROM_FIRST_OFFSET"),
        ((b"4", b"1", b"1"), "CONSUME_FROM_FIRST_OFFSET"),
        ((b"0", b"1", b"1"), "CONSUME_FROM_LAST_OFFSET"),
        ((b"5", b"1", b"1"), "CONSUME_FROM_TIMESTAMP"),
    ],
)
def test_a_heartbeat_of_any_client(words: tuple[bytes, ...], where: str) -> None:
    """Java and Go write words, C++ numbers; members that nobody knows are ignored."""
    heartbeat = HeartbeatData.decode(HEARTBEAT % words)
    assert heartbeat == HeartbeatData(
        client_id="c@1",
        consumer_data_set=[
            ConsumerData(
                group_name="G",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere(where),
                subscription_data_set=[SubscriptionData(topic="T", sub_string="*", sub_version=1)],
            )
        ],
    )
    assert heartbeat.producer_data_set is None


def test_locks() -> None:
    lock = LockBatchRequestBody(client_id="c", consumer_group="G", mq_set=[QUEUE])
    assert lock.encode() == (
        b'{"clientId":"c","consumerGroup":"G","mqSet":[{"brokerName":"broker-a","queueId":3,"topic":"T"}]}'
    )
    assert LockBatchResponseBody(lock_ok_mq_set=[]).encode() == b'{"lockOKMQSet":[]}'


def test_null_is_absent_and_numbers_may_be_texts() -> None:
    assert DataVersion.decode(b'{"counter":"5","timestamp":6,"stateVersion":null}') == DataVersion(
        counter=5, timestamp=6
    )


WRONG = {
    "nothing": (b"", "not JSON"),
    "no object": (b"[]", "HeartbeatData is not a JSON object"),
    "cut": (b'{"clientID":"x"', "not JSON"),
    "a list that is none": (b'{"clientID":"x","consumerDataSet":{}}', "consumerDataSet: not a JSON array"),
    "an enumeration": (b'{"consumerDataSet":[{"consumeType":"SLOWLY"}]}', "'SLOWLY' is not a ConsumeType"),
    "a number beyond an enumeration": (b'{"consumerDataSet":[{"consumeType":9}]}', "'9' is not a ConsumeType"),
    "no number": (b'{"heartbeatFingerprint":"x"}', "heartbeatFingerprint: 'x' is not a number"),
    "neither": (b'{"withoutSub":7}', "withoutSub: '7' is neither true nor false"),
    "deep": (b'{"x":' + b"[" * 40 + b"]" * 40 + b"}", "nested deeper than 32"),
    "very deep": (b'{"x":' + b"[" * 100_000, "nested deeper than 32"),
    "an object as a key": (b'{{"a":{}}:1}', "not JSON"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_body_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BodyError, match=message):
        HeartbeatData.decode(data)


def test_a_key_that_is_no_queue_is_refused() -> None:
    for key in (b'"x"', b'"[1]"', b'{"queueId":"x"}'):
        with pytest.raises(BodyError, match="offsetTable"):
            ResetOffsetBody.decode(b'{"offsetTable":{%s:1}}' % key)


def test_what_is_needed_must_be_there() -> None:
    with pytest.raises(BodyError, match=r"^mqSet is missing$"):
        LockBatchRequestBody.decode(b'{"clientId":"c","consumerGroup":"G","mqSet":null}')
    with pytest.raises(BodyError, match=r"^consumerDataSet: groupName is missing$"):
        HeartbeatData.decode(b'{"clientID":"c","consumerDataSet":[{}]}')


def test_texts_of_java_are_read() -> None:
    assert read_json('{"a":"é\\u4e2d\xf6"}'.encode()) == {"a": "é中ö"}
    assert read_json(b'{"a":"\xff"}') == {"a": "\ufffd"}
