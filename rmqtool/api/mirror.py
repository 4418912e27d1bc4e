"""``mirror``: a live copy of a broker's log, as a store."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.wanted import require_known
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.cluster import Cluster, Keys
    from rmqtool.api.shapes import Mirrored
    from rmqtool.replica.masters import Master
    from rmqtool.replica.slave import Manner

Event = Mapping[str, Any]
# A mirror acknowledges nothing, or the bytes that would survive a power cut.
ACKNOWLEDGED = ("never", "durable")


class How(TypedDict, total=False):
    """How a log is mirrored.

    ``begin`` is where a new mirror begins: "start", "end" or a physical offset, rounded down to a segment. With ``ack``
    "never" the mirror counts as no replica. ``once`` ends with what the master had at the start. ``config_every`` is
    how often topics, groups and offsets are copied ("10s"), ``keep`` how long segments stay ("30d"). With ``live``
    queues and index are built while the log grows. ``told`` gets each line of the contract; ``stop`` ends the mirror
    from another thread.
    """

    begin: str | int | None
    ack: str
    once: bool
    config_every: str
    keep: str | None
    live: bool
    credentials: Keys | None
    tls: bool
    told: Callable[[Event], None] | None
    stop: threading.Event | None


class Done(NamedTuple):
    """The end of a mirror: the last line, and whether the master had deleted bytes that are missing now."""

    line: Mirrored
    has_gap: bool

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        return Exit.SKIPPED if self.has_gap else Exit.DONE


def mirror(master: str, to: str | os.PathLike[str], **how: Unpack[How]) -> Mirrored:
    """Copy a broker's log into a directory and follow it; return the last line of the contract.

    ``master`` is ``rocketmq://NAMESERVER[/BROKER]``, or the address of the broker. It runs until ``stop`` is set or,
    with ``once``, until everything is there that the master had when it began.
    """
    return mirrored(master, to, **how).line


def run_mirror(master: str, to: str | os.PathLike[str], **how: Unpack[How]) -> tuple[Done, int]:
    """Mirror until SIGTERM or SIGINT; return the end, and the exit status."""
    stop = threading.Event()
    with _stopped_by_signals(stop) as status:
        how["stop"] = stop
        done = mirrored(master, to, **how)
    return done, int(done.status) if status[0] == Exit.DONE else status[0]


def mirrored(master: str, to: str | os.PathLike[str], **how: Unpack[How]) -> Done:
    """Mirror, and return the last line with whether there is a gap."""
    from rmqtool.api.cluster import Cluster
    from rmqtool.client.address import SCHEME, has_port, is_cluster, split_address
    from rmqtool.replica.directory import require_free
    from rmqtool.replica.follower import Mirror

    require_known("mirror", how, tuple(How.__annotations__))
    manner, root = _manner(how), os.fspath(to)
    require_free(root)
    if not is_cluster(master):
        if not has_port(master):
            raise UsageError(f"{master!r} is not the address of a broker", hint="as in 10.1.2.3:10911")
        split_address(master)
    names = master if is_cluster(master) else SCHEME + master
    cluster = Cluster(names, credentials=how.get("credentials"), tls=how.get("tls", False))
    stop, told = how.get("stop") or threading.Event(), how.get("told") or _ignore
    at_work = Mirror(cluster.face, root, manner, told, stop)
    try:
        line = at_work.run(lambda broker: _find(cluster, broker, None if is_cluster(master) else master))
    finally:
        at_work.close()
        cluster.close()
    return Done(cast("Mirrored", line), at_work.has_gap)


async def _find(cluster: Cluster, broker: str | None, address: str | None) -> Master:
    from rmqtool.replica.masters import Master, find_master

    connections = await cluster.connected()
    return Master(connections, address or await find_master(connections, broker))


def _manner(how: How) -> Manner:
    from rmqtool.replica.slave import Manner
    from rmqtool.times import parse_span

    ack, begin, keep = how.get("ack", "durable"), how.get("begin"), how.get("keep")
    if ack not in ACKNOWLEDGED:
        raise UsageError(f"--ack is never or durable, not {ack!r}", hint="--ack durable")
    if begin is not None and begin not in ("start", "end") and not str(begin).isdecimal():
        raise UsageError(f"--from is start, end or an offset, not {begin!r}", hint="--from start")
    every = parse_span(how.get("config_every", "10s"))
    if every <= 0:
        raise UsageError("--config-every 0 is too small", hint="--config-every 10s")
    return Manner(
        begin=begin,
        acknowledges=ack == "durable",
        once=how.get("once", False),
        config_every=every / 1000,
        keep_ms=None if keep is None else parse_span(keep),
        live=how.get("live", False),
    )


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[list[int]]:
    """Set ``stop`` at a signal; give a list with the exit status that the signal means."""
    status = [int(Exit.DONE)]

    def take(number: int, _frame: object) -> None:
        status[0] = int(Exit.INTERRUPTED) if number == signal.SIGINT else int(Exit.DONE)
        stop.set()

    before = {number: signal.signal(number, take) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_event: Event) -> None:
    """Take an event, and do nothing."""
