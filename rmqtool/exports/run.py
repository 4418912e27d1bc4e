"""One export, from the plan to the manifest, for any engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from rmqtool import __version__
from rmqtool.columns.batches import SCHEMA_VERSION
from rmqtool.errors import NoSpace, NotFound, Refused, StoreError, UsageError
from rmqtool.exports.choice import Choice, OnCorrupt, TimeUnit
from rmqtool.exports.delta import DeltaTarget, opened_delta, progress_of
from rmqtool.exports.parquet import Layout, PartFile, PartitionBy, open_writer, settled_size, writing
from rmqtool.exports.splits import Source, WriteWork, Written, plan_sources
from rmqtool.exports.target import Manifest, Mode, Progress, Target, opened_target
from rmqtool.log.follow import LastRecord, Mark, is_cut_back
from rmqtool.log.queue_entries import count_messages
from rmqtool.log.ranges import Answered, Effort, run_ranges
from rmqtool.log.read import Damage, Note
from rmqtool.store.open import is_far

# A compressed export of text has a third of the log's bytes; with less than a quarter free it cannot fit.
_LEAST_SHARE = 4
# With more files than this that are smaller than this on average, readers mostly open files.
_MANY_FILES, _SMALL = 200, 1 << 20

DAMAGE_SCHEMA = pa.schema(
    [
        pa.field("file", pa.utf8()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("code", pa.utf8()),
        pa.field("message", pa.utf8()),
        pa.field("broker", pa.utf8()),
    ]
)


class Job(NamedTuple):
    """The part of an export that reads one store."""

    source: Source
    work: WriteWork


AnyTarget = Target | DeltaTarget
Answers = Generator[Answered | Damage | Note]
# Runs the tasks: for each job in order, yields the answers to its ranges in the order of the log.
Engine = Callable[[Sequence[Job]], Generator[Answers]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request of a user."""

    paths: tuple[str, ...]
    directory: str
    choice: Choice
    mode: Mode = Mode.ERROR
    partition_by: tuple[PartitionBy, ...] = ()
    since_last: bool = False
    delta: bool = False
    # Whether each row group is sorted by topic and queue.
    clustered: bool = False
    # Why nothing can match: the text for topics that no store has.
    refusal: NotFound | None = None

    @property
    def layout(self) -> Layout:
        """The arrangement of rows in files."""
        return Layout(self.partition_by, flat=self.delta, clustered=self.clustered)

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of times in files: Delta has no milliseconds."""
        return "us" if self.delta else "ms"

    def as_json(self) -> dict[str, Any]:
        """Return the part of the request that the manifest records."""
        return {**self.choice.as_json(), "partitionBy": [by.value for by in self.partition_by]}


@dataclass(slots=True)
class Outcome:
    """The result of an export."""

    number: int
    files: list[PartFile] = field(default_factory=list)
    source_bytes: int = 0
    damages: list[tuple[str, Damage]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed: bool = True
    # Whether messages of a live cluster were deleted before they could be read.
    has_lost: bool = False
    # The messages that queue entries name in the damage, store by store; None where the entries do not tell.
    damaged_messages: list[int | None] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of messages written."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of the new files."""
        return sum(file.bytes for file in self.files)

    def as_json(self, directory: str) -> dict[str, Any]:
        """Return the object of the contract; ``directory`` is the target."""
        known = self.damaged_messages
        return {
            "to": directory,
            "export": self.number if self.changed else None,
            "rows": self.rows,
            "files": len(self.files),
            "bytes": self.bytes,
            "sourceBytes": self.source_bytes,
            "damaged": {
                "ranges": len(self.damages),
                "bytes": sum(damage.length for _, damage in self.damages),
                "messages": None if not known or None in known else sum(count or 0 for count in known),
            },
        }


