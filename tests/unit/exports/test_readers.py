"""What others read of an export: nothing but messages is under a target, with damage or without, flat or by day."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import rmqtool
from rmqtool.exports.choice import DEFAULT, OnCorrupt
from rmqtool.exports.parquet import PartitionBy
from tests.support.exported import export
from tests.support.stores import truth

Unpacker = Callable[[str], Path]
PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Read with DuckDB") : PAGE.index("## Read with Spark")]
PROGRAMS = re.findall(r"^```python\n(import (\w+)\n.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)

ROWS = 682
FLIPPED = next(
    message["commitLogOffset"]
    for message in truth("49-basic")["messages"]
    if message["commitLogOffset"] >= 65536 and message["storedBodyLength"]
)
EMIT = replace(DEFAULT, on_corrupt=OnCorrupt.EMIT, split_size=20 << 10)


@pytest.fixture
def lake(writable_store: Unpacker, tmp_path: Path) -> Path:
    """Two exports of a store with one damaged message: flat, in two goes, and by day."""
    root = writable_store("49-basic")
    path = root / "commitlog" / f"{65536:020}"
    data = bytearray(path.read_bytes())
    data[FLIPPED - 65536 + 88] ^= 1
    path.write_bytes(data)
    export(tmp_path / "lake" / "messages", root, choice=EMIT)
    export(tmp_path / "lake" / "days", root, choice=EMIT, partition_by=(PartitionBy.DAY,))
    return tmp_path / "lake"


def _count(found: Any) -> int:
    return found.shape[0] if hasattr(found, "shape") else len(found)


def test_only_data_of_one_schema_is_under_a_target(lake: Path) -> None:
    assert sorted(path.name for path in lake.iterdir()) == [
        *("days", "days_damage", "days_manifest"),
        *("messages", "messages_damage", "messages_manifest"),
    ]
    for name in ("messages", "days"):
        files = [path for path in (lake / name).rglob("*") if path.is_file()]
        assert {path.suffix for path in files} == {".parquet"}
        assert len({str(ds.dataset(path).schema) for path in files}) == 1


@pytest.mark.parametrize(("program", "reader"), PROGRAMS, ids=[reader for _, reader in PROGRAMS])
def test_the_guide_shows_what_works(program: str, reader: str, lake: Path) -> None:
    found: dict[str, Any] = {}
    exec(compile(program.replace("/lake", str(lake)), "docs/spark.md", "exec"), found)
    assert _count(found["messages"]) == ROWS
    assert _count(found["damage"]) == 1
    days = found["by_day"]
    rows = {"duckdb": "fetchall", "polars": "rows", "pandas": "items"}[reader]
    assert sum(row[1] for row in getattr(days, rows)()) == ROWS


def test_the_guide_has_a_program_for_each_reader() -> None:
    assert [reader for _, reader in PROGRAMS] == ["duckdb", "polars", "pandas"]


@pytest.mark.parametrize(("reader", "take"), [("pyarrow", "table"), ("duckdb", "from_arrow"), ("polars", "DataFrame")])
def test_streams_are_read_without_an_export(reader: str, take: str, store: Unpacker) -> None:
    module = import_module(reader)
    stream = rmqtool.batches(store("54-broker"), topics="T_fifo", columns=["topic", "keys", "body"])
    assert getattr(module, take)(stream).shape == (30, 3)
    assert f"{reader}.{take}(" in SECTION
