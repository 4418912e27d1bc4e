"""Whole exports without Spark: every fixture, any split, damage, and what is new since the last time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtool.exports.choice import DEFAULT, OnCorrupt
from rmqtool.exports.parquet import PartitionBy
from rmqtool.exports.run import local_engine
from rmqtool.exports.splits import plan_sources
from rmqtool.log.ranges import Effort
from tests.support.exported import expected_rows, export, part_files, read, rows_of
from tests.support.growing_store import GrowingStore
from tests.support.stores import STORES, left_alone, tree_state, varied_stores

Unpacker = Callable[[str], Path]
SKIP = replace(DEFAULT, on_corrupt=OnCorrupt.SKIP)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def digests(to: Path) -> dict[str, str | None]:
    """Return what the files of a target hold; the manifest's own numbers aside."""
    return {name: state.digest for name, state in tree_state(to).items() if name.endswith(".parquet")}


@pytest.fixture(scope="module")
def everything(store: Unpacker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give one export of all stores."""
    to = tmp_path_factory.mktemp("everything") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        outcome = export(to, *map(store, STORES), choice=SKIP)
    assert outcome.rows > 9000
    return to


def test_all_stores_in_one_export_equal_their_truth(everything: Path, store: Unpacker) -> None:
    expected = [row for name in STORES for row in expected_rows(name, store(name).parent.name)]
    found = rows_of(read(everything))
    assert found == expected
    assert found == rows_of(pq.read_table(everything))


def test_duckdb_reads_what_pyarrow_reads(everything: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"epoch_ms({name}) AS {name}" if "_timestamp" in name else name for name in DEFAULT.columns)
        query = f"SELECT {columns} FROM read_parquet('{everything}/*.parquet') ORDER BY broker, commitlog_offset"
        found = rows_of(connection.sql(query).to_arrow_table())
    expected = sorted(rows_of(read(everything)), key=lambda row: (row["broker"], row["commitlog_offset"]))
    assert found == expected


@varied_stores
def test_every_split_size_gives_the_same_rows(name: str, store: Unpacker, tmp_path: Path) -> None:
    columns = ("queue_offset", "commitlog_offset", "msg_id")
    whole = replace(SKIP, columns=columns)
    export(tmp_path / "whole", store(name), choice=whole)
    expected = read(tmp_path / "whole")
    for size in (4 << 10, 7_001, 32 << 10):
        target = tmp_path / str(size)
        export(target, store(name), choice=replace(whole, split_size=size))
        assert read(target).equals(expected), size


def test_threads_write_the_same_files(store: Unpacker, tmp_path: Path) -> None:
    root = store("49-basic")
    for jobs in (1, 3):
        export(tmp_path / str(jobs), root, choice=SKIP, engine=local_engine(Effort(jobs)))
    assert digests(tmp_path / "1") == digests(tmp_path / "3")
    assert len(digests(tmp_path / "1")) == 8


def test_schema_has_its_version_and_typed_times(store: Unpacker, tmp_path: Path) -> None:
    export(tmp_path / "out", store("54-broker"))
    schema = pq.ParquetFile(part_files(tmp_path / "out")[0]).schema_arrow
    assert schema.metadata[b"rmqtool.schema_version"] == b"1"
    assert schema.field("store_timestamp").type == pa.timestamp("ms", "UTC")
    assert schema.field("properties").type == pa.map_(pa.utf8(), pa.utf8())
    assert schema.names == list(DEFAULT.columns)


def test_export_leaves_the_store_alone(writable_store: Unpacker, tmp_path: Path) -> None:
    root = writable_store("54-broker")
    with left_alone(root):
        export(tmp_path / "out", root, choice=replace(SKIP, split_size=4 << 10))


def test_lock_that_is_a_directory_stops_no_reader(writable_store: Unpacker, tmp_path: Path) -> None:
    root = writable_store("54-broker")
    (root / "lock").unlink()
    (root / "lock").mkdir()
    assert export(tmp_path / "out", root, choice=SKIP).rows == 418


def test_paths_are_those_of_any_process(store: Unpacker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor has another current directory."""
    root = store("54-broker")
    monkeypatch.chdir(root.parent)
    (source,) = plan_sources(["store"], SKIP)
    monkeypatch.chdir("/")
    assert source.log.root == str(root)
    with source.ranges[0].file.open() as opened:
        assert opened.size() == 65536


def test_choice_of_messages_and_columns(store: Unpacker, tmp_path: Path) -> None:
    choice = replace(SKIP, topics=("T_*",), queue_id=1, columns=("topic", "queue_id", "body"), body="none")
    outcome = export(tmp_path / "out", store("54-broker"), choice=choice)
    rows = rows_of(read(tmp_path / "out"))
    expected = [row for row in expected_rows("54-broker", "") if row["topic"].startswith("T_") and row["queue_id"] == 1]
    assert rows == [{"topic": row["topic"], "queue_id": 1, "body": None} for row in expected]
    assert outcome.rows == len(expected) > 0


def test_time_window_reads_only_its_segments(store: Unpacker, tmp_path: Path) -> None:
    rows = expected_rows("49-basic", "")
    begin, end = rows[200]["store_timestamp"], rows[300]["store_timestamp"]
    outcome = export(tmp_path / "out", store("49-basic"), choice=replace(SKIP, begin=begin, end=end))
    found = [row["commitlog_offset"] for row in rows_of(read(tmp_path / "out"))]
    assert found == [row["commitlog_offset"] for row in rows if begin <= row["store_timestamp"] < end]
    assert outcome.source_bytes < 0.5 * export(tmp_path / "all", store("49-basic"), choice=SKIP).source_bytes


def test_partitions_keep_every_row(store: Unpacker, tmp_path: Path) -> None:
    by = (PartitionBy.DAY, PartitionBy.TOPIC)
    export(tmp_path / "out", store("54-broker"), choice=SKIP, partition_by=by)
    table = pq.read_table(tmp_path / "out")
    assert table["topic_part"].to_pylist() == table["topic"].to_pylist()
    rows = rows_of(table.select(DEFAULT.columns))
    expected = expected_rows("54-broker", rows[0]["broker"])
    assert sorted(rows, key=lambda row: row["commitlog_offset"]) == expected


def test_topics_of_digits_stay_texts(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "store", topic="20260101")
    store.append(5)
    export(tmp_path / "out", store.root, partition_by=(PartitionBy.TOPIC,))
    assert [path.parent.name for path in part_files(tmp_path / "out")] == ["topic_part=20260101"]
    table = pq.read_table(tmp_path / "out")
    assert table["topic"].to_pylist() == ["20260101"] * 5
    assert table.schema.field("topic").type == pa.utf8()


def test_empty_store_gives_a_file_without_rows(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "consumequeue").mkdir()
    outcome = export(tmp_path / "out", tmp_path / "store")
    assert (outcome.rows, len(outcome.files)) == (0, 1)
    table = pq.read_table(tmp_path / "out")
    assert (table.num_rows, table.column_names) == (0, list(DEFAULT.columns))


def test_record_larger_than_a_split(tmp_path: Path) -> None:
    from tests.support.builders import record

    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "consumequeue").mkdir()
    bodies = [b"a", b"x" * 300_000, b"b", b"y" * 50_000]
    data = b""
    for number, body in enumerate(bodies):
        data += record(body, queue_offset=number, physical_offset=len(data))
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_bytes(data.ljust(1 << 20, b"\0"))
    export(tmp_path / "out", tmp_path / "store", choice=replace(DEFAULT, split_size=4 << 10))
    assert read(tmp_path / "out")["body"].to_pylist() == bodies


def test_body_that_looks_like_a_record_in_its_place_is_no_message(tmp_path: Path) -> None:
    """A split begins inside a body that holds a record which says the very place it stands at."""
    from tests.support.builders import record

    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "consumequeue").mkdir()
    head = 88
    inner_at = head + 4096
    forged = record(b"forged", queue_offset=99, physical_offset=inner_at)
    first = record(b"." * 4096 + forged + b"." * 100, physical_offset=0)
    second = record(b"true", queue_offset=1, physical_offset=len(first))
    data = first + second
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_bytes(data.ljust(64 << 10, b"\0"))
    export(tmp_path / "out", tmp_path / "store", choice=replace(DEFAULT, split_size=4 << 10))
    assert read(tmp_path / "out")["queue_offset"].to_pylist() == [0, 1]
