"""Messages in another order than that of the log: by queue, by store time, a random sample, or only the last ones.

The log is read once for the *keys* of the wanted messages. A key is a row of five numbers: topic, queue, rank within
the queue (offset or time), physical offset, size. Keys are sorted, in memory or in runs on disk, and then the messages
are read in that order. Damage comes after the messages. ``iter_merged`` makes one stream, by store time, of several
logs.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import IO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rmqtool.columns.gather import Ints
from rmqtool.errors import ReadFailed
from rmqtool.log.by_queues import Places, gather_records, iter_batches, reader_of
from rmqtool.log.queue_entries import QueueFiles
from rmqtool.log.ranges import Answered, Effort, Plan, Write, nominal_ranges, run_ranges
from rmqtool.log.read import Damage, Note, Part, Range
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, OpenLogs

# Keys as the rows of a matrix of ``COLUMNS`` columns.
Keys = npt.NDArray[np.int64]

# The columns of a key.
COLUMNS = 5
TOPIC, QUEUE, RANK, PLACE, SIZE = range(COLUMNS)
# From this many keys in memory on, about 20 MiB, they are sorted and go into a run on disk.
RUN = 1 << 19
# Keys yielded at once.
_BLOCK = 4096


class KeySorter:
    """Takes keys in any order and returns them sorted: topics by name, everything else by number."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self._held: list[Keys] = []
        self._count = 0
        self._runs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()

    def add(self, topics: Sequence[str], keys: Keys) -> None:
        """Take keys whose topic column has indexes into ``topics``."""
        codes = np.array([self.topics.setdefault(topic, len(self.topics)) for topic in topics], np.int64)
        if len(keys):
            keys = keys.copy()
            keys[:, TOPIC] = codes[keys[:, TOPIC]]
            self._held.append(keys)
            self._count += len(keys)
        if self._count >= RUN:
            run = tempfile.TemporaryFile(prefix="rmqtool-keys-")  # noqa: SIM115  (closed at the end of the context)
            self._runs.append(run)
            run.write(self._take_held().data)

    def _take_held(self) -> Keys:
        """Remove the keys in memory and return them sorted."""
        keys = np.concatenate(self._held) if self._held else np.empty((0, COLUMNS), np.int64)
        self._held, self._count = [], 0
        # lexsort's last column counts first: topic, queue, rank, place.
        columns = (keys[:, PLACE], keys[:, RANK], keys[:, QUEUE], self._ranks()[keys[:, TOPIC]])
        return keys[np.lexsort(columns)]

    def _ranks(self) -> Ints:
        """Return the rank of each topic among the sorted names."""
        ranks = np.empty(len(self.topics), np.int64)
        ranks[[self.topics[name] for name in sorted(self.topics)]] = np.arange(len(self.topics))
        return ranks

    def iter_blocks(self) -> Iterator[Keys]:
        """Yield all keys in order, in blocks of a few thousand. No key can be added after that.

        Their topic column only tells topics apart: it has the rank of a topic if there are runs, else its index.
        """
        last = self._take_held()
        if not self._runs:
            yield from (last[at : at + _BLOCK] for at in range(0, len(last), _BLOCK))
            return
        ranks = self._ranks()
        runs = [_iter_rows(_iter_stored(run), ranks) for run in self._runs]
        merged = heapq.merge(*runs, _iter_rows(iter([last]), ranks))
        block: list[tuple[int, ...]] = []
        for ranked in merged:
            block.append(ranked)
            if len(block) == _BLOCK:
                yield np.array(block, np.int64)
                block.clear()
        if block:
            yield np.array(block, np.int64)


def _iter_stored(run: IO[bytes]) -> Iterator[Keys]:
    """Yield the keys of a run on disk, ``_BLOCK`` at a time."""
    run.seek(0)
    while data := run.read(_BLOCK * COLUMNS * np.dtype(np.int64).itemsize):
        yield np.frombuffer(data, np.int64).reshape(-1, COLUMNS)


def _iter_rows(blocks: Iterator[Keys], ranks: Ints) -> Iterator[tuple[int, ...]]:
    """Yield keys one by one, with ranks instead of topics."""
    for keys in blocks:
        ranked = keys.copy()
        ranked[:, TOPIC] = ranks[keys[:, TOPIC]]
        yield from map(tuple, ranked.tolist())


