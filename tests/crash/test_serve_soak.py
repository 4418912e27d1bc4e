"""A server that runs for long while clients come and go: its memory stays flat, and it leaks nothing.

``RMQTOOL_SOAK_SECONDS=3600`` is the long run; what it measured is printed with ``-s``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import pytest

import rmqtool
from rmqtool.findings import Severity
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields

SECONDS = int(os.environ.get("RMQTOOL_SOAK_SECONDS", "120"))
CLIENTS, TOPICS, QUEUES = 20, 6, 4
FLAT = 0.10
SAMPLE = 1.0
SETTINGS = {"mappedFileSizeCommitLog": str(16 << 20), "mappedFileSizeConsumeQueue": "60000", "deleteWhen": "99"}
# The table of an index file's slots is read into memory when many keys come at once, 20 MB of it by default: at any
# time of the run, and once.
SETTINGS |= {"maxHashSlotNum": "100000", "maxIndexNum": "400000"}
RESET = struct.pack("ii", 1, 0)


class Server:
    """``rmqtool serve`` as a process, and what the system says of it."""

    def __init__(self, root: Path, home: Path) -> None:
        self.events = home / "events"
        self._root = root
        command = [sys.executable, "-m", "rmqtool", "serve", str(root), "--jsonl"]
        command += ["--names", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--for", f"{2 * SECONDS + 120}s"]
        with self.events.open("w") as out, (home / "errors").open("w") as errors:
            self.process = subprocess.Popen(command, cwd=home, stdout=out, stderr=errors)
        while not (said := self.events.read_text()).endswith("\n"):
            assert self.process.poll() is None, (home / "errors").read_text()
            time.sleep(0.05)
        self.broker = json.loads(said.splitlines()[0])["broker"]
        self._home = Path(f"/proc/{self.process.pid}")

    def memory(self, *names: str) -> int:
        """Return the KiB that it has taken. Pages of files come and go with what other programs need."""
        status = (self._home / "status").read_text()
        return sum(int(status.partition(name)[2].split()[0]) for name in names or ("RssAnon:", "VmSwap:"))

    def descriptors(self) -> Counter[str]:
        """Count what is open: sockets, files of the store, and the rest."""
        found: Counter[str] = Counter()
        for one in (self._home / "fd").iterdir():
            with suppress(OSError):
                name = os.readlink(one)
                is_stored = name.startswith(str(self._root))
                found["socket" if name.startswith("socket:") else "store" if is_stored else "other"] += 1
        return found

    def state(self) -> dict[str, str]:
        """Return what the broker says of itself."""
        with WireClient(self.broker) as client:
            table: dict[str, str] = json.loads(client.ask(28).body)["table"]
            return table


class Lives:
    """The lives of many clients, one after the other in each thread, and what they counted."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.sent: Counter[tuple[str, int]] = Counter()
        self.taken: Counter[str] = Counter()
        self.lives: Counter[str] = Counter()
        self.errors: list[str] = []
        self._lock = threading.Lock()

    def run(self, seconds: float) -> None:
        """Let the clients live; all are gone when this returns."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._thread, args=(number, end)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _thread(self, number: int, end: float) -> None:
        chance = random.Random(number + end)
        while time.monotonic() < end and not self.errors:
            kind = chance.choice((self._produce, self._consume, self._wait, self._break_off))
            try:
                kind(chance)
            except Exception as error:  # the test shows it
                self.errors.append(f"{kind.__name__}: {type(error).__name__}: {error}")
            self.lives[kind.__name__] += 1
            time.sleep(chance.random())

    @contextmanager
    def _client(
        self, chance: random.Random, group: str, topic: str
    ) -> Iterator[tuple[WireClient, Callable[[], object]]]:
        """A client of a group, and what sends a heartbeat. At the end some say so, some just go, some reset."""
        client_id = f"{chance.getrandbits(64):x}"
        with WireClient(self.broker) as client:
            client.ask(34, {}, heartbeat(client_id, group, {topic: "*"}))
            yield client, lambda: client.ask(34, {}, heartbeat(client_id, group, {topic: "*"}))
            leaves = chance.choice(("word", "close", "reset"))
            if leaves == "word":
                client.ask(35, {"clientID": client_id, "consumerGroup": group})
            elif leaves == "reset":
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _produce(self, chance: random.Random) -> None:
        topic = f"Soak{chance.randrange(TOPICS)}"
        with self._client(chance, f"P{chance.randrange(4)}", topic) as (client, beat):
            for number in range(chance.randrange(1, 120)):
                # On a busy machine a life may be longer than the 120 seconds that a silent client has.
                if number % 10 == 9:
                    beat()
                queue = chance.randrange(QUEUES)
                body = chance.randbytes(chance.choice((10, 100, 1000)))
                answer = client.ask(310, send_fields(topic) | {"e": queue}, body)
                assert answer.code == ResponseCode.SUCCESS, answer
                with self._lock:
                    self.sent[topic, queue] += 1

    def _consume(self, chance: random.Random) -> None:
        topic, group = f"Soak{chance.randrange(TOPICS)}", f"G{chance.randrange(4)}"
        with self._client(chance, group, topic) as (client, beat):
            for queue in range(QUEUES):
                beat()
                asked = {"consumerGroup": group, "topic": topic, "queueId": queue}
                known = client.ask(14, asked)
                offset = int(known.ext["offset"]) if known.code == ResponseCode.SUCCESS else 0
                for _ in range(20):
                    pulled = client.ask(
                        11, pull_fields(topic, offset=offset) | {"consumerGroup": group, "queueId": queue}
                    )
                    if pulled.code != ResponseCode.SUCCESS:
                        break
                    self._count(group, pulled.body, offset)
                    offset = int(pulled.ext["nextBeginOffset"])
                client.ask(15, asked | {"commitOffset": offset})

    def _count(self, group: str, body: bytes, offset: int) -> None:
        at = found = 0
        while at < len(body):
            record = decode_record(body, at)
            assert isinstance(record, Message)
            assert record.queue_offset == offset + found
            at += record.total_size
            found += 1
        with self._lock:
            self.taken[group] += found

    def _wait(self, chance: random.Random) -> None:
        """Hold a pull that nothing answers, and go away meanwhile."""
        with self._client(chance, "Waiting", "Quiet") as (client, _):
            client.send(11, pull_fields("Quiet", wait=30_000) | {"consumerGroup": "Waiting"})
            time.sleep(chance.random() * 3)

    def _break_off(self, chance: random.Random) -> None:
        """Send a part of a frame, or what is none, and go away."""
        with WireClient(self.broker) as client:
            frame = struct.pack(">iI", 400, 300) + b'{"code":310,"extFields":{"b":"Soak0"' + chance.randbytes(50)
            client.socket.sendall(chance.choice((frame[: chance.randrange(len(frame))], chance.randbytes(64))))
            time.sleep(chance.random())


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 300)
def test_clients_come_and_go_for_long(tmp_path: Path) -> None:
    root = tmp_path / "store"
    rmqtool.init(root, conf=SETTINGS)
    server = Server(root, tmp_path)
    try:
        with WireClient(server.broker) as client:
            for topic in ("Quiet", *(f"Soak{number}" for number in range(TOPICS))):
                fields = {"topic": topic, "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
                fields |= {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicSysFlag": 0, "order": "false"}
                assert client.ask(17, fields).code == ResponseCode.SUCCESS
        lives = Lives(server.broker)
        memory, files, over = [], [], threading.Event()

        def watch() -> None:
            while not over.wait(SAMPLE):
                memory.append(server.memory())

        # Everything that is made once is made in the first part.
        lives.run(SECONDS / 10)
        before = settled(server)
        files.append(server.memory("RssFile:"))
        watching = threading.Thread(target=watch)
        watching.start()
        lives.run(SECONDS * 9 / 10)
        over.set()
        watching.join()
        assert lives.errors == []
        after, state = settled(server), server.state()
        files.append(server.memory("RssFile:"))
        told = {"lives": dict(lives.lives), "sent": lives.sent.total(), "taken": lives.taken.total()}
        first, last = median(memory[: len(memory) // 4]), median(memory[-(len(memory) // 4) :])
        print(json.dumps(told | {"KiB": [first, last, max(memory)], "of files": files, "open": [before, after]}))
        assert lives.sent.total() > 0 < lives.taken.total()
        assert int(state["msgPutTotalTodayNow"]) == lives.sent.total()
        assert int(state["msgGetTotalTodayNow"]) == lives.taken.total()
        assert bounds(server.broker) == dict(lives.sent)
        assert (after["socket"], after["other"]) == (before["socket"], before["other"])
        # A file may be open for the writer, for dispatch and for pulls.
        assert after["store"] <= 3 * sum(path.is_file() for path in root.rglob("*"))
        # Less is no leak: the kernel takes back pages of files that nobody has touched for a while.
        assert max(memory) <= (1 + FLAT) * first
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        server.process.kill()
        server.process.wait()
    events = [json.loads(line) for line in server.events.read_text().splitlines()]
    assert [event for event in events if event.get("event") == "error"] == []
    assert [finding for finding in rmqtool.check(root) if finding.severity is not Severity.NOTICE] == []


def settled(server: Server) -> Counter[str]:
    """Return what is open when the last clients are forgotten."""
    found = server.descriptors()
    for _ in range(50):
        time.sleep(0.1)
        found, last = server.descriptors(), found
        if found == last:
            break
    return found


def bounds(broker: str) -> dict[tuple[str, int], int]:
    """Return the next offset of each queue that has messages."""
    found = {}
    with WireClient(broker) as client:
        for number in range(TOPICS):
            for queue in range(QUEUES):
                offset = int(client.ask(30, {"topic": f"Soak{number}", "queueId": queue}).ext["offset"])
                if offset:
                    found[f"Soak{number}", queue] = offset
    return found
