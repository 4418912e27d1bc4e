"""The four journeys of ``docs/tour.md``, traced: which files of the package a task crosses, in the order of entry."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import rmqtool

ROOT = Path(rmqtool.__file__).parent


def crossed(task: Callable[[], object]) -> list[str]:
    """Run ``task`` in this thread and return the files of the package whose functions it entered."""
    found: dict[str, None] = {}
    prefix = f"{ROOT}/"

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            # Module bodies run when something is imported for the first time: that is loading, not the journey.
            if code.co_filename.startswith(prefix) and code.co_name != "<module>":
                found.setdefault(code.co_filename.removeprefix(prefix))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        task()
    finally:
        sys.setprofile(before)
    return list(found)


def _command(*words: str) -> Callable[[], object]:
    from rmqtool.cli import main

    def run() -> None:
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            status = main([*words])
        assert status in (0, 1), (words, status)

    return run


def iter_journeys(store: Path, work: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the journeys by name; each runs twice, so that nothing of it is the loading of modules."""
    for name in ("put", "repair"):
        shutil.copytree(store, work / name)
    yield "put", _command("produce", str(work / "put"), "-t", "BasicT", "hello", "--create")
    yield "cat", _command("cat", str(store), "-t", "BasicT", "--jsonl", "-j", "1")
    yield "repair", _command("repair", str(work / "repair"), "--apply")
    yield "spark", _read_with_spark(store)


def _read_with_spark(store: Path) -> Callable[[], object]:
    def run() -> None:
        from rmqtool.spark.source import RocketMQSource

        source = RocketMQSource({"path": str(store)})
        reader = source.reader(source.schema())
        rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
        assert rows

    return run
