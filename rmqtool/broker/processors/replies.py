"""Results of a processor that are more than an answer: a put that is not durable, requests to other clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from rmqtool.broker.client_registry import Connection
from rmqtool.engine.put import PutTicket
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


# None: the client gets no answer.
Reply: TypeAlias = "RemotingCommand | bytes | Putting | Forwarded | Telling | None"
# A plain message whose request came as a row; of one that is taken: its ticket, and its unique key.
PlainRow: TypeAlias = SendRow
TakenRow: TypeAlias = tuple[PutTicket, str]
