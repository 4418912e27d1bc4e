"""The bar on stderr. It implements ``rmqtool.progress.Progress``; the command decides whether there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from time import monotonic
from typing import IO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from rmqtool.render.text import size

# Seconds without other output before the bar is drawn again; without them it flickers beside rows that come slowly.
_STILL = 0.3


class _Speed(ProgressColumn):
    """Bytes per second in the units of everything else here."""

    def render(self, task: Task) -> Text:
        """Return the speed, once there is one."""
        speed = task.finished_speed or task.speed
        return Text(f"{size(int(speed))}/s" if speed else "")


class TerminalProgress:
    """Shows one piece of long work at a time and clears its line at the end."""

    def __init__(self, stderr: IO[str] | None = None) -> None:
        # --progress always: also if stderr is not a terminal.
        self._console = Console(file=stderr or sys.stderr, force_terminal=True, force_interactive=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._is_hidden = False
        # How many are writing to the terminal now.
        self._writers = 0
        self._written_at = 0.0
        # Messages of a cluster are counted in another thread than that which writes them.
        self._lock = RLock()

    def start(self, what: str, total: int | None, unit: str) -> None:
        """Begin ``what``; a piece that was not finished ends."""
        self.finish()
        amount: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn(unit)]
        if unit == "bytes":
            amount = [DownloadColumn(binary_units=True), _Speed()]
        remaining = TimeElapsedColumn() if total is None else TimeRemainingColumn()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *amount,
            remaining,
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(what, total=total)
        self._is_hidden = False
        self._bar.start()

    def advance(self, amount: int) -> None:
        """Add ``amount`` units done."""
        with self._lock:
            if self._bar is not None and self._task is not None:
                self._bar.advance(self._task, amount)
                is_still = not self._writers and monotonic() - self._written_at >= _STILL
                if self._is_hidden and is_still:
                    self._is_hidden = False
                    self._bar.start()

    def finish(self) -> None:
        """End the piece of work and clear its line."""
        with self._lock:
            if self._bar is not None:
                if not self._is_hidden:
                    self._bar.stop()
                self._bar = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Clear the bar while others write to the terminal; it is drawn again with later progress."""
        # The terminal can stop taking output for long. Threads that count must not wait for it.
        with self._lock:
            self._writers += 1
            if self._bar is not None and not self._is_hidden:
                self._bar.stop()
                self._is_hidden = True
        try:
            yield
        finally:
            with self._lock:
                self._writers -= 1
                self._written_at = monotonic()
