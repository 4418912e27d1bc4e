"""A picture of the log: what lies where, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqtool.look.statistics import Statistics, Wish, read_statistics
from rmqtool.store.open import Store

if TYPE_CHECKING:
    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection

CELLS = 64
_MOST_LINES = 40


@dataclass(frozen=True)
class LogMap:
    """The log as lines of cells: what most of a cell's bytes are, None where no message starts here.

    Each line is ``span * CELLS`` bytes of the log from its offset on.
    """

    span: int
    lines: dict[int, list[str | None]]
    statistics: Statistics


def read_log_map(store: Store, selection: Selection, effort: Effort) -> LogMap:
    """Look at where the kinds of messages lie. A line is a segment, or several where there are many."""
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
    """Return where in the log a byte of a file lies."""
    return next((segment.base_offset + file_offset for segment in segments if segment.path == file), None)
