"""Mirrors of real brokers: killed and cut while a producer sends, and equal to the byte."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.4.0"])
def test_a_mirror_that_is_killed_and_cut_equals_the_log(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("a network of its own needs unshare and ip")
    out = tmp_path / "seen.json"
    run = ["unshare", "-Urn", sys.executable, "-m", "tests.conformance.live_mirror", version, tmp_path / "run", out]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    seen = json.loads(out.read_text())
    assert (seen["status"], seen["once"]) == (0, 0), seen["errors"]
    assert seen["files"]
    assert all(same for _, same in seen["files"]), seen["files"]
    assert seen["line"]["lagBytes"] == 0
    assert "gap" not in seen["lines"]
    assert seen["topics"] == seen["broker_topics"] != []
    assert seen["recover"] == 0
    assert seen["check"][0] == 0, seen["check"][1]
    # Every message that a producer was promised, and those whose answers were lost at the end.
    assert seen["count"][0] == 0
    assert int(seen["count"][1].replace(",", "").split()[0]) >= seen["acknowledged"] > 1_000
