"""Threads that call something again and again: when woken, and when a time has passed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmqtool.engine.health import Health


class Worker:
    """One thread. It works when it is woken, and every ``period`` seconds; ``work`` says how long it rests after that.

    Whoever computes keeps the others from going on, so a busy worker does more at a time rather than work all the time.
    """

    def __init__(self, name: str, work: Callable[[], float], health: Health, period: float | None = None) -> None:
        self._work = work
        self._period = period
        self._health = health
        self._woken = threading.Event()
        self._is_due = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Let it work, soon."""
        if not self._is_due:
            self._is_due = True
            self._woken.set()

    def stop(self) -> None:
        """Let it end what it is doing, and wait for that."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        rest = 0.0
        while not self._stopping.wait(rest):
            self._woken.wait(self._period)
            self._woken.clear()
            self._is_due = False
            if self._stopping.is_set():
                return
            try:
                rest = self._work()
            except BaseException as error:
                # Nobody stands above a thread: what it dies of is what the store dies of.
                self._health.poison(error)
                raise
