"""Groups of messages as columns, added up: in memory, or in runs on disk when they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rmqtool.bulk.gather import Ints

Hashes = npt.NDArray[np.uint64]

# So many groups wait, unsorted, before they are added to the others.
_PENDING = 1 << 17
# So many groups are held in memory: some tens of MiB.
HELD = 1 << 19
# Runs can be read by parts of the range of hashes, of which there are 2 to this power.
_SLICE_BITS = 10
_SLICES = 1 << _SLICE_BITS
_WORD = np.dtype(np.int64).itemsize


class GroupTable(NamedTuple):
    """Groups as columns, sorted by hash; ``places`` are the physical offsets of one message of each."""

    hashes: Hashes
    messages: Ints
    bytes: Ints
    body_bytes: Ints
    first: Ints
    last: Ints
    places: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def select(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> GroupTable:
        """Return some of the groups."""
        return GroupTable(self.hashes[rows], *(column[rows] for column in self[1:]))


# How the columns of a table behind the hashes are joined.
_JOINS = (np.add, np.add, np.add, np.minimum, np.maximum, np.minimum)


def empty_table() -> GroupTable:
    """Return a table without groups."""
    return GroupTable(np.empty(0, np.uint64), *(np.empty(0, np.int64) for _ in range(6)))


def merge_tables(tables: list[GroupTable]) -> GroupTable:
    """Return the groups of several tables in one. The list is emptied, so that each column goes when it is merged."""
    parts = [list(columns) for columns in zip(*(table for table in tables if len(table)), strict=True)]
    tables.clear()
    if not parts:
        return empty_table()
    hashes = np.concatenate(parts[0])
    parts[0].clear()
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    columns = []
    for join, column in zip(_JOINS, parts[1:], strict=True):
        columns.append(join.reduceat(np.concatenate(column)[order], begins))
        column.clear()
    return GroupTable(hashes[begins], *columns)


def join_tables(tables: Sequence[GroupTable]) -> GroupTable:
    """Return the groups of several tables, that have none in common, one table's behind the other's."""
    return GroupTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))


@dataclass
class HeldGroups:
    """Tables added up in memory: few are held at a time, and sorting is put off until enough wait."""

    table: GroupTable = field(default_factory=empty_table)
    _waiting: list[GroupTable] = field(default_factory=list)
    _rows: int = 0

    def add(self, table: GroupTable) -> None:
        """Add a table."""
        self._waiting.append(table)
        self._rows += len(table)
        if self._rows > max(_PENDING, len(self.table) // 4):
            self.settle()

    def settle(self) -> GroupTable:
        """Return everything in one table."""
        tables, self.table, self._waiting, self._rows = [self.table, *self._waiting], empty_table(), [], 0
        self.table = merge_tables(tables)
        return self.table


@dataclass
class Groups:
    """Tables added up: in memory, and in runs on disk when they are many."""

    _held: HeldGroups = field(default_factory=HeldGroups)
    _runs: list[_Run] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.file.close()

    def add(self, table: GroupTable) -> None:
        """Add a table."""
        self._held.add(table)
        if len(self._held.table) > HELD:
            self._runs.append(_write_run(self._held.settle()))
            self._held = HeldGroups()

    def pieces(self) -> Iterator[GroupTable]:
        """Yield all groups, each once, in tables that memory can hold. Nothing can be added any more."""
        last = self._held.settle()
        if not self._runs:
            yield last
            return
        count = sum(int(run.bounds[-1]) for run in self._runs) + len(last)
        step = max(1, _SLICES * HELD // count)
        bounds = _bounds(last.hashes)
        for begin in range(0, _SLICES, step):
            end = min(begin + step, _SLICES)
            held = last.select(np.arange(bounds[begin], bounds[end]))
            yield merge_tables([*(run.read(begin, end) for run in self._runs), held])


class _Run(NamedTuple):
    """Groups on disk, column after column; ``bounds`` are where the slices of the range of hashes begin."""

    file: IO[bytes]
    bounds: Sequence[int]

    def read(self, begin: int, end: int) -> GroupTable:
        """Return the groups of some slices."""
        first, behind, count = self.bounds[begin], self.bounds[end], self.bounds[-1]
        columns = []
        for number in range(len(GroupTable._fields)):
            self.file.seek((number * count + first) * _WORD)
            columns.append(np.frombuffer(self.file.read((behind - first) * _WORD), np.int64))
        return GroupTable(columns[0].view(np.uint64), *columns[1:])


def _bounds(hashes: Hashes) -> list[int]:
    starts = np.arange(_SLICES, dtype=np.uint64) << np.uint64(64 - _SLICE_BITS)
    return [*np.searchsorted(hashes, starts).tolist(), len(hashes)]


def _write_run(table: GroupTable) -> _Run:
    file = tempfile.TemporaryFile(prefix="rmqtool-groups-")  # noqa: SIM115  (closed at the end of the context)
    for column in table:
        file.write(column.tobytes())
    return _Run(file, _bounds(table.hashes))
