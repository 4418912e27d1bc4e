"""Requests of every code with any fields and bodies, in any order: the server answers or closes, and goes on."""

from __future__ import annotations

import random

import pytest

from rmqtool.remoting.command import ONEWAY, RemotingCommand, SerializeType
from rmqtool.remoting.frames import encode_frame
from rmqtool.remoting.requests import REQUESTS
from tests.support.wire_client import WireClient, heartbeat, send_fields, served

VALUES = ("", "0", "1", "-1", "T", "%RETRY%G", "%DLQ%G", "TBW102", "true", "9223372036854775807", "x" * 300, "*")
BODIES = (b"", b"{}", b"[]", b"null", b"{", bytes(64), b"\xff" * 9, heartbeat("c", "G", {"T": "a || b"}))


def hostile_frame(chance: random.Random, opaque: int, *, damaged: bool) -> bytes:
    """Return a frame: a request with fields of any values."""
    code = chance.choice([*REQUESTS, chance.randrange(-5, 5000)])
    row = REQUESTS.get(code)
    wires = [] if row is None else [declared.wire for declared in row.request.fields.values()]
    wires = list(send_fields()) if row is not None and row.short else wires
    fields = {name: chance.choice(VALUES) for name in wires if chance.random() < 0.9}
    kind, flag = chance.choice(list(SerializeType)), chance.choice((0, 0, 0, ONEWAY, 1))
    body, version = chance.choice(BODIES), chance.choice((0, 409, 479))
    command = RemotingCommand(code & 0x7FFF, fields, body, opaque, flag, version=version, serialize_type=kind)
    frame = bytearray(encode_frame(command))
    if damaged:
        frame[chance.randrange(4, len(frame))] ^= 1 << chance.randrange(8)
    return bytes(frame)


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.slow)])
def test_another_client_is_served_among_hostile_requests(count: int) -> None:
    chance = random.Random(29)
    with served(limits={"connections": 100}) as broker, WireClient(broker.broker) as client:
        for put, begin in enumerate(range(0, count, 50), 1):
            with WireClient(chance.choice((broker.broker, broker.names))) as hostile:
                frames = [hostile_frame(chance, 1_000_000 + begin + number, damaged=False) for number in range(49)]
                hostile.socket.sendall(b"".join(frames))
                # All of them were read when this is answered.
                assert hostile.ask(105, {"topic": "Own"}).code in (0, 3, 17)
                hostile.socket.sendall(hostile_frame(chance, begin, damaged=True))
            # The hostile requests may have changed or deleted any topic that they know; not this one.
            assert client.ask(310, send_fields("Own"), b"x").code == 0
            assert client.ask(30, {"topic": "Own", "queueId": 0}).ext["offset"] == str(put)
