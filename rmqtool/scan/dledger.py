"""A DLedger data file as the stream that a segment of a plain log gives: the records inside its entries.

An entry's size tells where the next one begins, so the records need not stand back to back. Where no entry can be read
the next record that is in its right place tells where one begins.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from rmqtool.bulk.records import decode_records
from rmqtool.formats.commit_log import Blank
from rmqtool.formats.dledger import HEAD_SIZE, MAGIC_DATA, DLedgerBlank, decode_entry_head
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import DLedgerEntryHead
from rmqtool.scan.columns import WINDOW, Rows, are_readable, are_right, iter_runs, seen
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.salvaged import salvaged
from rmqtool.storage.walk import Place, SegmentWalk, find_dledger_entry


class _Body(NamedTuple):
    """What an entry wraps, by its place in a window."""

    offset: int
    length: int


class DLedgerScan:
    """One scan over a DLedger data file; ``base_offset`` is the place of its first byte in the log."""

    def __init__(self, file: ReadableFile, base_offset: int, *, checksums: bool = True) -> None:
        self.file = salvaged(file)
        self.base_offset = base_offset
        self.checksums = checksums
        self.end = file.size()

    def pieces(self, start: int = 0) -> Iterator[Rows | Place]:
        """Yield what stands in the file from ``start``, where an entry is due, to its end."""
        at = start
        while at < self.end:
            data = self.file.pread(min(WINDOW, self.end - at), at)
            bodies, size = self._bodies(data, at)
            yield from self._spell(data, bodies, at)
            at += size
            if not size:
                at = yield from self._walk_one(at)

    def _bodies(self, data: bytes, at: int) -> tuple[list[_Body], int]:
        """Return the bodies of the whole entries of a window, and how far these reach."""
        found: list[_Body] = []
        position = 0
        while position + HEAD_SIZE <= len(data):
            head = decode_entry_head(data, position, self.end - at - position)
            if not isinstance(head, DLedgerEntryHead) or position + head.size > len(data):
                break
            if _holds_record(head):
                found.append(_Body(position + HEAD_SIZE, head.size - HEAD_SIZE))
            position += head.size
        return found, position

    def _spell(self, data: bytes, bodies: list[_Body], at: int) -> Iterator[Rows | Place]:
        """Yield the records of the bodies; what bulk does not take, or is wrong, as the walk sees it."""
        while bodies:
            records, _ = decode_records(data, np.array([body.offset for body in bodies], np.int64))
            places = records.file_offsets + (self.base_offset + at)
            right = are_right(records, places, checksums=self.checksums)
            right &= are_readable(self.file, records, at)
            right &= records.column("total_size") <= np.array([body.length for body in bodies[: len(records)]])
            for part in iter_runs(right):
                if isinstance(part, slice):
                    yield Rows(records.select(part), at)
                else:
                    yield self._record(bodies[part], at)
            if len(records) < len(bodies):
                yield self._record(bodies[len(records)], at)
            bodies = bodies[len(records) + 1 :]

    def _record(self, body: _Body, at: int) -> Rows | Place:
        walk = SegmentWalk(self.file, self.base_offset, at + body.offset + body.length)
        return seen(walk, walk.place_at(at + body.offset))

    def _walk_one(self, at: int) -> Generator[Rows | Place, None, int]:
        """Yield what stands where bulk sees no whole entry, a large one or what breaks the chain; return its end."""
        left = self.end - at
        head = decode_entry_head(self.file.pread(HEAD_SIZE, at).ljust(HEAD_SIZE, b"\0"), 0, left)
        if isinstance(head, DLedgerEntryHead):
            if _holds_record(head):
                yield self._record(_Body(HEAD_SIZE, head.size - HEAD_SIZE), at)
            return at + head.size
        if not isinstance(head, Flaw):
            yield Place(at, left, Blank(left) if isinstance(head, DLedgerBlank) else head)
            return self.end
        following = find_dledger_entry(self.file, self.base_offset, at + 1)
        yield Place(at, following - at, head._replace(at=0, length=following - at))
        return following


def _holds_record(head: DLedgerEntryHead) -> bool:
    """Return whether an entry wraps a record: no-op entries and changes of the group do not."""
    return head.magic == MAGIC_DATA and head.size > HEAD_SIZE
