"""Files of one task: a file for each partition, rows in their order, bounded memory, names that readers understand."""

from __future__ import annotations

import os
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rmqtool.errors import NoSpace
from rmqtool.exports import parquet as module
from rmqtool.exports.parquet import Layout, PartFile, PartitionBy, PartWriter

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.utf8()),
        pa.field("commitlog_offset", pa.int64()),
        pa.field("store_timestamp", pa.timestamp("ms", "UTC")),
        pa.field("body", pa.binary()),
        pa.field("properties", pa.map_(pa.utf8(), pa.utf8())),
    ],
    metadata={b"version": b"1"},
)
DAY = 86_400_000
Row = tuple[str, int, int | None]


def test_a_key_is_found_by_its_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that looks for one key reads at most a tenth of the row groups; for an absent key hardly any."""
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    drawn = random.Random(7)
    keys = [f"order-{drawn.getrandbits(64):x}" for _ in range(4000)]
    schema = pa.schema([pa.field("keys", pa.utf8()), pa.field("commitlog_offset", pa.int64())])
    writer = PartWriter(str(tmp_path), "part", schema)
    for at in range(0, len(keys), 100):
        columns = [pa.array(keys[at : at + 100]), pa.array(range(at, at + 100))]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    (file,) = writer.close()
    path = tmp_path / file.path
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == 40
    assert [column.column_index for column in metadata.row_group(0).sorting_columns] == [1]
    assert metadata.row_group(0).column(0).has_column_index
    for key, most in ((keys[1234], 4), ("order-absent", 2)):
        probe = f"SELECT count(*) FROM parquet_bloom_probe('{path}', 'keys', '{key}') WHERE NOT bloom_filter_excludes"
        ((read,),) = duckdb.sql(probe).fetchall()
        assert read <= most
    assert duckdb.sql(f"SELECT commitlog_offset FROM '{path}' WHERE keys = '{keys[1234]}'").fetchall() == [(1234,)]


def test_row_groups_are_sorted_by_topic_and_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of the order that a file has; and a rare topic is in few pages of a row group."""
    monkeypatch.setattr(module, "MOST_ROWS", 20_000)
    drawn = random.Random(3)
    rows = [
        ("rare" if number % 500 == 250 else f"T{drawn.randrange(9)}", number % 4, number) for number in range(60_000)
    ]
    fields = {"commitlog_offset": pa.int64(), "topic": pa.utf8(), "queue_id": pa.int32()}
    schema = pa.schema([pa.field(name, kind) for name, kind in fields.items()])
    writer = PartWriter(str(tmp_path), "part", schema, Layout(clustered=True))
    for at in range(0, len(rows), 5000):
        topics, queues, offsets = zip(*rows[at : at + 5000], strict=True)
        columns = [
            pa.array(values, kind) for values, kind in zip((offsets, topics, queues), fields.values(), strict=True)
        ]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    (file,) = writer.close()
    found = pq.ParquetFile(tmp_path / file.path)
    assert found.num_row_groups == 3
    assert [column.column_index for column in found.metadata.row_group(2).sorting_columns] == [1, 2]
    for number in range(3):
        group = found.read_row_group(number)
        places = list(zip(group["topic"].to_pylist(), group["queue_id"].to_pylist(), strict=True))
        assert places == sorted(places)
        # Messages of a queue keep the order of the log.
        own = [
            offset
            for topic, offset in zip(group["topic"].to_pylist(), group["commitlog_offset"].to_pylist(), strict=True)
            if topic == "rare"
        ]
        assert len(own) == 40
    every = found.read().sort_by("commitlog_offset")
    assert (
        list(zip(*(every[name].to_pylist() for name in ("topic", "queue_id", "commitlog_offset")), strict=True)) == rows
    )


def batch(*rows: Row) -> pa.RecordBatch:
    topics, offsets, times = zip(*rows, strict=True)
    columns = [
        pa.array(topics, pa.utf8()),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.timestamp("ms", "UTC")),
        pa.array([b"x" * 10] * len(rows), pa.binary()),
        pa.array([[("k", topic)] for topic in topics], pa.map_(pa.utf8(), pa.utf8())),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(root: Path, batches: list[pa.RecordBatch], *by: PartitionBy) -> list[PartFile]:
    writer = PartWriter(str(root), "part-0001-00000", SCHEMA, Layout(by))
    for one in batches:
        writer.write(one)
    return writer.close()


def offsets(path: Path) -> list[int]:
    found: list[int] = pq.ParquetFile(path).read(["commitlog_offset"])["commitlog_offset"].to_pylist()
    return found


