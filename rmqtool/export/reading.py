"""A range of a log as Arrow batches and damage: what export writes and Spark is handed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqtool.bulk.batches import Projection, iter_batches
from rmqtool.bulk.records import Records
from rmqtool.errors import StoreError
from rmqtool.export.choice import Choice
from rmqtool.scan.columns import SegmentScan
from rmqtool.scan.reading import STALE, TORN, Damage, Part, Range, RangeReader
from rmqtool.scan.selection import Selection


class Messages(NamedTuple):
    """A batch of messages, and the damage of those rows whose bodies did not inflate: they hold them as stored."""

    batch: pa.RecordBatch
    damages: list[tuple[int, Damage]]


class BatchReader:
    """One range being read; afterwards ``reader`` knows where it began and ended."""

    def __init__(self, asked: Range, choice: Choice, projection: Projection) -> None:
        self.asked = asked
        self.choice = choice
        self.projection = projection
        self.reader = RangeReader(asked, choice.selection())
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

    def check_landing(self) -> None:
        """Raise unless the range ended where the one behind it begins: it is found by the same search, from ``stop``.

        By induction no record is lost and none is read twice, however wrong a guess was.
        """
        file, stop, reached = self.asked.file, self.asked.stop, self.reader.reached
        if stop is None or self.reader.began is None or reached is None:
            return
        with file.open() as opened:
            begins = SegmentScan(opened, file.base_offset).find_start(stop)
        if reached != begins and (reached < file.size or (begins is not None and self._is_record(begins))):
            raise StoreError(
                f"the range of {file.name} from {self.asked.start} on ends at {reached}, but the next one would begin "
                f"at {begins}: a body there holds what looks like a record in its place",
                file=file.name,
                offset=begins,
                hint="read each file in one piece: with a split size of 2g",
            )

    def _is_record(self, file_offset: int) -> bool:
        """Return whether a right record stands there, and not the blank at the end."""
        probe = RangeReader(Range(self.asked.file, file_offset, file_offset + 1), Selection())
        for _ in probe.parts():
            pass
        return probe.rows > 0

    @property
    def left_over(self) -> Damage | None:
        """What stands behind the last record of the file, when it lies within the bounds."""
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
        """Return the records that lie before the ends of the choice."""
        wanted = np.ones(len(records), np.bool_)
        if self.choice.physical_end is not None:
            wanted &= records.column("physical_offset") < self.choice.physical_end
        if self.choice.end_offset is not None:
            wanted &= records.column("queue_offset") < self.choice.end_offset
        return records if wanted.all() else records.select(wanted)


def is_damage(left_over: Damage, *, records_behind: bool, live: bool) -> bool:
    """Return whether what stands behind a file's last record is damage, for who has no chain of answers to judge by."""
    return records_behind or not (left_over.code == STALE or (left_over.code == TORN and live))
