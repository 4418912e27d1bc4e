"""Reads ranges of a log: right records as columns, the rest as places or damage. ``cat`` and all others read by it.

Windows of a file are decoded by columns. Where the columns decline (a break in the chain of records), the tolerant walk
decides one place, and the columns continue after it. The result is the one of the walk alone.

``SegmentScan`` reads segments, ``DLedgerScan`` the records inside the entries of DLedger files; ``RangeReader`` selects
the wanted messages. A range begins where a record begins and ends at the first right record at or after its stop, so
that neighbours meet without a gap. ``find_start`` guesses where the next range will begin, and ``reached`` proves it.

``Buffers`` is the memory of the windows, used again and again: a new buffer of several MiB for each window costs as
much as reading into it. So each thread keeps up to two, on large pages. A buffer is filled again as soon as no view of
it is left; the map below it counts the views. Arrays made from a window are freed before the next window, and glibc is
made to keep that memory too.

``iter_carved`` reads records from any bytes: a disk image, a piece of a log, the output of a recovery tool. It does not
compare their physical offsets, and bytes between records are not damage.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rmqtool.columns.compiled import AWAY, WRONG_CRC, WRONG_PROPERTY_CRC, sound
from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.records import Records, decode_records, have_right_crc, have_right_property_crc
from rmqtool.columns.starts import record_starts
from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import ReadableFile
from rmqtool.files.salvaged import SalvagedFile, salvaged
from rmqtool.formats import layouts
from rmqtool.formats.commit_log import BLANK_SIZE, Blank, Message, Nothing, decode_record
from rmqtool.formats.dledger import HEAD_SIZE, MAGIC_DATA, DLedgerBlank, decode_entry_head
from rmqtool.formats.flaws import Flaw, within_log
from rmqtool.formats.java import int64
from rmqtool.formats.layout import Buffer
from rmqtool.formats.layouts import DLedgerEntryHead
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, LogKind
from rmqtool.log.walk import RECORD_WINDOW, Place, SegmentWalk, Window, find_dledger_entry

# glibc raises its mmap threshold when a block of up to this size is freed; for larger blocks it does not.
_LARGEST_FREED = 31 << 20


def keep_freed_memory() -> None:
    """Make glibc keep freed blocks up to 31 MiB instead of returning them to the system.

    By default columns of a few MiB go back to the system at each free, and faulting the pages in again takes a fifth of
    all time. The array here is never touched, so it takes no memory.
    """
    import numpy as np

    np.empty(_LARGEST_FREED, np.uint8)


# Buffers for each thread. A caller that loops over windows still holds the last one while it reads the next.
_KEPT = 2
# Smaller windows get memory of their own: a caller that keeps many of them must not keep large buffers.
_LEAST = 1 << 20


class Buffers(threading.local):
    """Up to two buffers of ``size`` bytes for each thread, freed when the thread ends."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._maps: list[mmap.mmap] = []

    def read(self, file: ReadableFile, length: int, file_offset: int) -> Buffer:
        """Return up to ``length`` bytes of a file. They do not change while a view of them exists."""
        view = self._take() if _LEAST <= length <= self.size else None
        if view is None:
            return file.pread(length, file_offset)
        with AWAY:
            return view[: file.pread_into(view[:length], file_offset)]

    def _take(self) -> memoryview | None:
        """Return a view of a buffer that has no other view, or None."""
        for buffer in self._maps:
            with suppress(BufferError):
                buffer.resize(self.size)  # the size stays; this only fails while a view exists
                return memoryview(buffer)
        if len(self._maps) == _KEPT:
            return None
        if not self._maps:
            keep_freed_memory()
        buffer = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without large pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
        self._maps.append(buffer)
        return memoryview(buffer)


# Bytes of a file in memory at once. After a break the window is small, because the next break may be near.
WINDOW = 4 << 20
_SMALL_WINDOW = 64 << 10
# Largest range that is read in one call: a window minus room for the record that ends the range.
ONE_READ = WINDOW - _SMALL_WINDOW
# The bytes that are skimmed at once, few enough to stay in the caches. With fewer records than ``_FEW`` in them,
# skimming ends.
_SKIMMED = 1 << 20
_FEW = 16
# The factor by which a small window grows while no further break is found.
_GROWTH = 4
# Rows per batch. Columns derived from them are several times larger than the rows.
MOST_ROWS = 8192
# If at most this many bytes of a file are left after a window, they are read together with it.
_REST = 1 << 20
_BUFFERS = Buffers(WINDOW + _REST)


