"""Pages of the manual: their parts, and how they are written in roff for man(1) and mandoc(1).

Only a few requests of man(7) are used, so that ``roff_reader`` can show every page without man(1). In texts `words
between backticks` are bold; everything else is printed unchanged.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LINE = 76
# The width of a table: a page of 80 columns less the usual indentation.
_TABLE = 72
_ESCAPES = {
    "\\": "\\e",
    "-": "\\-",
    "'": "\\(aq",
    "`": "\\(ga",
    "^": "\\(ha",
    "~": "\\(ti",
}


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Terms, each with the paragraphs that explain it."""

    items: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Screen:
    """Lines as a terminal of 80 columns shows them."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of columns; the last column is broken into lines where it is too long."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


Block = Text | Items | Screen | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page; ``inner`` parts are below the one before them."""

    title: str
    blocks: tuple[Block, ...]
    inner: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the manual."""

    name: str
    number: int
    brief: str
    sections: tuple[Section, ...]

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.name}.{self.number}"


def page_roff(page: Page, date: str, source: str) -> str:
    """Return ``page`` in roff: plain ASCII, lines of at most 80 bytes outside of screens."""
    lines = [
        '.\\" Written by make docs; change what it is made from.',
        f'.TH {_escaped(page.name.upper())} {page.number} {date} "{source}" "rmqtool manual"',
        ".SH NAME",
        f"{_escaped(page.name)} \\- {_escaped(page.brief)}",
    ]
    for section in page.sections:
        lines.append(f".SS {_argument(section.title)}" if section.inner else f".SH {_argument(section.title.upper())}")
        # The first paragraph follows the title at once.
        first = True
        for block in section.blocks:
            lines += _block(block, first=first)
            first = False
    return "\n".join(lines) + "\n"


def _block(block: Block, *, first: bool) -> Iterator[str]:
    if isinstance(block, Items):
        for term, paragraphs in block.items:
            yield from (".TP", _inline(term))
            for number, paragraph in enumerate(paragraphs):
                yield from (".sp",) if number else ()
                yield from _filled(paragraph)
        return
    if not first:
        yield ".PP"
    if isinstance(block, Text):
        yield from _filled(block.text)
    elif isinstance(block, Screen):
        yield from (".in 0", ".nf", *map(_literal, block.lines), ".fi", ".in")
    else:
        yield from (".nf", *map(_literal, table_lines(block)), ".fi")


def table_lines(table: Table) -> list[str]:
    """Return a table as lines that fit a page."""
    from tabulate import tabulate

    rows = [table.titles, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.titles) - 1)]
    room = _TABLE - sum(widths) - 2 * len(widths)
    broken: list[Sequence[str]] = []
    for *cells, last in rows:
        first, *rest = textwrap.wrap(last, room, break_long_words=False, break_on_hyphens=False) or [""]
        broken.append((*cells, first))
        broken += [(*("" for _ in cells), line) for line in rest]
    aligned = ["right" if column in table.right else "left" for column in range(len(table.titles))]
    laid = tabulate(broken, (), "plain", colalign=aligned, disable_numparse=True)
    return [line.rstrip() for line in laid.split("\n")]


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c) or (c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)


def _argument(text: str) -> str:
    escaped = _escaped(text).replace('"', "\\(dq")
    return f'"{escaped}"' if " " in escaped else escaped


def _guarded(line: str) -> str:
    """Keep a line of text from being taken for a request."""
    return f"\\&{line}" if line[:1] in (".", "'") else line


def _literal(line: str) -> str:
    return _guarded(_escaped(line))


def _inline(text: str) -> str:
    parts = re.split("`([^`]*)`", text)
    marked = (f"\\fB{_escaped(part)}\\fR" if number % 2 else _escaped(part) for number, part in enumerate(parts))
    return _guarded("".join(marked))


def _filled(text: str) -> list[str]:
    """Return a paragraph as source lines."""
    broken = textwrap.wrap(_inline(text), _LINE, break_long_words=False, break_on_hyphens=False)
    return [_guarded(line) for line in broken]
