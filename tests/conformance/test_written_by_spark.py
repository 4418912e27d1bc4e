"""What ``df.write`` stored, opened by the real classes: every message, every queue, their own puts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import OptionalMissing
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.conformance.oracle.runs import read_json, truth
from tests.conformance.test_engine_stores import READERS
from tests.support.engine_stores import iter_records

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.conformance, pytest.mark.spark]

ROWS = """
    concat('T', id % 3) AS topic, repeat(CAST(id AS STRING), CAST(id % 50 AS INT)) AS body,
    concat('k', id, ' all') AS keys,
    if(id % 2 = 0, concat('t', id % 5), NULL) AS tags, map('n', CAST(id AS STRING), 'ü', '値') AS properties,
    if(id % 4 = 0, NULL, concat('s', id % 7)) AS sharding_key
"""


@pytest.mark.parametrize("version", list(READERS))
def test_the_real_classes_read_what_was_written(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    """Twice into one store of small files: a new one, then one that is there."""
    from rmqtool.spark import session
    from tests.spark.conftest import SETTINGS

    real_classes(READERS[version])
    root, sizes = tmp_path / "store", {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "600"}
    settings = [word for name, value in sizes.items() for word in ("--conf", f"{name}={value}")]
    assert main(["init", str(root), "--as", version, *settings]) == 0
    with tempfile.TemporaryFile() as log:
        try:
            spark = session("local[2]", SETTINGS, log=log)
        except OptionalMissing as missing:
            pytest.skip(f"{missing.message}: {missing.hint}")
        spark.range(0, 600, 1, 3).createOrReplaceTempView("numbers")
        rows = spark.sql(f"SELECT {ROWS} FROM numbers")
        for _ in range(2):
            rows.write.format("rocketmq").mode("append").save(str(root))
    given, out = tmp_path / "sizes.json", tmp_path / "out.json"
    given.write_text(json.dumps(sizes))
    assert main(["check", str(root)]) == 0
    assert truth(READERS[version], root, out, config=given, put=True) == 0
    answer = read_json(out)
    ours = list(iter_records(PosixWritableFileSystem(str(root))))
    keys = ("commitLogOffset", "topic", "queueId", "queueOffset", "properties")
    found = [tuple(one[key] for key in keys) for one in answer["messages"]]
    assert found == [(one.physical_offset, one.topic, one.queue_id, one.queue_offset, one.properties) for one in ours]
    assert len(found) == 1200
    assert {put["status"] for put in answer["putProbe"]} == {"PUT_OK"}
    assert all(put["readBack"] and put["queueOffset"] == put["expectedQueueOffset"] for put in answer["putProbe"])
