"""Power cuts on the model disk: a life is cut at some call, and many of the disks that this may leave are judged."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import NamedTuple

from rmqtool.config import Version
from tests.proof.campaign import Campaign, Outcome
from tests.proof.crash_lives import (
    Batches,
    DamagedStore,
    Life,
    Mirrors,
    Producers,
    Puts,
    Recoveries,
    Repairs,
    Retention,
    Services,
    Starts,
    Tables,
    Undos,
)
from tests.proof.model_disk import tree_of_disk
from tests.proof.odd_lives import CutSegment, DeletedTopic, Leftovers, LostEnd, OddFiles
from tests.support.faulty_disk import Chooser, Crash, FaultyDisk

LIVES: tuple[type[Life], ...] = (
    Puts,
    Producers,
    Retention,
    Recoveries,
    OddFiles,
    CutSegment,
    LostEnd,
    Leftovers,
    DeletedTopic,
    Services,
    Tables,
    Batches,
    DamagedStore,
    Repairs,
    Undos,
    Mirrors,
    Starts,
)

# Disks judged of one cut. The first two are the one on which everything arrived and the one on which nothing did.
STATES = 16
# A state of these takes up to ten times as long as one of the others: they have their turn less often.
_SELDOM: dict[type[Life], int] = {Services: 12, Repairs: 4, Undos: 4, DamagedStore: 2}
TURNS = tuple(life for turn in range(12) for life in LIVES if turn % _SELDOM.get(life, 1) == 0)


class Cut(NamedTuple):
    """A life that lost power: what it had promised, the disk with all that is in doubt, and in which call it was."""

    life: Life
    disk: FaultyDisk
    call: int
    calls: int


def lose_power(kind: type[Life], seed: int, version: Version | None = None) -> Cut:
    """Let a life of this kind, with a store of ``version`` if one is given, lose power once."""
    calls = _count_calls(kind, seed, version)
    call = random.Random(f"{kind.name} {seed} call").randrange(1, calls + 1)
    life = _born(kind, seed, version)
    disk = life.lay()
    disk.crash_at(call)
    try:
        life.live(disk)
    except Crash:
        pass
    else:
        # Threads can need fewer calls than they did when they were counted: the disk after the end is judged then.
        disk.crashed = True
    return Cut(life, disk, call, calls)


def _born(kind: type[Life], seed: int, version: Version | None) -> Life:
    life = kind(random.Random(f"{kind.name} {seed}"))
    life.version = version or life.version
    return life


def cut(kind: type[Life], seed: int, states: int = STATES) -> Outcome:
    """Let a life of this kind lose power once, and judge what may be left."""
    result = Outcome()
    life, disk, call, calls = lose_power(kind, seed)
    for number, state in enumerate(disk.iter_outcomes(states, seed=seed)):
        where = f"{kind.name}, seed {seed}, power cut in call {call} of {calls}, disk {number}"
        result.judge(_judged(life, state), where)
    return result


def walk(kind: type[Life], seed: int, random_one_in: int = 4, *, to_the_end: bool = True) -> Outcome:
    """Live once, and judge what a power cut inside each call would have left at the least.

    That is where nothing arrived that was not synced, or only the names did, or only the bytes; and now and then a
    random state. It is what a sync is for: leave one out, and one of these disks breaks a promise. States that do not
    differ are judged once. Without ``to_the_end`` the first failure is enough.
    """
    result, chance = Outcome(), random.Random(f"{kind.name} {seed} walk")
    life = kind(random.Random(f"{kind.name} {seed}"))
    disk = life.lay()
    seen: dict[bytes, tuple[FaultyDisk, Life, str]] = {}

    def look() -> None:
        states = {word: disk.after_crash(*choosers) for word, choosers in _LEAST.items()}
        if chance.randrange(random_one_in) == 0:
            states["random"] = disk.after_crash(chance.randrange)
        for word, state in states.items():
            where = f"{kind.name}, seed {seed}, power cut in call {len(disk.calls)}, {word}"
            seen.setdefault(_signature(state, life), (state, life.frozen(), where))

    disk.watch = look
    life.live(disk)
    look()
    for state, promised, where in seen.values():
        result.judge(_judged(promised, state), where)
        if result.failures and not to_the_end:
            break
    return result


# What survives of bytes, and of names: 1 is "as if never done".
_LEAST: dict[str, tuple[Chooser, Chooser]] = {
    "nothing arrived": (lambda _count: 1, lambda _count: 1),
    "only names arrived": (lambda _count: 1, lambda _count: 0),
    "only bytes arrived": (lambda _count: 0, lambda _count: 1),
}


def _signature(state: FaultyDisk, life: Life) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for path, data in sorted(tree_of_disk(state, "").items()):
        made.update(b"%d %d " % (len(path), len(data)) + path.encode() + data)
    made.update(repr(life.promises()).encode())
    return made.digest()


def _judged(life: Life, state: FaultyDisk) -> list[str]:
    try:
        return life.judge(state)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def _count_calls(kind: type[Life], seed: int, version: Version | None) -> int:
    life = _born(kind, seed, version)
    disk = life.lay()
    before = len(disk.calls)
    life.live(disk)
    return len(disk.calls) - before


def run(seed: int, lives: Sequence[type[Life]] = TURNS) -> Outcome:
    """Cut the life whose turn it is."""
    return cut(lives[seed % len(lives)], seed)


CAMPAIGN = Campaign("power cuts on the model disk", "disk states", 450_000, run)
