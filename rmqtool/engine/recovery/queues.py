"""All queues of a store while the log is read, and what is decided when it was read to its end."""

from __future__ import annotations

from collections.abc import Iterable

from rmqtool.config import StoreConfig
from rmqtool.engine.consume_queues import QueueSizes
from rmqtool.engine.derived_files import DerivedFiles, DerivedQueue
from rmqtool.engine.encoder import is_directory_name
from rmqtool.engine.queue_offsets import QueueKey
from rmqtool.engine.recovery.batch_queue_pass import BatchQueueCheck
from rmqtool.engine.recovery.log_pass import LogBatch, LogPass
from rmqtool.engine.recovery.places import BeforeWrite
from rmqtool.engine.recovery.queue_ends import QueueEnd
from rmqtool.engine.recovery.queue_pass import FILLER_UNIT, Evidence, QueueCheck, Write
from rmqtool.engine.recovery.report import Misfit, RecoveryReport
from rmqtool.findings import Place, new_finding
from rmqtool.findings.wording import counted
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, batch_unit
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.layouts import BatchConsumeQueueUnit
from rmqtool.formats.paths import FileKind, segment_directory, segment_name
from rmqtool.storage.consume_queues import BatchQueueFiles
from rmqtool.storage.discovery import QueueId, StoreListing
from rmqtool.storage.filesystem import join
from rmqtool.storage.segments import Segment, usual_size


