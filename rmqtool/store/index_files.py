"""Index files opened for reading: geometry, slots, entries and chains.

A file does not say how many slots and entries it has room for. The right pair is the one under which each entry *hashes
home*: the slot of its hash leads to an entry of the same slot that is not older. The place of the last entry gives the
pair, and the header has that entry's physical offset, so the file is searched for these 8 bytes instead of trying every
pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import index, layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import IndexEntry, IndexHeader

# Entries that are tested to confirm a geometry.
_SAMPLE = 64
_PIECE = 1 << 20
_PHY_OFFSET_AT = layouts.INDEX_ENTRY.field("phy_offset").offset


class Geometry(NamedTuple):
    """The slots and entries that an index file has room for."""

    slots: int
    entries: int


DEFAULT = Geometry(*index.DEFAULT_GEOMETRY)


class Chain(NamedTuple):
    """An entry on a chain, with its number."""

    index_no: int
    entry: IndexEntry


@dataclass(frozen=True)
class IndexFile:
    """An open index file of known geometry."""

    file: ReadableFile
    geometry: Geometry
    header: IndexHeader

    @property
    def next_index_no(self) -> int:
        """The number of the next entry; at least 1, even if a damaged header says less."""
        return max(self.header.index_count, 1)

    def slot(self, slot: int) -> int:
        """Return the number of the newest entry of a slot; 0 if it is empty or not the number of an entry."""
        data = self.file.pread(index.SLOT_SIZE, index.slot_offset(slot))
        index_no: int = layouts.INDEX_SLOT.unpack_from(data)[0] if len(data) == index.SLOT_SIZE else 0
        return index_no if 0 < index_no < self.next_index_no else 0

    def entry(self, index_no: int) -> IndexEntry | None:
        """Return an entry, or None if the file ends before it."""
        data = self.file.pread(index.ENTRY_SIZE, index.entry_offset(self.geometry.slots, index_no))
        return layouts.INDEX_ENTRY.decode(data) if len(data) == index.ENTRY_SIZE else None

    def iter_chain(self, key_hash: int) -> Iterator[Chain]:
        """Yield the entries of the slot of ``key_hash``, newest first.

        A link to a newer entry ends the chain, so a damaged file cannot cause an endless loop.
        """
        index_no = self.slot(index.slot_of(key_hash, self.geometry.slots))
        while index_no > 0:
            entry = self.entry(index_no)
            if entry is None:
                return
            yield Chain(index_no, entry)
            index_no = entry.prev_index if entry.prev_index < index_no else 0

    def entry_time(self, entry: IndexEntry) -> int:
        """Return the store time of an entry's message, exact to the second."""
        return self.header.begin_timestamp + entry.time_diff * 1000


def read_header(file: ReadableFile) -> IndexHeader | None:
    """Return the header, or None if the file is too short."""
    data = file.pread(index.HEADER_SIZE, 0)
    return layouts.INDEX_HEADER.decode(data) if len(data) == index.HEADER_SIZE else None


def open_index(file: ReadableFile, hints: Sequence[Geometry] = ()) -> IndexFile | None:
    """Return the index file, or None if no geometry fits.

    ``hints`` are geometries from the settings and other files; they decide where the bytes allow several. A hint, or
    the default, under which the last entry is found from its slot is taken at once. That reads two pages of a file that
    can have half a gigabyte.
    """
    header = read_header(file)
    if header is None:
        return None
    # The likely geometries are tested first: they need no search through the file.
    for pair in _preferred(file.size(), hints):
        if ends_home(IndexFile(file, pair, header)):
            return IndexFile(file, pair, header)
    geometries = find_geometries(file, header, hints)
    return IndexFile(file, geometries[0], header) if geometries else None


def find_geometries(file: ReadableFile, header: IndexHeader, hints: Sequence[Geometry] = ()) -> list[Geometry]:
    """Return every geometry that the bytes allow, the likeliest first: a hint, the default, then the fewest slots."""
    size = file.size()
    preferred = _preferred(size, hints)
    if header.index_count <= 1:
        return list(dict.fromkeys(preferred))
    fitting = [
        pair
        for pair in dict.fromkeys((*preferred, *_candidates(file, header, size)))
        if _fits(IndexFile(file, pair, header))
    ]
    return sorted(
        fitting, key=lambda pair: (pair not in preferred, preferred.index(pair) if pair in preferred else pair)
    )


def _preferred(size: int, hints: Sequence[Geometry]) -> list[Geometry]:
    return [pair for pair in (*hints, DEFAULT) if index.file_size(*pair) == size]


def _fits(opened: IndexFile) -> bool:
    return opened.geometry.entries >= opened.header.index_count and hashes_home(opened)


