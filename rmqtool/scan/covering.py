"""Messages of some queues of many, without reading the log through.

The units of all queues tell how the log is cut into records. Only those records are read that the wanted queues name,
and the stretches that no unit names: transactions that stand in no queue, records not dispatched yet, blanks. Queues
are not trusted: where a wanted record is not what its unit says, or units contradict each other, the log is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rmqtool.bulk.declined import Declined
from rmqtool.bulk.gather import Mask
from rmqtool.bulk.records import Records, decode_records
from rmqtool.bulk.starts import Covered, cover_with_units, record_starts
from rmqtool.errors import ReadFailed
from rmqtool.scan.columns import are_right, run_end
from rmqtool.scan.gathering import Places, gather_records, iter_batches
from rmqtool.scan.logs import LogKind
from rmqtool.scan.queue_units import QueueFiles, read_places
from rmqtool.scan.reading import Damage, Part, Range, RangeReader
from rmqtool.scan.selection import Selection
from rmqtool.storage.filesystem import ReadableFile

# Where the wanted records are more than this share of a range, reading it through is quicker.
_SHARE = 0.5
# A gap up to this size is looked at by itself.
_LARGE_GAP = 1 << 20


class CoveredReader:
    """One range of a commit log being read by way of the queues; see ``RangeReader``."""

    def __init__(
        self, asked: Range, selection: Selection, queues: Sequence[QueueFiles], *, checksums: bool = True
    ) -> None:
        self.asked = asked
        self.selection = selection
        self.queues = queues
        self.checksums = checksums
        self.began: int | None = None
        self.reached: int | None = None
        self.left_over: Damage | None = None
        # Up to here all that is wanted was given, and a record is due; and where the record before it begins.
        self._given = asked.start
        self._before = 0

    def parts(self) -> Iterator[Part | Damage]:
        """Yield the wanted messages of the range, and the damage that lies in their way."""
        base, size = self.asked.file.base_offset, self.asked.file.size
        stop = size if self.asked.stop is None else self.asked.stop
        try:
            named = read_places(self.queues, self.selection, base + self.asked.start, base + stop)
        except ReadFailed:  # the queues are a help, no more
            named = None
        if named is None:
            reader = RangeReader(self.asked, self.selection, checksums=self.checksums)
            yield from reader.parts()
            self.began, self.reached, self.left_over = reader.began, reader.reached, reader.left_over
            return
        places = Places(named.places - base, named.sizes)
        self._before = max(named.preceding - base, 0)
        if not self.asked.is_guess:
            self.began = self.asked.start
        elif len(places.sizes):
            self.began = int(places.file_offsets.min())
        if self.began is not None:
            yield from self._read(places, named.wanted, self.began, min(named.following - base, size))

    def _read(self, places: Places, wanted: Mask, begin: int, end: int) -> Iterator[Part | Damage]:
        self._given = begin
        covered = cover_with_units(*places, begin, end)
        rows = _sorted(places, wanted)
        if isinstance(covered, Declined) or rows.sizes.sum() > _SHARE * (end - begin):
            yield from self._read_through(end)
            return
        try:
            with self.asked.file.open() as file:
                yield from self._read_covered(file, covered, rows, end)
        except ReadFailed:  # the plain reader says of what
            yield from self._read_through(end)

    def _read_through(self, end: int) -> Iterator[Part | Damage]:
        """Read what is left of the range as if there were no queues.

        It begins one record early: whether what stands behind a break is stale depends on the time before it.
        """
        base, size = self.asked.file.base_offset, self.asked.file.size
        start = self._before if self._before < self._given else self._given
        selection = replace(self.selection, physical_from=max(self.selection.physical_from, base + self._given))
        asked = Range(self.asked.file, start, None if end >= size else end)
        reader = RangeReader(asked, selection, checksums=self.checksums)
        yield from reader.parts()
        self.reached, self.left_over = reader.reached, reader.left_over

    def _read_covered(self, file: ReadableFile, covered: Covered, wanted: Places, end: int) -> Iterator[Part | Damage]:
        """Yield wanted records and what stands in the gaps, in turn; read through from where something is not right."""
        gaps = zip(covered.gap_offsets.tolist(), covered.gap_lengths.tolist(), strict=True)
        row = 0
        for begin, length in (*gaps, (end, 0)):
            upto = int(np.searchsorted(wanted.file_offsets, begin))
            for rows in iter_batches(wanted.select(slice(row, upto))):
                batch = wanted.select(slice(row + rows.start, row + rows.stop))
                records = gather_records(file, self.asked.file, batch, checksums=self.checksums)
                if len(records):
                    yield from self._selected(records, None)
                    self._before = int(batch.file_offsets[len(records) - 1])
                    self._given = self._before + int(batch.sizes[len(records) - 1])
                if len(records) < len(batch.sizes):
                    yield from self._read_through(end)
                    return
            row, self._given = upto, begin
            last = int(np.searchsorted(covered.file_offsets, begin)) - 1
            self._before = int(covered.file_offsets[last]) if last >= 0 else self._before
            if length:
                found = self._gap(file, begin, length)
                if found is None:
                    yield from self._read_through(end)
                    return
                yield from self._selected(found, begin)
                self._before = begin + int(found.file_offsets[-1])
                self._given = begin + length
        self.reached = end

    def _gap(self, file: ReadableFile, begin: int, length: int) -> Records | None:
        """Return the records of a gap; None when it is large, or holds anything else than right records."""
        if length > _LARGE_GAP:
            return None
        data = file.pread_exactly(length, begin)
        records, _ = decode_records(data, record_starts(data).file_offsets)
        places = records.file_offsets + (self.asked.file.base_offset + begin)
        is_whole = run_end(records) == length and bool(are_right(records, places, checksums=self.checksums).all())
        return records if is_whole else None

    def _selected(self, records: Records, file_offset: int | None) -> Iterator[Part]:
        wanted = self.selection.select(records)
        if len(wanted):
            yield Part(wanted, self.asked.file, file_offset)


def reader_of(
    asked: Range, selection: Selection, queues: Sequence[QueueFiles], *, checksums: bool = True
) -> RangeReader | CoveredReader:
    """Return what reads a range: by way of the queues, where there are any that lead into it."""
    if queues and asked.file.kind is LogKind.COMMIT_LOG:
        return CoveredReader(asked, selection, queues, checksums=checksums)
    return RangeReader(asked, selection, checksums=checksums)


def _sorted(places: Places, wanted: Mask) -> Places:
    """Return the wanted places in the order of the file, each once."""
    offsets, first = np.unique(places.file_offsets[wanted], return_index=True)
    return Places(offsets, places.sizes[wanted][first])
