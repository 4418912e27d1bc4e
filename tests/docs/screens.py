"""Runs the examples of the manual: the real commands, on stores of ``fixtures/``, for a terminal of 80 columns."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rmqtool.cli import main
from rmqtool.files.filesystem import Space
from rmqtool.look import disk
from tests.support.stores import unpack
from tools.manual.examples import Example

_PIPE = re.compile(r" \| head -(\d+)$")
# How long it took is another each time.
_TOOK = re.compile(r"(?<= in )\d+(\.\d+)? m?s\b")

# The name of a plan is made of what it found, the time of a file among it.
_PLAN = re.compile(r"(?<=plan )[0-9a-f]{12}|(?<=undo/)[0-9a-f]{12}")
_A_PLAN = "37b6ee85ba27"

# Every example runs on a disk with room.
ROOMY = Space(total=1000, free=600, available=600)

# An index file has the time it was made for a name.
_INDEX = re.compile(r"(?<=index/)\d{17}")
_MADE = "20261118120600000"


def _flip(root: Path) -> None:
    """A byte of a body, in the middle of the log, is another one."""
    path = root / "commitlog" / "00000000000000065536"
    data = bytearray(path.read_bytes())
    at = data.index(b"alpha", 8192)
    data[at] ^= 0x20
    path.write_bytes(data)


def _unmount(root: Path) -> None:
    """The volume of the commit log is not there: its directory is empty."""
    for path in (root / "commitlog").iterdir():
        path.unlink()


def _cut_offsets(root: Path) -> None:
    """The file of consumer offsets, and its copy, end in the middle."""
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        path = root / "config" / name
        path.write_bytes(path.read_bytes()[:200])


def _copy(root: Path) -> None:
    """A copy of the store is next to it; one byte of a body differs."""
    shutil.copytree(root, root.parent / "copy")
    _flip(root.parent / "copy")


def _spoil_checkpoint(root: Path) -> None:
    """The checkpoint holds times of the year 2100."""
    (root / "checkpoint").write_bytes((4_102_444_800_000).to_bytes(8, "big") * 3 + bytes(4096 - 24))


INCIDENTS: dict[str, Callable[[Path], None]] = {
    "": lambda _root: None,
    "flip": _flip,
    "unmounted": _unmount,
    "cut offsets": _cut_offsets,
    "copy": _copy,
    "checkpoint": _spoil_checkpoint,
}


class Shown(NamedTuple):
    """The output of an example, and its exit status."""

    lines: tuple[str, ...]
    status: int


class _Terminal(io.FileIO):
    """A file that commands take for a terminal."""

    def isatty(self) -> bool:
        return True


def run_example(example: Example) -> Shown:
    """Run ``example`` in a directory of its own where its store is called ``store``."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-manual-") as directory:
        home = Path(directory, "broker-a")
        root = unpack(example.store, home)
        INCIDENTS[example.incident](root)
        there = {path.name for path in root.glob("index/*")}
        with at_home(home):
            shown = run_command(example.command)

    return shown._replace(lines=tuple(settled(line, directory, there) for line in shown.lines))


def settled(line: str, directory: str, there: Collection[str]) -> str:
    """Return a line without what is another each time: where and when it was run; index files ``there`` were before."""
    line = _PLAN.sub(_A_PLAN, line.replace(directory, ""))
    return _INDEX.sub(lambda name: name[0] if name[0] in there else _MADE, line)


def run_command(command: str) -> Shown:
    piped = _PIPE.search(command)
    words = shlex.split(_PIPE.sub("", command))
    assert words[0] == "rmqtool", command
    with tempfile.TemporaryFile() as file, _standard_output(file.fileno()):
        screen = io.FileIO(file.fileno(), "w", closefd=False) if piped else _Terminal(file.fileno(), "w", closefd=False)
        out = io.TextIOWrapper(io.BufferedWriter(screen), encoding="utf-8", write_through=True)
        # stderr is not a terminal, so there is no bar; notes come between the lines of the result.
        err = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(file.fileno(), "w", closefd=False)), encoding="utf-8", write_through=True
        )
        with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):
            with patch.object(disk, "measure", lambda _path: ROOMY):
                status = int(main(words[1:]))
            out.flush()
            err.flush()
        file.seek(0)
        text = _TOOK.sub("0.1 s", file.read().decode())
    lines = [line.rstrip() for line in text.splitlines()]
    return Shown(tuple(lines[: int(piped[1])] if piped else lines), status)


@contextmanager
def _standard_output(descriptor: int) -> Iterator[None]:
    """Let the programs that a command starts write where the command does."""
    before = os.dup(1)
    os.dup2(descriptor, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


@contextmanager
def at_home(directory: Path) -> Iterator[None]:
    """Be in ``directory``, on a terminal of 80 columns without colour, in UTC."""
    before = os.getcwd()
    here = {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "TZ": "UTC", "HOME": str(directory)}
    gone = [name for name in ("RMQTOOL_STORE",) if name in os.environ]
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, here))
        # Producers begin with any queue: here with the first one.
        stack.enter_context(patch("rmqtool.broker.producer.send._random_turn", lambda: 0))
        for name in gone:
            del os.environ[name]
        os.chdir(directory)
        stack.callback(os.chdir, before)
        time.tzset()
        yield
    time.tzset()
