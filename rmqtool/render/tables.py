"""Tables: rows of values in columns, plain for screens, Markdown for reports.

Only a column that says so may be shortened: a number, an offset or a time that was cut would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from itertools import compress

from rmqtool.render import text as texts

NOTHING = "–"
_GAP = 2
_LEAST = 8
# Cells that a name keeps at least, before spare columns are left out for it.
_READABLE = 28
# Replaces a text with wide characters while tabulate lays out: it is one cell wide in all versions of it.
_STAND_IN = "\U000f0000"
_RUN = re.compile(f"{_STAND_IN}+")


class Kind(StrEnum):
    """The kind of a column's values, which decides how they look."""

    TEXT = "text"
    COUNT = "count"
    OFFSET = "offset"
    SIZE = "size"
    TIME = "time"
    DURATION = "duration"
    SHARE = "share"


class Cut(StrEnum):
    """Where a text may be shortened if the screen is too narrow."""

    NEVER = "never"
    END = "end"
    MIDDLE = "middle"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: ``key`` in the row, its title, the kind of its values, where they may be cut.

    A ``spare`` column is left out if the screen is too narrow for all.
    """

    key: str
    title: str
    kind: Kind = Kind.TEXT
    cut: Cut = Cut.NEVER
    spare: bool = False


def lay_out(
    rows: Iterable[Mapping[str, object]],
    columns: Collection[Column],
    *,
    width: int | None = None,
    zone: tzinfo | None = None,
    markdown: bool = False,
    paint: Callable[[str, str], str] | None = None,
) -> list[str]:
    """Return the table as lines, at most ``width`` cells wide if the columns that may be shortened allow it."""
    columns = list(columns)
    cells = [[cell_text(column, row.get(column.key), zone) for column in columns] for row in rows]
    if markdown:
        cells = [[cell.replace("|", "\\|") for cell in line] for line in cells]
    hidden: list[str] = []
    if width is not None and not markdown:
        hidden = _leave_out(cells, columns, width)
        _shorten(cells, columns, width)
    titles = [column.title for column in columns]
    lines = _tabulated(titles, cells, columns, markdown, paint)
    if hidden:
        lines += texts.hanging(f"columns without room: {', '.join(hidden)} (--csv shows all)", width, 2)
    return lines


def cell_text(column: Column, value: object, zone: tzinfo | None = None) -> str:
    """Return the text of one value in ``column``."""
    if value is None or value == "":
        return NOTHING
    kind = column.kind
    if isinstance(value, int) and not isinstance(value, bool):
        if kind is Kind.COUNT:
            return texts.count(value)
        if kind is Kind.SIZE:
            return texts.size(value)
        if kind is Kind.TIME:
            return texts.timestamp(value, zone)
        if kind is Kind.DURATION:
            return texts.duration(value)
    if kind is Kind.SHARE and isinstance(value, float | int):
        return f"{value:.1%}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return texts.neutral(str(value))


def _widths(cells: list[list[str]], columns: Collection[Column]) -> list[int]:
    widths = [texts.display_width(column.title) for column in columns]
    for line in cells:
        widths = [max(pair) for pair in zip(widths, map(texts.display_width, line), strict=True)]
    return widths


def _leave_out(cells: list[list[str]], columns: list[Column], width: int) -> list[str]:
    """Remove spare columns, from the right, until the shortened texts can be told apart.

    Return the titles of those that were removed.
    """
    least = [
        w if column.cut is Cut.NEVER else min(w, _READABLE)
        for w, column in zip(_widths(cells, columns), columns, strict=True)
    ]
    wanted = [True] * len(columns)
    for at in reversed(range(len(columns))):
        if columns[at].spare and sum(w + _GAP for w in compress(least, wanted)) - _GAP > width:
            wanted[at] = False
    hidden = [column.title for column, stays in zip(columns, wanted, strict=True) if not stays]
    columns[:] = compress(columns, wanted)
    for line in cells:
        line[:] = compress(line, wanted)
    return hidden


def _shorten(cells: list[list[str]], columns: Collection[Column], width: int) -> None:
    widths = _widths(cells, columns)
    flexible = [at for at, column in enumerate(columns) if column.cut is not Cut.NEVER]
    room = width - _GAP * (len(widths) - 1) - sum(w for at, w in enumerate(widths) if at not in flexible)
    if sum(widths[at] for at in flexible) <= room:
        return
    # Shorten the longest texts first: find the greatest width that all of them can have.
    low, high = _LEAST, max((widths[at] for at in flexible), default=_LEAST)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(widths[at], middle) for at in flexible) <= room:
            low = middle
        else:
            high = middle - 1
    for at, column in enumerate(columns):
        if at in flexible:
            short = _cut_apart([line[at] for line in cells], low, middle=column.cut is Cut.MIDDLE)
            for line, text in zip(cells, short, strict=True):
                line[at] = text


def _cut_apart(values: list[str], width: int, *, middle: bool) -> list[str]:
    """Return texts cut to a width so that different texts stay different.

    If the usual cut makes two of them equal, they are cut elsewhere; if that does not help, they stay whole and their
    line is longer than the screen.
    """
    found = {value: texts.cut(value, width, middle=middle) for value in values}
    by_cut: dict[str, list[str]] = {}
    for value, short in found.items():
        by_cut.setdefault(short, []).append(value)
    for alike in (group for group in by_cut.values() if len(group) > 1):
        others = {short for value, short in found.items() if value not in alike}
        for tail in range(width - 1):
            tries = [texts.cut(value, width, tail=tail) for value in alike]
            if len(set(tries)) == len(alike) and not others & set(tries):
                found.update(zip(alike, tries, strict=True))
                break
        else:
            found.update((value, value) for value in alike)
    return [found[value] for value in values]


def _tabulated(
    titles: list[str],
    cells: list[list[str]],
    columns: Collection[Column],
    markdown: bool,
    paint: Callable[[str, str], str] | None,
) -> list[str]:
    """Return rows laid out by tabulate.

    tabulate measures texts differently with and without an optional package. So it gets only ASCII and replacements of
    the right width, which are replaced in its result, in reading order.
    """
    from tabulate import tabulate

    replaced: list[str] = []

    def stand_in(text: str, painted: str | None = None) -> str:
        if not text or (painted is None and text.isascii()):
            return text
        replaced.append(painted or text)
        return _STAND_IN * texts.display_width(text)

    aligned = ["left" if column.kind is Kind.TEXT else "right" for column in columns]
    heads = [stand_in(title, paint(title, "title") if paint else None) for title in titles]
    body = [[stand_in(cell) for cell in line] for line in cells]
    # Without a rule below them the titles are a row like any other, so they are passed as one.
    rows, headers, style = (body, heads, "github") if markdown else ([heads, *body], (), "plain")
    laid = tabulate(rows, headers, style, colalign=aligned, disable_numparse=True)
    queue = iter(replaced)
    return [_RUN.sub(lambda _: next(queue), line).rstrip() for line in laid.split("\n")]
