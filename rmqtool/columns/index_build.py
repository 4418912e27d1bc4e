"""Index files from many keys at once, and their chains judged without following them.

Upstream inserts one key after the other (``IndexFile.putKey``). Sorting the entry numbers by slot shows each entry its
predecessor, so a whole file is filled by a handful of array operations, with the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import hung
from rmqtool.columns.gather import Bytes, Ints, as_bytes
from rmqtool.formats import index, layouts
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.layout import Buffer
from rmqtool.formats.layouts import IndexHeader

_SLOT = np.dtype(layouts.INDEX_SLOT.dtype())
_ENTRY = np.dtype(layouts.INDEX_ENTRY.dtype())

# The number of the first entry; entry 0 is never written.
_FIRST_ENTRY = 1
_MILLISECONDS = 1000


class Keys(NamedTuple):
    """Keys in the order of their entries: hash, and place and store time of the message."""

    key_hashes: npt.NDArray[np.int32]
    physical_offsets: Ints
    store_timestamps: Ints

    def cut(self, begin: int, end: int | None = None) -> Keys:
        """Return the keys from ``begin`` to before ``end``."""
        rows = slice(begin, end)
        return Keys(self.key_hashes[rows], self.physical_offsets[rows], self.store_timestamps[rows])


def join_keys(first: Keys, second: Keys) -> Keys:
    """Return some keys, and others behind them."""
    return Keys(
        np.concatenate((first.key_hashes, second.key_hashes)),
        np.concatenate((first.physical_offsets, second.physical_offsets)),
        np.concatenate((first.store_timestamps, second.store_timestamps)),
    )


class Inserted(NamedTuple):
    """What an insertion changed besides the header: so many entries from ``first_entry`` on, and these slots."""

    first_entry: int
    entries: int
    slots: Ints


class IndexContent:
    """An index file in memory, changed in place: ``data`` is a writable array of the whole file's bytes."""

    def __init__(self, data: Bytes, slots: int, entries: int) -> None:
        self.data = data
        self.slots: npt.NDArray[np.int32] = np.frombuffer(data, _SLOT, slots, index.slot_offset(0))["index_no"]
        self.entries: npt.NDArray[np.void] = np.frombuffer(data, _ENTRY, entries, index.entry_offset(slots, 0))

    @classmethod
    def create(cls, slots: int, entries: int, before: IndexHeader | None = None) -> IndexContent:
        """Return an empty file of a geometry; after a full one its times and places begin as those of that one end."""
        content = cls(np.zeros(index.file_size(slots, entries), np.uint8), slots, entries)
        if before is not None:
            time, place = max(before.end_timestamp, 0), max(before.end_phy_offset, 0)
            content.header = IndexHeader(time, time, place, place, 0, 0)
        return content

    @classmethod
    def copy(cls, data: Buffer, slots: int, entries: int) -> IndexContent:
        """Return a copy of a file of that geometry. Bytes that are not there are zeros, as brokers take them."""
        whole = np.zeros(index.file_size(slots, entries), np.uint8)
        stored = as_bytes(data)[: len(whole)]
        whole[: len(stored)] = stored
        return cls(whole, slots, entries)

    @property
    def header(self) -> IndexHeader:
        """The header as it stands in the file."""
        return layouts.INDEX_HEADER.decode(self.data.data)

    @header.setter
    def header(self, header: IndexHeader) -> None:
        layouts.INDEX_HEADER.pack_into(self.data, 0, *header)

    @property
    def next_entry(self) -> int:
        """The number of the next entry; a header that says none yet means the first."""
        return max(self.header.index_count, _FIRST_ENTRY)

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(len(self.entries) - self.next_entry, 0)

    def insert(self, keys: Keys) -> Inserted:
        """Insert as many of ``keys`` as fit, the first ones."""
        first = self.next_entry
        count = min(len(keys.key_hashes), self.room)
        if not count:
            return Inserted(first, 0, np.empty(0, np.int64))
        self.entries[first : first + count], self.header = hang_in(self.slots, self.header, keys.cut(0, count))
        return Inserted(first, count, np.unique(keys.key_hashes[:count] % np.int64(len(self.slots))))


