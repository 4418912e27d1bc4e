"""A disk that is slow, stands still or is full: clients are served as far as that goes, and none is lost."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.errors import Exit
from rmqtool.files.filesystem import Space
from rmqtool.files.posix_write import PosixWritableFile, PosixWritableFileSystem
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from tests.support.serve_process import ServeProcess
from tests.support.waiting import PATIENCE, wait_for, wait_for_end
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields

SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"}
STALL = 3.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rmqtool.init(tmp_path / "store", conf=SMALL)
    return tmp_path / "store"


class Stall:
    """What makes one call of a file wait, from the moment that it is told to until it is let go."""

    def __init__(self) -> None:
        self.is_on = False
        self.entered, self.over = threading.Event(), threading.Event()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Let the next call wait until the end of the block."""
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False
            self.over.set()

    def wait(self, file: PosixWritableFile) -> None:
        if self.is_on and "commitlog" in file.path:
            self.entered.set()
            # Longer than any client waits.
            if not self.over.wait(2 * PATIENCE):
                self.over.set()


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Stall]]:
    """The stalls of a sync and of a write into the log."""
    found = {"fdatasync": Stall(), "pwrite": Stall()}

    def stalled(name: str) -> Callable[..., Any]:
        real = getattr(PosixWritableFile, name)

        def call(file: PosixWritableFile, *given: Any) -> Any:
            found[name].wait(file)
            return real(file, *given)

        return call

    for name in found:
        monkeypatch.setattr(PosixWritableFile, name, stalled(name))
    yield found
    for one in found.values():
        one.over.set()


