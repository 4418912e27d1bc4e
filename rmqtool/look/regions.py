"""Regions: the bytes of a file, named. The top regions of a file tile it; children lie within their parent, sorted.

Regions of small files: checkpoints, markers, configuration, states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rmqtool.formats import checkpoints, control_texts, layouts
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.hosts import format_address
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import Buffer, Field, Layout
from rmqtool.formats.paths import FileKind, StorePath

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
            yield Region(at, region.offset - at, "unknown", "unused bytes")
        yield region
        at = region.end
    if at < size:
        yield Region(at, size - at, "unknown", "unused bytes")


TEXT_SHOWN = 4096


def iter_page_regions(data: bytes, layout: Layout[Any], label: str) -> Iterator[Region]:
    """Yield the regions of a page: its fields, then the zeros that fill it."""
    if len(data) < layout.size:
        yield Region(0, len(data), "damage", "CP-BAD", words=f"{len(data)} bytes hold no {label}", right=False)
        return
    yield Region(0, layout.size, "header", label, children=field_regions(layout, data, 0, 0))
    at = layout.size
    rest = data[at:]
    written = len(rest) - len(rest.lstrip(b"\0")) if rest.strip(b"\0") else len(rest)
    if written:
        yield Region(at, written, "zeros", "not used")
    if written < len(rest):
        yield Region(at + written, len(rest) - written, "unknown", "bytes after the last field", right=False)
    if len(data) > checkpoints.PAGE_SIZE:
        return


def text_region(what: StorePath, data: bytes) -> Region:
    """Return the one region of a text file: its value, or why it has none."""
    decoded = _decode(what, data)
    if isinstance(decoded, Flaw):
        shown = decode_text(data[:TEXT_SHOWN])
        return Region(0, len(data), "damage", decoded.code, shown, decoded.message, right=False)
    return Region(0, len(data), "text", what.kind.value, decoded)


def _decode(what: StorePath, data: bytes) -> Any:
    if what.kind is FileKind.CONFIG and what.name is not None:
        config = decode_config(what.name, data)
        return config if isinstance(config, Flaw) else config.value
    if what.kind is FileKind.COMPACTION_POSITION:
        config = decode_config("position-checkpoint", data)
        return config if isinstance(config, Flaw) else config.value
    if what.kind is FileKind.DLEDGER_STATE and what.name is not None:
        return control_texts.decode_dledger_state(what.name, data)
    if what.kind is FileKind.LOCK:
        return control_texts.check_lock(data) or decode_text(data)
    decoders: dict[FileKind, Callable[[bytes], Any]] = {
        FileKind.ABORT: control_texts.decode_abort,
        FileKind.EPOCH: control_texts.decode_epoch_file,
        FileKind.BROKER_IDENTITY: control_texts.decode_broker_identity,
    }
    decoded = decoders[what.kind](data)
    return decoded if isinstance(decoded, Flaw) else _plain(decoded._asdict())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part._asdict() if hasattr(part, "_asdict") else part) for part in value]
    return value


def iter_checkpoint_regions(data: bytes) -> Iterator[Region]:
    """Yield the regions of ``checkpoint``."""
    return iter_page_regions(data, layouts.STORE_CHECKPOINT, "checkpoint")


def iter_timer_check_regions(data: bytes) -> Iterator[Region]:
    """Yield the regions of ``timercheck``."""
    return iter_page_regions(data, layouts.TIMER_CHECKPOINT, "timer checkpoint")
