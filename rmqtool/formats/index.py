"""Index files: header, hash slots, entries; and which geometry a file has.

Upstream: ``IndexHeader`` and ``IndexFile`` of ``store/index``. A file is header, S slots of 4 bytes, I entries of 20;
entry 0 is never written. S and I stand nowhere in the file; they follow from the size and from where the chains hash
home. A crash leaves slots, entries and header as of different moments.
"""

from __future__ import annotations

from rmqtool.formats import layouts
from rmqtool.formats.java import INT_MAX, int64, string_hash

HEADER_SIZE = layouts.INDEX_HEADER.size
SLOT_SIZE = layouts.INDEX_SLOT.size
ENTRY_SIZE = layouts.INDEX_ENTRY.size

DEFAULT_GEOMETRY = (5_000_000, 20_000_000)


def key_text(topic: str, key: str) -> str:
    """Return the text whose hash an entry holds."""
    return f"{topic}#{key}"


def tag_key_text(topic: str, tags: str) -> str:
    """Return the text of a tag entry, which 5.4 writes."""
    return f"{topic}#T#{tags}"


def key_hash(text: str) -> int:
    """Return the hash an entry holds for ``text``: not negative; the one hash that has no positive becomes 0."""
    hashed = abs(string_hash(text))
    return hashed if hashed <= INT_MAX else 0


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the seconds an entry holds for a message stored at ``store_timestamp``."""
    if begin_timestamp <= 0:
        return 0
    return min(max(int64(store_timestamp - begin_timestamp) // 1000, 0), INT_MAX)


def file_size(slots: int, entries: int) -> int:
    """Return the size of an index file of this geometry."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


def slot_offset(slot: int) -> int:
    """Return where a slot lies in its file."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_offset(slots: int, index_no: int) -> int:
    """Return where an entry lies in its file."""
    return HEADER_SIZE + slots * SLOT_SIZE + index_no * ENTRY_SIZE
