"""How a consumer of a live cluster consumes: its settings, the strategy, and the file of a broadcasting consumer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.rebalance import Strategy


# How clients for Kafka call the first and the last message.
_STARTS = {"earliest": "first", "latest": "last"}


class ConsumerSettings(TypedDict, total=False):
    """How a consumer consumes.

    ``tags`` ("A || B") or ``where`` (SQL) select messages. ``start`` is where a new group begins: "first", "last" (the
    default), or a time. ``orderly`` takes each queue strictly in order. ``strategy`` shares out the queues: "average",
    "circle", "hash", "rooms:A,B" (the brokers ``A@NAME`` and ``B@NAME``), "nearby" (the part of the names of brokers
    and hosts before "-" is their room), or an object with ``allocate``; all members of a group need the same.
    ``prefetch`` is how many messages of a queue are kept here at most. ``timeout`` (s) ends an iteration if no message
    comes in that time.

    With ``broadcast`` each consumer gets all messages, and one that fails is not delivered again. How far it came is in
    the file ``offsets``, as clients in Java write it. No two consumers may use one file; default:
    ~/.rocketmq_offsets/127.0.0.1@DEFAULT/GROUP/offsets.json.

    With ``pop`` (brokers of 5.x) each message is hidden from others for ``invisible`` seconds (60), and comes again
    unless it is consumed by then. Queues are not shared out, so a slow consumer does not delay others. ``start`` is
    "first" or "last".
    """

    tags: str | None
    where: str | None
    start: str | None
    orderly: bool
    strategy: str | Strategy
    prefetch: int
    timeout: float | None
    broadcast: bool
    offsets: str | os.PathLike[str] | None
    pop: bool
    invisible: float


# Settings that have no meaning for a consumer that pops.
_NOT_POPPED = ("orderly", "strategy", "broadcast", "offsets")
INVISIBLE = 60.0


def asked_of(topics: str | list[str], group: str, settings: Mapping[str, Any]) -> Asked:
    from rmqtool.api.store_group import parse_start
    from rmqtool.api.wanted import wanted_of
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.subscription import Subscription
    from rmqtool.broker.groups import named_group
    from rmqtool.filters.tags import parse_tags

    if settings.get("tags") is not None and settings.get("where") is not None:
        raise UsageError("a group subscribes by tag or by SQL, not by both", hint="in SQL a tag is TAGS = 'A'")
    start = settings.get("start")
    if settings.get("broadcast") and (settings.get("orderly") or "strategy" in settings):
        raise UsageError("a broadcasting consumer takes every queue itself", hint="leave out orderly and strategy")
    if settings.get("offsets") is not None and not settings.get("broadcast"):
        raise UsageError("offsets is the file of a broadcasting consumer", hint="broadcast=True, or leave it out")
    _check_pop(settings, start)
    wanted = wanted_of({"topics": topics, "tags": settings.get("tags"), "where": settings.get("where")})
    return Asked(
        group=named_group(group),
        topics=wanted.topics,
        wanted=Subscription(parse_tags(None) if wanted.tags is None else wanted.tags, wanted.where),
        start=parse_start(_STARTS.get(str(start), start), group, "local", keeps=True),
        orderly=settings.get("orderly", False),
        broadcasting=settings.get("broadcast", False),
        keeps=True,
    )


def _check_pop(settings: Mapping[str, Any], start: object) -> None:
    if not settings.get("pop"):
        if settings.get("invisible") is not None:
            raise UsageError("invisible is for a consumer that pops", hint="pop=True, or leave it out")
        return
    for name in _NOT_POPPED:
        if settings.get(name):
            raise UsageError(f"a consumer that pops takes no {name}", hint="leave it out: no queue has an owner")
    if _STARTS.get(str(start), start) not in (None, "first", "last"):
        raise UsageError(f"a consumer that pops cannot begin at {start}", hint='start="first" or start="last"')
    invisible = settings.get("invisible", INVISIBLE)
    if isinstance(invisible, bool) or not isinstance(invisible, int | float) or invisible <= 0:
        raise UsageError(f"invisible is a time in seconds, not {invisible!r}", hint="invisible=60")


def strategy_of(given: str | Strategy) -> Strategy:
    from rmqtool.broker.consumer.rebalance import (
        Average,
        AverageByCircle,
        ByMachineRoom,
        ConsistentHash,
        MachineRoomNearby,
    )

    if not isinstance(given, str):
        return given
    known: dict[str, Callable[[], Strategy]] = {
        "average": Average,
        "circle": AverageByCircle,
        "hash": ConsistentHash,
        "nearby": lambda: MachineRoomNearby(Average(), _before_dash, _before_dash),
    }
    with suppress(KeyError):
        return known[given]()
    rooms = [room for room in given.removeprefix("rooms:").split(",") if room]
    if given.startswith("rooms:") and rooms:
        return ByMachineRoom(rooms)
    raise UsageError(
        f'there is no strategy "{given}"', hint=f"one of {', '.join(known)}, rooms:A,B, or an object of your own"
    )


def _before_dash(name: str) -> str:
    return name.partition("-")[0]


class Kept:
    """The file of a broadcasting consumer, which no other process can use meanwhile."""

    def __init__(self, path: str | os.PathLike[str] | None, asked: Asked) -> None:
        from rmqtool.broker.consumer.progress import LOCAL_OFFSETS, LocalOffsets, local_offsets_path
        from rmqtool.config import Version
        from rmqtool.engine.clock import SystemClock
        from rmqtool.errors import StoreInUse
        from rmqtool.files.posix_write import PosixWritableFileSystem
        from rmqtool.files.publish import lock_directory
        from rmqtool.formats.flaws import Flaw
        from rmqtool.formats.message_queue import decode_local_offsets
        from rmqtool.store.config_files import ConfigText

        usual = f"~/{LOCAL_OFFSETS}/{local_offsets_path(asked.client_ids[0], asked.group)}"
        directory, name = os.path.split(os.path.abspath(os.path.expanduser(usual if path is None else os.fspath(path))))
        busy = StoreInUse(
            f"another broadcasting consumer uses {directory}/{name}",
            file=directory,
            hint="give each consumer a file of its own, in a directory of its own: offsets=FILE",
        )
        self._lock = lock_directory(directory, busy)
        self._files = PosixWritableFileSystem(directory)
        text = ConfigText(self._files, name, lambda data: not isinstance(decode_local_offsets(data), Flaw))
        self.offsets = LocalOffsets(text, Version.V5_4, SystemClock())

    def close(self) -> None:
        """Let others use the file."""
        os.close(self._lock)
