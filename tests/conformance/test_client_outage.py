"""A real broker is killed and started while our client sends: nothing is lost or doubled that was not said to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(
    ("count", "kills"), [(6_000, 1), pytest.param(100_000, 5, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_what_was_said_of_each_message_is_right(
    real_classes: Callable[[str], None], tmp_path: Path, count: int, kills: int
) -> None:
    version = "5.3.3"
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_outage", version, tmp_path / "run", out, count, kills, timeout=1500)
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
