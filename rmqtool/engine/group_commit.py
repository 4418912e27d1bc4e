"""Who forces: of many producers who wait for the disk one does it for all, and the others sleep.

Upstream: ``GroupCommitService``. Everybody sleeps on a lock of its own. Woken one by one through a common lock, the
first would force again before the last knows that it need not wait any more; so whoever has forced wakes all those
whose messages are durable, and hands the turn to one of the others.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import Enum

_WHATEVER_IS_DURABLE = sys.maxsize


class Turn(Enum):
    """What came of waiting."""

    MINE = "force now, and say so when it is done"
    DONE = "somebody else has forced it"
    TOO_LATE = "it took too long"


class _Sleeper:
    __slots__ = ("is_done", "lock", "turn")

    def __init__(self, is_done: Callable[[int], bool]) -> None:
        self.is_done = is_done
        self.turn = Turn.TOO_LATE
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self, turn: Turn) -> None:
        self.turn = turn
        self.lock.release()


class GroupCommit:
    """Gives the turn to one at a time."""

    def __init__(self, flushed_offset: Callable[[], int]) -> None:
        self._flushed_offset = flushed_offset
        self._guard = threading.Lock()
        self._is_taken = False
        self._sleepers: list[_Sleeper] = []

    @property
    def is_taken(self) -> bool:
        """Whether somebody forces now."""
        return self._is_taken

    @property
    def sleeping(self) -> int:
        """How many wait."""
        return len(self._sleepers)

    def take_turn(self) -> None:
        """Wait for the turn, whatever is durable by then."""
        self.wait(_WHATEVER_IS_DURABLE, -1)

    def wait(self, physical_offset: int, timeout: float) -> Turn:
        """Wait until everything before an offset is durable, or it is the caller's turn to make it so; in seconds."""
        return self.wait_until(physical_offset.__le__, timeout)

    def wait_until(self, is_done: Callable[[int], bool], timeout: float) -> Turn:
        """Wait until nothing is left to do with the log durable up to some offset, or it is the caller's turn."""
        with self._guard:
            if is_done(self._flushed_offset()):
                return Turn.DONE
            if not self._is_taken:
                self._is_taken = True
                return Turn.MINE
        return self._sleep(_Sleeper(is_done), timeout)

    def _sleep(self, sleeper: _Sleeper, timeout: float) -> Turn:
        try:
            with self._guard:
                if not self._is_taken:
                    # Given back in the meantime.
                    self._is_taken = True
                    return Turn.MINE
                self._sleepers.append(sleeper)
            woken = sleeper.lock.acquire(timeout=timeout)
        except BaseException:
            # Interrupted: nobody would take a turn that is given to it.
            self._leave(sleeper)
            if sleeper.turn is Turn.MINE:
                self.end_turn()
            raise
        if not woken:
            self._leave(sleeper)
        return sleeper.turn

    def _leave(self, sleeper: _Sleeper) -> None:
        """Sleep no more, unless somebody has just woken it."""
        with self._guard:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def end_turn(self) -> None:
        """Wake those whose messages are durable, and give the turn to the first of the others."""
        with self._guard:
            reached = self._flushed_offset()
            left = []
            for sleeper in self._sleepers:
                if sleeper.is_done(reached):
                    sleeper.wake(Turn.DONE)
                else:
                    left.append(sleeper)
            self._is_taken = bool(left)
            if left:
                left.pop(0).wake(Turn.MINE)
            self._sleepers = left
