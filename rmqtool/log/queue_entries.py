"""The entries of all queues of a store, read by the physical offsets they point to.

A queue's entries rise in physical offset, so the entries for a span of the log are one run, found by binary search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.queues import Units, decode_batch_units, decode_units
from rmqtool.formats import layouts
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.paths import FileKind
from rmqtool.log.select import Selection
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Root, Store, open_root
from rmqtool.store.segments import Segment, SegmentQueue

# A record without a queue entry is rarely larger than this, upstream's default for the largest message.
_NEAR = 4 << 20
# Entries that have at most this many others between them are read together.
_NEAR_UNITS = 4096
# A range of at most this many entries is read at once instead of being halved again.
_CLOSE_UNITS = 512
# The physical offsets that searches assume before the first entry of a queue and after the last one.
BEFORE, AFTER = -1, int(np.iinfo(np.int64).max)


class QueueFile(NamedTuple):
    """One file of a queue: the offset of its first byte in the queue, its size, its path."""

    base_offset: int
    size: int
    path: str


class QueueFiles(NamedTuple):
    """The files of a queue, as a value that any process can open. Batch queues have larger entries."""

    queue: QueueId
    directory: str
    files: tuple[QueueFile, ...]
    is_batch: bool


def queue_files_of(store: Store) -> list[QueueFiles]:
    """Return the queues of a store that are in files."""
    assert isinstance(store.filesystem, Root), "data that other processes read must be in real files"
    root = store.filesystem.root
    return [
        QueueFiles(queue, root, tuple(QueueFile(*segment[:3]) for segment in segments), is_batch)
        for kind, is_batch in ((FileKind.CONSUME_QUEUE, False), (FileKind.BATCH_CONSUME_QUEUE, True))
        for queue, segments in store.listing.queues(kind).items()
    ]


class NamedPlaces(NamedTuple):
    """The records of a span of the log that have queue entries: their offsets and sizes, and which are wanted.

    ``preceding`` and ``following`` are the physical offsets in the nearest entries before and after the span,
    else ``BEFORE`` and ``AFTER``. A record in several queues is there several times.
    """

    places: Ints
    sizes: Ints
    wanted: Mask
    preceding: int
    following: int


def read_places(queues: Sequence[QueueFiles], selection: Selection, begin: int, end: int) -> NamedPlaces | None:
    """Return the records with entries from ``begin`` to ``end``; None if entries are out of order.

    Raises ReadFailed if a queue cannot be read.
    """
    places, sizes, wanted = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    preceding, following = BEFORE, AFTER
    for queue in queues:
        with _QueueUnits(queue) as opened:
            first = opened.first_from(begin)
            last = opened.first_from(end, first)
            units = opened.read(first, last)
            preceding = max(preceding, opened.physical_offset(first - 1))
            following = min(following, opened.physical_offset(last))
        offsets = units["physical_offset"].astype(np.int64)
        if (np.diff(offsets) < 0).any() or (len(offsets) and (offsets[0] < begin or offsets[-1] >= end)):
            return None
        real = units["size"] != FILLER_SIZE
        places.append(offsets[real])
        sizes.append(units["size"][real].astype(np.int64))
        wanted.append(_wanted(queue, opened, selection, np.arange(first, last)[real]))
    columns = np.concatenate(places), np.concatenate(sizes), np.concatenate(wanted)
    return NamedPlaces(*columns, preceding, following)


def count_messages(
    queues: Sequence[QueueFiles], spans: Iterable[tuple[int, int]], selection: Selection | None = None
) -> int | None:
    """Return how many wanted records queue entries name in some spans of the log; None if the entries do not tell.

    An entry tells only topic, queue and queue offset, so other conditions of the selection are left out. In damage this
    is all that is known of the messages that were there: each had an entry, unless it was in no queue.
    """
    count = 0
    for begin, end in spans:
        named = read_places(queues, selection or Selection(), begin, end) if queues else None
        if named is None:
            return None
        # A record that is in several queues has several entries.
        count += len(np.unique(named.places[named.wanted]))
    return count


def _wanted(queue: QueueFiles, opened: _QueueUnits, selection: Selection, indexes: Ints) -> Mask:
    """Return which entries of a queue point to wanted messages, as far as topic, queue and queue offset tell."""
    if not selection.wants_queue(*queue.queue):
        return np.zeros(len(indexes), np.bool_)
    least = selection.least_of(*queue.queue)
    if least is None or queue.is_batch:
        return np.ones(len(indexes), np.bool_)
    wanted: Mask = opened.queue_offsets(indexes) >= least
    return wanted


def count_units(queues: Sequence[QueueFiles], selection: Selection) -> tuple[int, int]:
    """Return the approximate number of entries in all queues, and in the wanted ones."""
    counts = [0, 0]
    for queue in queues:
        with _QueueUnits(queue) as opened:
            counts[selection.wants_queue(*queue.queue)] += opened.written
    return sum(counts), counts[True]


def find_extent(queues: Sequence[QueueFiles], begin: int, end: int) -> int | None:
    """Return where the last record ends that entries from ``begin`` to ``end`` point to; None without trusted entries.

    Records in a log are adjacent and nearly all have an entry. One entry is trusted if it points to ``begin`` exactly,
    several if the first points near it. A damaged entry rarely does either.
    """
    count, nearest, extent = 0, end, begin
    for queue in queues:
        with _QueueUnits(queue) as opened:
            first = opened.first_from(begin)
            last = opened.first_from(end, first)
            if last > first:
                (unit,) = opened.read(last - 1, last)
                count += last - first
                nearest = min(nearest, opened.physical_offset(first))
                extent = max(extent, int(unit["physical_offset"]) + int(unit["size"]))
    is_believed = nearest == begin or (count > 1 and nearest - begin <= _NEAR)
    return extent if is_believed else None


class Named(NamedTuple):
    """An entry of a simple queue: its queue offset, and the physical offset and size of the record."""

    queue_offset: int
    place: int
    size: int


def read_named(queue: QueueFiles, queue_offset: int) -> Named | None:
    """Return the entry of a simple queue at ``queue_offset``; its last entry if the queue ends before that.

    If its files begin later, this is the first entry. None for an empty queue, and for a batch queue.
    """
    with _QueueUnits(queue) as opened:
        index = min(opened.index_of(queue_offset), opened.first_from(AFTER) - 1)
        if index < 0 or queue.is_batch:
            return None
        (unit,) = opened.read(index, index + 1)
        (offset,) = opened.queue_offsets(np.array([index]))
        return Named(int(offset), int(unit["physical_offset"]), int(unit["size"]))


def first_offset_from(queue: QueueFiles, physical_offset: int) -> int | None:
    """Return the queue offset of a simple queue's first entry for a physical offset or a later one, or None."""
    with _QueueUnits(queue) as opened:
        index = opened.first_from(physical_offset)
        if queue.is_batch or not opened.physical_offset(index) < AFTER:
            return None
        return int(opened.queue_offsets(np.array([index]))[0])