class Rows(NamedTuple):
    """Right records in the order of the file, as columns. Byte 0 of their buffer is at ``file_offset`` of the file."""

    records: Records
    file_offset: int

    def file_offsets(self) -> Ints:
        """Return where in the file the records begin."""
        found: Ints = self.records.file_offsets + self.file_offset
        return found


class SegmentScan:
    """One scan over a segment of a commit log or a compaction log.

    ``base_offset`` is the physical offset of the file's first byte. Without ``checksums`` bodies are not read, and a
    record with a damaged body counts as right. ``compacted`` is for compaction logs, whose records keep the checksum
    block of their original offset.
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
        # The end of the data before the next hole, as far as it is known.
        self._data_end = 0

    def find_start(self, file_offset: int, before: int | None = None) -> int | None:
        """Return where the first right record, or the blank at the end, probably begins; None without one.

        The search goes from ``file_offset`` to ``before``. It is a guess: where the record before it ends is unknown,
        and a body can contain a record. Holes are not read.
        """
        # A small window of its own, because the scan reads the found place again in a large one.
        walk = SegmentWalk(self.file, self.base_offset, self.end, compacted=self.compacted)
        walk.window = Window(self.file, self.end, RECORD_WINDOW)
        for extent in self.file.iter_data(file_offset, before):
            # The size before a magic can begin with zeros, which may be in a hole.
            begin = max(extent.file_offset - layouts.INT.size, file_offset)
            found = walk.find_record(begin, extent.end)
            if found is not None:
                return found
        return None

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[Rows | Place]:
        """Yield rows and places from ``start``, where a record is expected, up to ``stop`` (None: the end of the file).

        They end before the first right record at or after ``stop``. Afterwards ``reached`` is its offset, or the end of
        the file.
        """
        at: int | None = start
        while at is not None and at < self.end:
            # Columns of a window are freed before the next window is read, so that the same memory is used again.
            at = yield from self._read_on(at, stop)
        if at is not None:
            self.reached = self.end

    def skim(self, start: int, stop: int | None) -> tuple[int, int]:
        """Count messages from ``start`` on, without columns and checksums, up to the first window with a fault.

        Return the count, and where the first record that is not counted begins: ``pieces`` reads from there. Without
        the kernel nothing is counted.
        """
        messages, at = 0, start
        stop = self.end if stop is None else stop
        while at < stop and not self.file.has_unreadable:
            data = _BUFFERS.read(self.file, self._without_hole(at, min(_SKIMMED, self.end - at)), at)
            starts = record_starts(data).file_offsets
            if len(starts) < _FEW or at + int(starts[-1]) >= stop:
                break
            if sound(data, starts, int64(self.base_offset + at)) < len(starts):
                break
            # The last record is read again with what follows it, as ``pieces`` does.
            messages += len(starts) - 1
            last = decode_record(data, int(starts[-2]))
            assert isinstance(last, Message), "it is sound"
            self.walk.last_timestamp = last.store_timestamp
            at += int(starts[-1])
        return messages, at

    def _read_on(self, at: int, stop: int | None) -> Generator[Rows | Place, None, int | None]:
        """Yield one window from ``at`` on; return where the next one begins, or None when ``stop`` was reached."""
        wanted = self.end - at if stop is None else min(max(stop - at, 0) + _SMALL_WINDOW, self.end - at)
        length = wanted if self._window == WINDOW and wanted <= WINDOW + _REST else min(self._window, wanted)
        data = _BUFFERS.read(self.file, self._without_hole(at, length), at)
        starts = record_starts(data)
        checks = (WRONG_CRC | WRONG_PROPERTY_CRC) if self.checksums else 0
        records, declined = decode_records(data, starts.file_offsets, checks=checks)
        # int64 because the name of a file can be near the largest offset: sums wrap as in Java, and no
        # record matches them.
        places = records.file_offsets + int64(self.base_offset + at)
        right = are_right(records, places, checksums=self.checksums, compacted=self.compacted)
        right &= are_readable(self.file, records, at)
        beyond = None if stop is None else _first_from(records, right, stop - at)
        if beyond is not None:
            shorter = yield from self._spell(records, right, beyond, at)
            if shorter is not None:
                return shorter
            self.reached = at + int(records.file_offsets[beyond])
            return None
        run_stop = at + run_end(records)
        if len(records) > 1 and at + len(data) < self.end:
            # The last record is read again with what follows it: a break there may prove its size wrong.
            shorter = yield from self._spell(records, right, len(records) - 1, at)
            self._window = min(self._window * _GROWTH, WINDOW)
            return at + int(records.file_offsets[-1]) if shorter is None else shorter
        closed = declined is None and _closes(starts.stopped_by, self.end - run_stop)
        # The last record is read again by the walk if a break follows: the break may prove its size wrong.
        held = len(records) > 0 and bool(right[-1]) and run_stop < self.end and not closed
        shorter = yield from self._spell(records, right, len(records) - held, at)
        if shorter is not None:
            return shorter
        at = run_stop - int(records.column("total_size")[-1]) if held else run_stop
        if at == self.end:
            return at
        found, at = self._walk_one(at)
        if stop is not None and isinstance(found, Rows) and found.file_offset >= stop:
            self.reached = found.file_offset
            return None
        yield found
        return at

    def _without_hole(self, at: int, length: int) -> int:
        """Return how much to read up to the next hole: reading reserved room would make it look like data."""
        if at + length > self._data_end:
            # Ask up to the end: on some file systems each question costs as much as reading the data
            # before the next hole.
            extent = next(self.file.iter_data(at, self.end), None)
            if extent is None or extent.file_offset > at:
                return min(length, _SMALL_WINDOW)
            self._data_end = extent.end
        return min(length, self._data_end - at)

    def _spell(self, records: Records, right: Mask, count: int, at: int) -> Generator[Rows | Place, None, int | None]:
        """Yield the first ``count`` records: right ones as rows, each wrong one as the place that the walk sees.

        If such a place is shorter than the record's size, what follows was decoded wrongly: return where to go on; else
        None.
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
        """Keep the store time of the last right record; an older record after a break is stale."""
        if stop:
            self.walk.last_timestamp = int(records.column("store_timestamp")[stop - 1])

    def _walk_one(self, file_offset: int) -> tuple[Rows | Place, int]:
        """Return the place that the walk sees at ``file_offset``, and its end."""
        place = next(self.walk.places(file_offset))
        self._window = _SMALL_WINDOW
        return seen(self.walk, place), place.file_offset + place.length


