"""A live cluster in Spark: what the guide shows, and that its rows are those of the files. The cluster is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from tests.spark.test_guide import BLOCK, CLUSTER
from tests.support.exported import expected_rows, rows_of
from tests.support.scripted_cluster import played
from tests.support.stores import unpack

NAME = "53-broker"


@pytest.mark.slow
def test_programs_of_the_guide(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack(NAME, tmp_path)
    expected = expected_rows(NAME, "broker-a")
    topic = "T_normal"
    count = sum(row["topic"] == topic for row in expected)
    assert count > 10
    with played(root) as address:
        ((language, text),) = BLOCK.findall(CLUSTER)
        assert language == "python"
        text = text.replace("rocketmq://127.0.0.1:9876", address).replace("/lake", str(tmp_path / "lake"))
        names: dict[str, Any] = {"spark": spark}
        exec(compile(text.replace("Orders", topic), "docs/spark.md", "exec"), names)
        assert capsys.readouterr().out == f"{count}\n"
        assert spark.read.parquet(str(tmp_path / "lake" / "live")).count() == count
        whole = spark.read.format("rocketmq").option("cluster", address).load()
        found = sorted(rows_of(whole.toArrow()), key=lambda row: row["commitlog_offset"])
    assert found == expected
