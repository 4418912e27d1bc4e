"""``consume`` from the outside: what a group gets, what is stored of its progress, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.storage.posix_write import PosixWritableFileSystem
from tests.schemas import validate
from tests.stores import left_alone

Capture = pytest.CaptureFixture[bytes]


@pytest.fixture
def lab(tmp_path: Path, capsysbinary: Capture) -> str:
    """Return a store with a topic T of four queues of 25 messages: the bodies 0 to 99, tagged even or odd by fours."""
    root = str(tmp_path / "lab")
    assert main(["init", root, "--as", "5.3", "--conf", "mappedFileSizeCommitLog=65536"]) == 0
    for queue in range(4):
        for odd, tag in enumerate(("even", "odd")):
            bodies = [str(one) for one in range(queue, 100, 4) if one // 4 % 2 == odd]
            assert main(["produce", root, *bodies, "-t", "T", "-q", str(queue), "--tag", tag, "--create"]) == 0
    capsysbinary.readouterr()
    return root


def consume(capsysbinary: Capture, *words: str) -> tuple[int, list[Any], str]:
    """Return the status, the objects of the lines, and what was said."""
    status = main(["consume", *words, "--jsonl"])
    out, err = capsysbinary.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err.decode()


def progress(root: str, group: str = "g", topic: str = "T") -> dict[str, int]:
    """Return what a broker would read of a group's progress."""
    text = (Path(root) / "config/consumerOffset.json").read_text()
    # Integer keys have no quotes, as fastjson writes them.
    for queue in range(8):
        text = text.replace(f"{{{queue}:", f'{{"{queue}":').replace(f",{queue}:", f',"{queue}":')
    found: dict[str, int] = json.loads(text)["offsetTable"][f"{topic}@{group}"]
    return found


def bodies(lines: list[Any]) -> list[int]:
    return sorted(int(line["body"]) for line in lines)


def test_a_look_needs_no_lock_and_changes_nothing(lab: str, capsysbinary: Capture) -> None:
    with PosixWritableFileSystem(lab).lock(), left_alone(Path(lab)):
        status, lines, _ = consume(capsysbinary, lab, "-t", "T", "-g", "g")
    assert (status, bodies(lines)) == (0, [*range(100)])
    for line in lines:
        validate("message", line)
    for queue in range(4):
        assert [line["queueOffset"] for line in lines if line["queueId"] == queue] == [*range(25)]


def test_progress_is_stored_and_gone_on_with(lab: str, capsysbinary: Capture) -> None:
    first = consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit", "-n", "30")[1]
    assert sum(progress(lab).values()) == 30
    second = consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit")[1]
    assert (len(first), bodies(first + second)) == (30, [*range(100)])
    assert progress(lab) == {str(queue): 25 for queue in range(4)}
    assert consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit")[1] == []
    assert not (Path(lab) / "abort").exists()


def test_with_commit_progress_goes_before_from_and_without_it_the_other_way(lab: str, capsysbinary: Capture) -> None:
    consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit", "-n", "90")
    assert len(consume(capsysbinary, lab, "-t", "T", "-g", "g", "--from", "first", "--commit", "-n", "3")[1]) == 3
    assert sum(progress(lab).values()) == 93
    assert len(consume(capsysbinary, lab, "-t", "T", "-g", "g", "--from", "first")[1]) == 100
    assert len(consume(capsysbinary, lab, "-t", "T", "-g", "g", "--from", "20")[1]) == 20
    assert len(consume(capsysbinary, lab, "-t", "T", "-g", "g", "--from", "20", "-q", "1")[1]) == 5


def test_a_new_group_begins_where_it_is_told(lab: str, capsysbinary: Capture) -> None:
    assert consume(capsysbinary, lab, "-t", "T", "-g", "new", "--from", "last", "--commit")[1] == []
    assert progress(lab, "new") == {str(queue): 25 for queue in range(4)}
    # Not told, it begins with the first message of a topic this young.
    assert len(consume(capsysbinary, lab, "-t", "T", "-g", "newer", "--commit")[1]) == 100
    # A group that has progress needs no topic.
    assert main(["produce", lab, "later", "-t", "T", "-q", "0"]) == 0
    capsysbinary.readouterr()
    assert [line["body"] for line in consume(capsysbinary, lab, "-g", "new")[1]] == ["later"]


