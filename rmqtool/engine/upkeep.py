"""The schedule of an open store's periodic work: flushes, checkpoint, retention, disk usage; and threads that do it.

upstream: FlushRealTimeService, FlushConsumeQueueService, addScheduleTask.

``FirstChange`` keeps the mark of an open store (``abort``): set before the first change, removed when the store is
closed well. upstream: a broker sets the mark when it opens the store, and removes it unless a flag is set. Here a store
that refused every put gets no mark. A full disk alone does not keep the mark: everything that was accepted is durable.
Accepted messages without a queue entry keep it, because a broker of 5.x leaves one of them out after a clean stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqtool.config import Version
from rmqtool.engine.health import Health, RunningFlag
from rmqtool.engine.interrupts import INTERRUPTS
from rmqtool.engine.load import StoreState, mark_closed, mark_open
from rmqtool.engine.parts import Engine, Setup
from rmqtool.engine.retention import Retention
from rmqtool.errors import NoSpace, WriteFailed
from rmqtool.formats.paths import ABORT


class Worker:
    """A thread that works when it is woken and every ``period`` seconds, then rests as long as ``work`` returned.

    Computing threads hold up all others in Python. With a rest, a busy worker does more at a time instead of running
    all the time.
    """

    def __init__(self, name: str, work: Callable[[], float], health: Health, period: float | None = None) -> None:
        self._work = work
        self._period = period
        self._health = health
        self._woken = threading.Event()
        self._is_due = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which waits until it is woken or its period is over."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread work soon; many calls before it begins count as one."""
        if not self._is_due:
            self._is_due = True
            self._woken.set()

    def stop(self) -> None:
        """Wait until the thread has finished its work, and end it."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        """Work until ``stop``. An exception poisons the store and ends the thread."""
        rest = 0.0
        while not self._stopping.wait(rest):
            self._woken.wait(self._period)
            self._woken.clear()
            self._is_due = False
            if self._stopping.is_set():
                return
            try:
                rest = self._work()
            except BaseException as error:
                # No caller handles an exception of a thread: the store must stop writing.
                self._health.poison(error)
                raise


# 5.x writes the checkpoint this often, in ms; 4.9 only when it has forced the queues, or filled an index file.
_CHECKPOINT_INTERVAL = 1000


class Upkeep:
    """The periodic work of a store, and when each kind was done last. Old segments are removed if ``setup.expires``."""

    def __init__(self, engine: Engine, setup: Setup, retention: Retention) -> None:
        self._engine = engine
        self._health = engine.health
        self._clock = setup.clock
        self._config = setup.config
        self._sync = setup.is_sync
        self._pool = setup.has_pool
        self._retention = retention if setup.expires else None
        self._lock = threading.RLock()
        now = self._clock.monotonic()
        self._last_queue_flush = self._last_thorough = self._last_checkpoint = self._last_look = now

    def do_due(self) -> None:
        """Do the work whose interval is over; nothing once a write has failed."""
        if self._health.failure is not None:
            return
        engine, now = self._engine, self._clock.monotonic()
        if self._pool:
            engine.flusher.commit_if_due()
        engine.flusher.flush_if_due(sync=self._sync)
        self._prepare_next()
        if now - self._last_queue_flush >= self._config.flush_interval_consume_queue:
            self._last_queue_flush = now
            thorough = now - self._last_thorough >= self._config.flush_consume_queue_thorough_interval
            if thorough:
                self._last_thorough = now
                self.flush_queues()
            else:
                self.flush_queues(self._config.flush_consume_queue_least_pages)
        due = self._config.version is not Version.V4_9 and now - self._last_checkpoint >= _CHECKPOINT_INTERVAL
        if due:
            self._last_checkpoint = now
        if due or engine.dispatcher.index.durable_timestamp > engine.checkpoint.fields.index_msg_timestamp:
            self.flush_checkpoint()
        if now - self._last_look >= self._config.clean_resource_interval:
            self._last_look = now
            engine.disks.look()
            if self._retention is not None:
                self._retention.run_if_due(engine.log)

    def flush_queues(self, least_pages: int = 0) -> None:
        """Force the queues; with ``least_pages`` 0 force all of them and the index, then advance the checkpoint.

        One thread at a time: what one thread is forcing looks clean to another, which must not call it durable yet.
        Nothing is forced once a write has failed: a recovery follows.
        """
        with self._lock:
            if self._health.failure is not None:
                return
            dispatched = self._engine.dispatcher.dispatched
            try:
                self._engine.dispatcher.queues.flush(least_pages)
                if not least_pages:
                    self._engine.dispatcher.index.flush()
            except WriteFailed as error:
                self._health.poison(error)
                return
            if not least_pages:
                self._engine.checkpoint.advance(logics=dispatched.store_timestamp)
                self.flush_checkpoint()

    def flush_checkpoint(self) -> None:
        """Write the checkpoint, unless a write has failed. A failure here poisons the store, but no full disk does.

        The old times are safe: a start after a crash only reads more than it must. The next flush tries again.
        """
        engine = self._engine
        with self._lock:
            if self._health.failure is None:
                engine.checkpoint.advance(index=engine.dispatcher.index.durable_timestamp)
                try:
                    engine.checkpoint.flush()
                except NoSpace:
                    return
                except WriteFailed as error:
                    self._health.poison(error)

    def _prepare_next(self) -> None:
        """Create the next segment ahead of time, except in an empty log. A full disk does not poison the store."""
        if self._engine.log.room and not self._engine.log.has_next:
            try:
                self._engine.log.prepare_next()
            except NoSpace:
                # There may be space again when the segment is needed; if not, the put reports it.
                return
            except WriteFailed as error:
                self._health.poison(error)


# Flags after which the next start must recover.
_UNSOUND = RunningFlag.LOGICS_QUEUE_ERROR | RunningFlag.INDEX_FILE_ERROR


class FirstChange:
    """Marks a store as open before its first change, and removes the mark after a clean close."""

    def __init__(self, setup: Setup, engine: Engine, state: StoreState) -> None:
        self.is_done = False
        self._setup = setup
        self._engine = engine
        self._empty_segment = state.empty_segment
        self._has_leftovers = any(end.has_leftovers for end in state.queues.values())
        # The files that were created for the mark: abort, and from 5.x on its second file.
        self._marks: tuple[str, ...] = ()
        self._lock = threading.Lock()

    @INTERRUPTS.keep_from
    def prepare(self) -> None:
        """Set the mark (``abort``) before anything changes; do nothing if it is set.

        Also removes an empty last segment, makes a missing checkpoint, and dispatches the records that the last process
        left undispatched. Raises NoSpace on a full disk, and removes the mark if it could remove the new entries.
        """
        with self._lock:
            if self.is_done:
                return
            engine, files = self._engine, self._setup.files
            self._marks = self._marks or mark_open(files, self._setup.config.version)
            if self._empty_segment is not None:
                files.unlink(self._empty_segment)
                self._empty_segment = None
            try:
                engine.checkpoint.make()
                # Queue offsets continue from the queues, so these must be complete first.
                engine.dispatcher.dispatch()
            except NoSpace:
                if engine.dispatcher.take_back():
                    mark_closed(files, self._marks)
                    self._marks = ()
                raise
            engine.offsets.table.update(engine.dispatcher.queues.max_offsets())
            self.is_done = True

    def prepare_put(self) -> bool:
        """Set the mark (``abort``), unless the disk is too full for a message; return whether the store takes puts."""
        health = self._engine.health
        if not self.is_done:
            self._engine.disks.look()
            if health.is_writeable:
                self.prepare()
        return health.is_writeable

    def clear_leftovers(self) -> None:
        """Clear records that a broker cut off earlier but left in the files.

        After new messages they would be valid again.

        upstream: MappedFileQueue.truncateDirtyFiles moves positions only, and a later start finds the old records.
        """
        if self._has_leftovers and self._engine.health.is_writeable:
            self._engine.log.clear_next()
            for queue in self._engine.dispatcher.queues.simple.values():
                queue.clear_behind()

    def finish(self, *, is_changed: bool) -> None:
        """Remove the mark (``abort``) if the next start may trust log, queues and index.

        If nothing was changed, all files that were created for the mark are removed.
        """
        health, engine = self._engine.health, self._engine
        is_sound = health.failure is None and not health.flags & _UNSOUND and not engine.dispatcher.behind
        if self._marks and is_sound:
            engine.log.discard_prepared()
            mark_closed(self._setup.files, (ABORT,) if is_changed else self._marks)
