"""Regions of small files: checkpoints, markers, configuration, states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rmqtool.formats import checkpoints, control_texts, layouts
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import Layout
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.inspection.regions import Region, field_regions

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
        yield Region(at + written, len(rest) - written, "unknown", "bytes behind the last field", right=False)
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
