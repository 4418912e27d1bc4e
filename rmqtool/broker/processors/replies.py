"""Results of a processor that are more than an answer: puts that are not durable, requests to clients, cold reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rmqtool.broker.client_registry import Connection
from rmqtool.engine.put import PutTicket
from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import NotInMemory
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import SendRow


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
    """A request for bytes that are not in memory. They are fetched in another thread; then ``again`` answers it."""

    cold: NotInMemory
    again: Callable[[], Any]


# The most fetches for one request: what was fetched does not stay in memory.
_MOST_FETCHES = 1024


def fetching(cold: NotInMemory, rounds: int, again: Callable[[int], Any]) -> Fetching:
    """Return a request that waits for bytes; ``rounds`` says how often it did before. Raises ReadFailed."""
    if rounds >= _MOST_FETCHES:
        raise ReadFailed("what is read from the disk does not stay in memory", hint="the machine needs more memory")
    return Fetching(cold, partial(again, rounds + 1))


def or_fetching(work: Callable[[int], Any], rounds: int, again: Callable[[int], Any]) -> Any:
    """Return what ``work`` returns; a request that waits for bytes where it raises NotInMemory."""
    try:
        return work(rounds)
    except NotInMemory as cold:
        return fetching(cold, rounds, again)


def with_fetches(work: Callable[[], Any], rounds: int = 0) -> Any:
    """Return what ``work`` returns. It is done again after each fetch: it changes nothing before it has all bytes."""
    return or_fetching(lambda _rounds: work(), rounds, partial(with_fetches, work))


# None: the client gets no answer.
Reply: TypeAlias = "RemotingCommand | bytes | Putting | Forwarded | Telling | Fetching | Searching | None"
# A plain message whose request came as a row; of one that is taken: its ticket, and its unique key.
PlainRow: TypeAlias = SendRow
TakenRow: TypeAlias = tuple[PutTicket, str]
