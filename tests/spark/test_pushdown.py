"""Filters handed down: the same rows, fewer bytes read; and only where the session allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import UsageError
from rmqtool.exports.choice import DEFAULT
from tests.support.exported import Row, rows_of
from tests.support.stores import truth

pytest.importorskip("pyspark")

from pyspark.sql import datasource as ds

from rmqtool.files.posix import PosixReadableFile
from rmqtool.spark.options import parse_options
from rmqtool.spark.reader import PushingReader, RocketMQReader
from rmqtool.spark.schema import spark_schema

Unpacker = Callable[[str], Path]
CONF = "spark.sql.python.filterPushdown.enabled"
NOON = datetime(2026, 11, 18, 12, 0, 0, 1500, tzinfo=UTC)
NOON_MS = 1_795_003_200_001


def narrow(*filters: ds.Filter, **given: Any) -> dict[str, Any]:
    """Return what filters change in a choice."""
    from dataclasses import asdict, replace

    before = replace(DEFAULT, **given)
    pushing = PushingReader.__new__(PushingReader)  # no store is needed to narrow a choice
    pushing.choice = before
    assert pushing.pushFilters(list(filters)) == list(filters), "Spark applies them too"
    old, new = asdict(before), asdict(pushing.choice)
    return {name: value for name, value in new.items() if value != old[name]}


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ([ds.EqualTo(("topic",), "Orders")], {"topics": ("Orders",)}),
        ([ds.EqualNullSafe(("topic",), "a*b[c]?")], {"topics": ("a[*]b[[]c][?]",)}),
        ([ds.In(("topic",), ["a", "b"])], {"topics": ("a", "b")}),  # type: ignore[arg-type]
        ([ds.StringStartsWith(("topic",), "%DLQ%")], {"topics": ("%DLQ%*",)}),
        ([ds.EqualTo(("topic",), "a"), ds.EqualTo(("topic",), "b")], {"topics": ("a",), "physical_end": 0}),
        ([ds.EqualTo(("queue_id",), 3)], {"queue_id": 3}),
        ([ds.In(("queue_id",), [3, 4])], {}),  # type: ignore[arg-type]
        ([ds.GreaterThanOrEqual(("store_timestamp",), NOON)], {"begin": NOON_MS}),
        ([ds.GreaterThan(("store_timestamp",), NOON)], {"begin": NOON_MS}),
        ([ds.LessThan(("store_timestamp",), NOON)], {"end": NOON_MS + 1}),
        ([ds.EqualTo(("store_timestamp",), NOON)], {"begin": NOON_MS, "end": NOON_MS + 1}),
        (
            [ds.GreaterThan(("queue_offset",), 7), ds.LessThan(("queue_offset",), 9)],
            {"start_offset": 8, "end_offset": 9},
        ),
        ([ds.In(("commitlog_offset",), [500, 100])], {"physical_begin": 100, "physical_end": 501}),  # type: ignore[arg-type]
        ([ds.GreaterThan(("commitlog_offset",), -5)], {}),
        ([ds.EqualTo(("tags",), "x"), ds.In(("tags",), ["x", "y", None])], {"tags": "x"}),  # type: ignore[arg-type]
        ([ds.EqualTo(("tags",), "x"), ds.EqualTo(("tags",), "y")], {"tags": "x", "physical_end": 0}),
        ([ds.EqualTo(("tags",), tag) for tag in ("*", "", " x", "x || y", "||")], {}),
        ([ds.EqualNullSafe(("tags",), None), ds.IsNull(("tags",)), ds.StringStartsWith(("tags",), "x")], {}),
        ([ds.Not(ds.EqualTo(("topic",), "a")), ds.IsNotNull(("topic",)), ds.EqualTo(("keys",), "x")], {}),
        ([ds.EqualTo(("properties", "topic"), "x"), ds.StringContains(("topic",), "x"), ds.IsNull(("topic",))], {}),
    ],
    ids=str,
)
def test_filter_narrows(given: list[ds.Filter], changed: dict[str, Any]) -> None:
    assert narrow(*given) == changed


def test_filter_and_option_hold_together() -> None:
    assert narrow(ds.EqualTo(("topic",), "T_a"), topics=("T_*",)) == {"topics": ("T_a",)}
    assert narrow(ds.EqualTo(("topic",), "other"), topics=("T_*",)) == {"physical_end": 0}
    assert narrow(ds.StringStartsWith(("topic",), "T"), topics=("T_*",)) == {}
    assert narrow(ds.LessThan(("store_timestamp",), NOON), end=5) == {}
    assert narrow(ds.GreaterThan(("queue_offset",), 3), start_offset=2, end_offset=9) == {"start_offset": 4}


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the length of every read of a file from now on."""
    lengths: list[int] = []
    real = PosixReadableFile.pread

    def pread(self: PosixReadableFile, length: int, file_offset: int) -> bytes:
        found = real(self, length, file_offset)
        lengths.append(len(found))
        return found

    monkeypatch.setattr(PosixReadableFile, "pread", pread)
    return lengths


def read_here(reader: RocketMQReader) -> list[Row]:
    """Read every split in this process, as executors would."""
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    return [row for batch in batches for row in rows_of(batch)]