def local_engine(effort: Effort) -> Engine:
    """Return the engine without Spark: processes on this machine."""

    def run(jobs: Sequence[Job]) -> Generator[Answers]:
        for job in jobs:
            yield answers(job)

    def answers(job: Job) -> Answers:
        yield from run_ranges(job.source.plan, list(job.source.ranges), job.work, effort)

    return run


def run_export(request: Request, engine: Engine) -> Outcome:
    """Run an export. Afterwards the target has all of it, or is as it was."""
    with opened_for(request) as target:
        previous = target.previous[-1] if target.previous else None
        require_same(request, previous)
        read = previous.read if previous is not None and request.since_last else {}
        _require_files(request, read)
        starts = {broker: progress.end for broker, progress in read.items()}
        sources = plan_sources(request.paths, request.choice, starts, settled=request.since_last)
        for source in sources:
            require_same_choices(request, previous, source.broker, source.broker)
            _require_same_name(request, read, source)
            _require_unbroken(source, read.get(source.broker), request.directory)
        _require_free_space(target, sources)
        collected = Collected(target, request, read)
        jobs = [_job(request, target, source, at) for at, source in enumerate(sources)]
        with closing(engine(jobs)) as running:
            for job, answers in zip(jobs, running, strict=True):
                with closing(answers):
                    collected.take(job, answers)
        if request.refusal is not None and not collected.outcome.rows:
            raise request.refusal
        return collected.commit()


def _job(request: Request, target: AnyTarget, source: Source, at: int) -> Job:
    prefix = f"part-{target.number:06}-{at:03}"
    choice, queues = source.choice, source.plan.queues
    work = WriteWork(target.staging, prefix, source.broker, choice, queues, request.layout, request.time_unit)
    return Job(source, work)


def opened_for(request: Request) -> AbstractContextManager[AnyTarget]:
    mode = Mode.APPEND if request.since_last else request.mode
    if request.delta:
        return opened_delta(request.directory, mode, request.partition_by)
    return opened_target(request.directory, mode)


def require_same(request: Request, previous: Manifest | None) -> None:
    """Raise UsageError if the files of this export would have another form than those in the target."""
    if previous is None:
        return
    before = {**previous.choices, "schemaVersion": previous.schema_version}
    now = {**request.as_json(), "schemaVersion": SCHEMA_VERSION}
    for name in ("columns", "body", "partitionBy", "schemaVersion"):
        if before.get(name) != now[name]:
            raise UsageError(
                f"{request.directory} was exported with {_differing(name, before, now)}",
                hint="choose as before, or export to another directory (--to)",
            )


def require_same_choices(request: Request, previous: Manifest | None, broker: str, shown: str) -> None:
    """Raise UsageError if ``--since-last`` would go on with a broker that was exported with other choices.

    Messages that only the new choices have would be missing from before the end of that export. ``broker`` is the name
    in the manifest, ``shown`` the one that users know.
    """
    if previous is None or not request.since_last or broker not in previous.read:
        return
    before, now = previous.choices_of(broker), request.as_json()
    for name in now:
        if before.get(name) != now[name]:
            raise UsageError(
                f"{shown} was exported to {request.directory} with {_differing(name, before, now)}",
                hint="choose as before; --mode append exports it again, whole; or export to another directory (--to)",
            )


