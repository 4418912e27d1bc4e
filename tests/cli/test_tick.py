"""``rmqtool tick``: due messages are delivered, and each is shown."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.filesystem import Space
from rmqtool.files.posix import PosixReadableFileSystem
from tests.support.schemas import validate
from tests.support.stores import left_alone
from tests.support.waiting import PATIENCE

SIZES = ["mappedFileSizeCommitLog=65536", "maxHashSlotNum=100", "maxIndexNum=100", "messageDelayLevel=1s 1h"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store with two messages of level 1 and one of level 2, an hour later: its clock is put back."""
    root = tmp_path / "lab"
    assert main(["init", str(root), *(word for size in SIZES for word in ("--conf", size))]) == 0
    lines = [{"topic": "T", "body": f"m{level}", "delayLevel": level} for level in (1, 1, 2)]
    from rmqtool.engine.clock import SystemClock

    now = SystemClock().now()
    monkeypatch.setattr(SystemClock, "now", lambda _self: now - 2000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(json.dumps, lines)).encode())))
    assert main(["produce", str(root), "--jsonl", "--create"]) == 0
    monkeypatch.setattr(SystemClock, "now", lambda _self: now)
    capsys.readouterr()
    return root


def test_what_is_due_is_delivered_and_counted(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", str(lab), "--tz", "UTC"]) == Exit.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["service  event      topic  count", "delay    delivered  T          2"]
    assert lines[2].startswith("Waiting: 1 delayed message, the next due ")
    assert main(["cat", str(lab), "-t", "T", "--template", "{body}\n"]) == 0
    assert capsys.readouterr().out == "m1\nm1\n"


def test_each_thing_that_happened_is_a_line(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", str(lab), "--jsonl"]) == Exit.DONE
    *told, summary = map(json.loads, capsys.readouterr().out.splitlines())
    for one in told:
        validate("ticked", one)
    validate("ticked-summary", summary)
    assert [(one["service"], one["event"], one["topic"], one["queueOffset"]) for one in told] == [
        ("delay", "delivered", "T", 0),
        ("delay", "delivered", "T", 0),
    ]
    assert [one["from"]["topic"] for one in told] == ["SCHEDULE_TOPIC_XXXX"] * 2
    assert summary["summary"]["counts"] == [{"service": "delay", "event": "delivered", "topic": "T", "count": 2}]
    assert summary["summary"]["waiting"]["delay"]["count"] == 1


def test_a_second_tick_changes_nothing(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", str(lab)]) == Exit.DONE
    capsys.readouterr()
    main(["tick", str(lab)])
    with left_alone(lab / "commitlog"), left_alone(lab / "config"), left_alone(lab / "consumequeue"):
        assert main(["tick", str(lab)]) == Exit.DONE
    assert "Nothing was due." in capsys.readouterr().out


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store of four segments, written just now, on a disk that is 88 % full."""
    root = tmp_path / "full"
    assert main(["init", str(root), *(word for size in SIZES for word in ("--conf", size))]) == 0
    lines = [json.dumps({"topic": "T", "body": f"{number:0>4000}", "queueId": 0}) for number in range(50)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert main(["produce", str(root), "--jsonl", "--create"]) == 0
    monkeypatch.setattr(PosixReadableFileSystem, "space", lambda _: Space(100, 12, 12))
    capsys.readouterr()
    return root


def segments_of(root: Path) -> list[str]:
    return [f"commitlog/{path.name}" for path in sorted((root / "commitlog").iterdir())]


def test_nothing_is_deleted_that_was_not_asked_for(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments = segments_of(full)
    assert len(segments) == 4
    assert main(["tick", str(full)]) == Exit.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "Not deleted: 3 segments of the log with 45 messages (the disk is 88 % full).",
        "A broker would delete them; to do it now: rmqtool tick STORE --expire",
        *(f"  {name}" for name in segments[:3]),
    ]
    for command, *words in (["produce", "-t", "T", "hello"], ["consume", "-t", "T", "-g", "G", "--commit"]):
        assert main([command, str(full), *words]) == Exit.DONE
        assert segments_of(full)[:4] == segments, command


def test_expire_deletes_and_tells_each_file(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments = segments_of(full)
    assert main(["tick", str(full), "--expire", "--jsonl"]) == Exit.DONE
    told, summary = map(json.loads, capsys.readouterr().out.splitlines())
    validate("ticked", told)
    validate("ticked-summary", summary)
    assert told == {
        "service": "retention",
        "event": "expired",
        "segments": 3,
        "messages": 45,
        "bytes": 3 << 16,
        "files": segments[:3],
        "used": 88,
        "reason": "disk",
    }
    assert summary["summary"]["expired"]["segments"] == 0
    assert segments_of(full) == segments[3:]
    assert main(["cat", str(full), "--jsonl"]) == Exit.DONE
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_expire_says_what_it_deleted(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments = segments_of(full)
    assert main(["tick", str(full), "--expire"]) == Exit.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "Deleted 3 segments of the log with 45 messages (the disk is 88 % full):",
        *(f"  {name}" for name in segments[:3]),
    ]


def test_a_store_in_use_is_left_alone(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rmqtool.files.posix_write import PosixWritableFileSystem

    with PosixWritableFileSystem(str(lab)) as files, files.lock():
        assert main(["tick", str(lab)]) == Exit.IN_USE
    assert "in use" in capsys.readouterr().err


# The check begins 2 s after a half message and is due a second later.
HALVES = [*SIZES, "transactionTimeOut=2000", "transactionCheckInterval=1000"]


@pytest.fixture
def halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store with three open transactions, an hour later."""
    root = tmp_path / "halves"
    assert main(["init", str(root), *(word for size in HALVES for word in ("--conf", size))]) == 0
    from rmqtool.engine.clock import SystemClock

    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) - 3_600_000)
    words = ["-t", "T", "-q", "0", "-g", "P", "--create", "--tx", "pending", "yes", "no", "later"]
    assert main(["produce", str(root), *words]) == 0
    monkeypatch.setattr(SystemClock, "now", now)
    capsys.readouterr()
    return root


DECIDE = 'read -r line; case "$line" in *\'"body": "yes"\'*) exit 0;; *\'"body": "no"\'*) exit 1;; *) exit 9;; esac'


def test_a_program_decides_open_transactions(halves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", str(halves), "--check", DECIDE, "--jsonl"]) == Exit.DONE
    *told, summary = map(json.loads, capsys.readouterr().out.splitlines())
    for one in told:
        validate("ticked", one)
    checked = [one.get("answer") for one in told if one["event"] == "checked"]
    assert checked == ["commit", "rollback", None]
    assert summary["summary"]["waiting"]["transaction"]["count"] == 1
    assert main(["cat", str(halves), "-t", "T", "--template", "{body}\n"]) == 0
    assert capsys.readouterr().out == "yes\n"


def test_a_decision_is_final(halves: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rmqtool.engine.clock import SystemClock

    assert main(["tick", str(halves), "--check", DECIDE]) == Exit.DONE
    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + 60_000)
    assert main(["tick", str(halves), "--check", "exit 0"]) == Exit.DONE
    capsys.readouterr()
    assert main(["cat", str(halves), "-t", "T", "--template", "{body}\n"]) == 0
    assert capsys.readouterr().out == "yes\nlater\n"


def test_the_program_gets_the_message_as_its_producer_sent_it(halves: Path, tmp_path: Path) -> None:
    out = tmp_path / "given.jsonl"
    assert main(["tick", str(halves), "--check", f"cat >>{out}; exit 1"]) == Exit.DONE
    given = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    for one in given:
        validate("message", one)
    assert [(one["topic"], one["queueId"], one["body"]) for one in given] == [
        ("T", 0, "yes"),
        ("T", 0, "no"),
        ("T", 0, "later"),
    ]
    assert {one["properties"]["PGROUP"] for one in given} == {"P"}


def test_a_program_that_does_not_exist_is_refused(halves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with left_alone(halves / "commitlog"):
        assert main(["tick", str(halves), "--check", "no-such-program"]) == Exit.USAGE
    assert '--check: no program "no-such-program"' in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_delivers_what_becomes_due_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    root = tmp_path / "lab"
    assert main(["init", str(root), *(word for size in SIZES for word in ("--conf", size))]) == 0
    assert main(["produce", str(root), "-t", "T", "--create", "--delay", "1", "soon"]) == 0
    command = [sys.executable, "-m", "rmqtool", "tick", str(root), "--follow", "--jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert (told["event"], told["topic"]) == ("delivered", "T")
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == (Exit.INTERRUPTED if number == signal.SIGINT else -number)
    (summary,) = map(json.loads, out.splitlines())
    assert summary["summary"]["waiting"]["delay"]["count"] == 0
    assert json.loads(err)["error"]["message"] == "stopped: 1 happened"
    assert not (root / "abort").exists()
    assert main(["tick", str(root)]) == Exit.DONE


def test_follow_ends_while_a_program_runs(halves: Path) -> None:
    command = [sys.executable, "-m", "rmqtool", "tick", str(halves), "--follow", "--check", "echo asked >&2; sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == -signal.SIGTERM
    assert not (halves / "abort").exists()
