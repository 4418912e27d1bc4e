"""``rmqtool export --format delta``: a table that others read, each message in it once, also beside another writer."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rmqtool.api.produce import put
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.object_storage import ObjectStorage, object_storage
from tests.support.stores import left_alone

Unpacker = Callable[[str], Path]
LOCAL = ("--format", "delta", "--engine", "local", "--quiet")


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as served:
        yield served


def export(root: str | Path, to: str | Path, *words: str | Path) -> int:
    return main(["export", str(root), "--to", str(to), *LOCAL, *map(str, words)])


def rows_of(table: DeltaTable) -> pa.Table:
    return pa.table(table.to_pyarrow_table()).sort_by("commitlog_offset")


def test_a_table_that_others_read(store: Unpacker, tmp_path: Path) -> None:
    root = store("54-broker")
    with left_alone(root):
        assert export(root, tmp_path / "t") == Exit.DONE
    assert main(["export", str(root), "--to", str(tmp_path / "p"), "--engine", "local", "--quiet"]) == Exit.DONE
    plain = pq.read_table(tmp_path / "p").sort_by("commitlog_offset")
    assert pl.read_delta(str(tmp_path / "t")).height == plain.num_rows == 418
    found = (
        duckdb.sql(f"SELECT count(*), min(store_timestamp) FROM delta_scan('{tmp_path}/t')") if _has_delta() else None
    )
    assert found is None or found.fetchall()[0][0] == 418
    table = rows_of(DeltaTable(tmp_path / "t"))
    assert table.column_names == plain.column_names
    for name in plain.column_names:
        assert table[name].to_pylist() == plain[name].to_pylist(), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "p_manifest", "t", "t_manifest"]


def _has_delta() -> bool:
    """Return whether DuckDB has its extension here; it is loaded from the network."""
    try:
        duckdb.sql("LOAD delta")
    except duckdb.Error:
        return False
    return True


def test_files_are_left_out_by_their_statistics(store: Unpacker, tmp_path: Path) -> None:
    assert export(store("54-broker"), tmp_path / "t", "--split-size", "64k") == Exit.DONE
    table = DeltaTable(tmp_path / "t")
    actions = pa.table(table.get_add_actions(flatten=True))
    assert sum(actions["num_records"].to_pylist()) == 418
    least, most = actions["min.commitlog_offset"].to_pylist(), actions["max.commitlog_offset"].to_pylist()
    assert actions.num_rows > 2
    assert all(high < low for high, low in zip(sorted(most), sorted(least)[1:], strict=False))
    read = pa.table(table.to_pyarrow_table(filters=[("commitlog_offset", "<", 5000)]))
    assert read["commitlog_offset"].to_pylist() == [
        offset for offset in rows_of(table)["commitlog_offset"].to_pylist() if offset < 5000
    ]


@pytest.mark.parametrize("by", ["day", "topic"])
def test_partitions_are_columns_of_the_table(store: Unpacker, tmp_path: Path, by: str) -> None:
    assert export(store("54-broker"), tmp_path / "t", "--partition-by", by) == Exit.DONE
    table = rows_of(DeltaTable(tmp_path / "t"))
    assert table.num_rows == 418
    if by == "topic":
        assert table["topic_part"].to_pylist() == table["topic"].to_pylist()
    else:
        days = [time.date() for time in table["store_timestamp"].to_pylist()]
        assert table["dt"].to_pylist() == days


def test_only_what_is_new_is_added(writable_store: Unpacker, tmp_path: Path) -> None:
    root = writable_store("49-lmq")
    for _ in range(2):
        assert export(root, tmp_path / "t", "--since-last") == Exit.DONE
    table = DeltaTable(tmp_path / "t")
    assert (rows_of(table).num_rows, table.version()) == (200, 0)
    put(root, [{"topic": "New", "body": "hello"}], create=True)
    assert export(root, tmp_path / "t", "--since-last") == Exit.DONE
    table = DeltaTable(tmp_path / "t")
    assert (rows_of(table).num_rows, table.version()) == (201, 1)
    (manifest,) = [json.loads(path.read_text()) for path in (tmp_path / "t_manifest").glob("000002-*")]
    ((broker, read),) = manifest["read"].items()
    assert table.transaction_version(f"rmqtool/{broker}") == read["endCommitLogOffset"]


@pytest.mark.parametrize("torn", [b"", bytes(700), b'{"commitInfo":{}}\n{"add":{"pa'], ids=["empty", "zeros", "half"])
def test_a_commit_that_a_power_cut_tore_is_made_again(writable_store: Unpacker, tmp_path: Path, torn: bytes) -> None:
    root, to = writable_store("49-lmq"), tmp_path / "t"
    assert export(root, to, "--since-last") == Exit.DONE
    put(root, [{"topic": "New", "body": "hello"}], create=True)
    # An export makes its manifest durable before its commit.
    (first,) = (tmp_path / "t_manifest").iterdir()
    first.with_name("000002-0a0b0c0d.json").write_text(first.read_text().replace('"number": 1', '"number": 2'))
    entry = to / f"_delta_log/{1:020}.json"
    entry.write_bytes(torn)
    assert export(root, to) == Exit.REFUSED
    assert entry.read_bytes() == torn
    assert export(root, to, "--since-last") == Exit.DONE
    table = DeltaTable(to)
    assert (rows_of(table).num_rows, table.version()) == (201, 1)


def test_a_first_commit_that_a_power_cut_tore_is_made_again(store: Unpacker, tmp_path: Path) -> None:
    to = tmp_path / "t"
    assert export(store("49-lmq"), to) == Exit.DONE
    (to / f"_delta_log/{0:020}.json").write_bytes(b"")
    assert export(store("49-lmq"), to) == Exit.DONE
    assert rows_of(DeltaTable(to)).num_rows == 200


@pytest.mark.parametrize(
    ("words", "is_ours_too"), [((), False), (("--mode", "overwrite"), False), (("--since-last",), True)]
)
def test_a_torn_commit_of_another_writer_is_left_alone(
    words: tuple[str, ...],
    is_ours_too: bool,
    writable_store: Unpacker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, to = writable_store("49-lmq"), tmp_path / "t"
    if is_ours_too:
        assert export(root, to) == Exit.DONE
    else:
        write_deltalake(to, pa.table({"a": [1]}))
    torn = to / f"_delta_log/{1:020}.json"
    torn.write_bytes(b'{"commitInfo":{}}\n{"add":{"pa')
    assert export(root, to, *words) == Exit.REFUSED
    said = capsys.readouterr().err
    assert (
        ("already is a Delta table" in said) if not words else (f"{torn} is not whole, and no rmqtool export" in said)
    )
    assert torn.exists()


def test_a_blank_line_in_a_commit_is_no_damage(writable_store: Unpacker, tmp_path: Path) -> None:
    root, to = writable_store("49-lmq"), tmp_path / "t"
    assert export(root, to, "--since-last") == Exit.DONE
    entry = to / f"_delta_log/{0:020}.json"
    entry.write_bytes(entry.read_bytes().replace(b"\n", b"\n\n", 1))
    assert export(root, to, "--since-last") == Exit.DONE
    assert entry.exists()
    assert rows_of(DeltaTable(to)).num_rows == 200


def test_a_manifest_without_a_commit_does_not_count(
    writable_store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The killed export ended where the one before did: only its choice was another."""
    root = writable_store("49-lmq")
    to = tmp_path / "t"
    assert export(root, to, "--since-last") == Exit.DONE
    words = ["export", str(root), "--to", str(to), *LOCAL, "--mode", "append", "-t", "mqttParent"]
    assert subprocess.run([sys.executable, "-c", KILLED, "_write", *words], check=False).returncode == 137
    ends = [json.loads(path.read_text())["read"] for path in sorted((tmp_path / "t_manifest").iterdir())]
    assert len(ends) == 2
    assert ends[0].keys() == ends[1].keys()
    put(root, [{"topic": "New", "body": "hello"}], create=True)
    assert export(root, to, "--since-last", "-t", "mqttParent") == Exit.USAGE
    assert "with topics = all, not mqttParent" in capsys.readouterr().err
    assert export(root, to, "--since-last") == Exit.DONE
    assert rows_of(DeltaTable(to)).num_rows == 201


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_brokers_that_were_added_one_by_one_go_on(store: Unpacker, tmp_path: Path, kind: str) -> None:
    one, other, to = store("49-lmq"), store("49-ipv6"), tmp_path / "t"
    words = ["--to", str(to), "--engine", "local", "--quiet", "--format", kind]
    assert main(["export", str(one), *words]) == Exit.DONE
    assert main(["export", str(other), *words, "--mode", "append"]) == Exit.DONE
    before = sorted(path for path in to.iterdir() if path.suffix == ".parquet")
    assert main(["export", str(one), str(other), *words, "--since-last"]) == Exit.DONE
    assert sorted(path for path in to.iterdir() if path.suffix == ".parquet") == before


