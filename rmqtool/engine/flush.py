"""Forces the log to disk: group commit for producers that wait, a schedule for the rest; and the checkpoint.

A sync covers everything that was committed when it began. So of many waiting producers one forces for all, and a lone
producer forces for itself. upstream: GroupCommitService, FlushRealTimeService, CommitRealTimeService.

A failed sync is never repeated: the kernel may have dropped the pages it could not write, and would report success.
upstream: MappedFile.flush swallows the error, and later puts are acknowledged.

``GroupCommit`` gives the turn to force to one thread at a time. Each waiting thread sleeps on its own lock: with a
common lock, the first thread to wake would force again before the last learns that it is done. The thread that forced
wakes the first sleeper whose messages are durable, which wakes the next; if all woke at once, they would only queue for
the interpreter. Most of these producers return at once with their next message. So the turn is not given to the first
newcomers, which would force for half of the producers while the other half waits. The last producer that is expected
back takes it. Sleepers check from time to time whether the turn is free, so waiting costs little more than one sync. If
an expected producer did not return, turns are handed on directly for a while.

``Checkpoint`` is the file with the store times up to which log, queues and index are durable. After a crash a broker
replays the log from shortly before the oldest of them, so none may run ahead of the disk. upstream: StoreCheckpoint.
The time of the queues may be that of a message that is not durable yet: the time of the log is never ahead, and the
oldest time counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from itertools import pairwise

from rmqtool.config import StoreConfig
from rmqtool.engine.clock import Clock
from rmqtool.engine.commit_log import CommitLog, Writer
from rmqtool.engine.health import Health
from rmqtool.engine.message import PutStatus
from rmqtool.engine.put import PutTicket
from rmqtool.errors import NoSpace, WriteFailed
from rmqtool.files.filesystem import WritableFile, WritableFileSystem
from rmqtool.formats import layouts
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_checkpoint
from rmqtool.formats.layouts import StoreCheckpoint
from rmqtool.formats.paths import CHECKPOINT


class Checkpoint:
    """The fields of the checkpoint in memory, and its file."""

    def __init__(self, files: WritableFileSystem) -> None:
        self._files = files
        self._file: WritableFile | None = files.open_write(CHECKPOINT) if files.exists(CHECKPOINT) else None
        self._written = decode_checkpoint(b"" if self._file is None else self._file.pread(PAGE_SIZE, 0))
        self.fields: StoreCheckpoint = self._written
        self._lock = threading.Lock()

    def make(self) -> None:
        """Create the file if it is missing. Its zeros mean that nothing is known to be durable."""
        if self._file is None:
            self._file = _made(self._files)

    def advance(self, *, physic: int = 0, logics: int = 0, index: int = 0) -> None:
        """Move times (ms) of the log, the queues and the index forward; a time never goes back."""
        with self._lock:
            fields = self.fields
            self.fields = fields._replace(
                physic_msg_timestamp=max(fields.physic_msg_timestamp, physic),
                logics_msg_timestamp=max(fields.logics_msg_timestamp, logics),
                index_msg_timestamp=max(fields.index_msg_timestamp, index),
            )

    def flush(self) -> None:
        """Write and force the fields if they changed since the last time; create the file if it is missing."""
        fields = self.fields
        if fields != self._written:
            self.make()
            assert self._file is not None, "it was made"
            self._file.pwrite(layouts.STORE_CHECKPOINT.encode(fields), 0)
            self._file.fdatasync()
            self._written = fields

    def close(self) -> None:
        """Close the file without writing; the fields in memory may be newer."""
        if self._file is not None:
            self._file.close()


def _made(files: WritableFileSystem) -> WritableFile:
    """Create the page of zeros, size and name durable; on a full disk nothing is left of it."""
    file = files.create(CHECKPOINT, PAGE_SIZE)
    try:
        file.fsync()
        files.fsync_dir()
    except NoSpace:
        file.close()
        files.unlink(CHECKPOINT)
        raise
    return file


# Seconds that a sleeper waits before it looks whether the expected producers are late. It doubles with each look.
_PATIENCE = 0.001
# Turns that are handed on directly after an expected producer did not return.
_DOUBTS = 64


class Turn(Enum):
    """The result of waiting for a flush."""

    MINE = "force now, and say so when it is done"
    DONE = "another thread has flushed it"
    TOO_LATE = "it took too long"


class _Sleeper:
    """A waiting thread. It sleeps on a lock of its own, which another thread releases to wake it."""

    __slots__ = ("is_done", "lock", "next", "turn")

    def __init__(self, is_done: Callable[[int], bool] | None) -> None:
        # Accepts the flushed offset; None for a thread that wants the turn in any case.
        self.is_done = is_done
        self.turn = Turn.TOO_LATE
        # The sleeper that this one wakes when it wakes; None at the end of the chain.
        self.next: _Sleeper | None = None
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self) -> None:
        self.lock.release()

    def wake_next(self) -> None:
        """Wake the sleeper after this one in the chain of those that are done, if there is one.

        A second call does nothing.
        """
        following, self.next = self.next, None
        if following is not None:
            following.wake()


class GroupCommit:
    """Gives the turn to force to one thread at a time."""

    def __init__(self, flushed_offset: Callable[[], int]) -> None:
        self._flushed_offset = flushed_offset
        self._guard = threading.Lock()
        self._is_taken = False
        # Producers whose messages the last sync made durable, and that have not come back yet. Most of them send their
        # next message at once, so the turn is free only for the last one that is expected.
        self._expected = 0
        # How many turns are still given to the next sleeper without waiting for expected producers; see ``_DOUBTS``.
        self._doubts = 0
        self._sleepers: list[_Sleeper] = []

    @property
    def is_taken(self) -> bool:
        """Whether a thread forces now, or will once the expected producers are back."""
        return self._is_taken or self._expected > 1 or (self._expected == 1 and bool(self._sleepers))

    @property
    def sleeping(self) -> int:
        """The number of threads that wait for a flush or for the turn."""
        return len(self._sleepers)

    def take_turn(self) -> None:
        """Wait for the turn, even if everything is durable by then; ``end_turn`` gives it up."""
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
        self._sleep(_Sleeper(None), -1)

    def wait(self, physical_offset: int, timeout: float) -> Turn:
        """Wait until everything before an offset is durable or it is the caller's turn; see ``wait_until``."""
        return self.wait_until(physical_offset.__le__, timeout)

    def wait_until(self, is_done: Callable[[int], bool], timeout: float) -> Turn:
        """Wait until ``is_done`` accepts the flushed offset, or it is the caller's turn to force.

        Returns ``Turn.TOO_LATE`` after ``timeout`` seconds. After ``Turn.MINE`` the caller must call ``end_turn``.
        """
        with self._guard:
            if is_done(self._flushed_offset()):
                return Turn.DONE
            if self._may_force():
                return Turn.MINE
        return self._sleep(_Sleeper(is_done), timeout)

    def _may_force(self) -> bool:
        """Take the turn if it is free and no producer but the caller is expected; return whether. The guard is held."""
        if self._is_taken or self._expected > 1:
            return False
        self._expected = 0
        self._is_taken = True
        return True

    def _sleep(self, sleeper: _Sleeper, timeout: float) -> Turn:
        """Sleep, and then wake the next sleeper; ``timeout`` is in seconds, -1 for none."""
        try:
            with self._guard:
                if self._may_force():
                    # The turn became free since the first look.
                    return Turn.MINE
                if self._expected and sleeper.is_done is not None:
                    self._expected -= 1
                self._sleepers.append(sleeper)
            self._sleep_on(sleeper, timeout)
            sleeper.wake_next()
        except BaseException:
            # An interrupted thread cannot use a turn that was given to it meanwhile: pass it on.
            self._leave(sleeper)
            sleeper.wake_next()
            if sleeper.turn is Turn.MINE:
                self.end_turn()
            raise
        return sleeper.turn

    def _sleep_on(self, sleeper: _Sleeper, timeout: float) -> None:
        """Sleep until woken or until the timeout (seconds; negative for none).

        If the expected producers are late, this gives the turn to the first sleeper.
        """
        patience = _PATIENCE
        while timeout < 0 or patience < timeout:
            if sleeper.lock.acquire(timeout=patience):
                return
            with self._guard:
                if sleeper not in self._sleepers:
                    return  # the thread that should have woken it was interrupted
                if not self._is_taken:
                    self._expected, self._doubts = 0, _DOUBTS
                    self._give_turn(self._sleepers[0])
            timeout -= patience if timeout > 0 else 0
            patience *= 2
        if not sleeper.lock.acquire(timeout=timeout):
            self._leave(sleeper)

    def _give_turn(self, sleeper: _Sleeper) -> None:
        """Give the turn to a sleeper and wake it. The guard is held."""
        self._is_taken = True
        self._sleepers.remove(sleeper)
        sleeper.turn = Turn.MINE
        sleeper.wake()

    def _leave(self, sleeper: _Sleeper) -> None:
        """Stop sleeping, unless another thread has just woken it."""
        with self._guard:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def end_turn(self, *, returns: bool = False) -> None:
        """Wake the sleepers that are done, and give the turn to the first of the others unless producers are expected.

        ``returns``: the caller is a producer that will come back with its next message.
        """
        with self._guard:
            reached = self._flushed_offset()
            done: list[_Sleeper] = []
            left: list[_Sleeper] = []
            for sleeper in self._sleepers:
                is_done = sleeper.is_done is not None and sleeper.is_done(reached)
                (done if is_done else left).append(sleeper)
            if self._doubts:
                self._doubts -= 1
            else:
                self._expected += len(done) + returns
            self._sleepers = left
            self._is_taken = False
            # Flushes that are not for a producer do not wait for producers.
            following = next((one for one in left if one.is_done is None or not self._expected), None)
            if following is not None:
                self._give_turn(following)
            for sleeper, behind in pairwise(done):
                sleeper.next = behind
            for sleeper in done:
                sleeper.turn = Turn.DONE
            if done:
                done[0].wake()


