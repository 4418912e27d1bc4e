"""What memory a command takes, those processes included that it starts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def peak_of(*words: object, status: int = 0) -> float:
    """Return the most memory in MiB that the processes of the command had together, what they share counted once."""
    most = 0.0
    command = [sys.executable, "-m", "rmqtool", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, sum(map(proportional_size, family(process.pid))))
        time.sleep(0.05)
    assert process.returncode == status, words
    return most / 1024


def family(pid: int) -> list[int]:
    try:
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []


def proportional_size(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
