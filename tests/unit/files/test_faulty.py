"""The faulty disk loses what it may lose, and nothing else: a test that cannot fail would prove nothing."""

from __future__ import annotations

import errno

import pytest

from rmqtool.errors import NoSpace, ReadFailed, StoreInUse, WriteFailed
from rmqtool.files.filesystem import Attributes
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import SECTOR, Call, Crash, FaultyDisk


def contents(disk: FaultyDisk, path: str) -> bytes | None:
    files = FaultyFileSystem(disk)
    if not files.exists(path):
        return None
    with files.open_read(path) as file:
        return file.pread(file.size(), 0)


def possible(disk: FaultyDisk, path: str, limit: int = 2000) -> set[bytes | None]:
    return {contents(outcome, path) for outcome in disk.iter_outcomes(limit)}


def durable_file(disk: FaultyDisk, data: bytes) -> FaultyFileSystem:
    files = FaultyFileSystem(disk)
    with files.create("f") as file:
        file.pwrite(data, 0)
        file.fsync()
    files.fsync_dir()
    return files


def test_what_was_synced_survives_every_crash() -> None:
    disk = FaultyDisk()
    durable_file(disk, b"old")
    assert possible(disk, "f") == {b"old"}


def test_an_unsynced_write_may_survive_or_not() -> None:
    disk = FaultyDisk()
    with durable_file(disk, b"old").open_write("f") as file:
        file.pwrite(b"new", 0)
        assert file.pread(3, 0) == b"new"
        assert possible(disk, "f") == {b"old", b"new"}
        file.fdatasync()
    assert possible(disk, "f") == {b"new"}


def test_writes_survive_in_any_order() -> None:
    disk = FaultyDisk()
    with durable_file(disk, b"..").open_write("f") as file:
        file.pwrite(b"1", 0)
        file.pwrite(b"2", 1)
    assert possible(disk, "f") == {b"..", b"1.", b".2", b"12"}


def test_a_write_is_torn_at_sectors() -> None:
    disk = FaultyDisk()
    old, new = b"o" * (3 * SECTOR), b"n" * (3 * SECTOR)
    with durable_file(disk, old).open_write("f") as file:
        file.pwrite(new, 0)
    border = {SECTOR, 2 * SECTOR}
    torn = {new[:at] + old[at:] for at in border} | {old[:at] + new[at:] for at in border}
    middle_lost = new[:SECTOR] + old[SECTOR : 2 * SECTOR] + new[2 * SECTOR :]
    assert possible(disk, "f") == {old, new, middle_lost} | torn


def test_a_file_may_grow_without_its_bytes() -> None:
    disk = FaultyDisk()
    with durable_file(disk, b"a").open_write("f") as file:
        file.pwrite(b"bc", 1)
    assert possible(disk, "f") == {b"a", b"a\0\0", b"abc"}


def test_a_cut_may_be_lost() -> None:
    disk = FaultyDisk()
    with durable_file(disk, b"abc").open_write("f") as file:
        file.truncate(1)
        file.truncate(2)
    assert possible(disk, "f") == {b"abc", b"a\0", b"a", b"ab"}


def test_a_name_lives_from_the_sync_of_its_directory_on() -> None:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    with files.create("f") as file:
        file.pwrite(b"x", 0)
        file.fsync()
    assert possible(disk, "f") == {None, b"x"}
    files.fsync_dir()
    assert possible(disk, "f") == {b"x"}
    files.unlink("f")
    assert possible(disk, "f") == {None, b"x"}
    files.fsync_dir()
    assert possible(disk, "f") == {None}


def test_a_rename_before_the_sync_of_the_data_may_leave_an_empty_file() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"old")
    with files.create("tmp") as file:
        file.pwrite(b"new", 0)
    files.rename("tmp", "f")
    files.fsync_dir()
    assert possible(disk, "f") == {b"", b"\0\0\0", b"new"}


def test_a_rename_is_all_or_nothing() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"old")
    with files.create("tmp") as file:
        file.pwrite(b"new", 0)
        file.fsync()
    files.fsync_dir()
    files.rename("tmp", "f")
    states = {(contents(outcome, "f"), contents(outcome, "tmp")) for outcome in disk.iter_outcomes()}
    assert states == {(b"old", b"new"), (b"new", None)}


def test_a_rename_between_directories_never_loses_the_file() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"x")
    files.mkdir("d")
    files.fsync_dir()
    files.rename("f", "d/f")
    states = {(contents(outcome, "f"), contents(outcome, "d/f")) for outcome in disk.iter_outcomes()}
    assert states == {(b"x", None), (b"x", b"x"), (None, b"x")}
    files.fsync_dir()
    assert {contents(outcome, "d/f") for outcome in disk.iter_outcomes()} == {b"x"}


def test_a_directory_that_is_lost_takes_along_what_it_holds() -> None:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    files.mkdir("d")
    with files.create("d/f") as file:
        file.fsync()
    files.fsync_dir("d")
    assert possible(disk, "d/f") == {None, b""}


