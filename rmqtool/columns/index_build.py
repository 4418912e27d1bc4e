"""Index files from many keys at once.

Upstream inserts one key after the other (``IndexFile.putKey``). After a sort of the entry numbers by slot, the number
before an entry is that of the older entry in its chain. So a few array operations fill a whole file with the same
bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import hung
from rmqtool.columns.gather import Ints
from rmqtool.formats import layouts
from rmqtool.formats.index import slot_of
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.layouts import IndexHeader

_SLOT = np.dtype(layouts.INDEX_SLOT.dtype())
_ENTRY = np.dtype(layouts.INDEX_ENTRY.dtype())

# The number of the first entry; entry 0 is never written.
_FIRST_ENTRY = 1
_MILLISECONDS = 1000


class Keys(NamedTuple):
    """Keys in the order of their entries: the hash of each, and physical offset and store time (ms) of its message."""

    key_hashes: npt.NDArray[np.int32]
    physical_offsets: Ints
    store_timestamps: Ints

    def cut(self, begin: int, end: int | None = None) -> Keys:
        """Return the keys from number ``begin`` to before ``end``, None for the last; the arrays are shared."""
        rows = slice(begin, end)
        return Keys(self.key_hashes[rows], self.physical_offsets[rows], self.store_timestamps[rows])


def join_keys(first: Keys, second: Keys) -> Keys:
    """Return the keys of ``first`` and then those of ``second``."""
    return Keys(
        np.concatenate((first.key_hashes, second.key_hashes)),
        np.concatenate((first.physical_offsets, second.physical_offsets)),
        np.concatenate((first.store_timestamps, second.store_timestamps)),
    )


def slots_of(table: bytearray) -> npt.NDArray[np.int32]:
    """Return the slots whose bytes are ``table`` as an array; a change of the array changes ``table``."""
    slots: npt.NDArray[np.int32] = np.frombuffer(table, _SLOT)["index_no"]
    return slots


class HungIn(NamedTuple):
    """The entries of some keys, and the header of the file after they were added."""

    entries: npt.NDArray[np.void]
    header: IndexHeader


def hang_in(slots: npt.NDArray[np.int32], header: IndexHeader, keys: Keys) -> HungIn:
    """Return the entries that ``keys``, at least one, get in a file, linked into its ``slots``, and its new header.

    ``slots`` are changed, ``header`` is not. The file must have room for all entries.
    """
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
    """Return the seconds in the entries, counted from the header's begin.

    The first entry of a file sets that begin only after it was added, so its own seconds are 0.
    """
    begins = np.full(len(times), header.begin_timestamp, np.int64)
    if first == _FIRST_ENTRY:
        begins[1:] = times[0]
    # Java rounds towards zero, numpy down: the same here, since negative differences become 0.
    seconds: Ints = np.clip((times - begins) // _MILLISECONDS, 0, INT_MAX)
    seconds[begins <= 0] = 0
    return seconds


def _link(
    all_slots: npt.NDArray[np.int32], key_hashes: npt.NDArray[np.int32], first: int
) -> tuple[npt.NDArray[np.int32], int]:
    """Link entries from number ``first`` on into their slots, which are changed.

    Return the older entry in the chain of each, 0 at the end, and how many of the slots were empty. A slot that names
    an entry of a higher number counts as empty, as for upstream: a crash left it.
    """
    # Slot and row in one number, so that a plain sort groups the slots and keeps the order of rows in each.
    count = len(key_hashes)
    keyed = slot_of(key_hashes, np.int64(len(all_slots))) << 32 | np.arange(count)
    keyed.sort()
    slots, order = keyed >> 32, keyed & 0xFFFFFFFF
    begins_chain = np.append(True, slots[1:] != slots[:-1])
    ends_chain = np.append(begins_chain[1:], True)
    numbers = (order + first).astype(np.int32)
    before = np.empty(count, np.int32)
    before[1:] = numbers[:-1]
    # The oldest of the new entries in each slot follows the entry that the slot had.
    heads = all_slots[slots[begins_chain]]
    heads = np.where((heads > 0) & (heads <= numbers[begins_chain]), heads, 0)
    before[begins_chain] = heads
    all_slots[slots[ends_chain]] = numbers[ends_chain]
    previous = np.empty(count, np.int32)
    previous[order] = before
    return previous, int((heads == 0).sum())