def slots_of(table: bytearray) -> npt.NDArray[np.int32]:
    """Return the slots of a file, read into ``table``, as an array that changes it."""
    slots: npt.NDArray[np.int32] = np.frombuffer(table, _SLOT)["index_no"]
    return slots


class HungIn(NamedTuple):
    """The entries of some keys, and the header behind them."""

    entries: npt.NDArray[np.void]
    header: IndexHeader


def hang_in(slots: npt.NDArray[np.int32], header: IndexHeader, keys: Keys) -> HungIn:
    """Give ``keys``, at least one, the next entries of a file and hang them into its ``slots``. All must fit."""
    first = max(header.index_count, _FIRST_ENTRY)
    made = hung(slots, keys, first, header.begin_timestamp)
    if made is not None:
        entries, taken = made.entries.view(_ENTRY), made.taken
    else:
        entries = np.empty(len(keys.key_hashes), _ENTRY)
        entries["key_hash"] = keys.key_hashes
        entries["phy_offset"] = keys.physical_offsets
        entries["time_diff"] = _time_diffs(header, first, keys.store_timestamps)
        entries["prev_index"], taken = _link(slots, keys.key_hashes, first)
    begin_time, begin_place = header.begin_timestamp, header.begin_phy_offset
    if first == _FIRST_ENTRY:
        begin_time, begin_place = int(keys.store_timestamps[0]), int(keys.physical_offsets[0])
    behind = IndexHeader(
        begin_time,
        int(keys.store_timestamps[-1]),
        begin_place,
        int(keys.physical_offsets[-1]),
        header.hash_slot_count + taken,
        first + len(entries),
    )
    return HungIn(entries, behind)