def test_filters_hold_no_progress_back(lab: str, capsysbinary: Capture) -> None:
    lines = consume(capsysbinary, lab, "-t", "T", "-g", "g", "--tag", "odd || none", "--commit")[1]
    assert bodies(lines) == [one for one in range(100) if one // 4 % 2]
    assert progress(lab) == {str(queue): 25 for queue in range(4)}
    lines = consume(capsysbinary, lab, "-t", "T", "-g", "h", "--where", "TAGS = 'even' AND WAIT IS NOT NULL")[1]
    assert bodies(lines) == [one for one in range(100) if not one // 4 % 2]


def test_members_share_the_queues(lab: str, capsysbinary: Capture) -> None:
    status, lines, said = consume(capsysbinary, lab, "-t", "T", "-g", "g", "--members", "3", "--commit")
    assert (status, bodies(lines)) == (0, [*range(100)])
    of_queue: dict[int, set[str]] = {}
    for line in lines:
        validate("message", line)
        of_queue.setdefault(line["queueId"], set()).add(line["member"].rpartition("#")[2])
    assert of_queue == {0: {"1"}, 1: {"1"}, 2: {"2"}, 3: {"3"}}
    assert said.splitlines() == [
        "member 1 joined; 1 takes T/0 T/1 T/2 T/3",
        "member 2 joined; 2 takes T/2 T/3",
        "member 3 joined; 3 takes T/3",
        "member 1 left; 2 takes T/0 T/1; 3 takes T/2",
        "member 2 left; 3 takes T/0 T/1",
        "member 3 left",
    ]


def test_broadcasting_members_get_everything_once(
    lab: str, tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    words = (lab, "-t", "T", "-g", "g", "--broadcast", "--members", "2", "--from", "first", "--commit")
    with left_alone(Path(lab)):
        lines = consume(capsysbinary, *words)[1]
        assert Counter(bodies(lines)) == dict.fromkeys(range(100), 2)
        assert consume(capsysbinary, *words)[1] == []
    kept = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob(".rocketmq_offsets/**/offsets.json"))
    assert kept == [f".rocketmq_offsets/127.0.0.1@{number}/g/offsets.json" for number in (1, 2)]


def test_a_program_gets_body_and_fields(lab: str, tmp_path: Path, capsysbinary: Capture) -> None:
    told = tmp_path / "told"
    command = f'echo "$RMQ_TOPIC $RMQ_QUEUE_ID $RMQ_QUEUE_OFFSET $RMQ_TAGS $RMQ_PROPERTY_TAGS $(cat)" >> {told}'
    status, lines, said = consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit", "--exec", command, "-j", "3")
    assert (status, len(lines), said) == (0, 100, "100 messages consumed\n")
    assert {line["exitStatus"] for line in lines} == {0}
    expected = [
        f"T {line['queueId']} {line['queueOffset']} {line['tags']} {line['tags']} {line['body']}" for line in lines
    ]
    assert sorted(told.read_text().splitlines()) == sorted(expected)
    assert progress(lab) == {str(queue): 25 for queue in range(4)}


@pytest.mark.parametrize("order", [[], ["--orderly"]])
def test_a_program_that_fails_holds_its_queue(order: list[str], lab: str, capsysbinary: Capture) -> None:
    command = '[ "$RMQ_QUEUE_ID/$RMQ_QUEUE_OFFSET" != 2/7 ]'
    words = (lab, "-t", "T", "-g", "g", "--commit", "--exec", command, "-j", "1", *order)
    status, lines, said = consume(capsysbinary, *words)
    assert status == Exit.NO
    assert "T/2@7: the program ended with status 1; the message is not consumed" in said
    assert progress(lab) == {"0": 25, "1": 25, "2": 7, "3": 25}
    assert [line["exitStatus"] for line in lines if not line["isConsumed"]] == [1]


def test_a_program_that_hangs_is_killed_with_its_children(lab: str, tmp_path: Path, capsysbinary: Capture) -> None:
    child = tmp_path / "child"
    command = f"sleep 1000 & echo $! > {child}; wait"
    words = (lab, "-t", "T", "-g", "g", "-q", "0", "-j", "1", "--commit", "--exec", command, "--timeout", "300ms")
    status, lines, said = consume(capsysbinary, *words)
    assert (status, [line["exitStatus"] for line in lines]) == (Exit.NO, [None])
    assert "took too long and was killed" in said
    state = Path(f"/proc/{child.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-t", "Nope", "-g", "g"], Exit.NO, 'there is no topic "Nope"'),
        (["-t", "t", "-g", "g"], Exit.NO, "there is no topic"),
        (["-g", "nobody"], Exit.NO, 'there is no group "nobody"'),
        (["-t", "N*"], Exit.NO, "no topic is named like N*"),
        ([], Exit.USAGE, "what is to be consumed?"),
        (["-t", "T", "--commit"], Exit.USAGE, "whose progress"),
        (["-t", "T", "--where", "a >"], Exit.USAGE, "(character 4 of the expression)"),
        (["-t", "T", "--tag", "||"], Exit.USAGE, "a tag is expected"),
        (["-t", "T", "--tag", "a", "--where", "b = 1"], Exit.USAGE, "not by both"),
        (["-t", "T", "--from", "soon"], Exit.USAGE, '"soon" is not a time'),
        (["-t", "T", "--timeout", "soon"], Exit.USAGE, '"soon" is not a span'),
    ],
)
def test_what_is_refused(words: list[str], status: Exit, said: str, lab: str, capsysbinary: Capture) -> None:
    found, lines, err = consume(capsysbinary, lab, *words)
    assert (found, lines) == (status, [])
    assert said in json.loads(err)["error"]["message"]


