"""A mirror at work: it connects, goes on at its durable end, reconnects, and says what it sees."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, closing
from typing import Any, Final, Protocol, TypeVar

from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.errors import RemoteError, UsageError
from rmqtool.formats.commit_log import Message
from rmqtool.formats.paths import ABORT, COMMIT_LOG
from rmqtool.log.walk import read_record_at
from rmqtool.replica.chunks import consistent_point
from rmqtool.replica.directory import Configuration, Epochs, MirrorDirectory
from rmqtool.replica.masters import Bounds, Master, MasterSettings, Tables
from rmqtool.replica.mirror_log import MirrorLog, cut_back
from rmqtool.replica.slave import ConnectionLost, Following, Handshake, Manner, Syncer

Result = TypeVar("Result")
Event = Mapping[str, Any]

# Seconds: between two lines, two looks at the age of segments, two attempts to connect; and the shortest wait.
_LINE, _RETENTION, _PAUSE, _WAIT = 1.0, 60.0, 1.0, 0.05
# With ``once``: attempts to connect, one after the other, to a master that is gone.
_TRIES: Final = 3
_START, _END = "start", "end"
_NOT_AWAITED: Final = (
    "the master is a SYNC_MASTER with inSyncReplicas=1: it answers producers before the mirror has their messages; "
    "inSyncReplicas=2 makes it wait"
)
_AWAITED: Final = (
    "the master is a SYNC_MASTER of 4.9: it waits for each connection, also with --ack never; without another slave "
    "its producers get FLUSH_SLAVE_TIMEOUT after 3 s, not SLAVE_NOT_AVAILABLE at once"
)


class Loop(Protocol):
    """Runs the coroutines of a client."""

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run one to its end."""

    def begin(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Start one."""


class Watch:
    """Asks the master beside the stream: the bounds of its log each second, its tables from time to time."""

    def __init__(self, master: Master, settings: MasterSettings, bounds: Bounds, every: float) -> None:
        self._master, self._settings, self._every = master, settings, every
        # None while the master does not answer.
        self.bounds: Bounds | None = bounds
        self.tables: Tables | None = None
        # The reason why tables could not be read.
        self.problem: str | None = None
        self.wants_tables = True
        self._is_ended = False

    async def run(self) -> None:
        """Ask for both until ``end`` is called. Tables can take much longer than bounds."""
        import asyncio

        await asyncio.gather(self._follow(self._ask_bounds, _LINE), self._follow(self._ask_tables, self._every))

    async def _follow(self, ask: Callable[[], Coroutine[Any, Any, None]], every: float) -> None:
        import asyncio

        while not self._is_ended:
            try:
                await ask()
            except RemoteError as error:
                self.problem = error.message
            await asyncio.sleep(every)

    async def _ask_bounds(self) -> None:
        try:
            self.bounds = await self._master.bounds()
        except RemoteError:
            self.bounds = None
            raise

    async def _ask_tables(self) -> None:
        if self.wants_tables:
            self.tables = await self._master.tables(self._settings.version)

    def end(self) -> None:
        """Ask nothing more."""
        self._is_ended = True

    def take_tables(self) -> Tables | None:
        """Return the tables that came since the last call."""
        found, self.tables = self.tables, None
        return found


class Mirror:
    """One mirror that runs until it is stopped, or, with ``once``, until it has what the master had at its start."""

    def __init__(
        self, loop: Loop, root: str, manner: Manner, told: Callable[[Event], None], stop: threading.Event
    ) -> None:
        self._loop, self._root, self._manner = loop, root, manner
        self._told, self._stop = told, stop
        self._directory: MirrorDirectory | None = None
        self._address = ""
        # The name of the broker, once it is known, and where a new mirror begins.
        self._broker: str | None = None
        self._first: int | None = None
        # The end of the master's log when the mirror began: ``once`` waits for it.
        self._goal: int | None = None
        self._line_at = self._sync_since = 0.0
        self._line_offset = 0
        self._kept_at = 0.0
        # The problems that were told since the last connection was made.
        self._problems: set[str] = set()
        self._bounds: Bounds | None = None
        self._has_tables = False
        self._store: MessageStore | None = None
        self._whole = 0
        self._gap: dict[str, int] = {}
        self.has_gap = False

    def run(self, find: Callable[[str | None], Coroutine[Any, Any, Master]]) -> dict[str, Any]:
        """Mirror the master that ``find`` gives; return the last line. Raises MasterChanged, and RemoteError.

        ``find`` gets the name of the broker once it is known: other brokers may join its cluster.
        """
        failures = 0
        while True:
            before = self._durable
            try:
                self._connect_and_follow(self._loop.run(find(self._broker)))
                return self._line()
            except RemoteError as error:
                if self._directory is not None:
                    self._log.sync()
                failures = 1 if self._durable > before else failures + 1
                if self._directory is None or (self._manner.once and failures >= _TRIES):
                    raise
                self._tell_problem("lost", error.message)
                # The master may have more by now.
                self._bounds = None
                if time.monotonic() - self._line_at >= _LINE:
                    self._told(self._line())
            if self._stop.wait(_PAUSE):
                return self._line()

    def close(self) -> None:
        """Make everything durable, and close the directory."""
        directory, self._directory = self._directory, None
        if directory is not None:
            with ExitStack() as stack:
                stack.callback(directory.close)
                if self._store is not None:
                    stack.callback(self._store.close)
                self._log.close()
                self._advance_queues()

    def _advance_queues(self) -> None:
        """Add the records that are durable now to queues and index, if the mirror keeps them."""
        if self._store is not None and not self._log.is_empty:
            whole = self._log.whole_end(max(self._whole, self._log.min_offset))
            self._store.commit_log.follow(self._log.segments.segments, *whole)
            self._store.dispatch_now()
            self._whole = whole.offset

    # One connection.

    def _connect_and_follow(self, master: Master) -> None:
        settings = self._loop.run(master.settings())
        bounds = self._loop.run(master.bounds())
        self._address = master.address
        self._open(master, settings, bounds)
        watch = Watch(master, settings, bounds, self._manner.config_every)
        watching = self._loop.begin(watch.run())
        try:
            if self._manner.live and self._store is None:
                self._follow(master, settings, watch, lambda: self._log.is_compared)
                if not self._log.is_compared:
                    return
                self._build_queues(self._loop.run(master.bounds()))
            self._follow(master, settings, watch, self._is_done)
        finally:
            watch.end()
            watching.cancel()

    def _open(self, master: Master, settings: MasterSettings, bounds: Bounds) -> None:
        """Open the directory at the first connection, and find where to go on."""
        self._bounds = bounds
        if self._goal is None:
            self._goal = bounds.max_offset
        if self._first is None:
            self._first = _first_offset(self._manner.begin, bounds, settings.segment_size)
        if self._directory is None:
            with ExitStack() as stack:
                directory = MirrorDirectory.open(self._root, settings, master.address)
                stack.callback(directory.close)
                self._log = MirrorLog(directory.files, settings.segment_size)
                self._configuration = Configuration(directory.files, settings.version)
                self._epochs = Epochs(directory.files)
                stack.pop_all()
            self._directory, self._broker = directory, settings.broker_name
            if self._manner.begin is not None and not self._log.is_empty:
                raise UsageError(
                    f"--from is for a new mirror; {self._root} goes on where it ends", hint="leave out --from"
                )
        self._directory.require(settings)
        if self._manner.live and self._store is None and self._log.is_empty:
            self._configuration.take(self._loop.run(master.tables(settings.version)))
            self._store = _open_store(self._directory)
        if self._log.is_empty:
            self._log.begin_at(max(self._first, 1))
            if self._first < bounds.min_offset:
                self._skip(self._first, bounds.min_offset)
            self._line_offset = self._log.durable_offset
            return
        self._go_on(bounds)

    def _build_queues(self, bounds: Bounds) -> None:
        """Open the store of a mirror that has every byte from its master: only now may its end be cut to records."""
        assert self._directory is not None, "it is open"
        self._log.close_at_record()
        self._store = _open_store(self._directory)
        self._log = MirrorLog(self._directory.files, self._log.segment_size)
        self._whole = self._store.commit_log.wrote_offset
        self._go_on(bounds)

    def _go_on(self, bounds: Bounds) -> None:
        """Find where to go on."""
        found = self._log.verify()
        if found.written_end > max(bounds.max_offset, 1):
            raise cut_back(found.written_end, bounds.max_offset)
        if found.end < bounds.min_offset:
            self._skip(found.end, bounds.min_offset)
        elif self._log.next_offset < bounds.min_offset:
            self._log.next_offset = bounds.min_offset

    def _require_same_log(self, handshake: Handshake) -> None:
        """Raise MasterChanged if the epochs tell that the master's log is another one before the end of the mirror."""
        ours, end = self._epochs.entries, self._log.wrote_offset
        if ours:
            point = consistent_point(ours, end, handshake.epochs, handshake.max_offset)
            if point < end:
                raise cut_back(end, max(point, 0))

    def _skip(self, end: int, min_offset: int) -> None:
        """Go on after bytes that the master has deleted."""
        gap = {"from": end, "to": min_offset}
        if gap != self._gap:
            self._told({"gap": gap})
        self.has_gap, self._gap = True, gap
        self._log.begin_at(min_offset)

    def _follow(self, master: Master, settings: MasterSettings, watch: Watch, is_done: Callable[[], bool]) -> None:
        """Follow over one connection until ``is_done``, or until the mirror is stopped."""
        while not self._first_bytes_are_there(watch):
            if is_done() or self._stop.wait(_WAIT):
                return
        with closing(Syncer(self._log)) as syncer:
            acknowledges = self._manner.acknowledges
            following = Following(master, settings, self._log, syncer, self._epochs.add, acknowledges=acknowledges)
            with closing(following):
                if acknowledges and settings.is_sync_in_name_only:
                    self._tell_problem("note", _NOT_AWAITED)
                if not acknowledges and settings.counts_connections:
                    self._tell_problem("note", _AWAITED)
                self._receive(following, watch, is_done)

    def _first_bytes_are_there(self, watch: Watch) -> bool:
        """Whether the master has a log: a 4.9 master closes the connection of a slave that has more than it.

        Byte 0 is not sent, so a mirror of an empty master has one byte more.
        """
        if watch.bounds is not None and watch.bounds.max_offset:
            return True
        self._look_around(watch)
        return False

    def _receive(self, following: Following, watch: Watch, is_done: Callable[[], bool]) -> None:
        handshake = following.connect()
        if handshake is not None:
            self._require_same_log(handshake)
        following.begin()
        self._problems.clear()
        self._told({"event": "connected", "master": self._address})
        while not (is_done() or self._stop.is_set()):
            following.step()
            self._look_around(watch)
            self._require_next_bytes(following)
        self._log.sync()
        following.acknowledge()
        self._remove_old()

    def _require_next_bytes(self, following: Following) -> None:
        """Raise ConnectionLost if the master has deleted the next bytes: it sends heartbeats then, and nothing else."""
        wanted, bounds = self._log.next_offset, self._bounds
        if bounds is not None and wanted < bounds.min_offset and following.heartbeats > 1:
            raise ConnectionLost(
                f"the master has deleted its log before {bounds.min_offset}; {wanted} is the next byte"
            )

    def _is_done(self) -> bool:
        """Whether everything is compared and durable that the master had at the start, and its tables are written."""
        reached = min(self._log.durable_offset, self._log.next_offset)
        return self._manner.once and self._goal is not None and self._has_tables and reached >= self._goal

    # Events, and work beside the stream.

    def _look_around(self, watch: Watch) -> None:
        now = time.monotonic()
        self._bounds = watch.bounds
        # Before that the master may be found to be another one.
        if self._log.is_compared and (tables := watch.take_tables()) is not None:
            self._configuration.take(tables)
        if self._configuration.write_due(self._log.durable_offset):
            self._has_tables = True
        watch.wants_tables = not self._configuration.is_waiting
        for problem in (watch.problem, self._configuration.problem):
            if problem is not None:
                self._tell_problem("note", problem)
        if now - self._kept_at >= _RETENTION:
            self._kept_at = now
            self._remove_old()
        if now - self._line_at >= _LINE:
            self._advance_queues()
            self._told(self._line())

    def _line(self) -> dict[str, Any]:
        """Return the line of the contract."""
        now, durable = time.monotonic(), self._durable
        seconds = now - self._line_at if self._line_at else 0.0
        rate = int((durable - self._line_offset) / seconds) if seconds else 0
        self._line_at, self._line_offset = now, durable
        # The master's end is asked for once a second, and the log may be further already.
        end = None if self._bounds is None else max(self._bounds.max_offset, durable)
        first = self._log.min_offset if self._directory is not None else 0
        return {
            "master": self._address,
            "from": first,
            "durable": durable,
            "masterMax": end,
            "lagBytes": 0 if end is None else max(end - durable, 0),
            "bytesPerSecond": rate,
        }

    @property
    def _durable(self) -> int:
        return 0 if self._directory is None or self._log.is_empty else self._log.durable_offset

    def _tell_problem(self, event: str, reason: str) -> None:
        """Tell a problem, once for each connection."""
        if reason not in self._problems:
            self._problems.add(reason)
            self._told({"event": event, "reason": reason})

    def _remove_old(self) -> None:
        """Remove the segments whose last message is too old: a later segment begins with an older one than allowed.

        A segment that begins with a damaged record says nothing about those before it; a later one does.
        """
        if self._manner.keep_ms is None:
            return
        limit = time.time_ns() // 1_000_000 - self._manner.keep_ms
        removed = 0
        for number, segment in enumerate(self._log.segments.segments[1:], 1):
            found = read_record_at(self._log.segments.open(segment), segment.base_offset, 0, verify=False)
            if isinstance(found, Message):
                if found.store_timestamp >= limit:
                    break
                removed = number
        for _ in range(removed):
            self._log.remove_first()
        if removed:
            self._told({"event": "removed", "segments": removed, "from": self._log.min_offset})


def _first_offset(begin: str | int | None, bounds: Bounds, segment_size: int) -> int:
    """Return where a new mirror begins: always where a segment does, so that it is a store."""
    if begin is None or begin == _START:
        return bounds.min_offset
    if begin == _END:
        return max(bounds.max_offset - bounds.max_offset % segment_size, bounds.min_offset)
    offset = int(begin)
    if not bounds.min_offset <= offset <= bounds.max_offset:
        raise UsageError(
            f"the master has the log from {bounds.min_offset} to {bounds.max_offset}, not {offset}",
            hint="--from start, --from end, or an offset in between",
        )
    return max(offset - offset % segment_size, bounds.min_offset)


def _open_store(directory: MirrorDirectory) -> MessageStore:
    """Open the store of a mirror, under its lock; queues and index are built from the log first."""
    setup = Setup(directory.files, directory.config())
    directory.release()
    if directory.files.listdir(COMMIT_LOG) or directory.files.exists(ABORT):
        # A store that was killed before its first segment came has ``abort`` alone.
        recover(setup)
    return MessageStore.open(setup, begins=True)
