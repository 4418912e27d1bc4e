"""Named topics are read by way of the queues: the same rows, fewer bytes of the log, damaged queues or not."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from rmqtool.exports.choice import DEFAULT
from rmqtool.exports.splits import WriteWork, pack_queues, plan_sources
from rmqtool.files.posix import PosixReadableFile
from rmqtool.log.ranges import Answered
from tests.support.damaged import VERSIONS, Workshop, mutations
from tests.support.exported import Row, expected_rows, rows_of
from tests.support.stores import STORES

pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition

from rmqtool.spark.job import _try_all
from rmqtool.spark.options import parse_options
from rmqtool.spark.reader import RocketMQReader, Split
from rmqtool.spark.schema import spark_schema

Unpacker = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _small_logs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.log.ranges.READ_THROUGH", 0)


def rows(root: Path, **options: str) -> list[Row]:
    """Read every split in this process, as executors would."""
    return read_splits(*planned(root, **options))


def planned(root: Path, **options: str) -> tuple[RocketMQReader, list[InputPartition]]:
    usual = {"path": str(root), "oncorrupt": "skip", "columns": "topic,commitlog_offset,msg_id"}
    asked = parse_options(usual | options)
    reader = RocketMQReader(asked, spark_schema(asked.choice))
    return reader, reader.partitions()


def read_splits(reader: RocketMQReader, splits: list[InputPartition]) -> list[Row]:
    return [row for split in splits for batch in reader.read(split) for row in rows_of(batch)]


@pytest.fixture
def log_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the length of every read of a commit log from now on."""
    lengths: list[int] = []
    real = PosixReadableFile.pread

    def pread(self: PosixReadableFile, length: int, file_offset: int) -> bytes:
        found = real(self, length, file_offset)
        if self.path.startswith("commitlog"):
            lengths.append(len(found))
        return found

    monkeypatch.setattr(PosixReadableFile, "pread", pread)
    return lengths


SPLITS = ("4k", "20000", "128m")


@pytest.mark.parametrize(
    ("name", "split", "count"),
    [
        ("49-basic", "128m", 4),
        ("54-broker", "20000", 3),
        ("53-lmq", "4k", 3),
        ("49-ghost", "4k", 3),
        *(pytest.param(name, split, 99, marks=pytest.mark.slow) for name in STORES for split in SPLITS),
    ],
)
def test_every_topic_has_its_rows(name: str, split: str, count: int, store: Unpacker) -> None:
    everything = rows(store(name))
    topics = sorted({row["topic"] for row in everything})
    for topic in topics[:: max(len(topics) // count, 1)]:
        assert rows(store(name), topic=topic, splitsize=split) == [
            row for row in everything if row["topic"] == topic
        ], topic


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *((name, split) for name in ("49-ghost", "49-recovered") for split in ("4k", "20000")),
        *(pytest.param(name, split, marks=pytest.mark.slow) for name in STORES for split in SPLITS),
    ],
)
def test_every_split_size_gives_the_rows_of_the_truth(name: str, split: str, store: Unpacker) -> None:
    """Older records too, which a recovery left behind the end, are told from others wherever a split begins."""
    names = ("topic", "commitlog_offset", "msg_id")
    expected = [{name: row[name] for name in names} for row in expected_rows(name, "")]
    assert rows(store(name), splitsize=split) == expected


def test_rare_topic_reads_little_of_the_log(store: Unpacker, log_bytes: list[int]) -> None:
    root = store("49-basic")
    reader, splits = planned(root)
    log_bytes.clear()
    everything = read_splits(reader, splits)
    whole = sum(log_bytes)
    rare = min({row["topic"] for row in everything}, key=[row["topic"] for row in everything].count)
    reader, splits = planned(root, topic=rare)
    log_bytes.clear()
    assert read_splits(reader, splits) == [row for row in everything if row["topic"] == rare]
    assert 0 < sum(log_bytes) < 0.3 * whole


