"""Calls of the compiled kernel for many records, with arrays in and out. Without the kernel each function returns None.

This is the only module between the columns and the kernel: it makes the arrays that the kernel fills. The code in
Python that does the same is next to the call, in the module that calls. The columns of records are one buffer, column
after column, the widest first.

Turns: of the threads that work on columns together, one at a time runs Python (``holding``). numpy gives the
interpreter's lock away for each operation on some hundred elements. A thread that waits for that lock is woken each
time, nearly always in vain: two threads then take half as much processor time again as one, and are hardly faster. A
thread that waits for its turn is not woken by that. A turn is given away (``AWAY``) only for what takes long without
the interpreter: passes of the kernel over a window, and the reading of a window.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool import kernel
from rmqtool.columns.gather import Bytes, Ints
from rmqtool.formats.commit_log import MIN_RECORD_SIZE
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.index import ENTRY_SIZE
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.layout import Buffer

# The columns that the kernel fills, as native/table.h lists them. A test compares the two.
_LONGS = (
    *("file_offset", "physical_offset", "queue_offset", "born_timestamp", "store_timestamp"),
    *("prepared_transaction_offset", "body_offset", "topic_offset", "properties_offset"),
    *("body_length", "topic_length", "properties_length"),
)
_INTS = (
    *("total_size", "magic", "body_crc", "queue_id", "flag", "sys_flag"),
    *("born_host_port", "store_host_port", "reconsume_times"),
)
COLUMNS: tuple[tuple[str, Any], ...] = (
    *((name, np.int64) for name in _LONGS),
    *((name, np.uint32 if name == "magic" else np.int32) for name in _INTS),
    ("wrong", np.uint8),
)
# Bytes that one record takes in all columns together.
ROW_SIZE = sum(np.dtype(kind).itemsize for _, kind in COLUMNS)

# Failed checks of a structurally whole record, as bits of the column ``wrong``.
WRONG_CRC, WRONG_PLACE, WRONG_TIME, WRONG_PROPERTY_CRC = 1, 2, 4, 8


class _Held(threading.local):
    """The turn that the thread has, if it takes turns with others."""

    turn: threading.Lock | None = None


_HELD = _Held()


@contextmanager
def holding(turn: threading.Lock | None) -> Iterator[None]:
    """Wait for ``turn``, and have it while the block runs; with None the thread takes no turns."""
    if turn is None:
        yield
        return
    with turn:
        _HELD.turn = turn
        try:
            yield
        finally:
            _HELD.turn = None


class _Away:
    """Gives the turn of the thread away, if it has one, and waits for it again."""

    def __enter__(self) -> None:
        if _HELD.turn is not None:
            _HELD.turn.release()

    def __exit__(self, *_: object) -> None:
        if _HELD.turn is not None:
            _HELD.turn.acquire()


AWAY = _Away()


def new_table(capacity: int) -> npt.NDArray[np.uint8]:
    """Return a buffer for ``capacity`` rows; its bytes are undefined."""
    return np.empty(capacity * ROW_SIZE, np.uint8)


def columns_of(table: npt.NDArray[np.uint8], capacity: int, rows: int) -> dict[str, Any]:
    """Return the columns of the first ``rows`` rows by name, as views; each column has room for ``capacity`` rows."""
    found, at = {}, 0
    for name, kind in COLUMNS:
        size = np.dtype(kind).itemsize
        found[name] = table[at : at + rows * size].view(kind)
        at += capacity * size
    return found


# Flags of a dispatched row, as in native/dispatch.h: the tags code is not made, the keys are not made, the record names
# further queues, its properties are not UTF-8, it has no entry in its queue (a half message or a rollback).
# ``columns.dispatched`` takes the missing parts from ``formats``.
ODD_TAGS, ODD_KEYS, NAMES_QUEUES, NOT_TEXT, BESIDE_QUEUE = 1, 2, 4, 8, 16

# Distinct topics of ``dispatched``, queues of ``grouped`` and texts of ``numbered`` for which one call has room; with
# more, the code in Python takes the whole call. The kernel's own tables allow no more either.
_MOST_TOPICS, _MOST_QUEUES, _MOST_TEXTS = 2048, 8192, 4096
# The shortest property that is not the last of its record: name, value, and the separators after them.
_LEAST_PAIR = 4
# A column of texts has 32-bit offsets.
_MOST_OF_COLUMN = 1 << 31
# Room for starts beyond the smallest records: the kernel needs one for each of the walks that it runs at once, fewer
# than this (CHAINS in native/walk.h).
_WALKS = 64


def walked(data: memoryview | Bytes, at: int) -> tuple[Ints, int] | None:
    """Return where records start from ``at`` on, by magic and size alone, and the offset after the last of them.

    None without the kernel, or if ``at`` is not within ``data``.
    """
    native = kernel.NATIVE
    if native is None or not 0 <= at <= len(data):
        return None
    # Room for as many of the smallest records as fit. The system gives memory only to pages that are written, so most
    # of it costs nothing.
    starts = np.empty((len(data) - at) // MIN_RECORD_SIZE + _WALKS, np.int64)
    with AWAY:
        found, at = native.walk(data, at, starts)
    return starts[:found], at


def sound(data: Buffer, file_offsets: Ints, first_physical_offset: int) -> int:
    """Return how many records come before the first that is not sound; 0 without the kernel.

    A sound record is a whole message, is at the offset that it names, has a store time, and is not rolled back, as the
    placeholders of a repair are. Checksums are not computed. ``first_physical_offset`` is that of byte 0 of ``data``.
    """
    native = kernel.NATIVE
    return 0 if native is None else native.sound(data, file_offsets, first_physical_offset)


def decoded(data: Bytes, file_offsets: Ints, checks: int) -> dict[str, Any] | None:
    """Return the columns of the records at some offsets, before the first that is not a whole message.

    ``checks`` are bits ``WRONG_...``; the column ``wrong`` has those that failed. For ``WRONG_PLACE`` byte 0 of
    ``data`` is taken for physical offset 0. None without the kernel.
    """
    native = kernel.NATIVE
    if native is None:
        return None
    capacity = len(file_offsets)
    table = new_table(capacity)
    offsets = np.ascontiguousarray(file_offsets, np.int64)
    with AWAY:
        rows = native.decode(data, offsets, table, 0, checks)
    return columns_of(table, capacity, rows)


def checksums(data: Bytes, offsets: Ints, lengths: Ints) -> npt.NDArray[np.uint32] | None:
    """Return the CRC-32 (32 bits) of the piece of ``data`` at each offset; None without the kernel."""
    native = kernel.NATIVE
    if native is None:
        return None
    found = np.empty(len(offsets), np.uint32)
    offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
    native.crc32_each(data, offsets, lengths, found)
    return found


class Dispatched(NamedTuple):
    """The dispatch of some rows: topic, queue entry, flags and the hash of the tag's index entry of each.

    ``units`` has 20 bytes for each row. A hash in ``tag_hashes`` is -1 where there is no such entry: the record has no
    tag, is a rollback, or has ``ODD_KEYS``. ``topic_rows`` has the first row of each number in ``topic_codes``. Key i
    belongs to row ``key_rows[i]``, in the order of the index entries; tags are not among the keys.
    """

    topic_codes: npt.NDArray[np.int32]
    units: Bytes
    flags: npt.NDArray[np.uint8]
    tag_hashes: npt.NDArray[np.int32]
    topic_rows: npt.NDArray[np.int32]
    key_hashes: npt.NDArray[np.int32]
    key_rows: npt.NDArray[np.int32]


def dispatched(data: Bytes, file_offsets: Ints, delays: Sequence[int], most_keys: int) -> Dispatched | None:
    """Return the queue entries and keys of the records at some offsets; ``delays`` are the delay levels in ms.

    None without the kernel, if there may not be room for their keys (``most_keys``) or topics, if one of them is not a
    whole message, or if a delay is more than a ``long``.
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
    with AWAY:
        done, topics, keys = native.dispatch(
            data, offsets, levels, codes, units, flags, topic_rows, key_hashes, key_rows, tag_hashes
        )
    if done < count:
        return None
    return found._replace(topic_rows=topic_rows[:topics], key_hashes=key_hashes[:keys], key_rows=key_rows[:keys])


