"""Index files: a hash table from keys to physical offsets; a key's hash, its slot, its entry. Big-endian.

Header (40 bytes), S slots of 4 bytes, I entries of 20 bytes; entry 0 is never written::

    header  0   8  store time of the first entry, ms      slot   0   4  newest entry of the chain; 0: empty
            8   8  store time of the last entry, ms       entry  0   4  hash of topic#key, not negative
            16  8  physical offset of the first entry            4   8  physical offset
            24  8  physical offset of the last entry             12  4  seconds after the header's first time
            32  4  slots in use                                  16  4  next older entry of the slot; 0: end
            36  4  number of the next entry

A key's slot is its hash modulo S. S and I, the *geometry* of a file, are not stored: they follow from the size of the
file, and from the slots that the chains hash to. A crash leaves header, slots and entries as of different times.

Upstream: ``IndexHeader`` and ``IndexFile`` of ``store/index``.
"""

from __future__ import annotations

from typing import Any

from rmqtool.formats import layouts
from rmqtool.formats.java import INT_MAX, int64, string_hash

HEADER_SIZE = layouts.INDEX_HEADER.size
SLOT_SIZE = layouts.INDEX_SLOT.size
ENTRY_SIZE = layouts.INDEX_ENTRY.size

# Slots and entries by default: maxHashSlotNum and maxIndexNum.
DEFAULT_GEOMETRY = (5_000_000, 20_000_000)


def key_text(topic: str, key: str) -> str:
    """Return the text that is hashed for a key or a unique key; an entry holds only the hash."""
    return f"{topic}#{key}"


def tag_key_text(topic: str, tags: str) -> str:
    """Return the text that is hashed for a tag; brokers index tags from 5.4 on."""
    return f"{topic}#T#{tags}"


def key_hash(text: str) -> int:
    """Return the hash in an entry for ``text``.

    It is not negative: upstream takes the absolute value, and 0 for the one hash whose absolute value is not an
    ``int``.
    """
    hashed = abs(string_hash(text))
    return hashed if hashed <= INT_MAX else 0


def slot_of(hashed: Any, slots: Any) -> Any:
    """Return the slot of a ``key_hash`` in a file with ``slots`` slots, for one hash or for a column of them.

    No hash is negative, so this is Java's ``%`` too.
    """
    return hashed % slots


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the third field of an entry: the seconds, rounded down, between two times in ms.

    ``begin_timestamp`` is the first time in the header. While the header is empty, that is 0, and so is the result.
    Upstream limits the result to 0 and the largest ``int``: it is 0 too for a message that is older than the first one.
    """
    if begin_timestamp <= 0:
        return 0  # the header of a new file is still empty: this entry is its first
    return min(max(int64(store_timestamp - begin_timestamp) // 1000, 0), INT_MAX)


def file_size(slots: int, entries: int) -> int:
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


def slot_offset(slot: int) -> int:
    """Return the file offset of a slot, counted from 0."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_offset(slots: int, index_no: int) -> int:
    """Return the file offset of entry number ``index_no`` in a file with ``slots`` slots."""
    return HEADER_SIZE + slots * SLOT_SIZE + index_no * ENTRY_SIZE
