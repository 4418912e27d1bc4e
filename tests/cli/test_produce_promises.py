"""``produce`` does what its name says and nothing else: digests of the whole store before and after."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.filesystem import Space
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, TopicKind, find_own_names, topic_kind
from tests.support.engine_stores import iter_records
from tests.support.schemas import validate
from tests.support.stores import tree_changes, tree_state

Capture = pytest.CaptureFixture[str]


class Shell:
    """Runs commands: status, standard output, standard error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: object, stdin: bytes = b"") -> tuple[int, str, str]:
        with self._monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            status = main([str(word) for word in words])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
def new(tmp_path: Path, run: Shell) -> Path:
    """Return a store as ``init`` makes it."""
    root = tmp_path / "new"
    assert run("init", root, "--conf", "mappedFileSizeCommitLog=65536")[0] == 0
    return root


def stored(root: Path) -> list[Any]:
    return list(iter_records(PosixWritableFileSystem(str(root))))


def topics_of(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / "config/topics.json").read_text())["topicConfigTable"])


def a_topic(root: Path) -> str:
    """Return a topic of users that may be written to."""
    own = find_own_names(topics_of(root))
    return next(
        name
        for name, config in topics_of(root).items()
        if topic_kind(name, own) is TopicKind.NORMAL and config["perm"] == PERM_READ | PERM_WRITE
    )


# What is refused, or nothing; a store of a real broker, in which messages are due.
REFUSED: list[tuple[tuple[str, ...], bytes, int]] = [
    ((), b"", Exit.DONE),
    (("-",), b"", Exit.DONE),
    (("-t", "NoSuch", "hi"), b"", Exit.NO),
    (("-t", "T_NORMAL", ""), b"", Exit.USAGE),
    (("-t", "T_NORMAL"), b"\n", Exit.USAGE),
    (("-t", "T_NORMAL", "--batch", "2", "--delay", "3", "a", "b"), b"", Exit.USAGE),
    (("-t", "T_NORMAL", "--batch", "2", "--at", "2030-01-01", "a", "b"), b"", Exit.USAGE),
    (("-t", "T_NORMAL", "--batch", "2", "--tx", "rollback", "a", "b"), b"", Exit.USAGE),
    (("-t", "T_NORMAL", "a", "-"), b"", Exit.USAGE),
    (("-t", "NoSuch", "--create", "--conf", "autoCreateTopicEnable=false", "hi"), b"", Exit.REFUSED),
    (("-t", "T_NORMAL", "--conf", "brokerPermission=4", "hi"), b"", Exit.REFUSED),
    (("-t", "T_NORMAL", "--conf", "rejectTransactionMessage=true", "--tx", "commit", "hi"), b"", Exit.REFUSED),
    (("-t", "NoSuch", "--create", "--conf", "maxMessageSize=10", "x" * 100), b"", Exit.SKIPPED),
    (("--jsonl",), b'{"topic": "T_NORMAL"}\n', Exit.USAGE),
]


@pytest.mark.parametrize(("words", "stdin", "expected"), REFUSED)
@pytest.mark.parametrize("name", ["49-broker", "53-broker"])
def test_what_stores_nothing_changes_nothing(
    name: str, words: tuple[str, ...], stdin: bytes, expected: int, writable_store: Any, run: Shell
) -> None:
    root = writable_store(name)
    topic = a_topic(root)
    before = tree_state(root)
    status, _, _ = run("produce", root, *(topic if word == "T_NORMAL" else word for word in words), stdin=stdin)
    assert status == expected
    assert tree_changes(before, tree_state(root)) == []


def test_a_message_is_stored_and_nothing_that_was_due(writable_store: Any, run: Shell) -> None:
    root = writable_store("53-broker")
    topic = a_topic(root)
    count = len(stored(root))
    delayed = (root / "config/delayOffset.json").read_bytes()
    assert run("produce", root, "-t", topic, "one")[0] == 0
    assert len(stored(root)) == count + 1
    assert (root / "config/delayOffset.json").read_bytes() == delayed


def test_a_full_disk_takes_no_message(writable_store: Any, run: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PosixReadableFileSystem, "space", lambda _files: Space(total=100, free=4, available=4))
    for name in ("49-broker", "53-broker"):
        root = writable_store(name)
        topic = a_topic(root)
        before = tree_state(root)
        for words in (("-t", topic), ("-t", "New", "--create"), ("-t", topic, "--delay", "3")):
            status, _, err = run("produce", root, *words, "x")
            assert status == Exit.WRITE_FAILED
            assert "the disk of the commit log is 96 % full" in err
            assert "diskSpaceWarningLevelRatio" in err
            assert tree_changes(before, tree_state(root)) == []


