"""A recording proxy: passes the bytes between clients and brokers on as they are, and writes each frame as a JSON line.

    python -m tools.tap FILE 127.0.0.1:9876=10.0.0.5:9876 127.0.0.1:10911=10.0.0.5:10911

listens at the first address of each pair and connects to the second. Clients must reach the brokers through it: a
broker's ``brokerIP1`` and ``listenPort`` name the proxy's address, not its own. It listens on loopback only and stops
when it is interrupted, or after ``--seconds``.

Each line has the time, the pair (``link``), the number of the connection, ``from`` (client or broker) and what the
frame says, secrets masked. ``--raw`` adds the frame itself in base64, from which a test can read all of it: nothing is
masked there. Bytes that are not frames are passed on too; a line says where the frames ended, and why.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import time
from base64 import b64encode
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rmqtool.remoting.command import FrameError
from rmqtool.remoting.frames import HEAD, decode_frame, frame_size
from rmqtool.remoting.headers import Row
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.wire_log import frame_of

_CHUNK = 1 << 16


class Link(NamedTuple):
    """The address that the proxy listens at, and the one that it connects to."""

    listen: tuple[str, int]
    target: tuple[str, int]

    def __str__(self) -> str:
        """Return the address that the proxy connects to."""
        return f"{self.target[0]}:{self.target[1]}"


def parse_link(text: str) -> Link:
    """Return the pair of addresses of ``LISTEN=TARGET``. Raises ValueError."""
    sides = []
    for side in text.split("="):
        host, _, port = side.rpartition(":")
        sides.append((host, int(port)))
    if len(sides) != 2:
        raise ValueError(f"{text} is not LISTEN=TARGET")
    if not ipaddress.ip_address(sides[0][0]).is_loopback:
        raise ValueError(f"{sides[0][0]} is not a loopback address: everyone who reaches it would reach the broker")
    return Link(sides[0], sides[1])


class Side:
    """One direction of a connection: the bytes of an incomplete frame, and the requests that wait for an answer."""

    def __init__(self, link: Link, connection: int, name: str) -> None:
        self.link = link
        self.connection = connection
        self.name = name
        self.held = bytearray()
        self.has_frames = True
        self.asked: dict[int, Row | None] = {}


class Tap:
    """The proxy of several links. Used as a context: it stops listening at the end."""

    def __init__(self, out: TextIO, links: list[Link], *, raw: bool = False) -> None:
        self._out = out
        self._links = links
        self._raw = raw
        self._numbers = count(1)
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Tap:
        """Start to listen."""
        for link in self._links:
            self._servers.append(await asyncio.start_server(self._server_of(link), *link.listen))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, and close every connection."""
        for server in self._servers:
            server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    @property
    def ports(self) -> list[int]:
        """The ports that the proxy listens at, in the order of the links."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    def _server_of(self, link: Link) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                await self._serve(link, reader, writer)
            except asyncio.CancelledError:
                pass  # the proxy stops
            finally:
                self._connections.discard(task)
                await _close(writer)

        return serve

    async def _serve(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = next(self._numbers)
        client, broker = Side(link, connection, "client"), Side(link, connection, "broker")
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*link.target)
        except OSError as error:
            self._write(broker, {"event": "refused", "reason": error.strerror or str(error)})
            return
        self._write(client, {"event": "connected"})
        try:
            await asyncio.gather(
                self._pass(client, broker, reader, broker_writer), self._pass(broker, client, broker_reader, writer)
            )
        finally:
            await _close(broker_writer)

    async def _pass(self, side: Side, other: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the bytes of one side until it ends; then end the other direction, which may still answer."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                writer.write(data)
                if side.has_frames:
                    side.held += data
                    self._record(side, other)
                await writer.drain()
        with suppress(OSError):  # it may be gone as well
            writer.write_eof()
        self._write(side, {"event": "closed", "within_a_frame": len(side.held)})

    def _record(self, side: Side, other: Side) -> None:
        """Write the frames that are complete."""
        while len(side.held) >= HEAD.size:
            try:
                size = frame_size(bytes(side.held[: HEAD.size]), 0)
                if len(side.held) < size:
                    return
                frame = bytes(side.held[:size])
                del side.held[:size]
                command = decode_frame(frame)
            except FrameError as error:
                self._write(side, {"event": "not a frame", "reason": str(error)})
                side.has_frames = False
                side.held.clear()
                return
            if command.is_answer:
                line = frame_of(command, other.asked.pop(command.opaque, None))
            else:
                side.asked[command.opaque] = REQUESTS.get(command.code)
                line = frame_of(command)
            self._write(side, line | ({"frame": b64encode(frame).decode()} if self._raw else {}))

    def _write(self, side: Side, line: dict[str, Any]) -> None:
        head = {"t": round(time.time(), 4), "link": str(side.link), "connection": side.connection, "from": side.name}
        self._out.write(json.dumps(head | line, ensure_ascii=False) + "\n")
        self._out.flush()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _run(out: TextIO, links: list[Link], seconds: float | None, *, raw: bool) -> None:
    async with Tap(out, links, raw=raw):
        await (asyncio.sleep(seconds) if seconds is not None else asyncio.Event().wait())


def main() -> None:
    """Record until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.tap", description="Record the frames between clients and brokers."
    )
    parser.add_argument("file", type=Path, help="where the lines go")
    parser.add_argument("links", nargs="+", type=parse_link, metavar="LISTEN=TARGET")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--raw", action="store_true", help="add each frame in base64")
    given = parser.parse_args()
    with given.file.open("w", encoding="utf-8") as out, suppress(KeyboardInterrupt):
        asyncio.run(_run(out, given.links, given.seconds, raw=given.raw))


if __name__ == "__main__":
    main()
