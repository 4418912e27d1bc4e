"""A live cluster as a batch and as a stream, played as Spark plays it: plans and readers are pickled in between.

The cluster is played by ``scripted_cluster``. ``tests/spark`` has the same in Spark.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

import rmqtool
from rmqtool.errors import NotFound, StoreError, UsageError
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.spark.source import RocketMQSource
from rmqtool.spark.stream import ClusterStreamReader, shared_out
from tests.support.exported import expected_rows, rows_of
from tests.support.scripted_cluster import RecordingPeer, in_thread, played
from tests.support.stores import unpack

NAME = "53-broker"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(NAME, tmp_path_factory.mktemp("played"))


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with played(root) as found:
        yield found


def rows_read(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    parts = pickle.loads(pickle.dumps(partitions))
    reader = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in reader.read(part)]
    return rows_of(pa.Table.from_batches(batches)) if batches else []


def batch(**options: str) -> list[dict[str, Any]]:
    source = RocketMQSource(options)
    reader = source.reader(source.schema())
    return rows_read(reader, reader.partitions())


def test_a_batch_is_what_the_files_have(address: str) -> None:
    expected = {row["offset_msg_id"]: row for row in expected_rows(NAME, "broker-a")}
    found = batch(cluster=address)
    assert len(found) == len(expected) > 100
    for row in found:
        assert row == expected[row["offset_msg_id"]]


def test_options_bound_what_is_read(address: str) -> None:
    everything = batch(cluster=address)
    topic = max({row["topic"] for row in everything}, key=lambda one: sum(row["topic"] == one for row in everything))
    found = batch(cluster=address, topic=topic, startOffset="3", endOffset="7", columns="topic,queue_offset")
    assert found
    assert {row["queue_offset"] for row in found} == {3, 4, 5, 6}
    assert {row["topic"] for row in found} == {topic}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster": "rocketmq://127.0.0.1:9876", "path": "/data/store"}, "path has no effect"),
        ({"cluster": "rocketmq://127.0.0.1:9876", "maxBytesPerTrigger": "1g"}, "maxBytesPerTrigger has no effect"),
        ({"path": "/data/store", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger has no effect"),
        ({"cluster": "127.0.0.1:9876"}, "is not the address of a cluster"),
        ({"cluster": "rocketmq://127.0.0.1:9876", "maxOffsetsPerTrigger": "0"}, "would never read anything"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RocketMQSource(options).schema()


def test_a_topic_that_is_not_there_is_a_sentence(address: str) -> None:
    with pytest.raises(NotFound, match="there is no topic Nope in the cluster"):
        batch(cluster=address, topic="Nope")


class Query:
    """A streaming query, and its checkpoint."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.checkpoint: str | None = None
        self.keys: list[str] = []
        self.start()

    def start(self) -> None:
        source = RocketMQSource(self.options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, ClusterStreamReader)
        self.reader = reader

    def trigger(self) -> int | None:
        begin = json.loads(self.checkpoint or json.dumps(self.reader.initialOffset()))
        end = json.loads(json.dumps(self.reader.latestOffset(begin, self.reader.getDefaultReadLimit())))
        if begin == end:
            return None
        found = rows_read(self.reader, self.reader.partitions(begin, end))
        # A batch that is asked for again is the same.
        assert rows_read(self.reader, self.reader.partitions(begin, end)) == found
        self.keys += [row["keys"] for row in found]
        self.checkpoint = json.dumps(end)
        return len(found)

    def run(self) -> list[int]:
        return list(iter(self.trigger, None))


def test_a_stream_has_each_message_once_over_restarts() -> None:
    peer = RecordingPeer("T")
    with in_thread(peer), rmqtool.connect(f"rocketmq://{peer.address}") as client:

        def send(first: int, last: int) -> None:
            with client.producer() as producer:
                for number in range(first, last):
                    producer.send("T", "x", keys=str(number))

        send(0, 50)
        query = Query(cluster=f"rocketmq://{peer.address}", topic="T", maxOffsetsPerTrigger="20")
        assert query.run() == [20, 20, 10]
        send(50, 60)
        query.start()
        send(60, 70)
        assert query.run() == [20]
        assert sorted(map(int, query.keys)) == list(range(70))
        assert query.run() == []


def test_messages_that_were_deleted_end_the_query_with_a_sentence() -> None:
    peer = RecordingPeer("T")
    with in_thread(peer), rmqtool.connect(f"rocketmq://{peer.address}") as client:
        for number in range(12):
            client.produce("T", "x", keys=str(number), queue=0)
        place = f"rocketmq://{peer.address}"
        query = Query(cluster=place, maxOffsetsPerTrigger="4")
        assert query.trigger() == 4
        for offset in range(6):
            del peer.queues["T", 0][offset]
        with pytest.raises(StoreError, match="messages 4 to 5 were deleted before they were read") as error:
            query.trigger()
        assert "failOnDataLoss" in str(error.value)
        query.options["failOnDataLoss"] = "false"
        query.start()
        query.run()
        assert list(map(int, query.keys)) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_a_topic_that_begins_anew_ends_the_query_with_a_sentence() -> None:
    peer = RecordingPeer("T")
    with in_thread(peer), rmqtool.connect(f"rocketmq://{peer.address}") as client:
        for number in range(4):
            client.produce("T", "x", keys=str(number), queue=0)
        query = Query(cluster=f"rocketmq://{peer.address}")
        assert query.run() == [4]
        del peer.queues["T", 0][3]
        with pytest.raises(StoreError, match="was read up to offset 4, and now ends at 3"):
            query.trigger()


def test_a_bound_is_shared_by_the_queues() -> None:
    first, second, third = (MessageQueue("T", "b", number) for number in range(3))
    ends = {first: 100, second: 10, third: 0}
    found = shared_out(dict.fromkeys(ends, 0), ends, 11)
    assert found == {first: 10, second: 1, third: 0}
    assert sum(shared_out(dict.fromkeys(ends, 0), ends, 1).values()) == 1
    assert shared_out(dict.fromkeys(ends, 0), ends, None) == ends