def test_after_a_failed_sync_no_later_one_helps() -> None:
    disk = FaultyDisk()
    with durable_file(disk, b"..").open_write("f") as file:
        file.pwrite(b"1", 0)
        disk.fail(1)
        with pytest.raises(WriteFailed, match="cannot sync f: Input/output error"):
            file.fdatasync()
        file.pwrite(b"2", 1)
        file.fdatasync()
        assert file.pread(2, 0) == b"12", "the bytes are still read"
    assert possible(disk, "f") == {b".2", b"12"}


def test_attributes_are_durable_with_fsync_only() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"")
    files.set_attributes("f", Attributes(0o600, 7, 8, 9))
    with files.open_write("f") as file:
        file.fdatasync()
        modes = {FaultyFileSystem(outcome).stat("f").mode for outcome in disk.iter_outcomes()}
        assert modes == {0o644, 0o600}
        file.fsync()
    outcomes = [FaultyFileSystem(outcome).stat("f") for outcome in disk.iter_outcomes()]
    assert {(status.mode, status.owner, status.mtime_ns) for status in outcomes} == {(0o600, 7, 9)}


def test_a_full_disk_takes_half_of_a_write() -> None:
    disk = FaultyDisk()
    with durable_file(disk, b"....").open_write("f") as file:
        disk.fail(1, errno.ENOSPC)
        with pytest.raises(NoSpace):
            file.pwrite(b"1234", 0)
        assert file.pread(4, 0) == b"12.."


@pytest.mark.parametrize("operation", ["create", "mkdir", "rename", "unlink", "rmdir", "set_attributes", "truncate"])
def test_any_other_call_that_fails_does_nothing(operation: str) -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"x")
    files.mkdir("d")
    calls = {
        "create": lambda: files.create("new"),
        "mkdir": lambda: files.mkdir("new"),
        "rename": lambda: files.rename("f", "new"),
        "unlink": lambda: files.unlink("f"),
        "rmdir": lambda: files.rmdir("d"),
        "set_attributes": lambda: files.set_attributes("f", Attributes(0o600, 0, 0)),
        "truncate": lambda: files.open_write("f").truncate(0),
    }
    disk.fail(1)
    with pytest.raises(WriteFailed, match="Input/output error"):
        calls[operation]()
    assert [entry.name for entry in files.listdir()] == ["d", "f"]
    assert (contents(disk, "f"), files.stat("f").mode) == (b"x", 0o644)
    calls[operation]()


def test_the_power_goes_inside_the_call_that_was_named() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"old")
    disk.crash_at(2)
    with files.open_write("f") as file:
        file.pwrite(b"new", 0)
        with pytest.raises(Crash):
            file.fdatasync()
        with pytest.raises(Crash):
            file.pread(1, 0)
    with pytest.raises(Crash):
        files.listdir()
    assert disk.calls[-2:] == [Call("pwrite", "f"), Call("fdatasync", "f")]
    assert possible(disk, "f") == {b"old", b"new"}


def test_a_call_that_was_cut_off_may_have_happened() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, b"x")
    disk.crash_at(1)
    with pytest.raises(Crash):
        files.unlink("f")
    assert possible(disk, "f") == {None, b"x"}


def test_a_sample_of_many_outcomes_begins_with_the_extremes_and_repeats() -> None:
    disk = FaultyDisk()
    with durable_file(disk, bytes(40)).open_write("f") as file:
        for index in range(40):
            file.pwrite(b"1", index)
    first = [contents(outcome, "f") for outcome in disk.iter_outcomes(20, seed=1)]
    assert len(first) == 20
    assert first[:2] == [b"1" * 40, bytes(40)]
    assert len(set(first)) == 20
    assert first == [contents(outcome, "f") for outcome in disk.iter_outcomes(20, seed=1)]
    assert first != [contents(outcome, "f") for outcome in disk.iter_outcomes(20, seed=2)]


def test_bad_sectors_are_not_read() -> None:
    disk = FaultyDisk()
    files = durable_file(disk, bytes(3 * SECTOR))
    disk.bad_spans["f"] = (SECTOR, 2 * SECTOR)
    with files.open_read("f") as file:
        assert file.pread(SECTOR, 0) == bytes(SECTOR)
        with pytest.raises(ReadFailed, match="Input/output error"):
            file.pread(SECTOR + 1, 0)


def test_the_lock_is_the_disks_and_ends_with_the_power() -> None:
    disk = FaultyDisk()
    with FaultyFileSystem(disk).lock():
        with pytest.raises(StoreInUse):
            FaultyFileSystem(disk).lock()
        assert FaultyFileSystem(disk).lock_state().held
        assert not FaultyFileSystem(disk.after_crash(lambda _count: 0)).lock_state().held
    FaultyFileSystem(disk).lock().close()


def test_a_sample_has_no_more_states_than_asked_for() -> None:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    files.mkdir("old")
    with files.create("old/file") as file:
        file.fsync()
        files.fsync_dir("old")
        files.fsync_dir()
        for number in range(10):
            file.pwrite(b"x", number)
    # Where both arrive, nothing is left to choose; where not, the ten writes are.
    files.unlink("old/file")
    files.rmdir("old")
    assert len(list(disk.iter_outcomes(8))) <= 8 + 2
