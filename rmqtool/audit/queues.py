"""Compares the entries of queues on disk with the ones that the records of a batch are due.

The results are differences. Whether the record or the entry is wrong is decided in ``checks.queues``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.audit.due import BATCH_UNIT, UNIT, Ints, Mask, Units
from rmqtool.columns.queues import QueueRun
from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import consume_queue
from rmqtool.formats.codes import MAX_EXT_ADDRESS
from rmqtool.formats.consume_queue import ConsumeQueueExtUnit
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.store.segments import SegmentQueue

# Entries are read together with those between them, if these are few or less than this many times their number.
_SPARSE = 4
# Entries that are read and compared at once.
_READ_AT_ONCE = 1 << 16
# Records named for one run of entries that differ in the same way; the rest is counted.
NAMED = 4096
# A second in ms. The delays of upstream's levels are whole seconds.
_SECOND = 1000
# The size of an extension entry is a signed short.
_LARGEST_EXT_UNIT = 1 << 15


class Apart(StrEnum):
    """How an entry differs from the one due: absent, pointing elsewhere, other tags code, extension not found."""

    MISSING = "missing"
    WRONG = "wrong"
    TAGS = "tags"
    EXT = "ext"


class UnitsApart(NamedTuple):
    """Consecutive entries of one queue, ``units`` of them, that differ in the same way.

    ``physical_offsets`` and ``sizes`` are those of the first ``NAMED`` records that are due these entries. ``due`` and
    ``found`` are the first entry as it should be and as it is.
    """

    topic: str
    queue_id: int
    apart: Apart
    queue_offset: int
    units: int
    physical_offsets: Ints
    sizes: Ints
    due: tuple[int, ...]
    found: tuple[int, ...]


class Span(NamedTuple):
    """Queue offsets from ``start`` to before ``end``."""

    start: int
    end: int


@dataclass
class QueueComparison:
    """The differences of one queue so far; ``hits`` are the queue offsets whose entry points to its record."""

    hits: list[Span] = field(default_factory=list)
    apart: list[UnitsApart] = field(default_factory=list)

    def add_hits(self, offsets: Ints) -> None:
        """Add queue offsets, in any order; each run of consecutive ones is a span."""
        if not len(offsets):
            return
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        runs = np.split(offsets, breaks) if len(breaks) else (offsets,)
        self.add_spans(Span(int(run[0]), int(run[-1]) + 1) for run in runs)

    def add_spans(self, spans: Iterable[Span]) -> None:
        """Add spans of queue offsets; one that begins where the last one ends is joined to it."""
        for span in spans:
            if self.hits and self.hits[-1].end == span.start:
                self.hits[-1] = Span(self.hits[-1].start, span.end)
            else:
                self.hits.append(span)

    def join(self, more: QueueComparison) -> None:
        """Add the comparison of the range of the log that follows."""
        self.add_spans(more.hits)
        for apart in more.apart:
            self.add_apart(apart)

    def add_apart(self, more: UnitsApart) -> None:
        """Add differing entries; they are joined to the ones before if they continue them in the same way."""
        last = self.apart[-1] if self.apart else None
        if last is None or last.apart is not more.apart or last.queue_offset + last.units != more.queue_offset:
            self.apart.append(more)
            return
        room = max(NAMED - len(last.physical_offsets), 0)
        self.apart[-1] = last._replace(
            units=last.units + more.units,
            physical_offsets=np.concatenate((last.physical_offsets, more.physical_offsets[:room])),
            sizes=np.concatenate((last.sizes, more.sizes[:room])),
        )


class QueueUnits:
    """The entries of a simple queue and its extension, by queue offset. Where there is no file, entries are zeros."""

    def __init__(self, segments: SegmentQueue, ext: SegmentQueue | None = None) -> None:
        self.segments = segments
        self.ext = ext

    def read(self, queue_offset: int, count: int) -> Units:
        """Return ``count`` entries from ``queue_offset`` on."""
        units = np.zeros(count, UNIT)
        raw = memoryview(units.view(np.uint8).data).cast("B")
        at, end = queue_offset * UNIT.itemsize, (queue_offset + count) * UNIT.itemsize
        for segment in self.segments:
            start, stop = max(at, segment.base_offset), min(end, segment.end_offset)
            if start < stop:
                file = self.segments.open(segment)
                file.pread_into(raw[start - at : stop - at], start - segment.base_offset)
        return units

    def at(self, queue_offsets: Ints) -> Units:
        """Return the entries at some queue offsets, in their order; zeros for an offset that no queue can have."""
        low, high = int(queue_offsets.min()), int(queue_offsets.max())
        count = len(queue_offsets)
        if low >= 0 and high - low < max(_SPARSE * count, 64):
            return self.read(low, high - low + 1)[queue_offsets - low]
        units = np.zeros(count, UNIT)
        for row, queue_offset in enumerate(queue_offsets.tolist()):
            # The position of a larger one may not fit into 64 bits: its record is damaged.
            if 0 <= queue_offset < 1 << 58:
                units[row] = self.read(queue_offset, 1)[0]
        return units

    def close(self) -> None:
        """Close the files of the queue and of its extension."""
        self.segments.close()
        if self.ext is not None:
            self.ext.close()


def find_tags_code(ext: SegmentQueue | None, address: int) -> int | None:
    """Return the tags code at an address in the extension of a queue, or None if there is no valid entry."""
    at = consume_queue.ext_offset(address)
    segment = ext.find(at) if ext is not None else None
    if ext is None or segment is None:
        return None
    found = consume_queue.decode_ext_unit(ext.read(at, min(_LARGEST_EXT_UNIT, segment.end_offset - at)))
    return found.tags_code if isinstance(found, ConsumeQueueExtUnit) else None


def compare_run(run: QueueRun, queue: QueueUnits, comparison: QueueComparison) -> None:
    """Compare the entries that ``run`` is due with those on disk, and add the result to ``comparison``."""
    first, count = int(run.queue_offsets[0]), len(run.units)
    if first >= 0 and count <= _READ_AT_ONCE and follow(run.queue_offsets):
        found = queue.read(first, count)
        if (found.view(np.uint8) == run.units.view(np.uint8)).all():
            comparison.add_spans((Span(first, first + count),))
            return
    for at in range(0, len(run.units), _READ_AT_ONCE):
        piece = slice(at, at + _READ_AT_ONCE)
        _compare(run._replace(queue_offsets=run.queue_offsets[piece], units=run.units[piece]), queue, comparison)


def follow(offsets: Ints) -> bool:
    """Return whether each offset is one more than the one before."""
    steps = offsets[1:] - offsets[:-1]
    return bool((steps == 1).all())


def _compare(run: QueueRun, queue: QueueUnits, comparison: QueueComparison) -> None:
    """Compare a piece of a run, whose queue offsets may be in any order."""
    found = queue.at(run.queue_offsets)
    led, right, apart = judge_units(run.topic, run.units, found, queue.ext)
    comparison.add_hits(run.queue_offsets[led])
    _add_apart(run, found, ~right, apart, comparison)


class Judged(NamedTuple):
    """Entries by row: ``led`` point to their records, ``right`` are fully right, ``apart`` is how the others differ."""

    led: Mask
    right: Mask
    apart: npt.NDArray[np.object_]


def judge_units(topic: str, due: Units, found: Units, ext: SegmentQueue | None) -> Judged:
    """Compare the entries of one queue with the ones that its records are due.

    Another tags code is right if it is the address of an extension entry with the due one. Entries of delayed messages
    have a delivery time instead, which depends on the delay levels when they were written. The store does not keep
    those levels, so a delivery time is right if it differs from the due one by as much as most do, and by whole
    seconds.
    """
    right = found == due
    apart = np.full(len(right), Apart.WRONG, object)
    if right.all():
        return Judged(right, right, apart)
    led = (found["physical_offset"] == due["physical_offset"]) & (found["size"] == due["size"])
    apart[(found["size"] <= 0) | (found["physical_offset"] < 0)] = Apart.MISSING
    rows = np.flatnonzero(led & ~right)
    apart[rows] = Apart.TAGS
    if topic == SCHEDULE_TOPIC and len(rows):
        delays = found["tags_code"].astype(np.int64) - due["tags_code"].astype(np.int64)
        values, counts = np.unique(delays, return_counts=True)
        usual = values[np.argmax(counts)]
        if usual % _SECOND == 0:
            right[rows] = delays[rows] == usual
    for row in rows[~right[rows]].tolist():
        code = int(found["tags_code"][row])
        if code <= MAX_EXT_ADDRESS:
            real = find_tags_code(ext, code)
            right[row] = real == int(due["tags_code"][row])
            if real is None:
                apart[row] = Apart.EXT
    return Judged(led, right, apart)


def _add_apart(run: QueueRun, found: Units, rows: Any, apart: Any, comparison: QueueComparison) -> None:
    """Add the entries in ``rows`` to the comparison; consecutive ones that differ in the same way are one."""
    wrong = np.flatnonzero(rows)
    if not len(wrong):
        return
    offsets = run.queue_offsets[wrong]
    kinds = apart[wrong]
    breaks = np.flatnonzero((np.diff(offsets) != 1) | (kinds[1:] != kinds[:-1])) + 1
    for part in np.split(wrong, breaks):
        named = part[:NAMED]
        first = int(part[0])
        comparison.add_apart(
            UnitsApart(
                run.topic,
                run.queue_id,
                apart[first],
                int(run.queue_offsets[first]),
                len(part),
                run.units["physical_offset"][named].astype(np.int64),
                run.units["size"][named].astype(np.int64),
                tuple(run.units[first].tolist()),
                tuple(found[first].tolist()),
            )
        )


class BatchApart(NamedTuple):
    """An entry of a batch queue that differs from the one due, at ``file_offset`` of ``file``.

    A missing entry has no ``found``; an entry without a record has no ``due``.
    """

    topic: str
    queue_id: int
    due: tuple[int, ...] | None
    found: tuple[int, ...] | None
    file: str | None = None
    file_offset: int | None = None


# The fields that every version writes. The others may differ between versions.
BATCH_FIELDS = ("physical_offset", "size", "tags_code", "store_time", "msg_base_offset", "batch_size")


class BatchQueueUnits:
    """The entries of a batch queue. They carry their own queue offset, so they are found by physical offset."""

    def __init__(self, segments: SegmentQueue) -> None:
        self.segments = segments

    def between(self, start: int, end: int) -> Iterator[tuple[str, int, Units]]:
        """Yield (file, file offset of the first, entries), for entries pointing from ``start`` to before ``end``."""
        for segment in self.segments:
            file = self.segments.open(segment)
            count = segment.size // BATCH_UNIT.itemsize

            # Entries that are not written come last, after any place.
            def place(row: int, file: ReadableFile = file) -> int:
                unit = np.frombuffer(file.pread(BATCH_UNIT.itemsize, row * BATCH_UNIT.itemsize), BATCH_UNIT)
                return int(unit["physical_offset"][0]) if len(unit) and unit["size"][0] > 0 else 1 << 62

            low = bisect_left(range(count), start, key=place)
            high = bisect_left(range(count), end, low, key=place)
            if low < high:
                at = low * BATCH_UNIT.itemsize
                yield segment.path, at, np.frombuffer(file.pread((high - low) * BATCH_UNIT.itemsize, at), BATCH_UNIT)

    def compare(self, run: QueueRun) -> Iterator[BatchApart]:
        """Yield the entries that differ, then the missing ones. ``run`` has all due entries for its span of the log."""
        due = {int(unit["physical_offset"]): unit for unit in run.units}
        last = run.units[-1]
        for file, at, units in self.between(min(due), int(last["physical_offset"]) + int(last["size"])):
            for row, unit in enumerate(units):
                wanted = due.pop(int(unit["physical_offset"]), None)
                if wanted is None or any(unit[name] != wanted[name] for name in BATCH_FIELDS):
                    told = None if wanted is None else tuple(wanted.tolist())
                    yield BatchApart(
                        run.topic, run.queue_id, told, tuple(unit.tolist()), file, at + row * unit.itemsize
                    )
        for wanted in due.values():
            yield BatchApart(run.topic, run.queue_id, tuple(wanted.tolist()), None)
