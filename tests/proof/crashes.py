"""Power cuts on the model disk: a life is cut at some call, and many of the disks that this may leave are judged."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.proof.campaign import Campaign, Outcome
from tests.proof.crash_lives import LIVES, DamagedStore, Life, Repairs, Services, Undos
from tests.support.faulty_disk import Crash

# Disks judged of one cut. The first two are the one on which everything arrived and the one on which nothing did.
STATES = 16
# A state of these takes up to ten times as long as one of the others: they have their turn less often.
_SELDOM: dict[type[Life], int] = {Services: 12, Repairs: 4, Undos: 4, DamagedStore: 2}
TURNS = tuple(life for turn in range(12) for life in LIVES if turn % _SELDOM.get(life, 1) == 0)


def cut(kind: type[Life], seed: int, states: int = STATES) -> Outcome:
    """Let a life of this kind lose power once, and judge what may be left."""
    result = Outcome()
    calls = _count_calls(kind, seed)
    call = random.Random(f"{kind.name} {seed} call").randrange(1, calls + 1)
    life = kind(random.Random(f"{kind.name} {seed}"))
    disk = life.lay()
    disk.crash_at(call)
    try:
        life.live(disk)
    except Crash:
        pass
    else:
        # Threads can need fewer calls than they did when they were counted: the disk after the end is judged then.
        disk.crashed = True
    for number, state in enumerate(disk.iter_outcomes(states, seed=seed)):
        where = f"{kind.name}, seed {seed}, power cut in call {call} of {calls}, disk {number}"
        try:
            found = life.judge(state)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        result.judge(found, where)
    return result


def _count_calls(kind: type[Life], seed: int) -> int:
    life = kind(random.Random(f"{kind.name} {seed}"))
    disk = life.lay()
    before = len(disk.calls)
    life.live(disk)
    return len(disk.calls) - before


def run(seed: int, lives: Sequence[type[Life]] = TURNS) -> Outcome:
    """Cut the life whose turn it is."""
    return cut(lives[seed % len(lives)], seed)


CAMPAIGN = Campaign("power cuts on the model disk", "disk states", 450_000, run)
