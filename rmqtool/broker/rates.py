"""The number of messages that came and went, and their rates, for tools.

Upstream: ``BrokerStats``, ``StoreStatsService``, ``BrokerStatsManager``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, tzinfo
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

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


class Span(Enum):
    """A time over which a counter is shown: ms between its samples, and how many there are. As upstream."""

    MINUTE = (10_000, 7)
    HOUR = (600_000, 7)
    DAY = (3_600_000, 25)


class Over(NamedTuple):
    """A counter over some time: what was added, by the second, and by each call."""

    total: int
    by_second: float
    each: float


class Counter:
    """The samples of one counter: time, calls, and their sum. upstream: StatsItem"""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: dict[Span, deque[tuple[int, int, int]]] = {span: deque(maxlen=span.value[1]) for span in Span}

    def add(self, span: Span, time: int, calls: int, total: int) -> None:
        """Take a sample. The first is after one of nothing, as if the counter had begun a period ago."""
        samples = self._samples[span]
        if not samples:
            samples.append((time - span.value[0], 0, 0))
        samples.append((time, calls, total))

    def over(self, span: Span) -> Over:
        """Return what was added between the first and the last sample."""
        samples = self._samples[span]
        if not samples:
            return Over(0, 0.0, 0.0)
        (begin, calls_before, before), (end, calls, total) = samples[0], samples[-1]
        by_second = (total - before) * _SECOND / (end - begin)
        each = (total - before) / (calls - calls_before) if calls > calls_before else 0.0
        return Over(total - before, by_second, each)


# A counter by upstream's name and key, with its calls and their sum.
Count: TypeAlias = tuple[str, str, int, int]


class History:
    """The counters of one broker. The caller samples them each ten seconds. upstream: BrokerStatsManager"""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], Counter] = {}
        self._next = dict.fromkeys(Span, 0)

    def find(self, name: str, key: str) -> Counter | None:
        """Return a counter; None if nothing was counted in it."""
        return self._counters.get((name, key))

    def sample(self, time: int, counts: Iterable[Count]) -> None:
        """Take a sample of all counters over the spans for which it is time."""
        spans = [span for span, due in self._next.items() if time >= due]
        for span in spans:
            self._next[span] = time + span.value[0] - SAMPLE // 2
        for name, key, calls, total in counts:
            counter = self._counters.setdefault((name, key), Counter())
            for span in spans:
                counter.add(span, time, calls, total)