def iter_last_of_queues(blocks: Iterator[Keys], count: int) -> Iterator[Keys]:
    """Yield the last ``count`` keys of each queue; ``blocks`` must be sorted by queue."""
    held = np.empty((0, COLUMNS), np.int64)
    for block in blocks:
        changes = np.flatnonzero((np.diff(block[:, : QUEUE + 1], axis=0) != 0).any(axis=1)) + 1
        for of_queue in np.split(block, changes):
            if len(held) and (held[-1, : QUEUE + 1] != of_queue[0, : QUEUE + 1]).any():
                yield held
                held = held[:0]
            held = np.concatenate((held, of_queue))[-count:]
    if len(held):
        yield held


class _Head:
    """One of the logs that are merged: its messages that were read and not yielded yet."""

    def __init__(self, events: Iterator[Part | Damage | Note]) -> None:
        self._events = events
        self.part: Part | None = None
        self.times: Ints = np.zeros(0, np.int64)
        self._latest = 0

    def fill(self) -> Iterator[Damage | Note]:
        """Read on until there are messages or the log ends; yield damage and notes."""
        while self.part is None:
            event = next(self._events, None)
            if event is None:
                return
            if not isinstance(event, Part):
                yield event
            elif len(event.records):
                self.part = event
                # A clock that was set back must not change the order within a log, so times are made to rise.
                times = event.records.column("store_timestamp").astype(np.int64)
                self.times = np.maximum.accumulate(np.maximum(times, self._latest))
                self._latest = int(self.times[-1])

    def take(self, count: int) -> Part:
        """Remove and return the first ``count`` messages."""
        assert self.part is not None, "the log has ended"
        taken = self.part._replace(records=self.part.records.select(slice(count)))
        self.times = self.times[count:]
        left = self.part.records.select(slice(count, None))
        self.part = self.part._replace(records=left) if len(self.times) else None
        return taken


class FromLog(NamedTuple):
    """The next event of a merge, and the index of its log."""

    log: int
    event: Part | Damage | Note


def iter_merged(logs: Sequence[Iterator[Part | Damage | Note]]) -> Iterator[FromLog]:
    """Yield the messages of several logs by store time. At equal times the log that is listed first comes first.

    The messages of one log stay in its order, even where a clock was set back.
    """
    heads = [_Head(events) for events in logs]
    while True:
        for number, head in enumerate(heads):
            for said in head.fill():
                yield FromLog(number, said)
        alive = [number for number, head in enumerate(heads) if head.part is not None]
        if not alive:
            return
        first = min(alive, key=lambda number: (int(heads[number].times[0]), number))
        count = len(heads[first].times)
        for other in alive:
            if other != first:
                # Messages up to the other log's next one; at equal times this log goes first only
                # if it is listed first.
                until = int(heads[other].times[0]) + (first < other)
                count = min(count, int(np.searchsorted(heads[first].times, until)))
        yield FromLog(first, heads[first].take(max(count, 1)))


def find_last_place(plan: Plan, selection: Selection, count: int, effort: Effort) -> int:
    """Return the physical offset of the first of the last ``count`` messages; where the log begins if there are fewer.

    Files are read from the last one back, until they have enough messages.
    """
    left = count
    for file in reversed(plan.wanted):
        one = replace(plan, wanted=[file])
        places = np.concatenate([np.empty(0, np.int64), *_iter_places(one, selection, effort)])
        if len(places) >= left:
            return int(places[-left])
        left -= len(places)
    return min((file.base_offset for file in plan.wanted), default=0)


def _iter_places(plan: Plan, selection: Selection, effort: Effort) -> Iterator[np.ndarray]:
    """Yield the physical offsets of the wanted messages, range by range."""
    work = KeyWork(selection, Order.LOG, plan.queues)
    for answer in run_ranges(plan, nominal_ranges(plan), work, effort):
        if isinstance(answer, Answered):
            yield np.frombuffer(b"".join(answer.data), np.int64).reshape(-1, COLUMNS)[:, PLACE]


