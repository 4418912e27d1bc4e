"""Bodies of many records as a column: as stored, or inflated under a cap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqtool.columns.gather import Mask
from rmqtool.columns.pieces import pieces
from rmqtool.columns.records import Records
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.compression import DEFAULT_BODY_CAP, inflate_body
from rmqtool.formats.flaws import Flaw

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    from rmqtool.columns.arrow import pa, pc


class RowFlaw(NamedTuple):
    """The flaw of one record; ``row`` is its number in the column that it comes with."""

    row: int
    flaw: Flaw


class Bodies(NamedTuple):
    """A column of bodies. A body that did not inflate is there as it is stored, and ``flaws`` has its row."""

    column: pa.LargeBinaryArray
    flaws: list[RowFlaw]

    @property
    def failed_rows(self) -> list[int]:
        """The rows whose bodies are as stored because they did not inflate."""
        return [row for row, _ in self.flaws]


class Bounds(NamedTuple):
    """Limits of one part: its rows, the stored bytes of its records, and the size of one inflated body.

    A body that inflates to more than ``body_cap`` bytes is a flaw and stays as it is stored. ``most_bytes`` also limits
    the inflated bodies of a part, counted separately; the last of them may exceed it. A part has one row at least, so a
    single record may exceed it too.
    """

    most_rows: int = 8192
    most_bytes: int = 16 << 20
    body_cap: int = DEFAULT_BODY_CAP


DEFAULT_BOUNDS = Bounds()


class Part(NamedTuple):
    """Consecutive records, the first of which is row ``first_row`` of all; no ``bodies`` if they were not asked for."""

    first_row: int
    records: Records
    bodies: Bodies | None


def iter_parts(records: Records, bounds: Bounds, *, inflate: bool) -> Iterator[Part]:
    """Yield all ``records`` in parts within ``bounds``, in their order; with ``inflate`` each part has its bodies."""
    ends = np.cumsum(records.column("total_size"), dtype=np.int64)
    at = 0
    while at < len(records):
        before = int(ends[at - 1]) if at else 0
        by_bytes = int(np.searchsorted(ends, before + bounds.most_bytes, side="right"))
        part = records.select(slice(at, max(min(at + bounds.most_rows, by_bytes), at + 1)))
        bodies = None
        if inflate:
            bodies = inflated_bodies(part, bounds.body_cap, bounds.most_bytes)
            # The inflated bodies may reach the limit before the last row.
            part = part.select(slice(len(bodies.column)))
        yield Part(at, part, bodies)
        at += len(part)


def are_compressed(records: Records) -> Mask:
    """Return which bodies are stored compressed, as the system flag says."""
    found: Mask = records.column("sys_flag") & int(SysFlag.COMPRESSED) != 0
    return found


def stored_bodies(records: Records) -> pa.LargeBinaryArray:
    """Return the bodies as they are stored, compressed or not."""
    return pieces(records.data, records.body_offsets, records.body_lengths)


def inflated_bodies(records: Records, cap: int = DEFAULT_BODY_CAP, most_bytes: int | None = None) -> Bodies:
    """Return the bodies as consumers get them.

    A body that is damaged or would inflate to more than ``cap`` bytes is a flaw and stays as it is stored. With
    ``most_bytes`` the column ends after the body with which the inflated bodies reach that sum, maybe before the last
    record; bodies that are stored plain do not count.
    """
    compressed = are_compressed(records)
    rows = np.flatnonzero(compressed)
    if not len(rows):
        return Bodies(stored_bodies(records), [])
    count, total = len(records), 0
    inflated: list[bytes] = []
    flaws: list[RowFlaw] = []
    sys_flags = records.column("sys_flag")
    for row in rows.tolist():
        begin = int(records.body_offsets[row])
        raw = records.data[begin : begin + int(records.body_lengths[row])].tobytes()
        found = inflate_body(int(sys_flags[row]), raw, cap)
        body = raw if isinstance(found, Flaw) else found.body
        inflated.append(body)
        if isinstance(found, Flaw):
            flaws.append(RowFlaw(row, found))
        total += len(body)
        if most_bytes is not None and total >= most_bytes:
            count = row + 1
            break
    compressed = compressed[:count]
    # Inflated bodies replace empty pieces, so that their stored bytes are not copied first.
    lengths = np.where(compressed, 0, records.body_lengths[:count])
    plain = pieces(records.data, records.body_offsets[:count], lengths)
    return Bodies(pc.replace_with_mask(plain, pa.array(compressed), pa.array(inflated, pa.large_binary())), flaws)
