"""``browse`` on a store of 50 sparse GiB with 20,000 topics, in a terminal: the first screen, keys, memory.

Times are printed: from the key until the last byte of its answer, and what the process took of the processor.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.test_browse_walk import large_store

pytestmark = pytest.mark.bench
TOPICS = 20_000
MOST_MIB = 200
FIRST_MS, KEY_MS = 500, 50
BYTES = {
    "down": b"\x1b[B",
    "enter": b"\r",
    "tab": b"\t",
    "pagedown": b"\x1b[6~",
    "end": b"\x1b[F",
    "home": b"\x1b[H",
    "backspace": b"\x7f",
}
KEYS = ("down", "enter", "end", "home", "pagedown", "enter", "down", "pagedown", "backspace", "tab", "down", "enter")
KEYS += ("end", "enter", "pagedown", "tab")
# Seconds without output after which an answer is complete, and the longest time until one begins.
QUIET, PATIENCE = 0.2, 30


class Terminal:
    """A process in a terminal of 80 columns and 24 lines."""

    def __init__(self, *words: str) -> None:
        self.pid, self.file = pty.fork()
        if not self.pid:
            os.execve(sys.executable, [sys.executable, *words], {**os.environ, "TERM": "xterm-256color"})
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def answer(self) -> float:
        """Return the milliseconds until the last byte of what comes next."""
        began = time.perf_counter()
        last = began
        while select.select([self.file], [], [], QUIET if last > began else PATIENCE)[0]:
            if not os.read(self.file, 1 << 16):
                break
            last = time.perf_counter()
        return (last - began) * 1000

    def key(self, name: str) -> float:
        """Press a key and return the milliseconds until it was answered."""
        os.write(self.file, BYTES[name])
        return self.answer()

    def processor(self) -> float:
        """Return the milliseconds of processor time that were used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def quit(self) -> float:
        """Quit and return the most MiB that the process had."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        os.write(self.file, b"q")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.file)
        assert status == 0
        return int(text.split("VmHWM:")[1].split()[0]) / 1024


def test_a_large_store_is_shown_at_once(tmp_path: Path) -> None:
    root = large_store(tmp_path / "store", TOPICS)
    terminal = Terminal("-m", "rmqtool", "browse", str(root), "--tz", "UTC")
    first = terminal.answer()
    used = terminal.processor()
    times = [(name, terminal.key(name)) for name in KEYS]
    memory = terminal.quit()
    shown = ", ".join(f"{name} {took:.0f}" for name, took in times)
    print(f"\nbrowse, 50 GiB and {TOPICS} topics: {memory:.0f} MiB ({MOST_MIB}),")
    print(f"first screen {first:.0f} ms ({FIRST_MS}), {used:.0f} ms of processor")
    print(f"keys in ms ({KEY_MS}): {shown}")
    assert memory <= MOST_MIB
