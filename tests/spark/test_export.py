"""Export by Spark's hands: the same files as without it, read by Spark as by everybody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit, NoSpace, OptionalMissing
from rmqtool.exports.choice import DEFAULT, OnCorrupt
from rmqtool.exports.parquet import PartitionBy
from rmqtool.exports.run import Request
from rmqtool.log.ranges import Effort
from tests.support.exported import Row, export, part_files, rows_of
from tests.support.growing_store import GrowingStore

pytest.importorskip("pyspark")

from rmqtool.spark import job

Unpacker = Callable[[str], Path]
EMIT = replace(DEFAULT, on_corrupt=OnCorrupt.EMIT)


def by_spark(to: Path, *stores: Path, choice: Any = EMIT, **more: Any) -> Any:
    """Export on the session of these tests, which is active."""
    request = Request(paths=tuple(map(str, stores)), directory=str(to), choice=choice, **more)
    return job.run_spark_export(request, "local[2]", {}, Effort())


def names(to: Path) -> list[str]:
    return [str(path.relative_to(to)) for path in part_files(to)]


def by_place(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["broker"], row["commitlog_offset"]))


def test_spark_writes_the_files_that_are_written_without_it(
    spark: Any, fixtures: Any, expected: list[Row], tmp_path: Path
) -> None:
    """Every store at once: the same files byte for byte, the same damage, and Spark reads back what is true."""
    roots = [Path(one.root) for one in fixtures]
    mine, theirs = tmp_path / "local", tmp_path / "spark"
    here, there = export(mine, *roots, choice=EMIT), by_spark(theirs, *roots)
    assert names(theirs) == names(mine)
    assert [path.read_bytes() for path in part_files(theirs)] == [path.read_bytes() for path in part_files(mine)]
    assert (there.rows, there.damages) == (here.rows, here.damages)
    frame = spark.read.parquet(str(theirs))
    assert [field.simpleString() for field in frame.schema] == [
        field.simpleString() for field in spark.read.format("rocketmq").load(str(roots[0])).schema
    ]
    assert by_place(rows_of(frame.toArrow())) == by_place(expected)
    told = spark.read.parquet(f"{theirs}_damage").collect()
    assert [(row["code"], row["file"], row["offset"]) for row in told] == [
        (damage.code, damage.file, damage.file_offset) for _, damage in there.damages
    ]
    assert "BD-INFLATE" in {row["code"] for row in told}


@pytest.mark.slow
def test_since_last_by_spark(spark: Any, tmp_path: Path) -> None:
    store, to = GrowingStore(tmp_path / "broker-a" / "store"), tmp_path / "lake"
    for count in (30, 200, 1):
        store.append(count)
        by_spark(to, store.root, since_last=True)
    keys = sorted(row["msg_id"] for row in spark.read.parquet(str(to)).select("msg_id").collect())
    assert keys == [f"U{number:08}" for number in range(231)]


def test_partitions_by_spark(spark: Any, store: Unpacker, tmp_path: Path) -> None:
    by_spark(tmp_path / "out", store("54-broker"), partition_by=(PartitionBy.TOPIC,), choice=EMIT)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.count() == 418
    assert frame.filter("topic_part <> topic").count() == 0
    assert frame.filter("topic_part = '%DLQ%G_order'").count() == frame.filter("topic = '%DLQ%G_order'").count() > 0


def test_topics_of_digits_stay_texts(spark: Any, tmp_path: Path) -> None:
    """Readers make numbers of such directories; the column keeps what the topic is."""
    store = GrowingStore(tmp_path / "store", topic="020260101")
    store.append(5)
    by_spark(tmp_path / "out", store.root, partition_by=(PartitionBy.TOPIC,))
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.schema["topic_part"].dataType.simpleString() == "int"
    assert [row["topic"] for row in frame.filter("topic = '020260101'").collect()] == ["020260101"] * 5


def test_command_exports_through_spark(
    spark: Any, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out"
    status = main(["export", str(store("49-compressed-batch")), "--to", str(to), "--json", "--progress", "never"])
    printed = json.loads(capsys.readouterr().out)
    assert status == Exit.SKIPPED
    assert (printed["rows"], printed["damaged"]["ranges"]) == (164, 1)
    assert spark.read.parquet(str(to)).count() == 164


def test_disk_full_in_a_task_is_one_sentence(
    spark: Any, store: Unpacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, staging: str, *_: object, **__: object) -> None:
            self.staging = staging

        def __call__(self, asked: object) -> None:
            raise NoSpace("no room")

    monkeypatch.setattr("rmqtool.exports.run.WriteWork", Full)
    with pytest.raises(NoSpace, match=r"^no room$"):
        by_spark(tmp_path / "out", store("54-broker"))
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_an_executor_does_not_see_is_named(tmp_path: Path) -> None:
    """It must not make the directory on its own disk, where nobody looks for the files."""
    from rmqtool.errors import WriteFailed
    from rmqtool.exports.splits import WriteWork, plan_sources

    store = GrowingStore(tmp_path / "broker-a" / "store")
    store.append(3)
    (source,) = plan_sources([str(store.root)], DEFAULT)
    staging = tmp_path / "lake" / ".out.rmqtool"
    work = WriteWork(str(staging), "part", source.broker, source.choice, source.plan.queues)
    (answer,) = job._try_all([work], [(0, source.ranges[0], None)])
    assert isinstance(answer, WriteFailed)
    assert answer.message == f"{staging} does not exist on {gethostname()}, where a task should write to it"
    assert answer.hint == "every machine must have the target at this path, on a disk that they share"
    assert not (tmp_path / "lake").exists()
    staging.mkdir(parents=True)
    (answer,) = job._try_all([work], [(0, source.ranges[0], None)])
    assert not isinstance(answer, WriteFailed)


def test_splits_that_the_driver_reads_again_are_named(tmp_path: Path) -> None:
    """An executor took bytes of a body for the first record: the driver reads that split, and says so."""
    from rmqtool.exports.splits import WriteWork, plan_sources
    from rmqtool.log.read import Note

    store = GrowingStore(tmp_path / "broker-a" / "store")
    store.append(300)
    (source,) = plan_sources([str(store.root)], replace(DEFAULT, split_size=4 << 10))
    assert len(source.ranges) > 8
    work = WriteWork(str(tmp_path / "staging"), "part", source.broker, source.choice, source.plan.queues)
    answers = [work(asked) for asked in source.ranges]
    wrong = replace(answers[2], began=(answers[2].began or 0) + 8)
    found = list(job._in_order(job.Job(source, work), iter([*answers[:2], wrong, *answers[3:]])))
    (note,) = [one for one in found if isinstance(one, Note)]
    place = f"{source.ranges[2].file.name}@{answers[2].began}"
    assert note.text.startswith(
        f"1 of {len(source.ranges)} splits of broker-a were read again by the driver, the first "
    )
    assert place in note.text
    rows = sum(file.rows for one in found if not isinstance(one, Note) for file in one.found.files)  # type: ignore[union-attr]
    assert rows == 300


def test_progress_tells_of_every_split(spark: Any, store: Unpacker, tmp_path: Path) -> None:
    told: list[object] = []

    class Told:
        def start(self, what: str, total: int | None, unit: str) -> None:
            told.append((what, total, unit))

        def advance(self, amount: int) -> None:
            told.append(amount)

        def finish(self) -> None:
            told.append("end")

    request = Request(paths=(str(store("54-broker")),), directory=str(tmp_path / "out"), choice=EMIT)
    job.run_spark_export(request, "local[2]", {}, Effort(1, Told()))
    assert told[0] == ("exporting", 4, "splits")
    assert told[-1] == "end"
    assert sum(amount for amount in told if isinstance(amount, int)) <= 4


SAID = {
    "ModuleNotFoundError: No module named 'pyarrow'\n more": "a package is missing in the executors' Python: No module",
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9": "the executors run another Python",
    'Cannot run program "/opt/none/python": error=2': "the executors have no such Python",
}


@pytest.mark.parametrize(("text", "sentence"), SAID.items())
def test_executors_that_cannot_work(text: str, sentence: str) -> None:
    found = job._in_a_sentence(RuntimeError(f"Py4JJavaError: Job aborted.\n{text}"))
    assert isinstance(found, OptionalMissing)
    assert found.message.startswith(sentence)
    assert "spark.archives" in (found.hint or "")
