"""Dead letters of a real broker, edited and sent again by us, are consumed by the Java group that refused them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.live_cluster import TOPIC
from tests.conformance.live_dead_letters import LETTERS
from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance
BODIES = ["bill 0, mended", "bill 1, mended", "bill 2", "bill 3", "bill 4"]
# Of the client's and the broker's own; MIN_OFFSET and MAX_OFFSET are made when a client pulls.
OWN = {"MSG_REGION", "UNIQ_KEY", "CLUSTER", "MIN_OFFSET", "MAX_OFFSET", "WAIT", "TRACE_ON", "CONSUME_START_TIME"}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_group_consumes_its_edited_dead_letters(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_dead_letters", version, tmp_path / "run", out, timeout=400)
    seen = json.loads(out.read_text())
    assert [one["body"] for one in seen["refused"]] == [f"bill {number}" for number in range(LETTERS)]
    assert seen["letters"] == [0, LETTERS]
    for status, told in seen["sent"]:
        assert status == 0, told
    first = {one["keys"]: one for one in seen["refused"]}
    for part in ("live", "files"):
        # The member that takes the stored ones may get one again that it had not committed when it ended.
        taken = list({one["keys"]: one for one in seen[part]}.values())
        assert [one["body"] for one in taken] == BODIES
        for number, one in enumerate(taken):
            original = first[one["keys"]]
            assert (one["topic"], one["keys"], one["tags"]) == (TOPIC, f"k{number} all", "A")
            assert (one["flag"], one["reconsumeTimes"]) == (0 if number else 7, 0)
            sent = {"customer": f"c{number}"} if number else {"mended": "by hand"}
            properties = {name: value for name, value in one["properties"].items() if name not in OWN}
            assert properties == {"KEYS": one["keys"], "TAGS": "A", **sent}
            # Only --keep-ids keeps the id of the producer.
            assert (one["id"] == original["id"]) == (part == "files")
