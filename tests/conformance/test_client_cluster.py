"""Our client and real brokers: what it sends is stored, and what it reads is what their files hold, line for line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    check_numbers(seen["info"], seen["mqadmin"], version)
    bounds = queue_bounds(seen["info"], TOPIC)
    assert len(bounds) == QUEUES
    assert seen["taken"] == [0, 4_000]
    assert sum(most - least for _, least, most in bounds) == seen["sent"] == seen["topic"]
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


def queue_bounds(info: dict[str, Any], topic: str) -> list[tuple[int, int, int]]:
    """Return the queues of a topic: number, minimum, maximum."""
    queues = info["topics"][topic]["queues"].items()
    return sorted((int(number), one["minOffset"], one["maxOffset"]) for number, one in queues)


def check_numbers(info: dict[str, Any], mqadmin: dict[str, str], version: str) -> None:
    """Fail unless ``info`` has the numbers of mqadmin: of brokers, queues, and groups."""
    ((name, broker),) = info["brokers"].items()
    (row,) = [line.split() for line in mqadmin["clusterList"].splitlines() if name in line]
    release = "V" + version.replace(".", "_")
    assert row[:5] == [broker["cluster"], name, "0", broker["addresses"]["0"], release]
    assert broker["version"] == version
    listed = set(mqadmin["topicList"].split())
    # Half messages and the like are no topics that a client sees; some brokers register them nevertheless.
    assert listed >= set(info["topics"])
    assert {one for one in listed - set(info["topics"]) if not one.startswith(("RMQ_SYS_", "rmq_sys_"))} == set()
    compared = 0
    for topic in info["topics"]:
        rows = re.findall(rf"^{name}\s+(\d+)\s+(\d+)\s+(\d+)", mqadmin[f"topicStatus -t {topic}"], re.MULTILINE)
        assert queue_bounds(info, topic) == sorted(tuple(map(int, row)) for row in rows), topic
        compared += len(rows)
    assert compared > QUEUES
    places = info["groups"]["Half"][TOPIC]
    columns = rf"^{TOPIC}\s+{name}" + r"\s+(\d+)" * 4
    rows = re.findall(columns, mqadmin["consumerProgress -g Half"], re.MULTILINE)
    expected = [
        (int(number), one["committed"] + one["lag"], one["committed"], one["lag"]) for number, one in places.items()
    ]
    assert sorted(tuple(map(int, row)) for row in rows) == sorted(expected)
    assert len(rows) == QUEUES
    (total,) = re.findall(r"^Half .*\s(\d+)$", mqadmin["consumerProgress"], re.MULTILINE)
    assert int(total) == sum(one["lag"] for topic in info["groups"]["Half"].values() for one in topic.values()) > 0
