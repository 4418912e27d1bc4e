"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, tzinfo

import pytest

from rmqtool.engine.clock import SystemClock

START = 1_700_000_000_000


class ManualClock:
    """Both of the engine's clocks, moved by hand."""

    def __init__(self, now: int = START) -> None:
        self.wall = now
        self.since_start = 0

    def now(self) -> int:
        return self.wall

    def monotonic(self) -> int:
        return self.since_start

    @property
    def zone(self) -> tzinfo:
        return UTC

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self.wall += milliseconds
        self.since_start += milliseconds


class SetForward:
    """The clocks of this machine, which a test sets forward, also for a server that runs already."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._ahead = 0
        for name in ("now", "monotonic"):
            patch.setattr(SystemClock, name, self._ahead_of(name))

    def _ahead_of(self, name: str) -> object:
        real = getattr(SystemClock, name)
        return lambda clock: real(clock) + self._ahead

    def advance(self, milliseconds: int) -> None:
        """Let time pass for all that ask these clocks."""
        self._ahead += milliseconds
