"""The screen of ``dump``: offset, bytes, name, value, words, check mark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from rmqtool.render.output import Output
from rmqtool.render.text import display_width, hanging, neutral

_BYTES_SHOWN = 8
_HEX_WIDTH = 2 * _BYTES_SHOWN + 1
_NAME_WIDTH = 26
_PLACE_WIDTH = 8
_VALUE_AT = _PLACE_WIDTH + 2 + _HEX_WIDTH + 2 + _NAME_WIDTH
_MARKS = {None: "", True: "  ✓", False: "  ✗"}


class Shown(Protocol):
    """A region as the screen needs it."""

    @property
    def offset(self) -> int:
        """The offset of its first byte in the file."""

    @property
    def length(self) -> int:
        """The number of its bytes."""

    @property
    def kind(self) -> str:
        """The kind of the region."""

    @property
    def label(self) -> str:
        """The name for people."""

    @property
    def value(self) -> object:
        """Its value, None when it has only children."""

    @property
    def words(self) -> str | None:
        """The value in words."""

    @property
    def right(self) -> bool | None:
        """Whether a checksum or a computed value matches; None if there is nothing to compare."""

    @property
    def children(self) -> Sequence[Any]:
        """The regions inside it."""


Reader = Callable[[int, int], bytes]


def dump_lines(output: Output, regions: Iterable[Shown], read: Reader) -> Iterator[str]:
    """Yield the lines of a dump; ``read`` returns the bytes of (offset, length)."""
    for region in regions:
        yield from _top_lines(output, region, read)


def _top_lines(output: Output, region: Shown, read: Reader) -> Iterator[str]:
    value = f"  {_value(region.value)}" if region.value is not None else ""
    words = f"  {neutral(region.words)}" if region.words else ""
    label = neutral(region.label).replace(" ", "\u00a0")
    line = f"{region.offset:<{_PLACE_WIDTH}}  {label}  {region.length}\u00a0bytes{value}{words}{_MARKS[region.right]}"
    first, *others = hanging(line, output.look.width, _PLACE_WIDTH + 2)
    yield first.replace(neutral(region.label), output.paint(neutral(region.label), _style(region)), 1)
    yield from others
    for child in region.children:
        yield from _child_lines(output, child, region.offset, read, 1)


def _style(region: Shown) -> str:
    return "error" if region.kind == "damage" else "dim" if region.kind in ("zeros", "unknown") else "title"


def _child_lines(output: Output, region: Shown, base: int, read: Reader, depth: int) -> Iterator[str]:
    data = read(region.offset, min(region.length, _BYTES_SHOWN))
    shown = data.hex(" ", -4) if region.length <= _BYTES_SHOWN else data[:6].hex(" ", -4) + " .."
    place = f"+{region.offset - base}".rjust(_PLACE_WIDTH)
    name = ("  " * (depth - 1) + neutral(region.label)).ljust(_NAME_WIDTH)
    head = f"{place}  {shown.ljust(_HEX_WIDTH)}  {name}".replace(" ", "\u00a0")
    value = "" if region.value is None else _value(region.value) + "  "
    words = neutral(region.words) if region.words else ""
    line = (head + value + words).rstrip() + _MARKS[region.right]
    # A long value without a space, such as a unique key, gets its own line: it is never broken.
    room = (output.look.width or 0) - _VALUE_AT
    fits = all(display_width(word) <= room for word in (value + words).split(" "))
    if not fits:
        line = line.replace(head, head.rstrip("\u00a0") + " ", 1)
    yield from hanging(line, output.look.width, _VALUE_AT if fits else _PLACE_WIDTH + 2)
    for child in region.children:
        yield from _child_lines(output, child, base, read, depth + 1)


def _value(value: object) -> str:
    if isinstance(value, str):
        return neutral(value)
    return neutral(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list) else str(value)


def reference_lines(output: Output, rows: Iterable[tuple[str, int | None, str, bool | None]]) -> Iterator[str]:
    """Yield the places that point at a record."""
    yield output.paint("pointed at by", "title")
    for file, offset, words, right in rows:
        place = file if offset is None else f"{file}@{offset}"
        yield from hanging(f"  {neutral(place)}  {neutral(words)}{_MARKS[right]}", output.look.width, 6)


def row_lines(output: Output, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of a database: the key, and below it the value."""
    family = None
    for row in rows:
        if row["family"] != family:
            family = row["family"]
            yield output.paint(f"family {neutral(family)}", "title")
        yield from hanging(f"  {_pairs(row['key'])}", output.look.width, 4)
        yield from hanging(f"      {_pairs(row['value'])}", output.look.width, 8)


def _pairs(value: object) -> str:
    if isinstance(value, Mapping):
        return "  ".join(f"{neutral(str(name))}\u00a0{_value(part)}" for name, part in value.items())
    return _value(value)