def are_right(records: Records, places: Ints, *, checksums: bool = True, compacted: bool = False) -> Mask:
    """Return which records the walk would call messages; ``places`` are their physical offsets.

    Without ``checksums`` they may have wrong ones. Unreadable bytes are not considered; see ``are_readable``.
    """
    right: Mask = (records.column("physical_offset") == places) & (records.column("store_timestamp") > 0)
    if checksums:
        right &= have_right_crc(records)
        if not compacted:
            right &= have_right_property_crc(records)
    return right


def are_readable(file: SalvagedFile, records: Records, at: int) -> Mask:
    """Return which records have no unreadable byte; their buffer begins at ``at`` of the file."""
    found = np.ones(len(records), np.bool_)
    if file.has_unreadable:
        begins = records.file_offsets + at
        ends = begins + records.column("total_size")
        for extent in file.unreadable:
            found &= (ends <= extent.file_offset) | (begins >= extent.end)
    return found


def seen(walk: SegmentWalk, place: Place) -> Rows | Place:
    """Return a place that the walk found; if it is a message, as ``Rows`` of one record.

    The columns did not give that message: it was too large for a window, or it was held back before a break, or a
    broker completed it meanwhile.
    """
    if not isinstance(place.what, Message):
        return place
    data, at = walk.window.view(place.file_offset, place.length)
    records, declined = decode_records(data, np.array([at], np.int64))
    assert declined is None, f"the walk calls a message what bulk declines: {declined}"
    return Rows(records, place.file_offset - at)


def _first_from(records: Records, right: Mask, offset: int) -> int | None:
    """Return the first right row at or after ``offset`` of the buffer, or None."""
    first = int(np.searchsorted(records.file_offsets, offset))
    rows = np.flatnonzero(right[first:])
    return first + int(rows[0]) if len(rows) else None


def run_end(records: Records) -> int:
    """Return where in the buffer the last record ends; 0 without records."""
    return int(records.file_offsets[-1]) + int(records.column("total_size")[-1]) if len(records) else 0


def iter_runs(right: Mask) -> Iterator[slice | int]:
    """Yield runs of right rows as slices of at most ``MOST_ROWS``, and each wrong row by its number, in order."""
    begin = 0
    for wrong in (*np.flatnonzero(~right).tolist(), len(right)):
        for first in range(begin, wrong, MOST_ROWS):
            yield slice(first, min(first + MOST_ROWS, wrong))
        if wrong < len(right):
            yield wrong
        begin = wrong + 1


