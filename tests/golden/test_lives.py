"""Acceptance: the lives recorded in the broker fixtures come out the same, record for record, when lived again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lives import Life, shown


@pytest.mark.parametrize("name", ["49-broker", "53-broker", "54-broker", "53-timer"])
def test_a_recorded_life_comes_out_the_same(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    life = Life(name, store(name), tmp_path / "again")
    life.live()
    assert [(kind, shown(real), ours and shown(ours)) for kind, real, ours in life.differing] == []
    life.close()
