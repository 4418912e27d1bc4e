"""Mirrors of real brokers: killed and cut while a producer sends, and equal to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance

VERSIONS = ("4.9.7", "5.3.3", "5.4.0")
# A log of 10 GB, and KiB that the mirror of it may take.
LARGE, MEMORY = 10 << 30, 100 << 10


def mirrored(version: str, directory: Path, timeout: int = 400, **plan: int) -> dict[str, Any]:
    """Mirror a real broker as planned, and return what was seen; what must always hold is asserted."""
    out = directory / "seen.json"
    run_alone("tests.conformance.live_mirror", version, directory / "run", out, json.dumps(plan), timeout=timeout)
    seen: dict[str, Any] = json.loads(out.read_text())
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
    assert seen["memory"] < MEMORY
    return seen


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mirror_that_is_killed_and_cut_equals_the_log(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    mirrored(version, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_hundred_kills_of_the_mirror_and_twenty_of_the_broker(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    mirrored(version, tmp_path, timeout=2900, kills=100, cuts=20, restarts=20)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_log(version: str, real_classes: Callable[[str], None], tmp_path: Path) -> None:
    real_classes(version)
    seen = mirrored(version, tmp_path, timeout=2900, kills=2, cuts=1, size=LARGE, body=60_000)
    assert seen["durable"] > LARGE
