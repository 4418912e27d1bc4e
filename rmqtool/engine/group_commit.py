"""Who forces: of many producers who wait for the disk one does it for all, and the others sleep.

Upstream: ``GroupCommitService``. Everybody sleeps on a lock of its own. Woken one by one through a common lock, the
first would force again before the last knows that it need not wait any more; so whoever has forced wakes those whose
messages are durable. It wakes the first of them, who wakes the next: all at once they would only queue for the
interpreter.

Most of them come back at once with the next message. So the turn is not given to those who came meanwhile, and forcing
for half of the producers while the other half wait: the last one who is expected takes it, and is awake already. Who
sleeps looks from time to time whether the turn is free, so nobody is waited for much longer than a sync takes; and
where somebody did not come back, turns are handed on directly for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from itertools import pairwise

# How long those who are expected are waited for, in seconds; who sleeps longer looks less often.
_PATIENCE = 0.001
# So many turns are handed on directly after somebody was waited for in vain.
_DOUBTS = 64


class Turn(Enum):
    """What came of waiting."""

    MINE = "force now, and say so when it is done"
    DONE = "somebody else has forced it"
    TOO_LATE = "it took too long"


class _Sleeper:
    __slots__ = ("is_done", "lock", "next", "turn")

    def __init__(self, is_done: Callable[[int], bool] | None) -> None:
        self.is_done = is_done
        self.turn = Turn.TOO_LATE
        # Who is woken by this one.
        self.next: _Sleeper | None = None
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self) -> None:
        self.lock.release()

    def wake_next(self) -> None:
        following, self.next = self.next, None
        if following is not None:
            following.wake()


class GroupCommit:
    """Gives the turn to one at a time."""

    def __init__(self, flushed_offset: Callable[[], int]) -> None:
        self._flushed_offset = flushed_offset
        self._guard = threading.Lock()
        self._is_taken = False
        # How many of those who need not wait any more are waited for, while nobody forces.
        self._expected = 0
        self._doubts = 0
        self._sleepers: list[_Sleeper] = []

    @property
    def is_taken(self) -> bool:
        """Whether somebody forces now, or will when those who are expected have come."""
        return self._is_taken or self._expected > 1 or (self._expected == 1 and bool(self._sleepers))

    @property
    def sleeping(self) -> int:
        """How many wait."""
        return len(self._sleepers)

    def take_turn(self) -> None:
        """Wait for the turn, whatever is durable by then."""
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
        self._sleep(_Sleeper(None), -1)

    def wait(self, physical_offset: int, timeout: float) -> Turn:
        """Wait until everything before an offset is durable, or it is the caller's turn to make it so; in seconds."""
        return self.wait_until(physical_offset.__le__, timeout)

    def wait_until(self, is_done: Callable[[int], bool], timeout: float) -> Turn:
        """Wait until nothing is left to do with the log durable up to some offset, or it is the caller's turn."""
        with self._guard:
            if is_done(self._flushed_offset()):
                return Turn.DONE
            if self._may_force():
                return Turn.MINE
        return self._sleep(_Sleeper(is_done), timeout)

    def _may_force(self) -> bool:
        """Take the turn if nobody has it, and nobody is expected but who asks."""
        if self._is_taken or self._expected > 1:
            return False
        self._expected = 0
        self._is_taken = True
        return True

    def _sleep(self, sleeper: _Sleeper, timeout: float) -> Turn:
        try:
            with self._guard:
                if self._may_force():
                    # Given back in the meantime.
                    return Turn.MINE
                if self._expected and sleeper.is_done is not None:
                    self._expected -= 1
                self._sleepers.append(sleeper)
            self._sleep_on(sleeper, timeout)
            sleeper.wake_next()
        except BaseException:
            # Interrupted: nobody would take a turn that is given to it.
            self._leave(sleeper)
            sleeper.wake_next()
            if sleeper.turn is Turn.MINE:
                self.end_turn()
            raise
        return sleeper.turn

    def _sleep_on(self, sleeper: _Sleeper, timeout: float) -> None:
        """Sleep until woken, until it is too late, or until those who are expected are late."""
        patience = _PATIENCE
        while timeout < 0 or patience < timeout:
            if sleeper.lock.acquire(timeout=patience):
                return
            with self._guard:
                if sleeper not in self._sleepers:
                    return  # who should have woken it was interrupted
                if not self._is_taken:
                    self._expected, self._doubts = 0, _DOUBTS
                    self._give_turn(self._sleepers[0])
            timeout -= patience if timeout > 0 else 0
            patience *= 2
        if not sleeper.lock.acquire(timeout=timeout):
            self._leave(sleeper)

    def _give_turn(self, sleeper: _Sleeper) -> None:
        self._is_taken = True
        self._sleepers.remove(sleeper)
        sleeper.turn = Turn.MINE
        sleeper.wake()

    def _leave(self, sleeper: _Sleeper) -> None:
        """Sleep no more, unless somebody has just woken it."""
        with self._guard:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def end_turn(self, *, returns: bool = False) -> None:
        """Wake those whose messages are durable; the turn is for the first of the others, or for who is expected.

        ``returns``: the caller is one of those who will come with a next message.
        """
        with self._guard:
            reached = self._flushed_offset()
            done: list[_Sleeper] = []
            left: list[_Sleeper] = []
            for sleeper in self._sleepers:
                is_done = sleeper.is_done is not None and sleeper.is_done(reached)
                (done if is_done else left).append(sleeper)
            if self._doubts:
                self._doubts -= 1
            else:
                self._expected += len(done) + returns
            self._sleepers = left
            self._is_taken = False
            # Who forces for others than producers waits for none of them.
            following = next((one for one in left if one.is_done is None or not self._expected), None)
            if following is not None:
                self._give_turn(following)
            for sleeper, behind in pairwise(done):
                sleeper.next = behind
            for sleeper in done:
                sleeper.turn = Turn.DONE
            if done:
                done[0].wake()
