"""Searches through a whole log: messages whose properties contain certain bytes, and messages of certain topics.

Records are not decoded until their bytes match. The searched bytes (a key, an id) are rare, so most of the log is only
scanned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqtool.columns.gather import Bytes, Ints, Mask, as_bytes, windows
from rmqtool.columns.pieces import pieces, values_of
from rmqtool.columns.records import Records
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.property_names import INNER_MULTI_DISPATCH
from rmqtool.log.ranges import RANGE, Answered, Effort, Plan, Write, nominal_ranges, run_ranges
from rmqtool.log.read import Damage, Part, Range, RangeReader
from rmqtool.log.select import Selection
from rmqtool.log.stream import iter_parts

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    from rmqtool.columns.arrow import pa, pc

# A search keeps only offsets of each range until its turn, so its ranges are larger.
_RANGE = 8 * RANGE
# Limit of near matches that one range reports.
_MOST_NEAR = 200
# Bytes at the beginning of a buffer in which byte frequencies are counted; the least length of the suffix that is
# searched for first, unless the needle is shorter.
_SAMPLE, _LEAST_END = 1024, 6


@dataclass(frozen=True)
class Sought:
    """The searched messages: their properties contain ``needle``, and ``selection`` accepts them.

    With ``queue_offset``, only messages that have it, or that can have it in another queue or inside a batch. Messages
    whose properties contain one of ``near`` are reported too, a limited number of them.
    """

    needle: bytes
    selection: Selection
    queue_offset: int | None = None
    near: tuple[bytes, ...] = ()


class Places(NamedTuple):
    """Physical offsets of one range: of the searched messages and of near matches; and damage."""

    found: list[int]
    near: list[int]
    damages: list[Damage]


def search(plan: Plan, sought: Sought, effort: Effort) -> Iterator[Places | Damage]:
    """Yield the offsets of possible matches in the order of the log, and the damage between them, but no notes."""
    ranges = nominal_ranges(plan, sought.selection.physical_from, _RANGE)
    for answer in run_ranges(plan, ranges, SearchWork(sought), effort):
        if isinstance(answer, Answered):
            yield answer.found
        elif isinstance(answer, Damage):
            yield answer


@dataclass(frozen=True)
class SearchWork:
    """Searches one range; see ``ranges.RangeWork``. Callers verify the checksums of the records that they read."""

    sought: Sought

    def __call__(self, asked: Range, write: Write) -> Answered:  # noqa: ARG002  (nothing is written)
        sought = self.sought
        reader = RangeReader(asked, Selection(physical_from=sought.selection.physical_from), checksums=False)
        places = Places([], [], [])
        for part in reader.parts():
            if not isinstance(part, Part):
                places.damages.append(part)
                continue
            self._look_into(part.records, places)
        return Answered(reader.began, reader.reached, reader.left_over, places)

    def _look_into(self, records: Records, places: Places) -> None:
        """Add the places of the matches among ``records``: those with the bytes that the selection accepts."""
        sought = self.sought
        if sought.queue_offset is not None:
            records = records.select(_may_have(records, sought.queue_offset))
        if sought.needle and len(records):
            texts = Texts(records)
            for needle in sought.near:
                most = _MOST_NEAR - len(places.near)
                places.near.extend(_places(records.select(texts.holding(needle, most))))
            rows = texts.holding(sought.needle)
            if not len(rows):
                return
            records = records.select(rows)
        places.found.extend(_places(sought.selection.select(records)))


class Texts:
    """The properties of records in one buffer. Most of a log is bodies, which are not searched."""

    def __init__(self, records: Records) -> None:
        self.records = records

    @cached_property
    def _values(self) -> tuple[bytes, Ints]:
        """All properties back to back, and where those of each record begin; one more offset is the end.

        Only needed to find the rows of a match.
        """
        records = self.records
        values, bounds = values_of(pieces(records.data, records.properties_offsets, records.properties_lengths))
        return values.tobytes(), bounds

    @cached_property
    def _about(self) -> Bytes:
        """Bytes that contain all properties, and perhaps more.

        Pieces of one width are copied faster, so they are taken if that is not many more bytes.
        """
        data, offsets, lengths = self.records.data, self.records.properties_offsets, self.records.properties_lengths
        width = int(lengths.max())
        if not width or width * len(lengths) > 2 * int(lengths.sum()):
            return as_bytes(self._values[0])
        return windows(data, width)[np.minimum(offsets, len(data) - width)].view(np.uint8)

    def holding(self, needle: bytes, most: int | None = None) -> Ints:
        """Return the rows whose properties contain ``needle``, at most the first ``most`` of them."""
        rows: list[int] = []
        if not may_hold(self._about, needle):
            return np.array(rows, np.int64)
        text, bounds = self._values
        at = text.find(needle)
        while at >= 0 and (most is None or len(rows) < most):
            row = int(np.searchsorted(bounds, at, "right")) - 1
            end = int(bounds[row + 1])
            if at + len(needle) <= end:
                rows.append(row)
                at = text.find(needle, end)
            else:
                at = text.find(needle, at + 1)
        return np.array(rows, np.int64)


def may_hold(values: Bytes, needle: bytes) -> bool:
    """Return whether ``values`` contain ``needle`` or its end; False means that they do not contain ``needle``.

    A plain search stops at every occurrence of the first byte. This one searches for a suffix that begins at its rarest
    byte. A suffix, because keys and ids of one producer often begin alike.
    """
    often = np.bincount(values[:_SAMPLE], minlength=256)[np.frombuffer(needle, np.uint8)]
    end = needle[int(np.argmin(often[: max(len(needle) - _LEAST_END, 0) + 1])) :]
    bounds = pa.py_buffer(np.array([0, len(values)]))
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, bounds, pa.py_buffer(values)])
    return bool(pc.match_substring_regex(whole, re.escape(end))[0].as_py())


def _may_have(records: Records, queue_offset: int) -> Mask:
    """Return which messages may have a queue offset: their own, one in a further queue, or one inside a batch."""
    own: Mask = records.column("queue_offset") == queue_offset
    own |= records.column("sys_flag") & int(SysFlag.INNER_BATCH) != 0
    own[Texts(records).holding(INNER_MULTI_DISPATCH.encode())] = True
    return own


def _places(records: Records) -> list[int]:
    places: list[int] = records.column("physical_offset").tolist()
    return places


class Neighbours(NamedTuple):
    """The physical offsets of the messages before and after an offset, None without one; and the damage on the way."""

    before: int | None
    after: int | None
    damages: list[Damage]


def find_neighbours(plan: Plan, physical_offset: int, effort: Effort) -> Neighbours:
    """Return the messages around an offset; one that begins exactly there counts as before it."""
    damages: list[Damage] = []
    before: int | None = None
    for found in search(plan, Sought(b"", Selection()), effort):
        if isinstance(found, Damage):
            damages.append(found)
            continue
        damages += found.damages
        places = np.array(found.found, np.int64)
        number = int(np.searchsorted(places, physical_offset, "right"))
        if number:
            before = int(places[number - 1])
        if number < len(places):
            return Neighbours(before, int(places[number]), damages)
    return Neighbours(before, None, damages)


def iter_picked(
    plan: Plan, selection: Selection, effort: Effort, topics: Callable[[str], bool], sys_flag: int = 0
) -> Iterator[Message | Damage]:
    """Yield those selected messages whose topic ``topics`` accepts, or that have a bit of ``sys_flag``; and damage."""
    for found in iter_parts(plan, selection, effort):
        if isinstance(found, Damage):
            yield found
        elif isinstance(found, Part):
            yield from _picked(found.records, topics, sys_flag)


def _picked(records: Records, topics: Callable[[str], bool], sys_flag: int) -> Iterator[Message]:
    """Yield the messages of ``records`` whose topic ``topics`` accepts, or that have a bit of ``sys_flag``."""
    names = records.topics
    wanted: Mask = names.each(topics, np.bool_)
    if sys_flag:
        wanted = wanted | (records.column("sys_flag") & sys_flag != 0)
    for at in records.file_offsets[np.flatnonzero(wanted)].tolist():
        message = decode_record(records.data.data, at)
        if isinstance(message, Message):
            yield message
