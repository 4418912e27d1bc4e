"""A real broker is killed and started while our client sends: nothing is lost or doubled that was not said to be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(
    ("count", "kills"), [(6_000, 1), pytest.param(100_000, 5, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_what_was_said_of_each_message_is_right(
    real_classes: Callable[[str], None], tmp_path: Path, count: int, kills: int
) -> None:
    version = "5.3.3"
    real_classes(version)
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("a network of its own needs unshare and ip")
    out = tmp_path / "seen.json"
    module = [sys.executable, "-m", "tests.conformance.live_outage", version, tmp_path / "run", out]
    command = ["unshare", "-Urn", *module, str(count), str(kills)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    seen = json.loads(out.read_text())
    said, there = seen["said"], seen["there"]
    assert sum(map(len, said.values())) == count
    # Only a window of sends can be unknown after a kill; the others wait for the broker, which is started at once.
    assert len(said["stored"]) > count // 2
    assert [key for key in said["stored"] if there.get(key) != 1] == []
    assert [key for key in said["unknown"] if there.get(key, 0) > 1] == []
    assert [key for key in said["not stored"] if key in there] == []
    assert seen["decided"] == ["yes"], "our check decides after the restart of the broker"
    for status, text in seen["copied"]:
        assert status == 0, text
