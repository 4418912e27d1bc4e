"""Time as the engine sees it: the wall clock that stamps messages, and a clock that never goes backwards."""

from __future__ import annotations

import time
from datetime import UTC, datetime, tzinfo
from typing import Protocol


class Clock(Protocol):
    """What tells the time, in milliseconds."""

    def now(self) -> int:
        """Return the time of day since 1970; it may jump."""

    def monotonic(self) -> int:
        """Return a time that only ever grows; it means something only beside another one."""

    @property
    def zone(self) -> tzinfo:
        """The time zone in which index files are named."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> int:
        """Return the time of day."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Return the time since some moment."""
        return time.monotonic_ns() // 1_000_000

    @property
    def zone(self) -> tzinfo:
        """The local time zone."""
        return datetime.now(UTC).astimezone().tzinfo or UTC


class FixedClock(SystemClock):
    """A clock at which it is always the same time of day."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now(self) -> int:
        """Return the one time of day."""
        return self._now_ms