def test_one_file_keeps_rows_order_types_and_metadata(tmp_path: Path) -> None:
    files = write(tmp_path, [batch(("a", 1, DAY), ("b", 2, None)), batch(("a", 3, 2 * DAY))])
    path = tmp_path / "part-0001-00000.parquet"
    assert files == [PartFile("part-0001-00000.parquet", 3, path.stat().st_size)]
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.schema.metadata[b"version"] == b"1"
    assert table["commitlog_offset"].to_pylist() == [1, 2, 3]
    assert table["properties"].to_pylist() == [[("k", "a")], [("k", "b")], [("k", "a")]]
    columns = [pq.ParquetFile(path).metadata.row_group(0).column(at) for at in range(6)]
    assert {column.compression for column in columns} == {"ZSTD"}
    assert [column.statistics is not None for column in columns] == [True, True, True, False, False, False]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write(tmp_path / "none", []) == []
    assert not (tmp_path / "none").exists()


def test_partitions_have_directories_that_readers_take_apart(tmp_path: Path) -> None:
    rows = [("%RETRY%g", 1, DAY), ("20260101", 2, DAY), ("a=b/c", 3, None), ("%RETRY%g", 4, DAY), ("a b", 5, 40 * DAY)]
    files = write(tmp_path, [batch(*rows)], PartitionBy.DAY, PartitionBy.TOPIC)
    name = "part-0001-00000.parquet"
    assert [(file.path, file.rows) for file in files] == [
        (f"dt=1970-01-02/topic_part=%25RETRY%25g/{name}", 2),
        (f"dt=1970-01-02/topic_part=20260101/{name}", 1),
        (f"dt=1970-02-10/topic_part=a b/{name}", 1),
        (f"dt=__HIVE_DEFAULT_PARTITION__/topic_part=a%3Db%2Fc/{name}", 1),
    ]
    assert offsets(tmp_path / files[0].path) == [1, 4]
    partitioning = ds.partitioning(pa.schema([("dt", pa.utf8()), ("topic_part", pa.utf8())]), flavor="hive")
    table = ds.dataset(tmp_path, partitioning=partitioning).to_table()
    assert table["topic_part"].to_pylist() == table["topic"].to_pylist()
    assert sorted(table["commitlog_offset"].to_pylist()) == [1, 2, 3, 4, 5]


def test_topic_longer_than_any_name_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    topics = ["%" * 127, "%" * 126, "é" * 100]
    files = write(tmp_path, [batch(*((topic, at, DAY) for at, topic in enumerate(topics)))], PartitionBy.TOPIC)
    assert len({os.path.dirname(file.path) for file in files}) == 3
    assert sorted(pq.ParquetFile(tmp_path / file.path).read()["topic"][0].as_py() for file in files) == sorted(topics)


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_days_that_no_calendar_has_are_no_days(unit: str) -> None:
    times = [0, DAY - 1, DAY, 2**53, None]
    scale = 1000 if unit == "us" else 1
    column = pa.array([time and time * scale for time in times], pa.timestamp(unit, "UTC"))
    assert module._days(column).to_pylist() == [0, 0, 1, None, None]


def test_row_groups_are_bounded_by_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    files = write(tmp_path, [batch(("a", at, DAY), ("a", at + 1, DAY)) for at in range(0, 10, 2)])
    metadata = pq.ParquetFile(tmp_path / files[0].path).metadata
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [4, 4, 2]
    assert offsets(tmp_path / files[0].path) == list(range(10))
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    files = write(tmp_path / "more", [batch(("a", 1, DAY)), batch(("a", 2, DAY))])
    assert pq.ParquetFile(tmp_path / "more" / files[0].path).metadata.num_row_groups == 2


def test_many_partitions_hold_little_and_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    monkeypatch.setattr(module, "MOST_HELD", 1)
    rows: list[Row] = [(f"t{at % 7}", at, DAY) for at in range(70)]
    writer = PartWriter(str(tmp_path), "part-0001-00000", SCHEMA, Layout((PartitionBy.TOPIC,)))
    for row in rows:
        writer.write(batch(row))
        assert len(writer._open) <= 3
        assert writer._held == 0
    files = writer.close()
    for topic in range(7):
        own = [file for file in files if file.path.startswith(f"topic_part=t{topic}/")]
        found = [offset for file in own for offset in offsets(tmp_path / file.path)]
        assert sorted(found) == list(range(topic, 70, 7))
        assert sum(file.rows for file in own) == 10
        assert all(offsets(tmp_path / file.path) == sorted(offsets(tmp_path / file.path)) for file in own)


def test_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.pq, "ParquetWriter", Full)
    with pytest.raises(NoSpace, match="No space left on device; the target was left unchanged") as full:
        write(tmp_path, [batch(("a", 1, DAY))])
    assert full.value.file == str(tmp_path / "part-0001-00000.parquet")


def test_full_disk_in_the_midst_of_a_file(tmp_path: Path) -> None:
    """The device that is always full says what a full disk does."""
    (tmp_path / "part-0001-00000.parquet").symlink_to("/dev/full")
    with pytest.raises(NoSpace, match="No space left on device; the target was left unchanged") as full:
        write(tmp_path, [batch(("a", 1, DAY))] * 3)
    assert full.value.hint == "free some space, or export to another disk (--to)"
