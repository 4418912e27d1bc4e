"""A repair, and the taking back of one, under power cuts at every call: whatever survives, either of them completes."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from rmqtool.errors import RmqtoolError, WriteFailed
from rmqtool.files.filesystem import Kind, iter_tree
from rmqtool.files.journal import read_journal
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.journals import PastRepair
from rmqtool.repairs.plan import Plan, Request, plan_repair
from rmqtool.repairs.run import Places, apply_plan, take_back
from rmqtool.repairs.steps import Risk
from rmqtool.store.listing import list_store
from rmqtool.store.open import Store
from tests.crash.test_journal_crash import State, state
from tests.crash.test_recovery_crash import damaged_disk, setup_on
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Crash, FaultyDisk

EVERY = Request(risks=frozenset(Risk))


def a_disk() -> FaultyDisk:
    """Return the disk with the damaged store, all of it durable, and a place for journals."""
    disk = damaged_disk()
    FaultyFileSystem(disk, "undo")
    files = FaultyFileSystem(disk, "store")
    for path, kind in [("", Kind.DIRECTORY), *iter_tree(files)]:
        if kind is Kind.DIRECTORY:
            files.fsync_dir(path)
        else:
            with files.open_write(path) as file:
                file.fsync()
    disk.calls.clear()
    return disk


def areas_on(disk: FaultyDisk) -> Areas:
    setup = setup_on(disk)
    config, files = setup.config, setup.files
    listing = list_store(files, [("commitlog", files)])
    return Areas(Store(config.root_dir, files, config, listing, config.version, "as the test says"))


def places_on(disk: FaultyDisk) -> Places:
    store, journals = FaultyFileSystem(disk, "store"), FaultyFileSystem(disk, "undo")
    return Places([store], journals, lambda path: FaultyFileSystem(disk, f"undo/{path}"))


def unfinished(places: Places) -> list[str]:
    """Return the names of repairs that were interrupted, or whose undo was."""
    found = []
    for repair_of in places.journals.listdir():
        areas = sorted((entry.name for entry in places.journals.listdir(repair_of.name)), key=int)
        journals = [places.open_journals(f"{repair_of.name}/{area}") for area in areas]
        if PastRepair(repair_of.name, tuple(map(read_journal, journals))).is_unfinished:
            found.append(repair_of.name)
    return found


def repair(disk: FaultyDisk) -> tuple[Plan, str]:
    """Take back what was cut short, plan, and do it."""
    places = places_on(disk)
    for name in unfinished(places):
        take_back(places, name)
    with areas_on(disk) as areas:
        plan = plan_repair(areas, EVERY)
        return plan, apply_plan(areas, plan, places)


def undo_all(disk: FaultyDisk) -> None:
    places = places_on(disk)
    for entry in places.journals.listdir():
        take_back(places, entry.name)


def check_repaired(disk: FaultyDisk) -> None:
    """Repair once more: there is nothing to do, and nothing is wrong."""
    with areas_on(disk) as areas:
        plan = plan_repair(areas, EVERY)
    assert (plan.steps, plan.left) == ([], [])


def calls_of(work: Callable[[FaultyDisk], object], disk: FaultyDisk) -> int:
    disk.calls.clear()
    work(disk)
    return len(disk.calls)


def a_repaired_disk() -> FaultyDisk:
    disk = a_disk()
    repair(disk)
    disk.calls.clear()
    return disk


def check_cut_short(work: Callable[[FaultyDisk], object], disk: FaultyDisk, call: int, before: State) -> None:
    """Cut the power at a call: from every outcome the repair completes, and so does its undoing."""
    disk.crash_at(call)
    with pytest.raises(Crash):
        work(disk)
    for outcome in disk.iter_outcomes(2, seed=call):
        undo_all(outcome)
        assert state(outcome) == before
    for outcome in disk.iter_outcomes(2, seed=call):
        repair(outcome)
        check_repaired(outcome)
        undo_all(outcome)
        assert state(outcome) == before


BEFORE = state(a_disk())
REPAIR_CALLS = calls_of(repair, a_disk())
UNDO_CALLS = calls_of(undo_all, a_repaired_disk())


def test_a_repair_changes_all_that_is_wrong_and_its_undoing_brings_all_of_it_back():
    disk = a_disk()
    plan, _ = repair(disk)
    actions = {(step.risk, step.action) for step in plan.steps}
    assert {("primary", "bridge"), ("derived", "create"), ("derived", "modify"), ("derived", "delete")} <= actions
    assert plan.left == []
    check_repaired(disk)
    undo_all(disk)
    assert state(disk) == BEFORE


@pytest.mark.parametrize("call", range(1, REPAIR_CALLS + 1, 7))
def test_a_repair_that_loses_power_completes_or_is_undone(call):
    check_cut_short(repair, a_disk(), call, BEFORE)


@pytest.mark.parametrize("call", range(1, UNDO_CALLS + 1, 7))
def test_an_undoing_that_loses_power_completes(call):
    check_cut_short(undo_all, a_repaired_disk(), call, BEFORE)


def check_failed(call: int, number: int) -> None:
    """Let a call of a repair fail, for a full disk or a bad one: all is as it was, and no journal is left."""
    disk = a_disk()
    disk.fail(call, number)
    with pytest.raises(WriteFailed) as failed:
        repair(disk)
    assert "earlier changes were undone" in failed.value.message
    assert state(disk) == BEFORE
    assert FaultyFileSystem(disk, "undo").listdir() == []


def check_undoing_failed(call: int) -> None:
    """Let a call of an undoing fail: the next one completes it."""
    disk = a_repaired_disk()
    disk.fail(call, errno.ENOSPC)
    with pytest.raises(RmqtoolError):
        undo_all(disk)
    undo_all(disk)
    assert state(disk) == BEFORE


@pytest.mark.parametrize("call", range(4, REPAIR_CALLS + 1, 11))
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_repair_of_which_a_call_fails_is_taken_back_at_once(call, number):
    check_failed(call, number)


@pytest.mark.parametrize("call", range(1, UNDO_CALLS + 1, 11))
def test_an_undoing_of_which_a_call_fails_is_completed_by_the_next(call):
    check_undoing_failed(call)


def test_a_disk_that_stays_full_is_named_with_the_way_back():
    disk = a_disk()

    for call in range(REPAIR_CALLS // 2, 4 * REPAIR_CALLS):
        disk.fail(call, errno.ENOSPC)
    with pytest.raises(WriteFailed) as failed:
        repair(disk)
    assert failed.value.hint is not None
    assert "--undo" in failed.value.hint


@pytest.mark.slow
def test_every_call_of_a_repair_and_of_its_undoing_may_fail():
    for call in range(1, REPAIR_CALLS + 1):
        check_failed(call, errno.ENOSPC)
    for call in range(1, UNDO_CALLS + 1):
        check_undoing_failed(call)


@pytest.mark.slow
def test_every_call_of_a_repair_and_of_its_undoing_may_be_the_last():
    for call in range(1, REPAIR_CALLS + 1):
        check_cut_short(repair, a_disk(), call, BEFORE)
    for call in range(1, UNDO_CALLS + 1):
        check_cut_short(undo_all, a_repaired_disk(), call, BEFORE)
