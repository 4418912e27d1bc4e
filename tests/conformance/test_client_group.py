"""Our members of a consumer group at a real broker: each message once, in order where asked, and one takes over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.live_cluster import QUEUES
from tests.conformance.live_group import MESSAGES
from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance


def test_our_members_share_a_group_at_a_real_broker(real_classes: Callable[[str], None], tmp_path: Path) -> None:
    version = "5.3.3"
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_group", version, tmp_path / "run", out, timeout=300)
    seen = json.loads(out.read_text())
    assert sorted(seen["taken"]) == list(range(MESSAGES)), "each message once"
    assert sum(place["committed"] for place in seen["places"].values()) == MESSAGES
    assert [place["lag"] for place in seen["places"].values()] == [0] * QUEUES
    for queue in range(QUEUES):
        offsets = [offset for queue_id, offset in seen["ordered"] if queue_id == queue]
        assert offsets == list(range(len(offsets))), "in the order of the queue"
    assert len(seen["ordered"]) == MESSAGES
    assert (seen["failed"], len(seen["dead"])) == (1, 3)
    first, second = seen["shared"]
    assert {*first, *second} == set(range(MESSAGES)), "nothing is lost with the member that was killed"
    # What the killed member had shown and not committed is shown again: at most a pull.
    assert len(first) + len(second) <= MESSAGES + 32
