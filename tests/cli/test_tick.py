"""``rmqtool tick``: what is due happens, and is told."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.filesystem import Space
from rmqtool.files.posix import PosixReadableFileSystem
from tests.support.schemas import validate
from tests.support.stores import left_alone

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
