"""The contract's Message lines of many records, some thousand at a time.

The kernel makes them; without it they are joined column by column. A row that the kernel leaves (a body to inflate,
malformed UTF-8) is made by itself; if there are many such rows, all are joined by columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqtool import kernel
from rmqtool.columns.bodies import DEFAULT_BOUNDS, Bounds, RowFlaw, are_compressed, iter_parts
from rmqtool.columns.compiled import room_of_line, spelled
from rmqtool.columns.dispatched import message_of
from rmqtool.columns.gather import Bytes, Ints
from rmqtool.columns.records import Records
from rmqtool.formats.message_json import encode_line, message_json


class Lines(NamedTuple):
    """Lines of JSON back to back, each with its newline: line i is from ``offsets[i]`` to ``offsets[i + 1]``.

    Line 0 is row ``first_row`` of the records. Lines with flaws have their bodies as stored.
    """

    text: Bytes
    offsets: Ints
    first_row: int
    flaws: list[RowFlaw]


def iter_json_lines(records: Records, bounds: Bounds = DEFAULT_BOUNDS) -> Iterator[Lines]:
    """Yield the Message lines of all records, some at a time, in their order.

    ``bounds`` limit how many lines are made at a time, and the size of one inflated body.
    """
    if _are_few_inflated(records):
        for part in iter_parts(records, bounds, inflate=False):
            yield from _iter_compiled(part.records, part.first_row, bounds)
        return
    from rmqtool.columns.joined_lines import join_lines

    for part in iter_parts(records, bounds, inflate=True):
        assert part.bodies is not None
        text, offsets = join_lines(part.records, part.bodies)
        yield Lines(text, offsets, part.first_row, part.bodies.flaws)


# A row that is made by itself costs several times as much as one among many. If more than one row in 16 would be, all
# are joined by columns.
_MOST_ALONE = 16
# A guess of the room for lines: for each line these bytes, and twice the size of its record. Lines that do not fit are
# made by the next call.
_LINE, _TIMES = 640, 2


def _are_few_inflated(records: Records) -> bool:
    """Return whether the kernel makes nearly all lines; False without it. It leaves rows with compressed bodies."""
    return kernel.NATIVE is not None and int(are_compressed(records).sum()) * _MOST_ALONE <= len(records)


def _iter_compiled(records: Records, first_row: int, bounds: Bounds) -> Iterator[Lines]:
    """Yield lines made by the kernel, and one by one those that it leaves."""
    offsets = np.ascontiguousarray(records.file_offsets, np.int64)
    sizes = records.column("total_size")
    row, count = 0, len(records)
    while row < count:
        left = _LINE * (count - row) + _TIMES * int(sizes[row:].sum(dtype=np.int64))
        found = spelled(records.data, offsets, row, left + room_of_line(int(sizes[row])))
        assert found is not None
        if found.row > row:
            yield Lines(found.text, np.append(np.int64(0), found.ends), first_row + row, [])
        if found.row == row:
            yield _line_alone(records, row, first_row, bounds.body_cap)
        row = max(found.row, row + 1)


def _line_alone(records: Records, row: int, first_row: int, cap: int) -> Lines:
    """Return the line of one record, made by ``formats``."""
    line, flaw = message_json(message_of(records, row), cap)
    text = np.frombuffer(encode_line(line).encode() + b"\n", np.uint8)
    return Lines(text, np.array([0, len(text)]), first_row + row, [] if flaw is None else [RowFlaw(0, flaw)])
