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
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import rmqtool
from rmqtool import cli
from rmqtool.cli import main
from rmqtool.commands.table import COMMANDS
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
# A command that takes this long without using the processor hangs.
_WALL_SECONDS = 120
# A process that has loaded everything and done nothing.
_LOADED_MIB = 150


class Ended(NamedTuple):
    """How a command ended: its status, or minus the signal that ended it; both streams; the peak of memory.

    ``calls`` is how many of the wrapped calls it made.
    """

    status: int
    out: bytes
    err: bytes
    calls: int
    peak_mib: int

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


def pause(real: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Stop this process before the call, as Ctrl-Z does, until another one lets it go on."""
    stopped = os.getpid()
    other = os.fork()
    if not other:
        try:
            while True:
                time.sleep(0.005)
                os.kill(stopped, signal.SIGCONT)
        finally:
            os._exit(0)
    os.kill(stopped, signal.SIGTSTP)
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    return real(*given, **named)


# What commands load when they come to need it: in each child again, where it is not loaded before.
_LOADED_LATE = (
    "encodings.ascii",
    "encodings.utf_16_be",
    "encodings.utf_32_be",
    "lz4.frame",
    "rocksdict",
    "typer._click.decorators",
    "zstandard",
)
# What no command line of the campaigns loads.
_LEFT_OUT = ("rmqtool.spark", "rmqtool.browse", "rmqtool.testing", "rmqtool.__main__")


@cache
def _load_everything() -> None:
    """Import the package and build the commands here, so that no child has to; let children share the pages."""
    for module in pkgutil.walk_packages(rmqtool.__path__, "rmqtool."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)
    for name in _LOADED_LATE:
        importlib.import_module(name)
    # Building the command line takes as long as a small command. It is the same each time.
    cli._load = cache(cli._load)
    cli.command_tree = cache(cli.command_tree)
    cli.command_tree(COMMANDS)
    for entry in COMMANDS:
        cli._load(entry)
    gc.collect()
    gc.freeze()


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
    return _run([words], given, (at, effect, wrapped), prepare)[0]


def run_all(lines: Sequence[Sequence[str]]) -> list[Ended]:
    """Run command lines in one process, one after the other, at a third of the cost of a process for each.

    Where one ends the process, those after it have another.
    """
    ended: list[Ended] = []
    while len(ended) < len(lines):
        ended += _run(lines[len(ended) :], b"", (0, None, ()), lambda: None)
    return ended


def _run(
    lines: Sequence[Sequence[str]],
    given: bytes,
    fault: tuple[int, Effect | None, Sequence[str]],
    prepare: Callable[[], object],
) -> list[Ended]:
    """Run command lines in one child; return how each ended that began."""
    _load_everything()
    with _memory() as out, _memory() as err, _memory() as told:
        child = os.fork()
        if not child:
            _be_the_child(lines, given, (out.fileno(), err.fileno(), told.fileno()), fault, prepare)
        status = _wait(child)
        texts = [_read(stream) for stream in (out, err, told)]
    ended, begin = [], (0, 0)
    for line in texts[2].splitlines():
        one, calls, peak, *ends = (int(word) for word in line.split())
        ended.append(Ended(one, texts[0][begin[0] : ends[0]], texts[1][begin[1] : ends[1]], calls, peak >> 10))
        begin = ends[0], ends[1]
    if not ended or (status != ended[-1].status and len(ended) < len(lines)):
        ended.append(Ended(status, texts[0][begin[0] :], texts[1][begin[1] :], 0, 0))
    elif status != ended[-1].status:
        # What a command leaves to do until its process ends.
        ended[-1] = ended[-1]._replace(status=status, err=ended[-1].err + texts[1][begin[1] :])
    return ended


def _wait(child: int) -> int:
    """Return the status of a child; one that hangs is killed, and has -9."""
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], _WALL_SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _memory() -> IO[bytes]:
    return open(os.memfd_create("stream"), "w+b")


def _read(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    return stream.read()


def _be_the_child(
    lines: Sequence[Sequence[str]],
    given: bytes,
    streams: tuple[int, int, int],
    fault: tuple[int, Effect | None, Sequence[str]],
    prepare: Callable[[], object],
) -> None:
    """Run the commands, and end this process."""
    status = 99
    try:
        # What the campaigns have made is never garbage here, and looking at it copies its pages.
        gc.freeze()
        faulthandler.disable()
        _direct(given, streams)
        listen()
        prepare()
        # What this process inherited of the campaigns is not the command's.
        inherited = _memory_kib("VmRSS") - _LOADED_MIB * 1024
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
        tell, made = os.write, _wrap(*fault)
        for words in lines:
            _limit()
            status = int(main(list(words)))
            sys.stdout.flush()
            sys.stderr.flush()
            ends = [os.lseek(stream, 0, os.SEEK_CUR) for stream in streams[:2]]
            tell(streams[2], b"%d %d %d %d %d\n" % (status, made(), _memory_kib("VmHWM") - inherited, *ends))
        end_as_asked()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        status = 99
    finally:
        os._exit(status)


def _limit() -> None:
    """Give the next command its processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


def _direct(given: bytes, streams: tuple[int, int, int]) -> None:
    with _memory() as source:
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


def _memory_kib(name: str) -> int:
    """Return what the kernel says of the memory of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"the kernel does not tell {name}")
