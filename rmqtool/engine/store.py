"""MessageStore: an open store as one object, with put, get, flush, dispatch and close.

upstream: DefaultMessageStore. The lock is taken before anything is read that decisions depend on. Everything that
threads do, a call can do too: ``flush_now``, ``dispatch_now``, and ``tick`` for all work that is due by the clock.
``start`` adds the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Self, TypeAlias

from rmqtool.config import BrokerRole, StoreConfig
from rmqtool.engine.commit_log import CommitLog, Placed
from rmqtool.engine.consume_queue import AnyQueue
from rmqtool.engine.dispatch import Listener
from rmqtool.engine.health import Condition, RunningFlag
from rmqtool.engine.interrupts import INTERRUPTS, to_the_end
from rmqtool.engine.load import StoreState, read_state, without_log
from rmqtool.engine.message import Host, NewMessage, PutStatus, QueueKey
from rmqtool.engine.parts import Engine, Setup, build, log_directories, read_only_directories
from rmqtool.engine.put import PutTicket, refused
from rmqtool.engine.put_columns import (
    Adoption,
    MessageColumns,
    PutColumns,
    columns_of,
    is_plain,
    make_ready,
    tickets_of,
    write_ready,
)
from rmqtool.engine.reader import StoreReader
from rmqtool.engine.retention import Expired, Retention
from rmqtool.engine.upkeep import FirstChange, Upkeep, Worker
from rmqtool.errors import NoSpace, Refused, WriteFailed
from rmqtool.files.filesystem import Closable, make_directories
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats import paths
from rmqtool.store.listing import lock_store

# Write queued tickets once this many are waiting.
_WINDOW = 512
# The largest slab; the smallest batch for which columns pay; and the messages after which numpy is worth importing.
_SLAB, _LEAST_FOR_SLAB, _LEAST_TO_LOAD = 8192, 128, 4096
# Puts continue while the queues cannot be written, until the undispatched log has this many bytes.
_MOST_BEHIND = 64 << 20
# If the writer seems busy for longer than this (ms), the clock has jumped, and puts are taken. As upstream.
_LONGEST_BUSY = 10_000_000
# Seconds between two rounds of upkeep.
_SYNC_PERIOD, _ASYNC_PERIOD = 0.01, 0.1
# How many seconds the dispatcher rests. With listeners it rests ``_REST``, and ``_REST_WHEN_BUSY`` after a pass of at
# least ``_BUSY_PASS`` records. Without listeners no consumer waits: it rests ``_REST_WHEN_BUSY``, and after such a pass
# ``_REST_UNOBSERVED``, because records that are dispatched together cost less each.
_REST, _REST_WHEN_BUSY, _REST_UNOBSERVED, _BUSY_PASS = 0.001, 0.02, 0.2, 64
# ``tick_soon`` dispatches after this time (ms), or this number of bytes. Dispatching two thousand messages together
# takes 0.4 microseconds for each, a single one takes 30.
_PASS_PERIOD, _PASS_SIZE = 50, 1 << 20


# Makes the ticket of a message at a time (ms), or returns why it is refused: ``Intake.accept`` or ``accept_batch``.
Accept: TypeAlias = Callable[[NewMessage, int], PutTicket | PutStatus]


class _Lent(Closable):
    """A lock that the caller owns, and keeps after the store is closed."""

    def close(self) -> None:
        """Leave the lock with its owner."""


class MessageStore:
    """One open store. Its methods may be called from several threads.

    Opening changes nothing on disk unless there are undispatched records. The first put, or another change, marks the
    store as open before.
    """

    def __init__(self, setup: Setup, engine: Engine, lock: Closable, state: StoreState) -> None:
        self.setup = setup
        self._engine = engine
        self._lock = lock
        self._is_open = True
        self._takes_puts = setup.config.broker_role is not BrokerRole.SLAVE
        self._workers: tuple[Worker, ...] = ()
        derived = engine.dispatcher
        self._reader = StoreReader(setup.files, setup.config, engine.log, derived.queues, derived.index)
        # Whether ``tick_soon`` has left records undispatched, and the store time at which it dispatched last.
        self._is_behind = False
        self._last_tick = 0
        # Kept here because each put needs them.
        self._now = setup.clock.now
        self._writer, self._health = engine.writer, engine.health
        self._joins_groups = setup.is_sync and not setup.has_pool
        # Whether a put is done once its record is in the file.
        self._is_simple = not setup.is_sync and not setup.has_pool
        # Whether ``put`` and ``put_many`` wait for the disk, with synchronous flush. The loop of ``serve`` must not: it
        # flushes later, and saves the progress that rests on these puts only after that flush.
        self.waits_for_disk = True
        self._accept, self._accept_batch = engine.intake.accept, engine.intake.accept_batch
        self._busy_limit = setup.config.os_page_cache_busy_time_out_mills
        # The state when the store was opened: a store that was not changed is closed without a write.
        self._opened_at = self._reached()
        self._first = FirstChange(setup, engine, state)
        self._retention = Retention(engine, setup, before_removing=self._first.prepare, on_removed=self._reader.forget)
        self._upkeep = Upkeep(engine, setup, self._retention)
        # The error of the full disk for which records are left undispatched, else None.
        self._without_room: NoSpace | None = None
        self._put_many_count = 0

    @classmethod
    def create(cls, setup: Setup) -> Self:
        """Create an empty store and open it, marked as open; raise Refused if there is a commit log already."""
        directories = log_directories(setup)
        for filesystem, path in directories:
            if filesystem.exists(path) and filesystem.listdir(path):
                shown = filesystem.shown(path)
                raise Refused(
                    "there is a commit log already; nothing was created", file=shown, hint="name another directory"
                )
            make_directories(filesystem, path)
        make_directories(setup.files, paths.CONSUME_QUEUE)
        return cls._open(setup, None, begins=True)

    @classmethod
    def open(cls, setup: Setup, held: Closable | None = None, *, begins: bool = False) -> Self:
        """Open a store that was closed cleanly; raise an RmqtoolError for any other (see ``load.read_state``).

        ``held`` is the lock of a caller that has it already, and keeps it. ``begins``: mark it as open at once.
        """
        return cls._open(setup, held, begins=begins)

    @classmethod
    def _open(cls, setup: Setup, held: Closable | None, *, begins: bool) -> Self:
        """Open a store with Ctrl-C kept back; if it came meanwhile, close the store again, which raises it."""
        INTERRUPTS.begin()
        try:
            store = cls._opened(setup, held, begins=begins)
        except BaseException:
            INTERRUPTS.end()
            raise
        if INTERRUPTS.is_due():
            # Ctrl-C came meanwhile. No caller has the store yet; its close raises the interrupt.
            store.close()
        return store

    @classmethod
    @INTERRUPTS.keep_from
    def _opened(cls, setup: Setup, held: Closable | None, *, begins: bool) -> Self:
        """Lock the store, read its state and build its parts; on an error everything is closed again."""
        directories = log_directories(setup)
        if not any(filesystem.exists(path) for filesystem, path in directories):
            raise without_log(setup.files, setup.config)
        lock: Closable = lock_store(setup.files, directories) if held is None else _Lent()
        try:
            state = read_state(
                setup.files,
                setup.config,
                directories,
                read_only_directories(setup),
            )
            engine = build(setup, state, directories)
            try:
                store = cls(setup, engine, lock, state)
                if begins or engine.dispatcher.behind:
                    store._first.prepare()
            except BaseException:
                engine.close_files()
                raise
        except BaseException:
            lock.close()
            raise
        return store

    def put(self, message: NewMessage) -> PutTicket:
        """Store a message; the status of the ticket is the result, which is always known.

        With synchronous flush this waits for the disk, unless ``waits_for_disk`` is off or the message has WAIT=false.
        Ctrl-C during the put is raised after it.
        """
        ticket = self._write(self._ticket(message, self._accept))
        if INTERRUPTS.pending:
            INTERRUPTS.deliver()
        return ticket

    def plain_kind(self, topic: str, names: tuple[str, ...], values: Mapping[str, str]) -> object | None:
        """Return what ``put_plain`` needs for messages of a topic with such properties; None if these need ``put``.

        See ``Encoder.record_kind``.
        """
        return self._engine.encoder.record_kind(topic, names, values)

    def put_plain(self, kind: object, message: NewMessage, uniq_key: str, now: int) -> Placed | None:
        """Store a plain message at ``now`` (ms); return None, with nothing done, if it needs ``put``.

        ``kind`` is that of ``Encoder.record_kind``.
        """
        if not (self._is_simple and self._health.is_writeable and self._first.is_done and self._takes_puts):
            return None
        placed = self._writer.write_plain(kind, message, uniq_key, now)
        if INTERRUPTS.pending:
            INTERRUPTS.deliver()
        return placed

    @INTERRUPTS.keep_from
    def put_made(self, queue: QueueKey, record: bytearray, waits: bool) -> PutTicket | None:
        """Queue the record of a message of ``plain_kind``, as ``put_async`` does; None if that must decide instead."""
        if not self._health.is_writeable or not self._first.is_done or not self._takes_puts or self._workers:
            return None
        waiting, ticket = self._writer.waiting, PutTicket(queue, (record,), 1, self.store_host, self._now())
        ticket.waits = waits
        waiting.append(ticket)
        if len(waiting) >= _WINDOW:
            self._writer.write_waiting()
        return ticket

    @to_the_end
    def put_batch(self, message: NewMessage) -> PutTicket:
        """Store the messages of a client's batch, all or none, each as its own record."""
        return self._write(self._ticket(message, self._accept_batch))

    @INTERRUPTS.keep_from
    def _write(self, ticket: PutTicket) -> PutTicket:
        """Write a ticket that is not refused, and decide its status."""
        # While a thread forces, a ticket is left to the next group, so that one sync covers many tickets.
        joins = self._joins_groups and ticket.waits and self.waits_for_disk
        if ticket.status is None and joins and self._engine.flusher.is_forcing:
            self._engine.flusher.join_next(ticket)
        elif ticket.status is None:
            self._writer.write(ticket)
            if ticket.status is None:
                self._settle(ticket)
        return ticket

    def put_async(self, message: NewMessage, *, is_batch: bool = False) -> PutTicket:
        """Queue a message without waiting for the disk; ``wait`` returns the result.

        Once 512 messages are queued, they are written to the file. A refused message has its status at once.
        """
        ticket = self._put_async(message, is_batch)
        if INTERRUPTS.pending:
            INTERRUPTS.deliver()
        return ticket

    @INTERRUPTS.keep_from
    def _put_async(self, message: NewMessage, is_batch: bool) -> PutTicket:
        """Queue a message.

        Once ``_WINDOW`` tickets wait, this thread writes them; else the first one wakes the writing thread.
        """
        ticket = self._ticket(message, self._accept_batch if is_batch else self._accept)
        if ticket.status is None:
            waiting = self._writer.waiting
            waiting.append(ticket)
            if len(waiting) >= _WINDOW:
                self._writer.write_waiting()
            # Only the first ticket wakes the writing thread, which writes the later ones too.
            elif self._workers and len(waiting) == 1:
                self._workers[0].wake()
        return ticket

    @to_the_end
    def write_now(self) -> None:
        """Write the messages that ``put_async`` queued to the file; ``wait`` or ``flush_now`` makes them durable."""
        self._writer.write_waiting()

    def settle(self, ticket: PutTicket) -> bool:
        """Decide the status of a ticket if that takes no waiting; return whether it is decided."""
        engine = self._engine
        if ticket.status is None and ticket.is_written:
            if ticket.is_done_at(engine.log.flushed_offset):
                ticket.status = PutStatus.PUT_OK
            elif engine.health.failure is not None:
                ticket.refuse(PutStatus.UNKNOWN_ERROR)
        return ticket.status is not None

    def wait(self, ticket: PutTicket) -> PutStatus:
        """Write a queued ticket, and wait until it is as durable as was asked, or refused; return its status.

        Raises a Ctrl-C that came meanwhile and was kept back.
        """
        if ticket.status is None:
            self._wait(ticket)
        if INTERRUPTS.pending:
            INTERRUPTS.deliver()
        return ticket.status or PutStatus.UNKNOWN_ERROR

    @INTERRUPTS.keep_from
    def _wait(self, ticket: PutTicket) -> None:
        if not ticket.is_written:
            self._writer.write_waiting()
        self._settle(ticket)

    def put_many(self, messages: Iterable[NewMessage]) -> list[PutTicket]:
        """Store many messages in order; return their tickets in that order, each with its status.

        With synchronous flush, one sync covers as many as possible. Many plain messages are stored by columns.
        """
        tickets: list[PutTicket] = []
        left = iter(messages)
        while chunk := list(islice(left, _SLAB)):
            tickets += self._put_chunk(chunk)
        self._settle_all(tickets)
        return tickets

    @to_the_end
    def _put_chunk(self, messages: Sequence[NewMessage]) -> list[PutTicket]:
        if len(messages) == 1:
            return [self._write(self._ticket(messages[0], self._accept))]
        return self._put_slab(messages) or [self.put_async(message) for message in messages]

    @to_the_end
    def _settle_all(self, tickets: Sequence[PutTicket]) -> None:
        if self._writer.waiting:
            self._writer.write_waiting()
        # The last ticket waits until everything before it is durable; the others then find that they are done.
        for ticket in reversed(tickets):
            self._settle(ticket)

    def _put_slab(self, messages: Sequence[NewMessage]) -> list[PutTicket]:
        """Store messages by columns.

        Return [], with nothing stored, if they are few or not plain, or if puts are refused.
        """
        self._put_many_count += len(messages)
        is_worth = len(messages) >= _LEAST_FOR_SLAB and self._put_many_count >= _LEAST_TO_LOAD
        if not is_worth or not self._takes_puts or not self._health.is_writeable or self._writer.busy_since:
            return []
        columns = columns_of(messages, self._engine.intake, self._now())
        if columns is None or not self._first.prepare_put():
            return []
        put = PutColumns.of(len(messages))
        self._put_plain(columns, put)
        return tickets_of(messages, put, self._engine.encoder.store_host)

    def text_maker(self, names: tuple[str, ...]) -> Callable[[Mapping[str, str]], bytes]:
        """Return a function that makes the stored text of properties with these names, for ``put_columns``."""
        return self._engine.encoder.text_maker(names)

    @property
    def store_host(self) -> Host:
        """The host in each new record whose message does not name one."""
        return self._engine.encoder.store_host

    @to_the_end
    def put_columns(self, columns: MessageColumns) -> PutColumns:
        """Store many messages given as columns; ``refused`` of the result has those that are not PUT_OK.

        With synchronous flush the others are durable when this returns, unless ``waits_for_disk`` is off.
        """
        put = PutColumns.of(len(columns))
        if not self._takes_puts or not self._health.is_writeable:
            put.refused = dict.fromkeys(range(len(columns)), PutStatus.SERVICE_NOT_AVAILABLE)
        elif is_plain(columns, self._engine.encoder):
            self._put_plain(columns, put)
        else:
            put.take(self.put_many(columns.message(row) for row in range(len(columns))))
        return put

    def _put_plain(self, columns: MessageColumns, put: PutColumns) -> None:
        """Store messages by columns; note their places in ``put``, and the status of those that are not PUT_OK."""
        engine = self._engine
        ready = make_ready(columns, engine.encoder, self._now(), put)
        # The mark of an open store is durable before the first byte of a message is written.
        if len(ready.rows) and not self._first.prepare_put():
            put.refused |= dict.fromkeys(ready.rows.tolist(), PutStatus.SERVICE_NOT_AVAILABLE)
            return
        written = self._writer.write_with(lambda now: write_ready(ready, put, engine.log, engine.offsets, now))
        status = PutStatus.PUT_OK if written else PutStatus.UNKNOWN_ERROR
        if written and self.setup.is_sync and self.waits_for_disk and len(ready.rows):
            status = engine.flusher.wait_flushed(engine.log.committed_offset)
        if status is not PutStatus.PUT_OK:
            put.refused |= dict.fromkeys(ready.rows.tolist(), status)

    def adopt(self, physical_offset: int) -> Adoption:
        """Prepare an empty store to receive records copied verbatim, from ``physical_offset`` on."""
        self._first.prepare()
        return Adoption(self._engine, physical_offset)

    def _ticket(self, message: NewMessage, accept: Accept) -> PutTicket:
        """Return the ticket of a message, refused or ready to be written."""
        now = self._now()
        busy_since = self._writer.busy_since
        found: PutTicket | PutStatus
        if not self._takes_puts or not self._health.is_writeable:
            found = PutStatus.SERVICE_NOT_AVAILABLE
        elif busy_since is not None and self._busy_limit < now - busy_since < _LONGEST_BUSY:
            # One put has held the writer for too long; another one should not wait for it.
            found = PutStatus.OS_PAGE_CACHE_BUSY
        else:
            found = accept(message, now)
            if isinstance(found, PutTicket):
                if self._first.is_done or self._first.prepare_put():
                    return found
                found = PutStatus.SERVICE_NOT_AVAILABLE
        return refused(found, (message.topic, message.queue_id))

    def _settle(self, ticket: PutTicket) -> None:
        """Decide the status of a written ticket; with synchronous flush, wait until it is durable."""
        if ticket.status is None:
            if not ticket.is_written:
                ticket.refuse(PutStatus.UNKNOWN_ERROR)
            elif not self.waits_for_disk or ticket.end_offset <= self._engine.log.flushed_offset:
                ticket.status = PutStatus.PUT_OK
            else:
                ticket.status = self._engine.flusher.wait_flushed(ticket.end_offset)

    @to_the_end
    def flush_now(self) -> bool:
        """Force everything that was put; return False if the store is read-only now."""
        self._engine.writer.write_waiting()
        return self._engine.flusher.flush()

    @to_the_end
    def dispatch_now(self) -> int:
        """Dispatch everything that is visible; return the number of records, 0 if a write failed.

        After a full disk the next call tries again; any other failed write poisons the store. In a store that another
        failure has poisoned, messages that were stored before it are dispatched, so that they can be read.
        """
        engine = self._engine
        self._is_behind = False
        try:
            count = engine.dispatcher.dispatch()
        except NoSpace as error:
            # No message is lost: the queues are completed from the log when there is space again.
            self._without_room = error
            engine.health.set(RunningFlag.LOGICS_QUEUE_ERROR, engine.dispatcher.behind > _MOST_BEHIND)
            return 0
        except WriteFailed as error:
            engine.health.poison(error, in_dispatch=True)
            return 0
        if self._without_room is not None:
            self._without_room = None
            engine.health.set(RunningFlag.LOGICS_QUEUE_ERROR, False)
        return count

    def tick_soon(self) -> None:
        """After a put of a caller that puts again at once: do what ``tick`` does, or leave it to one of the next calls.

        Records are dispatched when some milliseconds have passed since the last time, when they are many, or when
        anybody listens; and before they are read through this store, and at its close. A crash loses nothing: what the
        log has is dispatched at the next start. upstream: ReputMessageService works beside the puts, in passes too.
        """
        log, dispatcher = self._engine.log, self._engine.dispatcher
        now, last = log.store_timestamp, self._last_tick
        is_early = now - last < _PASS_PERIOD and log.wrote_offset - dispatcher.dispatched.offset < _PASS_SIZE
        if is_early and not dispatcher.listeners:
            self._is_behind = True
            return
        self._last_tick = now
        self.tick()

    @property
    def reader(self) -> StoreReader:
        """Reads messages through queues and index. Records that ``tick_soon`` left are dispatched first."""
        if self._is_behind:
            self.dispatch_now()
        return self._reader

    @to_the_end
    def tick(self) -> None:
        """Write what ``put_async`` queued, do the upkeep that is due by the clock, and dispatch."""
        if self._writer.waiting:
            self._writer.write_waiting()
        self.upkeep()
        self.dispatch_now()

    def upkeep(self) -> None:
        """Do the periodic work that is due, none before the first change; another thread may put meanwhile."""
        if self._first.is_done:
            self._upkeep.do_due()

    @to_the_end
    def clean_now(self) -> Expired:
        """Run retention once; outside its hour it removes something only if asked before, or on a nearly full disk."""
        return self._retention.run(self._engine.log)

    def find_expired(self) -> Expired:
        """Return what ``clean_now`` would remove from the log; files of queues and index are not in it."""
        return self._retention.find_expired(self._engine.log)

    def clean_at_any_hour(self) -> None:
        """Remove expired segments at any hour in the next runs. upstream: executeDeleteFilesManually."""
        self._retention.ask()

    @to_the_end
    def start(self) -> None:
        """Mark the store as open, and start the threads that write, force and dispatch; ``close`` ends them."""
        self._first.prepare()
        engine, health = self._engine, self._engine.health
        period = _SYNC_PERIOD if self.setup.is_sync else _ASYNC_PERIOD
        engine.dispatcher.go_beside_puts(engine.writer.lock)
        upkeep = Worker("flusher", self._upkeep_in_thread, health, period)
        dispatcher = Worker("dispatcher", self._dispatch_in_thread, health)
        self._workers = (Worker("writer", self._write_in_thread, health), upkeep, dispatcher)
        for worker in self._workers:
            worker.start()
        if self.setup.is_sync:
            engine.flusher.on_flushed = dispatcher.wake
        else:
            engine.writer.on_written = dispatcher.wake
        upkeep.wake()

    def _write_in_thread(self) -> float:
        self._engine.writer.write_waiting()
        return 0

    def _upkeep_in_thread(self) -> float:
        self._upkeep.do_due()
        return 0

    def _dispatch_in_thread(self) -> float:
        """Dispatch; return the seconds to rest."""
        is_busy = self.dispatch_now() >= _BUSY_PASS
        if self._engine.dispatcher.listeners:
            return _REST_WHEN_BUSY if is_busy else _REST
        return _REST_UNOBSERVED if is_busy else _REST_WHEN_BUSY

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener`` with (queue, next offset) after each dispatch to a queue, in the thread that dispatches."""
        self._engine.dispatcher.listeners.append(listener)

    @property
    def commit_log(self) -> CommitLog:
        """The commit log, for reading."""
        return self._engine.log

    def find_queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Return a queue, or None if no message was dispatched to it yet."""
        if self._is_behind:
            self.dispatch_now()
        queues, key = self._engine.dispatcher.queues, (topic, queue_id)
        return queues.simple.get(key) or queues.batch.get(key)

    def queues(self) -> list[AnyQueue]:
        """Return all queues that had a message dispatched to them, simple ones first."""
        if self._is_behind:
            self.dispatch_now()
        queues = self._engine.dispatcher.queues
        return [*queues.simple.values(), *queues.batch.values()]

    def condition(self) -> Condition:
        """Return a snapshot of the store's positions and problems."""
        engine = self._engine
        log, health = engine.log, engine.health
        return Condition(
            log.min_offset,
            log.wrote_offset,
            log.committed_offset,
            log.flushed_offset,
            engine.dispatcher.dispatched.offset,
            engine.writer.written_count,
            health.flags,
            health.failure,
            tuple(health.findings),
            engine.disks.used,
        )

    def full_disk(self, *, look: bool = False) -> str | None:
        """Return the error if the disk was too full for messages at the last look, else None. ``look``: look now."""
        if look:
            self._engine.disks.look()
        condition, limit = self.condition(), self.setup.config.disk_space_warning_level_ratio
        if not condition.flags & RunningFlag.DISK_FULL:
            return None
        return (
            f"the disk of the commit log is {condition.disk_used} % full; "
            f"a broker refuses messages above {limit} %, its diskSpaceWarningLevelRatio"
        )

    @to_the_end
    def close(self) -> None:
        """Make everything durable, remove the mark, release the lock. Closing again does nothing.

        The mark stays, and the next start is a recovery, if a write failed or records are undispatched; the WriteFailed
        is raised when everything is closed. A store that refused every put was never marked.
        """
        if not self._is_open:
            return
        self._is_open = self._takes_puts = False
        for worker in self._workers:
            worker.stop()
        self._workers = ()
        engine = self._engine
        full_disk: NoSpace | None = None
        try:
            full_disk = self._forget_full_disk()
            is_changed = bool(engine.writer.waiting) or self._reached() != self._opened_at
            if is_changed:
                self.flush_now()
                self.dispatch_now()
                self._first.clear_leftovers()
                self._upkeep.flush_queues()
            self._first.finish(is_changed=is_changed)
        except WriteFailed as error:
            engine.health.poison(error)
        finally:
            self._reader.close()
            engine.close_files()
            self._lock.close()
            INTERRUPTS.end()
        failure = engine.health.failure or self._without_room or full_disk
        if isinstance(failure, WriteFailed):
            raise failure

    def _forget_full_disk(self) -> NoSpace | None:
        """Let a store whose log had no room be closed like any other, if nothing of that write is in the log.

        Its messages were refused. Those that still wait are refused too: their queue offsets come after those. Returns
        the error of that write, or None if there was not such a write or another failure followed.
        """
        failure = self._engine.log.taken_back
        if failure is None or failure is not self._health.failure or self._health.has_more_failures:
            return None
        self._engine.writer.write_waiting()
        self._health.forget_failure()
        return failure

    def abandon(self) -> None:
        """Close a store that will be thrown away, without writing. It must not have threads."""
        if self._is_open:
            self._is_open = self._takes_puts = False
            self._reader.close()
            self._engine.close_files()
            self._lock.close()
            INTERRUPTS.end()

    def _reached(self) -> tuple[int, int]:
        """Return the physical offsets up to which the log is written and dispatched.

        They tell whether anything was stored.
        """
        return self._engine.log.wrote_offset, self._engine.dispatcher.dispatched.offset

    @INTERRUPTS.keep_from
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@contextmanager
def opened_at(root: str, config: StoreConfig) -> Iterator[MessageStore]:
    """Open the store of a broker in a directory of this machine, and close it."""
    with (
        PosixWritableFileSystem(root) as files,
        MessageStore.open(Setup(files, config)) as store,
    ):
        yield store
