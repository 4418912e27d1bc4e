"""Regions of commit log segments, compaction logs and DLedger data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import dledger, layouts
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MAGIC_WORDS, MESSAGE_MAGIC_V1, sys_flag_words
from rmqtool.formats.commit_log import BLANK_SIZE, PREFIXES, Blank, Message, Nothing, check_record
from rmqtool.formats.compression import Inflated, inflate_body
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.properties import Piece, PieceKind, iter_pieces
from rmqtool.log.walk import Place, SegmentWalk
from rmqtool.look.regions import Region, explain, field_regions

BODY_SHOWN = 64


def iter_log_regions(file: ReadableFile, base_offset: int | None, *, compacted: bool = False) -> Iterator[Region]:
    """Yield the regions of a segment whose first byte lies at ``base_offset`` of its log."""
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
        return Region(at, length, "damage", what.code, words=what.message, right=False)
    message = damaged or what
    assert isinstance(message, Message)
    data = file.pread(message.total_size, at)
    flaws = list(check_record(message, data, 0, _plus(base_offset, at), compacted=compacted))
    region = record_region(message, data, at, flaws)
    # A record whose size is wrong may reach into the next one: it ends where that begins.
    within = [child for child in region.children if child.end <= at + length]
    return region if message.total_size <= length else replace(region, length=length, children=within)


def _plus(base_offset: int | None, at: int) -> int | None:
    return None if base_offset is None else base_offset + at


def _blank_region(file: ReadableFile, at: int, length: int) -> Region:
    fields = field_regions(layouts.BLANK_RECORD, file.pread(BLANK_SIZE, at), 0, at)
    fields = explain(fields, magic=(MAGIC_WORDS[BLANK_MAGIC], True), totalSize=(None, fields[0].value == length))
    if length > BLANK_SIZE:
        fields.append(Region(at + BLANK_SIZE, length - BLANK_SIZE, "undefined", "never cleared"))
    return Region(at, length, "blank", "end of the segment", children=fields)


def record_region(message: Message, data: bytes, at: int, flaws: list[Flaw]) -> Region:
    """Return the region of a message record with a child per field."""
    host_bits = message.sys_flag & HOST_BITS
    prefix = PREFIXES[host_bits]
    wrong = {flaw.code for flaw in flaws}
    fields = explain(
        field_regions(prefix, data, 0, at),
        magic=(MAGIC_WORDS[message.magic], None),
        bodyCRC=(_flaw_words(flaws, "CL-CRC"), not any(f.code == "CL-CRC" and f.at == prefix.size for f in flaws)),
        physicalOffset=(_flaw_words(flaws, "CL-PHY"), "CL-PHY" not in wrong),
        sysFlag=(sys_flag_words(message.sys_flag), None),
    )
    fields += _variable_fields(message, prefix.size, at)
    words = f"{message.topic}/{message.queue_id} @ {message.queue_offset}"
    label = "message V1" if message.magic == MESSAGE_MAGIC_V1 else "message V2"
    return Region(at, message.total_size, "record", label, words=words, right=not flaws, children=fields)


def _flaw_words(flaws: list[Flaw], code: str) -> str | None:
    return next((flaw.message for flaw in flaws if flaw.code == code), None)


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
    """Return the region of a property block, a child per piece of it."""
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


def iter_dledger_regions(file: ReadableFile, base_offset: int) -> Iterator[Region]:
    """Yield the regions of a DLedger data file: entries, each with the record inside."""
    at, size = 0, file.size()
    while at < size:
        head_bytes = file.pread(dledger.HEAD_SIZE, at)
        head = dledger.decode_entry_head(head_bytes.ljust(dledger.HEAD_SIZE, b"\0"), 0, size - at)
        if isinstance(head, layouts.DLedgerEntryHead):
            yield _entry_region(file, head, head_bytes, at, base_offset)
            at += head.size
            continue
        if isinstance(head, Nothing):
            yield Region(at, size - at, "zeros", "nothing written")
        elif isinstance(head, Flaw):
            yield Region(at, size - at, "damage", head.code, words=head.message, right=False)
        else:
            yield Region(at, size - at, "blank", "end of the file", head.size, right=head.size == size - at)
        return


def _entry_region(
    file: ReadableFile, head: layouts.DLedgerEntryHead, head_bytes: bytes, at: int, base_offset: int
) -> Region:
    fields = field_regions(layouts.DLEDGER_ENTRY_HEAD, head_bytes, 0, at)
    fields = explain(fields, magic=(dledger.MAGIC_WORDS[head.magic], None), pos=(None, head.pos == base_offset + at))
    place = SegmentWalk(file, base_offset, end=at + head.size).place_at(at + dledger.HEAD_SIZE)
    record = place_region(file, place, base_offset)
    if record.end < at + head.size:
        record = replace(record, length=at + head.size - record.offset)
    return Region(at, head.size, "entry", f"entry {head.entry_index}", children=[*fields, record])