class QueuesCheck:
    """The queues of a store. Every queue that a record names is looked at; the others at the end."""

    def __init__(
        self,
        listing: StoreListing,
        files: DerivedFiles,
        config: StoreConfig,
        log: LogPass,
        rules: DispatchRules,
        before_write: BeforeWrite,
        batch_topics: Iterable[str],
    ) -> None:
        self._files = files
        self._log = log
        self._rules = rules
        self._before_write = before_write
        self._simple_on_disk = listing.queues(FileKind.CONSUME_QUEUE)
        self._ext_on_disk = listing.queues(FileKind.CONSUME_QUEUE_EXT)
        self._batch_on_disk = listing.queues(FileKind.BATCH_CONSUME_QUEUE)
        self._sizes = QueueSizes.rounded(
            _size_of(listing, FileKind.CONSUME_QUEUE) or config.mapped_file_size_consume_queue,
            config.mapped_file_size_consume_queue_ext,
            _size_of(listing, FileKind.BATCH_CONSUME_QUEUE) or config.mapper_file_size_batch_consume_queue,
        )
        self._batch_topics = {*batch_topics, *(queue.topic for queue in self._batch_on_disk)}
        self._evidence = Evidence()
        self._simple: dict[QueueKey, QueueCheck] = {}
        self._batch: dict[QueueKey, BatchQueueCheck] = {}

    def take(self, batch: LogBatch) -> None:
        """Take the records of a part of the log."""
        from rmqtool.bulk.queues import queue_runs

        for run in queue_runs(batch.records, batch.properties, self._rules):
            key = (run.topic, run.queue_id)
            if not is_directory_name(run.topic) or not 0 <= run.queue_id <= INT_MAX:
                for offset, unit in zip(run.queue_offsets.tolist(), run.units.tolist(), strict=True):
                    misfit = Misfit(unit[0], run.topic, run.queue_id, offset, "no queue can have this name")
                    self._evidence.misfits.append(misfit)
            elif run.topic in self._batch_topics:
                places = run.units["physical_offset"].tolist()
                self._batch_check(key).take([self._batch_unit(batch, place) for place in places])
            else:
                self._simple_check(key).take(run)

    def _batch_unit(self, batch: LogBatch, physical_offset: int) -> BatchConsumeQueueUnit:
        row = int(batch.records.column("physical_offset").searchsorted(physical_offset))
        message = decode_record(batch.records.data.data, int(batch.records.file_offsets[row]))
        assert isinstance(message, Message), "the columns hold whole messages only"
        return batch_unit(message, self._rules.delays)

    def _simple_check(self, key: QueueKey) -> QueueCheck:
        check = self._simple.get(key)
        if check is None:
            files = self._queue_files(FileKind.CONSUME_QUEUE, key, self._sizes.consume_queue)
            ext = self._ext_on_disk.get(QueueId(*key))
            check = QueueCheck(key, files, self._writer(files), self._log, self._evidence, ext)
            self._simple[key] = check
        return check

    def _batch_check(self, key: QueueKey) -> BatchQueueCheck:
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
        def write(position: int, data: bytes) -> None:
            size = files.file_size
            for base in range(position - position % size, position + len(data), size):
                path = join(files.directory, segment_name(base))
                self._before_write(path, "modify" if self._files.exists(path) else "create")
            files.write(position, data)

        return write

    def has_unit_at(self, physical_offset: int) -> bool:
        """Tell whether any unit behind the last record of its queue names one place."""
        return any(unit.physical_offset == physical_offset for end in self._ends() for unit in end.units_behind())

    def have_units_since(self, physical_offset: int) -> bool:
        """Tell whether any queue knows of a record at an offset or behind it."""
        for queue in self._simple_on_disk:
            units = QueueEnd.begin(self._simple_check(queue), self._simple_on_disk[queue].segments).units_behind()
            if any(unit.physical_offset >= physical_offset and unit.size != FILLER_SIZE for unit in units):
                return True
        return False

    def _ends(self) -> list[QueueEnd]:
        on_disk = {QueueId(*key): () for key in self._simple} | {
            queue: segments.segments for queue, segments in self._simple_on_disk.items()
        }
        found = []
        for queue, segments in sorted(on_disk.items()):
            if queue.topic not in self._batch_topics or segments:
                found.append(QueueEnd.begin(self._simple_check(queue), segments))
        return found

    def finish(self, report: RecoveryReport, log_end: int, *, thorough: bool) -> None:
        """Decide about everything that the log did not decide on the way, and write it."""
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
            report.findings += end.clear(self._remove, log_end, thorough=thorough)
        for key, batch_check in self._batch.items():
            if batch_check.finish(self._log, log_end):
                report.findings.append(
                    new_finding(
                        "CQ-WRONG",
                        "units were wrong or missing",
                        Place(segment_directory(FileKind.BATCH_CONSUME_QUEUE, *key), None, None, *key),
                    )
                )
        for key, check in sorted(self._simple.items()):
            if check.wrong_units:
                text = f"{counted(check.wrong_units, 'unit was', 'units were')} wrong or missing"
                place = Place(segment_directory(FileKind.CONSUME_QUEUE, *key), topic=key[0], queue_id=key[1])
                code = "CQ-WRONG" if QueueId(*key) in self._simple_on_disk else "CQ-MISSING"
                report.findings.append(new_finding(code, text, place, units=check.wrong_units))
        for misfit in self._evidence.misfits:
            place = self._place_of(misfit)
            text = f"the record at {misfit.physical_offset} says queue offset {misfit.queue_offset}: {misfit.reason}"
            code = "CL-QOFF" if is_directory_name(misfit.topic) else "CL-TOPIC"
            report.findings.append(new_finding(code, text, place))
        report.misfits += self._evidence.misfits

    def _place_of(self, misfit: Misfit) -> Place:
        segment = self._log.log.find(misfit.physical_offset)
        if segment is None:
            return Place(topic=misfit.topic, queue_id=misfit.queue_id)
        at = misfit.physical_offset - segment.base_offset
        return Place(segment.path, at, topic=misfit.topic, queue_id=misfit.queue_id)

    def _contradict(self, ends: dict[QueueKey, QueueEnd], strays: set[int]) -> None:
        """Take away units that no record claims and that lead to a record which stands elsewhere."""
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
        """Find the place of every record that names one which nothing confirms."""
        for check, claim in self._evidence.strays:
            stands = self._evidence.standing.get(claim.unit.physical_offset)
            if stands is None:
                check.place_stray(claim)
            else:
                (topic, queue_id), queue_offset = stands[0]
                check.misfit(claim, f"its unit stands in {topic}/{queue_id} at {queue_offset}: its header is damaged")

    def _remove(self, path: str) -> None:
        self._before_write(path, "delete")
        self._files.unlink(path)


def _size_of(listing: StoreListing, kind: FileKind) -> int:
    return usual_size(Segment(0, file.size, file.path, listing.filesystem) for file in listing.of_kind(kind))
