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
from rmqtool.formats import checkpoints, consume_queue, control_texts, dledger, index, layouts, timer
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MAGIC_WORDS, MESSAGE_MAGIC_V1, sys_flag_words
from rmqtool.formats.commit_log import BLANK_SIZE, PREFIXES, Blank, Message, Nothing, check_record
from rmqtool.formats.compression import Inflated, inflate_body
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.hosts import format_address
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import Buffer, Field, Layout
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.formats.properties import Piece, PieceKind, iter_pieces
from rmqtool.log.walk import Place, SegmentWalk
from rmqtool.store.index_files import Geometry, IndexFile, find_geometries, read_header

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
        return Region(at, length, "damage", what.code, words=what.message, right=False)
    message = damaged or what
    assert isinstance(message, Message)
    data = file.pread(message.total_size, at)
    flaws = list(check_record(message, data, 0, _plus(base_offset, at), compacted=compacted))
    region = record_region(message, data, at, flaws)
    # A record with a wrong size may reach into the next one, so it is cut where that begins.
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
    """Return the region of a message record, with a region for each field."""
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


_PIECE = 1 << 18
_ZEROS = bytes(_PIECE)


def iter_runs(file: ReadableFile, start: int, end: int, unit: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield offset, length and bytes of runs of entries; for a run of zero entries, None instead of bytes.

    ``unit`` is the size of an entry. Adjacent zero runs are one. A rest shorter than an entry is ignored; holes are not
    read.
    """
    end -= (end - start) % unit
    zeros_from = at = start
    for at, data in _iter_pieces(file, start, end, unit):
        for offset, run in _split_zeros(data, unit):
            if at + offset > zeros_from:
                yield zeros_from, at + offset - zeros_from, None
            yield at + offset, len(run), run
            zeros_from = at + offset + len(run)
    if zeros_from < end:
        yield zeros_from, end - zeros_from, None


def _iter_pieces(file: ReadableFile, start: int, end: int, unit: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of pieces of whole entries that are not all zero."""
    piece_size = _PIECE - _PIECE % unit
    at = start
    for extent in file.iter_data(start, end):
        at = max(at, extent.file_offset - (extent.file_offset - start) % unit)
        while at < min(extent.end, end):
            data = file.pread(min(piece_size, end - at), at)
            if data != _ZEROS[: len(data)]:
                yield at, data
            at += piece_size


def _split_zeros(data: bytes, unit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the runs of entries that are not zero."""
    at = 0
    while at < len(data):
        rest = data[at:].lstrip(b"\0")
        if not rest:
            return
        first = (len(data) - len(rest)) // unit * unit
        at = _zero_unit(data, first, unit)
        yield first, data[first:at]


def _zero_unit(data: bytes, start: int, unit: int) -> int:
    """Return the offset of the first zero entry from ``start`` on, or the end."""
    zero = bytes(unit)
    at = data.find(zero, start)
    while at >= 0:
        aligned = at + -(at - start) % unit
        if data[aligned : aligned + unit] == zero:
            return aligned
        at = data.find(zero, aligned)
    return len(data)


def unit_region(layout: Layout[Any], data: Buffer, at: int, base: int, kind: str, label: str) -> Region:
    """Return the region of the entry at ``at`` of ``data``."""
    return Region(base + at, layout.size, kind, label, children=field_regions(layout, data, at, base))


Describe = Callable[[Any, int, Region], Region]


def iter_unit_regions(
    file: ReadableFile, layout: Layout[Any], kind: str, number_from: int, describe: Describe, start: int = 0
) -> Iterator[Region]:
    """Yield the regions of a file of entries from ``start``, where one begins.

    ``describe`` adds words and check marks to each.
    """
    size = file.size()
    at_end = start
    for at, length, data in iter_runs(file, start, size, layout.size):
        first = number_from + at // layout.size
        at_end = at + length
        if data is None:
            last = first + length // layout.size - 1
            yield Region(at, length, "zeros", f"{kind}s {first} to {last}, not written")
            continue
        for number in range(length // layout.size):
            region = unit_region(layout, data, number * layout.size, at, kind, f"{kind} {first + number}")
            yield describe(layout.decode(data, number * layout.size), first + number, region)
    if at_end < size:
        yield Region(at_end, size - at_end, "unknown", "shorter than an entry")


def _replace(region: Region, words: str | None, right: bool | None, children: list[Region]) -> Region:
    return Region(region.offset, region.length, region.kind, region.label, None, words, right, children)


def describe_queue_unit(unit: layouts.ConsumeQueueUnit, _number: int, region: Region) -> Region:
    """Mark fillers, extension addresses and invalid entries."""
    tags = None
    if consume_queue.is_ext_address(unit.tags_code):
        tags = f"extension entry at {consume_queue.ext_offset(unit.tags_code)}"
    elif time_words(unit.tags_code) and unit.tags_code > 1 << 40:
        tags = f"delivery time {time_words(unit.tags_code)}"
    words = "filler: its message is gone" if consume_queue.is_filler(unit) else None
    children = explain(region.children, tagsCode=(tags, None))
    return _replace(region, words, consume_queue.is_written(unit), children)


def describe_batch_unit(unit: layouts.BatchConsumeQueueUnit, _number: int, region: Region) -> Region:
    """Add the range of queue offsets; mark the end of a sparse file."""
    if unit == consume_queue.SPARSE_END:
        return _replace(region, "end of the file", None, list(region.children))
    words = f"queue offsets {unit.msg_base_offset} to {unit.msg_base_offset + unit.batch_size - 1}"
    return _replace(region, words, consume_queue.is_batch_written(unit), list(region.children))


def describe_timer_slot(slot: layouts.TimerSlot, _number: int, region: Region) -> Region:
    """Add the delivery time of a slot."""
    words = time_words(slot.time * 1000)
    return _replace(region, words, None, list(region.children))


def describe_plain(_unit: Any, _number: int, region: Region) -> Region:
    """Return the region unchanged."""
    return region


def iter_timer_log_regions(file: ReadableFile, start: int = 0) -> Iterator[Region]:
    size, at = file.size(), start
    while at < size:
        data = file.pread(timer.UNIT_SIZE, at)
        found = timer.decode_timer_unit(data)
        if isinstance(found, layouts.TimerLogUnit):
            region = unit_region(layouts.TIMER_LOG_UNIT, data, 0, at, "unit", f"timer log entry at {at}")
            words = f"due {time_words(found.write_time + found.delay)}"
            magic = timer.timer_magic_words(found.magic)
            yield _replace(region, words, None, explain(region.children, magic=(magic, None)))
            at += timer.UNIT_SIZE
            continue
        yield _timer_rest(data, found, at, size)
        return


def _timer_rest(data: bytes, found: layouts.TimerLogBlank | Nothing | Flaw, at: int, size: int) -> Region:
    if isinstance(found, layouts.TimerLogBlank):
        fields = field_regions(layouts.TIMER_LOG_BLANK, data, 0, at)
        if size - at > timer.BLANK_SIZE:
            rest = at + timer.BLANK_SIZE
            fields.append(Region(rest, size - rest, "undefined", "never cleared"))
        return Region(at, size - at, "blank", "end of the file", children=fields)
    if isinstance(found, Flaw):
        return Region(at, size - at, "damage", found.code, words=found.message, right=False)
    return Region(at, size - at, "zeros", "nothing written")


def iter_ext_regions(file: ReadableFile) -> Iterator[Region]:
    size, at = file.size(), 0
    data = file.pread(size, 0)
    while at < size:
        found = consume_queue.decode_ext_unit(data, at)
        if isinstance(found, consume_queue.ConsumeQueueExtUnit):
            fields = field_regions(layouts.CONSUME_QUEUE_EXT_HEAD, data, at, 0)
            if found.bit_map:
                bit_map_at = at + found.size - len(found.bit_map)
                fields.append(Region(bit_map_at, len(found.bit_map), "field", "filterBitMap", found.bit_map.hex()))
            yield Region(at, found.size, "unit", f"extension entry at {at}", children=fields)
            at += found.size
            continue
        if isinstance(found, Flaw):
            yield Region(at, size - at, "damage", found.code, words=found.message, right=False)
        elif found.marked:
            yield Region(at, size - at, "blank", "end of the file")
        else:
            yield Region(at, size - at, "zeros", "nothing written")
        return


def iter_index_regions(file: ReadableFile, hints: Sequence[Geometry] = ()) -> Iterator[Region]:
    """Yield the regions of an index file: header, slots, entries."""
    size = file.size()
    header = read_header(file)
    if header is None:
        yield Region(0, size, "damage", "IX-HEAD", words="shorter than a header", right=False)
        return
    geometries = find_geometries(file, header, hints)
    yield _index_header_region(file, geometries)
    if not geometries:
        text = "index file has an impossible header or size: no number of slots and entries fits it"
        if size > index.HEADER_SIZE:
            yield Region(index.HEADER_SIZE, size - index.HEADER_SIZE, "damage", "IX-HEAD", words=text, right=False)
        return
    yield from iter_hash_regions(IndexFile(file, geometries[0], header), index.HEADER_SIZE)


def iter_hash_regions(opened: IndexFile, start: int) -> Iterator[Region]:
    """Yield the regions of slots and entries from the one at ``start`` on."""
    entries_at = index.entry_offset(opened.geometry.slots, 0)
    if start < entries_at:
        yield from _slot_regions(opened, start - (start - index.HEADER_SIZE) % index.SLOT_SIZE)
    yield from _entry_regions(opened, max(start - (start - entries_at) % index.ENTRY_SIZE, entries_at))


def _index_header_region(file: ReadableFile, geometries: Sequence[Geometry]) -> Region:
    data = file.pread(index.HEADER_SIZE, 0)
    fields = field_regions(layouts.INDEX_HEADER, data, 0, 0)
    words = " or ".join(f"{slots} slots, {entries} entries" for slots, entries in geometries[:3])
    fields = explain(fields, indexCount=(f"{max(fields[-1].value - 1, 0)} entries", None))
    return Region(0, index.HEADER_SIZE, "header", "index header", words=words or None, children=fields)


def _slot_regions(opened: IndexFile, start: int) -> Iterator[Region]:
    slots = opened.geometry.slots
    end = index.slot_offset(slots)
    for at, length, data in iter_runs(opened.file, start, end, index.SLOT_SIZE):
        first = (at - index.HEADER_SIZE) // index.SLOT_SIZE
        if data is None:
            last = first + length // index.SLOT_SIZE - 1
            yield Region(at, length, "zeros", f"slots {first} to {last}, empty")
            continue
        for number, (newest,) in enumerate(layouts.INDEX_SLOT.packer.iter_unpack(data)):
            right = 0 <= newest < opened.next_index_no
            place = at + number * index.SLOT_SIZE
            yield Region(place, index.SLOT_SIZE, "slot", f"slot {first + number}", newest, right=right)


def _entry_regions(opened: IndexFile, start: int) -> Iterator[Region]:
    zero = index.entry_offset(opened.geometry.slots, 0)
    for at, length, data in iter_runs(opened.file, start, opened.file.size(), index.ENTRY_SIZE):
        first = (at - zero) // index.ENTRY_SIZE
        if data is None:
            last = first + length // index.ENTRY_SIZE - 1
            yield Region(at, length, "zeros", f"entries {first} to {last}, not written")
            continue
        for number in range(length // index.ENTRY_SIZE):
            yield _index_entry_region(opened, data, number * index.ENTRY_SIZE, at, first + number)


def _index_entry_region(opened: IndexFile, data: bytes, at: int, base: int, index_no: int) -> Region:
    region = unit_region(layouts.INDEX_ENTRY, data, at, base, "entry", f"entry {index_no}")
    entry = layouts.INDEX_ENTRY.decode(data, at)
    slot = f"slot {index.slot_of(entry.key_hash, opened.geometry.slots)}" if entry.key_hash >= 0 else None
    children = explain(
        region.children,
        keyHash=(slot, entry.key_hash >= 0),
        prevIndex=(None, 0 <= entry.prev_index < index_no),
        timeDiff=(None, entry.time_diff >= 0),
    )
    written = index_no < opened.next_index_no
    words = None if written else "after the last entry that the header counts"
    return Region(region.offset, region.length, "entry", region.label, words=words, children=children)
