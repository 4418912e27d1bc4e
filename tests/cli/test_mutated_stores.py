"""``check`` of stores with seeded damage: an answer each time, in bounded memory and time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MOST_MIB = 256
AT_ONCE = 2000


def answers(first, last):
    """Check the stores of some seeds in a process of their own; a signal or a hang ends it with another status."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.mutated", str(first), str(last)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == [], done.stderr[-4000:]
    assert found["peakMiB"] <= MOST_MIB
    assert "Traceback" not in done.stderr


def test_every_mutated_store_is_judged():
    answers(0, 150)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20_000, AT_ONCE))
def test_every_mutated_store_of_many_is_judged(first):
    answers(first, first + AT_ONCE)
