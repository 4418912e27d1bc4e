"""A store as a stream against the same read at once, and a table into a store against put_many, in the same run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.config import StoreConfig
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.errors import OptionalMissing
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.bench.engine_puts import put_many
from tests.bench.large_store import write_large_store
from tests.bench.test_export import clock_seconds

pytestmark = [pytest.mark.bench, pytest.mark.spark]

TOTAL = 512 << 20
ROWS = 200_000
BODY = 300


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Give a session as a user makes it."""
    from rmqtool.spark import session

    with tempfile.TemporaryFile() as log:
        try:
            started = session("local[2]", {"spark.sql.catalogImplementation": "in-memory"}, log=log)
        except OptionalMissing as missing:
            pytest.skip(f"{missing.message}: {missing.hint}")
        yield started
        started.stop()


def test_stream_keeps_up(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    write_large_store(store, TOTAL, segment=256 << 20, queues=16)

    def at_once() -> None:
        spark.read.format("rocketmq").load(str(store)).write.format("noop").mode("append").save()

    seconds: list[float] = []

    def as_stream() -> None:
        shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
        stream = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "256m").load(str(store))
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds.append(sum(batch["durationMs"]["triggerExecution"] for batch in query.recentProgress) / 1000)

    clock_seconds(at_once, as_stream, rounds=1)
    once, whole = clock_seconds(at_once, as_stream)
    batches = min(seconds[1:])
    with capsys.disabled():
        print(f"\n{TOTAL >> 20} MiB at once {once:.2f} s, in batches of a stream {batches:.2f} s, {once / batches:.2f}")
        print(f"(least 0.5); with start and end of the query {whole:.2f} s")
    assert once / batches >= 0.5


def test_table_into_a_store(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = spark.range(0, ROWS, 1, 4).selectExpr(
        "concat('BenchTopic', id % 4) AS topic",
        f"repeat('b', {BODY}) AS body",
        "concat('key', 100000000 + id) AS keys",
        "concat('Tag', char(65 + id % 8)) AS tags",
        "format_string('%032X', id) AS msg_id",
        "CAST(id / 4 AS INT) % 4 AS queue_id",
    )

    def by_spark() -> None:
        shutil.rmtree(tmp_path / "spark", ignore_errors=True)
        rows.write.format("rocketmq").mode("append").save(str(tmp_path / "spark"))

    def by_put_many() -> None:
        shutil.rmtree(tmp_path / "many", ignore_errors=True)
        (tmp_path / "many").mkdir()
        config = StoreConfig.default().at_root(str(tmp_path / "many"))
        with PosixWritableFileSystem(config.root_dir) as files, MessageStore.create(Setup(files, config)) as store:
            put_many(store, 0, ROWS, b"b" * BODY)

    clock_seconds(by_put_many, by_spark, rounds=1)
    many, written = clock_seconds(by_put_many, by_spark)
    with capsys.disabled():
        print(f"\n{ROWS} messages by put_many {many:.2f} s, by Spark {written:.2f} s, {many / written:.2f} (least 0.5)")
    assert many / written >= 0.5
