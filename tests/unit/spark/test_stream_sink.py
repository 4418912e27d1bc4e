"""A streaming query that writes into a store: each batch once, although Spark asks again for one that it did not note.

The sink is played as Spark plays it: what writes is pickled, and each commit has a writer of its own.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.sql import types

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import StoreError, StoreInUse, UsageError
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.spark import writer as writers
from rmqtool.spark.source import RocketMQSource

TEXT = types.StringType()
SCHEMA = types.StructType([types.StructField(name, TEXT) for name in ("topic", "body", "keys")])
MEMORY = "sink-batches.json"


class Sink:
    """A query that writes into a store."""

    def __init__(self, root: Path, query: str, **options: str) -> None:
        self.options = {"path": str(root), "checkpointLocation": "/lake/checkpoint", **options}
        self.query = query

    def writer(self) -> Any:
        return pickle.loads(pickle.dumps(RocketMQSource(self.options).streamWriter(SCHEMA, overwrite=False)))

    def stage(self, patch: pytest.MonkeyPatch, *partitions: range) -> list[Any]:
        """Let each partition be staged; return the answers of the tasks."""
        patch.setattr(writers, "_query_of_task", lambda: self.query)
        tasks = self.writer()
        answers = [tasks.write(iter([rows(numbers)] if numbers else [])) for numbers in partitions]
        return list(pickle.loads(pickle.dumps(answers)))

    def run(self, patch: pytest.MonkeyPatch, number: int, *partitions: range) -> None:
        self.writer().commit(self.stage(patch, *partitions), number)


def rows(numbers: range) -> pa.RecordBatch:
    keys = [f"k{number}" for number in numbers]
    return pa.RecordBatch.from_pydict({"topic": ["T"] * len(keys), "body": keys, "keys": keys})


def keys_in(root: Path) -> list[str]:
    return [one["keys"] for one in rmqtool.scan(str(root))]


def keys(*numbers: range) -> list[str]:
    return [f"k{number}" for some in numbers for number in some]


def beside(root: Path) -> list[str]:
    return sorted(path.name for path in root.parent.iterdir() if path != root)


def test_a_batch_that_runs_again_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    one, other = Sink(root, "query-1"), Sink(root, "query-2")
    one.run(monkeypatch, 0, range(10), range(0), range(10, 15))
    assert keys_in(root) == keys(range(15))
    one.run(monkeypatch, 0, range(10), range(0), range(10, 15))
    assert keys_in(root) == keys(range(15))
    one.run(monkeypatch, 1, range(15, 20))
    one.run(monkeypatch, 1, range(15, 20))
    one.run(monkeypatch, 0, range(10))
    # The batches of another query have the same numbers.
    other.run(monkeypatch, 0, range(100, 103))
    other.run(monkeypatch, 0, range(100, 103))
    one.run(monkeypatch, 2, range(20, 22))
    assert keys_in(root) == keys(range(20), range(100, 103), range(20, 22))
    noted = json.loads((root / MEMORY).read_text())["queries"]
    assert {query: last["batch"] for query, last in noted.items()} == {"query-1": 2, "query-2": 0}
    assert beside(root) == []


def test_the_store_stays_clean_for_check_and_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    sink = Sink(root, "query")
    sink.run(monkeypatch, 0, range(10))
    assert main(["check", str(root), "--fail-on", "notice", "--quiet"]) == 0
    assert main(["info", str(root), "--quiet"]) == 0
    before = (root / MEMORY).stat()
    # What others write afterwards leaves the file alone.
    rmqtool.put(str(root), [{"topic": "T", "body": "more", "keys": "more"}])
    assert (root / MEMORY).stat()[:7] == before[:7]
    sink.run(monkeypatch, 0, range(10))
    sink.run(monkeypatch, 1, range(10, 12))
    assert keys_in(root) == [*keys(range(10)), "more", *keys(range(10, 12))]


def test_two_drivers_of_one_query_store_a_batch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old driver was not dead: both commit batch 1 at the same time."""
    root = tmp_path / "store"
    sink = Sink(root, "query")
    sink.run(monkeypatch, 0, range(5))
    staged = [sink.stage(monkeypatch, range(5, 50)) for _ in range(4)]
    children = []
    for answers in staged:
        child = os.fork()
        if not child:
            status = 1
            try:
                sink.writer().commit(answers, 1)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert keys_in(root) == keys(range(50))
    assert beside(root) == []


def test_a_stored_batch_is_known_while_a_broker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    sink = Sink(root, "query")
    staged = sink.stage(monkeypatch, range(5))
    again = pickle.loads(pickle.dumps(staged))
    sink.writer().commit(staged, 0)
    following = sink.stage(monkeypatch, range(5, 9))
    with PosixWritableFileSystem(str(root)) as files, files.lock():
        sink.writer().commit(again, 0)
        with pytest.raises(StoreInUse, match="is in use"):
            sink.writer().commit(following, 1)
    assert keys_in(root) == keys(range(5))
    assert beside(root) == []


def offsets_in(root: Path) -> list[int]:
    return [one["commitLogOffset"] for one in rmqtool.scan(str(root))]


def log_file(root: Path) -> Path:
    (file,) = (root / "commitlog").iterdir()
    return file


