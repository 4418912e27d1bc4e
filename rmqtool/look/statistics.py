"""Statistics: messages of a store counted in groups; and the map of the log, a picture of which kinds are where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import repeat
from typing import TYPE_CHECKING, Any

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.formats.topics import find_own_names
from rmqtool.log.end import read_record
from rmqtool.look.place_search import plan_of
from rmqtool.store.config_files import read_configs
from rmqtool.store.open import Store

if TYPE_CHECKING:
    from rmqtool.log.group import Grouping, Groups, GroupTable
    from rmqtool.log.ranges import Effort, Plan
    from rmqtool.log.read import Damage
    from rmqtool.log.select import Selection

# Rows by one of these are in the order of their values, others by size.
_ORDERED = frozenset({"queue", "hour", "day", "size", "segment"})


@dataclass
class Statistics:
    """Groups of messages, their total, and the damage, which is in no group."""

    by: tuple[str, ...]
    rows: list[dict[str, Any]]
    groups: int
    messages: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    damages: list[Damage] = field(default_factory=list)
    # Queues that a report needs and that cannot be read.
    unread: list[ReadFailed] = field(default_factory=list)

    @property
    def damaged_bytes(self) -> int:
        """How many bytes of the log are damaged."""
        return sum(damage.length for damage in self.damages)

    def as_json(self) -> dict[str, Any]:
        """Return the object of docs/contract.md."""
        return {
            "by": list(self.by),
            "rows": self.rows,
            "total": {
                "messages": self.messages,
                "bytes": self.bytes,
                "firstStoreTimestamp": self.first,
                "lastStoreTimestamp": self.last,
                "groups": self.groups,
            },
            "damaged": {"bytes": self.damaged_bytes, "places": len(self.damages)},
        }


def own_names(store: Store) -> frozenset[str]:
    """Return the names of cluster and broker, if the configuration reveals them."""
    try:
        return find_own_names(read_configs(store, tolerant=True).topics)
    except OptionalMissing:
        return frozenset()


@dataclass(frozen=True)
class Wish:
    """What to count: the largest ``top`` groups (None: all) of at least ``least`` messages each.

    ``normal_only`` leaves out all but ordinary topics, because brokers store messages of the others repeatedly.
    ``span`` is the number of bytes of log that count as one segment; None: the size of its segments.
    """

    by: tuple[str, ...]
    zone: tzinfo | None = None
    top: int | None = None
    least: int = 1
    normal_only: bool = False
    span: int | None = None


def read_statistics(store: Store, selection: Selection, wishes: Sequence[Wish], effort: Effort) -> list[Statistics]:
    """Count the messages of a store in several ways, with one reading of the log."""
    from rmqtool.log.group import Grouping, Groups, GroupWork
    from rmqtool.log.ranges import Answered, nominal_ranges, run_ranges
    from rmqtool.log.read import Damage

    plan, names = plan_of(store, selection), own_names(store)
    size = store.commit_log.segment_size or 1
    groupings = [Grouping(wish.by, wish.zone, names, wish.span or size, wish.normal_only) for wish in wishes]
    groupings = [
        replace(grouping, kept=_mark_repeated(plan, selection, grouping, effort)) if wish.least > 1 else grouping
        for wish, grouping in zip(wishes, groupings, strict=True)
    ]
    damages: list[Damage] = []
    with ExitStack() as stack:
        groups = [stack.enter_context(Groups()) for _ in wishes]
        whole = stack.enter_context(Groups())
        for answer in run_ranges(plan, nominal_ranges(plan), GroupWork(selection, tuple(groupings)), effort):
            if isinstance(answer, Damage):
                damages.append(answer)
            elif isinstance(answer, Answered):
                whole.add(answer.found.total)
                damages += answer.found.damages
                for tables, found in zip(groups, answer.found.groups, strict=True):
                    tables.add(found)
        totals = _totals(next(whole.pieces()))
        counted = map(_rows, repeat(store), wishes, groupings, groups)
        return [
            Statistics(wish.by, rows, count, *totals, damages)
            for wish, (rows, count) in zip(wishes, counted, strict=True)
        ]


def _rows(store: Store, wish: Wish, grouping: Grouping, groups: Groups) -> tuple[list[dict[str, Any]], int]:
    """Return the wanted rows, and the number of all groups."""
    from rmqtool.log.group import join_tables

    largest, count = [], 0
    for piece in groups.pieces():
        there = piece.select(piece.messages >= wish.least)
        count += len(there)
        largest.append(_largest(there, wish.top))
    table = _largest(join_tables(largest), wish.top)
    rows = [_row(store, grouping, table, number) for number in range(len(table))]
    if len(wish.by) == 1 and wish.by[0] in _ORDERED:
        rows.sort(key=lambda row: (row[wish.by[0]] is None, row[wish.by[0]]))
    return rows, count


def _mark_repeated(plan: Plan, selection: Selection, grouping: Grouping, effort: Effort) -> bytes:
    """Return marks of groups that may have several messages. Most groups have one message and need not be kept."""
    from rmqtool.log.group import GroupWork, Marks
    from rmqtool.log.ranges import Answered, nominal_ranges, run_ranges

    marks = Marks()
    for answer in run_ranges(plan, nominal_ranges(plan), GroupWork(selection, (grouping,)), effort):
        if isinstance(answer, Answered):
            (table,) = answer.found.groups
            marks.add(table.hashes, table.messages)
    return marks.packed()


def _totals(whole: GroupTable) -> tuple[int, int, int | None, int | None]:
    """Return the number of messages, their bytes, and the first and last store time."""
    if not len(whole):
        return 0, 0, None, None
    return int(whole.messages[0]), int(whole.bytes[0]), int(whole.first[0]), int(whole.last[0])


def _largest(table: GroupTable, top: int | None) -> GroupTable:
    import numpy as np

    return table.select(np.lexsort((table.places, -table.messages, -table.bytes))[:top])


def _row(store: Store, grouping: Grouping, table: GroupTable, number: int) -> dict[str, Any]:
    from rmqtool.log.group import hash_values

    wanted = int(table.hashes[number])
    message = read_record(store.commit_log, int(table.places[number]), verify=False)
    named: Iterator[tuple[Any, ...]] = grouping.values(message) if message is not None else iter(())
    values = next((values for values in named if hash_values(values) == wanted), (None,) * len(grouping.by))
    return {
        **dict(zip(grouping.by, values, strict=True)),
        "messages": int(table.messages[number]),
        "bytes": int(table.bytes[number]),
        "bodyBytes": int(table.body_bytes[number]),
        "firstStoreTimestamp": int(table.first[number]),
        "lastStoreTimestamp": int(table.last[number]),
    }


# Cells of a line, and lines of a map: what fits on a screen.
CELLS = 64
_MOST_LINES = 40


@dataclass(frozen=True)
class LogMap:
    """The log as lines of cells: the kind with the most bytes in each cell, None if no message begins there.

    Each line is ``span * CELLS`` bytes of the log from its offset on.
    """

    span: int
    lines: dict[int, list[str | None]]
    statistics: Statistics


def read_log_map(store: Store, selection: Selection, effort: Effort) -> LogMap:
    """Read the map of a log. A line is one segment, or several if there are many."""
    log = store.commit_log
    per_line = -(-len(log) // _MOST_LINES) or 1
    line = max(log.segment_size, 1) * per_line
    span = max(line // CELLS, 1)
    (found,) = read_statistics(store, selection, [Wish(("segment", "kind"), span=span)], effort)
    most: dict[tuple[int, int], tuple[int, str]] = {}
    for row in found.rows:
        if row["segment"] is not None:
            _take(most, row, line, span)
    damaged = {_place(log.segments, damage.file, damage.file_offset) for damage in found.damages}
    lines = {}
    for start in sorted({segment.base_offset // line * line for segment in log}):
        cells: list[str | None] = [None] * CELLS
        for cell in range(CELLS):
            known = most.get((start, cell))
            cells[cell] = known[1] if known is not None else None
        for place in damaged:
            if place is not None and start <= place < start + line:
                cells[min((place - start) // span, CELLS - 1)] = "damaged"
        lines[start] = cells
    return LogMap(span, lines, found)


def _take(most: dict[tuple[int, int], tuple[int, str]], row: dict[str, Any], line: int, span: int) -> None:
    place = (row["segment"] // line * line, min(row["segment"] % line // span, CELLS - 1))
    if row["bytes"] > most.get(place, (0, ""))[0]:
        most[place] = (row["bytes"], row["kind"])


def _place(segments: Any, file: str, file_offset: int) -> int | None:
    """Return the physical offset of a byte of a file."""
    return next((segment.base_offset + file_offset for segment in segments if segment.path == file), None)
