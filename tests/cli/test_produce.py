"""``produce`` from the outside: what is stored, what is said, what is refused."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.engine_stores import iter_records
from tests.support.schemas import validate


@pytest.fixture
def lab(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> str:
    """Return a new store with small files, and topics of four queues."""
    root = str(tmp_path / "lab")
    assert main(["init", root, "--as", "5.3", "--conf", "mappedFileSizeCommitLog=65536"]) == 0
    for topic in "ABCDT":
        assert main(["topic", root, "create", topic, "--queues", "4"]) == 0
    capsysbinary.readouterr()
    return root


def produce(
    capsysbinary: pytest.CaptureFixture[bytes],
    *words: str,
    stdin: bytes = b"",
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> tuple[int, str, str]:
    if monkeypatch is not None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    status = main(["produce", *words])
    out, err = capsysbinary.readouterr()
    return status, out.decode(), err.decode()


def stored(root: str) -> list[Any]:
    return list(iter_records(PosixWritableFileSystem(root)))


def test_bodies_of_the_command_line(lab: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    words = (lab, "one", "two", "-t", "T", "-q", "2", "--tag", "A", "--key", "k1", "--key", "k2")
    status, out, err = produce(capsysbinary, *words)
    assert (status, err) == (0, "")
    records = stored(lab)
    assert [(one.raw_body, one.topic, one.queue_id, one.queue_offset) for one in records] == [
        (b"one", "T", 2, 0),
        (b"two", "T", 2, 1),
    ]
    for one in records:
        assert one.properties.keys() == {"KEYS", "TAGS", "UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"}
        assert (one.keys, one.tags) == ("k1 k2", "A")
    assert out.splitlines() == [f"T/2@{number}  {one.uniq_key}" for number, one in enumerate(records)]


def test_lines_go_round_the_queues(
    lab: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"a\n\xff\xfe\r\n \nlast"
    status, out, _ = produce(capsysbinary, lab, "-t", "T", stdin=lines, monkeypatch=monkeypatch)
    assert status == 0
    bodies = [b"a", b"\xff\xfe", b" ", b"last"]
    assert [(one.raw_body, one.queue_id) for one in stored(lab)] == [(body, at) for at, body in enumerate(bodies)]
    assert len(out.splitlines()) == 4


def test_objects_in_and_lines_out(
    lab: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects: list[dict[str, object]] = [
        {"topic": "A", "body": "text", "tags": "t", "keys": "k1 k2", "flag": 7, "queueId": 3},
        {"topic": "B", "body": "AAEC", "bodyEncoding": "base64", "properties": {"x": "y", "UNIQ_KEY": "old"}},
        {"topic": "C", "body": "later", "delayLevel": 3},
        {"topic": "D", "body": "order", "shardingKey": "s"},
    ]
    lines = "".join(json.dumps(one) + "\n" for one in objects).encode()
    status, out, _ = produce(capsysbinary, lab, "--jsonl", stdin=lines, monkeypatch=monkeypatch)
    assert status == 0
    shown = [json.loads(line) for line in out.splitlines()]
    records = stored(lab)
    assert [one["status"] for one in shown] == ["PUT_OK"] * 4
    for line, one in zip(shown, records, strict=True):
        validate("produced", line)
        assert list(line)[:8] == [
            "status",
            "msgId",
            "offsetMsgId",
            "topic",
            "queueId",
            "queueOffset",
            "commitLogOffset",
            "storeTimestamp",
        ]
        assert (line["msgId"], line["commitLogOffset"]) == (one.uniq_key, one.physical_offset)
        assert (line["topic"], line["queueId"], line["queueOffset"]) == (one.topic, one.queue_id, one.queue_offset)
        assert line["storeTimestamp"] == one.store_timestamp
    assert (records[0].flag, records[0].queue_id, records[0].tags, records[0].keys) == (7, 3, "t", "k1 k2")
    assert (records[1].raw_body, records[1].properties["x"]) == (b"\0\1\2", "y")
    assert records[1].uniq_key != "old"
    assert (records[2].topic, records[2].properties["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", "C")
    # Level 3 is ten seconds.
    assert [list(line.items())[8:] for line in shown] == [
        [],
        [],
        [("realTopic", "C"), ("deliverTimestamp", shown[2]["storeTimestamp"] + 10_000)],
        [],
    ]
    assert records[3].properties["__SHARDINGKEY"] == "s"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 1 is not JSON"),
        (b"5", "line 1: a message must be a JSON object"),
        (b'{"body": "x"}', 'line 1: "topic" is missing'),
        (b'{"topic": "T", "body": 5}', '"body" must be a string'),
        (b'{"topic": "T", "body": "!", "bodyEncoding": "base64"}', "not base64"),
        (b'{"topic": "T", "body": "!", "bodyEncoding": "hex"}', "bodyEncoding"),
        (b'{"topic": "T", "body": "x", "queueId": "1"}', "whole numbers"),
        (b'{"topic": "T", "body": "x", "properties": []}', ""),
        (b'{"topic": "T", "body": "x", "properties": {"a": [1]}}', "the property a is not a string"),
        (b'{"topic": "T", "body": "x", "properties": {"a": "b\\u0002c"}}', "separate properties"),
        (b'{"topic": "no/name", "body": "x"}', "has characters other than"),
        (b'{"topic": "SCHEDULE_TOPIC_XXXX", "body": "x"}', "the broker's own"),
    ],
)
def test_bad_input_stores_nothing(
    line: bytes, said: str, lab: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = b'{"topic": "T", "body": "x"}\n'
    status, out, err = produce(capsysbinary, lab, "--jsonl", stdin=line + b"\n" + good, monkeypatch=monkeypatch)
    if not said:
        assert (status, len(stored(lab))) == (0, 2)
        return
    assert (status, out) == (Exit.USAGE, "")
    assert said in json.loads(err)["error"]["message"]
    assert stored(lab) == []


def test_a_body_above_the_limit_is_refused_alone(lab: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    words = (lab, "x" * 101, "y", "-t", "T", "--conf", "maxMessageSize=100", "--jsonl")
    status, out, err = produce(capsysbinary, *words)
    assert status == Exit.SKIPPED
    assert "refused: 1 × MESSAGE_ILLEGAL: its body is above maxMessageSize" in err
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["status"], first["commitLogOffset"]) == ("MESSAGE_ILLEGAL", -1)
    assert (second["status"], second["queueOffset"]) == ("PUT_OK", 0)


def test_without_room_for_a_segment_nothing_is_stored(
    lab: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # What does not become small: half of it is left when a client has compressed it.
    large = Random(1).randbytes(40_000).hex()
    assert produce(capsysbinary, lab, large, "-t", "T")[0] == 0
    with monkeypatch.context() as full:
        full.setattr("os.posix_fallocate", no_room)
        status, out, err = produce(capsysbinary, lab, large, "small", "-t", "T", "-q", "0", "--jsonl")
    assert status == Exit.WRITE_FAILED
    said = json.loads(err)["error"]["message"]
    assert "(1 × CREATE_MAPPED_FILE_FAILED: there is no space for the next segment of the log)" in said
    first, second = (json.loads(one) for one in out.splitlines())
    validate("produced", first)
    assert (first["status"], first["commitLogOffset"]) == ("CREATE_MAPPED_FILE_FAILED", -1)
    assert (second["status"], second["queueOffset"]) == ("PUT_OK", 1)
    assert [len(one.raw_body) // 10_000 for one in stored(lab)] == [4, 0]


def test_a_store_in_use_is_left_alone(lab: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with PosixWritableFileSystem(lab).lock():
        status, out, err = produce(capsysbinary, lab, "x", "-t", "T")
    assert (status, out) == (Exit.IN_USE, "")
    assert "this process holds the lock" in err


def test_a_store_that_needs_recovery_is_refused(lab: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert produce(capsysbinary, lab, "x", "-t", "T")[0] == 0
    (Path(lab) / "abort").touch()
    status, _, err = produce(capsysbinary, lab, "x", "-t", "T")
    assert status == Exit.REFUSED
    assert f"rmqtool repair {lab}\n" in err


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_flush(flush: str, lab: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert produce(capsysbinary, lab, "x", "-t", "T", "--flush", flush)[0] == 0
    assert not (Path(lab) / "abort").exists()


def test_check_finds_nothing_in_what_was_produced(lab: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert produce(capsysbinary, lab, *(f"body {number}" for number in range(300)), "-t", "T", "--key", "k")[0] == 0
    assert main(["check", lab]) == 0


def test_a_store_that_is_not_there_is_not_made_by_the_way(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root = tmp_path / "none"
    status, _, err = produce(capsysbinary, str(root), "x", "-t", "T", "--create")
    assert (status, "does not exist" in err) == (Exit.NOT_A_STORE, True)
    assert f"rmqtool init {root}\n" in err
    assert not root.exists()
