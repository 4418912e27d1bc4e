"""The mark of an open store (``abort``): set before the first change, removed when the store is closed well.

upstream: a broker sets the mark when it opens the store, and removes it unless a flag is set. Here a store that refused
every put gets no mark. A full disk alone does not keep the mark: everything that was accepted is durable.
"""

from __future__ import annotations

import threading

from rmqtool.engine.health import RunningFlag
from rmqtool.engine.interrupts import INTERRUPTS
from rmqtool.engine.load import StoreState, mark_closed, mark_open
from rmqtool.engine.parts import Engine, Setup
from rmqtool.formats.paths import ABORT

# Flags after which the next start must recover.
_UNSOUND = RunningFlag.LOGICS_QUEUE_ERROR | RunningFlag.INDEX_FILE_ERROR


class FirstChange:
    """Marks a store as open, once."""

    def __init__(self, setup: Setup, engine: Engine, state: StoreState) -> None:
        self.is_done = False
        self._setup = setup
        self._engine = engine
        self._empty_segment = state.empty_segment
        self._has_leftovers = any(end.has_leftovers for end in state.queues.values())
        # The files that were created for the mark.
        self._marks: tuple[str, ...] = ()
        self._lock = threading.Lock()

    @INTERRUPTS.keep_from
    def prepare(self) -> None:
        """Set the mark before anything changes, and dispatch the records that the last process left undispatched."""
        with self._lock:
            if self.is_done:
                return
            engine, files = self._engine, self._setup.files
            self._marks = self._marks or mark_open(files, self._setup.config.version)
            if self._empty_segment is not None:
                files.unlink(self._empty_segment)
                self._empty_segment = None
            engine.checkpoint.make()
            # Queue offsets continue from the queues, so these must be complete first.
            engine.dispatcher.dispatch()
            engine.offsets.table.update(engine.dispatcher.queues.max_offsets())
            self.is_done = True

    def prepare_put(self) -> bool:
        """Set the mark, unless the disk is too full for a message; return whether the store takes puts."""
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
        """Remove the mark if the next start may trust log, queues and index."""
        health, engine = self._engine.health, self._engine
        is_sound = health.failure is None and not health.flags & _UNSOUND and not engine.dispatcher.behind
        if self._marks and is_sound:
            engine.log.discard_prepared()
            mark_closed(self._setup.files, (ABORT,) if is_changed else self._marks)