def test_new_records_have_the_host_of_the_store(writable_store: Any, run: Shell) -> None:
    root = writable_store("49-broker")
    topic = a_topic(root)
    host = json.loads(run("info", root, "--json")[1])["broker"]["host"]
    before = stored(root)[-1]
    assert run("produce", root, "-t", topic, "one")[0] == 0
    last = stored(root)[-1]
    assert (last.raw_body, last.store_host_ip, last.store_host_port) == (
        b"one",
        before.store_host_ip,
        before.store_host_port,
    )
    assert json.loads(run("info", root, "--json")[1])["broker"]["host"] == host != "127.0.0.1:10911"
    assert run("check", root)[0] == 0
    words = ("--conf", "brokerIP1=10.1.2.3", "--conf", "listenPort=1234")
    assert run("produce", root, "-t", topic, "two", *words)[0] == 0
    last = stored(root)[-1]
    assert (last.store_host_ip, last.store_host_port) == (bytes((10, 1, 2, 3)), 1234)


@pytest.mark.parametrize("version", ["4.9", "5.3", "5.4"])
def test_create_makes_the_tables_of_a_broker(version: str, tmp_path: Path, run: Shell) -> None:
    root = tmp_path / "new"
    assert run("init", root, "--as", version, "--conf", "mappedFileSizeCommitLog=65536")[0] == 0
    status, _, err = run("produce", root, "-t", "Orders", "hi")
    assert (status, "there is no topic Orders" in err, "--create" in err) == (Exit.NO, True, True)
    assert run("produce", root, "-t", "Orders", "--create", "hi")[0] == 0
    topics = topics_of(root)
    assert topics["Orders"]["writeQueueNums"] == topics["Orders"]["readQueueNums"] == 4
    own = {"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "DefaultCluster", "DEFAULT_BROKER", "SCHEDULE_TOPIC_XXXX"}
    assert own < topics.keys()
    assert ("rmq_sys_wheel_timer" in topics) == (version != "4.9")
    groups = json.loads((root / "config/subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP"} < groups.keys()
    assert run("consume", root, "-g", "g1", "-t", "Orders", "--from", "first", "--commit", "-n1")[0] == 0
    groups = json.loads((root / "config/subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert groups["g1"]["retryMaxTimes"] == 16
    status, out, _ = run("check", root)
    assert (status, "CF-EMPTY" in out) == (0, False), out


def test_how_many_queues_a_new_topic_gets(new: Path, run: Shell) -> None:
    assert run("produce", new, "-t", "A", "--create", "--conf", "defaultTopicQueueNums=2", "x")[0] == 0
    assert topics_of(new)["A"]["writeQueueNums"] == 2
    status, _, err = run("produce", new, "-t", "B", "--create", "--conf", "autoCreateTopicEnable=false", "x")
    assert (status, f"rmqtool topic {new} create B --queues 4" in err) == (Exit.REFUSED, True)


@pytest.mark.random_turns
def test_each_run_begins_with_another_queue(new: Path, run: Shell) -> None:
    assert run("topic", new, "create", "T", "--queues", "4")[0] == 0
    random.seed(7)
    for _ in range(40):
        assert run("produce", new, "-t", "T", "x")[0] == 0
    counts = Counter(one.queue_id for one in stored(new))
    assert counts.keys() == {0, 1, 2, 3}
    assert max(counts.values()) < 30


def test_topics_take_turns_by_themselves(new: Path, run: Shell) -> None:
    for topic in ("A", "B"):
        assert run("topic", new, "create", topic, "--queues", "2")[0] == 0
    lines = b"".join(b'{"topic": "%c", "body": "x"}\n' % topic for topic in b"ABABABAB")
    assert run("produce", new, "--jsonl", stdin=lines)[0] == 0
    assert Counter((one.topic, one.queue_id) for one in stored(new)) == {
        ("A", 0): 2,
        ("A", 1): 2,
        ("B", 0): 2,
        ("B", 1): 2,
    }


def test_a_hyphen_is_standard_input(new: Path, run: Shell) -> None:
    assert run("produce", new, "-t", "T", "--create", "-", stdin=b"one\ntwo\n")[0] == 0
    assert run("produce", new, "-t", "T", "--file", "-", stdin=b"three\nfour\n")[0] == 0
    assert [one.raw_body for one in stored(new)] == [b"one", b"two", b"three\nfour\n"]


@pytest.mark.parametrize("copies", [1, 3000])
def test_the_topic_of_the_command_line_wins(copies: int, new: Path, run: Shell) -> None:
    for topic in ("%DLQ%g", "T"):
        assert run("topic", new, "create", topic, "--queues", "2")[0] == 0
    dead = {"topic": "%DLQ%g", "body": "x", "queueId": 1, "commitLogOffset": 5}
    dead["properties"] = {"RETRY_TOPIC": "Old", "ORIGIN_MESSAGE_ID": "00", "DLQ_ORIGIN_TOPIC": "Old", "name": "kept"}
    lines = (json.dumps(dead) + "\n").encode() * copies + b'{"body": "y", "commitLogOffset": 5}\n'
    status, out, err = run("produce", new, "--jsonl", "-t", "T", stdin=lines)
    assert (status, {json.loads(line)["topic"] for line in out.splitlines()}) == (0, {"T"})
    assert f'"--topic overrides the input: {copies} lines name %DLQ%g"' in err or f"{copies} lines name %DLQ%g" in err
    records = stored(new)
    assert {(one.topic, one.properties.get("RETRY_TOPIC")) for one in records} == {("T", None)}
    assert records[0].properties["name"] == "kept"
    # The queue of another topic says nothing: they go round.
    assert {one.queue_id for one in records[:2]} == {0, 1}


def test_a_dead_letter_goes_where_it_is_sent(new: Path, run: Shell) -> None:
    assert run("produce", new, "-t", "T", "--create", "poison")[0] == 0
    group = '{"groupName":"g","retryMaxTimes":0,"retryQueueNums":1}'
    (new / "config/subscriptionGroup.json").write_text(f'{{"subscriptionGroupTable":{{"g":{group}}}}}')
    assert run("consume", new, "-t", "T", "-g", "g", "--from", "first", "--commit", "--exec", "exit 1")[0] == Exit.NO
    _, dead, _ = run("cat", new, "-t", "%DLQ%g", "--jsonl")
    assert dead
    assert run("produce", new, "--jsonl", "-t", "T", stdin=dead.encode())[0] == 0
    assert [one.raw_body for one in stored(new) if one.topic == "T"] == [b"poison", b"poison"]


def test_wait_is_what_the_message_says(new: Path, run: Shell) -> None:
    assert run("produce", new, "-t", "T", "--create", "-p", "WAIT=false", "a")[0] == 0
    assert run("produce", new, "--jsonl", stdin=b'{"topic":"T","body":"b","properties":{"WAIT":"false"}}')[0] == 0
    assert run("produce", new, "-t", "T", "c")[0] == 0
    assert [one.properties["WAIT"] for one in stored(new)] == ["false", "false", "true"]


def test_a_level_says_how_long_it_is_and_the_screen_until_when(new: Path, run: Shell) -> None:
    status, out, err = run("produce", new, "-t", "T", "--create", "--delay", "5", "x", "--tz", "UTC")
    assert (status, "delay level 5 is 1m; for seconds write --delay 5s" in err) == (0, True)
    (record,) = stored(new)
    assert out.startswith("T at ")
    assert "waits in SCHEDULE_TOPIC_XXXX/4@0" in out
    _, out, _ = run("produce", new, "-t", "T", "--delay", "90s", "x", "--jsonl")
    line = json.loads(out)
    validate("produced", line)
    assert (line["topic"], line["realTopic"]) == ("rmq_sys_wheel_timer", "T")
    assert 89_000 <= line["deliverTimestamp"] - line["storeTimestamp"] <= 90_000
    assert record.topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize(
    ("version", "settings", "status"),
    [
        ("4.9", (), "SLAVE_NOT_AVAILABLE"),
        ("5.3", (), "PUT_OK"),
        ("5.3", ("--conf", "inSyncReplicas=2"), "FLUSH_SLAVE_TIMEOUT"),
    ],
)
def test_c13_5_a_sync_master_without_a_slave(
    version: str, settings: tuple[str, ...], status: str, tmp_path: Path, run: Shell
) -> None:
    root = tmp_path / "new"
    assert run("init", root, "--as", version, "--conf", "mappedFileSizeCommitLog=65536")[0] == 0
    words = (root, "-t", "T", "--create", "--conf", "brokerRole=SYNC_MASTER", *settings, "--jsonl")
    ended, out, err = run("produce", *words, "x")
    line = json.loads(out)
    assert (ended, line["status"], line["queueOffset"]) == (0, status, 0)
    assert (f"{status}: stored, but" in err) == (status != "PUT_OK")
    assert [one.raw_body for one in stored(root)] == [b"x"]
    # Who does not wait is not told.
    ended, out, _ = run("produce", *words, "-p", "WAIT=false", "y")
    assert (ended, json.loads(out)["status"]) == (0, "PUT_OK")


def test_a_topic_that_is_not_for_writing(new: Path, run: Shell) -> None:
    assert run("topic", new, "create", "T", "--perm", "r")[0] == 0
    status, _, err = run("produce", new, "-t", "T", "x")
    assert (status, f"rmqtool topic {new} alter T --perm rw" in err) == (Exit.REFUSED, True)
    status, _, err = run("produce", new, "-t", "T", "--conf", "brokerPermission=4", "x")
    assert (status, "NO_PERMISSION" in err) == (Exit.REFUSED, True)
    shutil.rmtree(new)


def test_a_broker_answers_a_key_with_so_many_messages(new: Path, run: Shell) -> None:
    lines = b"".join(b'{"topic": "T", "keys": "k", "body": "%d"}\n' % number for number in range(70))
    assert run("produce", new, "--jsonl", "--create", stdin=lines)[0] == 0

    def found(*words: str) -> int:
        return len(json.loads(run("query", new, "k", "--kind", "key", "-t", "T", "--json", *words)[1])["messages"])

    assert [found(), found("--as", "5.3"), found("--as", "4.9")] == [70, 64, 64]
    assert found("--as", "5.3", "--conf", "maxMsgsNumBatch=10") == 10
