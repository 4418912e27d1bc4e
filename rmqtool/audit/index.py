"""Judges index files without rebuilding them: their chains, and their entries against the keys of the log's records.

Upstream inserts an entry by pointing it at the newest entry of its slot, then pointing the slot at it. So the chains
are right exactly when each entry points at the newest entry before it with the same slot, and each slot at the newest
of all. One reading of the entries shows that; no chain is followed.

Entries are in the order of the log, except where a recovery inserted some of them again. So a file is a few ascending
runs, and the entries of a range of the log are found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.audit.due import Batch, IndexKeys, Ints
from rmqtool.files.filesystem import ReadableFile
from rmqtool.findings.finding import counted
from rmqtool.formats import index, layouts
from rmqtool.formats.layouts import IndexHeader
from rmqtool.log.read import Buffers
from rmqtool.store.index_files import Geometry

# As numpy types: the entries and slots of a file are compared as arrays.
ENTRY = np.dtype(layouts.INDEX_ENTRY.dtype())
SLOT = np.dtype(layouts.INDEX_SLOT.dtype())

# Entries that are examined at once: few enough that their columns stay in the caches of the CPU. Their rows
# have numbers of _ROW_BITS bits.
_ROW_BITS = 16
_AT_ONCE = 1 << _ROW_BITS
# Bytes that are read at once to find the last entry of a sparse file.
_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)
_BUFFERS = Buffers(_AT_ONCE * ENTRY.itemsize)
# Entries of one kind of fault that are named one by one; the rest is counted.
NAMED = 1000
# A file with more ascending runs than this has no order that bisection could use: it is searched from end to end.
MOST_RUNS = 64

Entries = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int32]


class WrongLink(NamedTuple):
    """An entry or a slot that points at entry ``found`` instead of entry ``due``.

    Both are 0 for no entry. ``index_no`` is the number of the entry, or that of the slot.
    """

    index_no: int
    found: int
    due: int


@dataclass
class IndexLinks:
    """The result of examining the chains of a file. ``negative`` are numbers of entries with a negative hash.

    ``slots_used`` counts slots that entries belong to. ``entries_left_out`` and ``slots_left_out`` count wrong links
    that are not named. ``odd_slots`` counts slots that hold a number which no entry of the file has. They are harmless
    until the entry of that number is written: then a lookup of another key reaches it.
    """

    slots_used: int = 0
    wrong_entries: list[WrongLink] = field(default_factory=list)
    wrong_slots: list[WrongLink] = field(default_factory=list)
    negative: list[int] = field(default_factory=list)
    entries_left_out: int = 0
    slots_left_out: int = 0
    odd_slots: int = field(default=0, compare=False)

    def join(self, more: IndexLinks) -> None:
        """Add the result for other slots of the same file."""
        self.slots_used += more.slots_used
        self.wrong_entries = sorted(self.wrong_entries + more.wrong_entries)
        self.wrong_slots = sorted(self.wrong_slots + more.wrong_slots)
        self.negative = sorted(self.negative + more.negative)
        self.entries_left_out += more.entries_left_out
        self.slots_left_out += more.slots_left_out
        self.odd_slots += more.odd_slots


@dataclass
class IndexExamination:
    """The places and runs of the ``entries`` of a file, and the result for their chains in ``links``.

    ``lowest`` and ``highest`` are physical offsets. ``runs`` are the numbers of the first and last entry of each
    ascending run. ``examine_links`` makes what goes into ``links``.
    """

    entries: int
    first: tuple[int, int] | None = None  # physical offset and time difference of the first entry
    last: tuple[int, int] | None = None
    lowest: int = 0
    highest: int = -1
    runs: list[tuple[int, int]] = field(default_factory=list)
    links: IndexLinks = field(default_factory=IndexLinks)


class SlotPart(NamedTuple):
    """One of ``parts`` shares, of about equal size, of the slots of a file; ``number`` counts them from 0."""

    number: int = 0
    parts: int = 1

    def bounds(self, slots: int) -> tuple[int, int]:
        """Return the first slot and the one after the last."""
        return slots * self.number // self.parts, slots * (self.number + 1) // self.parts


def read_entries(file: ReadableFile, slots: int, start: int, end: int) -> Entries:
    """Return the entries from number ``start`` to before ``end``, or fewer where the file ends."""
    data = file.pread((end - start) * ENTRY.itemsize, index.entry_offset(slots, start))
    return np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)


def examine_entries(file: ReadableFile, slots: int, entries: int) -> IndexExamination:
    """Examine the physical offsets of the entries 1 to ``entries``; ``examine_links`` does the chains."""
    examination = IndexExamination(entries)
    before = -1
    for start, found in _iter_entries(file, slots, entries):
        before = _examine_places(examination, found, start, before)
    if examination.runs:
        examination.runs[-1] = (examination.runs[-1][0], entries)
    return examination


def examine_links(file: ReadableFile, slots: int, entries: int, part: SlotPart) -> IndexLinks:
    """Examine the chains of a share of the slots.

    All entries are read for each share, but the caller can give the shares to several threads.
    """
    links = IndexLinks()
    low, high = part.bounds(slots)
    newest = np.zeros(high - low, np.int32)
    for start, found in _iter_entries(file, slots, entries):
        hashes = found["key_hash"].astype(np.int32)
        slot_of = _slots_of(hashes, slots) - np.uint32(low)  # for slots below the share this wraps to a large number
        rows = np.flatnonzero(slot_of < high - low)
        if (hashes < 0).any():
            links.negative += (start + rows[hashes[rows] < 0][:NAMED]).tolist()
        numbers = (start + rows).astype(np.int32)
        _examine_chains(links, slot_of[rows], found["prev_index"].astype(np.int32)[rows], numbers, newest)
    links.slots_used = int(np.count_nonzero(newest))
    _examine_slots(links, file, newest, low, entries)
    return links


def _slots_of(hashes: npt.NDArray[np.int32], slots: int) -> npt.NDArray[np.uint32]:
    """Return ``index.slot_of`` for many hashes: dividing and multiplying back is several times faster than ``%``."""
    # abs of the lowest int32 is itself; without the sign its bits are the right value
    sizes = np.abs(hashes).view(np.uint32)
    found: npt.NDArray[np.uint32] = sizes - sizes // np.uint32(slots) * np.uint32(slots)
    return found


def _iter_entries(file: ReadableFile, slots: int, entries: int) -> Iterator[tuple[int, Entries]]:
    """Yield the entries 1 to ``entries`` in blocks, each with the number of its first; fewer where the file ends."""
    for start in range(1, entries + 1, _AT_ONCE):
        length = (min(start + _AT_ONCE, entries + 1) - start) * ENTRY.itemsize
        data = _BUFFERS.read(file, length, index.entry_offset(slots, start))
        found = np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
        if not len(found):
            break
        yield start, found


def _examine_chains(
    links: IndexLinks, slot_of: npt.NDArray[np.uint32], prev: Numbers, numbers: Numbers, newest: Numbers
) -> None:
    """Compare the links of entries with the newest earlier entry of their slot.

    ``newest`` has that entry for each slot of the share, 0 for none, and is updated. ``slot_of`` counts from the first
    slot of the share.
    """
    if not len(slot_of):
        return
    # Slot and row packed into one number: sorting numbers is several times faster than argsort of the slots.
    ordered = np.sort((slot_of.astype(np.int64) << _ROW_BITS) | np.arange(len(slot_of)))
    order = ordered & ((1 << _ROW_BITS) - 1)
    ordered >>= _ROW_BITS
    numbers, prev = numbers[order], prev[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    due = np.empty(len(ordered), np.int32)
    due[1:] = numbers[:-1]
    due[first] = newest[ordered[first]]
    last = np.append(first[1:], True)
    newest[ordered[last]] = numbers[last]
    links.entries_left_out += _name(links.wrong_entries, prev != due, numbers, prev, due)


def _examine_places(examination: IndexExamination, found: Entries, start: int, before: int) -> int:
    """Add the physical offsets of entries from number ``start`` on; ``before`` is that of the entry before them.

    Returns that of the last of these.
    """
    places = found["phy_offset"].astype(np.int64)
    if examination.first is None:
        examination.first = (int(places[0]), int(found["time_diff"][0]))
        examination.lowest = int(places[0])
        examination.runs.append((start, start))
    elif places[0] < before:
        _begin_run(examination, start)
    for row in np.flatnonzero(places[1:] < places[:-1]).tolist():
        _begin_run(examination, start + row + 1)
    examination.last = (int(places[-1]), int(found["time_diff"][-1]))
    examination.lowest = min(examination.lowest, int(places.min()))
    examination.highest = max(examination.highest, int(places.max()))
    return int(places[-1])


def _begin_run(examination: IndexExamination, index_no: int) -> None:
    """End the current run before entry ``index_no``, which begins the next one."""
    runs = examination.runs
    runs[-1] = (runs[-1][0], index_no - 1)
    runs.append((index_no, index_no))


def _examine_slots(
    links: IndexLinks, file: ReadableFile, newest: npt.NDArray[np.int32], low: int, entries: int
) -> None:
    """Compare the slots from number ``low`` on with the newest entry that each should point at."""
    for start in range(0, len(newest), _AT_ONCE):
        data = file.pread(min(_AT_ONCE, len(newest) - start) * SLOT.itemsize, index.slot_offset(low + start))
        found = np.frombuffer(data, SLOT, len(data) // SLOT.itemsize)["index_no"].astype(np.int64)
        due = newest[start : start + len(found)].astype(np.int64)
        # Any number that no entry has ends a chain, as zero does.
        usual = np.where((found < 0) | (found > entries), 0, found)
        links.odd_slots += int(np.count_nonzero(usual != found))
        numbers = np.arange(len(found)) + (low + start)
        links.slots_left_out += _name(links.wrong_slots, usual != due, numbers, found, due)


def _name(to: list[WrongLink], wrong: Any, numbers: Any, found: Any, due: Any) -> int:
    """Add wrong links to a list until it has ``NAMED``; return how many were left out."""
    rows = np.flatnonzero(wrong)
    room = max(NAMED - len(to), 0)
    to += [WrongLink(int(numbers[row]), int(found[row]), int(due[row])) for row in rows[:room].tolist()]
    return max(len(rows) - room, 0)


class EntryFault(StrEnum):
    """How an entry differs from the log."""

    NO_RECORD = "no record begins there"
    NO_KEY = "its record does not have this key"
    TIME = "its time differs from that of its record"


class EntryFlaw(NamedTuple):
    """An entry that does not match the log: ``entry`` is its hash, physical offset and time difference."""

    file: str
    index_no: int
    entry: tuple[int, int, int]
    fault: EntryFault


class KeysMissing(NamedTuple):
    """The records from ``start`` to before ``end`` of the log have ``keys`` keys without an index entry."""

    start: int
    end: int
    keys: int


@dataclass(frozen=True)
class IndexPart:
    """An open index file, ready to return the entries of a range of the log; ``runs`` as in ``IndexExamination``."""

    file: ReadableFile
    path: str
    geometry: Geometry
    header: IndexHeader
    runs: tuple[tuple[int, int], ...]

    def entries_between(self, start: int, end: int) -> Iterator[tuple[int, Entries]]:
        """Yield (number of the first, entries) for the entries that point from ``start`` to before ``end``."""
        if len(self.runs) > MOST_RUNS:
            yield from self._entries_anywhere(start, end)
            return
        for first, last in self.runs:
            low = self._first_since(start, first, last + 1)
            high = self._first_since(end, low, last + 1)
            if low < high:
                yield low, read_entries(self.file, self.geometry.slots, low, high)

    def _first_since(self, physical_offset: int, low: int, high: int) -> int:
        """Return the first entry of a run that points to ``physical_offset`` or later, or ``high`` if none does.

        The search is from ``low`` to before ``high``.
        """
        while low < high:
            middle = (low + high) // 2
            entry = read_entries(self.file, self.geometry.slots, middle, middle + 1)
            if len(entry) and int(entry["phy_offset"][0]) < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _entries_anywhere(self, start: int, end: int) -> Iterator[tuple[int, Entries]]:
        """Yield the entries of a range of the log one by one with their numbers; for a file without order."""
        for first in range(1, self.runs[-1][1] + 1, _AT_ONCE):
            entries = read_entries(self.file, self.geometry.slots, first, min(first + _AT_ONCE, self.runs[-1][1] + 1))
            places = entries["phy_offset"].astype(np.int64)
            for row in np.flatnonzero((places >= start) & (places < end)).tolist():
                yield first + row, entries[row : row + 1]


class ExaminedIndex(NamedTuple):
    """An open index file of known geometry, with the examination of its entries.

    ``written`` is the number of the last entry with bytes on disk; the header may count fewer or more.
    """

    part: IndexPart
    examination: IndexExamination
    written: int

    @property
    def is_empty(self) -> bool:
        """Whether the file has no entry yet. Its header then counts 0 or 1, because entry 0 is not used."""
        return self.part.header.index_count <= 1 and not self.written


class HeaderFlaw(NamedTuple):
    """A header field (its name in ``layouts``) that does not match the content of the file; ``text`` says how."""

    field: str
    text: str


def examine_index(part: IndexPart) -> ExaminedIndex:
    """Examine the entries of a file and find their runs; the links are left to ``examine_links``.

    These are the entries that the header counts; all written ones, if the header counts none or more than are written.
    """
    count = part.header.index_count - 1
    written = _last_written(part.file, part.geometry, count)
    examination = examine_entries(part.file, part.geometry.slots, count if 0 < count <= written else written)
    return ExaminedIndex(replace(part, runs=tuple(examination.runs)), examination, written)


def iter_count_flaws(examined: ExaminedIndex, *, was_killed: bool) -> Iterator[HeaderFlaw]:
    """Yield the counts of the header that differ from the file. The links must have been examined.

    After a crash (``was_killed``) the newest entry may be uncounted: upstream writes it before the count. Some versions
    count every entry in ``hashSlotCount``, others every used slot; both are right.
    """
    header, used = examined.part.header, examined.examination.links.slots_used
    count = header.index_count - 1
    if not 0 <= examined.written - count <= (1 if was_killed else 0):
        text = f"indexCount is {header.index_count}, {counted(examined.written, 'entry is', 'entries are')} written"
        yield HeaderFlaw("index_count", text)
    if used != header.hash_slot_count and header.hash_slot_count not in (count, count + 1):
        yield HeaderFlaw("hash_slot_count", f"hashSlotCount is {header.hash_slot_count}, {used} slots are in use")


def find_edge_flaw(header: IndexHeader, name: str, physical_offset: int) -> HeaderFlaw | None:
    """Return the flaw of beginPhyOffset or endPhyOffset (``name``), None if it is the offset that the entry has."""
    said = getattr(header, f"{name}_phy_offset")
    if said == physical_offset:
        return None
    return HeaderFlaw(f"{name}_phy_offset", f"{name}PhyOffset is {said}, the {name} entry leads to {physical_offset}")


def is_consistent(examined: ExaminedIndex, *, was_killed: bool) -> bool:
    """Return whether the header and the chains of a file match its entries, so that more can be added.

    The links are examined for this, and added to ``examined``. ``was_killed`` as in ``iter_count_flaws``.
    """
    part, examination = examined.part, examined.examination
    links = examine_links(part.file, part.geometry.slots, examination.entries, SlotPart())
    examination.links.join(links)
    if links.wrong_entries or links.wrong_slots or links.odd_slots or links.negative:
        return False
    if examined.is_empty:
        return True
    edges = (("begin", examination.first), ("end", examination.last))
    flaws = [find_edge_flaw(part.header, name, edge[0]) for name, edge in edges if edge is not None]
    return not any(flaws) and not any(iter_count_flaws(examined, was_killed=was_killed))


def _last_written(file: ReadableFile, geometry: Geometry, count: int) -> int:
    """Return the number of the last entry that was written, 0 without one. A preallocated file is zeros after it.

    ``count`` is the number of entries by the header. It is where the search begins, unless that entry is empty.
    """
    first_free = max(count + 1, 1)
    last = count
    if not 0 < count < geometry.entries or not _is_written(file, geometry, count):
        first_free, last = 1, 0
    start, end = index.entry_offset(geometry.slots, first_free), file.size()
    for extent in file.iter_data(min(start, end), end):
        for at in range(extent.file_offset, extent.end, _PIECE):
            piece = file.pread(min(_PIECE, extent.end - at), at)
            if piece != _ZEROS[: len(piece)]:
                piece = piece.rstrip(b"\0")
                last = first_free + (at + len(piece) - 1 - start) // index.ENTRY_SIZE
    return min(last, geometry.entries - 1)


def _is_written(file: ReadableFile, geometry: Geometry, index_no: int) -> bool:
    """Return whether an entry has bytes; one that was never written is zeros."""
    data = file.pread(index.ENTRY_SIZE, index.entry_offset(geometry.slots, index_no))
    return bool(data.strip(b"\0"))


class IndexComparison:
    """Compares the keys of the log's records, batch by batch in the order of the log, with all index files.

    ``missing`` and ``flaws`` are limited to ``NAMED``: further missing keys are added to the last gap, further flaws
    counted in ``left_out``. ``compared`` counts entries.
    """

    def __init__(self, parts: Iterable[IndexPart]) -> None:
        self.parts = list(parts)
        self.missing: list[KeysMissing] = []
        self.flaws: list[EntryFlaw] = []
        self.left_out = 0
        self.compared = 0
        # Whether the last record of the previous batch lacked its key: then a gap may continue in this batch.
        self._open_end = False

    def take_missing(self) -> list[KeysMissing]:
        """Return the missing keys found since the last call."""
        found, self.missing = self.missing, []
        return found

    def take_flaws(self) -> list[EntryFlaw]:
        """Return the wrong entries found since the last call."""
        found, self.flaws = self.flaws, []
        return found

    def compare(self, batch: Batch, start: int, end: int) -> None:
        """Compare the entries that point from ``start`` to before ``end``; ``batch`` has all records there."""
        found = _Found(
            [(part, number, entries) for part in self.parts for number, entries in part.entries_between(start, end)],
            start,
        )
        if not len(found.codes) and not len(batch.keys.key_hashes):
            return
        self.compared += len(found.codes)
        due = _codes(batch.keys, start)
        tags = _codes(batch.tag_keys, start)
        # Usually the entries are exactly those that are due, in their order.
        if len(found.codes) == len(due) + len(tags) and (found.codes == _in_order(due, tags)).all():
            of_keys = None if len(tags) else batch.keys.store_timestamps
            self._check_times(found, batch, np.arange(len(found.codes)), of_keys)
            self._open_end = False
            return
        self._check_found(found, batch, np.concatenate((due, tags)))
        self._check_due(batch, batch.keys, due, found)
        # Brokers from 5.4 on index tags, older ones do not, and a store may have been written by both. So entries of
        # tags are due from the first to the last record of this batch that has one.
        tagged = np.flatnonzero(_is_in(tags, found.codes))
        if len(tagged):
            self._open_end = False
            span = slice(int(tagged[0]), int(tagged[-1]) + 1)
            self._check_due(batch, IndexKeys(*(column[span] for column in batch.tag_keys)), tags[span], found)
            self._open_end = False

    def _check_found(self, found: _Found, batch: Batch, due: Ints) -> None:
        """Note the entries that no record is due, then compare the times of the others."""
        wrong = ~_is_in(found.codes, due)
        rows = np.flatnonzero(wrong)
        record_starts = batch.physical_offsets
        for row in rows.tolist():
            place = int(found.places[row])
            # After the last record the index is that of the first one, which is at another place.
            there = record_starts[np.searchsorted(record_starts, place, side="left") - len(record_starts)]
            self._add(found, row, EntryFault.NO_KEY if int(there) == place else EntryFault.NO_RECORD)
        self._check_times(found, batch, np.flatnonzero(~wrong))

    def _check_times(self, found: _Found, batch: Batch, rows: Ints, times: Ints | None = None) -> None:
        """Compare the times of entries with ``times``, or with those of their records if None."""
        if not len(rows):
            return
        if times is None:
            times = batch.store_timestamps[np.searchsorted(batch.physical_offsets, found.places[rows])]
        # The first entry of a file is timed from the end of the file before it, which this file does not have.
        differ = (_time_diffs(times, found.begins[rows]) != found.diffs[rows]) & (found.numbers[rows] > 1)
        for row in rows[differ].tolist():
            self._add(found, row, EntryFault.TIME)

    def _add(self, found: _Found, row: int, fault: EntryFault) -> None:
        if len(self.flaws) < NAMED:
            self.flaws.append(found.flaw(row, fault))
        else:
            self.left_out += 1

    def _check_due(self, batch: Batch, keys: IndexKeys, codes: Ints, found: _Found) -> None:
        """Note the keys without an entry; neighbouring ones are one gap, also across two batches."""
        lacking = np.flatnonzero(~_is_in(codes, found.codes))
        if not len(lacking):
            self._open_end = self._open_end and not len(codes)
            return
        breaks = np.flatnonzero(np.diff(lacking) != 1) + 1
        for part in np.split(lacking, breaks):
            first, last = int(keys.physical_offsets[part[0]]), int(keys.physical_offsets[part[-1]])
            last += int(batch.sizes[np.searchsorted(batch.physical_offsets, last)])
            self._add_missing(KeysMissing(first, last, len(part)), joined=self._open_end and not part[0])
        self._open_end = bool(lacking[-1] == len(codes) - 1)

    def _add_missing(self, more: KeysMissing, *, joined: bool) -> None:
        """Add a gap; to the last one if it is ``joined`` to that, or if there are ``NAMED`` gaps."""
        if self.missing and (joined or len(self.missing) >= NAMED):
            last = self.missing[-1]
            self.missing[-1] = KeysMissing(min(last.start, more.start), max(last.end, more.end), last.keys + more.keys)
        else:
            self.missing.append(more)


class _Found:
    """The entries of several files that point into one range of the log, as columns.

    ``pieces`` are file, number of the first entry, and entries; ``start`` is the offset of the range's first byte.
    """

    def __init__(self, pieces: list[tuple[IndexPart, int, Entries]], start: int) -> None:
        self.pieces = pieces
        self.bounds = np.cumsum([0, *(len(entries) for _, _, entries in pieces)])
        self.places = self._column("phy_offset")
        self.hashes = self._column("key_hash")
        self.diffs = self._column("time_diff")
        begins = [np.full(len(entries), part.header.begin_timestamp, np.int64) for part, _, entries in pieces]
        self.begins = np.concatenate(begins) if begins else np.zeros(0, np.int64)
        numbers = [np.arange(number, number + len(entries)) for _, number, entries in pieces]
        self.numbers = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
        self.codes = _code(self.places, self.hashes, start)

    def _column(self, name: str) -> Ints:
        parts = [entries[name].astype(np.int64) for _, _, entries in self.pieces]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def flaw(self, row: int, fault: EntryFault) -> EntryFlaw:
        """Return ``fault`` with the file, number and content of an entry; ``row`` counts through all pieces."""
        piece = int(np.searchsorted(self.bounds, row, side="right")) - 1
        part = self.pieces[piece][0]
        entry = (int(self.hashes[row]), int(self.places[row]), int(self.diffs[row]))
        return EntryFlaw(part.path, int(self.numbers[row]), entry, fault)


def _codes(keys: IndexKeys, start: int) -> Ints:
    """Return the codes (``_code``) of keys that are due, to compare them with those of entries."""
    return _code(keys.physical_offsets, keys.key_hashes, start)


def _code(places: Ints, hashes: Ints, start: int) -> Ints:
    """Return physical offset and hash as one number: a batch is shorter than 2**32 bytes, a hash has 31 bits."""
    return ((places - start) << 31) | (hashes & 0x7FFFFFFF)


def _in_order(keys: Ints, tags: Ints) -> Ints:
    """Return the codes of keys and tags in the order in which a broker adds their entries."""
    if not len(tags):
        return keys
    codes = np.concatenate((keys, tags))
    return codes[np.argsort(codes >> 31, kind="stable")]


def _is_in(codes: Ints, known: Ints) -> Any:
    """Return which of ``codes`` are among ``known``."""
    ordered = np.sort(known)
    at = np.searchsorted(ordered, codes)
    return np.append(ordered, -1)[at] == codes


def _time_diffs(times: Ints, begins: Ints) -> Ints:
    """Return what ``index.time_diff`` returns, for many."""
    diffs = np.clip((times - begins) // 1000, 0, 0x7FFFFFFF)
    return np.where(begins > 0, diffs, 0)
