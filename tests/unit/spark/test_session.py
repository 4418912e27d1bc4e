"""Sessions that others made: whether their workers can read at all is said before a query fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqtool.errors import OptionalMissing

pyspark = pytest.importorskip("pyspark")

module = importlib.import_module("rmqtool.spark.session")


def workers(monkeypatch: pytest.MonkeyPatch, python: str, master: str = "local[2]") -> None:
    """Let a session be active whose workers run ``python``."""
    context = SimpleNamespace(master=master, pythonExec=python)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", context)


def interpreter(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_that_lack_our_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "python", "echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2; exit 1")
    workers(monkeypatch, python)
    with pytest.raises(OptionalMissing) as missing:
        module._check_workers()
    assert missing.value.message == (
        f"Spark's workers run {python}, which cannot import rmqtool, pyarrow, numpy: "
        "ModuleNotFoundError: No module named 'pyarrow'"
    )
    assert (missing.value.hint or "").startswith(f"export PYSPARK_PYTHON={sys.executable} before the session starts")


def test_workers_without_an_interpreter_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workers(monkeypatch, str(tmp_path / "none"))
    with pytest.raises(OptionalMissing, match=r"which cannot import .*No such file or directory"):
        module._check_workers()


def test_workers_that_can_read_or_are_elsewhere_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = interpreter(tmp_path / "bad", "exit 1")
    for python, master in (
        (sys.executable, "local[2]"),
        (interpreter(tmp_path / "good", "exit 0"), "local"),
        (bad, "yarn"),
    ):
        workers(monkeypatch, python, master)
        module._check_workers()
