"""Regions: the bytes of every kind of file, named.

The top regions of a file cover it without gaps; the regions inside a region are sorted. Each has a kind, a label, a
value where it is a field, the value in words, and, where something can be computed, whether it is right. Bytes that
belong to no known structure are regions of the kind ``unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import checkpoints, control_texts, dledger, layouts
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MAGIC_WORDS, MESSAGE_MAGIC_V1, sys_flag_words
from rmqtool.formats.commit_log import (
    BLANK_SIZE,
    MIN_RECORD_SIZE,
    PREFIXES,
    Blank,
    Message,
    Nothing,
    check_record,
    iter_odd_fields,
)
from rmqtool.formats.compression import Inflated, inflate_body
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.hosts import format_address
from rmqtool.formats.java import crc31, decode_text
from rmqtool.formats.layout import Buffer, Field, Layout
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.formats.properties import Piece, PieceKind, find_property_crc, iter_pieces
from rmqtool.log.walk import Place, SegmentWalk
from rmqtool.look.suspects import (
    MOST_TRIED,
    SUSPECT,
    Suspect,
    find_foreign,
    find_in_checksum,
    find_suspects,
    find_wrong_field,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = 253_402_300_799_999  # the last millisecond of the year 9999


@dataclass(frozen=True, slots=True)
class Region:
    """A span of a file: kind, label, value, value in words, and whether a computed check agrees."""

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
        """The file offset after the region."""
        return self.offset + self.length

    def as_json(self) -> dict[str, object]:
        """Return the Region object of docs/contract.md."""
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
    """Return a time in ISO form; None for zero and for times beyond the calendar."""
    if not 0 < time_ms <= _LAST_TIME:
        return None
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def field_regions(layout: Layout[Any], data: Buffer, at: int, base: int) -> list[Region]:
    """Return a region for each field of the layout at ``at`` of ``data``; ``base`` is the file offset of ``data``."""
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
    """Return ``regions`` with words and check marks for the fields that the keywords name, in upstream's spelling."""
    return [
        replace(region, words=told[region.label][0] or region.words, right=told[region.label][1])
        if region.label in told
        else region
        for region in regions
    ]


def tile(regions: Iterable[Region], size: int, start: int = 0) -> Iterator[Region]:
    """Yield ``regions``, and a region ``unknown`` for each span from ``start`` on that none of them covers."""
    at = start
    for region in regions:
        if region.offset > at:
            yield Region(at, region.offset - at, "unknown", "unused bytes")
        yield region
        at = region.end
    if at < size:
        yield Region(at, size - at, "unknown", "unused bytes")


# Bytes of a damaged text that its region shows.
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
    """Return the one region of a text file: its value, or a damage."""
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
    return iter_page_regions(data, layouts.STORE_CHECKPOINT, "checkpoint")


def iter_timer_check_regions(data: bytes) -> Iterator[Region]:
    return iter_page_regions(data, layouts.TIMER_CHECKPOINT, "timer checkpoint")


# Characters of a body that its region shows.
BODY_SHOWN = 64


def iter_log_regions(file: ReadableFile, base_offset: int | None, *, compacted: bool = False) -> Iterator[Region]:
    """Yield the regions of a segment; ``base_offset`` is the physical offset of its first byte."""
    walk = SegmentWalk(file, base_offset, compacted=compacted)
    for place in walk.places():
        yield place_region(file, place, base_offset, compacted=compacted)


def place_region(file: ReadableFile, place: Place, base_offset: int | None, *, compacted: bool = False) -> Region:
    """Return the region of one place of a walk."""
    at, length, what, damaged = place
    if isinstance(what, Nothing):
        return Region(at, length, "zeros", "nothing written")
    if isinstance(what, Blank):
        return _blank_region(file, at, length)
    if isinstance(what, Flaw) and damaged is None:
        children = _damaged_fields(file.pread(min(length, MOST_TRIED + 1), at), at, _plus(base_offset, at))
        return Region(at, length, "damage", what.code, None, what.message, False, children)
    message = damaged or what
    assert isinstance(message, Message)
    data = file.pread(message.total_size, at)
    flaws = list(check_record(message, data, 0, _plus(base_offset, at), compacted=compacted))
    region = record_region(message, data, at, flaws)
    # A record with a wrong size may reach into the next one, so it is cut where that begins.
    within = [child for child in region.children if child.end <= at + length]
    return region if message.total_size <= length else replace(region, length=length, children=within)


