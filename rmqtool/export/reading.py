"""A range of a log as Arrow batches and damage: what export writes and Spark is handed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqtool.bulk.batches import Projection, iter_batches
from rmqtool.bulk.records import Records
from rmqtool.export.choice import Choice
from rmqtool.scan.reading import Damage, Part, Range, RangeReader


class BatchReader:
    """One range being read; afterwards ``began``, ``reached`` and ``left_over`` are those of ``RangeReader``."""

    def __init__(self, asked: Range, choice: Choice, projection: Projection) -> None:
        self.asked = asked
        self.choice = choice
        self.projection = projection
        self.reader = RangeReader(asked, choice.selection())
        self.end_offset = 0

    def batches(self) -> Iterator[pa.RecordBatch | Damage]:
        """Yield the wanted messages in their order, and damage in its place; a body's damage behind its batch."""
        for found in self.reader.parts():
            if isinstance(found, Damage):
                if self._counts(found):
                    yield found
                continue
            part = found._replace(records=self._bounded(found.records))
            if len(part.records):
                yield from self._spell(part)

    @property
    def left_over(self) -> Damage | None:
        """What stands behind the last record of the file, when it lies within the bounds."""
        found = self.reader.left_over
        return found if found is not None and self._counts(found) else None

    def _spell(self, part: Part) -> Iterator[pa.RecordBatch | Damage]:
        records = part.records
        self.end_offset = int(records.column("physical_offset")[-1]) + int(records.column("total_size")[-1])
        for batch in iter_batches(records, self.projection):
            yield batch.batch
            for row, flaw in batch.flaws:
                yield part.body_damage(batch.first_row + row, flaw)

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
