"""The work of one task: a range of a log into Parquet files. It runs in this process, a pool, or Spark's executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from rmqtool.export.choice import Choice
from rmqtool.export.parquet import PartFile, PartitionBy, PartWriter
from rmqtool.export.reading import BatchReader
from rmqtool.scan.queue_units import QueueFiles
from rmqtool.scan.ranges import Answered
from rmqtool.scan.reading import Damage, Range


class Written(NamedTuple):
    """What a task wrote, in a directory of its own beneath the staging one; where its last message ends in the log."""

    directory: str
    files: list[PartFile]
    damages: list[Damage]
    end_offset: int


@dataclass(frozen=True)
class WriteWork:
    """Writes ranges of one store. A plain value that goes to other processes.

    Each try writes into a directory of its own: one that fails, or whose answer is thrown away, leaves nothing that
    counts. ``prefix`` begins the names of the files; the place in the log follows, so names sort as the log does.
    """

    staging: str
    prefix: str
    broker: str
    choice: Choice
    queues: Sequence[QueueFiles]
    partition_by: tuple[PartitionBy, ...] = ()

    def __call__(self, asked: Range, write: Callable[[bytes], object] | None = None) -> Answered:  # noqa: ARG002
        """Write the messages of a range; the answer's ``found`` is what was ``Written``."""
        projection = self.choice.projection(self.broker, "ms")
        reader = BatchReader(asked, self.choice, projection, self.queues)
        directory = uuid4().hex
        stem = f"{self.prefix}-{asked.file.base_offset + asked.start:020}"
        root = os.path.join(self.staging, directory)
        writer = PartWriter(root, stem, projection.schema(), self.partition_by)
        damages = []
        for found in reader.pieces():
            if isinstance(found, Damage):
                damages.append(found)
            else:
                writer.write(found.batch)
                damages += [damage for _, damage in found.damages]
        written = Written(directory, writer.close(), damages, reader.end_offset)
        return Answered(reader.reader.began, reader.reader.reached, reader.left_over, written)
