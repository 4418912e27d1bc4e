"""``rmqtool.polars.scan``: the rows of a query, and no more of the log and its columns than it needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import rmqtool
import rmqtool.polars
from rmqtool.errors import UsageError

Unpacker = Callable[[str], Path]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Remember what is asked of the store."""
    found: list[dict[str, Any]] = []

    def batches(stores: Any, **which: Any) -> Any:
        found.append(which)
        return rmqtool.batches(stores, **which)

    monkeypatch.setattr(rmqtool.polars, "batches", batches)
    return found


def test_a_query_reads_its_columns_and_its_topic(store: Unpacker, asked: list[dict[str, Any]]) -> None:
    frame = rmqtool.polars.scan(store("54-broker"))
    found = frame.filter(pl.col("topic") == "T_fifo", pl.col("queue_offset") < 5).select("keys", "queue_id").collect()
    whole = pl.DataFrame(rmqtool.batches(store("54-broker")))
    assert found.equals(
        whole.filter(pl.col("topic") == "T_fifo", pl.col("queue_offset") < 5).select("keys", "queue_id")
    )
    assert found.height == 10
    assert asked[-1] == {"columns": ["topic", "queue_id", "queue_offset", "keys"], "jobs": 1, "topics": ["T_fifo"]}


@pytest.mark.parametrize("turned", [False, True])
def test_a_window_of_time_bounds_the_read(store: Unpacker, asked: list[dict[str, Any]], turned: bool) -> None:
    whole = pl.DataFrame(rmqtool.batches(store("54-broker")))
    times = whole["store_timestamp"].sort()
    begin, end = times[100], times[200]
    time = pl.col("store_timestamp")
    window = (pl.lit(begin) <= time) & (pl.lit(end) > time) if turned else (time >= begin) & (time < end)
    found = rmqtool.polars.scan(store("54-broker")).filter(window).select("commitlog_offset").collect()
    assert sorted(found["commitlog_offset"]) == sorted(whole.filter(window)["commitlog_offset"])
    assert found.height
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert asked[-1]["begin"] == (begin - epoch) // timedelta(milliseconds=1)
    assert asked[-1]["end"] == (end - epoch) // timedelta(milliseconds=1) + 1


def test_conditions_that_bound_nothing_are_applied(store: Unpacker, asked: list[dict[str, Any]]) -> None:
    whole = pl.DataFrame(rmqtool.batches(store("54-broker")))
    for condition in (
        (pl.col("topic") == "T_fifo") | (pl.col("topic") == "T_pop"),
        ~(pl.col("topic") == "T_fifo"),
        pl.col("topic").str.starts_with("T_") & (pl.col("flag") == 0),
    ):
        found = rmqtool.polars.scan(store("54-broker")).filter(condition).collect()
        assert found.height == whole.filter(condition).height > 0
        assert not {"topics", "begin", "end"} & set(asked[-1])
    assert rmqtool.polars.scan(store("54-broker")).head(7).collect().height == 7
    assert rmqtool.polars.scan(store("54-broker"), topics="none").collect().schema == whole.schema


def test_several_stores_in_one_stream(store: Unpacker) -> None:
    roots = [store("54-broker"), store("53-broker")]
    table = rmqtool.batches(roots, columns=["broker", "topic"]).read_all()
    counts = [rmqtool.batches(root).read_all().num_rows for root in roots]
    assert table.num_rows == sum(counts)
    assert [table["broker"].to_pylist().count(name) for name in dict.fromkeys(table["broker"].to_pylist())] == counts
    assert rmqtool.polars.scan(roots).select(pl.len()).collect().item() == sum(counts)
    with pytest.raises(UsageError, match="is named 2 times"):
        rmqtool.batches([roots[0], roots[0]]).read_all()


def test_duckdb_reads_a_stream_by_its_name(store: Unpacker) -> None:
    stream = rmqtool.batches(store("54-broker"), topics="T_fifo", columns=["topic", "keys"])
    assert duckdb.sql("SELECT count(*) FROM stream").fetchall() == [(30,)]
    assert stream.schema.names == ["topic", "keys"]