def grouped(topic_codes: Ints, queue_ids: Ints) -> tuple[npt.NDArray[np.int32], list[int]] | None:
    """Group rows by topic and queue id: return the row numbers queue by queue, and where each queue ends in that list.

    Queues are in the order of their first rows, and the rows of a queue keep their order. None without the kernel, or
    if there are more than ``_MOST_QUEUES`` queues.
    """
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
    """Return the texts at some offsets as numbers in the order of their first appearance, and the first row of each.

    ``lengths`` are in bytes, and texts are equal if their bytes are. None without the kernel, or if there are more than
    ``_MOST_TEXTS`` different texts.
    """
    native = kernel.NATIVE
    if native is None:
        return None
    codes, firsts = np.empty(len(file_offsets), np.int32), np.empty(_MOST_TEXTS, np.int32)
    offsets, lengths = np.ascontiguousarray(file_offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
    found = native.number_texts(data, offsets, lengths, codes, firsts)
    return None if found < 0 else (codes, firsts[:found].astype(np.int64))


class Texts(NamedTuple):
    """A column of texts: the bytes of all, back to back, and where each ends; the first of ``ends`` is 0."""

    ends: npt.NDArray[np.int32]
    text: Bytes


class PropertyColumns(NamedTuple):
    """The properties of some records. Those of row i are from ``ends[i]`` to ``ends[i + 1]`` in ``names``, ``values``.

    Each column of ``wanted`` has a text for each record, which is empty where it does not have that property.
    """

    ends: npt.NDArray[np.int32]
    names: Texts
    values: Texts
    wanted: list[Texts]


def property_columns(data: Bytes, file_offsets: Ints, lengths: Ints, wanted: Sequence[bytes]) -> PropertyColumns | None:
    """Return the properties at some offsets as columns, and those with the names ``wanted`` as columns of their own.

    None without the kernel, and for unusual properties: if one of them is not UTF-8, if a record repeats a name or has
    very many of them, or if all together are too long for a column.
    """
    native = kernel.NATIVE
    room = int(lengths.sum())
    if native is None or room >= _MOST_OF_COLUMN:
        return None
    count, pairs = len(file_offsets), (room + len(lengths)) // _LEAST_PAIR
    ends = np.empty(count + 1, np.int32)
    names, values = (Texts(np.empty(pairs + 1, np.int32), np.empty(room, np.uint8)) for _ in range(2))
    of_wanted = Texts(np.empty(len(wanted) * (count + 1), np.int32), np.empty(len(wanted) * room, np.uint8))
    offsets, lengths = np.ascontiguousarray(file_offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
    separated = b"".join(name + b"\2" for name in wanted)
    with AWAY:
        found = native.property_columns(data, offsets, lengths, ends, *names, *values, separated, *of_wanted)
    if found < 0:
        return None
    columns = [
        Texts(of_wanted.ends[at * (count + 1) :][: count + 1], of_wanted.text[at * room :][:room])
        for at in range(len(wanted))
    ]
    of_names, of_values = (Texts(one.ends[: found + 1], one.text) for one in (names, values))
    return PropertyColumns(ends, of_names, of_values, columns)


class HungKeys(NamedTuple):
    """The index entries of some keys as bytes of the file, and how many slots were empty before they were added."""

    entries: Bytes
    taken: int


def hung(slots: npt.NDArray[Any], keys: tuple[Any, Ints, Ints], first: int, begin_timestamp: int) -> HungKeys | None:
    """Return the index entries of ``keys``, linked into the chains of ``slots``; None without the kernel or slots.

    The entries are numbered from ``first`` on, and ``slots`` is changed to point to the newest ones. ``keys`` are
    hashes, physical offsets and store times (ms). ``begin_timestamp`` (ms) is that of the header before the keys were
    added; the seconds in the entries count from it, or from the first key if ``first`` is the file's first entry.
    """
    native = kernel.NATIVE
    if native is None or not len(slots):
        return None
    hashes = np.ascontiguousarray(keys[0], np.int32)
    places, times = np.ascontiguousarray(keys[1], np.int64), np.ascontiguousarray(keys[2], np.int64)
    entries = np.empty(len(hashes) * ENTRY_SIZE, np.uint8)
    taken = native.hang_in(entries, slots.view(np.uint8), hashes, places, times, first, begin_timestamp)
    return HungKeys(entries, taken)


def room_of_line(size: int) -> int:
    """Return the most bytes that the line of a record of ``size`` bytes can have.

    The kernel (put_lines in native/json.h) relies on this bound.
    """
    return 1536 + 12 * size


class SpelledLines(NamedTuple):
    """Lines back to back, where each ends, and the row after the last line.

    That row is the number of records if all have a line. Otherwise the kernel declines it, or there was no room for it.
    """

    text: Bytes
    ends: Ints
    row: int


def spelled(data: Bytes, file_offsets: Ints, row: int, size: int) -> SpelledLines | None:
    """Return Message lines of the records from ``row`` on; all lines together have ``size`` bytes at most.

    They end before a record that the kernel declines, or whose longest possible line (``room_of_line``) does not fit.
    None without the kernel.
    """
    native = kernel.NATIVE
    if native is None:
        return None
    out, ends = np.empty(size, np.uint8), np.empty(len(file_offsets), np.int64)
    reached, used = native.json_lines(data, file_offsets, row, ends, out)
    return SpelledLines(out[:used], ends[row:reached], reached)


def slab(bodies: list[bytes], tails: list[bytes], numbers: Sequence[Any], hosts: Sequence[Any], place: int) -> Any:
    """Return records back to back, the first at physical offset ``place``, and their sizes in bytes.

    ``numbers`` are columns, or one number for all records, in the order that native/native.c lists before its ``Slab``.
    ``hosts`` are the born hosts, one for each record or one for all, and then the store host; each is an address with
    its port (4 bytes, big-endian) after it. None without the kernel.
    """
    native = kernel.NATIVE
    if native is None:
        return None
    sizes = np.empty(len(bodies), np.int64)
    columns = tuple(
        np.ascontiguousarray(column, np.int64) if isinstance(column, np.ndarray) else int(column) for column in numbers
    )
    return native.encode_slab(bodies, tails, columns, list(hosts[:-1]), [hosts[-1]], place, sizes), sizes
