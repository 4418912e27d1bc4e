"""The connections of one client to a cluster: each is opened at its first use and closed when it is idle.

A request goes to a name server that answers, or to an address. A refusal is raised as an error with its remark.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from rmqtool.client.address import ClusterAddress, split_address
from rmqtool.client.connection import AnswerLost, Connection, Manners, NotSent, RequestRefused, WrongAnswer, connect
from rmqtool.client.topic_routes import MASTER, Routes
from rmqtool.errors import RemoteError
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import UNSUPPORTED, answer
from rmqtool.remoting.bodies.routes import ClusterInfo
from rmqtool.remoting.body import Body, BodyError
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests.names import GetBrokerClusterInfo

_SUCCESS: Final = frozenset({int(ResponseCode.SUCCESS)})
_HOUSEKEEPING: Final = 10.0
# How far below its port the second port of a broker is. upstream: MixAll.brokerVIPChannel
_VIP: Final = 2

Handler = Callable[[Connection, RemotingCommand], None]
AnyBody = TypeVar("AnyBody", bound=Body)


class Cluster:
    """A cluster as one client sees it. To be made, used and closed on one running loop."""

    def __init__(self, address: ClusterAddress, manners: Manners | None = None) -> None:
        self.address = address
        self.manners = manners or Manners()
        self.routes = Routes(self.ask_names, address.broker)
        self.client_id = f"{socket.gethostname()}@{os.getpid()}#{time.monotonic_ns()}"
        # For the requests that brokers send to their clients, by code.
        self.handlers: dict[int, Handler] = {}
        # Called with the address of a connection that has just been opened, or was lost.
        self.on_open: list[Callable[[str], None]] = []
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._name_server = 0
        self._timer = self._loop.call_later(_HOUSEKEEPING, self._close_idle)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        self.is_closed = True
        self._timer.cancel()
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for connection in list(self._open.values()):
            connection.close()
        # So that asyncio closes its sockets before the loop ends.
        await asyncio.sleep(0)

    # Connections.

    def connection_now(self, address: str) -> Connection | None:
        """Return a connection that is open already."""
        if address not in self.address.names:
            address = self.manners.broker or address
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    async def connection(self, address: str) -> Connection:
        """Return a connection to an address. Raises NotSent."""
        if self.is_closed:
            raise NotSent("this client is closed")
        if address not in self.address.names:
            address = self.manners.broker or address
        if (connection := self.connection_now(address)) is not None:
            return connection
        task = self._opening.get(address)
        if task is None:
            task = self._opening[address] = self._loop.create_task(self._connect(address))
            task.add_done_callback(lambda done: self._opened(address, done))
        return await asyncio.shield(task)

    def address_to_send(self, address: str) -> str:
        """Return where to send messages for the broker at an address."""
        if not self.manners.vip:
            return address
        host, port = split_address(address)
        return f"[{host}]:{port - _VIP}" if ":" in host else f"{host}:{port - _VIP}"

    async def _connect(self, address: str) -> Connection:
        connection = await connect(address, self.manners, self._take_request, self._lose)
        self._open[address] = connection
        for told in self.on_open:
            told(address)
        return connection

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled():
            task.exception()  # those who wait were told

    def _lose(self, connection: Connection) -> None:
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]

    def _close_idle(self) -> None:
        for connection in list(self._open.values()):
            if connection.is_idle:
                connection.close()
        self._timer = self._loop.call_later(_HOUSEKEEPING, self._close_idle)

    def _take_request(self, connection: Connection, command: RemotingCommand) -> None:
        handler = self.handlers.get(command.code)
        if handler is not None:
            handler(connection, command)
        elif not command.is_oneway:
            code, remark = UNSUPPORTED.of("4.9.8", code=command.code)
            connection.answer(answer(command, code, remark))

    # Requests.

    async def ask(
        self,
        address: str,
        request: Request,
        body: Body | bytes = b"",
        *,
        code: int | None = None,
        accept: Collection[int] = _SUCCESS,
        timeout: float | None = None,
        more: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Send a request to an address. Raises NotSent, AnswerLost, and RequestRefused for a code not in ``accept``.

        ``more`` are fields that any request may carry.
        """
        row = request.codes[0] if code is None else next(one for one in request.codes if one.code == code)
        data = body if isinstance(body, bytes) else body.encode()
        connection = await self.connection(address)
        fields = {**request.encode(short=row.short), **(more or {})}
        got = await connection.call(row.code, fields, data, timeout=timeout)
        if got.code not in accept:
            raise RequestRefused(row.code, got, address)
        return got

    async def tell(self, address: str, request: Request, body: Body | bytes = b"") -> None:
        """Send a request that gets no answer. Raises NotSent."""
        row = request.codes[0]
        connection = await self.connection(address)
        data = body if isinstance(body, bytes) else body.encode()
        connection.tell(row.code, request.encode(short=row.short), data)

    async def ask_names(self, request: Request, *, accept: Collection[int] = _SUCCESS) -> RemotingCommand:
        """Ask a name server; the next one where one does not answer."""
        names = self.address.names
        failures = []
        for turn in range(len(names)):
            at = (self._name_server + turn) % len(names)
            try:
                found = await self.ask(names[at], request, accept=accept)
            except (NotSent, AnswerLost) as error:
                failures.append(error)
                continue
            self._name_server = at
            return found
        if len(failures) == 1:
            raise RemoteError(
                f"the name server does not answer: {failures[0].message}",
                hint=failures[0].hint or "is it running, and is the address right?",
            )
        said = "; ".join(error.message for error in failures)
        raise RemoteError(f"no name server answers: {said}", hint="is one of them running, are the addresses right?")

    async def brokers(self) -> ClusterInfo:
        """Return the brokers and their addresses; of one broker that was named, only that one."""
        info = read_body(ClusterInfo, await self.ask_names(GetBrokerClusterInfo()))
        only = self.address.broker
        if only is None:
            return info
        table = {name: data for name, data in info.broker_addr_table.items() if name == only}
        if not table:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise RemoteError(f"the cluster has no broker {only}", hint=f"its brokers: {known}")
        clusters = {name: [only] for name, brokers in info.cluster_addr_table.items() if only in brokers}
        return ClusterInfo(broker_addr_table=table, cluster_addr_table=clusters)

    async def masters(self) -> dict[str, str]:
        """Return the address of each broker, by name: its master's, else that of a slave."""
        found = {}
        for name, data in sorted((await self.brokers()).broker_addr_table.items()):
            known = data.broker_addrs
            if known:
                found[name] = known.get(MASTER) or known[min(known)]
        if not found:
            raise RemoteError("the name server knows no broker", hint="a broker registers itself after its start")
        return found


def read_records(body: bytes, what: str) -> Iterator[Message]:
    """Yield the messages of the answer to a request, ``what`` in words. Raises WrongAnswer for other bytes."""
    place = 0
    while place < len(body):
        record = decode_record(body, place)
        if not isinstance(record, Message):
            raise WrongAnswer(f"a broker answered {what} with bytes that are not records")
        place += record.total_size
        yield record


def read_body(kind: type[AnyBody], command: RemotingCommand) -> AnyBody:
    """Return the body of an answer as a value. Raises RemoteError."""
    try:
        return kind.decode(command.body)
    except BodyError as error:
        raise WrongAnswer(f"an answer cannot be read: {error}") from None
