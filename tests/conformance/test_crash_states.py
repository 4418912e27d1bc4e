"""What power cuts leave, started by the real classes: a slice of `make proof`, and that a broken engine is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof import starts
from tests.proof.canaries import STARTED, hunt

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

RealClasses = Callable[[str], None]


@pytest.mark.parametrize("number", range(len(starts.VERSIONS)), ids=starts.VERSIONS.values())
def test_they_start_and_serve_what_was_promised(number: int, real_classes: RealClasses) -> None:
    real_classes(list(starts.VERSIONS.values())[number])
    tried = starts.run(number)
    assert tried.failures == []
    assert tried.states > 30


def test_a_broken_engine_is_noticed(real_classes: RealClasses) -> None:
    for version in starts.VERSIONS.values():
        real_classes(version)
    assert hunt(STARTED, range(20)) is not None
