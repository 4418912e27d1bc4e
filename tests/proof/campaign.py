"""What a campaign is, and what one seed of it gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Outcome:
    """What one seed gave: how many states were judged, and in words everything that was wrong."""

    states: int = 0
    failures: list[str] = field(default_factory=list)
    # Processor time of processes that go on, so that nobody has counted it.
    seconds_elsewhere: float = 0.0

    def judge(self, found: list[str], where: str) -> None:
        """Count one state, and keep what is wrong with it."""
        self.states += 1
        self.failures += [f"{where}: {one}" for one in found]


def _always() -> str | None:
    return None


class Campaign(NamedTuple):
    """A way of trying: its name, what it counts, how many are the goal, and the work of one seed.

    ``missing`` says why this machine cannot do it, or None.
    """

    name: str
    unit: str
    goal: int
    run: Callable[[int], Outcome]
    missing: Callable[[], str | None] = _always
