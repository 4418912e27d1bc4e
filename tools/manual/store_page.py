"""The page of the store: every layout byte by byte, from the declarations, between the texts that explain them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmqtool.formats import layouts
from rmqtool.formats.layout import Layout, upstream_name
from tools.manual.command_pages import NAME, see_also
from tools.manual.roff import Block, Page, Section, Table, Text
from tools.manual.store_texts import CHANGES, PARTS, Part

_TITLES = ("offset", "size", "type", "field", "meaning")
_NUMBERS = frozenset({0, 1})
_MESSAGE = "MessagePrefix"
_PREFIXES = {
    "v4 v6": layouts.MESSAGE_PREFIX_V4V6,
    "v6 v4": layouts.MESSAGE_PREFIX_V6V4,
    "v6 v6": layouts.MESSAGE_PREFIX_V6V6,
}


def store_page() -> Page:
    """Return the page of all files in a store."""
    sections: list[Section] = []
    for part in PARTS:
        blocks = (*part.says, *_tables(part), *part.below)
        if part.title:
            sections.append(Section(part.title, blocks, part.inner))
        else:
            last = sections.pop()
            sections.append(Section(last.title, (*last.blocks, *blocks), last.inner))
    sections.append(Section("Versions", (Text("What changed in the bytes:"), Table(("version", "change"), CHANGES))))
    sections.append(Section("See also", (see_also(f"{NAME}-dump.1", f"{NAME}-check.1", f"{NAME}-findings.7"),)))
    return Page(f"{NAME}-store", 5, "the files of an Apache RocketMQ store, byte by byte", tuple(sections))


def layouts_by_name() -> dict[str, Layout[tuple[object, ...]]]:
    """Return every fixed layout by its name; of the message prefixes that of two IPv4 hosts."""
    found = [value for value in vars(layouts).values() if isinstance(value, Layout)]
    return {**{layout.name: layout for layout in found}, _MESSAGE: layouts.MESSAGE_PREFIX_V4V4}


def _tables(part: Part) -> Iterator[Block]:
    known = layouts_by_name()
    alone = [known[name] for name in part.layouts if known[name].fields[0].name == "value"]
    if alone:
        yield Table(
            ("name", "type", "size"), tuple((one.name.lower(), one.fields[0].kind, str(one.size)) for one in alone)
        )
    for layout in (known[name] for name in part.layouts if known[name] not in alone):
        name = layout.name
        yield Text(f"`{_words(name)}`, {layout.size} bytes: {layout.doc[:1].lower()}{layout.doc[1:]}.")
        rows: list[tuple[str, ...]] = [
            (str(field.offset), str(field.size), field.kind, field.upstream_name, field.doc) for field in layout.fields
        ]
        rows += _variable_rows(name, layout.size)
        yield Table(_TITLES, tuple(rows), _NUMBERS)
        if name == _MESSAGE:
            yield Text("With IPv6 hosts (born, store) these fields are elsewhere; all others are where they were:")
            yield _moved(layout)


def _words(name: str) -> str:
    """Return the name of a layout in words."""
    return (
        re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower().replace("rocks db", "RocksDB").replace("dledger", "DLedger")
    )


def _variable_rows(name: str, size: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the fields after the fixed ones; only the first of them has a constant place."""
    from rmqtool.formats import declarations
    from tools.derive import variable_fields

    declared = {_MESSAGE: declarations.MESSAGE, "BatchItemPrefix": declarations.BATCH_ITEM}.get(name)
    for number, (length, kind, field, doc) in enumerate(variable_fields(declared) if declared else ()):
        yield ("" if number else str(size), length, kind, upstream_name(field), doc)


def _moved(usual: Layout[tuple[object, ...]]) -> Table:
    rows = []
    for field in usual.fields:
        others = [layout.field(field.name) for layout in _PREFIXES.values()]
        if any((other.offset, other.size) != (field.offset, field.size) for other in others):
            places = (f"{other.offset} ({other.size})" for other in others)
            rows.append((field.upstream_name, f"{field.offset} ({field.size})", *places))
    return Table(("field: offset (size)", "v4 v4", *_PREFIXES), tuple(rows))
