"""A user's program that turns bodies into text: it reads one line of base64 and answers with one line of text."""

from __future__ import annotations

import base64
import shlex
import subprocess
from typing import Self

from rmqtool.errors import UsageError

# The prefix of a ``--decode`` that names a program, and the prefix of an answer that leaves a body undecoded.
PREFIX = "cmd:"
_FAILED = "ERROR"


class BodyProgram:
    """The program, started once for all bodies. An answer that begins with ERROR leaves the body as it is.

    Raises UsageError if the text does not name a program that can be started.
    """

    def __init__(self, text: str) -> None:
        self.command = _parse(text)
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the user typed this command)
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise UsageError(
                f"--decode: {self.command[0]} cannot be run: {error.strerror}",
                hint="give its whole path, and make it executable (chmod +x)",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def decode(self, body: bytes) -> str | None:
        """Return the program's text for a body, or None if the answer begins with ERROR.

        Raises UsageError if the program ended before it answered.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(base64.b64encode(body).decode("ascii") + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line.endswith("\n"):
            name = self.command[0]
            raise UsageError(
                f"--decode: {name} ended before it answered",
                hint=f"{name} must answer each line before it reads the next",
            )
        return None if line.startswith(_FAILED) else line[:-1]


def _parse(text: str) -> list[str]:
    """Return the program and its arguments; raise UsageError if ``text`` does not name a program."""
    example = "for example: --decode 'cmd:python3 decode.py'"
    if not text.startswith(PREFIX):
        raise UsageError(f'--decode takes {PREFIX}PROGRAM, not "{text}"', hint=example)
    try:
        command = shlex.split(text.removeprefix(PREFIX))
    except ValueError as error:
        raise UsageError(f'--decode "{text}" does not parse: {error}', hint=example) from error
    if not command:
        raise UsageError("--decode needs a program", hint=example)
    return command
