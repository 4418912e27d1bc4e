"""``consume`` beside ``cat``, and ``produce`` beside a loop that only parses: processor time of whole commands."""

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
from tests.bench.test_cat import NOISE, Watch, say, taken

pytestmark = pytest.mark.bench

ROUNDS = 3
# The aim is half the speed of the parser alone; this is what was reached, and is not to be lost.
AIM, REACHED = 0.5, 0.3


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
        process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    lines, count = tmp_path / "lines", 100_000
    with open(lines, "wb") as file:
        command = [sys.executable, "-m", "rmqtool", "cat", str(orders), "-t", "Orders1", "--jsonl", "-n", str(count)]
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
    stored = lines.read_bytes().splitlines(keepends=True)

    def loop() -> None:
        for line in stored:
            json.loads(line)

    loops, produces, watch = [], [], Watch()
    for number in range(ROUNDS):
        root = tmp_path / str(number)
        assert main(["init", str(root), "--conf", f"mappedFileSizeCommitLog={1 << 30}"]) == 0
        loops.append(taken(loop))
        start = time.monotonic()
        used = run("produce", root, "--jsonl", "--create", stdin=lines)
        produces.append((used, time.monotonic() - start))
        shutil.rmtree(root)
    used, wall = min(produces)
    ratio = min(loops) / used
    say(
        f"json.loads {min(loops) / len(stored) * 1e6:.1f} µs a line, produce {used / len(stored) * 1e6:.1f} "
        f"({wall:.1f} s): {ratio:.2f} of its speed (aim {AIM})"
    )
    watch.require_quiet()
    assert ratio >= REACHED * NOISE
