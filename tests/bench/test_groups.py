"""``consume`` beside ``cat``, and ``produce`` beside a loop that only parses: whole commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqtool.cli import main
from tests.bench.large_store import write_large_store
from tests.bench.one_run import AS_INSTALLED
from tests.bench.test_cat import NOISE, Watch, say

pytestmark = pytest.mark.bench

ROUNDS = 3
# How many lines are produced; and at least half the speed of the parser alone.
LINES, AIM = 200_000, 0.5


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 800 MiB of messages of four topics."""
    root = tmp_path_factory.mktemp("groups") / "store"
    write_large_store(root, 800 << 20, topics=4, queues=8)
    return root


def run(*words: object, stdin: Path | None = None) -> float:
    """Return the seconds of processor time of a command whose output nobody reads."""
    command = [sys.executable, "-m", "rmqtool", *map(str, words)]
    with open(stdin or os.devnull, "rb") as source:
        process = subprocess.Popen(
            command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=AS_INSTALLED
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, words
    return usage.ru_utime + usage.ru_stime


def test_consuming_costs_hardly_more_than_looking(orders: Path) -> None:
    looks, consumes, watch = [], [], Watch()
    for number in range(ROUNDS):
        looks.append(run("cat", orders, "-t", "Orders1", "--jsonl", "-j", "1"))
        words = ("-t", "Orders1", "-g", f"g{number}", "--from", "first", "--commit", "--jsonl", "-j", "1")
        consumes.append(run("consume", orders, *words))
    ratio = min(looks) / min(consumes)
    say(f"cat {min(looks):.2f} s, consume --commit {min(consumes):.2f} s: {ratio:.2f} of its speed (limit 0.8)")
    watch.require_quiet()
    assert ratio >= 0.8 * NOISE


def test_producing_beside_a_loop_that_parses(orders: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    with open(lines, "wb") as file:
        command = [sys.executable, "-m", "rmqtool", "cat", str(orders), "-t", "Orders1", "--jsonl", "-n", str(LINES)]
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
    watch = Watch()
    loops, produces = [], []
    for number in range(ROUNDS):
        loops.append(parsing(lines))
        root = tmp_path / str(number)
        assert main(["init", str(root), "--conf", f"mappedFileSizeCommitLog={1 << 30}"]) == 0
        start = time.monotonic()
        used = run("produce", root, "--jsonl", "--create", stdin=lines)
        produces.append((time.monotonic() - start, used))
        shutil.rmtree(root)
    wall, used = (min(column) for column in zip(*produces, strict=True))
    least_wall, least_used = (min(column) for column in zip(*loops, strict=True))
    each = 1e6 / LINES
    say(
        f"json.loads {least_wall * each:.1f} µs a line; produce {wall * each:.1f}: {least_wall / wall:.2f} of its speed"
        f" (limit {AIM}), {least_used / used:.2f} by processor time"
    )
    watch.require_quiet()
    assert least_wall / wall >= AIM * NOISE


def parsing(lines: Path) -> tuple[float, float]:
    """Return the seconds, and those of processor time, of the loop that produces nothing."""
    start, started = time.monotonic(), time.process_time()
    with open(lines, "rb") as file:
        for line in file:
            json.loads(line)
    return time.monotonic() - start, time.process_time() - started
