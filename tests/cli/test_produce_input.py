"""What ``produce`` takes: files, CSV, objects of ``cat``; how it sends, and what it says of bad input."""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.columns.incoming import Incoming, IncomingLines
from rmqtool.errors import Exit
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.java import string_hash
from tests.support.engine_stores import iter_records
from tests.support.schemas import validate

Capture = pytest.CaptureFixture[bytes]


@pytest.fixture(params=["5.3"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, capsysbinary: Capture) -> str:
    """Return a new store with a topic T of four queues."""
    root = str(tmp_path / "lab")
    assert main(["init", root, "--as", request.param, "--conf", "mappedFileSizeCommitLog=1048576"]) == 0
    assert main(["topic", root, "create", "T", "--queues", "4"]) == 0
    capsysbinary.readouterr()
    return root


@pytest.fixture
def produce(lab: str, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that produces into the store: status, lines, what was said."""

    def run(*words: str, stdin: bytes = b"") -> tuple[int, list[str], str]:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            status = main(["produce", lab, *words])
        out, err = capsysbinary.readouterr()
        return status, out.decode().splitlines(), err.decode()

    return run


def stored(root: str) -> list[Any]:
    return list(iter_records(PosixWritableFileSystem(root)))


def lines_of(*objects: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


def test_files_are_bodies(produce: Any, lab: str, tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for file, data in zip(files, (b"one\n\0two", b"\n"), strict=True):
        file.write_bytes(data)
    assert produce("-t", "T", *(f"--file={file}" for file in files))[0] == 0
    assert [one.raw_body for one in stored(lab)] == [b"one\n\0two", b"\n"]
    status, _, said = produce("-t", "T", "--file", str(tmp_path / "none"))
    assert (status, "cannot be read" in said) == (Exit.NOT_A_STORE, True)


def test_objects_come_from_files_too(produce: Any, lab: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(lines_of({"body": "x", "topic": "T"}))
    assert produce("--jsonl", "--file", str(tmp_path / "in"))[0] == 0
    assert [one.raw_body for one in stored(lab)] == [b"x"]


def test_c12_6_properties_and_a_sharding_key(produce: Any, lab: str) -> None:
    words = ("-t", "T", "-p", "colour=red", "-p", "sum=1=1", "--shard", "order-1")
    assert produce("a", "b", *words)[0] == 0
    for one in stored(lab):
        assert (one.properties["colour"], one.properties["sum"]) == ("red", "1=1")
        assert (one.properties["__SHARDINGKEY"], one.queue_id) == ("order-1", 2)
    # |hash mod 4| of a hash below zero.
    assert string_hash("order-1") == -1207111310
    assert produce("a", "-t", "T", "-p", "colour")[0] == Exit.USAGE


def test_a_table(produce: Any, lab: str) -> None:
    text = 'topic,body,keys,queueId,properties\nT,"two\nlines",k1,1,\nT,x,,,"{""a"": ""b""}"\n'
    status, out, _ = produce("--csv", stdin=text.encode())
    assert (status, out[0]) == (
        0,
        "status,msgId,offsetMsgId,topic,queueId,queueOffset,commitLogOffset,storeTimestamp",
    )
    first, second = stored(lab)
    assert (first.raw_body, first.keys, first.queue_id) == (b"two\nlines", "k1", 1)
    assert (second.raw_body, second.keys, second.properties["a"]) == (b"x", None, "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topic,keys\nT,x\n", "line 1: the first line must name the columns"),
        ("topic,body\nT\n", "line 2: 1 cells, the first line has 2"),
        ("topic,body,queueId\nT,x,one\n", 'line 2: "queueId" must be a whole number'),
        ('topic,body,properties\nT,x,"{"\n', 'line 2: "properties" is not JSON'),
    ],
)
def test_a_bad_table(text: str, said: str, produce: Any, lab: str) -> None:
    status, _, err = produce("--csv", stdin=text.encode())
    assert (status, stored(lab)) == (Exit.USAGE, [])
    assert said in err


@pytest.mark.parametrize(("size", "is_compressed"), [(4095, False), (4096, True)])
def test_c12_7_a_large_body_is_compressed(size: int, is_compressed: bool, produce: Any, lab: str) -> None:
    body = "x" * size
    assert produce(body, "-t", "T")[0] == 0
    (one,) = stored(lab)
    assert one.sys_flag & 1 == is_compressed
    assert one.raw_body == (zlib.compress(body.encode(), 5) if is_compressed else body.encode())


def test_a_body_above_4_mib_is_refused(produce: Any, lab: str) -> None:
    stdin = lines_of({"topic": "T", "body": "x" * ((4 << 20) + 1)}, {"topic": "T", "body": "y"})
    status, out, _ = produce("--jsonl", stdin=stdin)
    assert status == Exit.SKIPPED
    assert [json.loads(line)["status"] for line in out] == ["MESSAGE_ILLEGAL", "PUT_OK"]
    assert produce("--jsonl", "--on-error", "stop", stdin=stdin)[0] == Exit.USAGE


def test_a_batch_lies_in_one_queue(produce: Any, lab: str) -> None:
    status, out, _ = produce(
        "--jsonl", "--batch", "3", stdin=lines_of(*({"topic": "T", "body": str(n)} for n in range(7)))
    )
    assert status == 0
    records = stored(lab)
    assert [(one.raw_body, one.queue_id, one.queue_offset) for one in records] == [
        (b"0", 0, 0),
        (b"1", 0, 1),
        (b"2", 0, 2),
        (b"3", 1, 0),
        (b"4", 1, 1),
        (b"5", 1, 2),
        (b"6", 2, 0),
    ]
    assert len({one.store_timestamp for one in records[:3]}) == 1
    for line, one in zip(map(json.loads, out), records, strict=True):
        validate("produced", line)
        assert (line["msgId"], line["commitLogOffset"]) == (one.uniq_key, one.physical_offset)
        assert (line["queueOffset"], line["offsetMsgId"][16:]) == (one.queue_offset, f"{one.physical_offset:016X}")
        assert (one.properties["WAIT"], one.properties["CLUSTER"]) == ("true", "DefaultCluster")


def test_c12_10_a_batch_has_one_topic(produce: Any, lab: str) -> None:
    stdin = lines_of({"topic": "T", "body": "a"}, {"topic": "U", "body": "b"}, {"topic": "U", "body": "c"})
    assert produce("--jsonl", "--batch", "3", "--create", stdin=stdin)[0] == 0
    assert [(one.topic, one.queue_offset) for one in stored(lab)] == [("T", 0), ("U", 0), ("U", 1)]


def test_an_unknown_topic_is_not_made_without_being_asked(produce: Any, lab: str) -> None:
    status, _, said = produce("x", "-t", "U")
    assert (status, stored(lab)) == (Exit.NO, [])
    assert "there is no topic U" in said
    assert "--create" in said
    assert produce("x", "-t", "U", "--create")[0] == 0
    topics = json.loads((Path(lab) / "config/topics.json").read_text())["topicConfigTable"]
    assert {name: one["writeQueueNums"] for name, one in topics.items()} == {"T": 4, "U": 4, "TBW102": 8}
    assert produce("x", "-t", "U")[0] == 0


def test_queues_and_permissions_are_the_topics(produce: Any, lab: str) -> None:
    assert "topic T has no queue 4" in produce("x", "-t", "T", "-q", "4")[2]
    assert main(["topic", lab, "alter", "T", "--perm", "r"]) == 0
    status, _, said = produce("x", "-t", "T")
    assert (status, stored(lab)) == (Exit.REFUSED, [])
    assert "is not writable" in said


def test_an_error_is_the_one_object_on_stderr_also_after_notes(produce: Any, lab: str) -> None:
    lines = lines_of({"topic": "Other", "body": "x"})
    status, out, err = produce("-t", "T", "--jsonl", stdin=lines)
    assert (status, len(out), "Other" in err) == (Exit.DONE, 1, True)
    status, out, err = produce("-t", "T", "--jsonl", stdin=lines + b"{\n")
    assert (status, len(out)) == (Exit.USAGE, 1)
    assert json.loads(err)["error"]["message"].endswith("; 1 message is stored")


def test_a_bad_line_stops_or_is_left_out(produce: Any, lab: str) -> None:
    good = lines_of({"topic": "T", "body": "x"})
    bad = b'{"topic": "T", "body": \n'
    status, out, err = produce("--jsonl", stdin=good * 3 + bad + good)
    assert (status, len(out), len(stored(lab))) == (Exit.USAGE, 3, 3)
    assert "line 4 is not JSON" in json.loads(err)["error"]["message"]
    assert "3 messages are stored" in json.loads(err)["error"]["message"]
    status, out, err = produce("--jsonl", "--on-error", "skip", stdin=good * 3 + bad + good)
    assert (status, len(out), len(stored(lab))) == (Exit.SKIPPED, 4, 7)
    assert "line 4 is not JSON" in err
    assert "line 1" not in err


def test_messages_of_cat_are_messages_again(produce: Any, lab: str, capsysbinary: Capture) -> None:
    """What a person gave stays, to the byte; what brokers gave is given anew."""
    binary = bytes(range(256)) * 20
    given = {
        "topic": "%DLQ%g",
        "tags": "a|b",
        "keys": "k1 k2",
        "flag": -7,
        "properties": {"name": "Zoë \ud800", "DELAY": "3"},
    }
    stdin = lines_of(
        {**given, "properties": {"name": "Zoë"}, "body": base64.b64encode(binary).decode(), "bodyEncoding": "base64"}
    )
    assert produce("--jsonl", "--create", stdin=stdin)[0] == 0
    assert main(["cat", lab, "-t", "%DLQ%g", "--jsonl"]) == 0
    line = json.loads(capsysbinary.readouterr()[0])
    # As if it had been delayed and retried before.
    line["properties"] |= {"DELAY": "3", "RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%g"}
    line["topic"] = "T"
    status, out, _ = produce("--jsonl", stdin=lines_of(line))
    assert status == 0
    before, after = stored(lab)
    assert (after.topic, after.raw_body, after.sys_flag) == ("T", before.raw_body, before.sys_flag)
    assert (after.tags, after.keys, after.flag, after.properties["name"]) == ("a|b", "k1 k2", -7, "Zoë")
    assert {"DELAY", "RETRY_TOPIC", "REAL_TOPIC"}.isdisjoint(after.properties)
    assert after.uniq_key == json.loads(out[0])["msgId"] != before.uniq_key
    assert produce("--jsonl", "--keep-ids", stdin=lines_of(line))[0] == 0
    assert stored(lab)[2].uniq_key == before.uniq_key


@pytest.mark.parametrize("lab", ["4.9", "5.3", "5.4"], indirect=True)
def test_by_columns_as_one_by_one(produce: Any, lab: str) -> None:
    """Many are stored by columns: the same records, but for ids, places and times."""
    objects = [
        {
            "topic": "T",
            "body": str(number % 3),
            "tags": "A",
            "keys": f"k{number % 3}",
            "flag": number % 3,
            "properties": {"p": "é"},
        }
        for number in range(3000)
    ]
    assert produce("--jsonl", stdin=lines_of(*objects[:60]))[0] == 0
    assert produce("--jsonl", stdin=lines_of(*objects))[0] == 0
    records = stored(lab)
    assert len(records) == 3060

    def told(one: Any) -> tuple[object, ...]:
        properties = one.raw_properties.replace(one.uniq_key.encode(), b"")
        return one.topic, one.raw_body, one.flag, one.sys_flag, properties, one.store_host_ip, one.born_host_ip

    assert [told(one) for one in records[:60]] == [told(one) for one in records[-3000:-2940]]
    assert len({one.uniq_key for one in records}) == 3060
    assert main(["check", lab]) == 0


def test_a_rate_is_kept(lab: str, produce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert produce("-t", "T", "--rate", "10", stdin=b"x\n" * 30)[0] == 0
    assert len(stored(lab)) == 30
    # Nothing was really waited for: each pause is what is missing to so many tenths of a second.
    assert len(slept) == 30
    assert 2.5 < slept[-1] <= 3


def test_ctrl_c_says_how_to_go_on(lab: str) -> None:
    command = [sys.executable, "-m", "rmqtool", "produce", lab, "-t", "T"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x\n" * 70)
    process.stdin.flush()
    # Something is stored; then it waits for more.
    first = process.stdout.read1()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    count = len((first + out).splitlines())
    assert f"stopped: {count} message{' is' if count == 1 else 's are'} stored, of {count} read" in err.decode()
    assert f"tail -n +{count + 1}" in err.decode()
    assert len(stored(lab)) == count
    assert not (Path(lab) / "abort").exists()


def test_a_line_of_a_pipe_is_stored_though_more_may_come(lab: str) -> None:
    command = [sys.executable, "-m", "rmqtool", "produce", lab, "-t", "T", "--jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for body in ("one", "two"):
            process.stdin.write(lines_of({"body": body}))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["status"] == "PUT_OK"
            assert stored(lab)[-1].raw_body == body.encode()
    assert process.returncode == 0


def test_many_lines_are_stored_as_one_by_one(
    produce: Any, lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    def line(number: int) -> dict[str, Any]:
        value: dict[str, Any] = {"topic": "T", "body": f"body {number}", "keys": f"k{number}", "flag": number % 3}
        value |= {"shardingKey": f"s{number % 7}"} if number % 5 == 0 else {"queueId": 3} if number % 5 == 1 else {}
        value |= {"properties": {"p": str(number)}} if number % 2 else {"tags": "A"}
        if number % 500 == 7:
            value["body"] = "large" * 1000
        if number % 500 == 8:
            value |= {"body": base64.b64encode(bytes(range(256))).decode(), "bodyEncoding": "base64"}
        return value

    data = lines_of(*map(line, range(3000)))
    monkeypatch.setattr("rmqtool.broker.producer.run._LEAST_BYTES", 10_000)
    asked: list[int] = []
    read = IncomingLines.read

    def noted(self: IncomingLines, some: bytes) -> Incoming | None:
        asked.append(len(some))
        return read(self, some)

    monkeypatch.setattr(IncomingLines, "read", noted)
    status, shown, _ = produce("--jsonl", "--tag", "B", stdin=data)
    assert (status, len(shown)) == (0, 3000)
    assert sum(asked) > len(data) // 3
    other = str(tmp_path / "other")
    assert main(["init", other, "--as", "5.3", "--conf", "mappedFileSizeCommitLog=1048576"]) == 0
    assert main(["topic", other, "create", "T", "--queues", "4"]) == 0
    monkeypatch.setattr("rmqtool.broker.producer.run._LEAST_BYTES", 1 << 40)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    capsysbinary.readouterr()
    assert main(["produce", other, "--jsonl", "--tag", "B"]) == 0
    alone = capsysbinary.readouterr()[0].decode().splitlines()

    def whole(root: str) -> list[Any]:
        return [
            (
                (one.physical_offset, one.queue_id, one.queue_offset, one.flag, one.sys_flag, one.raw_body),
                {name: value for name, value in one.properties.items() if name != "UNIQ_KEY"},
            )
            for one in stored(root)
        ]

    assert whole(lab) == whole(other)
    assert len({one.uniq_key for one in stored(lab)}) == 3000
    given_anew = ("msgId", "storeTimestamp")
    for mine, theirs, record in zip(shown, alone, stored(lab), strict=True):
        value, same = json.loads(mine), json.loads(theirs)
        assert (value["msgId"], value["storeTimestamp"]) == (record.uniq_key, record.store_timestamp)
        assert {**value, **dict.fromkeys(given_anew)} == {**same, **dict.fromkeys(given_anew)}


def test_a_bad_line_among_many_is_named_and_those_before_it_are_stored(
    produce: Any, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [{"topic": "T", "body": f"b{number}"} for number in range(5000)]
    data = lines_of(*good[:4000]) + b'{"topic": "T"\n' + lines_of(*good[4000:])
    monkeypatch.setattr("rmqtool.broker.producer.run._LEAST_BYTES", 10_000)
    status, shown, said = produce("--jsonl", stdin=data)
    assert (status, len(shown)) == (Exit.USAGE, 4000)
    assert "line 4001 is not JSON" in said
    assert "4000 messages are stored" in said
    assert [one.raw_body for one in stored(lab)] == [f"b{number}".encode() for number in range(4000)]
    status, shown, said = produce("--jsonl", "--on-error", "skip", stdin=data)
    assert (status, len(shown)) == (Exit.SKIPPED, 5000)


def test_lines_behind_one_that_is_no_plain_message_are_not_lost(
    produce: Any, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(number: int) -> dict[str, object]:
        return {"topic": "T", "queueId": 0, "body": str(number), "delayLevel": 0 if number == 2000 else None}

    # A piece of lines that is declined holds more messages than are then sent one by one before the next is looked at.
    monkeypatch.setattr("rmqtool.broker.producer.run._MOST", 2048)
    monkeypatch.setattr("rmqtool.broker.producer.run._LEAST_BYTES", 400_000)
    status, shown, _ = produce("--jsonl", stdin=lines_of(*map(line, range(9000))))
    assert (status, len(shown)) == (0, 9000)
    assert [one.raw_body for one in stored(lab)] == [str(number).encode() for number in range(9000)]
