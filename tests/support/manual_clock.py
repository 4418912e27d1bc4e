"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, tzinfo

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
