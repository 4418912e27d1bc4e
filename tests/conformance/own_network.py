"""Programs in a network of their own, which has the loopback interface and nothing else.

Real brokers listen at all addresses of their machine. The program and everything that it starts end with the test,
also where a time limit ends that: they have process numbers of their own, and the first of them dies with its parent.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

_ALONE = ("unshare", "-Urn", "--pid", "--fork", "--kill-child", "--mount-proc")


def run_alone(module: str, *words: object, timeout: float) -> None:
    """Run a module; it must end with 0. Skips the test where the tools are missing."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("a network of its own needs unshare and ip")
    command = [*_ALONE, sys.executable, "-m", module, *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