def test_modes_and_foreign_directories(store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = store("49-lmq")
    assert export(root, tmp_path / "t") == Exit.DONE
    assert export(root, tmp_path / "t") == Exit.REFUSED
    assert "already is a Delta table" in capsys.readouterr().err
    assert export(root, tmp_path / "t", "--mode", "append") == Exit.DONE
    assert rows_of(DeltaTable(tmp_path / "t")).num_rows == 400
    assert export(root, tmp_path / "t", "--mode", "overwrite") == Exit.DONE
    assert rows_of(DeltaTable(tmp_path / "t")).num_rows == 200
    assert main(["export", str(root), "--to", str(tmp_path / "t"), "--engine", "local", "--mode", "append"]) == 5
    assert main(["export", str(root), "--to", str(tmp_path / "p"), "--engine", "local"]) == Exit.DONE
    assert export(root, tmp_path / "p", "--mode", "append") == Exit.REFUSED
    assert "holds files of no Delta table" in capsys.readouterr().err
    assert main(["export", str(root), "--to", "x", "--format", "csv"]) == Exit.USAGE


def test_damage_is_listed_beside_the_table(store: Unpacker, tmp_path: Path) -> None:
    assert export(store("49-compressed-batch"), tmp_path / "t") == Exit.SKIPPED
    assert rows_of(DeltaTable(tmp_path / "t")).num_rows == 164
    assert pq.read_table(tmp_path / "t_damage")["code"].to_pylist() == ["BD-INFLATE"]


def test_on_object_storage_with_a_second_exporter(
    storage: ObjectStorage, store: Unpacker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second one runs from its plan to its commit while the first has written its files and not committed."""
    from rmqtool.exports.delta import DeltaTarget

    root, to = store("49-lmq"), "s3://stores/table"
    write = DeltaTarget._write
    statuses = []

    def write_later(self: DeltaTarget, *told: object) -> None:
        monkeypatch.setattr(DeltaTarget, "_write", write)
        statuses.append(export(root, to, "--since-last"))
        write(self, *told)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTarget, "_write", write_later)
    assert export(root, to, "--since-last") == Exit.IN_USE
    assert "was committed meanwhile" in capsys.readouterr().err
    assert statuses == [Exit.DONE]
    assert export(root, to, "--since-last") == Exit.DONE
    table = DeltaTable(to, storage_options=storage.options)
    assert rows_of(table).num_rows == 200
    # Nothing is left of the one that lost.
    data = [name for name in storage.names("table") if name.endswith(".parquet")]
    assert sorted(data) == sorted(uri.rpartition("/")[2] for uri in table.file_uris())
    assert len(storage.names("table_manifest")) == 1


@pytest.mark.parametrize("said", ["Concurrent transaction failed", "no answer"])
def test_a_commit_whose_answer_was_lost_is_a_commit(
    said: str, store: Unpacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request arrived and its answer did not; the one that repeated it met its own commit."""
    from rmqtool.exports.delta import DeltaTarget

    write = DeltaTarget._write

    def write_twice(self: DeltaTarget, *told: object) -> None:
        write(self, *told)  # type: ignore[arg-type]
        raise OSError(f"Failed to commit transaction: {said}")

    monkeypatch.setattr(DeltaTarget, "_write", write_twice)
    assert export(store("49-lmq"), tmp_path / "t", "--since-last") == Exit.DONE
    assert rows_of(DeltaTable(tmp_path / "t")).num_rows == 200


def test_files_of_a_commit_that_may_have_arrived_stay(
    storage: ObjectStorage, store: Unpacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is raised when Delta's client returns: then the table has the files."""
    from rmqtool.exports.delta import DeltaTarget

    write, to = DeltaTarget._write, "s3://stores/interrupted"

    def write_and_stop(self: DeltaTarget, *told: object) -> None:
        write(self, *told)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(DeltaTarget, "_write", write_and_stop)
    assert export(store("49-lmq"), to, "--since-last") == Exit.INTERRUPTED
    assert rows_of(DeltaTable(to, storage_options=storage.options)).num_rows == 200


def test_what_the_guide_shows(store: Unpacker, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    part = guide[guide.index("### A Delta table") : guide.index("## Read with DuckDB")]
    part = part.replace("/stores/broker-a", str(store("54-broker"))).replace("/lake", str(tmp_path))
    ((_, command), (_, program)) = re.findall(r"^```(sh|python)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    assert main([*shlex.split(command)[1:], "--engine", "local"]) == Exit.DONE
    names: dict[str, Any] = {}
    exec(compile(program, "docs/spark.md", "exec"), names)
    assert (names["table"].num_rows, names["table"].column_names) == (418, ["topic", "keys", "store_timestamp"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_exporters_at_the_same_time(storage: ObjectStorage, writable_store: Unpacker) -> None:
    """Fifty rounds: messages are stored, then two processes export what is new. Each message is there once."""
    root, to = writable_store("49-lmq"), "s3://stores/rounds"
    command = [sys.executable, "-m", "rmqtool", "export", str(root), "--to", to, *LOCAL, "--since-last"]
    refused = 0
    for number in range(50):
        put(root, [{"topic": "Rounds", "body": f"{number}-{at}"} for at in range(20)], create=True)
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        told = [process.communicate()[1] for process in both]
        statuses = sorted(process.returncode for process in both)
        assert statuses in ([Exit.DONE, Exit.DONE], [Exit.DONE, Exit.IN_USE]), told
        refused += statuses[1] == Exit.IN_USE
        found = DeltaTable(to, storage_options=storage.options).to_pyarrow_table(columns=["commitlog_offset"])
        offsets = found["commitlog_offset"].to_pylist()
        assert (len(offsets), len(set(offsets))) == (200 + 20 * (number + 1),) * 2
    assert refused


KILLED = """
import os, sys
from rmqtool.exports import delta
from rmqtool.cli import main
step, *words = sys.argv[1:]
found = getattr(delta.DeltaTarget, step)
def die(self, *told, **more):
    os._exit(137)
setattr(delta.DeltaTarget, step, die)
main(words)
"""


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.slow) for step in ("_put", "_place", "_action")] + ["_write"]
)
def test_killed_before_the_commit_nothing_is_visible(store: Unpacker, tmp_path: Path, step: str) -> None:
    words = ["export", str(store("49-lmq")), "--to", str(tmp_path / "t"), *LOCAL, "--since-last"]
    killed = subprocess.run([sys.executable, "-c", KILLED, step, *words], check=False)
    assert killed.returncode == 137
    assert not DeltaTable.is_deltatable(str(tmp_path / "t"))
    assert main(words) == Exit.DONE
    assert rows_of(DeltaTable(tmp_path / "t")).num_rows == 200
