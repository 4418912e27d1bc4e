"""Records of a file taken by their places, in any order: what queues and sorted keys lead to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints
from rmqtool.bulk.records import Records, decode_records
from rmqtool.formats.commit_log import MIN_RECORD_SIZE
from rmqtool.scan.columns import are_right
from rmqtool.scan.logs import LogFile, LogKind
from rmqtool.storage.filesystem import ReadableFile

# Records no farther apart than this are read together, the bytes between them included.
_NEAR = 4 << 10
# So much is gathered at once; one record may be larger.
MOST_BYTES = 4 << 20
MOST_ROWS = 4096


class Places(NamedTuple):
    """Where records of a file are said to lie, and how long they are said to be."""

    file_offsets: Ints
    sizes: Ints

    def select(self, rows: slice) -> Places:
        """Return some of the places."""
        return Places(self.file_offsets[rows], self.sizes[rows])


def iter_batches(places: Places) -> Iterator[slice]:
    """Yield runs of the places that are small enough to be gathered together."""
    ends = np.cumsum(places.sizes)
    at = 0
    while at < len(ends):
        before = int(ends[at - 1]) if at else 0
        by_bytes = int(np.searchsorted(ends, before + MOST_BYTES, side="right"))
        stop = max(min(at + MOST_ROWS, by_bytes), at + 1)
        yield slice(at, stop)
        at = stop


def gather_records(file: ReadableFile, log: LogFile, places: Places, *, checksums: bool = True) -> Records:
    """Return the records at ``places`` in their order, up to the first that is not right, or not as long as said."""
    fits = (places.sizes >= MIN_RECORD_SIZE) & (places.file_offsets >= 0)
    fits &= places.file_offsets + places.sizes <= file.size()
    places = places.select(slice(None if fits.all() else int(np.argmin(fits))))
    offsets = np.cumsum(places.sizes) - places.sizes
    data = bytearray(int(places.sizes.sum()))
    with memoryview(data) as view:
        begins, sizes, to = places.file_offsets.tolist(), places.sizes.tolist(), offsets.tolist()
        for rows in _spans(places):
            begin = begins[rows[0]]
            end = max(begins[row] + sizes[row] for row in rows)
            span = memoryview(file.pread_exactly(end - begin, begin))
            for row in rows:
                at, size = begins[row] - begin, sizes[row]
                view[to[row] : to[row] + size] = span[at : at + size]
    records, _ = decode_records(data, offsets)
    found = len(records)
    compacted = log.kind is LogKind.COMPACTION
    right = are_right(records, places.file_offsets[:found] + log.base_offset, checksums=checksums, compacted=compacted)
    right &= records.column("total_size") == places.sizes[:found]
    return records if right.all() else records.select(slice(int(np.argmin(right))))


def _spans(places: Places) -> Iterator[list[int]]:
    """Yield rows whose records are read together, in the order of the file."""
    order = np.argsort(places.file_offsets, kind="stable")
    begins = places.file_offsets[order]
    ends = np.maximum.accumulate(begins + places.sizes[order])
    far = np.flatnonzero(begins[1:] - ends[:-1] > _NEAR) + 1
    rows = order.tolist()
    for first, last in pairwise((0, *far.tolist(), len(rows))):
        if first < last:
            yield rows[first:last]
