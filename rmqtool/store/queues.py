"""Consume queues in files: their entries, and the bounds that a broker gives them.

The end of a queue is not stored. At its start a broker reads the last three files and takes the first invalid entry for
the end. The same rule is used here, but a large file is not read through: its valid entries come first, so their end is
found by binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rmqtool.config import Version
from rmqtool.formats import consume_queue, layouts
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from rmqtool.formats.paths import FileKind
from rmqtool.store.listing import QueueId, StoreListing
from rmqtool.store.segments import Segment, SegmentQueue

# Upstream's recovery reads at most this many files of a queue.
RECOVERED_FILES = 3
# Queue files up to this size are read whole, so that a hole in the middle ends the queue as it does for a broker.
READ_WHOLE = 1 << 20
# It takes as long to read 200 entries as to search among them.
_ONE_READ = 200
# With fewer entries left than this, a search reads them one after the other.
_HALVING_STOPS = 20
_UNIT = layouts.CONSUME_QUEUE_UNIT
_BATCH = layouts.BATCH_CONSUME_QUEUE_UNIT


_T = TypeVar("_T")


class _Once(Generic[_T]):
    """``cached_property`` without a lock: before Python 3.12 all queues share it, and these values are read."""

    def __init__(self, find: Callable[[Any], _T]) -> None:
        self._find, self._name = find, find.__name__
        self.__doc__ = find.__doc__

    def __get__(self, instance: object, owner: type) -> _T:
        found = instance.__dict__[self._name] = self._find(instance)
        return found


@dataclass(frozen=True)
class ConsumeQueueFiles:
    """A simple consume queue in files."""

    queue: QueueId
    segments: SegmentQueue

    @_Once
    def end(self) -> int:
        """The offset in the queue's bytes after the last entry that a broker would keep."""
        for segment in self.segments.segments[-RECOVERED_FILES:]:
            written = self._written(segment)
            if written < segment.size - segment.size % _UNIT.size:
                return segment.base_offset + written
        return self.segments.end_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        return self.end // _UNIT.size

    @property
    def first_offset(self) -> int:
        """The queue offset of the first entry in the files."""
        return self.segments.min_offset // _UNIT.size

    @_Once
    def last_unit(self) -> ConsumeQueueUnit | None:
        """The last entry before the end."""
        return self.read_unit(self.max_offset - 1) if self.end > self.segments.min_offset else None

    def require_ends(self) -> None:
        """Raise ``ReadFailed`` unless both ends can be read."""
        _ = self.first_offset, self.last_unit, self.max_offset

    def read_unit(self, queue_offset: int) -> ConsumeQueueUnit | None:
        """Return an entry, or None."""
        data = self.segments.read(queue_offset * _UNIT.size, _UNIT.size)
        return _UNIT.decode(data) if len(data) == _UNIT.size else None

    def iter_units(self, queue_offset: int, end_offset: int | None = None) -> Iterator[tuple[int, ConsumeQueueUnit]]:
        """Yield queue offset and entry from ``queue_offset`` to the end, as they are stored."""
        end = min(self.max_offset, end_offset if end_offset is not None else self.max_offset)
        at = max(queue_offset, self.first_offset)
        while at < end:
            data = self.segments.read(at * _UNIT.size, min(READ_WHOLE, (end - at) * _UNIT.size))
            if len(data) < _UNIT.size:
                segment = next((s for s in self.segments if s.base_offset > at * _UNIT.size), None)
                if segment is None:
                    return
                at = -(-segment.base_offset // _UNIT.size)  # a file with a wrong name may begin inside an entry
                continue
            for unit in _UNIT.iter_decode(data):
                yield at, unit
                at += 1

    def find_offset(self, physical_offset: int) -> int:
        """Return the queue offset of the first entry that points to ``physical_offset`` or later."""
        low, high = self.first_offset, max(self.max_offset, self.first_offset)
        while low < high:
            middle = (low + high) // 2
            unit = self.read_unit(middle)
            if unit is not None and unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def cut_at(self, log_end: int) -> int:
        """Return the next queue offset after a clean start on a log that ends at ``log_end``.

        upstream: ConsumeQueue.truncateDirtyLogicFiles. It reads the last file by content only, so entries that a
        recovery left after the end count again; only the physical offset of their records stops it. A large file is not
        read through: offsets rise, so while its last entry is before the end of the log, so are all others.
        """
        last = self.last_unit
        large = bool(self.segments) and self.segments.segments[-1].size > READ_WHOLE
        if large and last is not None and last.physical_offset < log_end:
            return self.max_offset
        for segment in reversed(self.segments.segments):
            if segment.base_offset >= self.end and segment.base_offset > self.segments.min_offset:
                continue
            data = self.segments.open(segment).pread(segment.size, 0)
            kept = 0
            for number, unit in enumerate(_UNIT.iter_decode(data)):
                if unit.physical_offset >= log_end or (number and not consume_queue.is_written(unit)):
                    break
                kept = number + 1
            if kept:
                return segment.base_offset // _UNIT.size + kept
        return 0

    def min_offset(self, log_min: int, version: Version) -> int:
        """Return the minimum that a broker of ``version`` answers after a start; the log begins at ``log_min``.

        upstream: ConsumeQueue.correctMinOffset. The minimum in memory is 0 at that moment.
        """
        if not self.segments:
            return 0
        if version is Version.V4_9:
            return self._min_4_9(log_min) // _UNIT.size
        return self._min_5(log_min) // _UNIT.size

    def _min_4_9(self, log_min: int) -> int:
        first = self.segments.segments[0]
        found = self._first_unit_since(log_min, first.base_offset, self._wrote_end(first))
        return 0 if found is None else found

    def _min_5(self, log_min: int) -> int:
        """Search the first file as 5.x does: by halves for an exact hit, then among the last entries."""
        first = self.segments.segments[0]
        if self.end <= 0:
            return 0
        last = self.last_unit
        if last is not None and last.physical_offset < log_min:
            return self.end
        start, end = first.base_offset, self._wrote_end(first)
        if start >= end:
            return 0
        low, high = start, end - _UNIT.size
        while high - low > _UNIT.size:
            middle = low + (high - low) // 2 // _UNIT.size * _UNIT.size
            unit = self._unit_at(middle)
            if unit.physical_offset > log_min:
                high = middle
            elif unit.physical_offset == log_min:
                low = high = middle
            else:
                low = middle
        for at in range(low, high + 1, _UNIT.size):
            if self._unit_at(at).physical_offset >= log_min:
                return at
        return 0

    def _first_unit_since(self, log_min: int, start: int, end: int) -> int | None:
        """Return the position of the first entry that points to ``log_min`` or later, or None."""
        if end - start > READ_WHOLE:
            while end - start > _HALVING_STOPS * _UNIT.size:
                middle = start + (end - start) // 2 // _UNIT.size * _UNIT.size
                if self._unit_at(middle).physical_offset >= log_min:
                    end = middle + _UNIT.size
                else:
                    start = middle
        return next((at for at in range(start, end, _UNIT.size) if self._unit_at(at).physical_offset >= log_min), None)

    def _unit_at(self, position: int) -> ConsumeQueueUnit:
        return self.read_unit(position // _UNIT.size) or ConsumeQueueUnit(0, 0, 0)

    def _wrote_end(self, segment: Segment) -> int:
        return min(self.end, segment.end_offset - segment.size % _UNIT.size)

    def _written(self, segment: Segment) -> int:
        """Return how many bytes of a file have valid entries, from its start."""
        file = self.segments.open(segment)
        if segment.size <= READ_WHOLE:
            return consume_queue.count_written(file.pread(segment.size, 0)) * _UNIT.size
        low, high = 0, segment.size // _UNIT.size
        while high - low > _ONE_READ:
            middle = (low + high) // 2
            if consume_queue.is_written(_UNIT.decode(file.pread(_UNIT.size, middle * _UNIT.size))):
                low = middle + 1
            else:
                high = middle
        left = file.pread((high - low) * _UNIT.size, low * _UNIT.size)
        return (low + consume_queue.count_written(left)) * _UNIT.size


def simple_queues(listing: StoreListing) -> list[ConsumeQueueFiles]:
    """Return the simple queues of a store that are in files."""
    return [ConsumeQueueFiles(*item) for item in listing.queues(FileKind.CONSUME_QUEUE).items()]


def greatest_end(queues: Iterable[ConsumeQueueFiles]) -> int:
    """Return the end of the last record that a queue entry points to; -1 without any."""
    last = (queue.last_unit for queue in queues)
    return max((unit.physical_offset + unit.size for unit in last if unit is not None), default=-1)


@dataclass(frozen=True)
class BatchQueueFiles:
    """A batch consume queue in files. Positions mean nothing there: each entry has its own queue offset."""

    queue: QueueId
    segments: SegmentQueue

    def iter_units(self) -> Iterator[BatchConsumeQueueUnit]:
        """Yield the entries up to the first invalid one."""
        for segment in self.segments:
            data = self.segments.open(segment).pread(segment.size, 0)
            for unit in _BATCH.iter_decode(data):
                if not consume_queue.is_batch_written(unit):
                    return
                yield unit

    @_Once
    def last_unit(self) -> BatchConsumeQueueUnit | None:
        """The last valid entry."""
        last = None
        for unit in self.iter_units():
            last = unit
        return last

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        last = self.last_unit
        return last.msg_base_offset + last.batch_size if last else 0

    def min_offset(self, log_min: int) -> int:
        """Return the queue offset of the first message that the log still has; -1 if the queue never had one."""
        for unit in self.iter_units():
            if unit.physical_offset >= log_min:
                return unit.msg_base_offset
        return self.max_offset if self.last_unit else -1