def time_of(row: Row) -> datetime:
    return datetime.fromtimestamp(row["store_timestamp"] / 1000, UTC)


def test_pushed_filters_read_fewer_bytes_of_the_log(store: Unpacker, bytes_read: list[int]) -> None:
    options = parse_options({"path": str(store("49-basic")), "splitsize": "4k"})
    schema = spark_schema(options.choice)
    everything = read_here(RocketMQReader(options, schema))
    whole = sum(bytes_read)
    middle = everything[340]
    cases: dict[str, tuple[list[ds.Filter], Callable[[Row], bool]]] = {
        "time": (
            [ds.GreaterThanOrEqual(("store_timestamp",), time_of(middle))],
            lambda row: row["store_timestamp"] >= middle["store_timestamp"],
        ),
        "end of time": (
            [ds.LessThan(("store_timestamp",), time_of(middle))],
            lambda row: row["store_timestamp"] < middle["store_timestamp"],
        ),
        "place": (
            [
                ds.GreaterThanOrEqual(("commitlog_offset",), middle["commitlog_offset"]),
                ds.LessThanOrEqual(("commitlog_offset",), middle["commitlog_offset"] + 20_000),
            ],
            lambda row: 0 <= row["commitlog_offset"] - middle["commitlog_offset"] <= 20_000,
        ),
        "nothing": ([ds.EqualTo(("commitlog_offset",), 1 << 60)], lambda row: False),
    }
    for name, (filters, wanted) in cases.items():
        bytes_read.clear()
        reader = PushingReader(options, schema)
        assert list(reader.pushFilters(filters)) == filters, "every filter is handed back"
        found = [row for row in read_here(reader) if wanted(row)]
        assert found == [row for row in everything if wanted(row)], name
        assert sum(bytes_read) < 0.8 * whole, name


COLUMNS = ("topic", "queue_id", "queue_offset", "commitlog_offset", "tags", "store_timestamp")
QUERIES = (
    "topic IN ('T_normal', 'T_delay') AND queue_id = 1",
    "startswith(topic, 'T_') AND queue_offset >= 2 AND queue_offset < 4",
    "store_timestamp >= timestamp_millis({time}) AND NOT (topic = 'T_normal')",
    "commitlog_offset BETWEEN 50000 AND 150000 OR topic LIKE '%DLQ%'",
    "tags = 'TagA' AND topic = 'T_normal'",
    "topic = 'no such topic'",
)


@pytest.fixture
def registered(spark: Any) -> Iterator[Callable[[bool], Any]]:
    """Give a way to register the source with push-down or without; afterwards all is as before."""
    from rmqtool.spark import register

    def by(pushes: bool) -> Any:
        spark.conf.set(CONF, "true" if pushes else "false")
        register(spark, push_filters=pushes)
        return spark.read.format("rocketmq").option("columns", ",".join(COLUMNS))

    yield by
    spark.conf.set(CONF, "true")
    register(spark)


def test_pushed_or_not_the_rows_are_the_same(registered: Callable[[bool], Any], store: Unpacker) -> None:
    path = str(store("54-broker"))
    time = truth("54-broker")["messages"][200]["storeTimestamp"]
    answers = []
    for pushes in (True, False):
        reader = registered(pushes)
        asked = [
            reader.load(path).filter(query.format(time=time)).selectExpr(f"{number} AS query", "*")
            for number, query in enumerate(QUERIES)
        ]
        answers.append(rows_of(reduce(lambda one, other: one.unionAll(other), asked).toArrow()))
    assert answers[0] == answers[1]
    assert {row["query"] for row in answers[0]} == set(range(len(QUERIES) - 1))


def test_pushed_filters_leave_splits_out(registered: Callable[[bool], Any], store: Unpacker) -> None:
    path = str(store("54-broker"))
    splits = [
        registered(pushes).load(path).filter("commitlog_offset < 65536").rdd.getNumPartitions()
        for pushes in (True, False)
    ]
    assert splits == [1, 4]


def test_dataframe_used_twice_has_all_its_rows(spark: Any, store: Unpacker) -> None:
    """Spark 4.1 to 4.3 would give the rows of the first filter for ever after: there nothing is pushed by itself."""
    frame = spark.read.format("rocketmq").load(str(store("54-broker")))
    normal, delay = frame.filter("topic = 'T_normal'"), frame.filter("topic = 'T_delay'")
    assert (normal.count(), delay.count(), frame.count()) == (140, 14, 418)
    assert normal.union(delay).count() == 154


def test_push_down_against_the_session_is_refused(spark: Any, registered: Callable[[bool], Any]) -> None:
    from rmqtool.spark import register

    registered(False)
    with pytest.raises(UsageError, match="does not push filters down"):
        register(spark, push_filters=True)


def test_source_found_by_its_name_alone_never_pushes(spark: Any) -> None:
    from pyspark_rocketmq import DefaultSource

    assert DefaultSource.name() == "rocketmq"
    reader = DefaultSource({"path": "/nowhere"}).reader(spark_schema(DEFAULT))
    assert type(reader).pushFilters is ds.DataSourceReader.pushFilters
