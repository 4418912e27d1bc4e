"""Records in a file of which nothing else is known: a piece of a log, a disk image, what a recovery tool left.

Nobody knows where in a log a byte of the file belongs, so records are not asked for their place. What lies between
them is no damage: it may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.bulk.records import decode_records
from rmqtool.bulk.starts import record_starts
from rmqtool.formats.commit_log import BLANK_SIZE, Message
from rmqtool.formats.flaws import Flaw
from rmqtool.scan.columns import WINDOW, Rows, are_readable, are_right, iter_runs, run_end, seen
from rmqtool.scan.logs import LogFile
from rmqtool.scan.reading import Damage, Note, Part
from rmqtool.scan.selection import Selection
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.salvaged import salvaged
from rmqtool.storage.walk import Place, SegmentWalk


def iter_carved(file: LogFile, selection: Selection) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages of a file in their order, and those between others that are damaged."""
    held = 0
    with file.open() as opened:
        size = opened.size()
        for piece in _iter_pieces(opened, size):
            if isinstance(piece, Place):
                if isinstance(piece.what, Flaw) and (piece.damaged is None or selection.may_want(piece.damaged)):
                    yield Damage(piece.what.code, file.name, piece.file_offset, piece.length, piece.what.message)
                continue
            held += int(piece.records.column("total_size").sum())
            wanted = selection.select(piece.records)
            if len(wanted):
                yield Part(wanted, file, piece.file_offset)
    yield Note(f"{held} of {size} bytes are records")


def _iter_pieces(file: ReadableFile, size: int) -> Iterator[Rows | Place]:
    file = salvaged(file)
    walk = SegmentWalk(file, None)
    start = walk.find_record(0)
    while start is not None:
        data = file.pread(min(WINDOW, size - start), start)
        records, _ = decode_records(data, record_starts(data).file_offsets)
        right = are_right(records, records.column("physical_offset")) & are_readable(file, records, start)
        for part in iter_runs(right):
            if isinstance(part, slice):
                yield Rows(records.select(part), start)
            else:
                yield seen(walk, walk.place_at(start + int(records.file_offsets[part])))
        behind = start + run_end(records)
        if not len(records):
            place = walk.place_at(start)
            behind = start + BLANK_SIZE
            if isinstance(place.what, Message):  # larger than a window
                yield seen(walk, place)
                behind = start + place.length
        start = walk.find_record(behind)
