"""Several logs as one stream, by store time; the messages of each log keep their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints
from rmqtool.scan.reading import Damage, Note, Part


class _Head:
    """One of the logs: the messages that were read of it and not given yet."""

    def __init__(self, events: Iterator[Part | Damage | Note]) -> None:
        self._events = events
        self.part: Part | None = None
        self.times: Ints = np.zeros(0, np.int64)
        self._latest = 0

    def fill(self) -> Iterator[Damage | Note]:
        """Read on until there are messages, or there is nothing more."""
        while self.part is None:
            event = next(self._events, None)
            if event is None:
                return
            if not isinstance(event, Part):
                yield event
            elif len(event.records):
                self.part = event
                # A clock that was set back does not change the order of a log.
                times = event.records.column("store_timestamp").astype(np.int64)
                self.times = np.maximum.accumulate(np.maximum(times, self._latest))
                self._latest = int(self.times[-1])

    def take(self, count: int) -> Part:
        """Give the first messages."""
        assert self.part is not None, "the log has ended"
        taken = self.part._replace(records=self.part.records.select(slice(count)))
        self.times = self.times[count:]
        left = self.part.records.select(slice(count, None))
        self.part = self.part._replace(records=left) if len(self.times) else None
        return taken


class FromLog(NamedTuple):
    """What comes next, and from which of the logs."""

    log: int
    event: Part | Damage | Note


def iter_merged(logs: Sequence[Iterator[Part | Damage | Note]]) -> Iterator[FromLog]:
    """Yield the messages of several logs by store time, of equal ones the first log's before; damage where met."""
    heads = [_Head(events) for events in logs]
    while True:
        for number, head in enumerate(heads):
            for said in head.fill():
                yield FromLog(number, said)
        alive = [number for number, head in enumerate(heads) if head.part is not None]
        if not alive:
            return
        first = min(alive, key=lambda number: (int(heads[number].times[0]), number))
        count = len(heads[first].times)
        for other in alive:
            if other != first:
                # Those before the other's next message; of equal times the log that comes first goes first.
                until = int(heads[other].times[0]) + (first < other)
                count = min(count, int(np.searchsorted(heads[first].times, until)))
        yield FromLog(first, heads[first].take(max(count, 1)))
