"""Regions: the bytes of a file, named. The top regions of a file tile it; children lie within their parent, sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rmqtool.formats.hosts import format_address
from rmqtool.formats.layout import Buffer, Field, Layout

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = 253_402_300_799_999  # the last millisecond a calendar of four-digit years has


@dataclass(frozen=True, slots=True)
class Region:
    """A span of a file: what it is, its value, that value in words, and whether a computed check agrees."""

    offset: int
    length: int
    kind: str
    label: str
    value: Any = None
    words: str | None = None
    right: bool | None = None
    children: Sequence[Region] = field(default=())

    @property
    def end(self) -> int:
        """Where the next region begins."""
        return self.offset + self.length

    def as_json(self) -> dict[str, object]:
        """Return the Region object of the contract."""
        found: dict[str, object] = {
            "offset": self.offset,
            "length": self.length,
            "kind": self.kind,
            "label": self.label,
        }
        for name, value in (("value", self.value), ("words", self.words), ("right", self.right)):
            if value is not None:
                found[name] = value
        if self.children:
            found["children"] = [child.as_json() for child in self.children]
        return found


def time_words(time_ms: int) -> str | None:
    """Return a time of the store in ISO form, None for zero and for what no calendar has."""
    if not 0 < time_ms <= _LAST_TIME:
        return None
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def field_regions(layout: Layout[Any], data: Buffer, at: int, base: int) -> list[Region]:
    """Return a region per field of the unit at ``at`` of ``data``; ``base`` is where ``data`` begins in the file."""
    return [
        _field_region(part, value, base + at)
        for part, value in zip(layout.fields, layout.unpack_from(data, at), strict=True)
    ]


def _field_region(part: Field, value: Any, at: int) -> Region:
    words = None
    shown = value
    if part.kind == "bytes":
        words, shown = format_address(value), value.hex()
    elif part.kind == "u32":
        shown = f"{value:#010x}"
    elif part.kind == "i64" and "time" in part.name and part.name != "time":
        words = time_words(value)
    return Region(at + part.offset, part.size, "field", part.upstream_name, shown, words)


def explain(regions: Iterable[Region], **told: tuple[str | None, bool | None]) -> list[Region]:
    """Return ``regions`` with words and check marks for those called by the keywords (upstream's names)."""
    return [
        replace(region, words=told[region.label][0] or region.words, right=told[region.label][1])
        if region.label in told
        else region
        for region in regions
    ]


def tile(regions: Iterable[Region], size: int) -> Iterator[Region]:
    """Yield ``regions`` and a region ``unknown`` for the bytes between and behind them that nobody named."""
    at = 0
    for region in regions:
        if region.offset > at:
            yield Region(at, region.offset - at, "unknown", "bytes without a meaning")
        yield region
        at = region.end
    if at < size:
        yield Region(at, size - at, "unknown", "bytes without a meaning")
