"""The engine's time: a wall clock that stamps messages, and a monotonic clock that measures intervals.

A clock is injected so that tests decide what time it is.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, tzinfo
from typing import Protocol


class Clock(Protocol):
    """A source of time, in milliseconds."""

    def now(self) -> int:
        """Return the ms since 1970. They may jump in both directions."""

    def monotonic(self) -> int:
        """Return a number of ms that never decreases. Only the difference of two of them means something."""

    @property
    def zone(self) -> tzinfo:
        """The time zone in which index files are named: upstream uses local time."""


class SystemClock:
    """The clocks of the machine, and its time zone."""

    def now(self) -> int:
        """Return the machine's wall clock in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Return the ms since an unspecified moment, not changed by setting the clock."""
        return time.monotonic_ns() // 1_000_000

    @property
    def zone(self) -> tzinfo:
        """The machine's present difference from UTC; it does not follow a change to summer time."""
        return datetime.now(UTC).astimezone().tzinfo or UTC


class FixedClock(SystemClock):
    """A wall clock that always shows the same time (ms); intervals are measured as usual."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now(self) -> int:
        return self._now_ms
