"""``dump --as-declared``: a file or a record parsed by its declaration, each field with its value and meaning.

The regions of ``dump`` say where a layout begins, construct alone says what its bytes mean. So any doubt about the fast
decoders can be checked on real files. Loads construct.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rmqtool.errors import UsageError
from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats.declarations import FIXED, LAYOUTS, ParsedField, parse_fields
from rmqtool.formats.layout import LayoutError
from rmqtool.formats.paths import FileKind
from rmqtool.look.dump import Target, open_target
from rmqtool.look.regions import Region

_LOG = {"record": "MessageRecord", "blank": "BlankRecord"}
_BATCH_QUEUE = {"unit": "BatchConsumeQueueUnit"}
# Kind of file -> kind of region -> name of the layout.
_LAYOUTS: dict[FileKind, dict[str, str]] = {
    FileKind.COMMIT_LOG: _LOG,
    FileKind.COMPACTION_LOG: _LOG,
    FileKind.TIER_LOG: _LOG,
    FileKind.DLEDGER_DATA: {"record": "MessageRecord", "entry": "DLedgerEntryHead"},
    FileKind.DLEDGER_INDEX: {"entry": "DLedgerIndexUnit"},
    FileKind.CONSUME_QUEUE: {"unit": "ConsumeQueueUnit"},
    FileKind.TIER_QUEUE: {"unit": "ConsumeQueueUnit"},
    FileKind.CONSUME_QUEUE_EXT: {"unit": "ConsumeQueueExtUnit"},
    FileKind.BATCH_CONSUME_QUEUE: _BATCH_QUEUE,
    FileKind.COMPACTION_QUEUE: _BATCH_QUEUE,
    FileKind.INDEX: {"header": "IndexHeader", "slot": "IndexSlot", "entry": "IndexEntry"},
    FileKind.CHECKPOINT: {"header": "StoreCheckpoint"},
    FileKind.TIMER_CHECK: {"header": "TimerCheckpoint"},
    FileKind.TIMER_WHEEL: {"slot": "TimerSlot"},
    FileKind.TIMER_LOG: {"unit": "TimerLogUnit", "blank": "TimerLogBlank"},
}
_WITHOUT = "leave out --as-declared: dump names the bytes of every file"
_TEXT_SHOWN = 32


class Parsed(NamedTuple):
    """A span of a file, parsed by ``layout``; without a layout, bytes that no declaration describes."""

    layout: str | None
    offset: int
    length: int
    words: str
    fields: Sequence[ParsedField] = ()

    def as_json(self) -> dict[str, object]:
        """Return one object of the list ``layouts`` in docs/contract.md."""
        return {
            "layout": self.layout,
            "offset": self.offset,
            "length": self.length,
            "doc": self.words,
            "fields": [_field_json(field, self.offset) for field in self.fields],
        }

    def as_region(self) -> Region:
        """Return the span as a region, for the screen of ``dump``."""
        children = [_field_region(field, self.offset) for field in self.fields]
        kind = "layout" if self.layout else "unknown"
        return Region(self.offset, self.length, kind, self.layout or "no layout", words=self.words, children=children)


def _field_json(field: ParsedField, base: int) -> dict[str, object]:
    value = field.value.hex() if isinstance(field.value, bytes) else field.value
    said: dict[str, object] = {"fields": [_field_json(part, base) for part in field.fields]}
    return {
        "name": field.name,
        "offset": base + field.offset,
        "length": field.length,
        **(said if field.fields else {"value": value}),
        "doc": field.doc,
    }


def _field_region(field: ParsedField, base: int) -> Region:
    value: object = field.value
    if isinstance(field.value, bytes):
        more = ".." if field.length > _TEXT_SHOWN else ""
        value = field.value[:_TEXT_SHOWN].hex() + more
    children = [_field_region(part, base) for part in field.fields]
    return Region(base + field.offset, field.length, "field", field.name, value, field.doc, children=children)


class Declared(NamedTuple):
    """An opened target: its name, size and kind, and its spans as the declarations parse them."""

    head: dict[str, object]
    file: ReadableFile
    parsed: Iterator[Parsed]


@contextmanager
def open_declared(target: Target) -> Iterator[Declared]:
    """Open a target; raise UsageError if no declaration describes its file."""
    with open_target(target) as shown:
        name, size, kind, regions = shown.dump
        layouts = _LAYOUTS.get(kind)
        if layouts is None or shown.file is None:
            raise UsageError(f"no layout is declared for {name}, of the kind {kind.value!r}", hint=_WITHOUT)
        parsed: Iterator[Parsed] = (part for region in regions for part in iter_parsed(shown.file, region, layouts))
        if target.start is not None and target.end is None:
            parsed = _demand(parsed, target.start)
        yield Declared({"file": name, "size": size, "kind": kind.value}, shown.file, parsed)


def _demand(parsed: Iterator[Parsed], place: int) -> Iterator[Parsed]:
    found = list(parsed)
    if not any(part.layout for part in found):
        words = found[0].words if found else "nothing is there"
        raise UsageError(f"no layout describes the bytes at {place}: {words}", hint=_WITHOUT)
    return iter(found)


def iter_parsed(file: ReadableFile, region: Region, layouts: dict[str, str]) -> Iterator[Parsed]:
    """Yield a region of ``dump`` as declared: its layout, those inside it, and the rest of its bytes."""
    layout = layouts.get(region.kind)
    if layout is None:
        yield Parsed(None, region.offset, region.length, region.words or region.label)
        return
    declared, doc = LAYOUTS[layout]
    wanted = declared.sizeof() if layout in FIXED else region.length
    try:
        fields = parse_fields(layout, file.pread(min(wanted, region.length), region.offset))
    except LayoutError as error:
        yield Parsed(None, region.offset, region.length, error.message)
        return
    at = region.offset + fields[-1].offset + fields[-1].length
    yield Parsed(layout, region.offset, at - region.offset, doc, fields)
    for child in region.children:
        if child.kind == "record":
            yield from iter_parsed(file, child, layouts)
            at = child.end
    if at < region.end:
        yield Parsed(None, at, region.end - at, f"not part of {layout}")
