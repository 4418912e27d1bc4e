"""Options with the names of Spark's source for Kafka: the same rows as with ours, from stores and from a cluster."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.sql.streaming.datasource import ReadAllAvailable

import rmqtool
from rmqtool.errors import StoreError, UsageError
from rmqtool.spark.source import RocketMQSource
from tests.support.exported import rows_of
from tests.support.scripted_cluster import StorePeer, in_thread
from tests.support.stores import unpack

TOPIC, OTHER = "T_normal", "T_fifo"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("53-broker", tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def peer(root: Path) -> Iterator[StorePeer]:
    played = StorePeer(root)
    with in_thread(played):
        yield played


@pytest.fixture(params=["files", "cluster"])
def place(request: pytest.FixtureRequest, root: Path, peer: StorePeer) -> dict[str, str]:
    return {"path": str(root)} if request.param == "files" else {"cluster": f"rocketmq://{peer.address}"}


@pytest.fixture(scope="module")
def messages(root: Path) -> list[Any]:
    return list(rmqtool.scan(str(root)))


def batch(**options: str) -> list[tuple[str, int, int]]:
    source = RocketMQSource(options)
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    batches = [found for part in reader.partitions() for found in reader.read(part)]
    rows = rows_of(pa.Table.from_batches(batches)) if batches else []
    return sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in rows)


def places(messages: list[Any], *topics: str) -> list[tuple[str, int, int]]:
    return sorted((one["topic"], one["queueId"], one["queueOffset"]) for one in messages if one["topic"] in topics)


def test_subscribe_takes_names_and_subscribe_pattern_an_expression(place: dict[str, str], messages: list[Any]) -> None:
    expected = places(messages, TOPIC, OTHER)
    assert len(expected) > 20
    assert batch(**place, subscribe=f"{TOPIC}, {OTHER}") == expected
    assert batch(**place, subscribePattern="T_(normal|fifo)") == expected
    # Names are not patterns, and an expression matches the whole name.
    if "path" in place:
        assert batch(**place, subscribe="T_*") == []
        assert batch(**place, subscribePattern="T_norm") == []


def test_offsets_of_single_queues_bound_a_batch(place: dict[str, str], messages: list[Any]) -> None:
    starts = {TOPIC: {"0": 3, "broker-a/1": 2}} if "cluster" in place else {TOPIC: {"0": 3, "1": 2}}
    ends = {TOPIC: {"0": 5}}
    found = batch(**place, startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends))
    bounds = {0: range(3, 5), 1: range(2, 1 << 40)}
    expected = [one for one in places(messages, TOPIC) if one[2] in bounds.get(one[1], range(1 << 40))]
    assert found == expected
    assert (TOPIC, 0, 3) in found
    assert (TOPIC, 0, 5) not in found


def test_words_for_all_offsets_change_nothing(place: dict[str, str], messages: list[Any]) -> None:
    found = batch(**place, subscribe=TOPIC, startingOffsets="earliest", endingOffsets="latest")
    assert found == places(messages, TOPIC)


def test_times_by_the_names_of_kafka(place: dict[str, str], messages: list[Any]) -> None:
    times = sorted(one["storeTimestamp"] for one in messages if one["topic"] == TOPIC)
    begin, end = str(times[5]), str(times[-5])
    expected = batch(**place, topic=TOPIC, startTime=begin, endTime=end)
    assert 0 < len(expected) < len(times)
    assert batch(**place, subscribe=TOPIC, startingTimestamp=begin, endingTimestamp=end) == expected


def test_tags_and_properties_select_what_a_consumer_would_get(
    place: dict[str, str], peer: StorePeer, messages: list[Any]
) -> None:
    """A broker leaves out messages with other tags."""
    peer.left_out = 0
    tags = sorted({one["tags"] for one in messages if one["topic"] == TOPIC and one["tags"]})
    of_topic = [one for one in messages if one["topic"] == TOPIC]
    assert len(tags) > 1
    wanted = [one for one in of_topic if one["tags"] in tags[:2]]
    assert wanted
    assert batch(**place, topic=TOPIC, tag=" || ".join(tags[:2])) == places(wanted, TOPIC)
    assert peer.left_out == (len(of_topic) - len(wanted) if "cluster" in place else 0)
    key = of_topic[3]["keys"]
    wanted = [one for one in of_topic if one["keys"] == key or one["tags"] == tags[0]]
    assert 0 < len(wanted) < len(of_topic)
    where = f"KEYS = '{key}' OR TAGS = '{tags[0]}'"
    assert batch(**place, topic=TOPIC, where=where) == places(wanted, TOPIC)
    with pytest.raises(UsageError, match="of the expression"):
        batch(**place, where="KEYS = = 'x'")


def test_the_least_number_of_tasks_is_kept(place: dict[str, str], messages: list[Any]) -> None:
    def tasks(**more: str) -> list[Any]:
        source = RocketMQSource({**place, **more})
        return list(source.reader(source.schema()).partitions())

    assert len(tasks(minPartitions="50")) >= 50 > len(tasks())
    assert len(batch(**place, minPartitions="50")) == len(messages)


def test_the_words_of_a_cluster_for_single_queues(peer: StorePeer, messages: list[Any]) -> None:
    cluster = f"rocketmq://{peer.address}"
    found = batch(cluster=cluster, startingOffsets=json.dumps({TOPIC: {"0": -1, "1": -2}}))
    assert found == [one for one in places(messages, TOPIC) if one[1] != 0]
    # The first message is gone: a batch that asks for it must not look whole.
    held = peer.queues[TOPIC, 0].pop(0)
    try:
        with pytest.raises(StoreError, match="messages 0 to 0 were deleted before they were read"):
            batch(cluster=cluster, startingOffsets=json.dumps({TOPIC: {"0": 0}}))
        more = batch(cluster=cluster, startingOffsets=json.dumps({TOPIC: {"0": 0}}), failOnDataLoss="false")
        assert more == places(messages, TOPIC)[1:]
    finally:
        peer.queues[TOPIC, 0][0] = held


def test_a_stream_may_begin_at_the_end_and_tells_how_far_it_could_read(place: dict[str, str]) -> None:
    source = RocketMQSource({**place, "startingOffsets": "latest", "safetyLag": "0s"} if "path" in place else place)
    if "cluster" in place:
        source = RocketMQSource({**place, "startingOffsets": "latest"})
    reader = source.streamReader(source.schema())
    first = reader.initialOffset()
    assert reader.latestOffset(first, ReadAllAvailable()) == first == reader.reportLatestOffset()
    earlier = RocketMQSource(place)
    other = earlier.streamReader(earlier.schema())
    assert other.initialOffset() != first
    assert other.reportLatestOffset() == first


def test_a_pattern_of_paths_is_each_store_that_matches(root: Path, messages: list[Any], tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        (tmp_path / name).symlink_to(root)
    assert len(batch(path=str(tmp_path / "broker-*"))) == 2 * len(messages)
    with pytest.raises(UsageError, match="no store matches"):
        batch(path=str(tmp_path / "none-*"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a", "topic": "b"}, "topic and subscribe exclude each other"),
        ({"subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern exclude each other"),
        ({"startingTimestamp": "1", "startTime": "1"}, "startTime and startingTimestamp exclude"),
        ({"startingOffsets": "earliest", "startOffset": "1"}, "startOffset and startingOffsets exclude"),
        ({"startingOffsets": "latest"}, "startingOffsets latest is for streams"),
        ({"endingOffsets": "earliest"}, "endingOffsets earliest would read nothing"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not known"),
        ({"startingOffsets": "{}"}, "startingOffsets names no topic"),
        ({"startingOffsets": '{"T": {"x": 1}}'}, "is not a queue with an offset"),
        ({"startingOffsets": '{"T": {"0": -3}}'}, "is not a queue with an offset"),
        ({"startingOffsets": '{"T": 5}'}, "is not a queue with an offset"),
        ({"startingOffsets": '{"T_normal": {"0": -1}}'}, "-1 and -2 are offsets of a cluster"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"minPartitions": "many"}, "minPartitions takes a whole number"),
    ],
)
def test_what_contradicts_or_is_unclear_is_refused(root: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        batch(path=str(root), **options)


def test_streams_refuse_what_is_for_batches(root: Path) -> None:
    for options, said in (
        ({"endingOffsets": '{"T": {"0": 1}}'}, "endingOffsets is for batches"),
        ({"startingOffsets": '{"T": {"0": 1}}'}, "a stream of stores begins at a place in each log"),
    ):
        source = RocketMQSource({"path": str(root), **options})
        with pytest.raises(UsageError, match=said):
            source.streamReader(source.schema())
