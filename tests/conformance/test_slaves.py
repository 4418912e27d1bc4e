"""Real brokers as slaves of ``serve``: log and queues are equal, and a promoted one has all that was acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.4.0"])
def test_a_real_slave_has_the_log_and_the_queues_and_is_promoted(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_slave", version, tmp_path / "run", out, timeout=400)
    seen = json.loads(out.read_text())
    assert seen["log"]
    assert all(seen["log"])
    assert seen["accepted"] == 2_501
    assert -1 not in seen["queues"]
    assert sum(seen["queues"]) >= seen["accepted"]
    assert set(seen["topics"][0]) <= set(seen["topics"][1])
    assert seen["addresses"] == {"0": "127.0.0.1:10911", "1": "127.0.0.1:20911"}
    assert seen["errors"] == []
    assert '"error"' not in seen["events"]
    # The server was killed after the last acknowledgement.
    assert (seen["missing"], seen["served"] >= seen["accepted"]) == ([], True)