class Flusher:
    """Forces the log, for waiting producers and by schedule."""

    def __init__(
        self, log: CommitLog, writer: Writer, checkpoint: Checkpoint, health: Health, clock: Clock, config: StoreConfig
    ) -> None:
        # Called after each sync that succeeded.
        self.on_flushed: Callable[[], None] = lambda: None
        self._log = log
        self._writer = writer
        self._checkpoint = checkpoint
        self._health = health
        self._clock = clock
        self._config = config
        self._turns = GroupCommit(lambda: log.flushed_offset)
        self._last_flush = self._last_thorough = self._last_commit = clock.monotonic()

    def flush(self) -> bool:
        """Force everything written, also what the off-heap pool holds; return False if the store is read-only now."""
        self._turns.take_turn()
        try:
            return self._flush()
        finally:
            self._turns.end_turn()

    def wait_flushed(self, physical_offset: int) -> PutStatus:
        """Wait until everything before ``physical_offset`` is durable, and force it if no other thread does.

        Returns PUT_OK, FLUSH_DISK_TIMEOUT after ``syncFlushTimeout``, or UNKNOWN_ERROR if the store is poisoned.
        """
        return self._wait(physical_offset.__le__)

    @property
    def is_forcing(self) -> bool:
        """Whether a thread forces now, so that a new ticket belongs to the next group."""
        return self._turns.is_taken

    def join_next(self, ticket: PutTicket) -> None:
        """Have a ticket written and forced together with all others that come during the current sync; set its status.

        The thread with the next turn writes all of them in one call.
        """
        self._writer.waiting.append(ticket)
        status = self._wait(ticket.is_done_at)
        if not ticket.is_written and ticket.status is None:
            # The timeout is over. The ticket must still be written, because it is in the queue.
            self._writer.write_waiting()
        if ticket.status is None:
            ticket.status = status

    def _wait(self, is_done: Callable[[int], bool]) -> PutStatus:
        """Wait until ``is_done`` accepts the flushed offset; write and force for all if it is this thread's turn."""
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout
        turn = Turn.TOO_LATE
        # The store's clock decides about the timeout, not the time that a lock was waited for.
        while turn is Turn.TOO_LATE and (left := deadline - self._clock.monotonic()) > 0:
            turn = self._turns.wait_until(is_done, left / 1000)
        if turn is Turn.MINE:
            is_forced = False
            try:
                if self._writer.waiting:
                    self._writer.write_waiting()
                is_forced = is_done(self._log.flushed_offset) or self._flush()
            finally:
                self._turns.end_turn(returns=is_forced)
            if not is_forced:
                return PutStatus.UNKNOWN_ERROR
        # The sync itself may have taken longer than the timeout.
        in_time = turn is not Turn.TOO_LATE and self._clock.monotonic() <= deadline
        return PutStatus.PUT_OK if in_time else PutStatus.FLUSH_DISK_TIMEOUT

    def _flush(self) -> bool:
        """Force the log and move the checkpoint; the caller has the turn. Return False if the store is poisoned."""
        if self._health.failure is not None:
            return False
        try:
            self._writer.commit()
            reached = self._log.flush()
        except WriteFailed as error:
            self._health.poison(error)
            return False
        self._checkpoint.advance(physic=reached.store_timestamp)
        self.on_flushed()
        return True

    def flush_if_due(self, *, sync: bool) -> None:
        """Force everything with synchronous flush, else if at least ``flushCommitLogLeastPages`` pages are dirty.

        With ``flushCommitLogTimed`` it looks at the pages only every ``flushIntervalCommitLog`` ms. Every
        ``flushCommitLogThoroughInterval`` ms their number does not count.
        """
        config, now = self._config, self._clock.monotonic()
        if sync:
            self._flush_dirty(0)
            return
        interval = config.flush_interval_commit_log if config.flush_commit_log_timed else 0
        if now - self._last_flush >= interval:
            self._last_flush = now
            thorough = now - self._last_thorough >= config.flush_commit_log_thorough_interval
            if thorough:
                self._last_thorough = now
            self._flush_dirty(0 if thorough else config.flush_commit_log_least_pages)

    def _flush_dirty(self, least_pages: int) -> None:
        """Force the log if a flush would complete at least ``least_pages`` pages."""
        if self._is_dirty(least_pages):
            self._turns.take_turn()
            try:
                # Another thread may have forced it meanwhile.
                if self._is_dirty(least_pages):
                    self._flush()
            finally:
                self._turns.end_turn()

    def _is_dirty(self, least_pages: int) -> bool:
        log = self._log
        return log.committed_offset > log.flushed_offset and log.pages_to_flush() >= least_pages

    def commit_if_due(self) -> None:
        """Write to the file what the off-heap pool holds, if that completes ``commitCommitLogLeastPages`` pages.

        Nothing is written within ``commitIntervalCommitLog`` ms of the last time. After
        ``commitCommitLogThoroughInterval`` ms the number of pages does not count. A failure poisons the store.
        """
        config, now = self._config, self._clock.monotonic()
        if now - self._last_commit < config.commit_interval_commit_log:
            return
        thorough = now - self._last_commit >= config.commit_commit_log_thorough_interval
        if thorough or self._log.pages_to_commit() >= config.commit_commit_log_least_pages:
            self._last_commit = now
            if self._log.pending_size and self._health.failure is None:
                try:
                    self._writer.commit()
                except WriteFailed as error:
                    self._health.poison(error)
