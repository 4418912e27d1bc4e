"""Regions of a file from any byte on, for a reader who looks at a part of it.

``dump`` names a file from its beginning. Here the region at a byte is found first: entries have one size; a record is
found by a search for self-consistent ones, which begins a little before the byte and goes further back until it finds
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import layouts, timer
from rmqtool.formats.layout import Layout
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.log.walk import Place, SegmentWalk, find_dledger_entry, walk_dledger
from rmqtool.look import regions
from rmqtool.look.dump import dump_file
from rmqtool.look.regions import Region, iter_dledger_regions, iter_hash_regions, place_region, tile
from rmqtool.store.index_files import Geometry, open_index

# The search for a record begins this far before the wanted byte, and goes back this many times further at each try.
_FIRST_REACH = 1 << 12
_GROWTH = 16
# Bytes that a walk over a part of a log reads at once.
WINDOW = 1 << 16
_LOGS = (FileKind.COMMIT_LOG, FileKind.COMPACTION_LOG)
_UNITS: dict[FileKind, tuple[Layout[Any], str, regions.Describe]] = {
    FileKind.CONSUME_QUEUE: (layouts.CONSUME_QUEUE_UNIT, "unit", regions.describe_queue_unit),
    FileKind.BATCH_CONSUME_QUEUE: (layouts.BATCH_CONSUME_QUEUE_UNIT, "unit", regions.describe_batch_unit),
    FileKind.COMPACTION_QUEUE: (layouts.BATCH_CONSUME_QUEUE_UNIT, "unit", regions.describe_batch_unit),
    FileKind.TIMER_WHEEL: (layouts.TIMER_SLOT, "slot", regions.describe_timer_slot),
    FileKind.DLEDGER_INDEX: (layouts.DLEDGER_INDEX_UNIT, "entry", regions.describe_plain),
}
# Files of entries whose numbers go on from file to file.
_NUMBERED = (FileKind.CONSUME_QUEUE, FileKind.DLEDGER_INDEX)


def iter_regions_from(file: ReadableFile, what: StorePath, at: int, hints: Sequence[Geometry] = ()) -> Iterator[Region]:
    """Yield the regions of a file from the one with the byte at ``at`` on; they cover the rest without gaps."""
    found = _regions_from(file, what, at, hints)
    first = next(found, None)
    if first is not None:
        yield first
        yield from tile(found, file.size(), first.end)


def _regions_from(file: ReadableFile, what: StorePath, at: int, hints: Sequence[Geometry]) -> Iterator[Region]:
    if what.kind in _LOGS:
        compacted = what.kind is FileKind.COMPACTION_LOG
        places = iter_places_from(file, what, at)
        return (place_region(file, place, what.base_offset, compacted=compacted) for place in places)
    base = what.base_offset or 0
    if what.kind is FileKind.DLEDGER_DATA:
        return iter_dledger_regions(file, base, dledger_landing(file, base, at))
    if what.kind in _UNITS:
        layout, name, describe = _UNITS[what.kind]
        first = base // layout.size if what.kind in _NUMBERED else 0
        size = file.size()
        start = at - at % layout.size
        if start + layout.size > size:
            return iter([Region(start, size - start, "unknown", "shorter than an entry")] if start < size else [])
        return regions.iter_unit_regions(file, layout, name, first, describe, start)
    if what.kind is FileKind.TIMER_LOG:
        # A blank can end the file anywhere, so the entry before it leads there.
        found = regions.iter_timer_log_regions(file, at - at % timer.UNIT_SIZE)
        return (region for region in found if region.end > at)
    if what.kind is FileKind.INDEX:
        opened = open_index(file, hints)
        if opened is not None and at >= layouts.INDEX_HEADER.size:
            return iter_hash_regions(opened, at)
    return (region for region in dump_file(file, what, hints).regions if region.end > at)


def iter_places_from(file: ReadableFile, what: StorePath, at: int) -> Iterator[Place]:
    """Yield the places of a log's segment from the one with the byte at ``at`` on."""
    walk = SegmentWalk(file, what.base_offset, compacted=what.kind is FileKind.COMPACTION_LOG)
    walk.window.least = WINDOW
    return (place for place in walk.places(_landing(walk, at)) if place.file_offset + place.length > at)


def _landing(walk: SegmentWalk, at: int) -> int:
    """Return where a record begins, at ``at`` or before it; 0, where one is expected, if none does."""
    # Nothing begins in a hole.
    at = min(at, max((extent.end for extent in walk.file.iter_data(0, min(at + 1, walk.end))), default=0))
    low, high, reach = max(at - _FIRST_REACH, 0), at + 1, _FIRST_REACH
    found = walk.find_record(low, high) if low else 0
    while found is None:  # no record begins from low to high
        reach *= _GROWTH
        low, high = max(at - reach, 0), low + 1
        found = walk.find_record(low, high) if low else 0
    # The search went far back over bytes without a record: come closer to their beginning.
    while high - low > _GROWTH * _FIRST_REACH:
        middle = (low + high) // 2
        later = walk.find_record(middle, high)
        if later is None:
            high = middle + 1
        else:
            low, found = middle, later
    return found


def iter_dledger_places_from(file: ReadableFile, base_offset: int, at: int) -> Iterator[Place]:
    """Yield the records in a DLedger data file from the entry with the byte at ``at`` on, and what ends the file."""
    for entry in walk_dledger(file, base_offset, dledger_landing(file, base_offset, at)):
        if entry.file_offset + entry.length > at:
            yield entry.record


def dledger_landing(file: ReadableFile, base_offset: int, at: int) -> int:
    """Return where an entry begins, at ``at`` or before it; 0 if none does."""
    reach = _FIRST_REACH
    while reach < at:
        found = find_dledger_entry(file, base_offset, at - reach)
        if found <= at:
            return found
        reach *= _GROWTH
    return 0
