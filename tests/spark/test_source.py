"""``spark.read.format("rocketmq")``: every row of every fixture, any split, any schema, and what users are told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import UsageError
from tests.support.exported import Row, expected_rows, rows_of
from tests.support.stores import left_alone, truth

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from rmqtool.spark.source import RocketMQSource

Unpacker = Callable[[str], Path]


def read(spark: Any, *paths: str | Path, **options: str) -> Any:
    return spark.read.format("rocketmq").options(**options).load([str(path) for path in paths])


def by_place(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["broker"], row["commitlog_offset"]))


def test_all_stores_at_once_equal_their_truth(spark: Any, fixtures: Any, expected: list[Row]) -> None:
    found = rows_of(read(spark, *(one.root for one in fixtures), onCorrupt="skip").toArrow())
    assert by_place(found) == by_place(expected)
    assert len(found) > (9000 if len(fixtures) > 10 else 1000)


def test_small_splits_give_the_same_rows(spark: Any, store: Unpacker) -> None:
    frame = read(spark, store("49-basic"), splitSize="16k", columns="commitlog_offset,queue_offset,msg_id")
    assert frame.rdd.getNumPartitions() == 31
    wanted = expected_rows("49-basic", "")
    assert rows_of(frame.toArrow()) == [
        {name: row[name] for name in ("queue_offset", "commitlog_offset", "msg_id")} for row in wanted
    ]


@pytest.mark.parametrize(("place", "count"), [("", 541), ("tier", 538)])
def test_a_tier_is_read(place: str, count: int, spark: Any, store: Unpacker) -> None:
    frame = read(spark, store("tiers/53-tier") / place, columns="topic,queue_id,queue_offset,msg_id", splitSize="16k")
    rows = rows_of(frame.toArrow())
    found = {(row["topic"], row["queue_id"], row["queue_offset"]): row["msg_id"] for row in rows}
    assert len(rows) == len(found) == count
    told = {
        (topic, int(queue_id), offset): key
        for topic, queues in truth("tiers/53-tier")["asOne"].items()
        for queue_id, queue in queues.items()
        for offset, key, _ in queue["messages"]
    }
    assert {at: key for at, key in found.items() if at in told} == {at: told[at] for at in told if at in found}


def test_options_choose_messages(spark: Any, store: Unpacker) -> None:
    root = store("54-broker")
    everything = rows_of(read(spark, root).toArrow())
    times = sorted(row["store_timestamp"] for row in everything)
    begin, end = times[100], times[300]
    chosen = {
        "topic": ({"topic": "T_*,%DLQ%*"}, lambda row: row["topic"].startswith(("T_", "%DLQ%"))),
        "queue": ({"queueId": "1"}, lambda row: row["queue_id"] == 1),
        "time": ({"startTime": str(begin), "endTime": str(end)}, lambda row: begin <= row["store_timestamp"] < end),
        "offset": ({"startOffset": "3", "endOffset": "5"}, lambda row: 3 <= row["queue_offset"] < 5),
    }
    for name, (options, wanted) in chosen.items():
        found = rows_of(read(spark, root, **options).toArrow())
        assert found == [row for row in everything if wanted(row)], name
        assert 0 < len(found) < len(everything), name


def test_user_schema_chooses_columns_in_its_order(spark: Any, store: Unpacker) -> None:
    path = str(store("54-broker"))
    whole = rows_of(spark.read.format("rocketmq").load(path).toArrow())
    frame = spark.read.format("rocketmq").schema("msg_id string, queue_id int, body binary").load(path)
    assert frame.columns == ["msg_id", "queue_id", "body"]
    assert rows_of(frame.toArrow()) == [{name: row[name] for name in frame.columns} for row in whole]


def test_sql_and_expressions_work_on_the_columns(spark: Any, store: Unpacker) -> None:
    read(spark, store("54-broker")).createOrReplaceTempView("messages")
    (row,) = spark.sql(
        "SELECT count(*) AS n, count(DISTINCT properties['UNIQ_KEY']) AS keys, max(octet_length(body)) AS l "
        "FROM messages WHERE topic = 'T_normal'"
    ).collect()
    assert row.n > 0
    assert row.keys == row.n
    assert row.l > 0


def test_view_in_sql_needs_no_python(spark: Any, store: Unpacker) -> None:
    root = store("54-broker")
    spark.sql(f"CREATE TEMPORARY VIEW by_sql USING rocketmq OPTIONS (path '{root}', topic 'T_normal')")
    assert spark.table("by_sql").count() == read(spark, root, topic="T_normal").count() > 0


def test_session_that_knows_nothing_of_us_finds_the_format(spark: Any, store: Unpacker) -> None:
    other = spark.newSession()
    assert other.read.format("rocketmq").load(str(store("54-broker"))).count() == 418


def test_empty_store_has_no_rows(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue").mkdir()
    assert read(spark, tmp_path).count() == 0


def test_reading_leaves_the_store_alone(spark: Any, writable_store: Unpacker) -> None:
    root = writable_store("54-broker")
    with left_alone(root):
        assert read(spark, root, splitSize="32k").count() == 418


def test_segment_that_vanished_is_named(spark: Any, writable_store: Unpacker) -> None:
    """A file that is not where the plan saw it is no damage: no way of dealing with damage passes over it."""
    root = writable_store("49-basic")
    frames = [read(spark, root), read(spark, root, onCorrupt="skip"), read(spark, root, onCorrupt="emit")]
    assert [frame.count() for frame in frames] == [683, 683, 683]
    os.unlink(root / "commitlog" / "00000000000000065536")
    for frame in frames:
        with pytest.raises(Exception, match=r"cannot open .*00000000000000065536: No such file") as gone:
            frame.count()
        assert "every machine must have the store at this path" in str(gone.value)


SENTENCES = {
    "no path": ({"path": ""}, r"missing store"),
    "elsewhere": ({"path": "ftp://host/store"}, "ftp://host/store is not a local path"),
    "option": ({"topics": "a"}, r"there is no option 'topics' \(did you mean topic\?\)"),
    "column": ({"columns": "topic,bdy"}, r"there is no column 'bdy' \(did you mean body\?\)"),
    "body": ({"body": "json"}, '"json" is not a way to show bodies'),
    "number": ({"queueId": "two"}, 'queueId takes a whole number, not "two"'),
    "time": ({"startTime": "soon"}, 'startTime: "soon" is not a time'),
    "order": ({"startTime": "2", "endTime": "1"}, "the range of startTime and endTime is empty"),
    "damage": ({"onCorrupt": "ignore"}, 'onCorrupt: "ignore" is not known'),
    "small": ({"splitSize": "1k"}, "a split of 1024 bytes is too small"),
    "size": ({"splitSize": "big"}, 'splitSize: "big" is not a size'),
}


@pytest.mark.parametrize(("options", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_option_that_cannot_be_meant(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        RocketMQSource({"path": "/data/store"} | options).schema()


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("queue_id string", "queue_id is int, not string"),
        ("queue int", "there is no column 'queue'"),
        ("record_status string", "the column record_status exists only with onCorrupt=emit"),
    ],
)
def test_schema_that_differs(spark: Any, schema: str, sentence: str) -> None:
    given = StructType.fromDDL(schema)
    with pytest.raises(UsageError, match=sentence):
        RocketMQSource({"path": "/data/store"}).reader(given)


def test_sentences_reach_the_user(spark: Any, store: Unpacker) -> None:
    """What is said in the processes beside the driver stands in Spark's own error: of options, schemas and stores."""
    source = spark.read.format("rocketmq")
    with pytest.raises(Exception, match=r"there is no option 'topics' \(did you mean topic\?\)"):
        source.option("topics", "a").load("/data/store")
    source = spark.read.format("rocketmq").schema("queue_id string")
    with pytest.raises(Exception, match=r"queue_id is int, not string \(leave the schema out, or cast afterwards\)"):
        source.load(str(store("54-broker"))).count()
    with pytest.raises(Exception, match="/nowhere/at/all does not exist"):
        spark.read.format("rocketmq").load("/nowhere/at/all").count()
