"""The recording proxy: bytes pass as they are, frames are written as lines."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import socket
import struct
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmqtool.remoting.command import ANSWER, RemotingCommand
from rmqtool.remoting.frames import encode_frame
from tests.support.waiting import run
from tools.tap import Link, Side, Tap, parse_link

ASK = encode_frame(RemotingCommand(310, {"a": "PG", "Signature": "c2ln"}, b"hello", opaque=7))
SAY = encode_frame(RemotingCommand(0, {"msgId": "7F"}, opaque=7, flag=ANSWER))
HOST = "127.0.0.1"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def recorded(talk: Talk, answer: bytes, *, raw: bool = False) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """Return what the server got, what the client got, and the lines of the proxy between them."""
    out = io.StringIO()

    async def talking() -> tuple[bytes, bytes]:
        got = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.read(1 << 20)
            writer.write(answer)
            writer.write_eof()
            got.set_result(data + await reader.read())
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, HOST, 0)
        link = Link((HOST, 0), (HOST, server.sockets[0].getsockname()[1]))
        async with Tap(out, [link], raw=raw) as tap:
            reader, writer = await asyncio.open_connection(HOST, tap.ports[0])
            seen = await talk(reader, writer)
            writer.write_eof()
            result = await got, seen + await reader.read()
            writer.close()
            await writer.wait_closed()
            while out.getvalue().count("closed") < 2:
                await asyncio.sleep(0)
        server.close()
        return result

    server_got, client_got = run(talking())
    return server_got, client_got, [json.loads(line) for line in out.getvalue().splitlines()]


def sending(*parts: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read(1)

    return talk


def test_frames_are_passed_on_and_written() -> None:
    server_got, client_got, lines = recorded(sending(ASK[:3], ASK[3:50], ASK[50:]), SAY, raw=True)
    assert (server_got, client_got) == (ASK, SAY)
    assert [line.get("name", line.get("event")) for line in lines if line.get("event") != "closed"] == [
        "connected", "SEND_MESSAGE_V2", "SUCCESS",
    ]  # fmt: skip
    ask, say = (line for line in lines if "name" in line)
    assert (ask["from"], ask["fields"], ask["bytes"]) == ("client", {"a": "PG", "Signature": "***"}, 5)
    assert (say["from"], say["to"], say["opaque"], say["connection"]) == ("broker", "SEND_MESSAGE_V2", 7, 1)
    assert [b64decode(line["frame"]) for line in (ask, say)] == [ASK, SAY]


def test_without_raw_no_secret_is_written() -> None:
    lines = recorded(sending(ASK), SAY)[2]
    assert "c2ln" not in json.dumps(lines)
    assert not any("frame" in line for line in lines)


def test_what_is_no_frame_passes_too() -> None:
    noise = b"\x16\x03\x01 hello, this is TLS" * 100
    server_got, client_got, lines = recorded(sending(noise), noise[::-1])
    assert (server_got, client_got) == (noise, noise[::-1])
    stopped = [line for line in lines if line.get("event") == "not a frame"]
    assert {line["from"]: "TLS" in line["reason"] for line in stopped} == {"client": True, "broker": False}


def test_a_connection_that_ends_within_a_frame_is_told() -> None:
    lines = recorded(sending(ASK[:-1]), b"")[2]
    closed = {line["from"]: line["within_a_frame"] for line in lines if line.get("event") == "closed"}
    assert closed == {"client": len(ASK) - 1, "broker": 0}


def test_a_broker_that_is_not_there_is_told() -> None:
    out = io.StringIO()

    async def talking() -> bytes:
        taken = await asyncio.start_server(lambda *_: None, HOST, 0)
        port = taken.sockets[0].getsockname()[1]
        taken.close()
        await taken.wait_closed()
        async with Tap(out, [Link((HOST, 0), (HOST, port))]) as tap:
            reader, writer = await asyncio.open_connection(HOST, tap.ports[0])
            seen = await reader.read()
            writer.close()
            await writer.wait_closed()
        return seen

    assert run(talking()) == b""
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert (line["event"], line["from"]) == ("refused", "broker")


def test_a_client_that_resets_its_connection_is_told_to_the_broker() -> None:
    """It vanishes while the broker still talks: the broker sees the end, and nothing goes wrong in the proxy."""
    out, unhandled = io.StringIO(), []

    async def talking() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        ended = loop.create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(SAY)
            await reader.read()
            ended.set_result(None)
            writer.close()

        server = await asyncio.start_server(serve, HOST, 0)
        async with Tap(out, [Link((HOST, 0), (HOST, server.sockets[0].getsockname()[1]))]) as tap:
            client = socket.create_connection((HOST, tap.ports[0]))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(ASK)
            while "SUCCESS" not in out.getvalue():
                await asyncio.sleep(0)
            client.close()
            await ended
            while out.getvalue().count("closed") < 2:
                await asyncio.sleep(0)
        server.close()

    run(talking())
    assert unhandled == []


def test_a_side_that_cannot_be_told_of_an_end_is_gone() -> None:
    """Both sides ended at once: the system refuses to end a connection that is no longer there."""

    class Gone:
        def write_eof(self) -> None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    async def passing() -> None:
        link = Link((HOST, 0), (HOST, 1))
        reader = asyncio.StreamReader()
        reader.feed_eof()
        client, broker = Side(link, 1, "client"), Side(link, 1, "broker")
        await Tap(out, [link])._pass(client, broker, reader, Gone())  # type: ignore[arg-type]

    out = io.StringIO()
    run(passing())
    assert json.loads(out.getvalue())["event"] == "closed"


def test_links() -> None:
    assert parse_link("127.0.0.1:1=10.0.0.5:2") == Link(("127.0.0.1", 1), ("10.0.0.5", 2))
    with pytest.raises(ValueError, match="not a loopback address"):
        parse_link("0.0.0.0:1=10.0.0.5:2")
    with pytest.raises(ValueError, match="is not LISTEN=TARGET"):
        parse_link("127.0.0.1:1")
