"""A command line in a process of its own, made by forking this one: everything is loaded already, a run costs its work.

Before the command runs, the calls through which Python changes files are wrapped, so that the n-th of them can fail, be
done by half, or be the last thing the process does. How the process ended is reported as its parent sees it.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import rmqtool
from rmqtool.cli import main
from rmqtool.engine.interrupts import end_as_asked, listen

# Calls that change something, and those that read.
CHANGING = (
    "pwrite",
    "write",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "ftruncate",
    "posix_fallocate",
    "mkdir",
    "rmdir",
    "close",
)
READING = ("open", "pread", "preadv", "scandir", "fstat", "lstat")
CPU_SECONDS, MOST_MIB = 10, 512


class Ended(NamedTuple):
    """How a command ended: its status, or minus the signal that ended it; both streams; and what it took.

    ``calls`` is how many of the wrapped calls it made.
    """

    status: int
    out: bytes
    err: bytes
    calls: int
    peak_mib: int
    seconds: float

    def unwanted(self) -> list[str]:
        """Return in words what no command may do, whatever it meets."""
        found = []
        if self.status not in _STATUSES:
            found.append(f"status {self.status}: {self.err[-300:].decode(errors='replace')}")
        if b"Traceback (most recent call last)" in self.err:
            found.append(f"a traceback: {self.err[-300:].decode(errors='replace')}")
        if self.peak_mib > MOST_MIB:
            found.append(f"{self.peak_mib} MiB of memory")
        return found


# The table of the design, without 70: that is a bug.
_STATUSES = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 130, 141})
Effect = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def fail_with(number: int) -> Effect:
    """Let the call fail with an error of the system."""

    def effect(_real: Callable[..., Any], _given: tuple[Any, ...], _named: dict[str, Any]) -> Any:
        raise OSError(number, os.strerror(number))

    return effect


def do_half(real: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Write or read half of what is asked for, as the kernel may."""
    if real.__name__ in ("pwrite", "write") and len(given[1]) > 1:
        return real(given[0], memoryview(given[1])[: len(given[1]) // 2], *given[2:], **named)
    if real.__name__ == "pread" and given[1] > 1:
        return real(given[0], given[1] // 2, *given[2:], **named)
    return real(*given, **named)


def end_by(number: int) -> Effect:
    """Send this process a signal before the call; what is left is done as the process handles it."""

    def effect(real: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        os.kill(os.getpid(), number)
        return real(*given, **named)

    return effect


# What no command line of the campaigns loads.
_LEFT_OUT = ("rmqtool.spark", "rmqtool.browse", "rmqtool.testing", "rmqtool.__main__")


@cache
def _load_everything() -> None:
    """Import the package here, so that no child has to."""
    for module in pkgutil.walk_packages(rmqtool.__path__, "rmqtool."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)


def run(
    words: Sequence[str],
    given: bytes = b"",
    at: int = 0,
    effect: Effect | None = None,
    wrapped: Sequence[str] = CHANGING,
    prepare: Callable[[], object] = lambda: None,
) -> Ended:
    """Run a command line; its ``at``-th wrapped call (1 is the first, 0 none) has the effect.

    ``prepare`` is called in the child, before anything is wrapped.
    """
    _load_everything()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as told:
        began = time.monotonic()
        child = os.fork()
        if not child:
            streams = (out.fileno(), err.fileno(), told.fileno())
            _be_the_child(words, given, streams, (at, effect, wrapped), prepare)
        _, status = os.waitpid(child, 0)
        seconds = time.monotonic() - began
        texts = [_read(stream) for stream in (out, err, told)]
    calls, peak = (int(word) for word in (texts[2].split() or (b"0", b"0")))
    return Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], calls, peak >> 10, seconds)


def _read(stream: Any) -> bytes:
    stream.seek(0)
    found: bytes = stream.read()
    return found


def _be_the_child(
    words: Sequence[str],
    given: bytes,
    streams: tuple[int, int, int],
    fault: tuple[int, Effect | None, Sequence[str]],
    prepare: Callable[[], object],
) -> None:
    """Run the command, and end this process."""
    status = 99
    try:
        gc.freeze()
        faulthandler.disable()
        _direct(given, streams)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        listen()
        prepare()
        tell, made = os.pwrite, _wrap(*fault)
        status = int(main(list(words)))
        sys.stdout.flush()
        sys.stderr.flush()
        tell(streams[2], b"%d %d" % (made(), _peak_kib()), 0)
        end_as_asked()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def _direct(given: bytes, streams: tuple[int, int, int]) -> None:
    with tempfile.TemporaryFile() as source:
        source.write(given)
        source.flush()
        os.lseek(source.fileno(), 0, os.SEEK_SET)
        os.dup2(source.fileno(), 0)
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115  (until the end)
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _wrap(at: int, effect: Effect | None, wrapped: Sequence[str]) -> Callable[[], int]:
    """Count the calls, and let one have its effect; return what tells their number."""
    calls = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if effect is not None and calls == at:
                return effect(real, given, named)
            return real(*given, **named)

        call.__name__ = real.__name__
        return call

    for name in wrapped:
        setattr(os, name, counted(getattr(os, name)))
    return lambda: calls


def _peak_kib() -> int:
    """Return the most memory that this process ever had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0