def test_while_a_sync_stalls_everything_else_goes_on(root: Path, stalls: dict[str, Stall]) -> None:
    """Producers wait; deliveries, commits, heartbeats, pulls of what is durable and other requests do not."""
    stall = stalls["fdatasync"]
    conf = {"flushDiskType": "SYNC_FLUSH", "messageDelayLevel": "1s 2s"}
    with rmqtool.serve(rmqtool.Store(root, conf=conf)) as server, WireClient(server.broker) as client:
        assert client.ask(310, send_fields("Slow"), b"durable").code == 0
        later = client.ask(310, send_fields("Slow", "DELAY\x011\x02"), b"later")
        assert later.code == 0
        half = client.ask(310, send_fields("Slow", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02") | {"f": 4}, b"half")
        client.ask(34, {}, heartbeat("member", "Slow", {"Slow": "*"}))
        assert taken(client, "Slow", 1) == {b"durable"}
        with WireClient(server.broker) as producer, WireClient(server.broker) as other, stall.on():
            opaque = producer.send(310, send_fields("Slow"), b"waits")
            assert stall.entered.wait(PATIENCE)
            commit = {"producerGroup": "PG", "tranStateTableOffset": half.ext["queueOffset"], "commitOrRollback": 8}
            commit |= {"commitLogOffset": offset_of(half.ext["msgId"]), "fromTransactionCheck": "false", "msgId": "k"}
            for number in range(8):
                other.ask(34, {}, heartbeat("other", "Slow", {"Slow": "*"}))
                members = json.loads(other.ask(38, {"consumerGroup": "Slow"}).body)["consumerIdList"]
                assert sorted(members) == ["member", "other"]
                assert b"durable" in other.ask(11, pull_fields("Slow", group="Slow")).body
                if number == 3:
                    assert other.ask(37, commit).code == 0
                # Upkeep and deliveries come meanwhile.
                time.sleep(0.15)
            assert not stall.over.is_set()
            stall.over.set()
            assert producer.answer_to(opaque).code == 0
        assert taken(client, "Slow", 4) == {b"durable", b"later", b"half", b"waits"}


def offset_of(message_id: str) -> int:
    return int(message_id[-16:], 16)


def taken(client: WireClient, topic: str, count: int) -> set[bytes]:
    """Return the bodies of a queue when it has so many messages."""
    wait_for(lambda: int(client.ask(30, {"topic": topic, "queueId": 0}).ext["offset"]) >= count)
    body, at, found = client.ask(11, pull_fields(topic)).body, 0, set()
    while at < len(body):
        record = decode_record(body, at)
        assert isinstance(record, Message)
        found.add(record.raw_body)
        at += record.total_size
    return found


def test_a_write_that_stalls_loses_no_member(root: Path, stalls: dict[str, Stall]) -> None:
    """The loop itself waits for a write; afterwards everything is answered and all members are there."""
    stall = stalls["pwrite"]
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.broker) as producer:
        client.ask(34, {}, heartbeat("member", "Stall", {"Stall": "*"}))
        assert producer.ask(310, send_fields("Stall"), b"x").code == 0
        with stall.on():
            opaque = producer.send(310, send_fields("Stall"), b"y")
            assert stall.entered.wait(PATIENCE)
            asked = client.send(38, {"consumerGroup": "Stall"})
            time.sleep(STALL)
        assert producer.answer_to(opaque).code == 0
        assert json.loads(client.answer_to(asked).body)["consumerIdList"] == ["member"]
        assert taken(client, "Stall", 2) == {b"x", b"y"}


def test_with_a_full_disk_routes_lose_the_write_bit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_full = threading.Event()
    space = PosixWritableFileSystem.space

    def shown(files: PosixWritableFileSystem) -> Space:
        real = space(files)
        return real._replace(free=0, available=0) if is_full.is_set() else real

    monkeypatch.setattr(PosixWritableFileSystem, "space", shown)
    store = rmqtool.Store(root, conf={"cleanResourceInterval": "100"})
    with rmqtool.serve(store) as server, WireClient(server.broker) as client, WireClient(server.names) as names:

        def permission() -> int:
            return int(json.loads(names.ask(105, {"topic": "Full"}).body)["queueDatas"][0]["perm"])

        assert client.ask(310, send_fields("Full"), b"x").code == 0
        assert permission() == 6
        is_full.set()
        wait_for(lambda: permission() == 4, "the route keeps the write bit")
        refused = client.ask(310, send_fields("Full"), b"y")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark is not None
        assert "disk" in refused.remark
        assert b"x" in client.ask(11, pull_fields("Full")).body


def test_a_topic_and_a_group_are_written_before_the_answer(root: Path) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        assert client.ask(310, send_fields("Fresh"), b"x").code == 0
        assert '"Fresh"' in (root / "config" / "topics.json").read_text()
        client.ask(34, {}, heartbeat("c", "Fresh-group", {"Fresh": "*"}))
        client.ask(11, pull_fields("Fresh", group="Fresh-group"))
        assert '"%RETRY%Fresh-group"' in (root / "config" / "topics.json").read_text()
        assert '"Fresh-group"' in (root / "config" / "subscriptionGroup.json").read_text()


# ``rmqtool`` on a disk that fails every write into the log after SIGUSR1.
BROKEN = """
import signal, sys
from rmqtool.cli import main
from rmqtool.errors import WriteFailed
from rmqtool.files.posix_write import PosixWritableFile
write, broken = PosixWritableFile.pwrite, []
def pwrite(file, data, offset):
    if broken and "commitlog" in file.path:
        raise WriteFailed("cannot write: Input/output error", file=file.path)
    write(file, data, offset)
PosixWritableFile.pwrite = pwrite
signal.signal(signal.SIGUSR1, lambda *_: broken.append(True))
sys.exit(main(sys.argv[1:]))
"""


def test_after_a_failed_write_the_status_is_7_at_the_end(root: Path, tmp_path: Path) -> None:
    server = ServeProcess(root, tmp_path, program=("-c", BROKEN))
    try:
        with WireClient(server.broker) as client:
            assert client.ask(310, send_fields("Status"), b"before").code == 0
            assert taken(client, "Status", 1) == {b"before"}
            server.process.send_signal(signal.SIGUSR1)
            refused = ResponseCode.SERVICE_NOT_AVAILABLE
            wait_for(lambda: client.ask(310, send_fields("Status"), b"after").code == refused)
            assert b"before" in client.ask(11, pull_fields("Status")).body
        assert server.stop() == Exit.WRITE_FAILED
    finally:
        server.kill()


def test_more_messages_than_may_wait_for_the_disk_are_refused_at_once(root: Path, stalls: dict[str, Stall]) -> None:
    stall = stalls["fdatasync"]
    store = rmqtool.Store(root, conf={"flushDiskType": "SYNC_FLUSH"})
    with rmqtool.serve(store, limits={"in_flight": 2}) as server, WireClient(server.broker) as client:
        assert client.ask(310, send_fields("Busy"), b"first").code == 0
        with WireClient(server.broker) as one, WireClient(server.broker) as two:
            with stall.on():
                waiting = [(who, who.send(310, send_fields("Busy"), b"waits")) for who in (one, two)]
                # When the next request of a connection is answered, the message before it waits.
                assert [who.ask(30, {"topic": "Busy", "queueId": 0}).code for who in (one, two)] == [0, 0]
                refused = client.ask(310, send_fields("Busy"), b"more")
                assert refused.code == ResponseCode.SYSTEM_BUSY
                assert refused.remark == "[OVERLOAD]system busy, start flow control for a while"
                assert client.ask(30, {"topic": "Busy", "queueId": 0}).code == 0
            assert [who.answer_to(number).code for who, number in waiting] == [0, 0]
        assert client.ask(310, send_fields("Busy"), b"after").code == 0


def test_producers_that_go_on_do_not_keep_a_server_from_ending(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of 4.x know no answer that sends them away. What was acknowledged is stored."""
    force = PosixWritableFile.fdatasync
    monkeypatch.setattr(PosixWritableFile, "fdatasync", lambda file: (time.sleep(0.02), force(file)))
    store = rmqtool.Store(root, conf={"flushDiskType": "SYNC_FLUSH"})
    stored = [0]

    def produce(address: str) -> None:
        """Send the next message during the sync of the one before."""
        with WireClient(address, version=401) as client, suppress(OSError):
            before = client.send(310, send_fields("Busy"), b"on and on")
            time.sleep(0.01)
            while True:
                after = client.send(310, send_fields("Busy"), b"on and on")
                assert client.answer_to(before).code == 0
                stored[0] += 1
                before = after

    with ExitStack() as stack:
        server = stack.enter_context(rmqtool.serve(store))
        threads = [threading.Thread(target=produce, args=(server.broker,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: stored[0] >= 10)
    wait_for_end(*threads)
    assert rmqtool.Store(root).stat()["total"]["messages"] >= stored[0]
