"""The journeys of ``docs/tour.md``, traced: which files of the package a task crosses, in the order of entry."""

from __future__ import annotations

import gc
import io
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import rmqtool

ROOT = Path(rmqtool.__file__).parent
TOPIC = "TopicTest"
# How many messages a second the producer of the trace sends: at ten and below each message is a piece of its own.
_RATE = 10
_NOW = 1_800_000_000_000_000_000

Crossed = dict[str, str]


def crossed(task: Callable[[], object]) -> Crossed:
    """Run ``task`` in this thread; return the files of the package that it entered, each with a function of it.

    That is the first public function that was called there, or the first of all where none is public.
    """
    found: Crossed = {}
    prefix = f"{ROOT}/"
    loading = 0

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal loading
        code = frame.f_code
        if code.co_name == "<module>":
            # Code that runs because a module is loaded for the first time is not part of the journey.
            loading += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not loading and code.co_filename.startswith(prefix):
            path, name = code.co_filename.removeprefix(prefix), code.co_qualname.partition(".<locals>")[0]
            if path not in found or _plainness(name) > _plainness(found[path]):
                found[path] = name

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # a finalizer of another test would be in the trace
    sys.setprofile(watch)
    try:
        task()
    finally:
        sys.setprofile(before)
        gc.enable()
    return found


def _plainness(name: str) -> int:
    """Return 2 for a public function, 1 for a private one, 0 for a lambda."""
    return 0 if "<" in name else 1 if any(part.startswith("_") for part in name.split(".")) else 2


def trace_journey(name: str, store: Path, work: Path) -> Crossed:
    """Trace a journey over a copy of ``store`` in ``work``.

    It runs twice and the second run is traced: what is loaded or cached once does not depend on earlier tests.
    """
    root = work / name
    shutil.copytree(store, root)
    # Time stops, so that on a slow machine no periodic work becomes due in the middle.
    with patch("rmqtool.engine.clock.time", SimpleNamespace(time_ns=lambda: _NOW, monotonic_ns=lambda: _NOW)):
        return JOURNEYS[name](root)


def _run(*words: str) -> None:
    from rmqtool.cli import main

    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        status = main([*words])
    assert status == 0, (words, status)


def _twice(task: Callable[[], object]) -> Crossed:
    task()
    return crossed(task)


def _produce(root: Path) -> Crossed:
    return _twice(lambda: _run("produce", str(root), "-t", TOPIC, "--create", "hello"))


def _put(root: Path) -> Crossed:
    """Trace the second of three messages of one producer: the store is open, the input has not ended."""
    from rmqtool.api.produce import Given, producing

    with producing(str(root), Given(bodies=["one", "two", "three"]), topic=TOPIC, create=True, rate=_RATE) as run:
        events = iter(run)
        next(events)
        return crossed(lambda: next(events))


def _cat(root: Path) -> Crossed:
    return _twice(lambda: _run("cat", str(root), "-t", TOPIC, "--jsonl", "-j", "1"))


def _repair(root: Path) -> Crossed:
    """Trace the repair of a queue whose files are missing."""

    def remove_queue() -> None:
        shutil.rmtree(root / "consumequeue" / TOPIC)

    def repair() -> None:
        _run("repair", str(root), "--apply")

    remove_queue()
    repair()
    remove_queue()
    return crossed(repair)


def _read_with_spark(root: Path) -> Crossed:
    """Trace what Spark does with a data source: in the driver the schema and the plan, in each task a read."""

    def read() -> None:
        from rmqtool.spark.source import RocketMQSource

        source = RocketMQSource({"path": str(root)})
        reader = source.reader(source.schema())
        rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
        assert rows

    return _twice(read)


JOURNEYS: dict[str, Callable[[Path], Crossed]] = {
    "produce": _produce,
    "put": _put,
    "cat": _cat,
    "repair": _repair,
    "spark": _read_with_spark,
}
