"""Our members and Java members in one group at a real broker: nothing is lost, and in a quiet time nothing doubled."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.live_shared_group import QUEUES, STABLE
from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance
_TEN_MINUTES = pytest.param(600, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])


@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
@pytest.mark.parametrize("seconds", [40, _TEN_MINUTES])
def test_our_members_and_java_members_share_a_group(
    real_classes: Callable[[str], None], tmp_path: Path, kind: str, seconds: int
) -> None:
    real_classes("5.3.3")
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_shared_group", "5.3.3", tmp_path / "run", out, seconds, kind, timeout=1400)
    judge(json.loads(out.read_text()), kind)


def judge(seen: dict[str, Any], kind: str) -> None:
    """Fail unless each message came, those of the quiet time once, and those of an ordered queue in their order."""
    counts, taken = seen["counts"], seen["taken"]
    times = Counter(one["body"] for one in taken)
    expected = {f"{queue}:{number}" for queue, count in enumerate(counts) for number in range(count)}
    quiet = {f"s{number % QUEUES}:{number // QUEUES}" for number in range(STABLE)}
    assert set(times) == expected | quiet
    assert [body for body in quiet if times[body] != 1] == []
    assert {name.partition(" ")[0].partition("-")[0] for name in seen["changes"]} == {"ours", "java"}
    if kind == "orderly":
        by_queue = defaultdict(list)
        for one in taken:
            by_queue[one["queue"]].append(one)
        for queue, found in by_queue.items():
            in_order(sorted(found, key=lambda one: (one["begun"], one["ended"])), f"queue {queue}", seen["killed"])


def in_order(taken: list[dict[str, Any]], name: str, killed: list[str]) -> None:
    """Fail where a message comes before the one before it, or while another member has the queue."""
    quiet = [int(one["body"].partition(":")[2]) for one in taken if one["body"].startswith("s")]
    assert quiet == sorted(quiet), name
    usual = [one for one in taken if not one["body"].startswith("s")]
    numbers = [int(one["body"].partition(":")[2]) for one in usual]
    reached = -1
    for number in numbers:
        assert number <= reached + 1, f"{name}: message {number} came after {reached}"
        reached = max(reached, number)
    for (before, one), (after, other) in pairwise(zip(usual, numbers, strict=True)):
        if before["member"] == after["member"]:
            assert other == one + 1 or other <= one, name
        elif before["member"] not in killed:
            assert before["ended"] <= after["begun"], f"{name}: {before} and {after}"
