"""Delivery, retry, commit and revive, cut short at every call of the disk: at least once, and uncut exactly once.

What waits is laid down durably, then everything is due. The power goes at some call; the store is recovered, and what
is still due happens. Nothing that was promised may be missing.
"""

from __future__ import annotations

import pytest

from rmqtool.config import Version
from rmqtool.engine.recovery.recover import recover
from tests.crash.waiting_life import lay, live_on, promised, setup_on
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Crash, FaultyDisk

# The long run is in so many parts; a life makes more calls than this.
PARTS, FEWEST_CALLS = 8, 50


def on(disk: FaultyDisk) -> FaultyFileSystem:
    return FaultyFileSystem(disk, "store")


def waiting_disk(version: Version) -> FaultyDisk:
    disk = FaultyDisk()
    lay(on(disk), version)
    disk.calls.clear()
    return disk


BOTH = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])


@BOTH
def test_uncut_everything_comes_once(version: Version) -> None:
    disk = waiting_disk(version)
    assert live_on(on(disk), version) == dict.fromkeys(promised(version), 1)


def check_cut(version: Version, call: int) -> bool:
    """Cut at a call, go on, and judge; False when there are not so many calls."""
    disk = waiting_disk(version)
    disk.crash_at(call)
    try:
        live_on(on(disk), version)
    except Crash:
        for outcome in disk.iter_outcomes(2, seed=call):
            recover(setup_on(on(outcome), version))
            found = live_on(on(outcome), version)
            missing = promised(version) - found.keys()
            assert not missing, (call, missing)
            assert set(found) == promised(version)
        return True
    return False


@BOTH
@pytest.mark.parametrize("part", range(4))
def test_cut_at_some_calls_nothing_is_missing(version: Version, part: int) -> None:
    for call in range(3 + part * 9, 400, 41):
        if not check_cut(version, call):
            break


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("part", range(PARTS))
def test_cut_at_every_call_nothing_is_missing(version: Version, part: int) -> None:
    call = 1 + part
    while check_cut(version, call):
        call += PARTS
    assert call > FEWEST_CALLS
