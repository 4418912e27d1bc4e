"""Our consumer that pops, at a real broker and at ``serve``: each message once, and what failed again, at one time."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from tests.conformance.live_pops import HIDDEN, MESSAGES, QUEUES, life
from tests.conformance.own_network import run_alone

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

EVERY = [str(number) for number in range(MESSAGES)]


@pytest.fixture(scope="module")
def real(real_classes: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    real_classes("5.3.3")
    directory = tmp_path_factory.mktemp("real")
    run_alone("tests.conformance.live_pops", "5.3.3", directory / "run", directory / "seen.json", timeout=400)
    found: dict[str, Any] = json.loads((directory / "seen.json").read_text())
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return life("serve", tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize("where", ["real", "served"])
def test_each_message_is_popped_once(where: str, request: pytest.FixtureRequest) -> None:
    seen = request.getfixturevalue(where)
    first, rest, again = seen["commands"]["parts"]
    assert (len(first), again) == (50, [])
    assert sorted(first + rest, key=int) == EVERY
    assert sorted(seen["commands"]["odd"], key=int) == EVERY[1::2]
    assert len(seen["commands"]["one queue"]) == MESSAGES // QUEUES


@pytest.mark.parametrize("where", ["real", "served"])
def test_what_fails_comes_again_and_is_a_dead_letter_at_last(where: str, request: pytest.FixtureRequest) -> None:
    seen = request.getfixturevalue(where)["handled"]
    assert sorted(seen["seen"], key=int) == sorted([*EVERY, "7", "8"], key=int)
    assert seen["dead"] == ["8"]


def test_what_is_not_acked_comes_back_when_it_does_at_a_real_broker(
    real: dict[str, Any], served: dict[str, Any]
) -> None:
    assert min(*real["hidden"], *served["hidden"]) >= HIDDEN / 1000 - 1
    assert abs(median(real["hidden"]) - median(served["hidden"])) <= 1
