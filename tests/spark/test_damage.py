"""Damaged stores as tables: every message outside the damage is a row, and with ``emit`` so is each damaged range."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

import rmqtool
from rmqtool.errors import StoreError, UsageError
from rmqtool.exports.choice import DEFAULT, OnCorrupt
from rmqtool.exports.splits import WriteWork, plan_sources
from tests.support.builders import queue_unit
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.exported import Row, export, read, rows_of

pytest.importorskip("pyspark")

from rmqtool.spark.job import _try_all
from rmqtool.spark.options import parse_options
from rmqtool.spark.reader import RocketMQReader, Split
from rmqtool.spark.schema import spark_schema

Unpacker = Callable[[str], Path]
COLUMNS = ("topic", "queue_offset", "commitlog_offset", "body")


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def rows(root: Path, split_size: str) -> list[Row]:
    """Read every split in this process, as executors would."""
    words = {"path": str(root), "oncorrupt": "emit", "columns": ",".join(COLUMNS), "splitsize": split_size}
    options = parse_options(words)
    reader = RocketMQReader(options, spark_schema(options.choice))
    return [row for split in reader.partitions() for batch in reader.read(split) for row in rows_of(batch)]


@pytest.mark.parametrize(
    ("version", "count"),
    [(VERSIONS[-1], 3), *(pytest.param(version, 60, marks=pytest.mark.slow) for version in VERSIONS)],
)
def test_tables_hold_what_exports_hold(version: str, count: int, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    every = mutations(version)
    choice = replace(DEFAULT, on_corrupt=OnCorrupt.EMIT, columns=COLUMNS)
    told = 0
    for key in sample(version, count, seed=15):
        with workshop.damaged(version, every[key], abort=False) as root:
            try:
                found = {split_size: rows(root, split_size) for split_size in ("20000", "2g")}
                outcome = export(tmp_path / "out" / key, root, choice=choice)
            except StoreError:
                assert not list(root.glob("commitlog/*")), key
                continue
        expected = rows_of(read(tmp_path / "out" / key)) if outcome.rows else []
        damages = sorted(damage.code for _, damage in outcome.damages)
        for split_size, all_rows in found.items():
            sound = [row for row in all_rows if row["record_status"] is None or row["body"] is not None]
            assert [{name: row[name] for name in COLUMNS} for row in sound] == expected, (key, split_size)
            statuses = [row["record_status"] for row in all_rows if row["record_status"] is not None]
            assert sorted(status.partition(":")[0] for status in statuses) == damages, (key, split_size)
        told += len(damages)
    assert told > 0


def test_log_that_is_gone_beside_its_queues_is_no_empty_table(tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    (queue / f"{0:020}").write_bytes(queue_unit(0, 100, 0))
    with pytest.raises(StoreError, match="ST-MOUNT: the commit log is empty but queues exist"):
        rows(tmp_path, "128m")


@pytest.mark.parametrize("split_size", ["4096", "20000", "2g"])
def test_zeros_in_the_last_file_are_told_wherever_a_split_ends(split_size: str, tmp_path: Path) -> None:
    mutation = mutations("5.4.0")["A/fuzz-113"]
    with Workshop(tmp_path).damaged("5.4.0", mutation, abort=False) as root:
        told = [row for row in rows(root, split_size) if row["record_status"] is not None]
    place = "commitlog/00000000000000393216@9694"
    assert [(row["commitlog_offset"], row["record_status"]) for row in told] == [
        (393216 + 9694, f"CL-MAGIC: zeros where queues expect messages ({place})")
    ]


def test_each_missing_range_of_a_gap_has_its_own_place(writable_store: Unpacker) -> None:
    """A file was cut and the one after it is gone."""
    root = writable_store("54-broker")
    os.truncate(root / "commitlog" / f"{65536:020}", 30000)
    (root / "commitlog" / f"{131072:020}").unlink()
    told = [row for row in rows(root, "2g") if (row["record_status"] or "").startswith(("CL-SIZE", "CL-GAP"))]
    assert [(row["commitlog_offset"], row["record_status"].partition(":")[0]) for row in told] == [
        (65536 + 30000, "CL-SIZE"),
        (131072, "CL-GAP"),
    ]


def test_a_missing_tier_is_a_warning(writable_store: Unpacker) -> None:
    root = writable_store("tiers/53-tier")
    shutil.rmtree(root / "tier")
    with pytest.warns(UserWarning, match="does not exist: older messages are not read"):
        assert len(rows(root, "2g")) == 47


def test_files_of_a_tier_do_not_count_for_the_usual_size(store: Unpacker) -> None:
    options = parse_options({"path": str(store("tiers/53-tier"))})
    splits = RocketMQReader(options, spark_schema(options.choice)).partitions()
    assert {split.usual_size for split in splits if isinstance(split, Split)} == {65536}


def test_a_tier_does_not_hide_an_unmounted_log(writable_store: Unpacker) -> None:
    root = writable_store("tiers/53-tier")
    for file in (root / "commitlog").iterdir():
        file.unlink()
    options = parse_options({"path": str(root)})
    with pytest.raises(StoreError, match="ST-MOUNT"):
        RocketMQReader(options, spark_schema(options.choice)).partitions()


def _lose(path: Path, how: str) -> None:
    """Let a machine see of a file what it sees without the disk, or with an old copy."""
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, 4096)


@pytest.mark.parametrize("how", ["gone", "short"])
@pytest.mark.parametrize("on_corrupt", OnCorrupt)
def test_what_an_executor_cannot_open_is_never_damage(
    on_corrupt: OnCorrupt, how: str, writable_store: Unpacker
) -> None:
    root = writable_store("49-basic")
    options = parse_options({"path": str(root), "oncorrupt": on_corrupt, "splitsize": "20000"})
    reader = RocketMQReader(options, spark_schema(options.choice))
    splits = reader.partitions()
    _lose(root / "commitlog" / f"{65536:020}", how)
    refused = read = 0
    for split in splits:
        assert isinstance(split, Split)
        if split.asked.file.base_offset == 65536:
            with pytest.raises(StoreError, match=gethostname()) as caught:
                list(reader.read(split))
            assert "every machine must have the store" in str(caught.value)
            refused += 1
        else:
            read += sum(batch.num_rows for batch in reader.read(split))
    assert refused > 1
    assert read > 300


@pytest.mark.parametrize("how", ["gone", "short"])
def test_a_task_of_an_export_says_what_it_cannot_open(how: str, writable_store: Unpacker, tmp_path: Path) -> None:
    root = writable_store("49-basic")
    (source,) = plan_sources([str(root)], DEFAULT)
    _lose(root / "commitlog" / f"{65536:020}", how)
    work = WriteWork(str(tmp_path), "part", source.broker, source.choice, source.plan.queues)
    answers = list(_try_all([work], [(0, asked, None) for asked in source.ranges]))
    for asked, answer in zip(source.ranges, answers, strict=True):
        assert isinstance(answer, StoreError) == (asked.file.base_offset == 65536)


@pytest.mark.parametrize("split_size", ["4096", "128m"])
@pytest.mark.parametrize("name", ["53-compaction"])
def test_a_compaction_log_has_no_damage(name: str, split_size: str, store: Unpacker, tmp_path: Path) -> None:
    """Compacted files are shorter than the log that their names count, and end in room that nobody will fill."""
    seen = 0
    for directory in sorted((store(name) / "compaction" / "compactionLog").glob("*/*")):
        messages = list(rmqtool.scan(directory))
        assert not any("damage" in message for message in messages)
        found = rows(directory, split_size)
        assert [row["record_status"] for row in found] == [None] * len(messages)
        wanted = [(message["topic"], message["queueOffset"]) for message in messages]
        assert [(row["topic"], row["queue_offset"]) for row in found] == wanted
        outcome = export(tmp_path / directory.parent.name / directory.name, directory)
        assert (outcome.rows, outcome.damages) == (len(messages), [])
        with pytest.raises(UsageError, match="is a compaction log, which brokers rewrite"):
            export(tmp_path / "again", directory, since_last=True)
        seen += len(messages)
    assert seen > 70


@pytest.mark.parametrize("option", ["owner", "location"])
def test_a_table_of_the_catalog_is_refused_with_what_to_type(option: str) -> None:
    with pytest.raises(UsageError, match="a catalog table cannot use rocketmq") as caught:
        parse_options({option: "x"})
    assert "CREATE TEMPORARY VIEW stored USING rocketmq OPTIONS (path " in (caught.value.hint or "")
