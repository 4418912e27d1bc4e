"""What a copy costs beside the engine's put_many in the same run, and its memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.errors import Exit
from tests.bench.large_store import write_large_store
from tests.bench.one_run import Cost, run_tool
from tests.support.stores import FIXTURES

pytestmark = pytest.mark.bench

ROUNDS = 3
BODY = 1024
SMALL, LARGE = 64 << 20, 512 << 20
PUTS = 100_000
SHARE = 0.4
MEMORY_LIMIT = 256


def copied(root: Path, *words: str) -> Cost:
    target = root.parent / "target"
    cost = run_tool(Exit.DONE, "copy", root, target, *words, "--progress", "never", "--quiet")
    shutil.rmtree(target)
    return cost


def put_many(directory: Path) -> tuple[float, float]:
    """Return what a message costs, in microseconds of a processor: put and dispatched; made before that."""
    words = [sys.executable, "-m", "tests.bench.engine_puts", "many", str(directory)]
    words += ["--messages", str(PUTS), "--body", str(BODY)]
    done = subprocess.run(words, cwd=FIXTURES.parent, check=True, capture_output=True)
    shutil.rmtree(directory)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["cpu_us_msg"], found["build_us_msg"]


@pytest.mark.parametrize("words", [(), ("--renumber", "--rehost", "10.1.2.3:10911")], ids=["kept", "rewritten"])
def test_a_copy_against_put_many(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    few, many = (
        write_large_store(root, total, segment=SMALL, body_length=BODY)
        for root, total in ((small, SMALL), (large, LARGE))
    )
    least, costs, puts = [], [], []
    for _ in range(ROUNDS):
        least.append(copied(small, *words))
        costs.append(copied(large, *words))
        puts.append(put_many(tmp_path / "put"))
    # What starting takes is in both.
    seconds = min(cost.processor for cost in costs) - min(cost.processor for cost in least)
    each = seconds / (many - few) * 1e6
    put, made = min(puts)
    memory = max(cost.memory for cost in costs)
    wall = min(cost.wall for cost in costs)
    with capsys.disabled():
        print(f"\ncopy of {many} messages, {LARGE >> 20} MiB: {wall:.1f} s, {each:.2f} us a message, {memory:.0f} MiB")
        print(f"  put_many: {put:.2f} us a message, {made:.2f} of them to make it; ratio {(put - made) / each:.2f}")
        print(f"  memory against that of a log of an eighth: {memory / max(cost.memory for cost in least):.2f}")
    assert (put - made) / each >= SHARE
    assert memory <= MEMORY_LIMIT