def small_store(root: Path) -> Path:
    """Make a store whose segments are small enough to be read through."""
    assert main(["init", str(root), "--conf", "mappedFileSizeCommitLog=65536", "--quiet"]) == 0
    return root


def test_a_batch_that_was_cut_off_is_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record is torn, and a recovery cuts it off before Spark has noted the batch."""
    root = small_store(tmp_path / "store")
    sink = Sink(root, "query")
    sink.run(monkeypatch, 0, range(10))
    sink.run(monkeypatch, 1, range(10, 15))
    with log_file(root).open("r+b") as file:
        file.seek(offsets_in(root)[-1])
        file.write(bytes(8))
    (root / "abort").touch()
    assert main(["recover", str(root), "--apply", "--quiet"]) in (0, 1)
    assert keys_in(root) == keys(range(14))
    sink.run(monkeypatch, 1, range(10, 15))
    assert keys_in(root) == keys(range(14), range(10, 15))
    sink.run(monkeypatch, 1, range(10, 15))
    assert keys_in(root) == keys(range(14), range(10, 15))


def test_a_batch_that_was_cut_off_and_written_over_is_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_store(tmp_path / "store")
    sink = Sink(root, "query")
    sink.run(monkeypatch, 0, range(10))
    at = offsets_in(root)[8]
    with log_file(root).open("r+b") as file:
        file.seek(at)
        file.write(bytes(8192))
    (root / "abort").touch()
    assert main(["recover", str(root), "--apply", "--quiet"]) in (0, 1)
    rmqtool.put(str(root), [{"topic": "T", "body": f"more{number}", "keys": "m"} for number in range(9)])
    sink.run(monkeypatch, 0, range(10))
    assert keys_in(root) == [*keys(range(8)), *["m"] * 9, *keys(range(10))]


def test_a_batch_that_retention_deleted_is_not_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    sink = Sink(root, "query")
    sink.run(monkeypatch, 0, range(10))
    noted = json.loads((root / MEMORY).read_text())
    assert noted["queries"]["query"]["last"]["physicalOffset"] == offsets_in(root)[-1]
    # As if its segment had been deleted, and the log began after it.
    noted["queries"]["query"]["last"]["physicalOffset"] = -1
    (root / MEMORY).write_text(json.dumps(noted))
    sink.run(monkeypatch, 0, range(10))
    assert keys_in(root) == keys(range(10))
    # A file of before the last record was noted.
    del noted["queries"]["query"]["last"]
    (root / MEMORY).write_text(json.dumps(noted))
    sink.run(monkeypatch, 0, range(10))
    assert keys_in(root) == keys(range(10))


def test_a_failed_batch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    sink = Sink(root, "query")
    staged = [*sink.stage(monkeypatch, range(5)), None]
    sink.writer().abort(staged, 0)
    assert beside(root) == []
    assert not root.exists()
    sink.run(monkeypatch, 0, range(0))
    assert not root.exists()
    with pytest.raises(StoreError, match="does not tell its tasks the id of their query"):
        Sink(root, None).run(monkeypatch, 0, range(3))  # type: ignore[arg-type]
    assert not root.exists()


def test_a_memory_that_does_not_tell_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    sink = Sink(root, "query")
    sink.run(monkeypatch, 0, range(5))
    noted = (root / MEMORY).read_text()
    for text in ("", "[]", '{"version": 1, "queries": {"query": {}}}', noted.replace('"size"', '"length"')):
        (root / MEMORY).write_text(text)
        with pytest.raises(StoreError, match="does not tell which batches"):
            sink.run(monkeypatch, 1, range(5, 6))
    (root / MEMORY).write_text(noted.replace('"version": 1', '"version": 2'))
    with pytest.raises(StoreError, match="has version 2, and this rmqtool knows version 1"):
        sink.run(monkeypatch, 1, range(5, 6))
    assert keys_in(root) == keys(range(5))


def test_topic_by_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark's sink for Kafka: it is the topic of all rows, whatever topic they name."""
    root = tmp_path / "store"
    Sink(root, "query", topic="Other").run(monkeypatch, 0, range(3))
    assert [one["topic"] for one in rmqtool.scan(str(root))] == ["Other"] * 3
    bodies = types.StructType([types.StructField("body", TEXT)])
    writer = RocketMQSource({"path": str(root), "topic": "Third"}).writer(bodies, overwrite=False)
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"]})
    writer.commit([writer.write(iter([batch]))])
    assert [one["topic"] for one in rmqtool.scan(str(root))] == ["Other"] * 3 + ["Third"] * 2


@pytest.mark.parametrize(
    ("options", "overwrite", "said"),
    [
        ({}, True, "output mode complete would replace the store"),
        ({"topic": "a b"}, False, "topic 'a b' has characters other than"),
        ({"queue": "1"}, False, "there is no option 'queue' for writing"),
    ],
)
def test_what_a_sink_does_not_take(tmp_path: Path, options: dict[str, str], overwrite: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RocketMQSource({"path": str(tmp_path / "store"), **options}).streamWriter(SCHEMA, overwrite=overwrite)
    bodies = types.StructType([types.StructField("body", TEXT)])
    with pytest.raises(UsageError, match=r'a message needs a column topic .*or option\("topic", "Orders"\)'):
        RocketMQSource({"path": str(tmp_path / "store")}).writer(bodies, overwrite=False)