def _not_here(path: str, **_: object) -> NoReturn:
    raise AssertionError(f"a task lists {path}")


def test_tasks_get_the_queue_files_they_need_and_list_nothing(store: Unpacker, monkeypatch: pytest.MonkeyPatch) -> None:
    root = store("49-basic")
    options = {"topic": "TopicTest", "splitsize": "20000"}
    expected = rows(root, **options)
    reader, splits = planned(root, **options)
    sent = pickle.dumps((reader, splits))
    assert len(splits) > 10
    assert len(sent) < 2500 * len(splits)
    with monkeypatch.context() as patch:
        patch.setattr("rmqtool.log.sources.open_store", _not_here)
        assert read_splits(*pickle.loads(sent)) == expected
    assert len(expected) > 100
    # Of a plan that would be too large each task lists the store.
    monkeypatch.setattr("rmqtool.exports.splits._MOST_SHIPPED", 0)
    reader, splits = planned(root, **options)
    assert {split.queues for split in splits if isinstance(split, Split)} == {None}
    assert read_splits(reader, splits) == expected


def test_tasks_of_an_export_get_the_queue_files_they_need(store: Unpacker, tmp_path: Path) -> None:
    choice = replace(DEFAULT, topics=("TopicTest",), split_size=20_000)
    (source,) = plan_sources([str(store("49-basic"))], choice)
    packed = pack_queues(source)
    work = WriteWork(str(tmp_path), "part", source.broker, source.choice, source.plan.queues)
    whole = [work(asked).found.files for asked in source.ranges]
    assert packed is not None
    sent = [(0, asked, packed) for asked in source.ranges]
    found = list(_try_all([replace(work, queues=())], sent))
    assert [answer.found.files for answer in found if isinstance(answer, Answered)] == whole
    assert sum(file.rows for files in whole for file in files) > 100


def test_a_queue_file_of_zeros_misleads_all_tasks_alike(tmp_path: Path) -> None:
    """A task ends where the next one begins, although zeros hide other entries from some searches."""
    version = VERSIONS[-1]
    zeroed = mutations(version)["A/cq-file-zeroed@first"]
    with Workshop(tmp_path).damaged(version, zeroed, abort=False) as root:
        everything = rows(root)
        for topic in sorted({row["topic"] for row in everything})[:2]:
            expected = [row for row in everything if row["topic"] == topic]
            assert rows(root, topic=topic, splitsize="20000") == expected
    assert len(everything) > 1000


@pytest.mark.parametrize(
    ("version", "count"),
    [(VERSIONS[-1], 2), *(pytest.param(version, 40, marks=pytest.mark.slow) for version in VERSIONS)],
)
def test_damaged_queues_mislead_nobody(version: str, count: int, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    every = {key: mutation for key, mutation in mutations(version).items() if "/cq-" in key}
    keys = sorted(random.Random(f"{version}-{count}").sample(sorted(every), min(count, len(every))))
    for key in keys:
        with workshop.damaged(version, every[key], abort=False) as root:
            everything = rows(root)
            for topic in sorted({row["topic"] for row in everything})[:2]:
                found = rows(root, topic=topic, splitsize="20000")
                assert found == [row for row in everything if row["topic"] == topic], (key, topic)
    assert len(keys) >= 2


def test_a_queue_file_that_retention_deletes_during_a_job_does_not_end_it(writable_store: Unpacker) -> None:
    """The driver has packed its name. Its ranges are read through, and so is the begin of the next one."""
    root = writable_store("54-broker")
    reader, splits = planned(root, topic="T_fifo", splitsize="20000")
    expected = read_splits(reader, splits)
    assert len(expected) == 30
    assert any(isinstance(split, Split) and split.queues is not None for split in splits)
    for path in (root / "consumequeue" / "T_fifo").glob("*/*"):
        path.unlink()
    assert read_splits(reader, splits) == expected
