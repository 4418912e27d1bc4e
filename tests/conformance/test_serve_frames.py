"""The frames of ``rmqtool serve`` are those of a real broker: the same codes, the same fields, a body where it has one.

Real clients talk to it through the recording proxy. What it answers and asks is compared, request by request, with what
brokers of 5.3.3 answered and asked in the recordings (``fixtures/wire``).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from rmqtool.remoting.command import ANSWER
from tests.conformance.client_programs import CLIENTS, Client
from tests.conformance.serving import serve
from tests.support import wire
from tools.tap import Link, Tap

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

BROKER = "5.3.3"
HOST = "127.0.0.1"
SETTINGS = ("transactionTimeOut=2000", "transactionCheckInterval=3000", "enablePropertyFilter=true")


# Answers that no recording has, with the one whose fields and parts they share: a broker fills all of these alike.
UNRECORDED: dict[tuple[int, int | None], tuple[int, int]] = dict.fromkeys(
    ((11, 21), (361, 19), (361, 20), (361, 21)), (11, 19)
)


# The recordings have few answers to pops: no pop whose time was over, no other invisible time. Those that they have are
# compared in tests/unit/server/test_pops.py.
BARELY_RECORDED = {"pop", "unacked"}


class Said(NamedTuple):
    """What a broker or name server said to a request, or asked: what can be compared of it."""

    code: int
    answer: int | None
    fields: tuple[str, ...]
    has_remark: bool
    has_body: bool


def said_by_broker(frames: Iterable[wire.Raw]) -> set[Said]:
    """Return what came from the broker's side, as far as the request is one that we know."""
    found = set()
    for raw, command, row in wire.told(list(frames)):
        if row is not None and not raw.from_client:
            answer = command.code if command.is_answer else None
            fields = tuple(sorted(command.ext))
            found.add(Said(row.code, answer, fields, command.remark is not None, bool(command.body)))
    return found


def recorded_of_real() -> set[Said]:
    """Return what brokers and name servers of the version said in both recordings."""
    found = said_by_broker(raw for raw in wire.raw_frames() if raw.broker == BROKER)
    for frame, row in wire.with_rows(wire.decoded_frames()):  # all of them are of a 5.3.3 broker
        if row is not None and not frame.from_client:
            answer = frame.code if frame.flag & ANSWER else None
            found.add(Said(row.code, answer, tuple(sorted(frame.ext)), frame.remark is not None, frame.body_length > 0))
    return found


@contextmanager
def tapped(out: TextIO, targets: list[int]) -> Iterator[list[int]]:
    """Run the recording proxy before some ports of this machine; give the ports that it listens at."""
    loop = asyncio.new_event_loop()
    ready, ports, stop = threading.Event(), [], asyncio.Event()

    async def run() -> None:
        links = [Link((HOST, 0), (HOST, target)) for target in targets]
        async with Tap(out, links, raw=True) as tap:
            ports.extend(tap.ports)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield ports
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def tapped_frames(path: Path) -> list[wire.Raw]:
    """Return the frames that the proxy wrote."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        wire.Raw("serve", "", line["link"], line["connection"], line["from"] == "client", b64decode(line["frame"]))
        for line in lines
        if "frame" in line
    ]


@pytest.mark.parametrize(
    "client",
    [client for client in CLIENTS if client.name in {"java 5.3.3", "go 2.1.2"}],
    ids=lambda client: client.name,
)
def test_what_serve_says_a_real_broker_says(client: Client, tmp_path: Path) -> None:
    real = recorded_of_real()
    client = client._replace(journeys=tuple(one for one in client.journeys if one not in BARELY_RECORDED))
    broker = free_port()
    with (tmp_path / "frames").open("w+", encoding="utf-8") as out, tapped(out, [broker]) as (front,):
        places = ("--listen", f"{HOST}:{broker}", "--advertise", f"{HOST}:{front}")
        settings = [word for setting in SETTINGS for word in ("--conf", setting)]
        with serve(tmp_path, *places, *settings) as names, tapped(out, [int(names.rpartition(":")[2])]) as (asked,):
            client.run(f"{HOST}:{asked}", "tapped-", tmp_path)
    ours = {_as_recorded(said) for said in said_by_broker(tapped_frames(tmp_path / "frames"))}
    assert len({said.code for said in ours}) > 10
    assert sorted(ours - real, key=str) == []


def _as_recorded(said: Said) -> Said:
    code, answer = UNRECORDED.get((said.code, said.answer), (said.code, said.answer))
    return said._replace(code=code, answer=answer)
