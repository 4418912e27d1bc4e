"""Forcing the log to the disk: group commit for those who wait, a schedule for the rest.

Upstream: ``GroupCommitService``, ``FlushRealTimeService``, ``CommitRealTimeService``. One sync covers all that was
committed when it began, so of many producers who wait one forces for all; a lone producer forces for itself.

A sync that fails is never repeated: the kernel may have dropped the pages it could not write, and would say yes.
upstream: MappedFile.flush swallows the error, and later puts are acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqtool.config import StoreConfig
from rmqtool.engine.checkpoint import Checkpoint
from rmqtool.engine.clock import Clock
from rmqtool.engine.commit_log import CommitLog
from rmqtool.engine.group_commit import GroupCommit, Turn
from rmqtool.engine.health import Health
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.ticket import PutTicket
from rmqtool.engine.writer import Writer
from rmqtool.errors import WriteFailed


class Flusher:
    """Forces the log, and knows when to."""

    def __init__(
        self, log: CommitLog, writer: Writer, checkpoint: Checkpoint, health: Health, clock: Clock, config: StoreConfig
    ) -> None:
        self.on_flushed: Callable[[], None] = _do_nothing
        self._log = log
        self._writer = writer
        self._checkpoint = checkpoint
        self._health = health
        self._clock = clock
        self._config = config
        self._turns = GroupCommit(lambda: log.flushed_offset)
        self._last_flush = self._last_thorough = self._last_commit = clock.monotonic()

    def flush(self) -> bool:
        """Force all that is written, also what the off-heap pool holds; False when the store no longer writes."""
        self._turns.take_turn()
        try:
            return self._flush()
        finally:
            self._turns.end_turn()

    def wait_flushed(self, physical_offset: int) -> PutStatus:
        """Wait until everything before ``physical_offset`` is durable, forcing it if nobody else does."""
        return self._wait(physical_offset.__le__)

    @property
    def is_forcing(self) -> bool:
        """Whether somebody forces now, so that whoever comes is a part of the next group."""
        return self._turns.is_taken

    def join_next(self, ticket: PutTicket) -> None:
        """Have a ticket written and forced together with all others that come while somebody forces.

        Whoever has the next turn writes for all of them, in one call.
        """
        self._writer.waiting.append(ticket)
        status = self._wait(ticket.is_done_at)
        if not ticket.is_written and ticket.status is None:
            # It took too long; what comes of it nobody waits for.
            self._writer.write_waiting()
        if ticket.status is None:
            ticket.status = status

    def _wait(self, is_done: Callable[[int], bool]) -> PutStatus:
        deadline = self._clock.monotonic() + self._config.sync_flush_timeout
        turn = Turn.TOO_LATE
        # The store's clock decides when it is too late, not how long a lock was waited for.
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
        # It may have taken longer than the producer was promised.
        in_time = turn is not Turn.TOO_LATE and self._clock.monotonic() <= deadline
        return PutStatus.PUT_OK if in_time else PutStatus.FLUSH_DISK_TIMEOUT

    def _flush(self) -> bool:
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
        """Do what the schedule asks for: with synchronous flush everything, else by pages and time."""
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
        if self._is_dirty(least_pages):
            self._turns.take_turn()
            try:
                # Somebody may have forced it in the meantime.
                if self._is_dirty(least_pages):
                    self._flush()
            finally:
                self._turns.end_turn()

    def _is_dirty(self, least_pages: int) -> bool:
        log = self._log
        return log.committed_offset > log.flushed_offset and log.pages_to_flush() >= least_pages

    def commit_if_due(self) -> None:
        """Bring into the file what the off-heap pool holds, by pages and time."""
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


def _do_nothing() -> None:
    """Nobody wants to know."""
