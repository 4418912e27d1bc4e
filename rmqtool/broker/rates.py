"""The number of messages that came and went, and their rates, for tools.

Upstream: ``BrokerStats``, ``StoreStatsService``.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

# Milliseconds between two samples, and the windows (seconds) of rates. As upstream.
SAMPLE: Final = 10_000
WINDOWS: Final = (10, 60, 600)
_SECOND: Final = 1000


class Sample(NamedTuple):
    """The totals since the start, at a time (ms)."""

    time: int
    puts: int
    gets: int


class Rates:
    """The totals at the last midnights, and samples for rates."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.yesterday_morning = self.today_morning = Sample(0, 0, 0)
        self._zone = zone
        self._samples: deque[Sample] = deque(maxlen=WINDOWS[-1] * _SECOND // SAMPLE + 1)

    def add(self, now: Sample) -> None:
        """Take a sample; the first of a day also begins the day."""
        if self._samples and self._day(now.time) != self._day(self._samples[-1].time):
            self.yesterday_morning, self.today_morning = self.today_morning, now
        self._samples.append(now)

    def _day(self, time: int) -> object:
        return datetime.fromtimestamp(time / _SECOND, self._zone).date()

    def since(self, now: Sample, seconds: int) -> tuple[float, float]:
        """Return the puts and gets by the second over the last ``seconds``, or since the first sample."""
        begin = now.time - seconds * _SECOND
        first = next((one for one in self._samples if one.time >= begin), now)
        passed = (now.time - first.time) / _SECOND
        if passed <= 0:
            return 0.0, 0.0
        return (now.puts - first.puts) / passed, (now.gets - first.gets) / passed
