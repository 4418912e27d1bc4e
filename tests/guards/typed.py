"""What a person types, run in this process: the status and every word that came back."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from rmqtool.cli import main
from rmqtool.errors import Exit


class Typed(NamedTuple):
    """A command line and its answer. ``status`` is None for a line that is not a command of ours and was only noted."""

    line: str
    status: int | None
    out: str = ""
    err: str = ""

    @property
    def said(self) -> str:
        """Everything on both streams."""
        return self.out + self.err


class _Stream(io.TextIOWrapper):
    """A stream that is no terminal, and keeps what is written."""

    def __init__(self, data: bytes = b"") -> None:
        self.kept = io.BytesIO(data)
        super().__init__(self.kept, encoding="utf-8", errors="surrogateescape", write_through=True)

    def text(self) -> str:
        return self.kept.getvalue().decode("utf-8", "surrogateescape")


def type_words(words: Sequence[str], given: bytes = b"") -> Typed:
    """Run one command line; ``given`` is what standard input holds."""
    out, err = _Stream(), _Stream()
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err), patch.object(sys, "stdin", _Stream(given)):
        status = int(main(list(words)))
    return Typed(shlex.join(("rmqtool", *words)), status, out.text(), err.text())


def type_line(line: str) -> Typed:
    """Run a line of a screen: a command of ours, one whose output goes to a file, or a copy of files."""
    words = shlex.split(line)
    if words[0] == "cp":
        subprocess.run(["sh", "-c", line], check=True)
        return Typed(line, 0)
    if words[0] != "rmqtool":
        return Typed(line, None)
    target = None
    if ">" in words:
        at = words.index(">")
        words, target = words[:at], words[at + 1]
    typed = type_words(words[1:])
    if target is not None:
        Path(target).write_text(typed.out, encoding="utf-8", errors="surrogateescape")
    return typed._replace(line=line)


def next_lines(typed: Typed) -> list[str]:
    """Return what the screen says to type next."""
    lines = [line.strip() for line in typed.said.splitlines()]
    return [line.removeprefix("Next: ") for line in lines if line.startswith("Next: ")]


def is_ours(line: str) -> bool:
    """Return whether a line, or a "fix", can be typed here and is no sentence."""
    return line.startswith(("rmqtool ", "cp -a ", "cp -p ")) and ";" not in line


STATUSES = frozenset(Exit)
# What a command that came to its end, or was stopped with a reason, may end with; 70 is a bug, and nobody pressed keys.
ANSWERS = STATUSES - {Exit.BUG, Exit.USAGE, Exit.INTERRUPTED, Exit.CLOSED_PIPE}


@contextmanager
def at(directory: Path) -> Iterator[None]:
    """Be in ``directory``, with nothing of who runs the tests: no default store, no home, no colour."""
    before = os.getcwd()
    here = {"HOME": str(directory), "TZ": "UTC", "NO_COLOR": "1", "RMQTOOL_STORE": str(directory / "no-store")}
    with patch.dict(os.environ, here):
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(before)


def json_of(typed: Typed) -> Any:
    """Return the one JSON object of a command, or None where it gave none."""
    import json

    return json.loads(typed.out) if typed.out.strip() else None


def json_lines(typed: Typed) -> list[Any]:
    """Return the JSON lines of a command."""
    import json

    return [json.loads(line) for line in typed.out.splitlines()]
