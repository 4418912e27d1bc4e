"""Configuration texts under power cuts and failing calls: whatever survives, a broker loads something that was true."""

from __future__ import annotations

import errno

import pytest

from rmqtool.errors import NoSpace, RmqtoolError, WriteFailed
from rmqtool.files.filesystem import Attributes
from rmqtool.store.config_files import ConfigText
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Crash, FaultyDisk

MAIN, BAK, TMP = "config/x.json", "config/x.json.bak", "config/x.json.tmp"
OLDER, OLD, NEW, TORN = (
    b'{"generation":1}' * 100,
    b'{"generation":2}' * 100,
    b'{"generation":3}' * 100,
    b'{"generati',
)


def is_loadable(data: bytes) -> bool:
    return data in (OLDER, OLD, NEW)


def a_disk(contents: dict[str, bytes]) -> FaultyDisk:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    files.mkdir("config")
    files.fsync_dir()
    for path, data in contents.items():
        with files.create(path) as file:
            file.pwrite(data, 0)
            file.fsync()
    files.fsync_dir("config")
    return disk


def contents(disk: FaultyDisk) -> dict[str, bytes]:
    files = FaultyFileSystem(disk)
    found = {}
    for entry in files.listdir("config"):
        with files.open_read(f"config/{entry.name}") as file:
            found[f"config/{entry.name}"] = file.pread(file.size(), 0)
    return found


def save(disk: FaultyDisk) -> None:
    ConfigText(FaultyFileSystem(disk), MAIN, is_loadable).write(NEW)


def loaded(found: dict[str, bytes]) -> bytes | None:
    """What a broker would load."""
    return next((found[path] for path in (MAIN, BAK) if is_loadable(found.get(path, b""))), None)


# What is there before, what a broker may load after a cut, and both files after a save that was not cut.
STARTS: dict[str, tuple[dict[str, bytes], set[bytes | None], dict[str, bytes]]] = {
    "both": ({MAIN: OLD, BAK: OLDER}, {OLD, NEW}, {MAIN: NEW, BAK: OLD}),
    "no copy yet": ({MAIN: OLD}, {OLD, NEW}, {MAIN: NEW, BAK: OLD}),
    "nothing yet": ({}, {None, NEW}, {MAIN: NEW}),
    "a damaged file beside a good copy": ({MAIN: TORN, BAK: OLDER}, {OLDER, NEW}, {MAIN: NEW, BAK: OLDER}),
    "an empty file beside a good copy": ({MAIN: b"", BAK: OLDER}, {OLDER, NEW}, {MAIN: NEW, BAK: OLDER}),
    "what a save left that was cut": (
        {MAIN: OLD, BAK: OLDER, TMP: TORN * 300},
        {OLD, NEW},
        {MAIN: NEW, BAK: OLD},
    ),
}
every_start = pytest.mark.parametrize("start", STARTS)


@every_start
def test_a_power_cut_at_any_call_leaves_one_text_or_the_other(start: str) -> None:
    before, allowed, after = STARTS[start]
    whole = a_disk(before)
    made = len(whole.calls)
    save(whole)
    assert contents(whole) == after
    seen = set()
    for call in range(1, len(whole.calls) - made + 1):
        disk = a_disk(before)
        disk.crash_at(call)
        with pytest.raises(Crash):
            save(disk)
        for outcome in disk.iter_outcomes(40, seed=call):
            found = loaded(contents(outcome))
            assert found in allowed, f"cut at {whole.calls[made + call - 1]}"
            seen.add(found)
            save(outcome)
            assert contents(outcome).get(MAIN) == NEW
            assert TMP not in contents(outcome)
    assert seen == allowed


@every_start
def test_what_was_saved_survives_a_power_cut(start: str) -> None:
    before, _, after = STARTS[start]
    disk = a_disk(before)
    save(disk)
    assert all(contents(outcome) == after for outcome in disk.iter_outcomes())


@every_start
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failing_call_leaves_nothing_half_written(start: str, number: int) -> None:
    before, allowed, _ = STARTS[start]
    whole = a_disk(before)
    made = len(whole.calls)
    save(whole)
    for call in range(1, len(whole.calls) - made + 1):
        disk = a_disk(before)
        disk.fail(call, number)
        with pytest.raises(NoSpace if number == errno.ENOSPC else WriteFailed) as raised:
            save(disk)
        assert isinstance(raised.value, RmqtoolError)
        found = contents(disk)
        assert loaded(found) in allowed
        assert found.get(MAIN, b"") in (before.get(MAIN, b""), NEW)
        assert whole.calls[made + call - 1].path == TMP or TMP not in found


def test_the_files_keep_their_owner_and_mode() -> None:
    disk = a_disk({MAIN: OLD, BAK: OLDER})
    files = FaultyFileSystem(disk)
    files.set_attributes(MAIN, Attributes(0o640, 1001, 1002))
    files.set_attributes(BAK, Attributes(0o600, 1003, 1004))
    save(disk)
    for path, expected in ((MAIN, (0o640, 1001, 1002)), (BAK, (0o600, 1003, 1004))):
        status = files.stat(path)
        assert (status.mode, status.owner, status.group) == expected


def test_copies_are_read_in_the_order_in_which_a_broker_tries_them() -> None:
    files = FaultyFileSystem(a_disk({MAIN: TORN, BAK: OLDER}))
    assert ConfigText(files, MAIN, is_loadable).read_copies() == [(MAIN, TORN), (BAK, OLDER)]
    files = FaultyFileSystem(a_disk({MAIN: b"", BAK: OLDER}))
    assert ConfigText(files, MAIN, is_loadable).read_copies() == [(BAK, OLDER)]
    assert ConfigText(FaultyFileSystem(FaultyDisk()), MAIN, is_loadable).read_copies() == []
