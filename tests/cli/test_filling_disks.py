"""A disk that fills up in the middle of a command, at each block that the command needs.

What was acknowledged is there. The store is as closed as it was, unless messages are in the log and not yet in their
queues: then the next start is a recovery, for a broker of 5.x leaves one of them out after a clean stop.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.filling_disk import FillingDisk
from tests.support.stores import content_digest, unpack

# Queues that exist, queues and a topic that do not; some with several keys.
_PLACES = [("T_normal", 0), ("New", 1), ("T_retry", 1), ("T_normal", 1), ("New", 0), ("T_popfifo", 0), ("T_normal", 0)]
_MOST = 200


class Filled:
    """Copies of a store, each with one command and one moment at which the disk is full."""

    def __init__(self, clean: Path, place: Path, disk: FillingDisk, run: Callable[..., tuple[int, str, str]]) -> None:
        self.root = place / "store"
        self.clean, self._disk, self.run = clean, disk, run

    def rooms(self, words: list[str], step: int = 1) -> Iterator[tuple[int, str, str]]:
        """Yield status and output of a command, with room for one block more each time, until it has enough."""
        for room in range(0, _MOST, step):
            shutil.rmtree(self.root, ignore_errors=True)
            subprocess.run(["cp", "-a", "--sparse=always", self.clean, self.root], check=True)
            self._disk.fill_after(room)
            done = self.run(words[0], self.root, *words[1:])
            self._disk.free()
            if done[0] == Exit.DONE:
                # What it makes ahead of time may still be missing.
                assert room, "the command needs no block"
                return
            assert done[0] == Exit.WRITE_FAILED, (room, done)
            assert "No space left on device" in done[2]
            yield done
        pytest.fail(f"{_MOST} blocks are not enough")


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; return its status and its output."""

    def typed(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        told = capfdbinary.readouterr()
        return status, told.out.decode(), told.err.decode()

    return typed


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any) -> Filled:
    clean = unpack("53-broker", tmp_path / "clean")
    (tmp_path / "work").mkdir()
    return Filled(clean, tmp_path / "work", FillingDisk(monkeypatch, tmp_path / "work"), run)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Give a file of messages."""
    messages = [
        {"topic": topic, "queueId": queue, "body": f"{number:060}", "keys": f"k{number} all"}
        for number, (topic, queue) in enumerate(_PLACES)
    ]
    path = tmp_path / "lines"
    path.write_text("".join(json.dumps(one) + "\n" for one in messages))
    return path


def found_codes(run: Any, root: Path) -> list[str]:
    """Return the findings of a check."""
    _, out, _ = run("check", root, "--jsonl")
    return [one["code"] for one in map(json.loads, out.splitlines()) if "code" in one]


def content_of(root: Path) -> dict[str, str]:
    """Return the content of every file."""
    return {
        str(path.relative_to(root)): content_digest(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def start_of(run: Any, root: Path, version: str) -> tuple[Any, ...]:
    """Return how a broker starts on the store, and how many messages it then has in no queue."""
    told = json.loads(run("recover", root, "--as", version, "--json")[1])
    return tuple(told[name] for name in ("mode", "starts", "messagesLost", "messagesUnreachable"))


def test_what_is_acknowledged_is_there_when_the_disk_fills_up(filled: Filled, lines: Path, run: Any) -> None:
    acknowledged = 0
    for _, out, _ in filled.rooms(["produce", "--jsonl", "--create", "--file", str(lines)]):
        sent = [json.loads(line) for line in out.splitlines()]
        acknowledged += len(sent)
        missing = "CQ-MISSING" in found_codes(run, filled.root)
        assert (filled.root / "abort").exists() == missing
        assert missing or not sent
        for version in ("4.9", "5.3", "5.4"):
            assert start_of(run, filled.root, version) == ("abnormal" if missing else "normal", True, 0, 0)
        assert run("recover", filled.root, "--apply")[0] == Exit.DONE
        assert set(found_codes(run, filled.root)) <= {"CF-TOPIC"}
        for one in sent:
            place = f"{one['topic']}/{one['queueId']}@{one['queueOffset']}"
            (message,) = json.loads(run("query", filled.root, place, "--json")[1])["messages"]
            assert (message["uniqKey"], message["commitLogOffset"]) == (one["msgId"], one["commitLogOffset"])
    assert acknowledged


def test_a_log_that_the_disk_has_no_room_for_ends_where_it_ended(filled: Filled, run: Any) -> None:
    """The rest of a segment is a hole, as brokers leave it."""
    (last,) = (path for path in (filled.clean / "commitlog").iterdir() if path.name == f"{196608:020}")
    size = last.stat().st_size
    os.truncate(last, len(last.read_bytes().rstrip(b"\0")))
    os.truncate(last, size)
    before = run("cat", filled.clean, "--jsonl")[1]
    # Large enough for more than a block, and too small to be compressed.
    texts = [f"{number:04}" * 1000 for number in range(4)]
    refused = 0
    for _, out, _ in filled.rooms(["produce", "-t", "T_normal", "-q", "1", "--jsonl", *texts]):
        assert "PUT_OK" not in out
        assert not (filled.root / "abort").exists()
        assert run("cat", filled.root, "--jsonl")[1] == before
        assert run("produce", filled.root, "-t", "T_normal", "more")[0] == Exit.DONE
        assert found_codes(run, filled.root) == []
        refused += 1
    assert refused > 1


def test_records_that_are_due_in_the_queues_wait_for_a_disk_with_room(filled: Filled, lines: Path, run: Any) -> None:
    """A store that was closed with undispatched records stays closed, and its queues end where they ended."""
    run("produce", filled.clean, "-t", "New", "--create", "first")
    made = filled.rooms(["produce", "--jsonl", "--file", str(lines)])
    while not (filled.root / "abort").exists():
        next(made)
    shutil.rmtree(filled.clean)
    filled.root.rename(filled.clean)
    for name in ("abort", "topics.json.bak"):
        (filled.clean / name).unlink(missing_ok=True)
    queues = content_of(filled.clean / "consumequeue")
    for _ in filled.rooms(["produce", "-t", "T_normal", "-q", "1", "more"]):
        if not (filled.root / "abort").exists():
            assert content_of(filled.root / "consumequeue") == queues
        assert run("recover", filled.root, "--apply")[0] == Exit.DONE
        assert set(found_codes(run, filled.root)) <= {"CF-TOPIC", "CP-OLD"}


def test_what_is_due_is_delivered_once_when_the_disk_fills_up(filled: Filled, run: Any) -> None:
    due = run("cat", filled.clean, "-t", "rmq_sys_REVIVE_LOG_DevCluster", "--count")[1]
    for _ in filled.rooms(["tick"]):
        if (filled.root / "abort").exists():
            assert run("recover", filled.root, "--apply")[0] == Exit.DONE
        assert run("tick", filled.root)[0] == Exit.DONE
        assert found_codes(run, filled.root) == []
        again = run("tick", filled.root)[1]
        assert "delivered" not in again
    assert due


def test_committed_offsets_are_old_or_new_when_the_disk_fills_up(filled: Filled, run: Any) -> None:
    for _ in filled.rooms(["consume", "-g", "G_new", "-t", "T_normal", "--from", "first", "--commit"], 2):
        assert not (filled.root / "abort").exists()
        assert found_codes(run, filled.root) == []


def test_a_recovery_that_finds_the_disk_full_is_one_that_is_due(filled: Filled, run: Any) -> None:
    """Half of the queues is worse than none: the next start must not take them for all."""
    shutil.rmtree(filled.clean / "consumequeue")
    before = content_of(filled.clean)
    for number, _ in enumerate(filled.rooms(["recover", "--apply"], 17)):
        if not number:
            assert content_of(filled.root) == before
        else:
            assert (filled.root / "abort").exists()
        assert run("recover", filled.root, "--apply")[0] == Exit.DONE
        assert found_codes(run, filled.root) == []
