"""A server from its start to its end: ports, store and loop; and the periodic work of a broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from rmqtool.broker.accounts import Gate
from rmqtool.broker.one_broker import Broker
from rmqtool.broker.services.events import Happened
from rmqtool.config import StoreConfig
from rmqtool.engine.message import Host
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.errors import RmqtoolError, UsageError, WriteFailed
from rmqtool.files.filesystem import WritableFileSystem
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.hosts import format_address, parse_address
from rmqtool.formats.paths import ABORT
from rmqtool.repairs.substitute import Damaged, substitute
from rmqtool.server.server import USUAL, Limits, Observer, Server
from rmqtool.server.sockets import Address, Sockets, bound
from rmqtool.server.tls import Tls, connections
from rmqtool.store.listing import beneath
from rmqtool.store.open import Store

# At the end: seconds that clients have to read their last answers, and between two looks.
_LAST_WRITES, _LOOK = 1.0, 0.01
# Bytes that must be free before a recovery begins.
_ROOM = 1 << 20
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104  (compared, not bound)


# How often, in seconds.
_DUE, _SECOND, _SAVE, _EXPIRY = 0.1, 1.0, 5.0, 10.0
# In seconds: the services run in slices of this length, and requests are answered in between.
_SLICE, _PAUSE = 0.002, 0.001
_AT_ONCE = 256


class Clockwork:
    """The clockwork of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._services = server.broker.services
        self._store = server.broker.store
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._is_kept_up = self._is_saving = self._is_delivering = False
        # Files that could not be saved yet.
        self._unwritten: list[Callable[[], object]] = []
        self._next_slow = 0.0

    def start(self) -> None:
        """Begin."""
        for name, period, work in (
            ("upkeep", _DUE, self._keep_up),
            ("due", _DUE, self._begin_delivery),
            ("second", _SECOND, self._each_second),
            ("save", _SAVE, self._save),
            ("expiry", _EXPIRY, self._expire),
        ):
            self._repeat(name, period, work)

    def stop(self) -> None:
        """End: nothing more is begun."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _repeat(self, name: str, period: float, work: Callable[[], None]) -> None:
        def due() -> None:
            self._timers[name] = self._server.loop.call_later(period, due)
            try:
                work()
            except Exception as error:
                self._server.bug(error)
            self._server.end_turn()

        self._timers[name] = self._server.loop.call_later(period, due)

    def _keep_up(self) -> None:
        if not self._is_kept_up:
            self._is_kept_up = True
            self._in_thread(self._store.upkeep, self._kept_up)

    def _kept_up(self) -> None:
        self._is_kept_up = False
        if self._store.setup.is_sync:
            # Consumers see messages after the flush.
            self._server.catch_up()

    def _in_thread(self, work: Callable[[], object], then: Callable[[], None]) -> None:
        def done(future: asyncio.Future[object]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                self._server.bug(error)
            then()

        self._server.loop.run_in_executor(self._server.threads, work).add_done_callback(done)

    def _begin_delivery(self) -> None:
        """Run the services: delays and timers each time, transactions and pops once a second."""
        self._server.answer_pops()
        if self._is_delivering or self._store.condition().failure is not None:
            return
        now = time.monotonic()
        is_slow = now >= self._next_slow
        if is_slow:
            self._next_slow = now + _SECOND
        self._is_delivering = True
        self._server.dispatch_if_due()
        self._deliver(self._iter_due(is_slow=is_slow))

    def _iter_due(self, *, is_slow: bool) -> Iterator[Happened]:
        yield from self._services.delay.iter_due(_AT_ONCE)
        yield from self._services.timers.iter_due()
        if is_slow:
            yield from self._services.check.iter_due()
            yield from self._services.revival.iter_due()

    def _deliver(self, due: Iterator[Happened]) -> None:
        """Run the services for a short while, and go on after the requests that came meanwhile."""
        end = time.monotonic() + _SLICE
        did_anything = False
        try:
            for _ in due:
                did_anything = True
                if time.monotonic() >= end:
                    self._timers["deliver"] = self._server.loop.call_later(_PAUSE, self._deliver, due)
                    self._server.catch_up()
                    return
        except Exception as error:
            self._server.bug(error)
        self._is_delivering = False
        if did_anything:
            self._server.catch_up()

    def _each_second(self) -> None:
        self._server.held_pulls.answer_over(self._store.setup.clock.monotonic())
        self._server.answer_late()
        self._server.look_at_accounts()
        self._server.close_idle()
        self._server.answer_replicated()

    def _save(self) -> None:
        """Write down how far groups and services are, once what they speak of is durable."""
        if self._is_saving or self._store.condition().failure is not None:
            return
        self._unwritten += self._services.unsaved()
        self._services.timers.save()
        if self._unwritten:
            self._is_saving = True
            self._in_thread(self._write, self._saved)

    def _write(self) -> None:
        if not self._store.flush_now():
            return
        while self._unwritten:
            try:
                self._unwritten[0]()
            except RmqtoolError as error:
                self._server.loop.call_soon_threadsafe(self._server.bug, error)
                return
            del self._unwritten[0]

    def _saved(self) -> None:
        self._is_saving = False

    def _expire(self) -> None:
        broker = self._server.broker
        broker.rates.add(broker.sample())
        broker.history.sample(self._store.setup.clock.now(), broker.iter_counts())
        for connection in self._server.broker.clients.expire():
            connection.close()  # type: ignore[attr-defined]
        self._server.notify()


def recover_end(files: WritableFileSystem, config: StoreConfig) -> bool:
    """Recover a store that was not closed cleanly, if only a torn end of its log is lost; return whether it was done.

    An overlay shows first what a recovery would do. A store with other damage is left as it is: opening it then fails
    with the command to type.
    """
    inside = all(beneath(config.root_dir, directory) is not None for directory in config.commit_log_dirs)
    if not files.exists(ABORT) or not inside:
        return False
    if not recover(Setup(OverlayFileSystem(files), config)).loses_only_the_end:
        return False
    recover(Setup(files, config), room=_ROOM)
    return True


class Aside(NamedTuple):
    """How to serve a store that is not written: how it is opened, and where the state is kept (None: beside it)."""

    open_store: Callable[[], Store]
    state: str | None


@dataclass(frozen=True)
class Addresses:
    """Where a server listens."""

    names: Address
    broker: Address
    vip: Address | None


def advertised(address: Address, text: str | None) -> Host:
    """Return the address that routes and message ids give: what a person says, else the one that is listened to."""
    host, port = address
    if text is not None:
        said, colon, number = text.rpartition(":")
        if not colon or text.endswith("]"):
            said, number = text, str(port)
        host = said.strip("[]")
        port = int(number) if number.isdecimal() else -1
    elif host in _ANY:
        raise UsageError(f"clients cannot dial {host}", hint="say which address they dial: --advertise 192.0.2.10")
    raw = parse_address(host)
    if raw is None or not 0 < port <= 65_535:
        raise UsageError(f"{text!r} is not an address that clients can dial", hint="--advertise 192.0.2.10:10911")
    return raw, port


class Lifecycle:
    """A server that runs in the loop of its caller."""

    def __init__(
        self,
        root: str,
        config: StoreConfig,
        sockets: Sockets,
        advertise: str | None,
        gate: Gate,
        aside: Aside | None = None,
        limits: Limits = USUAL,
    ) -> None:
        self._limits = limits
        self._gate = gate
        self._root = root
        self._aside = aside
        self._damage: list[Damaged] = []
        self._left_out: str | None = None
        self._sockets = sockets
        self.addresses = Addresses(
            bound(sockets.names), bound(sockets.broker), None if sockets.vip is None else bound(sockets.vip)
        )
        self._address = advertised(self.addresses.broker, advertise)
        ip, port = self._address
        shown = str(Address(_text(ip), port)).rpartition(":")[0].strip("[]")
        self._own = [f"brokerIP1={shown}", f"listenPort={port}"]
        self._config = self._with_own(config)
        self._stack = ExitStack()
        self._listening: list[asyncio.Server] = []
        # How clients may speak TLS, if they may.
        self.tls: Tls | None = None
        # A shell command that decides open transactions, instead of their producers.
        self.check_command: str | None = None

    def _with_own(self, config: StoreConfig) -> StoreConfig:
        return config.with_assignments(self._own, takes_unused=True)

    def open(self) -> Self:
        """Open the store, under its lock; or its substitute."""
        self._gate.begin(self._config.broker_cluster_name)
        with ExitStack() as stack:
            self.store = MessageStore.open(self._setup(stack))
            stack.callback(self.store.close)
            self.broker = Broker(self.store, self._address, read_only=self._aside is not None)
            stack.callback(self.broker.services.close)
            self.broker.add_own()
            if self._sockets.slaves is not None:
                self.broker.ha_address = str(Address(_text(self._address[0]), bound(self._sockets.slaves).port))
            if self.broker.read_only:
                self.broker.offer_all()
            self._stack = stack.pop_all()
        return self

    def _setup(self, stack: ExitStack) -> Setup:
        if self._aside is not None:
            found = stack.enter_context(substitute(*self._aside, self._with_own))
            self.recovered, self._damage, self._left_out = found.recovered, found.damage, found.left_out
            return found.setup
        files = stack.enter_context(PosixWritableFileSystem(self._root))
        self.recovered = recover_end(files, self._config)
        return Setup(files, self._config, expires=True)

    def tell_damage(self) -> None:
        """Report each damaged span that consumers do not get messages from, and lost changes of the state, once."""
        if self._left_out is not None:
            self.server.observer.event("recovered", message=self._left_out)
        for one in self._damage:
            self.server.observer.event("damage", **one.as_json())

    async def start(self, observer: Observer) -> Server:
        """Let clients come."""
        loop = asyncio.get_running_loop()
        self.server = server = Server(self.broker, observer, loop, self._gate, self._limits)
        self._clockwork = Clockwork(server)
        if self.check_command is not None:
            server.take_program(self.check_command)
        processors = server.processors
        for found, table in (
            (self._sockets.names, processors.names),
            (self._sockets.broker, processors.broker),
            (self._sockets.vip, processors.fast),
        ):
            if found is not None:
                make = connections(server, table, self.tls)
                self._listening.append(await loop.create_server(make, sock=found))
        if self._sockets.slaves is not None:
            self._listening.append(await loop.create_server(server.take_slaves().link, sock=self._sockets.slaves))
        self._clockwork.start()
        return server

    async def end(self) -> None:
        """Answer who waits, finish what was begun, let clients go. The store is closed by ``close``."""
        server = self.server
        server.is_ending = True
        self._clockwork.stop()
        if server.program is not None:
            server.program.end()
        for listening in self._listening:
            listening.close()
        server.cold_reads.close()
        server.held_pulls.answer_over(0, all_of_them=True)
        server.held_pops.answer_over(0, all_of_them=True)
        server.end_turn()
        end = server.loop.time() + _LAST_WRITES
        # A request whose bytes come now may store a message, which then waits for the disk.
        while (server.is_waiting_for_disk and self.store.condition().failure is None) or (
            server.is_answering and server.loop.time() < end
        ):
            await asyncio.sleep(_LOOK)
            if server.loop.time() >= end:
                server.stop_reading()
        if server.slaves is not None:
            server.slaves.close()
        server.close_all()
        await asyncio.sleep(0)
        server.threads.shutdown(wait=True)

    def close(self) -> None:
        """Save how far everything is and close the store; raise WriteFailed where it could not be written."""
        try:
            if self.store.condition().failure is None:
                self.broker.services.save()
        finally:
            self._sockets.close()
            self._stack.close()
        failure = self.store.condition().failure
        if isinstance(failure, WriteFailed):
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(ip: bytes) -> str:
    return format_address(ip)
