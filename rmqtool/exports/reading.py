"""A range of a log as Arrow batches and damage, for export and for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from socket import gethostname
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqtool.columns.batches import Projection, iter_batches
from rmqtool.columns.records import Records
from rmqtool.errors import ReadFailed, StoreError
from rmqtool.exports.choice import Choice
from rmqtool.log.by_queues import reader_of
from rmqtool.log.files import LogFile, LogKind
from rmqtool.log.queue_entries import QueueFiles, read_places
from rmqtool.log.read import Damage, Part, Range, RangeReader, SegmentScan
from rmqtool.log.select import Selection


class Messages(NamedTuple):
    """A batch of messages, and the damage of rows whose body is not inflated: they hold the stored bytes."""

    batch: pa.RecordBatch
    damages: list[tuple[int, Damage]]


def require_same_view(asked: Range) -> None:
    """Raise unless the file of a range is the same here as where the range was planned.

    A machine that does not share the disk, or holds an old copy, must not report this as damage.
    """
    file = asked.file
    hint = "every machine must have the store at this path; if its broker deleted the file, read it again"
    try:
        with file.open() as opened:
            size = opened.size()
    except ReadFailed as error:
        raise StoreError(f"{error.message} (on {gethostname()})", file=file.name, hint=hint) from error
    if size < file.size:
        text = f"{file.name} has {size} bytes on {gethostname()}, but {file.size} on the driver"
        raise StoreError(text, file=file.name, hint=hint)


class BatchReader:
    """The reader of one range; after the read ``reader`` has its real begin and end."""

    def __init__(self, asked: Range, choice: Choice, projection: Projection, queues: Sequence[QueueFiles] = ()) -> None:
        self.asked = asked
        self.choice = choice
        self.projection = projection
        self.queues = queues
        self.reader = reader_of(asked, choice.selection(), queues)
        self.end_offset = 0

    def pieces(self) -> Iterator[Messages | Damage]:
        """Yield the wanted messages in their order, and damage in its place."""
        for found in self.reader.parts():
            if isinstance(found, Damage):
                if self._counts(found):
                    yield found
                continue
            part = found._replace(records=self._bounded(found.records))
            if len(part.records):
                yield from self._spell(part)

    def check_landing(self, following: Range) -> None:
        """Raise unless this range ended where the ``following`` one begins, found by the same search.

        By induction no record is lost and none is read twice, even if the guess of a begin was wrong.
        """
        file, reached = following.file, self.reader.reached
        if self.reader.began is None or reached is None:
            return
        begins = _begin_of(following, self.choice, self.queues)
        end = file.size if following.stop is None else following.stop
        if begins is None or reached == file.size:
            landed = (begins is None and reached >= end) or (reached == file.size and not _is_record(file, begins))
        else:
            landed = reached == begins
        if not landed:
            raise StoreError(
                f"the range of {file.name} from {self.asked.start} on ends at {reached}, but the next one would begin "
                f"at {begins}: a body there contains bytes that look like a record",
                file=file.name,
                offset=begins,
                hint="read each file in one piece: with a split size of 2g",
            )

    @property
    def left_over(self) -> Damage | None:
        """Return the damage after the last record of the file, if it is within the bounds."""
        found = self.reader.left_over
        return found if found is not None and self._counts(found) else None

    def _spell(self, part: Part) -> Iterator[Messages]:
        records = part.records
        self.end_offset = int(records.column("physical_offset")[-1]) + int(records.column("total_size")[-1])
        for batch in iter_batches(records, self.projection):
            damages = [(row, part.body_damage(batch.first_row + row, flaw)) for row, flaw in batch.flaws]
            yield Messages(batch.batch, damages)

    def _counts(self, damage: Damage) -> bool:
        end = self.choice.physical_end
        return end is None or self.asked.file.base_offset + damage.file_offset < end

    def _bounded(self, records: Records) -> Records:
        """Return the records within the bounds of the choice."""
        wanted = np.ones(len(records), np.bool_)
        if self.choice.physical_end is not None:
            wanted &= records.column("physical_offset") < self.choice.physical_end
        if self.choice.end_offset is not None:
            wanted &= records.column("queue_offset") < self.choice.end_offset
        return records if wanted.all() else records.select(wanted)


def _begin_of(following: Range, choice: Choice, queues: Sequence[QueueFiles]) -> int | None:
    """Return where a reader of the range begins; None if the range has nothing for it."""
    file, start, stop, _ = following
    if queues:
        end = file.size if stop is None else stop
        named = read_places(queues, choice.selection(), file.base_offset + start, file.base_offset + end)
        if named is not None:
            return int(named.places.min()) - file.base_offset if len(named.places) else None
    with file.open() as opened:
        compacted = file.kind is LogKind.COMPACTION
        return SegmentScan(opened, file.base_offset, compacted=compacted).find_start(start, stop)


def _is_record(file: LogFile, file_offset: int | None) -> bool:
    """Return whether a sound record begins there; the blank record at the end does not count."""
    if file_offset is None:
        return False
    probe = RangeReader(Range(file, file_offset, file_offset + 1), Selection())
    return any(isinstance(found, Part) for found in probe.parts())
