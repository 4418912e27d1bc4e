"""Requests of every code with any fields and bodies, in any order: the server answers or closes, and goes on."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import rmqtool
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.remoting.command import ONEWAY, RemotingCommand, SerializeType
from rmqtool.remoting.frames import encode_frame
from rmqtool.remoting.requests import REQUESTS
from tests.support.serve_process import ServeProcess
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served

VALUES = ("", "0", "1", "-1", "T", "%RETRY%G", "%DLQ%G", "TBW102", "true", "9223372036854775807", "x" * 300, "*")
BODIES = (b"", b"{}", b"[]", b"null", b"{", bytes(64), b"\xff" * 9, heartbeat("c", "G", {"T": "a || b"}))


# Clients of the state machine at once.
MOST_CLIENTS = 6
# What a server may grow by (KiB): caches, the table of an index file, statistics of the names that came.
GROWTH = 64 << 10


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


class Hostile(RuleBasedStateMachine):
    """Clients that send what they like, in any order and in parts, to a server that another client uses."""

    served: ServeProcess
    witness: WireClient
    puts = frames = 0

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[WireClient] = []
        self.opaque = 0

    @rule(at=st.sampled_from(("names", "broker", "vip")))
    def come(self, at: str) -> None:
        if len(self.clients) < MOST_CLIENTS and (address := self.served.ready[at]):
            self.clients.append(WireClient(address))

    @precondition(lambda self: self.clients)
    @rule(seed=st.integers(0, 1 << 32), count=st.integers(1, 40), damaged=st.booleans(), cut=st.integers(0, 200))
    def say(self, seed: int, count: int, damaged: bool, cut: int) -> None:
        """Send frames back to back, the last one in part; what follows is taken for the rest of it."""
        chance = random.Random(seed)
        frames = []
        for _ in range(count):
            self.opaque += 1
            frames.append(hostile_frame(chance, self.opaque, damaged=False))
        if damaged:
            frames.append(hostile_frame(chance, self.opaque, damaged=True))
        data = b"".join(frames)
        Hostile.frames += len(frames)
        self.send(chance.randrange(len(self.clients)), data[: len(data) - cut] or data)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, MOST_CLIENTS - 1), data=st.binary(min_size=1, max_size=200))
    def babble(self, which: int, data: bytes) -> None:
        self.send(which, data)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, MOST_CLIENTS - 1), is_reset=st.booleans())
    def leave(self, which: int, is_reset: bool) -> None:
        gone = self.clients.pop(which % len(self.clients))
        if is_reset:
            gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.socket.close()

    def send(self, which: int, data: bytes) -> None:
        client = self.clients[which % len(self.clients)]
        try:
            client.socket.sendall(data)
            # Most answers are read, and none is looked at.
            client.socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except (ConnectionError, TimeoutError):
            self.clients.remove(client)
            client.socket.close()

    @invariant()
    def the_other_client_is_served(self) -> None:
        assert self.witness.ask(310, send_fields("Own"), b"x").code == 0
        Hostile.puts += 1
        assert self.witness.ask(30, {"topic": "Own", "queueId": 0}).ext["offset"] == str(self.puts)

    def teardown(self) -> None:
        for client in self.clients:
            client.socket.close()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    home = tmp_path_factory.mktemp("hostile")
    rmqtool.init(home / "store", conf={"mappedFileSizeCommitLog": str(64 << 20), "maxIndexNum": "1000"})
    run = ServeProcess(home / "store", home, "--allow", "admin", "--for", "3600s")
    yield run
    if run.process.poll() is None:
        run.kill()


def resident(process: int) -> int:
    """Return the memory of a process (KiB)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def descriptors(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


@pytest.mark.parametrize(("examples", "steps"), [(8, 10), pytest.param(200, 40, marks=pytest.mark.slow)])
def test_nothing_in_any_order_harms_another_client(process: ServeProcess, examples: int, steps: int) -> None:
    with WireClient(process.broker) as witness:
        Hostile.served, Hostile.witness, Hostile.puts, Hostile.frames = process, witness, 0, 0
        if offset := witness.ask(30, {"topic": "Own", "queueId": 0}).ext:
            Hostile.puts = int(offset["offset"])
        known = settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        )
        before = resident(process.process.pid), descriptors(process.process.pid)
        run_state_machine_as_test(Hostile, settings=known)
        assert witness.ask(106).code in (0, 3)
        memory, files = resident(process.process.pid), descriptors(process.process.pid)
        assert memory - before[0] < GROWTH
        # Files of queues stay open, connections do not.
        assert files - before[1] < 100
    assert process.events("error") == []
    print(f"{Hostile.frames} frames, memory {before[0]} to {memory} KiB, descriptors {before[1]} to {files}")


def test_a_body_that_does_not_inflate_goes_on_as_it_came() -> None:
    # 1: compressed. The bits above it name an algorithm that does not exist.
    for number, flag in enumerate((1, 1 | 7 << 8)):
        topic, properties = f"Broken{number}", f"UNIQ_KEY\1U{number}\2KEYS\1k{number}\2"
        with served() as broker, WireClient(broker.broker) as client:
            sent = client.ask(310, send_fields(topic, properties, f=flag), b"this is not zlib")
            assert sent.code == 0
            client.ask(30, {"topic": topic, "queueId": 0})
            found = [client.ask(11, pull_fields(topic)), client.ask(12, key_fields(topic, f"k{number}"))]
            found.append(client.ask(33, {"offset": 0}))
            for answer in found:
                record = decode_record(answer.body)
                assert isinstance(record, Message)
                assert (record.raw_body, record.sys_flag & 0xFFF) == (b"this is not zlib", flag)
            assert client.ask(34, {}, heartbeat("c", "G", {topic: "*"})).code == 0
            back = {"offset": 0, "group": "G", "delayLevel": 3, "originMsgId": "U", "originTopic": topic}
            assert client.ask(36, back).code == 0


def key_fields(topic: str, key: str) -> dict[str, object]:
    return {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
