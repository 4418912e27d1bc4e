"""Message queues and the local offsets file, beside files that the real ``LocalFileOffsetStore`` wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.formats.fastjson import Dialect
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.message_queue import (
    MessageQueue,
    decode_local_offsets,
    encode_local_offsets,
    order_queues,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "groups"
VERSIONS = {"4.9.8": Dialect.FASTJSON_1, "5.3.3": Dialect.FASTJSON_1, "5.4.0": Dialect.FASTJSON_2}
ONE = MessageQueue("TopicTest", "broker-a", 0)

# Each file, and what was put into the real store, in that order.
MANY = {
    MessageQueue(topic, broker, queue_id): 8 * number + 4 * half + queue_id
    for number, topic in enumerate(("TopicTest", "%RETRY%g-many", "T"))
    for half, broker in enumerate(("broker-a", "broker-b"))
    for queue_id in range(4)
}
CONTENTS = {"many": MANY, "one": {ONE: 1470}, "merge": {ONE: 5, ONE._replace(queue_id=1): 7}, "empty": {}}

every_file = pytest.mark.parametrize("name", CONTENTS)
every_version = pytest.mark.parametrize("version", VERSIONS)


def golden(version: str, name: str) -> bytes:
    return (GOLDEN / f"offsets-{version}-{name}.json").read_bytes()


@every_version
@every_file
def test_files_of_real_clients_are_read_and_written_byte_for_byte(version: str, name: str) -> None:
    data = golden(version, name)
    table = decode_local_offsets(data)
    assert table == CONTENTS[name]
    assert isinstance(table, dict)
    assert encode_local_offsets(table, VERSIONS[version]) == data


@every_version
@every_file
def test_a_new_file_has_the_order_of_the_real_one(version: str, name: str) -> None:
    expected = CONTENTS[name]
    table = {queue: expected[queue] for queue in order_queues(expected)}
    assert encode_local_offsets(table, VERSIONS[version]) == golden(version, name)


def test_names_with_braces_and_quotes_survive() -> None:
    table = {MessageQueue('a"}:{', "b\\", 3): 1, MessageQueue("ü{", "{:}", 4): 2}
    for dialect in Dialect:
        assert decode_local_offsets(encode_local_offsets(table, dialect)) == table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no value"),
        ('{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:1', "the text ends inside an object"),
        ('{"offsetTable":{{"brokerName":"b"}:1}}', "does not name a queue"),
        ('{"offsetTable":{{"brokerName":"b","topic":"T","queueId":2147483648}:1}}', "does not name a queue"),
        ('{"offsetTable":{"T":1}}', "does not name a queue"),
        ('{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}', "a number of type long is expected"),
        ("[1]", "an object is expected"),
    ],
)
def test_a_damaged_file_is_a_flaw(text: str, message: str) -> None:
    found = decode_local_offsets(text.encode())
    assert isinstance(found, Flaw)
    assert (found.code, message in found.message) == ("CF-JSON", True), found.message


def test_the_text_of_a_queue_is_javas() -> None:
    assert str(MessageQueue("T", "b0", 3)) == "MessageQueue [topic=T, brokerName=b0, queueId=3]"
    assert f"{ONE}" == "MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]"


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [MessageQueue("T", "b1", 0), MessageQueue("S", "b9", 9), MessageQueue("T", "b0", 10)]
    queues.append(MessageQueue("T", "b0", 9))
    assert sorted(queues) == [queues[1], queues[3], queues[2], queues[0]]
