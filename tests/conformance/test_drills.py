"""Disaster drills: a real master and its disk are lost at a random moment; a real broker goes on with the mirror."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.own_network import run_alone

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

VERSIONS = ("5.3.3", "4.9.7", "5.4.0")
ROUNDS = 10


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, ROUNDS))])
def test_every_message_that_the_mirror_acknowledged_is_consumed(
    seed: int, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    version = VERSIONS[seed % len(VERSIONS)]
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_drill", version, tmp_path / "run", out, seed, timeout=500)
    seen = json.loads(out.read_text())
    assert seen["mirror"] == 0
    # Without --live the first check reports that queues are missing; after the recovery nothing is left.
    assert [(name, status) for name, status, _ in seen["recipe"][1:]] == [("recover", 0), ("check", 0)], seen["recipe"]
    assert seen["recipe"][0][1] == 1, seen["recipe"][0]
    accepted, before, after = set(seen["accepted"]), seen["consumed"], seen["went on"]
    assert (before[0], after[0]) == (0, 0)
    assert len(before[1]) == 200
    assert len(accepted) >= 400
    assert sorted(accepted - set(before[1]) - set(after[1])) == []
    # The group went on, it did not begin again.
    assert len(set(before[1]) & set(after[1])) < len(before[1])
