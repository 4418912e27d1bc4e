"""Queues as their consumers see them: each unit with the message that it leads to.

The units of a queue lead into the log in its order, so all queues are followed while the log is read once. A unit that
leads to where nothing was read, or out of order, is looked up by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from rmqtool.audit.due import UNIT, Units
from rmqtool.columns.gather import Ints
from rmqtool.columns.records import decode_records
from rmqtool.formats.consume_queue import are_fillers
from rmqtool.log.digests import Digests, Hashes, Items, Sense, digest_records, join_items

Queue = tuple[str, int]

_AT_ONCE = 4096
_FAR = 1 << 62
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class UnitSource(Protocol):
    """The units of one queue from ``first`` to before ``end``, read by queue offset."""

    first: int
    end: int

    def read(self, queue_offset: int, count: int) -> Units:
        """Return ``count`` units from ``queue_offset`` on."""


class HeldUnits:
    """Units that are in memory already, with queue offsets of their own."""

    def __init__(self, offsets: Ints, units: Units) -> None:
        self.first, self.end = 0, len(offsets)
        self.offsets = offsets
        self._units = units

    def read(self, queue_offset: int, count: int) -> Units:
        """Return units by their number."""
        return self._units[queue_offset : queue_offset + count]


class UnitStream:
    """The units of a queue, one after the other."""

    def __init__(self, source: UnitSource) -> None:
        self._source = source
        self._at = source.first
        self._waiting = np.zeros(0, UNIT)

    def take(self, below: int) -> Iterator[tuple[Ints, Units]]:
        """Yield queue offsets and units up to the first that leads to ``below`` or behind."""
        while True:
            if not len(self._waiting):
                count = min(_AT_ONCE, self._source.end - self._at)
                if count <= 0:
                    return
                self._waiting = self._source.read(self._at, count)
            behind = np.flatnonzero(self._waiting["physical_offset"] >= below)
            count = int(behind[0]) if len(behind) else len(self._waiting)
            if count:
                numbers = np.arange(self._at, self._at + count)
                held = self._source.offsets if isinstance(self._source, HeldUnits) else None
                yield (numbers if held is None else held[numbers]), self._waiting[:count]
                self._at += count
                self._waiting = self._waiting[count:]
            if len(behind):
                return


class QueueJoin:
    """Joins the units of all queues with the messages of the log, which comes piece by piece.

    ``read`` returns the bytes of the sound record at a place. A unit that leads outside of ``log`` is no item: its
    message has expired, or was never there. ``hashes`` are the digests over what each queue says, ``messages`` how many
    of its units lead to one.
    """

    def __init__(
        self, streams: dict[Queue, UnitStream], numbers: dict[Queue, int], log: range, read: Callable[[int], bytes]
    ) -> None:
        self._streams = streams
        self._numbers = numbers
        self._log = log
        self._read = read
        self.hashes = {queue: hashlib.sha256() for queue in streams}
        self.messages = dict.fromkeys(streams, 0)

    def take(self, digests: Digests) -> Items:
        """Return the units that lead to a piece of the log or before."""
        return self._items(int(digests.places[-1]) + 1, digests) if len(digests) else join_items(())

    def finish(self) -> Items:
        """Return the units that are left: they lead behind what was read."""
        return self._items(_FAR, None)

    def _items(self, below: int, digests: Digests | None) -> Items:
        return join_items(
            self._item_of(queue, offsets, units, digests)
            for queue, stream in self._streams.items()
            for offsets, units in stream.take(below)
        )

    def _item_of(self, queue: Queue, offsets: Ints, units: Units, digests: Digests | None) -> Items:
        sizes, places = units["size"].astype(np.int64), units["physical_offset"].astype(np.int64)
        written = (sizes > 0) & ~are_fillers(places, sizes)
        written &= (places >= self._log.start) & (places < self._log.stop)
        offsets, sizes, places = offsets[written], sizes[written], places[written]
        lows, highs, found = self._words(places, sizes, digests)
        codes = units["tags_code"].astype(np.int64)[written]
        lows = lows ^ (codes.view(np.uint64) * np.uint64(_MIX))
        number = self._numbers[queue]
        identities = offsets.astype(np.uint64) + np.uint64((number + 1) * _MIX & _MASK)
        self.hashes[queue].update(np.stack((lows, highs), axis=1).tobytes())
        self.messages[queue] += int(np.count_nonzero(found >= 0))
        return Items(identities, lows, highs, found, sizes, np.full(len(offsets), number, np.int64), offsets)

    def _words(self, places: Ints, sizes: Ints, digests: Digests | None) -> tuple[Hashes, Hashes, Ints]:
        """Return what the messages at some places say; those that are not among ``digests`` are read one by one."""
        lows, highs = np.zeros(len(places), np.uint64), np.zeros(len(places), np.uint64)
        found, hit = np.full(len(places), -1, np.int64), np.zeros(len(places), np.bool_)
        if digests is not None:
            rows = np.minimum(np.searchsorted(digests.places, places), len(digests) - 1)
            hit = (digests.places[rows] == places) & (digests.sizes[rows] == sizes)
            lows[hit], highs[hit], found[hit] = digests.lows[rows[hit]], digests.highs[rows[hit]], places[hit]
        for row in np.flatnonzero(~hit).tolist():
            data = self._read(int(places[row]))
            if len(data) == sizes[row]:
                one = digest_records(decode_records(data, np.zeros(1, np.int64))[0], Sense.STORED)
                lows[row], highs[row], found[row] = one.lows[0], one.highs[0], places[row]
        return lows, highs, found