def _damaged_fields(data: bytes, at: int, physical_offset: int | None) -> list[Region]:
    """Return the fields of what is not a whole record, if a record begins there; else what does not belong there."""
    wrong = find_wrong_field(data, physical_offset)
    if wrong is not None:
        fields = record_region(wrong.message, wrong.data, at, []).children
        return [
            replace(one, value=wrong.stored, words=wrong.words, right=False) if one.label == wrong.name else one
            for one in fields
        ]
    foreign = find_foreign(data, at)
    fields = []
    if len(data) >= layouts.MESSAGE_PREFIX_V6V6.size:
        values = layouts.MESSAGE_PREFIX_V4V4.decode(data)
        is_own = physical_offset is not None and values.physical_offset == physical_offset
        if is_own or values.magic in MAGIC_WORDS:
            # A smaller size can be right: then another damaged record follows.
            fits = MIN_RECORD_SIZE <= values.total_size <= len(data) or len(data) > MOST_TRIED
            fields = explain(
                field_regions(PREFIXES[values.sys_flag & HOST_BITS], data, 0, at),
                totalSize=(None if fits else f"the next record begins {len(data)} bytes on", None if fits else False),
                magic=(MAGIC_WORDS.get(values.magic), values.magic in MAGIC_WORDS),
                physicalOffset=(None, is_own if physical_offset is not None else None),
            )
    # The fields before the first bytes that do not belong there.
    end = at + min((one.at for one in foreign), default=len(data))
    return [one for one in fields if one.end <= end] + [
        Region(at + one.at, one.length, SUSPECT, SUSPECT, words=one.words, right=False) for one in foreign
    ]


def _plus(base_offset: int | None, at: int) -> int | None:
    return None if base_offset is None else base_offset + at


def _blank_region(file: ReadableFile, at: int, length: int) -> Region:
    fields = field_regions(layouts.BLANK_RECORD, file.pread(BLANK_SIZE, at), 0, at)
    fields = explain(fields, magic=(MAGIC_WORDS[BLANK_MAGIC], True), totalSize=(None, fields[0].value == length))
    if length > BLANK_SIZE:
        fields.append(Region(at + BLANK_SIZE, length - BLANK_SIZE, "undefined", "never cleared"))
    return Region(at, length, "blank", "end of the segment", children=fields)


def record_region(message: Message, data: bytes, at: int, flaws: list[Flaw]) -> Region:
    """Return the region of a message record, with a region for each field."""
    host_bits = message.sys_flag & HOST_BITS
    prefix = PREFIXES[host_bits]
    codes = {flaw.code for flaw in flaws}
    sums = [flaw for flaw in flaws if flaw.code == "CL-CRC"]
    body_flaw = next((flaw for flaw in sums if flaw.at == prefix.size), None)
    in_sum = body_flaw and find_in_checksum(message.raw_body, layouts.INT.pack(message.body_crc))
    fields = explain(
        field_regions(prefix, data, 0, at),
        magic=(MAGIC_WORDS[message.magic], None),
        bodyCRC=(_sum_words(message, at + prefix.size, in_sum) if body_flaw else None, not body_flaw),
        physicalOffset=(next((flaw.message for flaw in flaws if flaw.code == "CL-PHY"), None), "CL-PHY" not in codes),
        sysFlag=(sys_flag_words(message.sys_flag), None),
    )
    odd = {prefix.field(name).upstream_name: text for name, text in iter_odd_fields(message)}
    fields = [replace(one, words=odd[one.label], right=False) if one.label in odd else one for one in fields]
    fields += _variable_fields(message, prefix.size, at)
    if body_flaw is not None and not in_sum:
        fields = [_changed_body(field, message) if field.label == "body" else field for field in fields]
    elif sums and not in_sum:
        fields = _changed_record(fields, data, at, sums[0])
    words = f"{message.topic}/{message.queue_id} @ {message.queue_offset}"
    label = "message V1" if message.magic == MESSAGE_MAGIC_V1 else "message V2"
    return Region(at, message.total_size, "record", label, words=words, right=not flaws and not odd, children=fields)


def _sum_words(message: Message, at: int, in_sum: str | None) -> str:
    """Return what a wrong checksum of a body tells; ``in_sum`` is the byte of the checksum that explains it."""
    return f"the body gives {crc31(message.raw_body):#010x}: {in_sum or _covered(at, len(message.raw_body))}"


def _covered(at: int, length: int) -> str:
    """Return what a wrong checksum of bytes at a file offset tells."""
    return (
        f"some of the {length} bytes {at} to {at + length - 1} changed, or the checksum itself;"
        " a checksum does not tell which"
    )


def _changed_body(body: Region, message: Message) -> Region:
    """Return the region of a body with a wrong checksum, with regions for the bytes that are known to have changed."""
    found = find_suspects(message.raw_body, message.body_crc, body.offset)
    inside = [Region(body.offset + one.at, one.length, SUSPECT, SUSPECT, None, one.words, False) for one in found]
    return replace(body, right=False, children=inside)


