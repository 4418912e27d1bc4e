"""Entries of consume queues (units, in upstream's words): simple, extended, batch and sparse. Big-endian.

Simple (20 bytes; queue offset = (base offset of the segment + file offset) / 20)::

    0   8  physical offset of the record
    8   4  its totalSize; 2147483647 in a filler entry
    12  8  tags code; a delivery time in the delay queues; the address of an extension entry if at most -2^31 - 1

Extension (20 bytes and a bit map): size (2), tags code (8), store time (8), size of the bit map (2), bit map. A size of
-1 ends the file.

Batch and sparse (46 bytes)::

    0     8  physical offset; -1 ends a sparse segment    28  8  queue offset of the first message
    8     4  totalSize                                    36  2  messages in the record
    12    8  tags code                                    38  4  compacted offset
    20    8  store time, ms                               42  4  reserved

The end of a queue is not stored: the first invalid entry ends it, and after a truncation old entries that look valid
can follow. If the first messages of a segment have expired, the segment begins with filler entries.

Upstream: ``ConsumeQueue``, ``ConsumeQueueExt``, ``BatchConsumeQueue``, ``SparseConsumeQueue``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import EXT_ADDRESS_BASE, FILLER_SIZE, MAX_EXT_ADDRESS
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.layout import Buffer, bytes_left
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit

UNIT_SIZE = layouts.CONSUME_QUEUE_UNIT.size
BATCH_UNIT_SIZE = layouts.BATCH_CONSUME_QUEUE_UNIT.size

# Takes the place of a deleted message: always this size, and the physical offset 0.
FILLER = ConsumeQueueUnit(0, FILLER_SIZE, 0)
FILLER_UNIT = layouts.CONSUME_QUEUE_UNIT.encode(FILLER)
# A record whose queue offset is further ahead than this is damaged: believing it would fill the disk with fillers.
WIDEST_GAP = 1 << 20
# The last queue offset whose place in the queue's files is still a Java ``long``, with room for one gap after it. A
# record that names a later one is damaged.
LAST_OFFSET = LONG_MAX // UNIT_SIZE - WIDEST_GAP
# ``rmqtool copy`` can leave messages out. Their entries point into blank segments before the first message, which begin
# at this physical offset or later; see repairs/copy.py.
_LEAST_EMPTY_PLACE = 1 << 30
# The entry that ends a segment of a sparse queue.
SPARSE_END = BatchConsumeQueueUnit(-1, 0, 0, 0, 0, 0, -1, 0)

_EXT_HEAD = layouts.CONSUME_QUEUE_EXT_HEAD
# A broker keeps 4 bytes free after each extension entry for the mark that ends the file.
EXT_END_ROOM = layouts.INT.size
EXT_END_MARK = layouts.SHORT.pack(-1)


@lru_cache(maxsize=256)
def units_unpacker(count: int) -> Callable[[bytes], tuple[Any, ...]]:
    """Return an unpacker of ``count`` entries into one flat tuple: physical offset, size, tags code of each."""
    order, letters = layouts.CONSUME_QUEUE_UNIT.packer.format[:1], layouts.CONSUME_QUEUE_UNIT.packer.format[1:]
    return struct.Struct(order + letters * count).unpack


def is_written(unit: ConsumeQueueUnit) -> bool:
    """Return whether a broker counts an entry as part of the queue; the first other entry ends the queue."""
    return unit.physical_offset >= 0 and unit.size > 0


# Entries that are unpacked at once: many, because a call for each is slow, and not all of a large file.
_AT_ONCE = 4096


def count_written(data: bytes) -> int:
    """Return how many entries a queue file has before the first one that is not written, as ``is_written`` says.

    If all are written, this is the number of all.
    """
    count = len(data) // UNIT_SIZE
    for first in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - first)
        flat = units_unpacker(some)(data[first * UNIT_SIZE : (first + some) * UNIT_SIZE])
        if min(flat[::3]) < 0 or min(flat[1::3]) <= 0:
            units = zip(*[iter(flat)] * 3, strict=True)
            return first + next(row for row, unit in enumerate(units) if not is_written(ConsumeQueueUnit(*unit)))
    return count


def is_filler(unit: ConsumeQueueUnit) -> bool:
    """Return whether an entry only takes the place of a message: one that expired, or that a copy left out."""
    return bool(are_fillers(unit.physical_offset, unit.size))


def are_fillers(places: Any, sizes: Any) -> Any:
    """Return whether entries are fillers, for one entry or for columns; ``places`` are physical offsets."""
    return (sizes == FILLER_SIZE) & ((places == 0) | (places >= _LEAST_EMPTY_PLACE))


def is_batch_written(unit: BatchConsumeQueueUnit) -> bool:
    """Return whether a broker counts a batch entry as part of the queue."""
    return unit.physical_offset >= 0 and unit.size > 0 and unit.msg_base_offset >= 0 and unit.batch_size > 0


def is_ext_address(tags_code: int) -> bool:
    return tags_code <= MAX_EXT_ADDRESS


def ext_address(ext_offset: int) -> int:
    """Return the tags code that points to ``ext_offset`` of the extension."""
    return ext_offset - EXT_ADDRESS_BASE


def ext_offset(tags_code: int) -> int:
    """Return the offset in the extension that a tags code points to."""
    return tags_code + EXT_ADDRESS_BASE


class ConsumeQueueExtUnit(NamedTuple):
    """An entry of the extension, for values that do not fit into 20 bytes.

    ``size`` is that of the whole entry in bytes. ``bloom`` explains the bit map.
    """

    size: int
    tags_code: int
    msg_store_time: int
    bit_map: bytes


class ExtFileEnd(NamedTuple):
    """The end of an extension file: ``marked`` by a size of -1 in a full file, else zeros or no bytes after entries."""

    marked: bool


def decode_ext_unit(data: Buffer, file_offset: int = 0) -> ConsumeQueueExtUnit | ExtFileEnd | Flaw:
    """Return the extension entry at ``file_offset``, the end of the file, or why it is neither."""
    left = bytes_left(data, file_offset)
    if left < layouts.SHORT.size:
        return ExtFileEnd(False)
    (size,) = layouts.SHORT.unpack_from(data, file_offset)
    if size <= 0:
        return ExtFileEnd(size == -1)
    if size < _EXT_HEAD.size or size > left:
        return Flaw("CQ-EXT", f"extension entry of {size} bytes, {left} are left", 0, left)
    head = _EXT_HEAD.decode(data, file_offset)
    if head.bit_map_size < 0 or _EXT_HEAD.size + head.bit_map_size != size:
        return Flaw("CQ-EXT", f"bit map of {head.bit_map_size} bytes in an extension entry of {size}", 0, size)
    bit_map = bytes(data[file_offset + _EXT_HEAD.size : file_offset + size])
    return ConsumeQueueExtUnit(size, head.tags_code, head.msg_store_time, bit_map)


def encode_ext_unit(unit: ConsumeQueueExtUnit) -> bytes:
    head = layouts.ConsumeQueueExtHead(unit.size, unit.tags_code, unit.msg_store_time, len(unit.bit_map))
    return _EXT_HEAD.encode(head) + unit.bit_map


def ext_unit_size(bit_map_size: int) -> int:
    """Return the size of an extension entry with a bit map of ``bit_map_size`` bytes."""
    return _EXT_HEAD.size + bit_map_size
