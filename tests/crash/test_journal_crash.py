"""The journal under power cuts: at every call of the change and of its undoing; whatever survives, undo completes."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from rmqtool.errors import RmqtoolError
from rmqtool.files.filesystem import Attributes, Kind, iter_tree
from rmqtool.files.journal import BLOCK, JournalledFileSystem, Undone, undo
from tests.support.faulty import FaultyFileSystem, FaultyWritableFile
from tests.support.faulty_disk import Crash, FaultyDisk

State = dict[str, tuple[Attributes, bytes]]


def state(disk: FaultyDisk) -> State:
    files = FaultyFileSystem(disk, "store")
    found: State = {}
    for path, kind in [("", Kind.DIRECTORY), *iter_tree(files)]:
        data = b""
        if kind is Kind.FILE:
            with files.open_read(path) as file:
                data = file.pread(file.size(), 0)
        found[path] = (Attributes.of(files.stat(path)), data)
    return found


def a_store() -> FaultyDisk:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk, "store")
    FaultyFileSystem(disk, "undo")
    files.mkdir("commitlog")
    files.mkdir("config")
    for path, data in (
        ("commitlog/0", b"record" * 300 + bytes(2 * BLOCK)),
        ("config/topics.json", b'{"old":true}'),
        ("checkpoint", b"c" * 1500),
        ("config/delayOffset.json", b"{}"),
        ("abort", b"4711"),
        ("abort.bak", b"1147 and more"),
        ("untouched", b"u" * 100),
    ):
        with files.create(path) as file:
            file.pwrite(data, 0)
            file.fsync()
        files.set_attributes(path, Attributes(0o640, 1001, 1002, 1_000 + len(path)))
        with files.open_write(path) as file:
            file.fsync()
    for directory in ("commitlog", "config", ""):
        files.fsync_dir(directory)
    return disk


def change(disk: FaultyDisk) -> None:
    """What a repair does: overwrite, cut, replace by renaming, remove, create; each with the syncs it owes."""
    files = FaultyFileSystem(disk, "store")
    with JournalledFileSystem(files, FaultyFileSystem(disk, "undo"), {"plan": "7f3c"}) as journalled:
        with journalled.open_write("commitlog/0") as file:
            file.pwrite(b"filler" * 200, 700)
            file.truncate(1800)
            file.fdatasync()
        with journalled.create("config/topics.json.tmp") as file:
            file.pwrite(b'{"new":true}', 0)
            file.fsync()
        journalled.rename("config/topics.json.tmp", "config/topics.json")
        journalled.fsync_dir("config")
        journalled.unlink("abort")
        journalled.mkdir("index")
        with journalled.create("index/20260101", 600) as file:
            file.pwrite(b"i" * 600, 0)
            file.fsync()
        journalled.fsync_dir("index")
        journalled.fsync_dir()
        journalled.rename("checkpoint", "index/checkpoint")
        journalled.fsync_dir("index")
        journalled.fsync_dir()
        # Between directories, over a file of the store: a crash may leave both names to one file.
        journalled.rename("abort.bak", "config/delayOffset.json")
        journalled.fsync_dir("config")
        journalled.fsync_dir()
        journalled.finish()


def take_back(disk: FaultyDisk) -> Undone:
    return undo(FaultyFileSystem(disk, "store"), FaultyFileSystem(disk, "undo"))


def crashes(disk: FaultyDisk, call: int, work: Callable[[FaultyDisk], object]) -> bool:
    disk.crash_at(call)
    try:
        work(disk)
    except Crash:
        return True
    return False


def count_calls(disk: FaultyDisk, work: Callable[[FaultyDisk], object]) -> int:
    before = len(disk.calls)
    work(disk)
    return len(disk.calls) - before


def changed_store() -> FaultyDisk:
    disk = a_store()
    change(disk)
    return disk


BEFORE = state(a_store())
CALLS_OF_CHANGE = count_calls(a_store(), change)
CALLS_OF_UNDO = count_calls(changed_store(), take_back)


def test_there_is_something_to_take_back() -> None:
    after = state(changed_store())
    assert set(after) - set(BEFORE) == {"index", "index/20260101", "index/checkpoint"}
    assert set(BEFORE) - set(after) == {"abort", "abort.bak", "checkpoint"}
    assert after["untouched"] == BEFORE["untouched"]
    assert CALLS_OF_CHANGE > 40
    assert CALLS_OF_UNDO > 30


@pytest.mark.parametrize("call", range(1, CALLS_OF_CHANGE + 1))
def test_a_change_cut_off_anywhere_is_taken_back(call: int) -> None:
    disk = a_store()
    assert crashes(disk, call, change)
    for outcome in disk.iter_outcomes(limit=24, seed=call):
        take_back(outcome)
        assert state(outcome) == BEFORE
        assert all(state(later) == BEFORE for later in outcome.iter_outcomes(limit=4)), "what is undone is durable"


def test_a_change_that_was_completed_survives_the_crash_after_it() -> None:
    disk = changed_store()
    after = {path: data for path, (_, data) in state(disk).items()}
    for outcome in disk.iter_outcomes():
        assert {path: data for path, (_, data) in state(outcome).items()} == after


@pytest.mark.parametrize("call", range(1, CALLS_OF_UNDO + 1))
def test_an_undo_cut_off_anywhere_is_completed_by_the_next(call: int) -> None:
    disk = changed_store()
    assert crashes(disk, call, take_back)
    for outcome in disk.iter_outcomes(limit=16, seed=call):
        take_back(outcome)
        assert state(outcome) == BEFORE
        take_back(outcome)
        assert state(outcome) == BEFORE


@pytest.mark.parametrize("call", range(1, CALLS_OF_UNDO + 1, 4))
def test_the_second_undo_may_be_cut_off_too(call: int) -> None:
    disk = changed_store()
    assert crashes(disk, 1 + CALLS_OF_UNDO * 2 // 3, take_back)
    for outcome in disk.iter_outcomes(limit=4, seed=call):
        crashes(outcome, call, take_back)
        for last in outcome.iter_outcomes(limit=4, seed=call):
            take_back(last)
            assert state(last) == BEFORE


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", range(1, CALLS_OF_CHANGE + 1))
def test_a_change_of_which_any_call_fails_is_taken_back(call: int, number: int) -> None:
    disk = a_store()
    disk.fail(call, number)
    with pytest.raises(RmqtoolError):
        change(disk)
    take_back(disk)
    assert state(disk) == BEFORE


@pytest.mark.parametrize("call", range(1, CALLS_OF_UNDO + 1))
def test_an_undo_of_which_any_call_fails_is_completed_by_the_next(call: int) -> None:
    disk = changed_store()
    disk.fail(call)
    with pytest.raises(RmqtoolError):
        take_back(disk)
    take_back(disk)
    assert state(disk) == BEFORE


def test_a_journal_that_does_not_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness is worth something: without the syncs of the journal, some crash loses old bytes."""
    really = FaultyWritableFile.fdatasync

    def only_the_store(file: FaultyWritableFile) -> None:
        if file.path not in ("journal", "old-bytes"):
            really(file)

    monkeypatch.setattr(FaultyWritableFile, "fdatasync", only_the_store)
    lost = 0
    for call in range(1, count_calls(a_store(), change) + 1):
        disk = a_store()
        crashes(disk, call, change)
        for outcome in disk.iter_outcomes(limit=8, seed=call):
            try:
                take_back(outcome)
            except RmqtoolError:
                lost += 1
            else:
                lost += state(outcome) != BEFORE
    assert lost > 20