def _closes(what: Blank | Nothing | Flaw, left: int) -> bool:
    """Return whether ``what`` is a blank that reaches the end of the file."""
    return isinstance(what, Blank) and what.total_size == left


class _Body(NamedTuple):
    """The record inside a DLedger entry, by its offset in a window."""

    offset: int
    length: int


class DLedgerScan:
    """One scan over a DLedger data file; ``base_offset`` is the position of its first byte in the log."""

    def __init__(self, file: ReadableFile, base_offset: int, *, checksums: bool = True) -> None:
        self.file = salvaged(file)
        self.base_offset = base_offset
        self.checksums = checksums
        self.end = file.size()

    def pieces(self, start: int = 0) -> Iterator[Rows | Place]:
        """Yield rows and places from ``start``, where an entry is expected, to the end of the file."""
        at = start
        while at < self.end:
            data = self.file.pread(min(WINDOW, self.end - at), at)
            bodies, size = self._bodies(data, at)
            yield from self._spell(data, bodies, at)
            at += size
            if not size:
                at = yield from self._walk_one(at)

    def _bodies(self, data: bytes, at: int) -> tuple[list[_Body], int]:
        """Return the records inside the whole entries of a window, and where the last of these entries ends."""
        found: list[_Body] = []
        position = 0
        while position + HEAD_SIZE <= len(data):
            head = decode_entry_head(data, position, self.end - at - position)
            if not isinstance(head, DLedgerEntryHead) or position + head.size > len(data):
                break
            if _holds_record(head):
                found.append(_Body(position + HEAD_SIZE, head.size - HEAD_SIZE))
            position += head.size
        return found, position

    def _spell(self, data: bytes, bodies: list[_Body], at: int) -> Iterator[Rows | Place]:
        """Yield the records as rows; a record that the columns decline or find wrong is read by a ``SegmentWalk``."""
        while bodies:
            records, _ = decode_records(data, np.array([body.offset for body in bodies], np.int64))
            places = records.file_offsets + int64(self.base_offset + at)
            right = are_right(records, places, checksums=self.checksums)
            right &= are_readable(self.file, records, at)
            right &= records.column("total_size") <= np.array([body.length for body in bodies[: len(records)]])
            for part in iter_runs(right):
                if isinstance(part, slice):
                    yield Rows(records.select(part), at)
                else:
                    yield self._record(bodies[part], at)
            if len(records) < len(bodies):
                yield self._record(bodies[len(records)], at)
            bodies = bodies[len(records) + 1 :]

    def _record(self, body: _Body, at: int) -> Rows | Place:
        """Return what a ``SegmentWalk`` finds in an entry; it does not look at bytes after the entry."""
        walk = SegmentWalk(self.file, self.base_offset, at + body.offset + body.length)
        return seen(walk, walk.place_at(at + body.offset))

    def _walk_one(self, at: int) -> Generator[Rows | Place, None, int]:
        """Yield what is at ``at`` where a window has no whole entry (a large one, the end, a break); return its end."""
        left = self.end - at
        head = decode_entry_head(self.file.pread(HEAD_SIZE, at).ljust(HEAD_SIZE, b"\0"), 0, left)
        if isinstance(head, DLedgerEntryHead):
            if _holds_record(head):
                yield self._record(_Body(HEAD_SIZE, head.size - HEAD_SIZE), at)
            return at + head.size
        if not isinstance(head, Flaw):
            yield Place(at, left, Blank(left) if isinstance(head, DLedgerBlank) else head)
            return self.end
        following = find_dledger_entry(self.file, self.base_offset, at + 1)
        yield Place(at, following - at, head._replace(at=0, length=following - at))
        return following


def _holds_record(head: DLedgerEntryHead) -> bool:
    """Return whether an entry contains a record; no-op entries and configuration changes do not."""
    return head.magic == MAGIC_DATA and head.size > HEAD_SIZE


# Codes of bytes after the last record of a file, which are normal at the end of a log; see ``as_damage``.
STALE, TORN, UNWRITTEN = "CL-STALE", "CL-TORN", "CL-MID"


