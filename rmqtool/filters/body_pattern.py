"""A regular expression that bodies are searched for, with a bound on what one body may cost.

Python's engine tries every way to match: ``(a+)+$`` on forty letters takes longer than anybody waits. The engine looks
for signals while it works, so a timer of the processor's time can stop it. Timers belong to the main thread; elsewhere
nothing is bounded.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from rmqtool.errors import UsageError

# The processor's time in seconds for one body. Others read some MiB in a hundredth of it.
MOST_SECONDS = 5.0


class _TooLong(Exception):
    """The timer has run out."""


@dataclass(frozen=True, slots=True)
class BodyPattern:
    """One pattern; a body is wanted when it is found in it."""

    expression: re.Pattern[str]

    def search(self, texts: Iterable[str], most_seconds: float = MOST_SECONDS) -> list[bool]:
        """Return in which texts the pattern is found."""
        with _timer(most_seconds) as start:
            found = []
            try:
                for text in texts:
                    start()
                    found.append(self.expression.search(text) is not None)
            except _TooLong as error:
                raise UsageError(
                    f"--body-re {self.expression.pattern!r} took more than {most_seconds:g} s on one body of "
                    f"{len(text)} characters: it backtracks too much",
                    hint="avoid nested repeats such as (a+)+; a++ and (?>a+) do not backtrack",
                ) from error
            return found


@contextmanager
def _timer(seconds: float) -> Iterator[Callable[[], object]]:
    """Give what starts the time anew."""
    if threading.current_thread() is not threading.main_thread():
        yield _do_nothing
        return
    previous = signal.signal(signal.SIGVTALRM, _give_up)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise _TooLong


def _do_nothing() -> None:
    """There is no timer here."""
