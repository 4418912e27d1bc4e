"""What a mirror costs: processor time for a megabyte, and memory that does not grow with the log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench

MEGABYTES = 2048
# The most memory of a mirror, in MiB. It holds 1 MiB of the stream.
MOST_MEMORY = 100


def test_a_mirror_takes_little_and_stays_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = _run(tmp_path / "small", MEGABYTES // 8)
    large = _run(tmp_path / "large", MEGABYTES)
    seconds = large[0] - small[0]
    rate = (MEGABYTES - MEGABYTES // 8) / seconds
    with capsys.disabled():
        print(f"\nmirror: {rate:.0f} MB by the processor second, {large[1]} MiB of memory ({small[1]} for an eighth)")
    assert large[1] <= MOST_MEMORY
    assert large[1] <= small[1] * 1.2


def _run(root: Path, megabytes: int) -> tuple[float, int]:
    """Mirror a log; return the processor seconds and the most memory in MiB."""
    sender = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.fast_master", str(megabytes)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert sender.stdout is not None
        address = sender.stdout.readline().strip()
        words = [sys.executable, "-m", "rmqtool", "mirror", address, str(root), "--once", "--quiet"]
        mirror = os.posix_spawn(sys.executable, words, os.environ)
        _, status, usage = os.wait4(mirror, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        sender.kill()
        sender.communicate()
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10
