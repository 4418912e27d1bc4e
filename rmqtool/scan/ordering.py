"""Messages in another order than the log's: by queue, by store time, or some of them taken at random.

The log is read once for the keys of the wanted messages, which are sorted; then the messages are read in the order of
their keys. Damage that was met comes behind the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from rmqtool.errors import ReadFailed
from rmqtool.scan.chain import nominal_ranges
from rmqtool.scan.covering import reader_of
from rmqtool.scan.gathering import Places, gather_records, iter_batches
from rmqtool.scan.logs import LogFile, OpenLogs
from rmqtool.scan.plan import Plan
from rmqtool.scan.pool import Write
from rmqtool.scan.queue_units import QueueFiles
from rmqtool.scan.ranges import Answered, Effort, run_ranges
from rmqtool.scan.reading import Damage, Note, Part, Range
from rmqtool.scan.selection import Selection
from rmqtool.scan.sorting import COLUMNS, PLACE, SIZE, Keys, KeySorter, iter_last_of_queues


class Order(StrEnum):
    """The words of ``--order``."""

    LOG = "log"
    QUEUE = "queue"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """In which order messages come, and which of the wanted ones: the last ``last`` of each queue, ``sample`` of all.

    Where only the last ones of queues are taken, what is asked of a message beyond its place is asked of those.
    """

    order: Order = Order.LOG
    last: int | None = None
    sample: int | None = None


class Keyed(NamedTuple):
    """What was found in a range: the topics that the written keys name, and damage."""

    topics: list[str]
    damages: list[Damage]


@dataclass(frozen=True)
class KeyWork:
    """Reads ranges for the keys of the wanted messages."""

    selection: Selection
    order: Order
    queues: Sequence[QueueFiles]

    def __call__(self, asked: Range, write: Write) -> Answered:
        """Write the keys of a range."""
        reader = reader_of(asked, self.selection, self.queues)
        topics: dict[str, int] = {}
        damages: list[Damage] = []
        for found in reader.parts():
            if isinstance(found, Damage):
                damages.append(found)
            else:
                write(self._keys(found, topics).tobytes())
        return Answered(reader.began, reader.reached, reader.left_over, Keyed(list(topics), damages))

    def _keys(self, part: Part, topics: dict[str, int]) -> Keys:
        records = part.records
        keys = np.zeros((len(records), COLUMNS), np.int64)
        if self.order is Order.QUEUE:
            names, queue_ids, offsets = self.selection.queue_places(records)
            keys[:, 0] = names.each(lambda name: topics.setdefault(name, len(topics)), np.int64)
            keys[:, 1], keys[:, 2] = queue_ids, offsets
        else:
            topics.setdefault("", 0)
            if self.order is Order.TIME:
                keys[:, 2] = records.column("store_timestamp")
        keys[:, PLACE], keys[:, SIZE] = records.column("physical_offset"), records.column("total_size")
        return keys


def iter_arranged(
    plan: Plan, selection: Selection, arrangement: Arrangement, effort: Effort
) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages in their order, then the damage."""
    asked = selection if arrangement.last is None else selection.scope()
    said: list[Damage | Note] = []
    with KeySorter() as sorter:
        for topics, keys in _sampled(_iter_keys(plan, asked, arrangement.order, effort, said), arrangement.sample):
            sorter.add(topics, keys)
        blocks = sorter.iter_blocks()
        if arrangement.last is not None:
            blocks = iter_last_of_queues(blocks, arrangement.last)
        for part in iter_taken(plan.files, blocks):
            if isinstance(part, Part) and asked is not selection:
                part = part._replace(records=selection.select(part.records))  # noqa: PLW2901
            if not isinstance(part, Part) or len(part.records):
                yield part
    yield from said


def _iter_keys(
    plan: Plan, selection: Selection, order: Order, effort: Effort, said: list[Damage | Note]
) -> Iterator[tuple[list[str], Keys]]:
    ranges = nominal_ranges(plan, selection.physical_from)
    for answer in run_ranges(plan, ranges, KeyWork(selection, order, plan.queues), effort):
        if isinstance(answer, Answered):
            said += answer.found.damages
            yield answer.found.topics, np.frombuffer(b"".join(answer.data), np.int64).reshape(-1, COLUMNS)
        else:
            said.append(answer)


def _sampled(found: Iterator[tuple[list[str], Keys]], size: int | None) -> Iterator[tuple[list[str], Keys]]:
    """Yield the keys, or ``size`` of them, each with the same chance; the same ones every time."""
    if size is None:
        yield from found
        return
    rng = np.random.default_rng(size)
    topics: dict[str, int] = {}
    kept = np.empty((0, COLUMNS), np.int64)
    chances = np.empty(0)
    for names, keys in found:
        codes = np.array([topics.setdefault(name, len(topics)) for name in names], np.int64)
        own = keys.copy()
        if len(own):
            own[:, 0] = codes[own[:, 0]]
        kept, chances = np.concatenate((kept, own)), np.concatenate((chances, rng.random(len(own))))
        if len(kept) > size:
            best = np.argpartition(chances, size - 1)[:size]
            kept, chances = kept[best], chances[best]
    yield list(topics), kept


def iter_taken(files: Sequence[LogFile], blocks: Iterator[Keys]) -> Iterator[Part | Damage]:
    """Yield the messages that keys lead to, in the order of the keys."""
    bases = np.array([file.base_offset for file in files], np.int64)
    with OpenLogs() as opened:
        for block in blocks:
            numbers = np.searchsorted(bases, block[:, PLACE], side="right") - 1
            for rows in np.split(np.arange(len(block)), np.flatnonzero(np.diff(numbers)) + 1):
                number = int(numbers[rows[0]])
                file = files[number]
                places = Places(block[rows, PLACE] - file.base_offset, block[rows, SIZE])
                for batch in iter_batches(places):
                    try:
                        yield from _taken(opened, files, number, places.select(batch))
                    except ReadFailed as error:
                        first, last = places.file_offsets[batch].min(), places.file_offsets[batch].max()
                        yield Damage("ST-READ", file.name, int(first), int(last - first), error.message)


def _taken(opened: OpenLogs, files: Sequence[LogFile], number: int, places: Places) -> Iterator[Part | Damage]:
    """Yield records that were right a moment ago; one that is not any more is damage."""
    file = files[number]
    while len(places.sizes):
        records = gather_records(opened.get(file), file, places)
        if len(records):
            yield Part(records, file, None)
        if len(records) < len(places.sizes):
            at, size = int(places.file_offsets[len(records)]), int(places.sizes[len(records)])
            yield _taken_beneath(opened, files[:number], file.base_offset + at, size) or Damage(
                "ST-READ", file.name, at, size, "the record changed while the log was read"
            )
        places = places.select(slice(len(records) + 1, None))


def _taken_beneath(opened: OpenLogs, files: Sequence[LogFile], place: int, size: int) -> Part | None:
    """Return a record of an earlier file: the name of a later one may claim the same places."""
    for file in reversed(files):
        if place < file.end_offset:
            places = Places(np.array([place - file.base_offset]), np.array([size]))
            records = gather_records(opened.get(file), file, places)
            if len(records):
                return Part(records, file, None)
    return None
