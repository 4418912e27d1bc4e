"""The schedule of an open store's periodic work: flushes, checkpoint, retention, disk usage; and threads that do it.

upstream: FlushRealTimeService, FlushConsumeQueueService, addScheduleTask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqtool.config import Version
from rmqtool.engine.health import Health
from rmqtool.engine.parts import Engine, Setup
from rmqtool.engine.retention import Retention
from rmqtool.errors import NoSpace, WriteFailed


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
        """
        with self._lock:
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
        """Write the checkpoint. On a full disk the old one stays; it is only older."""
        engine = self._engine
        with self._lock:
            if self._health.failure is None:
                engine.checkpoint.advance(index=engine.dispatcher.index.durable_timestamp)
                try:
                    engine.checkpoint.flush()
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
