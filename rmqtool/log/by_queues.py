"""Messages of a few queues, read by way of their queue entries instead of through the whole log.

The entries of all queues say how the log is cut into records. Only two kinds of bytes are read: the records of wanted
queues, and the gaps that no entry points to (half messages, records that are not dispatched yet, blanks). Queues are
not trusted: where a record is not what its entry says, or entries contradict each other, the log is read through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.records import Records, decode_records
from rmqtool.columns.starts import Covered, Declined, cover_with_units, record_starts
from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats.commit_log import MIN_RECORD_SIZE
from rmqtool.log.queue_entries import Named, QueueFiles, read_named, read_places
from rmqtool.log.read import Damage, Part, Range, RangeReader, are_right, run_end
from rmqtool.log.select import Queue, Selection
from rmqtool.log.sources import LogFile, LogKind

# Records at most this far apart are read together, with the bytes between them.
_NEAR = 4 << 10
# Limits of the bytes and of the records gathered at once; a single record may be larger.
MOST_BYTES = 4 << 20
MOST_ROWS = 4096


class Places(NamedTuple):
    """File offsets and sizes of records, as queue entries or sorted keys give them."""

    file_offsets: Ints
    sizes: Ints

    def select(self, rows: slice) -> Places:
        return Places(self.file_offsets[rows], self.sizes[rows])


def iter_batches(places: Places) -> Iterator[slice]:
    """Yield slices of the places that are small enough to be gathered together."""
    ends = np.cumsum(places.sizes)
    at = 0
    while at < len(ends):
        before = int(ends[at - 1]) if at else 0
        by_bytes = int(np.searchsorted(ends, before + MOST_BYTES, side="right"))
        stop = max(min(at + MOST_ROWS, by_bytes), at + 1)
        yield slice(at, stop)
        at = stop


def gather_records(file: ReadableFile, log: LogFile, places: Places, *, checksums: bool = True) -> Records:
    """Return the records at ``places`` in that order, up to the first that is not right or has another size.

    Without ``checksums`` a wrong checksum does not matter. Raises ReadFailed if the file cannot be read there.
    """
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
    offsets, moved = places.file_offsets[:found] + log.record_base, log.keeps_checksums
    right = are_right(records, offsets, checksums=checksums, compacted=moved)
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


# If the wanted records are more than this share of a range, reading all of it is faster.
_SHARE = 0.5
# A range with a larger gap than this is read through, instead of by its entries.
_LARGE_GAP = 1 << 20


class CoveredReader:
    """Reads one range of a commit log by way of the queues.

    ``began``, ``reached`` and ``left_over`` have the same meaning as in ``RangeReader``.
    """

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
        # All wanted messages up to ``_given`` were yielded and a record begins there; ``_before`` is where
        # the one before begins.
        self._given = asked.start
        self._before = 0

    def parts(self) -> Iterator[Part | Damage]:
        """Yield the wanted messages of the range, and the damage that concerns them."""
        base, size = self.asked.file.base_offset, self.asked.file.size
        stop = size if self.asked.stop is None else self.asked.stop
        try:
            named = read_places(self.queues, self.selection, base + self.asked.start, base + stop)
        except ReadFailed:  # then the range is read through, without queues
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
        """Read the range by way of its entries, or through where that is faster or they contradict each other."""
        self._given = begin
        covered = cover_with_units(*places, begin, end)
        rows = _sorted(places, wanted)
        if isinstance(covered, Declined) or rows.sizes.sum() > _SHARE * (end - begin):
            yield from self._read_through(end)
            return
        try:
            with self.asked.file.open() as file:
                yield from self._read_covered(file, covered, rows, end)
        except ReadFailed:  # RangeReader will report which file
            yield from self._read_through(end)

    def _read_through(self, end: int) -> Iterator[Part | Damage]:
        """Read the rest of the range without the queues.

        It begins one record early, because a record after a break is stale if it is older than the one before.
        """
        base, size = self.asked.file.base_offset, self.asked.file.size
        start = self._before if self._before < self._given else self._given
        selection = replace(self.selection, physical_from=max(self.selection.physical_from, base + self._given))
        asked = Range(self.asked.file, start, None if end >= size else end)
        reader = RangeReader(asked, selection, checksums=self.checksums)
        yield from reader.parts()
        self.reached, self.left_over = reader.reached, reader.left_over

    def _read_covered(self, file: ReadableFile, covered: Covered, wanted: Places, end: int) -> Iterator[Part | Damage]:
        """Yield the wanted records, and in between the wanted ones in gaps that no entry covers.

        From the first entry that contradicts the log on, the range is read without entries.
        """
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
        """Return the records of a gap; None if the gap is large or contains anything but right records."""
        if length > _LARGE_GAP:
            return None
        data = file.pread_exactly(length, begin)
        records, _ = decode_records(data, record_starts(data).file_offsets)
        places = records.file_offsets + (self.asked.file.base_offset + begin)
        is_whole = run_end(records) == length and bool(are_right(records, places, checksums=self.checksums).all())
        return records if is_whole else None

    def _selected(self, records: Records, file_offset: int | None) -> Iterator[Part]:
        """Yield the wanted ones of ``records``, if there are any; ``file_offset`` is as in ``Part``."""
        wanted = self.selection.select(records)
        if len(wanted):
            yield Part(wanted, self.asked.file, file_offset)


def reader_of(
    asked: Range,
    selection: Selection,
    queues: Sequence[QueueFiles],
    *,
    checksums: bool = True,
    skims: bool = False,
) -> RangeReader | CoveredReader:
    """Return the reader for a range: by way of the queues if there are any and it is in a commit log.

    Else it is read through; only then ``skims`` has an effect.
    """
    if queues and asked.file.kind is LogKind.COMMIT_LOG:
        return CoveredReader(asked, selection, queues, checksums=checksums)
    return RangeReader(asked, selection, checksums=checksums, skims=skims)


def _sorted(places: Places, wanted: Mask) -> Places:
    """Return the wanted places in the order of the file, without duplicates."""
    offsets, first = np.unique(places.file_offsets[wanted], return_index=True)
    return Places(offsets, places.sizes[wanted][first])


def bound_by_queues(files: Sequence[LogFile], queues: Sequence[QueueFiles], selection: Selection) -> Selection:
    """Return the selection with the physical offset of the first message that it can match, as queue entries tell.

    An entry is trusted only if its record has the same queue and queue offset. The selection stays as it is if it does
    not name queues with a first offset, or if the entry of one of them is not trusted.
    """
    wanted = _wanted_offsets(queues, selection)
    if not wanted or any(_is_in_tier(file, wanted) for file in files):
        return selection
    by_queue = {(queue.queue.topic, queue.queue.queue_id): queue for queue in queues if not queue.is_batch}
    place = min(_place_of(files, by_queue.get(queue), offset) for queue, offset in wanted.items())
    return replace(selection, physical_from=max(place, selection.physical_from))


def _is_in_tier(file: LogFile, wanted: Mapping[Queue, int]) -> bool:
    """Return whether a file of a tier has messages of a wanted queue from the wanted offset on."""
    if file.tier is None:
        return False
    least, until = wanted.get(file.tier[:2]), file.tier.until
    return least is not None and (until is None or least < until)


def _wanted_offsets(queues: Sequence[QueueFiles], selection: Selection) -> dict[Queue, int]:
    """Return the first wanted offset of each wanted queue; empty if other queues may be wanted too."""
    if selection.least_offsets is not None:
        found = {queue: offset for queue, offset in selection.least_offsets.items() if selection.wants_queue(*queue)}
        others = [(queue.queue.topic, queue.queue.queue_id) for queue in queues]
        return {**dict.fromkeys((queue for queue in others if selection.wants_queue(*queue)), 0), **found}
    topic = selection.topics.exact
    if topic is None or selection.queue_id is None or not selection.least_offset:
        return {}
    return {(topic, selection.queue_id): selection.least_offset}


def _place_of(files: Sequence[LogFile], queue: QueueFiles | None, queue_offset: int) -> int:
    """Return the physical offset of a message, or of the last dispatched one before it; 0 if that is uncertain."""
    if queue is None or queue_offset <= 0:
        return 0
    try:
        named = read_named(queue, queue_offset)
        return named.place if named is not None and _is_confirmed(files, queue, named) else 0
    except ReadFailed:
        return 0


def _is_confirmed(files: Sequence[LogFile], queue: QueueFiles, named: Named) -> bool:
    """Return whether the record that an entry points to names the same queue and queue offset."""
    for file in files:
        if file.base_offset <= named.place < file.end_offset and file.kind is LogKind.COMMIT_LOG:
            places = Places(np.array([named.place - file.base_offset]), np.array([named.size]))
            with file.open() as opened:
                records = gather_records(opened, file, places)
            topics = records.topics
            found = [*topics.values, *records.column("queue_id").tolist(), *records.column("queue_offset").tolist()]
            return found == [*queue.queue, named.queue_offset]
    return False
