"""The splits of an export: ranges of logs, planned before a message is read; then read, or written as Parquet.

A split is the work of one task: in this process, in a pool, or in Spark's executors. Export and Spark read it alike.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from socket import gethostname
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from rmqtool.columns.batches import Projection, iter_batches
from rmqtool.errors import ReadFailed, StoreError, UsageError, WriteFailed
from rmqtool.exports.choice import Choice, TimeUnit
from rmqtool.exports.parquet import Layout, PartFile, PartWriter
from rmqtool.files.filesystem import join, split
from rmqtool.formats.paths import segment_name
from rmqtool.log.by_queues import reader_of
from rmqtool.log.queue_entries import QueueFile, QueueFiles, read_places
from rmqtool.log.ranges import Answered, Plan, bounds_of_period, plan_ranges, range_length, read_plan
from rmqtool.log.read import Damage, Part, Range, RangeReader, SegmentScan
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, LogKind, StoreLog, broker_names, read_store_log
from rmqtool.store.listing import QueueId
from rmqtool.store.open import absolute, is_far


@dataclass(frozen=True, slots=True)
class Source:
    """One store: its broker's name, its log at the time of the plan, and the choice with this store's bounds."""

    broker: str
    log: StoreLog
    plan: Plan
    choice: Choice
    ranges: tuple[Range, ...]
    missing: Damage | None = None
    # Names the messages that are not read, if any.
    note: str | None = None

    @property
    def bytes(self) -> int:
        """The bytes of the log that are read, without the space reserved after its end."""
        end = self.log.end.physical_offset
        return sum(min(range_length(one), max(end - one.file.base_offset - one.start, 0)) for one in self.ranges)


def plan_sources(
    paths: Sequence[str], choice: Choice, starts: Mapping[str, int] | None = None, *, settled: bool = False
) -> list[Source]:
    """Plan the stores at ``paths``. ``starts`` names brokers whose log is read from the end of a record on.

    With ``settled``, and for a store that a broker is writing to, nothing after the current last record is read.
    """
    if not paths:
        raise UsageError("no store is given", hint="give the storePathRootDir of at least one broker")
    # An absolute path: tasks may run on another machine, in another directory.
    logs = [read_store_log(absolute(path)) for path in paths]
    names = broker_names(logs)
    sources = []
    for name, log in zip(names, logs, strict=True):
        if settled:
            _require_one_end(log)
        end = log.end.physical_offset if settled or log.live else None
        sources.append(plan_source(name, log, choice, (starts or {}).get(name), end))
    return sources


def _require_one_end(log: StoreLog) -> None:
    """Raise UsageError for a log that does not only grow at its end: new messages in it cannot be detected."""
    hint = "export it whole: without --since-last"
    if any(file.kind is LogKind.COMPACTION for file in log.files):
        text = f"{log.root} is a compaction log, which brokers rewrite: new messages in it cannot be detected"
        raise UsageError(text, hint=hint)
    if log.files and all(file.tier for file in log.files):
        text = f"{log.root} is a tier, in which each queue grows: new messages in it cannot be detected"
        raise UsageError(text, hint=hint)


def plan_source(broker: str, log: StoreLog, choice: Choice, start: int | None = None, end: int | None = None) -> Source:
    """Plan one store; ``start`` and ``end`` are ends of records."""
    missing = None
    files = log.files
    if any(file.tier for file in files):
        # The bounds are of offsets that records name. Each queue of a tier has its own, from 0 on.
        choice = replace(choice, physical_begin=0, physical_end=None)
    # Older messages, of a tier, can be before offset 0.
    begin = choice.physical_begin or min(files[0].base_offset if files else 0, 0)
    choice = replace(choice.at(broker), version=log.version, physical_begin=begin)
    if start is not None:
        # New messages of a tier come from the log.
        files = [file for file in files if file.end_offset > start and file.tier is None]
        choice = replace(choice, physical_begin=max(choice.physical_begin, start))
        if files and files[0].base_offset > start:
            length = files[0].base_offset - start
            text = f"{length} bytes of the log were deleted before they were read, from {start} on"
            missing = Damage("CL-GAP", files[0].name, 0, length, text)
    if end is not None:
        choice = replace(choice, physical_end=end if choice.physical_end is None else min(choice.physical_end, end))
    # Records written meanwhile are left to the next export; until then queues that lack them are not damage.
    plan = read_plan(files, choice.selection(), log.queues, live=log.live or end is not None)
    choice = _within_period(choice, plan, log)
    ranges = tuple(part for file in plan.wanted for part in _ranges(file, choice, start, log.end.physical_offset))
    # New messages are those of the log, so nothing is left out of them.
    return Source(broker, log, plan, choice, ranges, missing, log.note if start is None else None)


def _within_period(choice: Choice, plan: Plan, log: StoreLog) -> Choice:
    """Return the choice bounded to the part of the log that can have messages of its period."""
    lower, upper = bounds_of_period(plan.wanted, log.queues, choice.begin, choice.end)
    # Messages of a tier can be before offset 0, so 0 does not mean that no bound is known.
    begin = choice.physical_begin if lower is None else max(choice.physical_begin, lower)
    ends = [end for end in (choice.physical_end, upper) if end is not None]
    return replace(choice, physical_begin=begin, physical_end=min(ends, default=None))


def _ranges(file: LogFile, choice: Choice, start: int | None, log_end: int) -> Iterator[Range]:
    """Yield the ranges of a file within the bounds of the choice; ``start`` is the start of a record.

    No range begins after ``log_end``. The records there may be old ones that a recovery left, and only a reader that
    comes from the last record can tell.
    """
    begin = max(choice.physical_begin - file.base_offset, 0)
    end = file.size if choice.physical_end is None else min(choice.physical_end - file.base_offset, file.size)
    exact = start is not None and begin == start - file.base_offset
    for part in plan_ranges(file, begin, choice.split_size):
        if max(part.start, begin) >= end:
            return
        if part.start == begin and exact:
            part = part._replace(is_guess=False)  # noqa: PLW2901
        elif file.kind is LogKind.DLEDGER and exact:
            part = part._replace(start=begin)  # noqa: PLW2901
        is_last = part.stop is not None and file.base_offset + part.stop >= log_end
        if is_last:
            part = part._replace(stop=None)  # noqa: PLW2901
        cut = end < file.size and (part.stop is None or part.stop > end)
        yield part._replace(stop=end) if cut else part
        if is_last:
            return


# More bytes of queue files than this would make a plan too large for a driver: then each task lists the store.
_MOST_SHIPPED = 64 << 20
# Names of queues and sizes of files repeat: the list of 200 queues with 3,200 files takes 1.5 KB instead of 76.
_LEVEL = 1


def pack_queues(source: Source) -> bytes | None:
    """Return the queue files that the tasks of a source need, for ``unpack_queues``.

    All tasks get the same ones: in a damaged queue a search depends on the files that it has, and one task must find
    the begin of the next one where that finds it. Return None for a log that is read through, and if what is sent with
    all tasks would be too large.
    """
    queues = source.plan.queues
    if not queues:
        return None
    rows = [
        (*queue, is_batch, split(files[0].path)[0], [(file.base_offset, file.size) for file in files])
        for queue, _, files, is_batch in queues
    ]
    packed = zlib.compress(json.dumps((queues[0].directory, rows)).encode(), _LEVEL)
    return packed if len(packed) * len(source.ranges) <= _MOST_SHIPPED else None


def unpack_queues(packed: bytes) -> list[QueueFiles]:
    """Return the queues that the driver has packed. The names of their files follow from the offsets."""
    root, rows = json.loads(zlib.decompress(packed))
    return [
        QueueFiles(
            QueueId(topic, queue_id),
            root,
            tuple(QueueFile(base, size, join(above, segment_name(base))) for base, size in files),
            is_batch,
        )
        for topic, queue_id, is_batch, above, files in rows
    ]


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


def require_same_target(staging: str) -> None:
    """Raise unless the directory that tasks write to is here: the driver has made it.

    A machine that does not share the disk would make it on its own, and no other machine would find the files.
    """
    if not is_far(staging) and not os.path.isdir(staging):
        raise WriteFailed(
            f"{staging} does not exist on {gethostname()}, where a task should write to it",
            file=staging,
            hint="every machine must have the target at this path, on a disk that they share",
        )


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
            part = bounded(found, self.choice)
            if len(part.records):
                records = part.records
                place = int(records.column("physical_offset")[-1]) + self.asked.file.shift
                self.end_offset = place + int(records.column("total_size")[-1])
                yield from spelled(part, self.projection)

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

    def _counts(self, damage: Damage) -> bool:
        end = self.choice.physical_end
        return end is None or self.asked.file.base_offset + damage.file_offset < end


def bounded(part: Part, choice: Choice) -> Part:
    """Return the messages of a part that are within the bounds of the choice."""
    records = part.records
    wanted = np.ones(len(records), np.bool_)
    if choice.physical_end is not None:
        wanted &= records.column("physical_offset") + part.file.shift < choice.physical_end
    if choice.end_offset is not None:
        wanted &= records.column("queue_offset") < choice.end_offset
    for end in choice.ends:
        topics = records.topics
        if end.topic in topics.values:
            of_queue = (topics.codes == topics.values.index(end.topic)) & (records.column("queue_id") == end.queue_id)
            wanted &= ~of_queue | (records.column("queue_offset") < end.offset)
    return part if wanted.all() else part._replace(records=records.select(wanted))


def spelled(part: Part, projection: Projection) -> Iterator[Messages]:
    """Yield the messages of a part as batches."""
    for batch in iter_batches(part.records, projection):
        damages = [(row, part.body_damage(batch.first_row + row, flaw)) for row, flaw in batch.flaws]
        yield Messages(batch.batch, damages)


def _begin_of(following: Range, choice: Choice, queues: Sequence[QueueFiles]) -> int | None:
    """Return where a reader of the range begins; None if the range has nothing for it."""
    file, start, stop, _ = following
    if queues:
        end = file.size if stop is None else stop
        try:
            named = read_places(queues, choice.selection(), file.base_offset + start, file.base_offset + end)
        except ReadFailed:  # its reader reads it through too: retention may delete files of queues meanwhile
            named = None
        if named is not None:
            return int(named.places.min()) - file.base_offset if len(named.places) else None
    with file.open() as opened:
        return SegmentScan(opened, file.record_base, compacted=file.keeps_checksums).find_start(start, stop)


def _is_record(file: LogFile, file_offset: int | None) -> bool:
    """Return whether a sound record begins there; the blank record at the end does not count."""
    if file_offset is None:
        return False
    probe = RangeReader(Range(file, file_offset, file_offset + 1), Selection())
    return any(isinstance(found, Part) for found in probe.parts())


class Written(NamedTuple):
    """The result of a task: its files in its own staging directory, and the end of its last message in the log."""

    directory: str
    files: list[PartFile]
    damages: list[Damage]
    end_offset: int


@dataclass(frozen=True)
class WriteWork:
    """Writes ranges of one store. A plain value that is sent to other processes.

    Each attempt writes into a directory of its own, so an attempt that fails, or whose answer is dropped, does no harm.
    Names of files begin with ``prefix`` and go on with the place in the log, so that they sort in the order of the log.
    """

    staging: str
    prefix: str
    broker: str
    choice: Choice
    queues: Sequence[QueueFiles]
    layout: Layout = field(default_factory=Layout)
    time_unit: TimeUnit = "ms"

    def __call__(self, asked: Range, write: Callable[[bytes], object] | None = None) -> Answered:  # noqa: ARG002
        """Write the messages of a range; ``found`` of the answer is ``Written``."""
        projection = self.choice.projection(self.broker, self.time_unit)
        reader = BatchReader(asked, self.choice, projection, self.queues)
        directory = uuid4().hex
        stem = f"{self.prefix}-{asked.file.base_offset + asked.start:020}"
        root = os.path.join(self.staging, directory)
        writer = PartWriter(root, stem, projection.schema(), self.layout)
        damages = []
        for found in reader.pieces():
            if isinstance(found, Damage):
                damages.append(found)
            else:
                writer.write(found.batch)
                damages += [damage for _, damage in found.damages]
        written = Written(directory, writer.close(), damages, reader.end_offset)
        return Answered(reader.reader.began, reader.reader.reached, reader.left_over, written)
