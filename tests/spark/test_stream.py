"""``spark.readStream.format("rocketmq")``: what only Spark shows. The rest is in tests/unit/spark/test_stream.py."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from tests.support.growing_store import GrowingStore
from tests.support.scripted_cluster import played
from tests.support.stores import unpack

pytest.importorskip("pyspark.sql.streaming.datasource")

from tests.spark.tail import follow

_PATIENCE = 60


def wanted(count: int) -> list[str]:
    return [f"U{number:08}" for number in range(count)]


def keys(spark: Any, to: Path) -> list[str]:
    return sorted(row["msg_id"] for row in spark.read.parquet(str(to)).select("msg_id").collect())


class Lake:
    """A directory that a query fills from a store, and the query's checkpoint."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self.spark = spark
        self.store = GrowingStore(directory / "broker-a" / "store")
        self.to, self.checkpoint = directory / "lake", directory / "checkpoint"

    def writer(self, **options: str) -> Any:
        return follow(self.spark, str(self.store.root), str(self.to), str(self.checkpoint), **options)

    def catch_up(self, **options: str) -> Any:
        """Run the query up to what is there now; return its progress."""
        query = self.writer(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def keys(self) -> list[str]:
        return keys(self.spark, self.to)


@pytest.mark.slow
def test_each_message_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    """Begun anew from its checkpoint, a torn tail in between, segments rolled, a bound on each batch."""
    lake = Lake(spark, tmp_path)
    lake.store.append(150)
    lake.store.append_torn()
    progress = lake.catch_up(maxBytesPerTrigger="16k", splitSize="4k")
    assert lake.keys() == wanted(150)
    assert len(progress) >= 2
    lake.store.append(100)
    lake.catch_up()
    assert lake.keys() == wanted(251)
    assert lake.store.end > 2 * lake.store.segment_size


@pytest.mark.slow
def test_killed_worker(spark: Any, tmp_path: Path) -> None:
    """The query ends in the midst of a batch; begun anew in a longer log it repeats that batch, and nothing else."""
    from pyspark.sql.functions import udf

    lake = Lake(spark, tmp_path)
    lake.store.append(100)
    lake.store.append_torn()
    fuse = tmp_path / "fuse"
    fuse.touch()

    @udf("string", useArrow=False)  # type: ignore[untyped-decorator, unused-ignore]
    def dying(key: str) -> str:
        if key == "U00000070" and os.path.exists(fuse):
            os.unlink(fuse)
            os.kill(os.getpid(), signal.SIGKILL)
        return key

    def start() -> Any:
        messages = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "8k").load(str(lake.store.root))
        writer = messages.select(dying("msg_id").alias("msg_id")).writeStream.format("parquet")
        writer = writer.option("path", str(lake.to)).option("checkpointLocation", str(lake.checkpoint))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(Exception, match=r"exited unexpectedly|crashed"):
        start().awaitTermination()
    assert not fuse.exists()
    assert 0 < len(lake.keys()) < 100
    lake.store.append(50)
    start().awaitTermination()
    assert lake.keys() == wanted(151)
    assert lake.store.end > lake.store.segment_size


def test_batch_that_spark_runs_again_is_stored_once(spark: Any, tmp_path: Path) -> None:
    """The query was stopped after the store had the last batch, and before its checkpoint had noted that."""
    store, to, checkpoint = GrowingStore(tmp_path / "broker-a" / "store"), tmp_path / "copied", tmp_path / "checkpoint"

    def copy() -> list[str]:
        messages = spark.readStream.format("rocketmq").option("columns", "body,msg_id").load(str(store.root))
        sink = messages.writeStream.format("rocketmq").option("path", str(to)).option("topic", "Copied")
        sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
        return sorted(one["uniqKey"] for one in rmqtool.scan(str(to), topics="Copied"))

    store.append(30)
    assert copy() == wanted(30)
    for path in (checkpoint / "commits").iterdir():
        path.unlink()
    store.append(10)
    assert copy() == wanted(40)
    assert main(["check", str(to), "--quiet"]) == 0


@pytest.mark.slow
def test_retention_is_told_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    lake.store.append(10)
    lake.catch_up()
    lake.store.append(300)
    lake.store.delete_first_segment()
    with pytest.raises(Exception, match=r'broker-a has lost data.*option\("failOnDataLoss", "false"\) continues'):
        lake.catch_up()
    lake.catch_up(failOnDataLoss="false")
    assert lake.keys()[-1] == "U00000309"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_driver_while_a_writer_appends(spark: Any, tmp_path: Path) -> None:
    """Four times driver, JVM and workers are killed at once, whatever they do then."""
    store, to, checkpoint = (str(tmp_path / name) for name in ("broker-a/store", "lake", "checkpoint"))
    words = [sys.executable, "-m", "tests.support.growing_store", store]
    writer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        while not (Path(store) / "commitlog" / f"{0:020}").exists():
            time.sleep(0.05)
        for _ in range(4):
            _follow_and_kill(store, to, checkpoint)
        written = int(writer.communicate("", timeout=_PATIENCE)[0])
    finally:
        writer.kill()
        writer.wait()
    words = [sys.executable, "-m", "tests.spark.tail", store, to, checkpoint, "now"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=3 * _PATIENCE)
    assert keys(spark, Path(to)) == wanted(written)
    assert written > 1000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_killed_drivers_copy_each_message_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the queues of a cluster, each from its own offset, twelve messages at a time, into a store."""
    root, to, checkpoint = unpack("53-broker", tmp_path), tmp_path / "copied", str(tmp_path / "checkpoint")
    starts = {"T_normal": {"0": 3, "1": 2}, "T_fifo": {"broker-a/0": 1}}
    monkeypatch.setenv("STARTS", json.dumps(starts))
    first = {("T_normal", 0): 3, ("T_normal", 1): 2, ("T_fifo", 0): 1}
    expected = sorted(
        (one["uniqKey"], one["body"])
        for one in rmqtool.scan(str(root), topics=["T_normal", "T_fifo"])
        if one["queueOffset"] >= first.get((one["topic"], one["queueId"]), 0)
    )
    drawn = random.Random(5)
    with played(root) as address:
        for _ in range(10):
            _follow_and_kill(address, str(to), checkpoint, batches=1, delay=drawn.random())
        words = [sys.executable, "-m", "tests.spark.tail", address, str(to), checkpoint, "now"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=10 * _PATIENCE)
    assert sorted((one["uniqKey"], one["body"]) for one in rmqtool.scan(str(to), topics="Copied")) == expected
    assert len(expected) > 100
    assert _count(Path(checkpoint) / "commits") > 10
    assert main(["check", str(to), "--quiet"]) == 0


def _follow_and_kill(store: str, to: str, checkpoint: str, batches: int = 3, delay: float = 0) -> None:
    """Kill the query some batches after it has begun."""
    words = [sys.executable, "-m", "tests.spark.tail", store, to, checkpoint]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0)
    commits = Path(checkpoint) / "commits"
    try:
        assert process.stdout is not None
        process.stdout.readline()
        begin, deadline = _count(commits), time.monotonic() + 3 * _PATIENCE
        while _count(commits) < begin + batches and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _count(commits) >= begin + batches
        time.sleep(delay)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _count(commits: Path) -> int:
    return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)
