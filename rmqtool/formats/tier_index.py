"""Sealed index files of tiered storage: the items of a slot together, and the slot says where. Big-endian.

Header (28 bytes), S slots of 8 bytes, I items of 28 bytes::

    header  0   4  magic: 0xBCC50285                   slot   0   4  file offset of its items
            4   8  time of creation, ms                       4   4  bytes of its items; 0: none
            12  8  store time of the newest message    item   0   4  hash of topic#key, not negative
            20  4  slots in use                               4   4  number of the topic, in the metadata of the tier
            24  4  items                                      8   4  queue
                                                              12  8  offset in the log of the queue
                                                              20  4  size of the message
                                                              24  4  seconds after the creation; may be negative

A key's slot is its hash modulo S, which follows from the size of the file. A file without keys has no byte. Before it
is sealed, a file is in the store, ``tiered_index_file/MS``: slots hold the number of the newest item, items of 32 bytes
begin with number 1 and end with the number of the one before them in their slot.

Upstream: ``IndexStoreFile`` and ``IndexItem`` of ``tieredstore/index``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.formats import layouts
from rmqtool.formats.index import slot_of
from rmqtool.formats.layouts import TieredIndexHeader, TieredSealedItem

SEALED_MAGIC = 0xBCC50285 - (1 << 32)
HEADER_SIZE = layouts.TIERED_INDEX_HEADER.size
SLOT_SIZE = layouts.TIERED_INDEX_SLOT.size
ITEM_SIZE = layouts.TIERED_SEALED_ITEM.size


def decode_header(data: bytes) -> TieredIndexHeader | None:
    """Return the header of a sealed file; None for other bytes."""
    if len(data) < HEADER_SIZE:
        return None
    header = layouts.TIERED_INDEX_HEADER.decode(data)
    return header if header.magic == SEALED_MAGIC and header.index_item_count >= 0 else None


def count_slots(header: TieredIndexHeader, size: int) -> int | None:
    """Return how many slots a sealed file of this size has; None if no number of slots fits."""
    slots, rest = divmod(size - HEADER_SIZE - header.index_item_count * ITEM_SIZE, SLOT_SIZE)
    return slots if slots > 0 and not rest else None


def slot_offset(key_hash: int, slots: int) -> int:
    """Return the file offset of the slot of a hash."""
    return HEADER_SIZE + int(slot_of(key_hash, slots)) * SLOT_SIZE


def iter_items(data: bytes) -> Iterator[TieredSealedItem]:
    """Yield the whole items in ``data``."""
    for at in range(0, len(data) - ITEM_SIZE + 1, ITEM_SIZE):
        yield layouts.TIERED_SEALED_ITEM.decode(data[at : at + ITEM_SIZE])
