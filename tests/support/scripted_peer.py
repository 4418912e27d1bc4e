"""A peer that plays name server and broker by a script.

It keeps what it was asked. What a request is answered by is a function of the request; it may give an answer, nothing
at all, or end the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rmqtool.client.address import ClusterAddress
from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import Manners
from rmqtool.remoting.command import ANSWER, RemotingCommand
from rmqtool.remoting.frames import FrameDecoder, encode_frame

HOST = "127.0.0.1"
ROUTE, SEND, BATCH, PULL = 105, 310, 320, 11


class Hangup(Exception):
    """End the connection instead of an answer."""


Play = Callable[[RemotingCommand], "RemotingCommand | None"]


def reply(
    request: RemotingCommand, code: int = 0, ext: Mapping[str, str] | None = None, body: bytes = b"", remark: str = ""
) -> RemotingCommand:
    """Return an answer with the given parts."""
    return RemotingCommand(
        code,
        None if ext is None else dict(ext),
        body,
        request.opaque,
        ANSWER,
        remark=remark or None,
        serialize_type=request.serialize_type,
    )


class ScriptedPeer:
    """A server whose answers are scripted by the code of the request."""

    def __init__(self, plays: Mapping[int, Play] | None = None) -> None:
        self.plays: dict[int, Play] = dict(plays or {})
        self.requests: list[RemotingCommand] = []
        self.connections = 0
        self.address = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, port)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Close the door and every connection."""
        assert self._server is not None
        self._server.close()
        for _ in range(3):
            for writer in list(self._writers):
                writer.transport.abort()
            # Sockets that were just accepted, and those that were aborted, are closed by the loop.
            await asyncio.sleep(0.002)
        while self._writers:
            await asyncio.sleep(0)

    def asked(self, code: int) -> list[RemotingCommand]:
        return [one for one in self.requests if one.code == code]

    def ask(self, request: RemotingCommand) -> None:
        """Send a request to every client that is connected."""
        for writer in self._writers:
            writer.write(encode_frame(request))

    def ask_soon(self, request: RemotingCommand) -> None:
        """The same, from another thread."""
        assert self._server is not None
        self._server.get_loop().call_soon_threadsafe(self.ask, request)

    def hang_up_soon(self) -> None:
        """End every connection, from another thread; new ones are taken."""
        assert self._server is not None
        self._server.get_loop().call_soon_threadsafe(lambda: [one.transport.abort() for one in list(self._writers)])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        decoder = FrameDecoder()
        try:
            while data := await reader.read(1 << 16):
                for command in decoder.feed(data):
                    self.requests.append(command)
                    if (answer := self._answer(command)) is not None:
                        writer.write(encode_frame(answer))
        except (Hangup, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _answer(self, command: RemotingCommand) -> RemotingCommand | None:
        if command.is_answer:
            return None
        play = self.plays.get(command.code)
        return (
            reply(command, 3, remark=f" request type {command.code} not supported") if play is None else play(command)
        )


def route_body(brokers: Mapping[str, Mapping[int, str]], queues: int = 4, perm: int = 6) -> bytes:
    """Return the body of an answer to 105, member by member as a 4.9 name server writes it."""
    datas = ",".join(
        '{"brokerAddrs":{'
        + ",".join(f'"{broker_id}":"{address}"' for broker_id, address in addresses.items())
        + f'}},"brokerName":"{name}","cluster":"DefaultCluster"}}'
        for name, addresses in brokers.items()
    )
    counts = ",".join(
        f'{{"brokerName":"{name}","perm":{perm},"readQueueNums":{queues},"topicSysFlag":0,"writeQueueNums":{queues}}}'
        for name in brokers
    )
    return f'{{"brokerDatas":[{datas}],"filterServerTable":{{}},"queueDatas":[{counts}]}}'.encode()


def routes_to(brokers: Mapping[str, Mapping[int, str]], topics: Sequence[str] = ("T",), **more: int) -> Play:
    """Return what a name server answers that knows these topics and no others."""

    def play(request: RemotingCommand) -> RemotingCommand:
        topic = request.ext["topic"]
        if topic in topics:
            return reply(request, body=route_body(brokers, **more))
        return reply(request, 17, remark=f"No topic route info in name server for the topic: {topic}")

    return play


def stored_at(queue_offset: int = 7, physical_offset: int = 0x1234) -> Play:
    """Return what a broker answers that stores each message at one place."""

    def play(request: RemotingCommand) -> RemotingCommand:
        ext = {
            "msgId": f"7F00000100002A9F{physical_offset:016X}",
            "queueId": request.ext["e"],
            "queueOffset": str(queue_offset),
        }
        return reply(request, ext=ext)

    return play


@asynccontextmanager
async def playing(*scripts: Mapping[int, Play]) -> AsyncIterator[list[ScriptedPeer]]:
    """Start a peer for each script; stop them at the end."""
    peers = [ScriptedPeer(script) for script in scripts]
    try:
        for peer in peers:
            await peer.start()
        yield peers
    finally:
        for peer in peers:
            await peer.stop()


@asynccontextmanager
async def cluster_of(*names: ScriptedPeer, broker: str | None = None, **manners: Any) -> AsyncIterator[Cluster]:
    """Open a client whose name servers are these peers."""
    address = ClusterAddress(tuple(peer.address for peer in names), broker)
    async with Cluster(address, Manners(**manners)) as cluster:
        yield cluster
