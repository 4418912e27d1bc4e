"""Regions of an index file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtool.formats import index, layouts
from rmqtool.inspection.regions import Region, explain, field_regions
from rmqtool.inspection.unit_regions import iter_runs, unit_region
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.index_files import Geometry, IndexFile, find_geometries, read_header


def iter_index_regions(file: ReadableFile, hints: Sequence[Geometry] = ()) -> Iterator[Region]:
    """Yield the regions of an index file: header, slots, entries."""
    size = file.size()
    header = read_header(file)
    if header is None:
        yield Region(0, size, "damage", "IX-HEAD", words="shorter than a header", right=False)
        return
    geometries = find_geometries(file, header, hints)
    yield _header_region(file, geometries)
    if not geometries:
        text = "no number of slots and entries fits these bytes"
        if size > index.HEADER_SIZE:
            yield Region(index.HEADER_SIZE, size - index.HEADER_SIZE, "damage", "IX-HEAD", words=text, right=False)
        return
    opened = IndexFile(file, geometries[0], header)
    yield from _slot_regions(opened)
    yield from _entry_regions(opened)


def _header_region(file: ReadableFile, geometries: Sequence[Geometry]) -> Region:
    data = file.pread(index.HEADER_SIZE, 0)
    fields = field_regions(layouts.INDEX_HEADER, data, 0, 0)
    words = " or ".join(f"{slots} slots, {entries} entries" for slots, entries in geometries[:3])
    fields = explain(fields, indexCount=(f"{max(fields[-1].value - 1, 0)} entries", None))
    return Region(0, index.HEADER_SIZE, "header", "index header", words=words or None, children=fields)


def _slot_regions(opened: IndexFile) -> Iterator[Region]:
    slots = opened.geometry.slots
    end = index.slot_offset(slots)
    for at, length, data in iter_runs(opened.file, index.HEADER_SIZE, end, index.SLOT_SIZE):
        first = (at - index.HEADER_SIZE) // index.SLOT_SIZE
        if data is None:
            last = first + length // index.SLOT_SIZE - 1
            yield Region(at, length, "zeros", f"slots {first} to {last}, empty")
            continue
        for number, (newest,) in enumerate(layouts.INDEX_SLOT.packer.iter_unpack(data)):
            right = 0 <= newest < opened.next_index_no
            place = at + number * index.SLOT_SIZE
            yield Region(place, index.SLOT_SIZE, "slot", f"slot {first + number}", newest, right=right)


def _entry_regions(opened: IndexFile) -> Iterator[Region]:
    start = index.entry_offset(opened.geometry.slots, 0)
    for at, length, data in iter_runs(opened.file, start, opened.file.size(), index.ENTRY_SIZE):
        first = (at - start) // index.ENTRY_SIZE
        if data is None:
            last = first + length // index.ENTRY_SIZE - 1
            yield Region(at, length, "zeros", f"entries {first} to {last}, not written")
            continue
        for number in range(length // index.ENTRY_SIZE):
            yield _entry_region(opened, data, number * index.ENTRY_SIZE, at, first + number)


def _entry_region(opened: IndexFile, data: bytes, at: int, base: int, index_no: int) -> Region:
    region = unit_region(layouts.INDEX_ENTRY, data, at, base, "entry", f"entry {index_no}")
    entry = layouts.INDEX_ENTRY.decode(data, at)
    slot = f"slot {entry.key_hash % opened.geometry.slots}" if entry.key_hash >= 0 else None
    children = explain(
        region.children,
        keyHash=(slot, entry.key_hash >= 0),
        prevIndex=(None, 0 <= entry.prev_index < index_no),
        timeDiff=(None, entry.time_diff >= 0),
    )
    written = index_no < opened.next_index_no
    words = None if written else "behind the count of the header"
    return Region(region.offset, region.length, "entry", region.label, words=words, children=children)
