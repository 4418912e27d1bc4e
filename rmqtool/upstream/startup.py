"""``DefaultMessageStore``: construction, load(), start(), shutdown() of a broker, in its order, with its refusals.

5.x dispatches while it recovers, and starts its dispatcher at the end of the log. 4.9 dispatches the missing records in
start() and waits until that is done, possibly forever (``ReputMessageService``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from rmqtool.errors import ReadFailed
from rmqtool.files.salvaged import is_of_the_disk
from rmqtool.formats import paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import has_queue_unit
from rmqtool.formats.java import int64
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Batch, Run
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.commit_log import Checkpoint, CommitLog, EndOfFile, OutOfMemory, Taker, Unreadable
from rmqtool.upstream.config_files import BACKUP, CompactionPositions, DelayOffsets
from rmqtool.upstream.consume_queues import ConsumeQueueStore
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.index_file import IndexService
from rmqtool.upstream.mapped_files import LoadRefused
from rmqtool.upstream.settings import StartSettings


class Hangs(Exception):
    """start() never returns; the argument is the reason."""


class Reput:
    """One run of the dispatcher from ``offset`` to the end of the log."""

    def __init__(self, commit_log: CommitLog, offset: int, taker: Taker) -> None:
        self._log = commit_log
        self._queue = commit_log.mapped
        self.offset = offset
        self._taker = taker

    @property
    def behind(self) -> int:
        """The number of undispatched bytes; negative if the queues end after the log."""
        return self._queue.max_offset - self.offset

    def run(self) -> None:
        """Dispatch until no bytes are left."""
        try:
            while self.behind > 0:
                self._pass()
        except OutOfMemory as error:
            raise Hangs(f"the dispatcher runs out of memory on a record that claims {error.total_size} bytes") from None

    def _pass(self) -> None:
        self.offset = max(self.offset, self._queue.min_offset)
        file = self._queue.find(self.offset, first_if_none=self.offset == 0)
        position = self.offset % self._queue.file_size
        if file is None or position >= file.wrote:
            raise Hangs(f"the dispatcher finds no data at {self.offset}, and start() waits forever for it to go on")
        self.offset = file.start + position
        # Two counts diverge after a record whose sizes do not add up: reading continues where it stopped, but the bytes
        # of that record do not count as read.
        at = position
        read = 0
        window = self._log.window(file)
        while read < file.wrote - position:
            for found in self._log.iter_at(window, at, file.wrote, crc=False, body=False):
                if isinstance(found, Run | Message):
                    size = self._dispatch(found)
                    self.offset += size
                    read += size
                    at += size
            if isinstance(found, EndOfFile):
                size = self._queue.file_size
                self.offset += size - self.offset % size
                return
            if isinstance(found, Unreadable):
                if found.size <= 0:
                    self.offset += file.wrote - position - read
                    return
                self.offset += found.size
                at += found.consumed

    def _dispatch(self, found: Run | Message) -> int:
        """Dispatch one record, or a run; return its bytes."""
        if isinstance(found, Run):
            self._taker.run(found)
            return found.size
        self._taker.one(found)
        return found.total_size


HANGS: Literal["hangs"] = "hangs"
Started = bool | Literal["hangs"]

_LOCK_TEXT = b"lock"


class MessageStore:
    """One broker's store from construction to shutdown.

    Without ``contents`` the slots and entries of index files are not written; nothing else depends on them.
    """

    def __init__(self, files: StoreFiles, settings: StartSettings, *, contents: bool) -> None:
        self.files = files
        self.settings = settings
        self.log = BrokerLog()
        self.commit_log = CommitLog(files, settings, self.log, in_runs=not contents)
        self.queues = ConsumeQueueStore(files, settings, self.log)
        self.index = IndexService(files, settings, self.log, contents)
        if settings.is_4_9:
            # upstream: the delay levels are parsed after recovery, so delayed messages dispatched before have the hash
            # of tags.
            self.queues.rules = replace(settings.rules, delays=())
        self.clean = not files.exists(paths.ABORT)
        # The reason why the start fails.
        self.reason: str | None = None
        # The size of the record that was too large for the heap.
        self.out_of_memory: int | None = None
        # The largest end of a record with a queue entry after loading, and the maximum offsets at that time.
        self.max_physic_offset = -1
        self.loaded_max_offsets: dict[tuple[str, int], int] = {}
        # Whether recovery truncated the queues.
        self.truncated_queues = False
        # Undispatched bytes when the broker stops. The abort file is only removed if they are 0.
        self.backlog = 0
        self._checkpoint: Checkpoint | None = None
        self._delay_offsets = DelayOffsets(files)
        self._compaction: CompactionPositions | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, which load() opens."""
        assert self._checkpoint is not None
        return self._checkpoint

    def construct(self) -> bool:
        """Create the directories and open the lock file; return whether that works."""
        if not self.settings.is_4_9 and not self.settings.duplication:
            self.log.warn(broker_log.HA_SERVICE)
        for directory in (*self.settings.commit_log_dirs, paths.CONSUME_QUEUE):
            self.files.make_directories(directory)
        if self.settings.compaction and not self.settings.is_4_9:
            self._compaction = CompactionPositions(self.files, self.settings)
        if self.files.is_directory(paths.LOCK):
            self.reason = f"{paths.LOCK} is a directory"
            return False
        if not self.files.exists(paths.LOCK):
            self.files.create(paths.LOCK)
        return True

    def load(self) -> bool:
        """Load and recover; return whether the broker continues with start()."""
        try:
            self._load()
        except LoadRefused as refused:
            self.reason = str(refused)
            if self.settings.is_5_4 and not refused.exception:
                self.log.warn(broker_log.TRANSITION_FAILED)
            return False
        except OutOfMemory as error:
            self.out_of_memory = error.total_size
            self.reason = (
                f"OutOfMemoryError: a record claims {error.total_size} bytes, and the broker allocates them unchecked"
            )
            return False
        except ReadFailed as error:
            if not is_of_the_disk(error):
                raise
            # upstream: an InternalError of the JVM, because the files are mapped; it is not caught.
            self.reason = f"{error.message}; a broker that reads it dies with an InternalError"
            return False
        finally:
            self.log.close()
        return True

    def _load(self) -> None:
        self.commit_log.load()
        self.queues.load()
        self._checkpoint = Checkpoint(self.files, self.settings.is_4_9)
        index_loaded = self.index.load(self.clean, self.checkpoint)
        if not index_loaded and self.settings.is_5_4:
            self.log.warn(broker_log.TRANSITION_FAILED)
        self.queues.recover()
        self.max_physic_offset = self.queues.max_physic_offset
        self.loaded_max_offsets = {key: queue.max_offset for key, queue in self.queues.queues.items()}
        self._recover_commit_log()
        self.queues.correct_min_offsets(self.commit_log.mapped.min_offset)
        if self.settings.duplication and not self.settings.is_4_9:
            self.commit_log.walk_unconfirmed(self.checkpoint.confirm_phy_offset)
        if not index_loaded and not self.settings.is_4_9:
            raise LoadRefused(f"a directory in {paths.INDEX}/ has a number as its name")
        if self.settings.refused is not None:
            # upstream: the delay levels are parsed last, by ScheduleMessageService.load.
            raise LoadRefused(self.settings.refused, exception=True)
        if self.settings.is_4_9:
            self._delay_offsets.load(self.queues, self.log)

    def _recover_commit_log(self) -> None:
        settings, mapped = self.settings, self.commit_log.mapped
        if not mapped.mapped:
            self.log.warn(broker_log.FILES_DELETED)
            self.queues.destroy()
            return
        confirmed = self._confirmed_as_loaded()
        start = self.commit_log.start_index(self.clean, self.max_physic_offset, self.checkpoint)
        if self.clean:
            taker = None if settings.is_4_9 else Taker(self._dispatch_behind, self._dispatch_run_behind)
        elif settings.duplication:
            taker = Taker(self._dispatch_confirmed, lambda run: _one_by_one(run, self._dispatch_confirmed))
        else:
            taker = Taker(self.dispatch, self.dispatch_run)
        end = self.commit_log.scan(start, taker)
        if not settings.is_4_9:
            last = self.commit_log.last_record
            if last is None:
                last = confirmed if self.clean else mapped.mapped[start].start
            self.checkpoint.confirm_phy_offset = last
        known = self.queues.max_physic_offset if settings.is_5_4 else self.max_physic_offset
        if known >= end:
            self.log.warn(broker_log.TRUNCATE_LOGIC)
            self.truncated_queues = True
            self.queues.truncate(end)
        mapped.truncate(end)

    def _confirmed_as_loaded(self) -> int:
        """Return the offset that 5.x assumes to be confirmed before it has read a record.

        Upstream: ``getConfirmOffset``.
        """
        if self.settings.duplication:
            return self.checkpoint.confirm_phy_offset
        return 0 if self.settings.sync_flush else self.commit_log.mapped.max_offset

    def dispatch(self, message: Message) -> None:
        """Write the queue entries and index entries of a record."""
        if has_queue_unit(message.sys_flag) and self.queues.dispatch(message):
            self.checkpoint.logics_msg_timestamp = message.store_timestamp
        if self.settings.index_enabled:
            self.index.dispatch(message, self.checkpoint)

    def _dispatch_behind(self, message: Message) -> None:
        # The queues' maximum is an end: a record that starts exactly there is skipped.
        if message.physical_offset > self.max_physic_offset:
            self.dispatch(message)

    def _dispatch_run_behind(self, run: Run) -> None:
        import numpy as np

        if not run.batch.ascends:
            _one_by_one(run, self._dispatch_behind)
            return
        offsets = run.batch.physical_offsets[run.first : run.last]
        first = run.first + int(np.searchsorted(offsets, self.max_physic_offset, side="right"))
        if first < run.last:
            self.dispatch_run(run._replace(first=first))

    def dispatch_run(self, run: Run) -> None:
        """Dispatch many records: together where the result is the same, else one by one."""
        if not run.batch.ascends:
            _one_by_one(run, self.dispatch)
            return
        plan = self.queues.plan(run)
        self.queues.append(run.batch, plan.appended)
        first = run.first
        for number in [*plan.one_by_one, run.last]:
            if number > first:
                self._index_run(run.batch, first, number)
            if number < run.last:
                self.dispatch(run.batch.message(number))
            first = number + 1

    def _index_run(self, batch: Batch, first: int, last: int) -> None:
        """Index records whose queue entries are written."""
        while first < last:
            end = last
            if self.settings.index_enabled:
                end = self.index.dispatch_batch(batch, first, last)
            self._note_dispatched(batch, first, min(end + 1, last))
            if end < last:
                self.index.dispatch(batch.message(end), self.checkpoint)
            first = end + 1

    def _note_dispatched(self, batch: Batch, first: int, last: int) -> None:
        import numpy as np

        units = np.flatnonzero(batch.has_unit[first:last])
        if len(units):
            self.checkpoint.logics_msg_timestamp = int(batch.store_timestamps[first + units[-1]])

    def _dispatch_confirmed(self, message: Message) -> None:
        """Dispatch records that the replicas have confirmed. A 4.9 broker does not know these after a restart."""
        if self.settings.is_4_9:
            return
        if int64(message.physical_offset + message.total_size) <= self.checkpoint.confirm_phy_offset:
            self.dispatch(message)

    def start(self) -> Started:
        """Start the services; return whether the broker succeeds, or ``hangs``."""
        self.files.write(paths.LOCK, 0, _LOCK_TEXT)
        if self.settings.is_4_9:
            try:
                self._reput()
            except Hangs as hang:
                self.reason = str(hang)
                return HANGS
            if not self.files.exists(paths.ABORT):
                self.files.create(paths.ABORT)
            return True
        if self.files.is_directory(paths.ABORT):
            self.reason = f"{paths.ABORT} is a directory"
            return False
        old = self.files.read_whole(paths.ABORT) if self.files.exists(paths.ABORT) else b""
        self.files.replace(paths.ABORT + BACKUP, old)
        self.files.replace(paths.ABORT, b"0")
        if self.settings.duplication:
            # Dispatch begins at the confirmed offset, but not before the beginning of the log.
            confirmed = self.checkpoint.confirm_phy_offset
            self.backlog = confirmed - max(confirmed, self.commit_log.mapped.min_offset)
        return True

    def _reput(self) -> None:
        self.queues.rules = self.settings.rules
        mapped = self.commit_log.mapped
        taker = Taker(self.dispatch, self.dispatch_run)
        reput = Reput(self.commit_log, max(mapped.min_offset, 0, self.queues.max_physic_offset), taker)
        if self.settings.duplication and reput.behind > 0:
            raise Hangs("with duplicationEnable the dispatcher waits for a confirmation that was lost in the crash")
        reput.run()
        self.backlog = reput.behind
        self.queues.correct_min_offsets(mapped.min_offset)

    def shutdown(self, started: Started | None) -> None:
        """Stop as a broker does after this result of its start; without ``started``, load() has refused."""
        self.index.settle()
        if started == HANGS:
            return
        if self.settings.is_4_9:
            if started:
                self._delay_offsets.persist()
                self._close()
        elif self.settings.is_5_4 or started:
            self.index.shutdown()
            if self._compaction is not None:
                self._compaction.persist()
            if started is None:
                self.backlog = self.commit_log.mapped.max_offset
            self._close()
        elif started is False:
            # upstream: the flush thread of the queues makes one thorough round before start() throws, and the
            # shutdown() of 5.3 ignores a store that never ran.
            self.checkpoint.flush()

    def _close(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.flush()
        if self.backlog == 0 and self.queues.writeable:
            if self.files.is_directory(paths.ABORT):
                self.files.remove_directory(paths.ABORT)
            elif self.files.exists(paths.ABORT):
                self.files.delete(paths.ABORT)


def _one_by_one(run: Run, take: Callable[[Message], None]) -> None:
    for message in run.messages():
        take(message)
