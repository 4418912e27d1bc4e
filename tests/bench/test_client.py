"""Our client beside the Java client at a real 5.3.3 broker, in the same minutes, by turns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.bench.serve_speed import VERSION
from tests.bench.test_serve import NOISE, ROOT, ROUNDS
from tests.conformance.oracle.packages import missing_tools, prepare

# Messages per second against the Java client's, and by themselves.
LEAST_SPEED = {"fetch": 1.5, "async 1000": 0.8, "batch 32": 1.0}
LEAST_FETCHED = 200_000
# ``cat`` against ``mqadmin printMsg``, and the seconds until the first message.
LEAST_CAT, FIRST = 5.0, 0.3


@pytest.mark.bench
@pytest.mark.skipif(bool(missing_tools()), reason="the peer needs a JDK and Maven")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="brokers need a network of their own: unshare is missing")
def test_our_client_beside_the_java_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(VERSION)
    out = tmp_path / "out.json"
    command = ["unshare", "-Urn", sys.executable, "-m", "tests.bench.client_speed", tmp_path / "run", out, str(ROUNDS)]
    subprocess.run(command, cwd=ROOT, check=True)
    measured = json.loads(out.read_text())
    ratios = {name: ratio(sides, "speed") for name, sides in measured["work"].items()}
    fetched = max(one["speed"] for one in measured["work"]["fetch"]["ours"])
    first = min(one["seconds"] for one in measured["first"])
    printed = median(one["printMsg"]["seconds"] / one["cat"]["seconds"] for one in measured["cat"])
    with capsys.disabled():
        for name, sides in measured["work"].items():
            rows = [f"{side} {median(one['speed'] for one in said):,.0f}" for side, said in sides.items()]
            used = ratio(sides, "processor")
            print(f"\n{name}: {', '.join(rows)}; ratio {ratios[name]:.2f}, processor {used:.2f}", end="")
        used = min(one["processor"] for one in measured["first"])
        print(f"\nfetched {fetched:,.0f}/s; cat {printed:.1f} x printMsg; first {first:.3f} s, processor {used:.3f} s")
    assert {name: one for name, one in ratios.items() if one < LEAST_SPEED[name] * NOISE} == {}
    assert fetched >= LEAST_FETCHED * NOISE
    assert printed >= LEAST_CAT * NOISE
    assert first <= FIRST / NOISE


def ratio(sides: dict[str, list[dict[str, Any]]], what: str) -> float:
    """Return ours against theirs, of the median round."""
    pairs = zip(sides["ours"], sides["theirs"], strict=True)
    return median(float(ours[what] / theirs[what]) for ours, theirs in pairs)