class Damage(NamedTuple):
    """Bytes of a file that hold no message or a wrong one: a finding code, where, and a sentence."""

    code: str
    file: str
    file_offset: int
    length: int
    message: str

    def as_json(self) -> dict[str, object]:
        """Return the Damage object of docs/contract.md."""
        names = ("code", "file", "offset", "length", "message")
        return {"damage": dict(zip(names, self, strict=True))}


def as_damage(left_over: Damage, *, records_follow: bool, live: bool) -> Damage | None:
    """Return the bytes after the last record of a file as the damage that they are, or None if they are normal.

    They are damage if records follow in later files. At the end of a log zeros and older records are normal, and a torn
    record is while a broker is writing.
    """
    if records_follow:
        flaw = within_log(Flaw(left_over.code, left_over.message))
        return left_over._replace(code=flaw.code, message=flaw.message)
    return None if left_over.code in (STALE, UNWRITTEN) or (left_over.code == TORN and live) else left_over


def damage_at(place: Place, name: str, end: int) -> Damage | None:
    """Return a place of the file ``name``, which ends at ``end``, as damage; None for records and zeros between them.

    If it is left over, ``as_damage`` still judges it.
    """
    if isinstance(place.what, Flaw):
        return Damage(place.what.code, name, place.file_offset, place.length, place.what.message)
    if is_left_over(place, end):
        return Damage(UNWRITTEN, name, place.file_offset, place.length, "zeros where a record is expected")
    return None


def is_left_over(place: Place, end: int) -> bool:
    """Return whether only later files tell if a place, in a file that ends at ``end``, is damage."""
    if place.file_offset + place.length < end:
        return False
    return isinstance(place.what, Nothing) or (isinstance(place.what, Flaw) and place.what.code in (STALE, TORN))


class Note(NamedTuple):
    """A sentence that a reader of the stream should see, about something that is not damage."""

    text: str


class Part(NamedTuple):
    """Wanted messages of one file, in its order; gathered ones in the order of the request.

    Byte 0 of their buffer is at ``file_offset`` of the file. Without that the buffer was gathered, and the records'
    physical offsets tell where they are.
    """

    records: Records
    file: LogFile
    file_offset: int | None

    def record_offset(self, row: int) -> int:
        """Return the file offset of the record in a row."""
        if self.file_offset is None:
            return int(self.records.column("physical_offset")[row]) - self.file.record_base
        return self.file_offset + int(self.records.file_offsets[row])

    def body_damage(self, row: int, flaw: Flaw) -> Damage:
        """Return the damage for a body that does not decompress."""
        at = int(self.records.body_offsets[row]) - int(self.records.file_offsets[row])
        return Damage(flaw.code, self.file.name, self.record_offset(row) + at, flaw.length, flaw.message)


class Range(NamedTuple):
    """Bytes of a file from ``start`` to the first right record at or after ``stop``; None is the end of the file.

    With ``is_guess``, ``start`` is any offset, and the range begins with the first record found after it.
    """

    file: LogFile
    start: int = 0
    stop: int | None = None
    is_guess: bool = False


