"""What the compiled kernel gives for many records, as arrays. Each function answers None where it is not there.

This is the one module between the columns and the kernel: it makes the arrays that are filled. What each function is
the twin of stands beside the call in the module that asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool import kernel
from rmqtool.columns.gather import Bytes, Ints
from rmqtool.columns.table import columns_of, new_table
from rmqtool.formats.commit_log import MIN_RECORD_SIZE
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.index import ENTRY_SIZE
from rmqtool.formats.java import LONG_MAX

# What a dispatched row may be flagged with, as native/dispatch.h does.
ODD_TAGS, ODD_KEYS, NAMES_QUEUES, NOT_TEXT, BESIDE_QUEUE = 1, 2, 4, 8, 16

# So many topics and queues are told apart at once.
_MOST_TOPICS, _MOST_QUEUES, _MOST_TEXTS = 2048, 8192, 4096
# A walk may need so much more room than there are records.
_WALKS = 64


def walked(data: memoryview | Bytes, at: int) -> tuple[Ints, int] | None:
    """Return where records start from ``at`` on, by magic and size, and where that ends."""
    native = kernel.NATIVE
    if native is None or not 0 <= at <= len(data):
        return None
    # Memory that is never written is never there: the room for the smallest records costs nothing.
    starts = np.empty((len(data) - at) // MIN_RECORD_SIZE + _WALKS, np.int64)
    found, at = native.walk(data, at, starts)
    return starts[:found], at


def decoded(data: Bytes, file_offsets: Ints, checks: int) -> dict[str, Any] | None:
    """Return the columns of the records at some offsets, up to the first that is no whole message."""
    native = kernel.NATIVE
    if native is None:
        return None
    capacity = len(file_offsets)
    table = new_table(capacity)
    rows = native.decode(data, np.ascontiguousarray(file_offsets, np.int64), table, 0, checks)
    return columns_of(table, capacity, rows)


def checksums(data: Bytes, offsets: Ints, lengths: Ints) -> npt.NDArray[np.uint32] | None:
    """Return the CRC-32 of the piece of ``data`` at each offset."""
    native = kernel.NATIVE
    if native is None:
        return None
    found = np.empty(len(offsets), np.uint32)
    offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
    native.crc32_each(data, offsets, lengths, found)
    return found


class Dispatched(NamedTuple):
    """Of each row its topic, unit, flags and the hash of its tag, -1 for none; a row of each topic; keys in order."""

    topic_codes: npt.NDArray[np.int32]
    units: Bytes
    flags: npt.NDArray[np.uint8]
    tag_hashes: npt.NDArray[np.int32]
    topic_rows: npt.NDArray[np.int32]
    key_hashes: npt.NDArray[np.int32]
    key_rows: npt.NDArray[np.int32]


def dispatched(data: Bytes, file_offsets: Ints, delays: Sequence[int], most_keys: int) -> Dispatched | None:
    """Return what queues and index get of the records at some offsets, with at most so many keys.

    None also where the kernel does not do it: more topics or keys than there is room for.
    """
    native = kernel.NATIVE
    if native is None or max(delays, default=0) > LONG_MAX:
        return None
    count = len(file_offsets)
    found = Dispatched(
        np.empty(count, np.int32),
        np.empty(count * UNIT_SIZE, np.uint8),
        np.empty(count, np.uint8),
        np.empty(count, np.int32),
        np.empty(_MOST_TOPICS, np.int32),
        np.empty(most_keys, np.int32),
        np.empty(most_keys, np.int32),
    )
    offsets, levels = np.ascontiguousarray(file_offsets, np.int64), np.array(delays, np.int64)
    codes, units, flags, tag_hashes, topic_rows, key_hashes, key_rows = found
    done, topics, keys = native.dispatch(
        data, offsets, levels, codes, units, flags, topic_rows, key_hashes, key_rows, tag_hashes
    )
    if done < count:
        return None
    return found._replace(topic_rows=topic_rows[:topics], key_hashes=key_hashes[:keys], key_rows=key_rows[:keys])


def grouped(topic_codes: Ints, queue_ids: Ints) -> tuple[npt.NDArray[np.int32], list[int]] | None:
    """Return the rows queue by queue, those of one queue in their order, and where each queue ends among them."""
    native = kernel.NATIVE
    if native is None:
        return None
    count = len(topic_codes)
    order, scratch = np.empty(count, np.int32), np.empty(count, np.int32)
    ends, firsts = np.empty(_MOST_QUEUES, np.int32), np.empty(_MOST_QUEUES, np.int32)
    queues = native.group(
        np.ascontiguousarray(topic_codes, np.int32),
        np.ascontiguousarray(queue_ids, np.int32),
        order,
        scratch,
        ends,
        firsts,
    )
    return None if queues < 0 else (order, ends[:queues].tolist())


def numbered(data: Bytes, file_offsets: Ints, lengths: Ints) -> tuple[npt.NDArray[np.int32], Ints] | None:
    """Return the texts at some offsets as numbers in the order of their first appearance, and a row of each number."""
    native = kernel.NATIVE
    if native is None:
        return None
    codes, firsts = np.empty(len(file_offsets), np.int32), np.empty(_MOST_TEXTS, np.int32)
    offsets, lengths = np.ascontiguousarray(file_offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
    found = native.number_texts(data, offsets, lengths, codes, firsts)
    return None if found < 0 else (codes, firsts[:found].astype(np.int64))


class HungKeys(NamedTuple):
    """The entries of some keys, as they are in the file, and how many slots were empty before."""

    entries: Bytes
    taken: int


def hung(slots: npt.NDArray[Any], keys: tuple[Any, Ints, Ints], first: int, begin_timestamp: int) -> HungKeys | None:
    """Return the entries from number ``first`` on, hung into ``slots``, which are changed."""
    native = kernel.NATIVE
    if native is None or not len(slots):
        return None
    hashes = np.ascontiguousarray(keys[0], np.int32)
    places, times = np.ascontiguousarray(keys[1], np.int64), np.ascontiguousarray(keys[2], np.int64)
    entries = np.empty(len(hashes) * ENTRY_SIZE, np.uint8)
    taken = native.hang_in(entries, slots.view(np.uint8), hashes, places, times, first, begin_timestamp)
    return HungKeys(entries, taken)


def room_of_line(size: int) -> int:
    """Return how many bytes the longest line has that a record of ``size`` bytes could have."""
    return 1536 + 12 * size


class SpelledLines(NamedTuple):
    """Lines back to back, where each ends, and the row after the last: one that is declined, if not the end."""

    text: Bytes
    ends: Ints
    row: int


def spelled(data: Bytes, file_offsets: Ints, row: int, size: int) -> SpelledLines | None:
    """Return Message lines of the records from ``row`` on, as many as ``size`` bytes surely hold."""
    native = kernel.NATIVE
    if native is None:
        return None
    out, ends = np.empty(size, np.uint8), np.empty(len(file_offsets), np.int64)
    reached, used = native.json_lines(data, file_offsets, row, ends, out)
    return SpelledLines(out[:used], ends[row:reached], reached)


def slab(bodies: list[bytes], tails: list[bytes], numbers: Sequence[Any], hosts: Sequence[Any], place: int) -> Any:
    """Return records back to back, the first at ``place``, and their sizes.

    ``hosts`` are the born hosts and then the store host, each its address and its port behind it.
    """
    native = kernel.NATIVE
    if native is None:
        return None
    sizes = np.empty(len(bodies), np.int64)
    columns = tuple(
        np.ascontiguousarray(column, np.int64) if isinstance(column, np.ndarray) else int(column) for column in numbers
    )
    return native.encode_slab(bodies, tails, columns, list(hosts[:-1]), [hosts[-1]], place, sizes), sizes