def read_unit_places(queue: QueueFiles, queue_offsets: Ints) -> Ints:
    """Return the physical offsets in a simple queue's entries at ``queue_offsets``; -1 for a filler or no entry."""
    found = np.full(len(queue_offsets), -1, np.int64)
    with _QueueUnits(queue) as opened:
        numbers = opened.numbers_of(queue_offsets)
        inside = np.flatnonzero(numbers >= 0)
        inside = inside[np.argsort(numbers[inside])]
        for rows in np.split(inside, np.flatnonzero(np.diff(numbers[inside]) > _NEAR_UNITS) + 1):
            if len(rows):
                first = int(numbers[rows[0]])
                units = opened.read(first, int(numbers[rows[-1]]) + 1)[numbers[rows] - first]
                is_real = (units["size"] > 0) & (units["size"] != FILLER_SIZE)
                found[rows] = np.where(is_real, units["physical_offset"], -1)
    return found


class _QueueUnits:
    """The entries of one queue, numbered from the first on disk.

    Files are closed at the end, because a store can have thousands of queues.
    """

    def __init__(self, queue: QueueFiles) -> None:
        self.unit_size = BATCH_UNIT_SIZE if queue.is_batch else UNIT_SIZE
        self.decode = decode_batch_units if queue.is_batch else decode_units
        self.layout = layouts.BATCH_CONSUME_QUEUE_UNIT if queue.is_batch else layouts.CONSUME_QUEUE_UNIT
        self.files = open_root(queue.directory)
        self.segments = SegmentQueue(Segment(*file, self.files) for file in queue.files)
        counts = [segment.size // self.unit_size for segment in self.segments]
        self.firsts = np.cumsum([0, *counts])
        self._first_numbers = self.firsts.tolist()
        self.count = int(self.firsts[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.segments.close()
        self.files.close()

    def read(self, first: int, last: int) -> Units:
        """Return the entries from number ``first`` to before ``last``."""
        pieces = []
        while first < last:
            number = bisect_right(self._first_numbers, first) - 1
            stop = min(last, self._first_numbers[number + 1])
            at = (first - self._first_numbers[number]) * self.unit_size
            file = self.segments.open(self.segments.segments[number])
            pieces.append(file.pread_exactly((stop - first) * self.unit_size, at))
            first = stop
        return self.decode(b"".join(pieces))

    def physical_offset(self, index: int) -> int:
        """Return the physical offset of an entry; ``AFTER`` if it is not written.

        A number outside of the queue gives ``BEFORE`` or ``AFTER``.
        """
        if index < 0:
            return BEFORE
        if index >= self.count:
            return AFTER
        number = bisect_right(self._first_numbers, index) - 1
        file = self.segments.open(self.segments.segments[number])
        at = (index - self._first_numbers[number]) * self.unit_size
        unit = self.layout.decode(file.pread_exactly(self.unit_size, at))
        return int(unit.physical_offset) if unit.size > 0 and unit.physical_offset >= 0 else AFTER

    @cached_property
    def written(self) -> int:
        """How many entries come before the hole at the end of the last file, so that searches skip the hole."""
        if not len(self.segments):
            return 0
        *_, last = self.segments
        end = max((extent.end for extent in self.segments.open(last).iter_data()), default=0)
        return min(int(self._first_numbers[-2]) + -(-end // self.unit_size), self.count)

    def _places(self, first: int, last: int) -> Ints:
        """Return the physical offsets of entries; ``AFTER`` for those that are not written, so that they sort last."""
        units = self.read(first, last)
        offsets = units["physical_offset"].astype(np.int64)
        found: Ints = np.where((units["size"] > 0) & (offsets >= 0), offsets, AFTER)
        return found

    def first_from(self, physical_offset: int, near: int = 0) -> int:
        """Return the number of the first entry, from ``near`` on, that points to ``physical_offset`` or later.

        Without such an entry this is ``written``, or ``near`` if that is greater. The step from ``near`` grows
        fourfold, so a near entry is found fast.
        """
        low, high, step = near, self.written, _CLOSE_UNITS
        while high - low > _CLOSE_UNITS:
            middle = min(low + step, (low + high) // 2)
            if self.physical_offset(middle) < physical_offset:
                low, step = middle + 1, step * 4
            else:
                high = middle
        return low + int(np.searchsorted(self._places(low, high), physical_offset))

    def queue_offsets(self, indexes: Ints) -> Ints:
        """Return the queue offsets of the entries of a simple queue by their numbers."""
        numbers = np.searchsorted(self.firsts, indexes, side="right") - 1
        bases = np.array([segment.base_offset // self.unit_size for segment in self.segments], np.int64)
        found: Ints = bases[numbers] + indexes - self.firsts[numbers] if len(indexes) else indexes
        return found

    def numbers_of(self, queue_offsets: Ints) -> Ints:
        """Return the numbers of the entries at queue offsets of a simple queue; -1 without an entry."""
        if not self.count:
            return np.full(len(queue_offsets), -1, np.int64)
        bases = np.array([segment.base_offset // self.unit_size for segment in self.segments], np.int64)
        of = np.maximum(np.searchsorted(bases, queue_offsets, side="right") - 1, 0)
        within = queue_offsets - bases[of]
        is_there = (within >= 0) & (within < np.diff(self.firsts)[of])
        found: Ints = np.where(is_there, self.firsts[of] + within, -1)
        return found

    def index_of(self, queue_offset: int) -> int:
        """Return the number of the entry at ``queue_offset`` of a simple queue, or of the first entry after it.

        If there is neither, this is ``count``.
        """
        for number, segment in enumerate(self.segments):
            base = segment.base_offset // self.unit_size
            if queue_offset < base + segment.size // self.unit_size:
                return int(self.firsts[number]) + max(queue_offset - base, 0)
        return self.count
