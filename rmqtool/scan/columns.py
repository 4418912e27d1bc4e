"""One file of a log as an ordered stream: right records as columns, everything else as places.

Bulk takes the records of a window at once. Where it declines, the tolerant walk has the word, and behind what it names
bulk goes on. The stream is that of the walk alone.

A file can be scanned in ranges by several processes: a range begins where a record does and ends at the first right
record at or behind its stop. ``find_start`` guesses where the range behind begins; what a range ``reached`` proves it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints, Mask
from rmqtool.bulk.records import Records, decode_records, have_right_crc, have_right_property_crc
from rmqtool.bulk.starts import record_starts
from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.scan.buffers import Buffers
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.salvaged import SalvagedFile, salvaged
from rmqtool.storage.walk import RECORD_WINDOW, Place, SegmentWalk, Window

# So much of a file is held at once; so little behind a break, where the next one may be near.
WINDOW = 8 << 20
_SMALL_WINDOW = 64 << 10
# So long may a range be that is read at once, with as much of what stands behind it as mostly holds a record.
ONE_READ = WINDOW - _SMALL_WINDOW
_GROWTH = 4
# So many rows come at once: what is made of them is some times larger than they are.
MOST_ROWS = 8192
# When so little is left of a range it is not worth a window of its own.
_REST = 1 << 20
_BUFFERS = Buffers(WINDOW + _REST)


class Rows(NamedTuple):
    """Right records in the order of the file, as columns; byte 0 of their buffer is at ``file_offset`` of the file."""

    records: Records
    file_offset: int

    def file_offsets(self) -> Ints:
        """Return where the records begin in the file."""
        found: Ints = self.records.file_offsets + self.file_offset
        return found


class SegmentScan:
    """One scan over a segment of a commit log, or of a compaction log.

    ``base_offset`` is the place of the file's first byte in its log. With ``checksums`` off no body is looked at: a
    record whose body is damaged counts as right. ``compacted`` is for a compaction log, whose records keep the
    checksum block of their original place.
    """

    def __init__(
        self,
        file: ReadableFile,
        base_offset: int,
        *,
        checksums: bool = True,
        compacted: bool = False,
    ) -> None:
        self.file = salvaged(file)
        self.base_offset = base_offset
        self.checksums = checksums
        self.compacted = compacted
        self.walk = SegmentWalk(self.file, base_offset, compacted=compacted)
        self.end = self.walk.end
        self.reached = 0
        self._window = WINDOW

    def find_start(self, file_offset: int, before: int | None = None) -> int | None:
        """Return where the first right record, or the blank at the end, most likely begins, from ``file_offset`` on.

        Nobody knows where the record before it ends, so a body that holds a record can mislead. Holes are not read.
        """
        # Of what is found here a window is read later: now a single record is enough.
        walk = SegmentWalk(self.file, self.base_offset, self.end, compacted=self.compacted)
        walk.window = Window(self.file, self.end, RECORD_WINDOW)
        for extent in self.file.iter_data(file_offset, before):
            # The size before a magic may begin with zeros, which a hole can hold.
            begin = max(extent.file_offset - layouts.INT.size, file_offset)
            found = walk.find_record(begin, extent.end)
            if found is not None:
                return found
        return None

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[Rows | Place]:
        """Yield what stands from ``start``, where a record is due, to the first right record at or behind ``stop``.

        Without ``stop`` that is the end of the file. ``reached`` says afterwards where the next range begins.
        """
        at: int | None = start
        while at is not None and at < self.end:
            # What was made of a window is gone before the next is read: then it comes into the same memory.
            at = yield from self._read_on(at, stop)
        if at is not None:
            self.reached = self.end

    def _read_on(self, at: int, stop: int | None) -> Generator[Rows | Place, None, int | None]:
        """Yield what stands in a window from ``at`` on; return where the next begins, None when ``stop`` is."""
        wanted = self.end - at if stop is None else min(max(stop - at, 0) + _SMALL_WINDOW, self.end - at)
        length = wanted if self._window == WINDOW and wanted <= WINDOW + _REST else min(self._window, wanted)
        data = _BUFFERS.read(self.file, length, at)
        starts = record_starts(data)
        records, declined = decode_records(data, starts.file_offsets)
        places = records.file_offsets + (self.base_offset + at)
        right = are_right(records, places, checksums=self.checksums, compacted=self.compacted)
        right &= are_readable(self.file, records, at)
        beyond = None if stop is None else _first_from(records, right, stop - at)
        if beyond is not None:
            shorter = yield from self._spell(records, right, beyond, at)
            if shorter is not None:
                return shorter
            self.reached = at + int(records.file_offsets[beyond])
            return None
        behind = at + run_end(records)
        if len(records) > 1 and at + len(data) < self.end:
            # The last one is looked at again, with what follows: a break there may prove its size wrong.
            shorter = yield from self._spell(records, right, len(records) - 1, at)
            self._window = min(self._window * _GROWTH, WINDOW)
            return at + int(records.file_offsets[-1]) if shorter is None else shorter
        closed = declined is None and _closes(starts.stopped_by, self.end - behind)
        held = len(records) > 0 and bool(right[-1]) and behind < self.end and not closed
        shorter = yield from self._spell(records, right, len(records) - held, at)
        if shorter is not None:
            return shorter
        at = behind - int(records.column("total_size")[-1]) if held else behind
        if at == self.end:
            return at
        found, at = self._walk_one(at)
        if stop is not None and isinstance(found, Rows) and found.file_offset >= stop:
            self.reached = found.file_offset
            return None
        yield found
        return at

    def _spell(self, records: Records, right: Mask, count: int, at: int) -> Generator[Rows | Place, None, int | None]:
        """Yield the first ``count`` records: right ones as rows, each other one as the place that the walk sees.

        Where one of those is shorter than it says, what follows it is not what was taken for records: return where the
        walk goes on, else None.
        """
        for part in iter_runs(right[:count]):
            if isinstance(part, slice):
                yield Rows(records.select(part), at)
                self._remember(records, part.stop)
            else:
                place = self.walk.place_at(at + int(records.file_offsets[part]))
                yield seen(self.walk, place)
                if place.length != int(records.column("total_size")[part]):
                    self._window = _SMALL_WINDOW
                    return place.file_offset + place.length
        return None

    def _remember(self, records: Records, stop: int) -> None:
        """Keep the store time of the last of a run of right records: what is older behind a break is stale."""
        if stop:
            self.walk.last_timestamp = int(records.column("store_timestamp")[stop - 1])

    def _walk_one(self, file_offset: int) -> tuple[Rows | Place, int]:
        """Return what the walk sees at ``file_offset``, and where that ends."""
        place = next(self.walk.places(file_offset))
        self._window = _SMALL_WINDOW
        return seen(self.walk, place), place.file_offset + place.length


def are_right(records: Records, places: Ints, *, checksums: bool = True, compacted: bool = False) -> Mask:
    """Return which records the walk would call messages; ``places`` is where in the log they lie."""
    right: Mask = (records.column("physical_offset") == places) & (records.column("store_timestamp") > 0)
    if checksums:
        right &= have_right_crc(records)
        if not compacted:
            right &= have_right_property_crc(records)
    return right


def are_readable(file: SalvagedFile, records: Records, at: int) -> Mask:
    """Return which records hold no byte that the disk could not read; their buffer begins at ``at`` of the file."""
    found = np.ones(len(records), np.bool_)
    if file.has_unreadable:
        begins = records.file_offsets + at
        ends = begins + records.column("total_size")
        for extent in file.unreadable:
            found &= (ends <= extent.file_offset) | (begins >= extent.end)
    return found


def seen(walk: SegmentWalk, place: Place) -> Rows | Place:
    """Return a message as a row: one too large for a window, or one that was completed since bulk looked."""
    if not isinstance(place.what, Message):
        return place
    data, at = walk.window.view(place.file_offset, place.length)
    records, declined = decode_records(data, np.array([at], np.int64))
    assert declined is None, f"the walk calls a message what bulk declines: {declined}"
    return Rows(records, place.file_offset - at)


def _first_from(records: Records, right: Mask, offset: int) -> int | None:
    """Return the first right row at or behind ``offset`` of the buffer."""
    first = int(np.searchsorted(records.file_offsets, offset))
    rows = np.flatnonzero(right[first:])
    return first + int(rows[0]) if len(rows) else None


def run_end(records: Records) -> int:
    """Return where the last record ends in the buffer."""
    return int(records.file_offsets[-1]) + int(records.column("total_size")[-1]) if len(records) else 0


def iter_runs(right: Mask) -> Iterator[slice | int]:
    """Yield runs of right rows, each of ``MOST_ROWS`` at the most, and each wrong row by its number, in order."""
    begin = 0
    for wrong in (*np.flatnonzero(~right).tolist(), len(right)):
        for first in range(begin, wrong, MOST_ROWS):
            yield slice(first, min(first + MOST_ROWS, wrong))
        if wrong < len(right):
            yield wrong
        begin = wrong + 1


def _closes(what: Blank | Nothing | Flaw, left: int) -> bool:
    """Return whether ``what`` is the blank that reaches the end."""
    return isinstance(what, Blank) and what.total_size == left