def _changed_record(fields: list[Region], data: bytes, at: int, flaw: Flaw) -> list[Region]:
    """Return the fields of a record with a wrong property checksum, those marked that are known to have changed."""
    stored = find_property_crc(data[flaw.at :])
    found = find_suspects(data[: flaw.at], stored.value, at) if stored else []
    marked = [_marked(field, found, at) for field in fields]
    words = f"{flaw.message}: {_covered(at, flaw.at)}"
    *others, last = marked
    pieces = [replace(one, words=words, right=False) if one.offset >= at + flaw.at else one for one in last.children]
    return [*others, replace(last, children=pieces)]


def _marked(region: Region, suspects: Sequence[Suspect], base: int) -> Region:
    """Return a region marked as wrong, where it or a region inside it has the first byte of a suspect."""
    here = next((one for one in suspects if region.offset <= base + one.at < region.end), None)
    if here is None:
        return region
    if region.children:
        return replace(region, children=[_marked(child, suspects, base) for child in region.children])
    where = f"byte {here.at + base - region.offset} of it {here.words}" if region.length > here.length else here.words
    return replace(region, words=where, right=False)


def _variable_fields(message: Message, body_offset: int, base: int) -> Iterator[Region]:
    at = base + body_offset
    body = message.raw_body
    if body:
        yield _body_region(message, at)
        at += len(body)
    length_size = 1 if message.magic == MESSAGE_MAGIC_V1 else layouts.SHORT.size
    yield Region(at, length_size, "field", "topicLength", len(message.raw_topic))
    at += length_size
    if message.raw_topic:
        yield Region(at, len(message.raw_topic), "field", "topic", message.topic)
        at += len(message.raw_topic)
    yield Region(at, layouts.SHORT.size, "field", "propertiesLength", len(message.raw_properties))
    at += layouts.SHORT.size
    if message.raw_properties:
        yield properties_region(message.raw_properties, at)


def _body_region(message: Message, at: int) -> Region:
    inflated = inflate_body(message.sys_flag, message.raw_body)
    if isinstance(inflated, Flaw):
        return Region(at, len(message.raw_body), "field", "body", words=inflated.message, right=False)
    words = _body_words(inflated)
    return Region(at, len(message.raw_body), "field", "body", words=words)


def _body_words(inflated: Inflated) -> str:
    try:
        text = inflated.body[:BODY_SHOWN].decode("utf-8")
        shown = repr(text)[1:-1] + ("…" if len(inflated.body) > BODY_SHOWN else "")
    except UnicodeDecodeError:
        shown = f"{len(inflated.body)} bytes"
    return f"{inflated.codec}, {len(inflated.body)} bytes: {shown}" if inflated.codec else shown


def properties_region(block: bytes, base: int) -> Region:
    """Return the region of a property block, with a region for each piece."""
    pieces = [
        Region(
            base + piece.name_offset,
            piece.length,
            "property",
            piece.name(block),
            piece.value(block),
            _piece_words(piece),
        )
        for piece in iter_pieces(block)
        if piece.length
    ]
    return Region(base, len(block), "field", "properties", children=pieces)


def _piece_words(piece: Piece) -> str | None:
    return None if piece.kind is PieceKind.PAIR else f"not a property: {piece.kind}"


def iter_dledger_regions(file: ReadableFile, base_offset: int, start: int = 0) -> Iterator[Region]:
    """Yield the regions of a DLedger data file from ``start``, where an entry begins; its record is inside each."""
    at, size = start, file.size()
    while at < size:
        head_bytes = file.pread(dledger.HEAD_SIZE, at)
        head = dledger.decode_entry_head(head_bytes.ljust(dledger.HEAD_SIZE, b"\0"), 0, size - at)
        if isinstance(head, layouts.DLedgerEntryHead):
            yield _dledger_entry_region(file, head, head_bytes, at, base_offset)
            at += head.size
            continue
        if isinstance(head, Nothing):
            yield Region(at, size - at, "zeros", "nothing written")
        elif isinstance(head, Flaw):
            yield Region(at, size - at, "damage", head.code, words=head.message, right=False)
        else:
            yield Region(at, size - at, "blank", "end of the file", head.size, right=head.size == size - at)
        return


def _dledger_entry_region(
    file: ReadableFile, head: layouts.DLedgerEntryHead, head_bytes: bytes, at: int, base_offset: int
) -> Region:
    fields = field_regions(layouts.DLEDGER_ENTRY_HEAD, head_bytes, 0, at)
    fields = explain(fields, magic=(dledger.MAGIC_WORDS[head.magic], None), pos=(None, head.pos == base_offset + at))
    place = SegmentWalk(file, base_offset, end=at + head.size).place_at(at + dledger.HEAD_SIZE)
    record = place_region(file, place, base_offset)
    if record.end < at + head.size:
        record = replace(record, length=at + head.size - record.offset)
    return Region(at, head.size, "entry", f"entry {head.entry_index}", children=[*fields, record])
