"""A disk that fails, a handler with a bug, clients that vanish: everybody else is served."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.errors import WriteFailed
from rmqtool.files.posix_write import PosixWritableFile
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import encode_frame
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served

SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rmqtool.init(tmp_path / "store", conf=SMALL)
    return tmp_path / "store"


@pytest.fixture
def break_log(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes every further write into the log fail."""
    write = PosixWritableFile.pwrite

    def broken(file: PosixWritableFile, data: Any, offset: int) -> None:
        if "commitlog" in file.path:
            raise WriteFailed("cannot write: Input/output error", file=file.path)
        write(file, data, offset)

    return lambda: monkeypatch.setattr(PosixWritableFile, "pwrite", broken)


@pytest.mark.parametrize("pause", [0.05, 3600.0])
def test_after_a_failed_write_reads_go_on(
    root: Path, break_log: Callable[[], None], monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    # With the long pause the first message has no queue entry yet when the write fails.
    monkeypatch.setattr("rmqtool.server.server._UNOBSERVED_PAUSE", pause)
    seen: list[RemotingCommand] = []
    # The error of the end would hide one of an assertion within.
    with pytest.raises(WriteFailed, match="Input/output error"):
        serve_on_a_broken_disk(root, break_log, seen)
    before, first, second, pulled, committed, known, route = seen
    assert before.code == committed.code == known.code == 0
    for refused in (first, second):
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark is not None
        assert "Input/output error" in refused.remark
    assert pulled.code == 0
    assert b"before" in pulled.body
    assert json.loads(route.body)["queueDatas"][0]["perm"] == 4


def serve_on_a_broken_disk(root: Path, break_log: Callable[[], None], seen: list[RemotingCommand]) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.names) as names:
        seen.append(client.ask(310, send_fields("Faults"), b"before"))
        break_log()
        seen += [client.ask(310, send_fields("Faults"), b"after") for _ in range(2)]
        seen.append(client.ask(11, pull_fields("Faults", wait=2000)))
        seen.append(client.ask(15, {"consumerGroup": "G", "topic": "Faults", "queueId": 0, "commitOffset": 1}))
        seen.append(client.ask(34, {}, heartbeat("c", "G", {"Faults": "*"})))
        seen.append(names.ask(105, {"topic": "Faults"}))


def test_a_bug_is_answered_and_the_next_request_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **_named: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr("rmqtool.broker.processors.pull_message.Pulling._look", broken)
    with served() as server, WireClient(server.broker) as client:
        client.ask(310, send_fields("Bug"), b"x")
        found = client.ask(11, pull_fields("Bug"))
        assert (found.code, found.remark) == (1, "ZeroDivisionError: a bug of ours")
        assert client.ask(30, {"topic": "Bug", "queueId": 0}).ext["offset"] == "1"


def test_clients_that_vanish_leave_nothing() -> None:
    with served() as server, WireClient(server.broker) as client:
        client.ask(310, send_fields("Vanish"), b"x")
        assert client.ask(30, {"topic": "Vanish", "queueId": 0}).ext["offset"] == "1"
        for number in range(20):
            other = WireClient(server.broker)
            other.ask(34, {}, heartbeat(f"c{number}", "Vanish", {"Vanish": "*"}))
            other.send(11, pull_fields("Vanish", 1, wait=30_000))
            # A frame that is cut in the middle.
            other.socket.sendall(b"\0\0\1\0\0\0\0")
            other.socket.close()
        client.ask(34, {}, heartbeat("last", "Vanish", {"Vanish": "*"}))
        while json.loads(client.ask(38, {"consumerGroup": "Vanish"}).body)["consumerIdList"] != ["last"]:
            client.next_request()
        assert client.ask(310, send_fields("Vanish"), b"y").code == 0


def test_with_synchronous_flush_a_message_is_on_disk_before_its_answer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []
    force = PosixWritableFile.fdatasync

    def counted(file: PosixWritableFile) -> None:
        forced.append(file.path)
        force(file)

    monkeypatch.setattr(PosixWritableFile, "fdatasync", counted)
    store = rmqtool.Store(root, conf={"flushDiskType": "SYNC_FLUSH"})
    with rmqtool.serve(store) as server, WireClient(server.broker) as client:
        before = sum("commitlog" in path for path in forced)
        # Sent at once: a server that is as fast as its client would sync for each.
        fields = {name: str(value) for name, value in (send_fields("Sync") | {"k": "false", "m": "false"}).items()}
        frames = [encode_frame(RemotingCommand(310, fields, b"x", opaque, 0)) for opaque in range(1, 51)]
        client.socket.sendall(b"".join(frames))
        assert [client.answer_to(opaque).code for opaque in range(1, 51)] == [0] * 50
        syncs = sum("commitlog" in path for path in forced) - before
        # Many share one sync.
        assert 1 <= syncs < 50
        assert client.ask(30, {"topic": "Sync", "queueId": 0}).ext["offset"] == "50"
