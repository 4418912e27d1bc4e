"""Lives of a store, each in a process of its own that ends itself by SIGKILL before its n-th call that changes a file.

    python -m tests.crash.killed_lives VERSION

A line ``ROOT NUMBER`` on standard input is a life. The answer is ``killed``, or ``lived`` when there are fewer calls.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from rmqtool.config import Version
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.crash.waiting_life import live_on

CALLS = ("pwrite", "write", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "posix_fallocate")


def kill_before(number: int) -> None:
    """Let the n-th call from now on not happen, nor anything behind it."""
    numbers = itertools.count(1)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if next(numbers) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def live(root: str, number: int, version: Version) -> None:
    """Live in this process, until it is killed."""
    kill_before(number)
    with PosixWritableFileSystem(root) as files:
        live_on(files, version)


def answer(live_it: Callable[[list[str]], None]) -> None:
    """Live once for each line of standard input, with its words, in a process of its own; say how the life ended."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                live_it(line.split())
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print({-signal.SIGKILL: "killed", 0: "lived"}.get(code, f"failed with {code}"), flush=True)


if __name__ == "__main__":
    answer(lambda words: live(words[0], int(words[1]), Version(sys.argv[1])))
