"""The engine in a process of its own, as other benches measure it; and what memory it takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench.peer.measuring import figures
from tests.conformance.conftest import real_classes

__all__ = ["real_classes"]

pytestmark = pytest.mark.bench

NOISE = 0.85
MEMORY = 200
ROOT = Path(__file__).resolve().parents[2]


def run(command: Sequence[str]) -> dict[str, float]:
    """Run a program; return the numbers of the line that ends its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return figures(done.stdout)


def ours(scenario: str, directory: Path, *options: object) -> dict[str, float]:
    """Measure the engine in a process of its own."""
    return run([sys.executable, "-m", "tests.bench.engine_puts", scenario, str(directory), *map(str, options)])


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ours("columns", tmp_path, "--messages", 1_250_000, "--body", 4000)
    with capsys.disabled():
        print(f"\n{found['rss_mib']:.0f} MiB at most over 5 GiB written (limit {MEMORY})")
    assert found["rss_mib"] <= MEMORY
