"""The state that connections share: the broker, the current turn, held pulls, and requests to clients.

A turn covers the bytes of one read. Its messages are written into the log together at its end. With synchronous flush
the answers wait for the disk thread: all messages that arrive during one sync share the next. New messages are
dispatched after the turn while pulls wait, and some milliseconds later when the server is busy; then those pulls are
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol, TypeAlias

from rmqtool.broker.accounts import DANGEROUS, Gate
from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.by_code import POPS, PULLS, REPLIES, SENDS, Outcome, Processors
from rmqtool.broker.processors.end_transaction import check_request
from rmqtool.broker.processors.pull_message import Waiting
from rmqtool.broker.processors.replies import (
    Fetching,
    Forwarded,
    PlainPull,
    PlainRow,
    Putting,
    Searching,
    TakenRow,
    Telling,
)
from rmqtool.broker.services.check_program import ProgramBeside
from rmqtool.broker.services.transactions import EndRequest, TransactionState
from rmqtool.engine.message import PutStatus
from rmqtool.errors import RmqtoolError
from rmqtool.formats.commit_log import Message
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import OVERLOADED, UNREADABLE, UNSUPPORTED, answer, refuse, unreadable
from rmqtool.remoting.command import ANSWER, ONEWAY, RemotingCommand
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.requests.clients import NotifyConsumerIdsChanged
from rmqtool.server.channel import Connection
from rmqtool.server.cold_reads import ColdReads
from rmqtool.server.held_requests import HeldPops, HeldPulls
from rmqtool.server.slaves import Slaves

# Seconds that a busy server waits before it dispatches, and messages of one turn that make it busy. Without a pull that
# waits it may be longer: many messages at once cost a third each.
_DISPATCH_PAUSE, _BUSY, _UNOBSERVED_PAUSE = 0.004, 8, 0.05
# Seconds until a client must have answered a request.
_PATIENCE = 10.0
# Clients of later versions reconnect when the server answers GO_AWAY.
_STAYS = 475
_GO_AWAY = 1500
_HEARTBEAT = 34
_SEND_MESSAGE, _PULL_MESSAGE = 310, 11
# The most pulls that wait at once; further ones are answered at once, as after their timeout.
_MOST_HELD = 65_536
# Frequent requests that do not depend on the newest messages.
_HOT: Final = frozenset({*SENDS, *PULLS, *POPS, 14, 15, 34, 38})
_POPS: Final = frozenset(POPS)
_PUTS: Final = frozenset({*SENDS, *REPLIES})
_ROWS: Final = dict(REQUESTS)
_LOOPBACK_6: Final = bytes(15) + b"\1"
_NO_FIELDS: Final[Mapping[str, str]] = {}


class Limits(NamedTuple):
    """The limits of a server. A client that reaches one is answered as upstream does, or loses its connection."""

    # Connections that have sent a request, in all, and from one address of another machine.
    connections: int = 1024
    per_address: int = 64
    # Connections that have sent no request: the oldest is closed first. Seconds until one is closed.
    silent: int = 512
    silence: int = 10
    # Bytes and seconds that a client may leave its answers unread.
    unread: int = 64 << 20
    patience: int = 60
    # The same bytes of all clients, and those of requests that are not complete: who has most of them is closed.
    unread_all: int = 1 << 30
    unfinished_all: int = 256 << 20
    # Bytes of a request. Seconds without a byte in either direction. upstream: serverChannelMaxIdleTimeSeconds
    frame: int = 16 << 20
    idle: int = 120
    # Pulls that wait, in all and on one connection.
    held: int = _MOST_HELD
    held_each: int = 4096
    # Requests that wait for bytes from the disk, in all and on one connection.
    cold: int = _MOST_HELD
    cold_each: int = 4096
    # Messages that wait for the disk or for slaves. upstream: sendThreadPoolQueueCapacity
    in_flight: int = 10_000


USUAL: Final = Limits()


class Observer(Protocol):
    """A receiver of events."""

    def event(self, kind: str, **about: object) -> None:
        """Take note of something."""


class _Put(NamedTuple):
    """A message that is not answered yet, and whose it is."""

    connection: Connection
    command: RemotingCommand
    putting: Putting


# A message that came as a row and is not answered yet: whose it is, and the number of its request.
_Row: TypeAlias = tuple[Connection, int, TakenRow]


class _Asked(NamedTuple):
    """A request of ours that a client has not answered yet."""

    timeout: asyncio.TimerHandle
    answered: Callable[[RemotingCommand | None], None]


class Server:
    """The server of one broker. Everything happens in its loop, but for forcing the disk."""

    def __init__(
        self,
        broker: Broker,
        observer: Observer,
        loop: asyncio.AbstractEventLoop,
        gate: Gate | None = None,
        limits: Limits = USUAL,
    ) -> None:
        self.broker = broker
        self.gate = gate or Gate(allows_admin=True)
        self.loop = loop
        self.processors = Processors(broker)
        self.limits = limits
        # The connections that have sent a request, and the others by the time at which they came, oldest first.
        self.connections: set[Connection] = set()
        self._silent: dict[Connection, float] = {}
        self.held_pulls = HeldPulls(self.processors.pulling, self._reply_later, self._failed)
        self.held_pops = HeldPops(self._reply_later, self._failed)
        self.threads = ThreadPoolExecutor(2, "disk")
        limits_of_reads = limits.cold, limits.cold_each
        self.cold_reads = ColdReads(loop, limits_of_reads, self._reply_later, self._read_failed, self.end_turn)
        # How many requests were answered with 1 because of an error of ours.
        self.bugs = 0
        self.requests = 0
        self.is_ending = False
        # Whether every request is judged; else only dangerous ones.
        self.is_gated = self.gate.rules is not None
        self.observer = observer
        self._store = broker.store
        self._puts: list[_Put] = []
        # The same for messages whose requests came as rows.
        self._rows: list[_Row] = []
        self._unflushed: list[_Put] = []
        # The slaves that copy the log, if there may be any, and the messages that wait for them.
        self.slaves: Slaves | None = None
        self._unreplicated: list[_Put] = []
        # Bytes of requests that are not complete, of all connections.
        self._unfinished = 0
        # Whether further messages are refused, because too many wait for the disk or for slaves.
        self._is_overloaded = False
        self._is_flushing = self._is_dispatch_due = False
        # When messages were dispatched last.
        self._dispatched = 0.0
        # After a failed write of the tables: when it is tried again.
        self._tables_again = 0.0
        self._writing: list[Connection] = []
        self._pending: dict[tuple[Connection, int], _Asked] = {}
        self._opaque = 0
        self._known: set[Connection] = set()
        self._store.add_listener(self.held_pulls.grew)
        self._store.add_listener(self.held_pops.grew)
        popping = self.processors.popping
        popping.is_full = lambda asked: self.is_ending or self._holds_enough(asked.peer.connection)
        popping.count_waiting, popping.freed = self.held_pops.count_at, self.held_pops.freed
        # Deliveries and commits of transactions put from the loop, which flushes for them.
        self._store.waits_for_disk = False
        broker.services.check.producer = self._ask_producer
        self.program: ProgramBeside | None = None

    def take_program(self, command: str) -> None:
        """Have a program decide open transactions, instead of their producers."""
        self.program = ProgramBeside(command, self.loop.call_soon_threadsafe, self._decide)
        self.broker.services.check.producer = self.program.ask

    def _decide(self, request: EndRequest) -> None:
        try:
            self.broker.services.transactions.end(request)
            self.catch_up()
        except Exception as error:
            self.bug(error)
        self.end_turn()

    # Requests and answers of clients.

    def connected(self, connection: Connection) -> None:
        """Take a new connection. Those that have sent nothing have a pool of their own."""
        self._silent[connection] = self.loop.time()
        if len(self._silent) > self.limits.silent:
            next(iter(self._silent)).abort()

    def disconnected(self, connection: Connection) -> None:
        """Forget a client that is gone: nothing of it is left."""
        self._silent.pop(connection, None)
        self._unfinished -= connection.unfinished
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self.held_pulls.forget(connection)
        self.held_pops.forget(connection)
        for key in [key for key in self._pending if key[0] is connection]:
            self._take_answer(key, None)
        if connection in self._known:
            self._known.discard(connection)
            self.observer.event("gone", client=connection.address)
        self.broker.clients.gone(connection)
        self.notify()
        self.end_turn()

    def refused(self, connection: Connection, reason: str) -> None:
        """Report a client that sent something other than a frame."""
        self.observer.event("refused", client=connection.address, reason=reason)

    def spoke(self, connection: Connection) -> bool:
        """Take note of the first request on a connection; return False if there are too many, and it is closed."""
        self._silent.pop(connection, None)
        host = connection.host[0]
        is_near = host[:1] == b"\x7f" or host == _LOOPBACK_6
        near = 0 if is_near else sum(one.host[0] == host for one in self.connections)
        if len(self.connections) >= self.limits.connections or near >= self.limits.per_address:
            self.refused(connection, "too many connections")
            connection.close()
            return False
        self.connections.add(connection)
        return True

    def holds(self, connection: Connection, unfinished: int) -> None:
        """Take note of how many bytes of a request have come that is not complete."""
        self._unfinished += unfinished - connection.unfinished
        connection.unfinished = unfinished
        if self._unfinished > self.limits.unfinished_all:
            most = max((connection, *self.connections, *self._silent), key=lambda one: one.unfinished)
            self.refused(most, "there are too many bytes of requests that are not complete")
            self._unfinished -= most.unfinished
            most.unfinished = 0
            most.abort()

    def limit_unread(self, connection: Connection | None = None) -> None:
        """Close a client that leaves too many bytes of answers unread; of all clients those with the most."""
        if connection is not None and connection.unsent > self.limits.unread:
            self._close_unread(connection)
        while sum(one.unsent for one in self.connections) > self.limits.unread_all:
            self._close_unread(max(self.connections, key=lambda one: one.unsent))

    def _close_unread(self, connection: Connection) -> None:
        self.refused(connection, "it does not read its answers")
        connection.abort()

    def close_idle(self) -> None:
        """Close connections without a request for too long, and those of clients that do not read their answers."""
        now = self.loop.time()
        for connection, since in list(self._silent.items()):
            if now - since < self.limits.silence:
                break
            connection.abort()
        for connection in list(self.connections):
            since = connection.paused_since
            if connection.is_active or connection.unsent:
                connection.is_active, connection.idle_since = False, now
            if since and now - since >= self.limits.patience:
                self._close_unread(connection)
            elif now - connection.idle_since >= self.limits.idle:
                self.refused(connection, "it is idle")
                connection.close()
        # Many clients may each leave a little unread: no write looks at those.
        self.limit_unread()

    def stop_reading(self) -> None:
        """Take no further request, so that clients that go on sending do not keep a server that ends."""
        for connection in self.connections:
            connection.stop_reading()

    def close_all(self) -> None:
        """Close every connection."""
        for connection in [*self.connections, *self._silent]:
            connection.close()

    def will_write(self, connection: Connection) -> None:
        """Write to a connection at the end of this turn."""
        self._writing.append(connection)

    def serve(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer a request, now or when that is possible; or take the answer to one of ours."""
        if command.flag & ANSWER:
            self._take_answer((connection, command.opaque), command)
            return
        self.requests += 1
        processor = connection.processors.get(command.code)
        if processor is None:
            found = refuse(command, UNSUPPORTED, self.broker.version, code=command.code)
            connection.answer(command, found)
            return
        if self.is_ending and command.version > _STAYS:
            connection.answer(command, answer(command, _GO_AWAY, "the broker is shutting down"))
            return
        code = command.code
        if self._is_overloaded and code in _PUTS:
            connection.answer(command, refuse(command, OVERLOADED, self.broker.version))
            return
        if self._is_dispatch_due or self._puts or self._rows:
            self._dispatch_before(command.code)
        try:
            row = _ROWS[command.code]
            header = row.request.decode(command.ext_fields or _NO_FIELDS, short=row.short)
            asked = Asked(command, header, connection.peer_of(command), connection.host)
            if self.is_gated or command.code in DANGEROUS:
                refusal = self.gate.refuse(asked) if connection.processors is not self.processors.names else None
                if refusal is not None:
                    connection.answer(command, refusal)
                    return
            reply = processor(asked)
        except UNREADABLE as error:
            connection.answer(command, unreadable(command, error))
            return
        except Exception as error:
            self._failed(connection, command, error)
            return
        if command.code == _HEARTBEAT:
            self._greet(connection, command)
        else:
            self._dispatch_after(command.code)
        if self.broker.clients.changed:
            self.notify()
        if type(reply) is Putting:
            self._puts.append(_Put(connection, command, reply))
        else:
            self._reply(connection, command, reply)

    def serve_row(self, connection: Connection, row: PlainRow) -> bool:
        """Take a plain message, as ``serve`` does; return False if its request needs a closer look."""
        if self.is_gated or self.is_ending or self._is_overloaded:
            return False
        taken = self.processors.sending.take_row(row, connection.host)
        if taken is None:
            return False
        self.requests += 1
        self._rows.append((connection, row[2], taken))
        return True

    def serve_pull(self, connection: Connection, row: PlainPull) -> bool:
        """Answer a plain pull that finds messages, as ``serve`` does; return False if it needs a closer look."""
        if self.is_gated or self.is_ending or _PULL_MESSAGE not in connection.processors:
            return False
        if self._is_dispatch_due or self._puts or self._rows:
            self._dispatch_before(_PULL_MESSAGE)
        try:
            found = self.processors.pulling.pull_row(row)
        except Exception:
            # It fails again, and is answered then.
            return False
        if found is None:
            return False
        self.requests += 1
        connection.send_frame(found)
        return True

    def _dispatch_before(self, code: int) -> None:
        """Write and dispatch what the answer to a request may depend on."""
        if code in PULLS or code in _POPS:
            if self._is_dispatch_due and self.loop.time() - self._dispatched >= _DISPATCH_PAUSE:
                self._dispatch()
        elif code not in _HOT:
            self._finish_puts()
            self._dispatch()

    def _dispatch_after(self, code: int) -> None:
        """Have dispatched what a request may have put by itself."""
        if code in _POPS:
            # The check point of a pop is needed when its messages come back, not before.
            self._dispatch_soon(is_busy=True)
        elif code not in _HOT:
            # A commit of a transaction, among others.
            self._dispatch_soon(is_busy=False)
            if self._has_unflushed():
                self._flush()

    def look_at_accounts(self) -> None:
        """Take changes of the file with the accounts; one that cannot be read is reported, and changes nothing."""
        try:
            self.gate.look()
        except RmqtoolError as error:
            self.observer.event("error", message=str(error))
        self.is_gated = self.gate.rules is not None

    def bug(self, error: BaseException) -> None:
        """Take note of an error of ours; who asked gets 1, everybody else is served as before."""
        self.bugs += 1
        self.observer.event("error", message=f"{type(error).__name__}: {error}", error=error)

    def _greet(self, connection: Connection, command: RemotingCommand) -> None:
        if connection not in self._known:
            self._known.add(connection)
            language = None if command.language is None else command.language.name
            self.observer.event("client", client=connection.address, language=language, version=command.version)

    def _reply(self, connection: Connection, command: RemotingCommand, reply: Outcome) -> None:
        if isinstance(reply, Putting):
            self._puts.append(_Put(connection, command, reply))
        elif isinstance(reply, Waiting):
            self._hold(connection, command, reply)
        elif isinstance(reply, Fetching | Searching):
            if not self.cold_reads.take(connection, command, reply):
                self.held_pops.look_again(connection)
                connection.answer(command, refuse(command, OVERLOADED, self.broker.version))
        elif isinstance(reply, Forwarded):
            self._forward(connection, command, reply)
        elif isinstance(reply, Telling):
            for client, told in reply.requests:
                self._tell(client, told)
            connection.answer(command, reply.answer)
        elif isinstance(reply, RemotingCommand | bytes):
            connection.answer(command, reply)
        elif reply is not None:
            self.held_pops.hold(connection, reply)
            if self._is_dispatch_due:
                self.loop.call_later(_DISPATCH_PAUSE, self._dispatch_due)

    def _reply_later(self, connection: Connection, command: RemotingCommand, reply: Outcome) -> None:
        """Answer a request that has waited."""
        try:
            self._reply(connection, command, reply)
        except Exception as error:
            self._failed(connection, command, error)
        try:
            self._dispatch_after(command.code)
        except Exception as error:
            # It is answered.
            self.bug(error)

    def _hold(self, connection: Connection, command: RemotingCommand, waiting: Waiting) -> None:
        if self.is_ending or self._holds_enough(connection):
            found = self.processors.pulling.look_again(waiting, is_over=True)
            assert found is not None, "a pull whose time is over is answered"
            self._reply(connection, command, found)
        else:
            self.held_pulls.hold(connection, waiting, self._store.setup.clock.monotonic())
            if self._is_dispatch_due:
                self.loop.call_later(_DISPATCH_PAUSE, self._dispatch_due)

    def _failed(self, connection: Connection, command: RemotingCommand, error: Exception) -> None:
        remark = str(error)
        if not isinstance(error, RmqtoolError):
            self.bug(error)
            remark = f"{type(error).__name__}: {error}"
        connection.answer(command, answer(command, ResponseCode.SYSTEM_ERROR, remark))

    def _read_failed(self, connection: Connection, command: RemotingCommand, error: Exception) -> None:
        self.held_pops.look_again(connection)
        self._failed(connection, command, error)

    def _holds_enough(self, connection: object) -> bool:
        count = len(self.held_pulls) + len(self.held_pops)
        if count < self.limits.held_each or not isinstance(connection, Connection):
            return False
        each = self.held_pulls.count_of(connection) + self.held_pops.count_of(connection)
        return count >= self.limits.held or each >= self.limits.held_each

    # The end of a turn.

    def end_turn(self) -> None:
        """Write the messages that came, the tables that they changed, and the answers."""
        if self.held_pops.has_grown:
            self.held_pops.answer_grown()
        if self._puts or self._rows:
            self._finish_puts()
        self.save_tables()
        if self.slaves is not None:
            self.slaves.send()
        self._is_overloaded = len(self._unflushed) + len(self._unreplicated) >= self.limits.in_flight
        if self._writing:
            writing, self._writing = self._writing, []
            for connection in writing:
                connection.write()

    def save_tables(self) -> None:
        """Write topics and groups that are new or changed before anybody is answered.

        A broker that is killed afterwards must know the topics of the messages that it acknowledged.
        """
        topics, groups = self.broker.topics, self.broker.groups
        if not (topics.is_changed or groups.is_changed) or self.loop.time() < self._tables_again:
            return
        try:
            topics.save_changed()
            groups.save_changed()
        except RmqtoolError as error:
            self._tables_again = self.loop.time() + _PATIENCE
            self.bug(error)

    def _finish_puts(self) -> None:
        (puts, rows), self._puts, self._rows = (self._puts, self._rows), [], []
        if not puts and not rows:
            return
        try:
            self._store.write_now()
        except Exception as error:
            # The store accepts no more messages; each of these gets that answer.
            self.bug(error)
        count = len(puts) + len(rows)
        left = self._answer_settled([*self._answer_rows(rows), *puts])
        if left:
            self._unflushed += left
            self._flush()
        if len(left) < count:
            self._dispatch_soon(is_busy=count >= _BUSY)

    def _answer_rows(self, rows: list[_Row]) -> list[_Put]:
        """Answer the messages that are stored; return the others as usual ones."""
        left, sending = [], self.processors.sending
        for connection, opaque, (ticket, key) in rows:
            if ticket.status is PutStatus.PUT_OK and self.slaves is None:
                connection.send_frame(sending.stored(opaque, ticket, key))
            else:
                command = RemotingCommand(_SEND_MESSAGE, opaque=opaque)
                left.append(_Put(connection, command, Putting(ticket, sending.finish(command, ticket, key))))
        return left

    def _answer_settled(self, puts: list[_Put]) -> list[_Put]:
        """Answer the puts of which it is known what came of them; return the others."""
        left, settle = [], self._store.settle
        for one in puts:
            connection, command, (ticket, finish) = one
            if ticket.status is None and not settle(ticket):
                left.append(one)
            elif self.slaves is not None and not self.slaves.decide(ticket):
                self._unreplicated.append(one)
            else:
                connection.answer(command, finish())
        return left

    def answer_pops(self) -> None:
        """Answer the pops whose time is over, and those of queues that are free again."""
        for place in self.broker.services.pops.ordered.iter_free():
            self.held_pops.freed(place)
        self.held_pops.answer_over(self._store.setup.clock.monotonic())
        self.held_pops.answer_grown()

    def take_slaves(self) -> Slaves:
        """Take slaves from now on; messages of a SYNC_MASTER wait for them."""
        self.slaves = Slaves(self._store, self.loop, self.answer_replicated)
        self.broker.copies = self.slaves.copies
        return self.slaves

    def answer_replicated(self) -> None:
        """Answer the messages that enough slaves have now, or that waited for too long."""
        waiting, self._unreplicated = self._unreplicated, []
        if waiting:
            self._answer_settled(waiting)
            self.end_turn()

    def _flush(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.run_in_executor(self.threads, self._store.flush_now).add_done_callback(self._flushed)

    def _flushed(self, done: asyncio.Future[bool]) -> None:
        """Answer what is durable now; what came during the sync is the next group."""
        self._is_flushing = False
        if not done.cancelled() and (error := done.exception()) is not None:
            self.bug(error)
        self._unflushed = self._answer_settled(self._unflushed)
        self._dispatch_soon(is_busy=False)
        if self._unflushed:
            self._flush()
        self.end_turn()

    def answer_late(self) -> None:
        """Answer puts that the disk takes too long for: they are stored, and may not be durable."""
        now, limit = self._store.setup.clock.now(), self.broker.config.sync_flush_timeout
        for one in self._unflushed:
            if now - one.putting.ticket.store_timestamp >= limit and one.putting.ticket.status is None:
                one.putting.ticket.status = PutStatus.FLUSH_DISK_TIMEOUT
        self._unflushed = self._answer_settled(self._unflushed)

    def dispatch_if_due(self) -> None:
        """Dispatch what the last turns have put, for work that reads queues."""
        if self._is_dispatch_due:
            self._dispatch()

    @property
    def is_waiting_for_disk(self) -> bool:
        """Whether puts wait for a flush."""
        return bool(self._unflushed)

    @property
    def is_answering(self) -> bool:
        """Whether requests wait for bytes or for slaves, or clients for the rest of their answers."""
        return self.cold_reads.is_busy or bool(self._unreplicated) or any(one.unsent for one in self.connections)

    def _dispatch_soon(self, *, is_busy: bool) -> None:
        if not self._is_dispatch_due:
            self._is_dispatch_due = True
            if not self.held_pulls and not self.held_pops:
                self.loop.call_later(_UNOBSERVED_PAUSE, self._dispatch_due)
            elif is_busy:
                self.loop.call_later(_DISPATCH_PAUSE, self._dispatch_due)
            else:
                self.loop.call_soon(self._dispatch_due)

    def _dispatch_due(self) -> None:
        if self._is_dispatch_due:
            self._dispatch()
            self.end_turn()

    def _dispatch(self) -> None:
        self._is_dispatch_due = False
        self._dispatched = self.loop.time()
        try:
            self._store.dispatch_now()
            self.held_pulls.answer_grown()
            self.held_pops.answer_grown()
        except Exception as error:
            self.bug(error)

    def catch_up(self) -> None:
        """Dispatch what was put otherwise than by a client, and answer who waits for it.

        With synchronous flush consumers see it after the flush.
        """
        self._dispatch()
        if self._has_unflushed():
            self._flush()
        self.end_turn()

    def _has_unflushed(self) -> bool:
        condition = self._store.condition()
        return self._store.setup.is_sync and condition.flushed_offset < condition.wrote_offset

    # Requests of ours.

    def notify(self) -> None:
        """Tell the members of groups that have changed, each group once."""
        if not self.broker.clients.changed:
            return
        code = NotifyConsumerIdsChanged.codes[0].code
        for group, members in self.broker.clients.iter_changed():
            fields = NotifyConsumerIdsChanged(consumer_group=group).encode()
            for member in members:
                self._tell(member, RemotingCommand(code, fields, flag=ONEWAY))

    def _tell(self, client: object, command: RemotingCommand) -> None:
        """Send a client a request that it does not answer."""
        assert isinstance(client, Connection), "clients are known by their connections"
        if client.is_open:
            client.send(command.replaced(opaque=self._next_opaque()))

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def ask(
        self, connection: Connection, command: RemotingCommand, answered: Callable[[RemotingCommand | None], None]
    ) -> None:
        """Send a client a request; ``answered`` gets its answer, None when it gives none in time."""
        opaque = self._next_opaque()
        key = connection, opaque
        timeout = self.loop.call_later(_PATIENCE, self._take_answer, key, None)
        self._pending[key] = _Asked(timeout, answered)
        connection.send(command.replaced(opaque=opaque))

    def _take_answer(self, key: tuple[Connection, int], found: RemotingCommand | None) -> None:
        asked = self._pending.pop(key, None)
        if asked is not None:
            asked.timeout.cancel()
            asked.answered(found)
            if found is None:
                self.end_turn()

    def _forward(self, connection: Connection, command: RemotingCommand, reply: Forwarded) -> None:
        def answered(found: RemotingCommand | None) -> None:
            self._reply(connection, command, reply.answer(found))

        target = reply.connection
        if isinstance(target, Connection) and target.is_open:
            self.ask(target, reply.command, answered)
        else:
            answered(None)

    def _ask_producer(self, half: Message) -> TransactionState:
        """Ask a producer what became of its transaction; its answer is a request of its own, later."""
        found = check_request(self.broker, half)
        if found is not None:
            self._tell(*found)
        return TransactionState.UNKNOWN
