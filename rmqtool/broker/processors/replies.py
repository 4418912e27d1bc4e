"""Results of a processor that are more than an answer: puts that are not durable, requests to clients, cold reads."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rmqtool.broker.client_registry import Connection
from rmqtool.engine.put import PutTicket
from rmqtool.files.filesystem import NotInMemory
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import PullRow, SendRow


class Putting(NamedTuple):
    """A message on its way into the log; ``answer`` is called when it is known what came of it."""

    ticket: PutTicket
    answer: Callable[[], RemotingCommand | bytes]


class Forwarded(NamedTuple):
    """A request that a client must answer before this one can be answered.

    ``answer`` gets the client's answer; None after a timeout or a lost connection.
    """

    connection: Connection
    command: RemotingCommand
    answer: Callable[[RemotingCommand | None], Reply]


class Telling(NamedTuple):
    """An answer, and requests to other clients that they do not answer."""

    answer: RemotingCommand
    requests: list[tuple[Connection, RemotingCommand]]


class Searching(NamedTuple):
    """A request whose work may read much of the disk: ``search`` is for another thread, and changes nothing."""

    search: Callable[[], RemotingCommand]


@dataclass(slots=True)
class Fetching:
    """A request for bytes that are not in memory. They are fetched in another thread; then ``again`` answers it.

    One that changes the store ``outlives_client``: it is done also when its sender has hung up.
    """

    cold: NotInMemory
    again: Callable[[], Any]
    outlives_client: bool = False


# After this number of fetches the disk is waited for: bytes that are fetched do not stay in memory.
ENOUGH_FETCHES = 64


def or_fetching(work: Callable[[int], Any], rounds: int, again: Callable[[int], Any]) -> Any:
    """Return what ``work`` returns; a request that waits for bytes where it raises NotInMemory."""
    try:
        return work(rounds)
    except NotInMemory as cold:
        return Fetching(cold, partial(again, rounds + 1))


def in_steps(steps: Steps, *, outlives_client: bool = False) -> Reply:
    """Return what a generator returns, or have it wait for bytes, as often as it must.

    It yields its reads, and goes on with what each one found: a read is a function that raises NotInMemory unless it
    ``waits``. So no step is done twice. Other requests are answered meanwhile.
    """
    try:
        read = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return _go_on(steps, outlives_client, read, 0)


def _go_on(steps: Steps, outlives_client: bool, read: Callable[..., Any], rounds: int) -> Reply:
    while True:
        try:
            found = read(waits=rounds >= ENOUGH_FETCHES)
        except NotInMemory as cold:
            return Fetching(cold, partial(_go_on, steps, outlives_client, read, rounds + 1), outlives_client)
        rounds = 0
        try:
            read = steps.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


# None: the client gets no answer.
Reply: TypeAlias = "RemotingCommand | bytes | Putting | Forwarded | Telling | Fetching | Searching | None"
# A request that reads records, which may be cold.
Steps: TypeAlias = "Generator[Callable[..., Any], Any, Reply]"
# A plain message whose request came as a row; of one that is taken: its ticket, and its unique key.
PlainRow: TypeAlias = SendRow
PlainPull: TypeAlias = PullRow
TakenRow: TypeAlias = tuple[PutTicket, str]
