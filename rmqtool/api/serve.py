"""``serve``: a name server and a broker over a store, for unmodified clients."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.store import Place, Settings, assignments_of, store_of
from rmqtool.errors import Exit, ReadFailed, Refused, StoreError, UsageError

if TYPE_CHECKING:
    import asyncio

    from rmqtool.api.shapes import Ready
    from rmqtool.broker.traffic import Traffic
    from rmqtool.config import StoreConfig
    from rmqtool.server.lifecycle import Lifecycle
    from rmqtool.server.server import Limits
    from rmqtool.server.sockets import Address
    from rmqtool.server.tls import Tls
    from rmqtool.store.open import Store as OpenStore

# The addresses that clients use by default.
NAMES, BROKER = "127.0.0.1:9876", "127.0.0.1:10911"
_FREE = "127.0.0.1:0"
# A store in memory is small until it is used: files as they are made take their whole size.
_SMALL = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
}
# Settings that differ from a broker's defaults, unless the store's settings set them: SQL filters work.
_USUAL = {"enablePropertyFilter": "true"}
_SIGNALLED = 128
# Seconds between two looks for a screen, and the least part of the time that they leave to clients.
_LOOK, _SHARE = 1.0, 20

Event = Mapping[str, Any]


class How(TypedDict, total=False):
    """How a store is served.

    ``memory``: a store of its own that goes with the server. ``read_only``: nothing reaches the store's disk; the
    progress of groups is kept in the directory ``state``, by default beside the store. ``listen`` and ``names`` are the
    addresses of broker and name server, port 0 a free one; ``advertise`` is what routes give instead. ``acl`` is a file
    of accounts: plain_acl.yml of 4.x, or users and acls of 5.x as JSON. ``tls`` names the files of a certificate and
    its key, "CERT,KEY": clients may speak TLS at the ports of name server and broker, and must with ``tls_only``.
    ``allow`` takes "open" (another address than loopback without accounts) and "admin" (requests that delete or change
    settings, from all clients). ``limits`` are those of ``server.Limits`` by name. ``check`` is a command that decides
    open transactions. ``duration`` ("10m") ends
    it by itself.
    """

    memory: bool
    read_only: bool
    state: str | None
    listen: str | None
    names: str | None
    slaves: str | None
    advertise: str | None
    acl: str | None
    tls: str | None
    tls_only: bool
    allow: str | Iterable[str] | None
    limits: Settings | None
    check: str | None
    duration: str | None
    version: str | None
    conf: Settings | None


@dataclass(frozen=True)
class Served:
    """A server that runs: its addresses as ``host:port``, and whose they are."""

    names: str
    broker: str
    vip: str | None
    broker_name: str
    cluster_name: str
    store: str | None
    read_only: bool = False
    recovered: bool = False

    def as_json(self) -> Ready:
        """Return the line of the contract."""
        found = {
            "ready": True,
            "names": self.names,
            "broker": self.broker,
            "vip": self.vip,
            "brokerName": self.broker_name,
            "clusterName": self.cluster_name,
            "store": self.store,
            "readOnly": self.read_only,
            "recovered": self.recovered,
        }
        return cast("Ready", found)


class Watcher(NamedTuple):
    """The receiver of events, and of a look at the server each second."""

    told: Callable[[Event], None]
    watch: Callable[[Traffic], None] | None


class _Told:
    """Passes on what happens, as the objects of the contract."""

    def __init__(self, told: Callable[[Event], None]) -> None:
        self._told = told

    def event(self, kind: str, **about: object) -> None:
        """Tell one thing."""
        about.pop("error", None)
        self._told({"event": kind, **about})


@contextmanager
def serve(place: Place | None = None, **how: Unpack[How]) -> Iterator[Served]:
    """Serve a store, or one in memory, in a thread while the block runs; without addresses at free ports.

    ``with rmqtool.serve(memory=True) as broker:`` gives ``broker.names``, the address for clients.
    """
    how = {"listen": _FREE, "names": _FREE, **how}
    ready = threading.Event()
    found: dict[str, Any] = {}

    def run() -> None:
        import asyncio

        try:
            with _opened(place, how) as (running, served):
                asyncio.run(_until_stopped(running, served))
        except BaseException as error:
            found["error"] = error
            ready.set()

    async def _until_stopped(running: Lifecycle, served: Served) -> None:
        import asyncio

        stop = asyncio.Event()
        await running.start(_Told(lambda _: None))
        found.update(loop=asyncio.get_running_loop(), stop=stop, served=served)
        ready.set()
        await stop.wait()
        await running.end()

    thread = threading.Thread(target=run, name="rmqtool serve", daemon=True)
    thread.start()
    ready.wait()
    if "error" in found:
        raise found["error"]
    try:
        yield found["served"]
    finally:
        loop: asyncio.AbstractEventLoop = found["loop"]
        if thread.is_alive():
            loop.call_soon_threadsafe(found["stop"].set)
        thread.join()
        if "error" in found:
            raise found["error"]


def run_server(
    place: Place | None,
    told: Callable[[Event], None],
    exec: str | None = None,  # noqa: A002
    watch: Callable[[Traffic], None] | None = None,
    **how: Unpack[How],
) -> int:
    """Serve in this thread until SIGTERM, SIGINT, the end of ``exec`` or of the time; return the exit status.

    ``told`` gets the line of the contract when clients may connect, then each event. ``exec`` is a shell command that
    is run beside the server, with its addresses in the environment; its status is returned, 128 + N for signal N.
    ``watch`` gets a look at the server each second.
    """
    import asyncio

    usual = _FREE if exec is not None else None
    how = {**how, "names": how.get("names") or usual or NAMES, "listen": how.get("listen") or usual or BROKER}
    with _opened(place, how) as (running, served):
        return asyncio.run(_run(running, served, Watcher(told, watch), exec, _seconds(how.get("duration"))))


def _seconds(duration: str | None) -> float | None:
    from rmqtool.times import parse_span

    return None if duration is None else parse_span(duration) / 1000


async def _run(running: Lifecycle, served: Served, watcher: Watcher, command: str | None, seconds: float | None) -> int:
    import asyncio

    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    loop = asyncio.get_running_loop()
    for number, status in ((signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, int(Exit.INTERRUPTED))):
        loop.add_signal_handler(number, end, status)
    await running.start(_Told(watcher.told))
    watcher.told(served.as_json())
    running.tell_damage()
    if watcher.watch is not None:
        _look(running, watcher.watch, loop)
    if seconds is not None:
        loop.call_later(seconds, end, 0)
    program = None if command is None else asyncio.ensure_future(_program(command, served, end))
    status = await ended
    if program is not None:
        program.cancel()
        await asyncio.wait([program])
    await running.end()
    return status


def _look(running: Lifecycle, watch: Callable[[Traffic], None], loop: asyncio.AbstractEventLoop) -> None:
    """Look at the server each second, more rarely if a look takes long because there are many queues."""
    from rmqtool.broker.traffic import Meter

    meter = Meter(running.broker)

    def look() -> None:
        begun = loop.time()
        watch(meter.look())
        loop.call_later(max(_LOOK, (loop.time() - begun) * _SHARE), look)

    look()


async def _program(command: str, served: Served, end: Callable[[int], None]) -> None:
    """Run a program beside the server; when the server ends first, so does the program."""
    import asyncio

    addresses = {"NAMESRV_ADDR": served.names, "ROCKETMQ_NAMESRV": served.names}
    process = await asyncio.create_subprocess_exec("sh", "-c", command, env={**os.environ, **addresses})
    try:
        status = await process.wait()
    except asyncio.CancelledError:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        raise
    end(_SIGNALLED - status if status < 0 else status)


@contextmanager
def _opened(place: Place | None, how: How) -> Iterator[tuple[Lifecycle, Served]]:
    """Take the ports, then the store; give both back at the end."""
    from rmqtool.broker.accounts import Gate
    from rmqtool.server.lifecycle import Aside, Lifecycle
    from rmqtool.server.slaves import PORT
    from rmqtool.server.sockets import listen, parse_listen

    _require_fitting(place, how)
    names = parse_listen(how.get("names") or NAMES, "--names", int(NAMES.rpartition(":")[2]))
    broker = parse_listen(how.get("listen") or BROKER, "--listen", int(BROKER.rpartition(":")[2]))
    slaves = None if how.get("slaves") is None else parse_listen(how["slaves"] or "", "--slaves", PORT)
    allowed = _allowed(how)
    if "open" not in allowed:
        # Accounts do not protect the port of slaves.
        _refuse_open(*(() if how.get("acl") is not None else (names, broker)), *(() if slaves is None else (slaves,)))
    secret = secrets.token_hex(16)
    gate = Gate(how.get("acl"), secret=secret, allows_admin="admin" in allowed or bool(how.get("memory")))
    tls = _tls(how)
    limits = _limits(how.get("limits"))
    _require_program(how.get("check"))
    sockets = listen(names, broker, slaves)
    try:
        with _rooted(place, how) as (root, config):
            aside = Aside(partial(_reopened, place), how.get("state")) if how.get("read_only") and place else None
            running = Lifecycle(root, config, sockets, how.get("advertise"), gate, aside, limits)
            running.check_command, running.tls = how.get("check"), tls
            running.open()
            with running:
                served = _served(running, None if how.get("memory") else root)
                with _owned(served, secret):
                    yield running, served
    finally:
        sockets.close()


def _require_fitting(place: Place | None, how: How) -> None:
    if how.get("memory") and place is not None:
        raise UsageError("--memory serves a store of its own", hint="leave out STORE, or --memory")
    if how.get("memory") and how.get("read_only"):
        raise UsageError("--memory and --read-only exclude each other", hint="a new store has nothing to read")
    if how.get("state") is not None and not how.get("read_only"):
        raise UsageError("--state needs --read-only", hint="a store that is written keeps its progress itself")


def _require_program(command: str | None) -> None:
    if command is not None:
        from rmqtool.broker.consumer.programs import check_program

        check_program(command, "--check")


def _allowed(how: How) -> set[str]:
    """Return what is allowed beyond the usual."""
    given = how.get("allow") or ()
    found = set(given.split(",") if isinstance(given, str) else given)
    if odd := sorted(found - {"open", "admin"}):
        raise UsageError(f'--allow takes open and admin, not "{odd[0]}"', hint="--allow open,admin")
    return found


def _tls(how: How) -> Tls | None:
    """Return how clients may speak TLS."""
    files, is_needed = how.get("tls"), bool(how.get("tls_only"))
    if files is None:
        if is_needed:
            raise UsageError("--tls-only needs --tls", hint="--tls certificate.pem,key.pem")
        return None
    from rmqtool.server.tls import Tls, read_certificate

    return Tls(read_certificate(files), is_needed)


def _limits(given: Settings | None) -> Limits:
    """Return the limits of a server with those that a person sets."""
    from rmqtool.server.server import USUAL

    found = {}
    for one in assignments_of(given):
        name, _, value = one.partition("=")
        if name not in USUAL._fields or not value.isdecimal():
            hint = ", ".join(f"{known}={usual}" for known, usual in USUAL._asdict().items())
            raise UsageError(f"{one!r} is not a limit", hint=f"the limits: {hint}")
        found[name] = int(value)
    return USUAL._replace(**found)


def _refuse_open(*addresses: Address) -> None:
    """Refuse to listen where others can connect, without accounts."""
    from rmqtool.server.sockets import is_loopback

    for one in addresses:
        if not is_loopback(one.host):
            raise Refused(
                f"{one} can be reached by other machines, and there is no access control: they may read and write",
                hint="name a file of accounts, --acl FILE; or allow it to all: --allow open",
            )


def _reopened(place: Place) -> OpenStore:
    """Open a store for reading, with the settings of a server."""
    store = store_of(place).reopen()
    return replace(store, config=_usual(store.config))


def _usual(config: StoreConfig) -> StoreConfig:
    return config.with_assignments([f"{name}={value}" for name, value in _USUAL.items() if name not in config.origins])


def _served(running: Lifecycle, root: str | None) -> Served:
    addresses, config = running.addresses, running.broker.config
    return Served(
        str(addresses.names),
        str(addresses.broker),
        None if addresses.vip is None else str(addresses.vip),
        config.broker_name,
        config.broker_cluster_name,
        root,
        read_only=running.broker.read_only,
        recovered=running.recovered,
    )


@contextmanager
def _owned(served: Served, secret: str) -> Iterator[None]:
    """Let other commands of the same user find the server while it runs."""
    from rmqtool.store.owner import Owner, remove_owner, write_owner

    path = None
    if served.store is not None:
        now = time.time_ns() // 1_000_000
        root = os.path.realpath(served.store)
        owner = Owner(os.getpid(), now, root, served.names, served.broker, secret)
        path = write_owner(owner)
    try:
        yield
    finally:
        remove_owner(path)


@contextmanager
def _rooted(place: Place | None, how: How) -> Iterator[tuple[str, Any]]:
    """Give the root and the settings of the store that is served."""
    if place is not None:
        store = store_of(place)
        try:
            root, config = store.located()
        except ReadFailed:
            raise
        except StoreError as error:
            hint = f"a new store: rmqtool init {quote(store.path)}; one for tests: rmqtool serve --memory"
            raise StoreError(error.message, file=error.file, hint=hint) from error
        yield root, _usual(config)
        return
    from rmqtool.api.init import init

    root = os.path.join(tempfile.mkdtemp(prefix="rmqtool-"), "store")
    try:
        conf = {**_SMALL, **_USUAL, **dict(one.partition("=")[::2] for one in assignments_of(how.get("conf")))}
        init(root, version=how.get("version"), conf={name: str(value) for name, value in conf.items()})
        yield store_of(root).located()
    finally:
        shutil.rmtree(os.path.dirname(root), ignore_errors=True)