class Order(StrEnum):
    """The values of ``--order``."""

    LOG = "log"
    QUEUE = "queue"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The order of messages, and which of them: the last ``last`` of each queue (order QUEUE), or ``sample`` of all.

    With ``last``, the last messages of the wanted queues are taken first. The other conditions of the selection (time,
    tag, key, properties, body) are checked only on those, so fewer messages can remain. With ``whole_queues`` a message
    of a tier (order TIME) never comes before those that its queue has before it, if the clock was set back.
    """

    order: Order = Order.LOG
    last: int | None = None
    sample: int | None = None
    whole_queues: bool = False


class Keyed(NamedTuple):
    """The result of one range: the topics that the written keys refer to, and damage."""

    topics: list[str]
    damages: list[Damage]


@dataclass(frozen=True)
class KeyWork:
    """Makes the keys of the wanted messages of a range; see ``ranges.RangeWork``. ``found`` is a ``Keyed``."""

    selection: Selection
    order: Order
    queues: Sequence[QueueFiles]

    def __call__(self, asked: Range, write: Write) -> Answered:
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
        """Return a key for each message; its rank is the queue offset or the store time, depending on the order."""
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
        keys[:, PLACE] = records.column("physical_offset") + np.int64(part.file.shift)
        keys[:, SIZE] = records.column("total_size")
        return keys


def iter_arranged(
    plan: Plan, selection: Selection, arrangement: Arrangement, effort: Effort
) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages in their order, then the damage."""
    asked = selection if arrangement.last is None else selection.scope()
    said: list[Damage | Note] = []
    with KeySorter() as sorter:
        found = _iter_keys(plan, asked, arrangement.order, effort, said)
        if arrangement.whole_queues:
            found = _iter_rising(plan.files, found)
        for topics, keys in _sampled(found, arrangement.sample):
            sorter.add(topics, keys)
        blocks = sorter.iter_blocks()
        if arrangement.last is not None:
            blocks = iter_last_of_queues(blocks, arrangement.last)
        for part in iter_taken(plan.files, blocks):
            if isinstance(part, Part) and asked is not selection:
                part = part._replace(records=selection.select(part.records))  # noqa: PLW2901  (fewer rows)
            if not isinstance(part, Part) or len(part.records):
                yield part
    yield from said


def _iter_keys(
    plan: Plan, selection: Selection, order: Order, effort: Effort, said: list[Damage | Note]
) -> Iterator[tuple[list[str], Keys]]:
    """Yield the topics and keys of each range; damage and notes are added to ``said``."""
    ranges = nominal_ranges(plan, selection.physical_from)
    for answer in run_ranges(plan, ranges, KeyWork(selection, order, plan.queues), effort):
        if isinstance(answer, Answered):
            said += answer.found.damages
            yield answer.found.topics, np.frombuffer(b"".join(answer.data), np.int64).reshape(-1, COLUMNS)
        else:
            said.append(answer)


def _iter_rising(files: Sequence[LogFile], found: Iterator[tuple[list[str], Keys]]) -> Iterator[tuple[list[str], Keys]]:
    """Yield keys with the greatest time so far of their queue in a tier; ``found`` is in the order of the files."""
    bases = np.array([file.base_offset for file in files], np.int64)
    numbers = {
        queue: number for number, queue in enumerate(dict.fromkeys(file.tier and file.tier[:2] for file in files))
    }
    queues = np.array([numbers[file.tier and file.tier[:2]] for file in files], np.int64)
    last, greatest = -1, 0
    for topics, keys in found:
        risen = keys.copy()
        of_rows = queues[np.searchsorted(bases, keys[:, PLACE], side="right") - 1]
        for rows in np.split(np.arange(len(keys)), np.flatnonzero(np.diff(of_rows)) + 1):
            if len(rows):
                queue = int(of_rows[rows[0]])
                times = np.maximum.accumulate(keys[rows, RANK])
                risen[rows, RANK] = times if queue != last else np.maximum(times, greatest)
                last, greatest = queue, int(risen[rows[-1], RANK])
        yield topics, risen


def _sampled(found: Iterator[tuple[list[str], Keys]], size: int | None) -> Iterator[tuple[list[str], Keys]]:
    """Yield all keys, or ``size`` of them at random. The same log gives the same sample each time."""
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
        # The sample is the keys with the smallest random numbers.
        if len(kept) > size:
            best = np.argpartition(chances, size - 1)[:size]
            kept, chances = kept[best], chances[best]
    yield list(topics), kept


def iter_taken(files: Sequence[LogFile], blocks: Iterator[Keys]) -> Iterator[Part | Damage]:
    """Yield the messages of keys, in the order of the keys, and damage for each that cannot be read any more."""
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
    """Yield the records at ``places``.

    They were right when their keys were read; one that is not any more is damage.
    """
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
    """Return a record from an earlier file, or None: a later file with a wrong name can claim the same offsets."""
    for file in reversed(files):
        if place < file.end_offset:
            places = Places(np.array([place - file.base_offset]), np.array([size]))
            records = gather_records(opened.get(file), file, places)
            if len(records):
                return Part(records, file, None)
    return None