class RangeReader:
    """Reads one range.

    Afterwards ``began`` and ``reached`` are the real bounds, as offsets in the file. ``began`` stays
    None without a start in a guessed range, ``reached`` if reading failed or did not begin. ``rows`` is
    the number of right records, wanted or not. ``left_over`` is what comes after the last record of the file, if only
    the next file can tell whether it is damage. With ``skims``, and if every message is wanted, the first ``skimmed``
    messages are only counted and not yielded.
    """

    def __init__(self, asked: Range, selection: Selection, *, checksums: bool = True, skims: bool = False) -> None:
        self.asked = asked
        self.selection = selection
        # Of records, which name offsets in their own log.
        self._selection = replace(selection, physical_from=selection.physical_from - asked.file.shift)
        self.checksums = checksums
        self.skims = skims and selection.wants_all
        self.skimmed = 0
        self.began: int | None = None
        self.reached: int | None = None
        self.rows = 0
        self.left_over: Damage | None = None

    def parts(self) -> Iterator[Part | Damage]:
        """Yield the wanted messages and the damage of the range.

        If reading fails, the rest of the range is damage. Raises ReadFailed only for a missing permission.
        """
        try:
            with self.asked.file.open() as file:
                stop = file.size() if self.asked.stop is None else self.asked.stop
                file.expect(self.asked.start, stop)
                yield from self._read(file)
        except ReadFailed as error:
            if isinstance(error.__cause__, PermissionError):
                raise
            self.reached = None
            at = max(self.asked.start, error.offset or 0)
            end = self.asked.file.size if self.asked.stop is None else self.asked.stop
            yield Damage("ST-READ", self.asked.file.name, at, max(end - at, 0), error.message)

    def _read(self, file: ReadableFile) -> Iterator[Part | Damage]:
        """Read the range from an open file, and set ``began`` and ``reached``. DLedger files are read as a whole."""
        log, start, stop, is_guess = self.asked
        if log.kind is LogKind.DLEDGER:
            entries = DLedgerScan(file, log.base_offset, checksums=self.checksums)
            self.began = start
            yield from self._taken(entries.pieces(start), entries.end)
            self.reached = entries.end
            return
        moved = log.keeps_checksums
        segment = SegmentScan(file, log.record_base, checksums=self.checksums, compacted=moved)
        self.began = segment.find_start(start, stop) if is_guess else start
        if self.began is not None:
            self.skimmed, at = segment.skim(self.began, stop) if self.skims and not moved else (0, self.began)
            self.rows += self.skimmed
            yield from self._taken(segment.pieces(at, stop), segment.end)
            self.reached = segment.reached

    def _taken(self, pieces: Iterator[Rows | Place], end: int) -> Iterator[Part | Damage]:
        """Yield the wanted messages and the damage among ``pieces``; the file ends at ``end``."""
        for piece in pieces:
            if isinstance(piece, Place):
                yield from self._damage(piece, end)
                continue
            self.rows += len(piece.records)
            wanted = self._selection.select(_of_tier(piece.records, self.asked.file))
            if len(wanted):
                yield Part(wanted, self.asked.file, piece.file_offset)

    def _damage(self, place: Place, end: int) -> Iterator[Damage]:
        """Yield the damage at a place, if it concerns a wanted message; keep a leftover for the caller to judge."""
        if isinstance(place.what, Nothing) and self.asked.file.kind is LogKind.COMPACTION:
            return  # a compacted file is never full, so zeros at its end mean nothing
        found = damage_at(place, self.asked.file.name, end)
        if found is not None and is_left_over(place, end):
            self.left_over = found
        elif found is not None and self._concerns(place):
            yield found

    def _concerns(self, place: Place) -> bool:
        """Return whether damage may have destroyed a wanted message."""
        if self.asked.file.base_offset + place.file_offset + place.length <= self.selection.physical_from:
            return False
        return place.damaged is None or self.selection.may_want(place.damaged)


def _of_tier(records: Records, file: LogFile) -> Records:
    """Return the records of a file that the store of its tier does not have; all of another file."""
    until = None if file.tier is None else file.tier.until
    return records if until is None else records.select(records.column("queue_offset") < until)


def iter_carved(file: LogFile, selection: Selection) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages found anywhere in a file, and a ``Damage`` for each damaged record.

    The last is a note of how much of the file is records.
    """
    held = 0
    with file.open() as opened:
        size = opened.size()
        for piece in _iter_pieces(opened, size):
            if isinstance(piece, Place):
                if isinstance(piece.what, Flaw) and (piece.damaged is None or selection.may_want(piece.damaged)):
                    yield Damage(piece.what.code, file.name, piece.file_offset, piece.length, piece.what.message)
                continue
            held += int(piece.records.column("total_size").sum())
            wanted = selection.select(piece.records)
            if len(wanted):
                yield Part(wanted, file, piece.file_offset)
    yield Note(f"{held} of {size} bytes are records")


def _iter_pieces(file: ReadableFile, size: int) -> Iterator[Rows | Place]:
    """Yield the records of a file that may begin anywhere: run after run, each from the next record that is found."""
    file = salvaged(file)
    walk = SegmentWalk(file, None)
    start = walk.find_record(0)
    while start is not None:
        data = file.pread(min(WINDOW, size - start), start)
        records, _ = decode_records(data, record_starts(data).file_offsets)
        right = are_right(records, records.column("physical_offset")) & are_readable(file, records, start)
        for part in iter_runs(right):
            if isinstance(part, slice):
                yield Rows(records.select(part), start)
            else:
                yield seen(walk, walk.place_at(start + int(records.file_offsets[part])))
        after = start + run_end(records)
        if not len(records):
            place = walk.place_at(start)
            # It is a blank. The bytes after its head are searched too: in carved bytes they may be records.
            after = start + BLANK_SIZE
            if isinstance(place.what, Message):  # a message that is larger than a window
                yield seen(walk, place)
                after = start + place.length
        start = walk.find_record(after)
