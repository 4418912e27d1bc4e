"""``consume`` as a broker lets a group consume: what is refused, what is written down, and new queues."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.posix import PosixReadableFileSystem
from tests.cli.test_retries import Capture, Lab
from tests.support.stores import tree_changes, tree_state
from tests.support.waiting import PATIENCE


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Lab:
    return Lab(tmp_path / "lab", monkeypatch, capsys)


def set_group(lab: Lab, **settings: object) -> None:
    table = {"subscriptionGroupTable": {"g": {"groupName": "g", "retryMaxTimes": 2, "retryQueueNums": 1, **settings}}}
    (lab.root / "config/subscriptionGroup.json").write_text(json.dumps(table))


@pytest.mark.parametrize("words", [(), ("--commit",), ("--commit", "--exec", "true"), ("--pop",)])
def test_a_group_that_must_not_consume_gets_nothing(lab: Lab, words: tuple[str, ...]) -> None:
    lab.run("produce", "-t", "T", "--create", "x")
    set_group(lab, consumeEnable=False)
    before = tree_state(lab.root)
    start = () if words == ("--pop",) else ("--from", "first")
    status, out, err = lab.run("consume", "-t", "T", "-g", "g", *start, *words)
    assert (status, out, "consumeEnable is false (NO_PERMISSION)" in err) == (Exit.REFUSED, "", True)
    assert tree_changes(before, tree_state(lab.root)) == []


def test_a_broker_that_gives_nothing_gives_nothing(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "x")
    status, out, err = lab.run("consume", "-t", "T", "-g", "g", "--conf", "brokerPermission=2")
    assert (status, out, "brokerPermission" in err) == (Exit.REFUSED, "", True)


def test_a_group_that_nobody_makes_is_refused(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "x")
    before = tree_state(lab.root)
    words = ("-t", "T", "-g", "new", "--from", "first", "--commit", "--conf", "autoCreateSubscriptionGroup=false")
    status, _, err = lab.run("consume", *words)
    assert (status, "autoCreateSubscriptionGroup is false" in err) == (Exit.REFUSED, True)
    assert tree_changes(before, tree_state(lab.root)) == []


@pytest.mark.parametrize("words", [("--commit",), ("--commit", "--exec", "true"), ("--commit", "--follow")])
def test_a_topic_that_is_not_there_changes_nothing(lab: Lab, words: tuple[str, ...]) -> None:
    lab.run("produce", "-t", "T", "--create", "x")
    before = tree_state(lab.root)
    assert lab.run("consume", "-t", "Nowhere", "-g", "new", *words)[0] == Exit.NO
    assert tree_changes(before, tree_state(lab.root)) == []


def test_without_retry_queues_it_is_said_that_it_does_not_come_again(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "x")
    set_group(lab, retryQueueNums=0)
    words = ("-t", "T", "-g", "g", "--from", "first", "--commit", "--exec", "exit 1")
    status, _, err = lab.run("consume", *words)
    assert status == Exit.NO
    assert "it is not delivered again: retryQueueNums of the group is 0" in err
    assert "will be delivered again" not in err


def test_no_file_system_stays_open(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run("produce", "-t", "T", "--create", "x")
    is_open: set[int] = set()
    begin, end = PosixReadableFileSystem.__init__, PosixReadableFileSystem.close

    def begun(self: PosixReadableFileSystem, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        is_open.add(id(self))

    def ended(self: PosixReadableFileSystem) -> None:
        is_open.discard(id(self))
        end(self)

    monkeypatch.setattr(PosixReadableFileSystem, "__init__", begun)
    monkeypatch.setattr(PosixReadableFileSystem, "close", ended)
    assert lab.run("consume", "-t", "T", "-g", "g", "--from", "first", "--commit")[0] == 0
    assert not is_open


def test_following_takes_queues_and_topics_that_are_made_meanwhile(lab: Lab) -> None:
    lab.run("produce", "-t", "T1", "--create", "-q", "0", "first")
    command = [
        sys.executable,
        "-m",
        "rmqtool",
        "consume",
        str(lab.root),
        "-t",
        "T*",
        "--from",
        "first",
        "-f",
        "--jsonl",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        watch = threading.Timer(PATIENCE, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["body"] == "first"
            # A queue more, and another topic.
            assert lab.run("topic", "alter", "T1", "--queues", "6")[0] == 0
            assert lab.run("produce", "-t", "T1", "-q", "5", "second")[0] == 0
            assert json.loads(process.stdout.readline())["queueId"] == 5
            assert lab.run("produce", "-t", "T2", "--create", "third")[0] == 0
            assert json.loads(process.stdout.readline())["topic"] == "T2"
        finally:
            watch.cancel()
            process.terminate()


def test_who_holds_the_store_is_named_by_its_command(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "first")
    command = [sys.executable, "-m", "rmqtool", "consume", str(lab.root), "-t", "T", "-g", "g", "--from", "first"]
    with subprocess.Popen([*command, "--commit", "-f", "--jsonl"], stdout=subprocess.PIPE) as process:
        watch = threading.Timer(PATIENCE, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            process.stdout.readline()
            status, _, err = lab.run("produce", "-t", "T", "second")
        finally:
            watch.cancel()
            process.terminate()
    assert status == Exit.IN_USE
    assert f"process {process.pid} (rmqtool consume) holds the lock; nothing was changed" in err
    assert main(["info", str(lab.root)]) == 0


@pytest.mark.parametrize(
    ("words", "closing"),
    [
        (["-t", "T_normal"], "105 messages for no group (-g names one); nothing is committed without --commit"),
        (["-t", "T_normal", "-g", "G_ok"], "no new messages for G_ok"),
        (["-t", "T_normal", "-q", "2"], "no messages"),
    ],
)
def test_a_queue_that_is_gone_is_named(
    words: list[str], closing: str, writable_store: Callable[[str], Path], capsys: Capture
) -> None:
    """Without its directory 35 of 140 messages are in no queue, and the group is past the end of nothing."""
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue" / "T_normal" / "2")
    status = main(["consume", str(root), *words])
    assert (status, capsys.readouterr().err.splitlines()) == (
        Exit.SKIPPED,
        [
            "queue T_normal/2 is missing: its messages are in the log, but are not consumed",
            closing,
            f"Next: rmqtool check {root}",
        ],
    )
    assert main(["consume", str(root), "-t", "T_normal", "-q", "1"]) == Exit.DONE
    assert "missing" not in capsys.readouterr().err


def test_queues_that_cannot_be_read_are_not_called_missing(
    writable_store: Callable[[str], Path], capsys: Capture
) -> None:
    pytest.importorskip("rocksdict")
    root = writable_store("53-rocksdb")
    (root / "consumequeue/CURRENT").write_text("garbage")
    status = main(["consume", str(root), "-t", "RocksA", "--from", "first"])
    first, *rest = capsys.readouterr().err.splitlines()
    assert (status, "RocksDB cannot open consumequeue" in first, rest) == (Exit.SKIPPED, True, ["no messages"])


def test_a_queue_of_a_topic_that_was_deleted_is_not_called_missing(
    writable_store: Callable[[str], Path], capsys: Capture
) -> None:
    """For check it is a notice: the topic is not in topics.json."""
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue" / "T_normal" / "2")
    topics = json.loads((root / "config/topics.json").read_text())
    del topics["topicConfigTable"]["T_normal"]
    (root / "config/topics.json").write_text(json.dumps(topics))
    assert main(["consume", str(root), "-t", "T_normal"]) == Exit.DONE
    assert "missing" not in capsys.readouterr().err
