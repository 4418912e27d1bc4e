"""Compares the queues in files of a store with the log: simple queues and batch queues.

Some entries after the last record of a queue belong to lost or removed messages, and keep their queue offsets. Others
are damage, or left over from a log that lost its end. Those are overwritten with zeros, so that no later start finds
them. upstream: ConsumeQueue.truncateDirtyLogicFiles moves a position, and a later start finds the entries again.

Entries of batch queues have their own queue offsets and are back to back. upstream: BatchConsumeQueue.recover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rmqtool.config import StoreConfig
from rmqtool.engine.consume_queue import DerivedFiles, DerivedQueue, QueueSizes
from rmqtool.engine.message import QueueKey
from rmqtool.engine.recovery.places import BeforeWrite
from rmqtool.engine.recovery.queue_pass import Evidence, QueueCheck, Write
from rmqtool.engine.recovery.report import Misfit, RecoveryReport
from rmqtool.files.filesystem import join
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import layouts
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, FILLER_UNIT, UNIT_SIZE, is_written
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from rmqtool.formats.paths import FileKind, segment_directory, segment_name
from rmqtool.formats.topics import is_directory_name
from rmqtool.store.listing import QueueId, StoreListing
from rmqtool.store.queues import BatchQueueFiles
from rmqtool.store.segments import Segment, usual_size

if TYPE_CHECKING:
    from rmqtool.audit.damage import Damage
    from rmqtool.audit.due import Batch
    from rmqtool.audit.log_pass import LogPass
    from rmqtool.columns.queues import QueueRun

_UNIT = layouts.CONSUME_QUEUE_UNIT
# Entries that are read at once after the end of a queue.
_CHUNK = 256


@dataclass
class QueueEnd:
    """The end of one queue, and the files that it had when the recovery began."""

    check: QueueCheck
    segments: Sequence[Segment]
    # Queue offsets: of the first entry that no record claims, and of the end.
    unclaimed: int
    end: int

    @classmethod
    def begin(cls, check: QueueCheck, segments: Sequence[Segment]) -> Self:
        """Return the end right after the last record; ``find`` may move it."""
        first = segments[0].base_offset // UNIT_SIZE if segments else 0
        unclaimed = first if check.claims.expected is None else check.claims.expected
        return cls(check, segments, unclaimed, unclaimed)

    def find(self) -> None:
        """Move the end over entries that no record claims, to the first one that cannot stay."""
        is_real = self.check.claims.expected is not None
        for unit in self.units_behind():
            if not self.check.may_stay(self.end, unit):
                break
            is_real = is_real or unit.size != FILLER_SIZE
            self.end += 1
        if not is_real:
            # upstream: 4.9 takes the size of a filler for the end of the log, and then dispatches no message.
            self.end = self.unclaimed

    def settle(self) -> None:
        """Have strays of this queue placed after its end.

        A queue without an entry has no end yet: its first stray gets the queue offset that it claims.
        """
        if self.check.claims.expected is not None or self.end > self.unclaimed:
            self.check.claims.expected = self.end

    def units_behind(self) -> list[ConsumeQueueUnit]:
        """Return the entries from the end on, up to the first that is not written."""
        found: list[ConsumeQueueUnit] = []
        while True:
            for unit in _UNIT.iter_decode(self.check.read(self.end + len(found), _CHUNK)):
                if not is_written(unit):
                    return found
                found.append(unit)

    def clear(self, remove: Callable[[str], None], log_end: int, left: Damage | None) -> list[Finding]:
        """Remove the entries after the end, and the files after them; return the findings.

        The entries stay if the first points into ``left``: a broker cut off these bytes of the log, and the entries
        with them. ``remove`` is called with each path; ``log_end`` is the physical end of the log.
        """
        if self.check.claims.expected is not None:
            self.end = max(self.end, self.check.claims.expected)
        behind = self.units_behind()
        findings = []
        if behind:
            topic, queue_id = self.check.key
            place = Place(segment_directory(FileKind.CONSUME_QUEUE, topic, queue_id), topic=topic, queue_id=queue_id)
            ahead = all(unit.physical_offset >= log_end for unit in behind)
            belong = counted(len(behind), "entry belongs", "entries belong")
            text = f"from queue offset {self.end} on, {belong} to no record of this queue"
            findings.append(new_finding("CQ-AHEAD" if ahead else "CQ-WRONG", text, place, units=len(behind)))
            if left is not None and left.start <= behind[0].physical_offset < left.end:
                return findings
            self._zero()
        after = {segment.path for segment in self.segments if segment.base_offset >= self.end * UNIT_SIZE}
        for path in sorted(after.union(self.check.iter_former(self.end))):
            remove(path)
        return findings

    def _zero(self) -> None:
        """Write zeros over the entries after the end of the queue, in the file that it ends in."""
        position = self.end * UNIT_SIZE
        holding = next((one for one in self.segments if one.base_offset < position < one.end_offset), None)
        if holding is not None:
            rest = self.check.read(self.end, (holding.end_offset - position) // UNIT_SIZE).rstrip(b"\0")
            self.check.clear(self.end, -(-len(rest) // UNIT_SIZE))


_BATCH_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT


class BatchQueueCheck:
    """Compares and repairs one batch queue: its entries are gathered while the log is read."""

    def __init__(self, queue: BatchQueueFiles | None, files: DerivedQueue, write: Callable[[int, bytes], None]) -> None:
        self._begin = queue.segments.min_offset if queue is not None else 0
        self._found: list[BatchConsumeQueueUnit] = list(queue.iter_units()) if queue is not None else []
        self._files = files
        self._write = write
        self._expected: list[BatchConsumeQueueUnit] = []

    def take(self, units: Sequence[BatchConsumeQueueUnit]) -> None:
        """Take the entries that some records are due, in the order of the log."""
        self._expected += units

    def finish(self, log: LogPass, log_end: int) -> bool:
        """Write the entries from the first wrong one on; return whether there was one."""
        # One entry for each record, in the order of the log; that of a valid record wins over one kept for damage.
        expected = sorted({unit.physical_offset: unit for unit in (*self._lost(log), *self._expected)}.values())
        gone = [unit for unit in self._found if unit.physical_offset < log.log.min_offset]
        wanted = gone + expected
        found = self._found
        while found and found[-1].physical_offset >= log_end:
            found = found[:-1]
        same = next(
            (n for n, units in enumerate(zip(found, wanted, strict=False)) if not _are_alike(*units)),
            min(len(found), len(wanted)),
        )
        if same == len(wanted) == len(self._found):
            return False
        data = b"".join(_BATCH_UNIT.encode(unit) for unit in wanted[same:])
        left = (len(self._found) - len(wanted)) * BATCH_UNIT_SIZE
        self._write(self._begin + same * BATCH_UNIT_SIZE, data + bytes(max(left, 0)))
        return True

    def _lost(self, log: LogPass) -> list[BatchConsumeQueueUnit]:
        """Return the entries of messages whose records are damaged: they stay."""
        return [unit for unit in self._found if log.damage.covers(unit.physical_offset)]


def _are_alike(one: BatchConsumeQueueUnit, other: BatchConsumeQueueUnit) -> bool:
    """Return whether two entries are equal in the fields that every version writes."""
    from rmqtool.audit.queues import BATCH_FIELDS

    return all(getattr(one, name) == getattr(other, name) for name in BATCH_FIELDS)


class QueuesCheck:
    """The queues of a store. Queues of records are compared while the log is read, the others at the end."""

    def __init__(
        self,
        listing: StoreListing,
        files: DerivedFiles,
        config: StoreConfig,
        log: LogPass,
        before_write: BeforeWrite,
        batch_topics: Collection[str],
    ) -> None:
        self._files = files
        self._log = log
        self._before_write = before_write
        self._simple_on_disk = listing.queues(FileKind.CONSUME_QUEUE)
        self._ext_on_disk = listing.queues(FileKind.CONSUME_QUEUE_EXT)
        self._batch_on_disk = listing.queues(FileKind.BATCH_CONSUME_QUEUE)
        self._sizes = QueueSizes.rounded(
            _size_of(listing, FileKind.CONSUME_QUEUE) or config.mapped_file_size_consume_queue,
            config.mapped_file_size_consume_queue_ext,
            _size_of(listing, FileKind.BATCH_CONSUME_QUEUE) or config.mapper_file_size_batch_consume_queue,
        )
        self._batch_topics = batch_topics
        self._evidence = Evidence()
        self._simple: dict[QueueKey, QueueCheck] = {}
        self._batch: dict[QueueKey, BatchQueueCheck] = {}

    def take(self, batch: Batch) -> None:
        """Hand the records of one batch to the checks of their queues."""
        from rmqtool.columns.queues import runs_of

        for run in runs_of(batch.entries):
            if self._is_queue(run):
                self._simple_check((run.topic, run.queue_id)).take(run)
        for run in batch.batch_runs:
            if self._is_queue(run):
                units = [BatchConsumeQueueUnit(*unit) for unit in run.units.tolist()]
                self._batch_check((run.topic, run.queue_id)).take(units)

    def _is_queue(self, run: QueueRun) -> bool:
        """Return whether a queue can have this name. If not, its records are misfits."""
        if is_directory_name(run.topic) and 0 <= run.queue_id <= INT_MAX:
            return True
        places = run.units["physical_offset"].tolist()
        self._evidence.misfits += [
            Misfit(place, run.topic, run.queue_id, offset, "a queue cannot have this name")
            for offset, place in zip(run.queue_offsets.tolist(), places, strict=True)
        ]
        return False

    def _simple_check(self, key: QueueKey) -> QueueCheck:
        """Return the check of a simple queue; it is made at the first call."""
        check = self._simple.get(key)
        if check is None:
            files = self._queue_files(FileKind.CONSUME_QUEUE, key, self._sizes.consume_queue)
            ext = self._ext_on_disk.get(QueueId(*key))
            check = QueueCheck(key, files, self._writer(files), self._log, self._evidence, ext)
            self._simple[key] = check
        return check

    def _batch_check(self, key: QueueKey) -> BatchQueueCheck:
        """Return the check of a batch queue, with the entries that it has on disk; it is made at the first call."""
        check = self._batch.get(key)
        if check is None:
            segments = self._batch_on_disk.get(QueueId(*key))
            on_disk = BatchQueueFiles(QueueId(*key), segments) if segments is not None else None
            files = self._queue_files(FileKind.BATCH_CONSUME_QUEUE, key, self._sizes.batch)
            check = self._batch[key] = BatchQueueCheck(on_disk, files, self._writer(files))
        return check

    def _queue_files(self, kind: FileKind, key: QueueKey, size: int) -> DerivedQueue:
        return DerivedQueue(self._files, segment_directory(kind, *key), size)

    def _writer(self, files: DerivedQueue) -> Write:
        """Return a function that writes to a queue, after reporting each file that it changes."""

        def write(position: int, data: bytes) -> None:
            size = files.file_size
            for base in range(position - position % size, position + len(data), size):
                path = join(files.directory, segment_name(base))
                self._before_write(path, "modify" if self._files.exists(path) else "create")
            files.write(position, data)

        return write

    def has_unit_at(self, physical_offset: int) -> bool:
        """Return whether an entry after the last record of its queue points to ``physical_offset``."""
        return any(unit.physical_offset == physical_offset for end in self._ends() for unit in end.units_behind())

    def have_units_since(self, physical_offset: int) -> bool:
        """Return whether an entry of a simple queue, after its last record, points to ``physical_offset`` or later.

        Fillers do not count.
        """
        for queue in self._simple_on_disk:
            units = QueueEnd.begin(self._simple_check(queue), self._simple_on_disk[queue].segments).units_behind()
            if any(unit.physical_offset >= physical_offset and unit.size != FILLER_SIZE for unit in units):
                return True
        return False

    def _ends(self) -> list[QueueEnd]:
        """Return the ends of all simple queues, of those with records and of those that are only on disk."""
        on_disk = {QueueId(*key): () for key in self._simple} | {
            queue: segments.segments for queue, segments in self._simple_on_disk.items()
        }
        found = []
        for queue, segments in sorted(on_disk.items()):
            if queue.topic not in self._batch_topics or segments:
                found.append(QueueEnd.begin(self._simple_check(queue), segments))
        return found

    def finish(self, report: RecoveryReport, log_end: int, left: Damage | None) -> None:
        """Decide everything that is open at the end of the log, write it, and report.

        ``left`` are bytes that an earlier recovery left after the end; entries that point there are not changed.
        """
        for check in self._simple.values():
            check.settle_last()
        ends = self._ends()
        for end in ends:
            end.find()
        strays = {claim.unit.physical_offset for _, claim in self._evidence.strays}
        self._contradict({end.check.key: end for end in ends}, strays)
        for end in ends:
            end.settle()
        self._place_strays()
        for end in ends:
            report.findings += end.clear(self._remove, log_end, left)
        for key, batch_check in self._batch.items():
            if batch_check.finish(self._log, log_end):
                report.findings.append(
                    new_finding(
                        "CQ-WRONG",
                        "entries do not match the log",
                        Place(segment_directory(FileKind.BATCH_CONSUME_QUEUE, *key), None, None, *key),
                    )
                )
        for key, check in sorted(self._simple.items()):
            if check.wrong_units:
                is_there = QueueId(*key) in self._simple_on_disk
                what = ("entry does not match", "entries do not match") if is_there else ("entry is", "entries are")
                text = f"{counted(check.wrong_units, *what)} {'the log' if is_there else 'missing'}"
                place = Place(segment_directory(FileKind.CONSUME_QUEUE, *key), topic=key[0], queue_id=key[1])
                code = "CQ-WRONG" if is_there else "CQ-MISSING"
                report.findings.append(new_finding(code, text, place, units=check.wrong_units))
        for misfit in self._evidence.misfits:
            place = self._place_of(misfit)
            text = f"the record at {misfit.physical_offset} has queue offset {misfit.queue_offset}: {misfit.reason}"
            code = "CL-QOFF" if is_directory_name(misfit.topic) else "CL-TOPIC"
            report.findings.append(new_finding(code, text, place))
        report.misfits += self._evidence.misfits

    def _place_of(self, misfit: Misfit) -> Place:
        """Return the file and offset of a misfit's record; only topic and queue if no segment has it."""
        segment = self._log.log.find(misfit.physical_offset)
        if segment is None:
            return Place(topic=misfit.topic, queue_id=misfit.queue_id)
        at = misfit.physical_offset - segment.base_offset
        return Place(segment.path, at, topic=misfit.topic, queue_id=misfit.queue_id)

    def _contradict(self, ends: dict[QueueKey, QueueEnd], strays: set[int]) -> None:
        """Remove entries that no record claims and that point to a record with an entry elsewhere.

        A queue then ends before such an entry, if it is after the last claimed one; else a filler replaces it. Records
        at the places ``strays`` have no other entry, so theirs stay.
        """
        for place, standing in self._evidence.standing.items():
            if place in strays:
                continue
            for key, queue_offset in standing:
                end = ends[key]
                if queue_offset >= end.unclaimed:
                    end.end = min(end.end, queue_offset)
                else:
                    end.check.replace(queue_offset, FILLER_UNIT)

    def _place_strays(self) -> None:
        """Give each stray a place, or report it as a misfit if an entry elsewhere points to it."""
        for check, claim in self._evidence.strays:
            stands = self._evidence.standing.get(claim.unit.physical_offset)
            if stands is None:
                check.place_stray(claim)
            else:
                (topic, queue_id), queue_offset = stands[0]
                check.misfit(
                    claim, f"its queue entry is in {topic}/{queue_id} at {queue_offset}: its header is damaged"
                )

    def _remove(self, path: str) -> None:
        self._before_write(path, "delete")
        self._files.unlink(path)


def _size_of(listing: StoreListing, kind: FileKind) -> int:
    return usual_size(Segment(0, file.size, file.path, listing.filesystem) for file in listing.of_kind(kind))
