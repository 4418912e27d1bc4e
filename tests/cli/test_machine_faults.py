"""What the machine refuses is told as what it is: a disk, a limit, a closed descriptor are no bug."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit, NoSpace
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.store.rocksdb import _copy_file

COMMANDS = (
    ["info"],
    ["cat"],
    ["stat"],
    ["check"],
    ["query", "ORDER-1"],
    ["dump"],
    ["recover"],
    ["repair"],
    ["export", "--to", "{out}", "--engine", "local"],
    ["copy", "{out}"],
    ["recover", "--apply"],
    ["repair", "--apply"],
    ["produce", "-t", "Seq", "hello"],
    ["tick"],
)


class Closes:
    """Counts the closes of files beneath a directory, and lets the n-th of them fail once it has happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.count = self.due = 0
        close = os.close

        def closing(descriptor: int) -> None:
            is_ours = os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(root))
            close(descriptor)
            self.count += is_ours
            if is_ours and self.count == self.due:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "close", closing)

    def fail(self, number: int) -> None:
        self.count, self.due = 0, number


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_close_that_fails_is_no_bug(
    words: list[str], writable_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = writable_store("49-broker")
    out = iter(range(100))
    closes = Closes(monkeypatch, root.parent)

    def run(number: int) -> int:
        closes.fail(number)
        line = [word.format(out=tmp_path / f"out{next(out)}") for word in words]
        place = [str(root / "checkpoint")] if words[0] == "dump" else [str(root)]
        return main([line[0], *place, *line[1:]])

    run(0)
    most = closes.count
    assert most
    for number in sorted({1, most // 2, most}):
        assert run(number) != Exit.BUG, number


def run_limited(words: list[str], **limits: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "rmqtool", *words], capture_output=True, check=False, **limits)


@pytest.mark.parametrize("mebibytes", [90, 120, 160, 220])
def test_too_little_memory_is_a_sentence(store: Any, mebibytes: int) -> None:
    limit = mebibytes << 20
    done = run_limited(
        ["cat", str(store("49-broker")), "-j", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode != Exit.BUG, done.stderr[-300:]
    if done.returncode == Exit.NOT_A_STORE:
        assert b"not enough memory" in done.stderr


def test_a_closed_standard_input_is_said(writable_store: Any) -> None:
    root = writable_store("49-broker")
    done = run_limited(["produce", str(root), "-t", "Seq", "--jsonl"], preexec_fn=lambda: os.close(0))
    assert done.returncode == Exit.USAGE
    assert b"standard input is closed" in done.stderr


def test_a_full_disk_under_the_copy_of_a_database_is_a_failed_write(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_bytes(b"x" * 100)
    files = PosixReadableFileSystem(str(tmp_path))
    with files, files.open_read("CURRENT") as file, pytest.raises(NoSpace, match="/dev/full") as told:
        _copy_file(file, 100, "/dev/full")
    assert "TMPDIR" in str(told.value.hint)
