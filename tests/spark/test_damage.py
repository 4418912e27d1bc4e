"""Damaged stores as tables: every message outside the damage is a row, and with ``emit`` so is each damaged range."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.errors import StoreError
from rmqtool.exports.choice import DEFAULT, OnCorrupt
from tests.builders import queue_unit
from tests.damaged import VERSIONS, Workshop, mutations, sample
from tests.exported import Row, export, read, rows_of

pytest.importorskip("pyspark")

from rmqtool.spark.options import parse_options
from rmqtool.spark.reader import RocketMQReader
from rmqtool.spark.schema import spark_schema

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
    with pytest.raises(StoreError, match="ST-MOUNT: the commit log is empty, yet queues exist"):
        rows(tmp_path, "128m")


@pytest.mark.parametrize("split_size", ["4096", "20000", "2g"])
def test_zeros_in_the_last_file_are_told_wherever_a_split_ends(split_size: str, tmp_path: Path) -> None:
    mutation = mutations("5.4.0")["A/fuzz-113"]
    with Workshop(tmp_path).damaged("5.4.0", mutation, abort=False) as root:
        told = [row for row in rows(root, split_size) if row["record_status"] is not None]
    place = "commitlog/00000000000000393216@9694"
    assert [(row["commitlog_offset"], row["record_status"]) for row in told] == [
        (393216 + 9694, f"CL-MAGIC: zeros where queues name messages ({place})")
    ]
