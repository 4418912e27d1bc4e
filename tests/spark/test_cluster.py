"""A standalone cluster from the pip package runs exports and reads: the demonstration, as a long test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from tests.spark import standalone
from tests.support.exported import expected_rows, rows_of
from tests.support.object_storage import object_storage

Unpacker = Callable[[str], Path]
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("options", [[], ["--packed"]], ids=["shared paths", "packed environment"])
def test_two_workers_export_and_read(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert standalone.main(options) == 0, capsys.readouterr().out


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True, text=True)


def test_two_workers_between_object_stores(store: Unpacker, tmp_path: Path) -> None:
    """The store is at one address, the target at another; the rows are those of the disk."""
    root, to = store("54-broker"), "s3://stores/table"
    with object_storage() as served, standalone.cluster(tmp_path) as url:
        place = served.upload(root, "broker-a/store")
        words = ("export", place, "--to", to, "--format", "delta", "--split-size", "64k", "--json")
        told = _run("-m", "rmqtool", *words, "--master", url, "--conf", "spark.executor.memory=512m")
        table = DeltaTable(to, storage_options=served.options).to_pyarrow_table()
        here, far = map(json.loads, _run("-m", "tests.spark.places", url, str(root), place).stdout.splitlines())
    assert json.loads(told.stdout)["rows"] == 418
    found = sorted(rows_of(table), key=lambda row: row["commitlog_offset"])
    assert found == expected_rows("54-broker", "broker-a")
    assert here[0] == 418
    assert far == here
    assert len({*tmp_path.glob("work-*/app-*/*/stderr")}) >= 4, "both workers had an executor for each application"


_COUNT = """
import json, sys, tempfile, rmqtool.spark
with tempfile.TemporaryFile() as log:
    settings = {"spark.executor.memory": "512m", "spark.task.maxFailures": sys.argv[3]}
    spark = rmqtool.spark.session(sys.argv[1], settings, log=log)
    reader = spark.read.format("rocketmq").option("onCorrupt", "skip").option("splitSize", "16k")
    for _ in range(10):
        try:
            print(json.dumps(reader.load(sys.argv[2]).count()), flush=True)
        except Exception as error:
            print(json.dumps(str(error)), flush=True)
    spark.stop()
"""
_SAID = "every machine must have the store at this path"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may hide a directory from a process")
@pytest.mark.parametrize("failures", ["1", "4"])
def test_a_worker_that_does_not_see_the_store(writable_store: Unpacker, tmp_path: Path, failures: str) -> None:
    """Damage is skipped, and ten of ten are errors; or all rows, where Spark tries a split on the other worker."""
    root = writable_store("49-basic")
    directory = tmp_path / "cluster"
    directory.mkdir()
    with standalone.cluster(directory, hidden=root) as url:
        lines = _run("-c", _COUNT, url, str(root), failures).stdout.splitlines()
    answers = [json.loads(line) for line in lines]
    assert len(answers) == 10
    right = len(expected_rows("49-basic", ""))
    said = [answer for answer in answers if answer != right]
    assert all(isinstance(answer, str) and _SAID in answer for answer in said), said
    # A split that fails is given up at once, or tried up to four times: then nearly always on the worker that sees it.
    assert len(said) == 10 if failures == "1" else right in answers
