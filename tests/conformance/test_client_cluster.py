"""Our client and real brokers: what it sends is stored, and what it reads is what their files hold, line for line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.live_cluster import QUEUES, TOPIC
from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.4.0"])
def test_a_life_with_a_real_broker(version: str, real_classes: Callable[[str], None], tmp_path: Path) -> None:
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_cluster", version, tmp_path / "run", out, timeout=400)
    seen = json.loads(out.read_text())
    bounds = {
        number: [one["minOffset"], one["maxOffset"]] for number, one in seen["info"]["topics"][TOPIC]["queues"].items()
    }
    assert bounds == seen["mqadmin"]
    assert len(bounds) == QUEUES
    assert seen["info"]["brokers"]["broker-a"]["version"] == version
    assert sum(most - least for least, most in bounds.values()) == seen["sent"] == seen["topic"]
    assert seen["found"] == [True] * 4
    written = {name: seen["groups"]["Written"][name] for name in ("retryMaxTimes", "consumeBroadcastEnable")}
    assert written == {"retryMaxTimes": 3, "consumeBroadcastEnable": False}
    assert "Deleted" not in seen["groups"]
    assert seen["altered"] == 5
    assert seen["statuses"] == [0, 0]
    assert seen["different"] == [], "cat of the cluster prints what cat of the store prints"
    assert seen["same"]
    assert seen["hidden"] <= (2 if version.startswith("4.") else 0)
    assert seen["lines"] > seen["sent"]
    assert seen["more"] < 50
    assert seen["exported"] == [seen["sent"]] * 3, "the rows of an export are those of the broker's files"