def test_a_store_in_use_is_not_consumed_from(lab: str, capsysbinary: Capture) -> None:
    with PosixWritableFileSystem(lab).lock():
        status, lines, err = consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit")
    assert (status, lines) == (Exit.IN_USE, [])
    assert "this process holds the lock" in err


def test_a_store_that_was_not_closed_is_not_consumed_from(lab: str, capsysbinary: Capture) -> None:
    (Path(lab) / "abort").touch()
    assert consume(capsysbinary, lab, "-t", "T", "-g", "g", "--commit")[0] == Exit.REFUSED
    assert len(consume(capsysbinary, lab, "-t", "T", "-g", "g")[1]) == 100


def start(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rmqtool", "consume", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def when_there_are(lines: int, file: Path) -> None:
    """Return when a file has so many lines, which others write."""
    end = time.monotonic() + 60
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        assert time.monotonic() < end, "the program was not run so often"


@pytest.mark.parametrize("way", [["--members", "3", "-j", "4"], ["--orderly", "-j", "2"]])
def test_killed_half_way_nothing_is_lost(way: list[str], lab: str, tmp_path: Path, capsysbinary: Capture) -> None:
    done = tmp_path / "done"
    words = (lab, "-t", "T", "-g", "g", "--commit", *way, "--exec", f'echo "$(cat)" >> {done}')
    process = start(*words)
    when_there_are(40, done)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert consume(capsysbinary, *words)[0] == 0
    counted = Counter(map(int, done.read_text().split()))
    assert sorted(counted) == [*range(100)]
    assert counted.total() - 100 <= 4


def test_ctrl_c_finishes_what_runs_and_stores_the_progress(lab: str, tmp_path: Path, capsysbinary: Capture) -> None:
    done = tmp_path / "done"
    words = (lab, "-t", "T", "-g", "g", "--commit", "-j", "2", "--exec", f'echo "$(cat)" >> {done}')
    process = start(*words)
    when_there_are(20, done)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    consumed = len(done.read_text().split())
    assert f"stopped after {consumed} messages; the progress is stored" in err.decode()
    assert sum(progress(lab).values()) <= consumed
    assert consume(capsysbinary, *words)[0] == 0
    assert sorted(map(int, done.read_text().split())) == [*range(100)]


def test_what_the_reader_did_not_take_is_not_consumed(lab: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "rmqtool", "consume", lab, "-t", "T", "-g", "g", "--commit", "--jsonl"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == Exit.CLOSED_PIPE
    assert not (Path(lab) / "config/consumerOffset.json").exists()
