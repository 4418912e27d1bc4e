"""A kill of ``serve`` while producers send: what it acknowledged under synchronous flush is there afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import rmqtool
from rmqtool.config import StoreConfig
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.findings import Severity
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import RemotingCommand
from rmqtool.server.lifecycle import recover_end
from tests.support.serve_process import ServeProcess
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient, send_fields

SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(64 << 10),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "1000",
    "deleteWhen": "99",
}
TOPIC, QUEUES, PRODUCERS, WINDOW = "Kill", 4, 4, 16

# What was acknowledged: the body at queue and offset.
Acknowledged = dict[tuple[int, int], bytes]


class Producer(threading.Thread):
    """A producer that keeps some messages under way until its connection breaks."""

    def __init__(self, broker: str, name: str, acknowledged: Acknowledged) -> None:
        super().__init__()
        self._broker, self._name, self._acknowledged = broker, name, acknowledged
        self.problems: list[RemotingCommand] = []

    def run(self) -> None:
        try:
            with WireClient(self._broker) as client:
                self._send(client)
        except (ConnectionError, TimeoutError):
            return

    def _send(self, client: WireClient) -> None:
        chance, number, waiting = random.Random(self._name), 0, {}
        while True:
            while len(waiting) < WINDOW:
                body = f"{self._name}-{number} ".encode() * chance.randrange(1, 30)
                queue = chance.randrange(QUEUES)
                waiting[client.send(310, send_fields(TOPIC) | {"e": queue}, body)] = body
                number += 1
            answer = client.receive()
            body = waiting.pop(answer.opaque)
            if answer.code == ResponseCode.SUCCESS:
                self._acknowledged[int(answer.ext["queueId"]), int(answer.ext["queueOffset"])] = body
            else:
                self.problems.append(answer)


def kill_after(server: ServeProcess, name: str, count: int, seconds: float) -> Acknowledged:
    """Kill a server some time after it acknowledged ``count`` messages; return all that it acknowledged."""
    found: Acknowledged = {}
    producers = [Producer(server.broker, f"{name}.{one}", found) for one in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    wait_for(lambda: len(found) >= count)
    time.sleep(seconds)
    server.kill()
    for producer in producers:
        producer.join()
    assert [problem for producer in producers for problem in producer.problems] == []
    return found


def worse_than_notices(root: Path) -> list[object]:
    return [finding for finding in rmqtool.check(root) if finding.severity is not Severity.NOTICE]


def recovered_as_serve_does(root: Path) -> None:
    config = StoreConfig().with_assignments([f"{name}={value}" for name, value in SETTINGS.items()])
    with PosixWritableFileSystem(str(root)) as files:
        assert recover_end(files, config.with_assignments([f"storePathRootDir={root}"]))


def check_messages(root: Path, acknowledged: Acknowledged) -> None:
    """Every acknowledged message is in the store, once and at its place."""
    stored: dict[tuple[int, int], bytes] = {}
    bodies: Counter[bytes] = Counter()
    for message in rmqtool.scan(root, topics=TOPIC):
        body = str(message["body"]).encode()
        stored[message["queueId"], message["queueOffset"]] = body
        bodies[body] += 1
    assert {place: body for place, body in acknowledged.items() if stored.get(place) != body} == {}
    assert [body for body in acknowledged.values() if bodies[body] != 1] == []


def run_kills(root: Path, home: Path, kills: int) -> Acknowledged:
    """Kill a server again and again on one store; each next start recovers it, every other time before a check."""
    rmqtool.init(root, conf=SETTINGS)
    chance, acknowledged = random.Random(root.name), Acknowledged()
    for number in range(kills):
        server = ServeProcess(root, home)
        try:
            assert server.ready["recovered"] == (number > 0 and number % 2 == 0)
            new = kill_after(server, str(number), chance.randrange(1, 60), chance.random() * 0.05)
        finally:
            server.kill()
        assert not new.keys() & acknowledged.keys(), "an offset was given twice"
        acknowledged |= new
        assert server.events("error") == []
        if number % 2 == 0:
            recovered_as_serve_does(root)
            if number % 4 == 0:
                assert worse_than_notices(root) == []
                check_messages(root, new)
    server = ServeProcess(root, home)
    assert server.stop() == 0
    assert worse_than_notices(root) == []
    check_messages(root, acknowledged)
    return acknowledged


def test_five_kills(tmp_path: Path) -> None:
    run_kills(tmp_path / "store", tmp_path, 5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_two_hundred_kills(tmp_path: Path, part: int) -> None:
    """In four stores: a check of one that grows with each kill takes longer and longer."""
    run_kills(tmp_path / f"store-{part}", tmp_path, 50)
