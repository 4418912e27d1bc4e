"""Regions of files of equal entries: queues, their extensions, the timer's files, index files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import consume_queue, index, layouts, timer
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer, Layout
from rmqtool.look.regions import Region, explain, field_regions, time_words
from rmqtool.store.index_files import Geometry, IndexFile, find_geometries, read_header

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
