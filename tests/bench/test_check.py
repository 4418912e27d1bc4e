"""``check`` of a large store against the mere reading of its files. Ratios are asserted; times are printed.

Everything is measured in turns, several times, and the best of each counts: what else the machine does at a moment
should not decide.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqtool.store.open import open_store
from tests.bench.large_store import write_large_store
from tests.bench.one_run import AS_INSTALLED

pytestmark = pytest.mark.bench

LOG_BYTES = 2 << 30
ROUNDS = 3
# Of the rate at which the page cache gives the same bytes, and of one process.
OF_READING, OF_TWO = 0.25, 1.7
QUICK_SECONDS = 1.0
MOST_MIB = 256
_BUFFER = 1 << 20
_CHECK = """
import sys, time
jobs, depth = int(sys.argv[2]), sys.argv[3]
from rmqtool.checks.check import Check, CheckOptions
from rmqtool.checks.case import Depth
from rmqtool.log.ranges import Effort
from rmqtool.store.open import open_store
with open_store(sys.argv[1]) as store:
    start = time.perf_counter()
    check = Check(store, CheckOptions(Depth[depth]), Effort(jobs))
    findings = [f for f in check if f.severity != "notice"]
    taken = time.perf_counter() - start
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(taken, len(findings), check.summary.messages, int(peak) >> 10)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    root: Path = tmp_path_factory.mktemp("bench") / "store"
    return root, write_large_store(root, LOG_BYTES)


def checked(root: Path, jobs: int, depth: str = "DEFAULT") -> tuple[float, int, int, int]:
    """Check in a process of its own: seconds, findings, messages, peak of its memory."""
    command = [sys.executable, "-c", _CHECK, str(root), str(jobs), depth]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=AS_INSTALLED)
    taken, *numbers = done.stdout.split()
    return float(taken), *map(int, numbers)


def read_all(root: Path) -> float:
    """Read the files of log, queues and index as the page cache gives them; return the seconds."""
    buffer = bytearray(_BUFFER)
    start = time.perf_counter()
    for path in sorted(root.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            while os.readv(descriptor, [buffer]):
                pass
            os.close(descriptor)
    return time.perf_counter() - start


def test_check_against_reading_and_two_threads_against_one(store, capsys):
    root, messages = store
    reading, one, two, peaks = [], [], [], []
    read_all(root)
    for _ in range(ROUNDS):
        reading.append(read_all(root))
        for jobs, taken in ((1, one), (2, two)):
            seconds, findings, seen, peak = checked(root, jobs)
            assert (findings, seen) == (0, messages)
            taken.append(seconds)
            peaks.append(peak)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / (1 << 20)
    with capsys.disabled():
        print(
            f"\nread {size / min(reading):.0f} MiB/s, check with one thread {size / min(one):.0f} MiB/s "
            f"({min(reading) / min(one):.2f} of it), with two {size / min(two):.0f} MiB/s "
            f"({min(reading) / min(two):.2f} of it, {min(one) / min(two):.2f} of one); {max(peaks)} MiB of memory"
        )
    assert max(peaks) <= MOST_MIB
    assert min(reading) / min(two) >= OF_READING
    assert min(one) / min(two) >= OF_TWO


def test_a_quick_check_of_many_queues(store, capsys):
    root, _ = store
    with open_store(str(root)) as opened:
        assert len(list(opened.listing.files)) > 200
    taken = min(checked(root, 1, "QUICK")[0] for _ in range(ROUNDS))
    with capsys.disabled():
        print(f"\nquick check of 200 queues: {1000 * taken:.0f} ms")
    assert taken <= QUICK_SECONDS