def _time_diffs(header: IndexHeader, first: int, times: Ints) -> Ints:
    """Return the seconds entries hold: after the header's begin, which the very first entry sets once it is in."""
    begins = np.full(len(times), header.begin_timestamp, np.int64)
    if first == _FIRST_ENTRY:
        begins[1:] = times[0]
    # Java's division goes towards zero, but what is negative becomes zero anyway.
    seconds: Ints = np.clip((times - begins) // _MILLISECONDS, 0, INT_MAX)
    seconds[begins <= 0] = 0
    return seconds


def _link(
    all_slots: npt.NDArray[np.int32], key_hashes: npt.NDArray[np.int32], first: int
) -> tuple[npt.NDArray[np.int32], int]:
    """Hang entries from number ``first`` on into their slots.

    Return the entry before each in its chain, and how many of the slots were empty. A slot that names an entry which is
    not there yet is empty too.
    """
    count = len(key_hashes)
    keyed = (key_hashes % np.int64(len(all_slots))) << 32 | np.arange(count)
    keyed.sort()
    slots, order = keyed >> 32, keyed & 0xFFFFFFFF
    begins_chain = np.append(True, slots[1:] != slots[:-1])
    ends_chain = np.append(begins_chain[1:], True)
    numbers = (order + first).astype(np.int32)
    before = np.empty(count, np.int32)
    before[1:] = numbers[:-1]
    heads = all_slots[slots[begins_chain]]
    heads = np.where((heads > 0) & (heads <= numbers[begins_chain]), heads, 0)
    before[begins_chain] = heads
    all_slots[slots[ends_chain]] = numbers[ends_chain]
    previous = np.empty(count, np.int32)
    previous[order] = before
    return previous, int((heads == 0).sum())


def insert_keys(newest: IndexContent, keys: Keys) -> list[IndexContent]:
    """Insert all ``keys``, into ``newest`` and then into new files of its geometry; return ``newest`` and those.

    A new file begins where the next key finds the one before full, also between two keys of one message.
    """
    contents = [newest]
    at = newest.insert(keys).entries
    while at < len(keys.key_hashes):
        content = roll(contents[-1])
        contents.append(content)
        at += content.insert(keys.cut(at)).entries
    return contents


def roll(full: IndexContent) -> IndexContent:
    """Return the empty file that follows a full one."""
    return IndexContent.create(len(full.slots), len(full.entries), full.header)


class ChainFlaws(NamedTuple):
    """What is wrong with the chains of an index file. All empty: every entry hangs exactly once, newest first."""

    beyond: Ints
    """Entries whose predecessor is not an earlier one."""
    strayed: Ints
    """Entries whose predecessor belongs to another slot."""
    twice: Ints
    """Entries that more than one entry or slot leads to."""
    lost: Ints
    """Entries that nothing leads to."""
    bad_heads: Ints
    """Slots whose newest entry is not there, or belongs to another slot."""


def check_chains(content: IndexContent) -> ChainFlaws:
    """Return what is wrong with the chains: array comparisons only, so that no loop in them can hold us."""
    count, slots = min(content.next_entry, len(content.entries)), len(content.slots)
    entries = content.entries[:count]
    previous = entries["prev_index"].astype(np.int64)
    own_slots = entries["key_hash"].astype(np.int64) % slots
    numbers = np.arange(count)
    is_entry = numbers >= _FIRST_ENTRY
    linked = is_entry & (previous > 0)
    beyond = is_entry & ((previous < 0) | (previous >= numbers))
    sound = linked & ~beyond
    strayed = np.flatnonzero(sound)
    strayed = strayed[own_slots[previous[strayed]] != own_slots[strayed]]
    heads = content.slots.astype(np.int64)
    used = np.flatnonzero(heads != 0)
    there = (heads[used] > 0) & (heads[used] < count)
    good_heads = used[there]
    at_home = own_slots[heads[good_heads]] == good_heads
    led_to = np.bincount(np.concatenate((previous[sound], heads[good_heads])), minlength=count)
    return ChainFlaws(
        np.flatnonzero(beyond),
        strayed,
        np.flatnonzero(led_to > 1),
        np.flatnonzero(is_entry & (led_to == 0)),
        np.sort(np.concatenate((used[~there], good_heads[~at_home]))),
    )


class EntryDifferences(NamedTuple):
    """How the entries of index files differ from those that the records of the log give."""

    wrong: Ints
    """Rows of the found keys that no record gives (or not that often)."""
    missing: Ints
    """Rows of the expected keys that no entry holds (or not that often)."""


def compare_keys(found: Keys, expected: Keys) -> EntryDifferences:
    """Return which keys only one side has, by hash and place; each counts as often as it occurs."""
    hashes = np.concatenate((found.key_hashes, expected.key_hashes))
    places = np.concatenate((found.physical_offsets, expected.physical_offsets))
    is_found = np.arange(len(hashes)) < len(found.key_hashes)
    order = np.lexsort((hashes, places))
    hashes, places, is_found = hashes[order], places[order], is_found[order]
    begins = np.append(True, (hashes[1:] != hashes[:-1]) | (places[1:] != places[:-1]))[: len(order)]
    group = np.cumsum(begins) - 1
    groups = int(group[-1]) + 1 if len(group) else 0
    # lexsort is stable: within a group the found ones come first, and rank counts each side from 0.
    of_found = np.bincount(group[is_found], minlength=groups)
    of_expected = np.bincount(group[~is_found], minlength=groups)
    firsts = np.flatnonzero(begins)
    rank = np.arange(len(order)) - firsts[group] - np.where(is_found, 0, of_found[group])
    alone = rank >= np.where(is_found, of_expected[group], of_found[group])
    return EntryDifferences(np.sort(order[alone & is_found]), np.sort(order[alone & ~is_found]) - len(found.key_hashes))