def _differing(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return f"{name} = {_spelled(before.get(name))}, not {_spelled(now[name])}"


def _require_same_name(request: Request, read: Mapping[str, Progress], source: Source) -> None:
    """Raise Refused for a store that the target has under another name: all of it would be added again."""
    names = [name for name, one in read.items() if one.queues is None and one.store == source.log.root]
    if names and source.broker not in read:
        raise Refused(
            f"{source.log.root} was exported to {request.directory} as {names[0]}, and is called {source.broker} now: "
            "all of its messages would be added again",
            file=source.log.root,
            hint="export it with the same other stores as before; if its brokerName has changed, --mode overwrite "
            "exports everything again, or export to another directory (--to)",
        )


def _require_files(request: Request, read: Mapping[str, Progress]) -> None:
    if read and all(progress.queues is not None for progress in read.values()):
        raise Refused(
            f"{request.directory} was exported from a live cluster, not from files",
            file=request.directory,
            hint="--since-last goes on from the same cluster; else export to another directory (--to)",
        )


def _spelled(value: object) -> str:
    return ",".join(map(str, value)) or "all" if isinstance(value, list) else str(value)


def _require_unbroken(source: Source, before: Progress | None, directory: str) -> None:
    """Raise Refused if the log is not the one that was exported: a broker truncated it and wrote on from there."""
    log = source.log
    if before is None:
        return
    if log.end.physical_offset < before.end or is_cut_back(log.files, Mark(before.end, before.last)):
        raise Refused(
            f"the log of {source.broker} is not the one that was exported: it was cut before {before.end}, where the "
            "last export ended, and rewritten",
            file=log.root,
            hint=f"--mode overwrite exports it again to {directory}",
        )


def _require_free_space(target: AnyTarget, sources: Sequence[Source]) -> None:
    if is_far(target.staging):
        return
    wanted = sum(source.bytes for source in sources) // _LEAST_SHARE
    with writing(target.staging):
        found = os.statvfs(target.staging)
    free = found.f_bavail * found.f_frsize
    if free < wanted:
        raise NoSpace(
            f"{target.directory} needs about {wanted} bytes, but only {free} are free there",
            file=target.directory,
            hint="export to another disk (--to), or less: --topic, --begin, --end",
        )


class Collected:
    """The answers of the tasks, store by store, until they are committed."""

    def __init__(self, target: AnyTarget, request: Request, read: Mapping[str, Progress]) -> None:
        self.target = target
        self.request = request
        self.before = read
        # Brokers that this export does not read keep what the target has of them.
        self.read = target.previous[-1].read_before(request.as_json()) if target.previous else {}
        self.outcome = Outcome(target.number)
        self.staged: dict[str, str] = {}
        self.damage: str | None = None

    def take(self, job: Job, answers: Answers) -> None:
        """Take all answers of a store."""
        source = job.source
        end = source.log.end.physical_offset
        known = len(self.outcome.damages)
        if source.note is not None:
            self.outcome.notes.append(source.note)
        if source.missing is not None:
            self.take_damage(source.broker, source.missing)
        for answer in answers:
            if isinstance(answer, Note):
                self.outcome.notes.append(answer.text)
            elif isinstance(answer, Damage):
                self.take_damage(source.broker, answer)
            else:
                end = max(end, self.take_files(source.broker, answer.found))
        self._count_damaged(source, len(self.outcome.damages) - known)
        self.outcome.source_bytes += source.bytes
        before, last = self.before.get(source.broker), source.log.end.last
        self.read[source.broker] = Progress(
            store=source.log.root,
            # Messages of a tier can be before offset 0, where no log begins.
            start=before.end if before else max(source.choice.physical_begin, 0),
            end=end if before is None else max(end, before.end),
            last=LastRecord.of(last) if last is not None else None,
        )
        if self.request.delta and self.target.previous:
            told = self.target.previous[-1].read.get(source.broker)
            self.read[source.broker] = progress_of(self.read[source.broker], told.end if told else 0)

    def note_choices(self, brokers: Iterable[str]) -> None:
        """Note that brokers were asked with the choices of this export, also those that had nothing to read."""
        for broker in set(brokers) & self.read.keys():
            self.read[broker] = replace(self.read[broker], choices=None)

    def _count_damaged(self, source: Source, ranges: int) -> None:
        """Count the messages that entries name in the last ``ranges`` damaged ranges, those of this store."""
        outcome, files = self.outcome, source.log.files
        # Places in a tier are not those that the entries name.
        bases = {file.name: file.base_offset for file in files if file.tier is None}
        found = [damage for _, damage in outcome.damages[len(outcome.damages) - ranges :] if damage.file in bases]
        starts = [bases[damage.file] + damage.file_offset for damage in found]
        spans = [(start, start + damage.length) for start, damage in zip(starts, found, strict=True)]
        is_known = len(found) == ranges
        count = count_messages(source.log.queues, spans, source.choice.selection()) if is_known else None
        outcome.damaged_messages.append(count)

    def take_files(self, broker: str, written: Written) -> int:
        """Take the files of a task; return how far it read."""
        for damage in written.damages:
            self.take_damage(broker, damage)
        self.outcome.files += written.files
        for file in written.files:
            self.staged[file.path] = os.path.join(written.directory, file.path)
        return written.end_offset

    def take_damage(self, broker: str, damage: Damage) -> None:
        """Take damage that was found in a store."""
        if self.request.choice.on_corrupt is OnCorrupt.FAIL:
            raise damage_error(damage)
        self.outcome.damages.append((broker, damage))

    def commit(self) -> Outcome:
        """Make the export appear."""
        outcome = self.outcome
        if self.request.choice.on_corrupt is OnCorrupt.EMIT and outcome.damages:
            self.damage = "damage.parquet"
            self._write(self.damage, damage_table(outcome.damages))
        if not outcome.files and self.target.is_new and not self.request.partition_by and not self.request.delta:
            # Readers take the schema from a file, so there is one even without messages.
            empty = self.request.choice.projection(None, "ms").schema().empty_table()
            path = f"part-{outcome.number:06}.parquet"
            self._write("empty.parquet", empty)
            self.staged[path] = "empty.parquet"
            outcome.files.append(PartFile(path, 0, os.path.getsize(os.path.join(self.target.staging, "empty.parquet"))))
        ends = {broker: progress.end for broker, progress in self.before.items()}
        advanced = any(progress.end != ends.get(broker) for broker, progress in self.read.items())
        outcome.notes += self._notes_on_files()
        outcome.changed = self.target.is_new or bool(self.staged) or self.damage is not None or advanced
        if outcome.changed:
            self.target.commit(self._manifest(), self.staged, self.damage)
        return outcome

    def _notes_on_files(self) -> list[str]:
        files = self.outcome.files
        if not self.request.partition_by or len(files) <= _MANY_FILES or self.outcome.bytes >= _SMALL * len(files):
            return []
        size = self.outcome.bytes // len(files) >> 10
        text = f"{len(files)} files of {size} KiB on average, because each split has a file for each partition"
        return [f"{text}: a larger --split-size gives fewer, and so does --cluster-by topic instead of partitions"]

    def _manifest(self) -> Manifest:
        outcome = self.outcome
        return Manifest(
            number=outcome.number,
            written_by=f"rmqtool {__version__}",
            schema_version=SCHEMA_VERSION,
            choices=self.request.as_json(),
            read=self.read,
            files=outcome.files,
            damage={"ranges": len(outcome.damages), "bytes": sum(damage.length for _, damage in outcome.damages)},
        )

    def _write(self, staged: str, table: pa.Table) -> None:
        whole = os.path.join(self.target.staging, staged)
        with writing(whole):
            with open_writer(whole, table.schema) as writer:
                writer.write_table(table)
            settled_size(whole)


def damage_error(damage: Damage) -> StoreError:
    """Return the error for a damage when damage ends the export."""
    return StoreError(
        f"{damage.code}: {damage.message} ({damage.length} bytes)",
        file=damage.file,
        offset=damage.file_offset,
        hint="--on-corrupt emit exports the rest and lists the damage next to the target; skip only leaves it out",
    )


def damage_table(damages: Sequence[tuple[str, Damage]]) -> pa.Table:
    """Return a table of the damage in the stores of several brokers."""
    rows = [
        (damage.file, damage.file_offset, damage.length, damage.code, damage.message, broker)
        for broker, damage in damages
    ]
    columns = zip(*rows, strict=True) if rows else [[] for _ in DAMAGE_SCHEMA]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, DAMAGE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=DAMAGE_SCHEMA)
