"""``consume`` from the outside: what a group gets, what is stored of its progress, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.schemas import validate
from tests.support.stores import left_alone
from tests.support.waiting import wait_for

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


def test_a_message_that_is_damaged_is_named_and_leads_to_check(lab: str, capsysbinary: Capture) -> None:
    log = Path(lab, "commitlog", "0" * 20)
    data = bytearray(log.read_bytes())
    data[88] ^= 1  # the body of the first record
    log.write_bytes(data)
    assert main(["consume", lab, "-g", "g", "-t", "T", "--from", "first", "-n", "2"]) == Exit.SKIPPED
    assert capsysbinary.readouterr().err.decode().splitlines() == [
        "T/0@0 is left out: its record, at 0 in the log, is damaged",
        "2 messages for g, a group without offsets so far; nothing is committed without --commit",
        f"Next: rmqtool check {lab}",
    ]


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


def test_a_program_that_fails_holds_its_queue_when_it_consumes_in_order(lab: str, capsysbinary: Capture) -> None:
    command = '[ "$RMQ_QUEUE_ID/$RMQ_QUEUE_OFFSET" != 2/7 ]'
    words = (lab, "-t", "T", "-g", "g", "--commit", "--exec", command, "-j", "1", "--orderly")
    status, lines, said = consume(capsysbinary, *words)
    assert status == Exit.NO
    assert "T/2@7: the program ended with status 1; the message is not consumed" in said
    assert progress(lab) == {"0": 25, "1": 25, "2": 7, "3": 25}
    assert [line["exitStatus"] for line in lines if not line["isConsumed"]] == [1]


def test_a_program_that_fails_gets_the_message_again_later(lab: str, capsysbinary: Capture) -> None:
    command = '[ "$RMQ_QUEUE_ID/$RMQ_QUEUE_OFFSET" != 2/7 ]'
    words = (lab, "-t", "T", "-g", "g", "--commit", "--exec", command, "-j", "1")
    status, lines, said = consume(capsysbinary, *words)
    assert status == Exit.NO
    assert "T/2@7: the program ended with status 1; it will be delivered again" in said
    assert progress(lab) == {str(queue): 25 for queue in range(4)}
    assert [line["exitStatus"] for line in lines if not line["isConsumed"]] == [1]


def test_a_program_that_hangs_is_killed_with_its_children(lab: str, tmp_path: Path, capsysbinary: Capture) -> None:
    child = tmp_path / "child"
    command = f"sleep 1000 & echo $! > {child}; wait"
    words = (
        lab,
        "-t",
        "T",
        "-g",
        "g",
        "-q",
        "0",
        "-j",
        "1",
        "--commit",
        "--exec",
        command,
        "--timeout",
        "3s",  # the program must have started its child by then, on a busy machine too
        "-n",
        "1",
    )
    status, lines, said = consume(capsysbinary, *words)
    assert (status, [line["exitStatus"] for line in lines]) == (Exit.NO, [None])
    assert "took too long and was killed" in said
    state = Path(f"/proc/{child.read_text().strip()}/stat")
    # A signal is sent to all of them at once, and each dies when it runs next.
    wait_for(lambda: is_dead(state))


def is_dead(state: Path) -> bool:
    """Tell whether a process is gone, or only waits to be collected."""
    try:
        return state.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-t", "Nope", "-g", "g"], Exit.NO, 'there is no topic "Nope"'),
        (["-t", "t", "-g", "g"], Exit.NO, "there is no topic"),
        (["-g", "nobody"], Exit.NO, 'there is no group "nobody"'),
        (["-t", "N*"], Exit.NO, "no topic matches N*"),
        ([], Exit.USAGE, "give a topic (-t) or a group with offsets (-g)"),
        (["-t", "T", "--commit"], Exit.USAGE, "missing group"),
        (["-t", "T", "--where", "a >"], Exit.USAGE, "(character 4 of the expression)"),
        (["-t", "T", "--tag", "||"], Exit.USAGE, "a tag is expected"),
        (["-t", "T", "--tag", "a", "--where", "b = 1"], Exit.USAGE, "not by both"),
        (["-t", "T", "--from", "soon"], Exit.USAGE, '"soon" is not a time'),
        (["-t", "T", "--timeout", "soon"], Exit.USAGE, '"soon" is not a duration'),
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
    wait_for(lambda: file.exists() and file.read_bytes().count(b"\n") >= lines, "the program was not run so often")


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
    # A slow one holds back the progress of its queue: those behind it that were done come again. Most do not.
    assert counted.total() - 100 < 40


def test_ctrl_c_finishes_what_runs_and_stores_the_progress(lab: str, tmp_path: Path, capsysbinary: Capture) -> None:
    done = tmp_path / "done"
    words = (lab, "-t", "T", "-g", "g", "--commit", "-j", "2", "--exec", f'echo "$(cat)" >> {done}')
    # The signal comes long before the last message.
    process = start(*words[:-1], f"{words[-1]}; test $(wc -l < {done}) -lt 20 || sleep 0.5")
    when_there_are(20, done)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    consumed = len(done.read_text().split())
    assert f"stopped after {consumed} messages; offsets are committed" in err.decode()
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


def transcript(capsysbinary: Capture, *words: str) -> str:
    """Return what a person sees, notes first, and the status behind it."""
    status = main(["consume", *words])
    out, err = capsysbinary.readouterr()
    return f"{err.decode()}{out.decode()}[{int(status)}]"


LINE = r"{topic}/{queueId}@{queueOffset} {tags} {body}" + "\\n"


def test_transcript_from_a_time(lab: str, capsysbinary: Capture) -> None:
    assert main(["produce", lab, "after", "-t", "T", "-q", "1", "--jsonl"]) == 0
    stored_at = json.loads(capsysbinary.readouterr()[0])["storeTimestamp"]
    words = (lab, "-t", "T", "-g", "timely", "--from", str(stored_at), "--template", LINE)
    assert transcript(capsysbinary, *words) == "T/1@25  after\n[0]"
    assert transcript(capsysbinary, *words, "--commit") == "T/1@25  after\n[0]"
    assert progress(lab, "timely") == {"0": 25, "1": 26, "2": 25, "3": 25}
    nothing = f"no new messages for timely\nNext: rmqtool info {lab} groups\n[0]"
    assert transcript(capsysbinary, *words, "--commit") == nothing
    assert transcript(capsysbinary, *words[:-4], "--from", "+1d", "--template", LINE) == nothing
    assert transcript(capsysbinary, *words[:-4], "--from", "+1d", "--jsonl") == "no new messages for timely\n[0]"


def test_a_program_that_is_not_there_stops_before_the_first_message(lab: str, capsysbinary: Capture) -> None:
    words = (lab, "-t", "T", "-g", "g", "--commit", "--from", "first", "-n", "1")
    shown = transcript(capsysbinary, *words, "--exec", "no-such-program -x")
    assert shown.startswith('rmqtool: --exec: no program "no-such-program"')
    assert shown.endswith("[2]")
    assert not (Path(lab) / "config/consumerOffset.json").exists()
    # What the shell itself understands is no program, and runs.
    assert transcript(capsysbinary, *words, "--exec", "if true; then exit 0; fi") == "1 message consumed\n[0]"


def test_transcript_of_sql(lab: str, capsysbinary: Capture) -> None:
    assert main(["produce", lab, "cheap", "-t", "T", "-q", "0", "-p", "price=5"]) == 0
    assert main(["produce", lab, "dear", "-t", "T", "-q", "0", "-p", "price=50"]) == 0
    capsysbinary.readouterr()
    words = (lab, "-t", "T", "-g", "g", "--from", "20", "--template", LINE)
    assert transcript(capsysbinary, *words, "--where", "price > 10") == "T/0@26  dear\n[0]"
    assert transcript(capsysbinary, *words, "--where", "price >> 10") == (
        "rmqtool: a value or a property is expected, not “>” (character 8 of the expression)\n"
        "         price >> 10\n"
        "                ^\n"
        "[2]"
    )


def test_orderly_lines_of_json_have_the_order_of_the_screen(lab: str, capsysbinary: Capture) -> None:
    shown = {}
    for form in ("--template", "--jsonl"):
        words = ["{queueId} {queueOffset}\n"] if form == "--template" else []
        assert main(["consume", lab, "-t", "T", "-g", "g", "--from", "first", "--orderly", form, *words]) == Exit.DONE
        shown[form] = capsysbinary.readouterr()[0].decode().splitlines()
    lines = [json.loads(line) for line in shown["--jsonl"]]
    assert [f"{line['queueId']} {line['queueOffset']}" for line in lines] == shown["--template"]
    assert len(lines) > 50


def test_transcript_in_order(lab: str) -> None:
    """Two queues, each in its order, at the same time; then one that fails and holds its own queue only."""
    command = 'echo "$RMQ_QUEUE_ID $RMQ_QUEUE_OFFSET"; [ "$RMQ_QUEUE_ID/$RMQ_QUEUE_OFFSET" != 1/23 ]'
    process = start(lab, "-t", "T", "-g", "g", "--from", "20", "--commit", "--orderly", "--exec", command, "-j", "2")
    out, err = (text.decode() for text in process.communicate())
    assert process.returncode == Exit.NO
    told = [tuple(map(int, line.split())) for line in out.splitlines()]
    for queue in range(4):
        expected = [*range(20, 24)] if queue == 1 else [*range(20, 25)]
        assert [offset for number, offset in told if number == queue] == expected
    assert err == (
        "T/1@23: the program ended with status 1; the message is not consumed\n18 messages consumed, 1 failed\n"
    )


def test_transcript_of_broadcasting(
    lab: str, tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    words = (lab, "-t", "T", "-g", "g", "--broadcast", "--members", "2", "--from", "24", "--commit")
    assert transcript(capsysbinary, *words, "--template", "{member} {body}\\n") == (
        "member 1 joined; 1 takes T/0 T/1 T/2 T/3\n"
        "member 2 joined; 2 takes T/0 T/1 T/2 T/3\n"
        "member 1 left\n"
        "member 2 left\n"
        + "".join(f"127.0.0.1@{member} {body}\n" for member in (1, 2) for body in (92, 93, 94, 95))
        + "[0]"
    )


def test_killed_while_somebody_reads_nothing_is_lost(tmp_path: Path, capsysbinary: Capture) -> None:
    """Three members, killed when some of their lines were read: the reader and the next run have them all."""
    root = str(tmp_path / "lab")
    assert main(["init", root, "--conf", "mappedFileSizeCommitLog=1048576"]) == 0
    body = "x" * 500
    assert main(["produce", root, *(f"{number} {body}" for number in range(1000)), "-t", "T", "--create"]) == 0
    capsysbinary.readouterr()
    words = (root, "-t", "T", "-g", "g", "--members", "3", "--commit", "--template", "{body}\\n")
    process = start(*words)
    assert process.stdout is not None
    read = process.stdout.read(100_000)
    process.send_signal(signal.SIGKILL)
    # Not communicate(), which reads past what the buffer of stdout still holds.
    read += process.stdout.read()
    process.communicate()
    assert main(["consume", *words]) == 0
    second = capsysbinary.readouterr()[0]
    whole = read[: read.rindex(b"\n") + 1] + second
    counted = Counter(int(line.split()[0]) for line in whole.splitlines())
    assert sorted(counted) == [*range(1000)]
    # What was shown and not yet noted: a pull of each member at most.
    assert 0 < len(second.splitlines()) < 1000
    assert counted.total() - 1000 <= 3 * 32


@pytest.mark.parametrize("words", [["consume", "--commit"], ["consume", "--pop"], ["produce", "x", "--tx", "pending"]])
def test_a_group_that_no_broker_takes_is_refused(words: list[str], lab: str, capsysbinary: Capture) -> None:
    command, *rest = words
    before = sorted(path.name for path in (Path(lab) / "config").iterdir())
    assert main([command, lab, *rest, "-t", "T", "-g", "no group!"]) == Exit.USAGE
    assert b"'no group!' has characters other than" in capsysbinary.readouterr().err
    assert sorted(path.name for path in (Path(lab) / "config").iterdir()) == before


@pytest.mark.parametrize(
    ("words", "template"),
    [
        (["--commit"], "{member}"),
        (["--commit"], "{popReceipt}"),
        (["--commit"], "{isConsumed}"),
        (["--commit", "--members", "2"], "{exitStatus}"),
        (["--commit"], "{queueId:zz}"),
        (["--pop"], "{member}"),
    ],
)
def test_a_template_that_no_message_fills_is_refused_before_anything_is_committed(
    words: list[str], template: str, lab: str, capsysbinary: Capture
) -> None:
    with left_alone(Path(lab)):
        assert main(["consume", lab, "-t", "T", "-g", "g", *words, "--template", template]) == Exit.USAGE
    assert capsysbinary.readouterr().out == b""


def test_an_entry_that_points_to_no_record_does_not_call_a_record_damaged(store, capsysbinary) -> None:
    """Its queue has entries from before a recovery that cut the log; check calls them wrong, not the log damaged."""
    assert main(["consume", str(store("49-ghost")), "-t", "KillT", "-q", "1", "--from", "first"]) == Exit.SKIPPED
    lines = capsysbinary.readouterr().err.decode().splitlines()
    assert lines[0] == "KillT/1@103 is left out: its record, at 205438 in the log, is damaged or gone"
