"""``rmqtool serve`` beside a real 5.3.3 broker: the same unmodified Java client, in the same minutes, by turns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.bench.serve_speed import VERSION, WORK
from tests.conformance.oracle.packages import missing_tools, prepare

ROOT = Path(__file__).parents[2]
ROUNDS = 5
# Messages per second against the real broker's; and seconds of processor for each message against the real broker's.
LEAST_SPEED = {"sync 1": 0.7, "sync 16": 1.0, "async 1000": 1.0, "batch 32": 1.0, "push": 1.5, "flushed 16": 1.2}
MOST_PROCESSOR = {"async 1000": 1.0, "push": 0.5}
MOST_LATENCY = 0.8
# Seconds until clients may come, and MiB after all the work.
READY, MEMORY = 1.0, 150
# The machine's own noise is taken off what is asked for.
NOISE = 0.85


@pytest.mark.bench
@pytest.mark.skipif(bool(missing_tools()), reason="the peer needs a JDK and Maven")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="brokers need a network of their own: unshare is missing")
def test_serve_against_a_real_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(VERSION)
    out = tmp_path / "out.json"
    command = ["unshare", "-Urn", sys.executable, "-m", "tests.bench.serve_speed", tmp_path / "run", out, str(ROUNDS)]
    subprocess.run(command, cwd=ROOT, check=True)
    measured = json.loads(out.read_text())
    ratios = {name: ratio(name, sides, "speed") for name, sides in measured["work"].items()}
    processor = {name: ratio(name, measured["work"][name], "processor") for name in MOST_PROCESSOR}
    with capsys.disabled():
        for name, sides in measured["work"].items():
            rows = [f"{side} {median(value(one, 'speed') for one in said):,.0f}" for side, said in sides.items()]
            print(f"\n{name}: {', '.join(rows)}; ratio {ratios[name]:.2f}", end="")
        print(f"\nprocessor {processor}; ready {measured['ready']}; MiB {measured['memory']}")
    assert all(not one.get("errors") for sides in measured["work"].values() for said in sides.values() for one in said)
    assert {name: ratios[name] for name in LEAST_SPEED if ratios[name] < LEAST_SPEED[name] * NOISE} == {}
    assert {name: one for name, one in processor.items() if one > MOST_PROCESSOR[name] / NOISE} == {}
    assert ratios["latency"] <= MOST_LATENCY / NOISE
    assert measured["ready"]["serve"] <= READY / NOISE
    assert measured["memory"]["serve"] <= MEMORY


def value(said: dict[str, Any], what: str) -> float:
    """Return messages per second, seconds of processor for a message, or milliseconds until it is consumed."""
    if what == "processor":
        return float(said["processor"] / said["messages"])
    return float(said["p50"] if "p50" in said else said["messages"] / said["seconds"])


def ratio(name: str, sides: dict[str, list[dict[str, Any]]], what: str) -> float:
    """Return ours against the real broker's, of the median round."""
    assert name in WORK
    pairs = zip(sides["serve"], sides["real"], strict=True)
    return median(value(ours, what) / value(theirs, what) for ours, theirs in pairs)