def _candidates(file: ReadableFile, header: IndexHeader, size: int) -> Iterator[Geometry]:
    """Yield the geometries under which the last entry has the last physical offset of the header."""
    pattern = layouts.LONG.packer.pack(header.end_phy_offset)
    last = header.index_count - 1
    before_last = index.HEADER_SIZE + last * index.ENTRY_SIZE + _PHY_OFFSET_AT
    for place in iter_find(file, pattern, before_last):
        slots, odd = divmod(place - before_last, index.SLOT_SIZE)
        entries, rest = divmod(size - index.HEADER_SIZE - slots * index.SLOT_SIZE, index.ENTRY_SIZE)
        if slots > 0 and not odd and not rest and entries > 0:
            yield Geometry(slots, entries)


def iter_find(file: ReadableFile, pattern: bytes, start: int) -> Iterator[int]:
    """Yield every offset of ``pattern`` from ``start`` on. Holes are not searched."""
    size = file.size()
    done = start
    for extent in file.iter_data(min(start, size), size):
        at = max(done, extent.file_offset - len(pattern) + 1)
        while at < extent.end and at + len(pattern) <= size:
            piece = file.pread(min(_PIECE, size - at), at)
            place = piece.find(pattern)
            while place >= 0 and at + place < extent.end:
                yield at + place
                place = piece.find(pattern, place + 1)
            at += max(len(piece) - len(pattern) + 1, 1)
        done = max(done, min(at, extent.end))


def ends_home(opened: IndexFile) -> bool:
    """Return whether the last entry has the header's last physical offset and is the newest entry of its slot.

    Both are true of the entry that was written last, and hardly of any other bytes.
    """
    last = opened.next_index_no - 1
    entry = opened.entry(last) if last else None
    if entry is None or entry.key_hash < 0 or entry.phy_offset != opened.header.end_phy_offset:
        return False
    return opened.slot(index.slot_of(entry.key_hash, opened.geometry.slots)) == last


def hashes_home(opened: IndexFile) -> bool:
    """Return whether a sample of the entries is found from their slots."""
    count = opened.next_index_no
    return all(_is_home(opened, index_no) for index_no in _spread(1, count - 1, _SAMPLE))


def _spread(first: int, last: int, most: int) -> Iterable[int]:
    return range(first, last + 1, max((last - first + 1) // most, 1))


def _is_home(opened: IndexFile, index_no: int) -> bool:
    entry = opened.entry(index_no)
    if entry is None or entry.key_hash < 0 or not 0 <= entry.prev_index < index_no:
        return False
    slots = opened.geometry.slots
    slot = index.slot_of(entry.key_hash, slots)
    head = opened.slot(slot)
    newest = opened.entry(head) if head >= index_no else None
    return newest is not None and newest.key_hash >= 0 and bool(index.slot_of(newest.key_hash, slots) == slot)


def iter_links(opened: IndexFile, key_hash: int, newest: int | None = None) -> Iterator[Chain | Flaw]:
    """Yield the entries of the slot of ``key_hash``, newest first; a flaw ends the chain.

    A chain leads to older entries of the same slot. Anything else is a flaw, so there is no endless loop. The number of
    the ``newest`` entry is that in the slot, unless it is given.
    """
    slots, next_index_no = opened.geometry.slots, opened.next_index_no
    slot = index.slot_of(key_hash, slots)
    place = index.slot_offset(slot)
    if newest is None:
        data = opened.file.pread(index.SLOT_SIZE, place)
        newest = layouts.INDEX_SLOT.unpack_from(data)[0] if len(data) == index.SLOT_SIZE else 0
    index_no, newer = newest, next_index_no
    while index_no:
        if not 0 < index_no < next_index_no:
            text = f"a link points to entry {index_no}, but the last one is {next_index_no - 1}"
            yield Flaw("IX-WRONG", text, place)
            return
        if index_no >= newer:
            yield Flaw("IX-LOOP", f"entry {newer} points back to entry {index_no}", place)
            return
        place = index.entry_offset(slots, index_no)
        entry = opened.entry(index_no)
        if entry is None or entry.key_hash < 0 or index.slot_of(entry.key_hash, slots) != slot:
            yield Flaw(
                "IX-WRONG", f"entry {index_no} is in the chain of slot {slot}, but its hash belongs to another", place
            )
            return
        yield Chain(index_no, entry)
        newer, index_no = index_no, entry.prev_index


def is_time_matched(opened: IndexFile, begin: int, end: int) -> bool:
    """Return whether a broker searches a file for this time window.

    upstream: IndexFile.isTimeMatched
    """
    first, last = opened.header.begin_timestamp, opened.header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def select_offsets(
    opened: IndexFile, key_hash: int, begin: int, end: int, newest: int | None = None
) -> Iterator[int | Flaw]:
    """Yield the physical offsets that a broker finds for a closed time window, newest first; a flaw ends the search.

    ``newest`` is that of ``iter_links``.

    upstream: IndexFile.selectPhyOffset
    """
    for link in iter_links(opened, key_hash, newest):
        if isinstance(link, Flaw):
            yield link
            return
        if link.entry.time_diff < 0:
            return
        time = opened.entry_time(link.entry)
        if link.entry.key_hash == key_hash and begin <= time <= end:
            yield link.entry.phy_offset
        if time < begin:
            return
