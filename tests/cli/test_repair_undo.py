"""``rmqtool repair`` and its way back: every byte, time, owner and mode; and nothing at all where it refuses."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files import posix
from rmqtool.files.filesystem import Space
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.stores import FileState, tree_changes, tree_state


@pytest.fixture
def damaged(writable_store):
    """A store that has lost its checkpoint and a queue, and was not closed."""
    root = writable_store("recovery-5.3.3/base-A")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    for path in (root / "consumequeue/TopicA/1").iterdir():
        path.unlink()
    return root


@pytest.fixture
def elsewhere(writable_store, tmp_path):
    """A store whose log lies outside of it; a bit in the midst of the log is turned, and a queue is gone."""
    root = writable_store("recovery-5.3.3/base-A")
    log = tmp_path / "disk" / "log"
    log.parent.mkdir()
    (root / "commitlog").rename(log)
    (root / "broker.conf").write_text(f"storePathCommitLog={log}\nmappedFileSizeCommitLog=65536\n")
    with (log / "00000000000000000000").open("r+b") as file:
        file.seek(32866 + 4)
        file.write(b"?")
    for path in (root / "consumequeue/TopicA/1").iterdir():
        path.unlink()
    return root, log


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def restorable(root: Path) -> dict[str, FileState]:
    """Return everything but the times of inodes, which nobody can set."""
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


def owners(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_uid, path.lstat().st_gid) for path in (root, *root.rglob("*"))}


@pytest.mark.parametrize("lock", [None, b"", b"lock"])
def test_undoing_restores_every_byte_time_owner_and_mode(lock, damaged, capsysbinary):
    if lock is None:
        (damaged / "lock").unlink()
    else:
        (damaged / "lock").write_bytes(lock)
    for number, path in enumerate((damaged, *damaged.rglob("*"))):
        os.chown(path, 1000 + number, 2000 + number)
        path.chmod(0o700 + number % 64 if path.is_dir() else 0o600 + number % 64)
        os.utime(path, ns=(1, 10**18 + number))
    before, owned = restorable(damaged), owners(damaged)
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    assert shown["left"] == []
    assert (damaged / "lock").read_bytes() == b"lock"
    for _ in range(2):
        assert run(capsysbinary, "repair", damaged, "--undo", shown["undo"])[0] == Exit.DONE
        assert tree_changes(before, restorable(damaged)) == []
        assert owners(damaged) == owned


def test_undoing_that_is_refused_leaves_no_lock_behind(damaged, capsysbinary):
    (damaged / "lock").unlink()
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    (damaged / "lock").unlink()
    (damaged / "checkpoint").write_bytes(b"another")
    before = tree_state(damaged)
    status, error = run(capsysbinary, "repair", damaged, "--undo", shown["undo"])
    assert (status, error["error"]["file"]) == (Exit.REFUSED, str(damaged / "checkpoint"))
    assert tree_changes(before, tree_state(damaged)) == []


@pytest.mark.parametrize("had_lock", [True, False])
@pytest.mark.parametrize("available", [0, 4 << 10, 1 << 20])
def test_what_there_is_no_room_for_leaves_nothing(available, had_lock, damaged, capsysbinary, monkeypatch):
    if not had_lock:
        (damaged / "lock").unlink()
    before = tree_state(damaged)
    monkeypatch.setattr(posix.PosixReadableFileSystem, "space", lambda self: Space(1 << 40, available, available))
    status, error = run(capsysbinary, "repair", damaged, "--apply")
    assert (status, error["error"]["code"]) == (Exit.WRITE_FAILED, "write-failed")
    assert f"only {available} are free" in error["error"]["message"]
    assert tree_changes(before, tree_state(damaged)) == []
    assert not Path(f"{damaged}-rmqtool-undo").exists()


def test_a_log_that_lies_elsewhere_is_repaired_and_comes_back(elsewhere, capsysbinary):
    root, log = elsewhere
    before = restorable(root), restorable(log)
    status, shown = run(capsysbinary, "repair", root, "--apply", "--allow", "primary")
    assert (status, shown["left"]) == (Exit.DONE, [])
    steps = [(step["action"], step["file"]) for step in shown["steps"]]
    assert steps[0] == ("bridge", str(log / "00000000000000000000"))
    assert ("create", "consumequeue/TopicA/1/00000000000000000000") in steps
    status, undone = run(capsysbinary, "repair", root, "--undo", shown["undo"])
    assert (status, undone["deleted"]) == (Exit.DONE, ["consumequeue/TopicA/1/00000000000000000000"])
    assert str(log / "00000000000000000000") in undone["files"]
    assert tree_changes(before[0], restorable(root)) == []
    assert tree_changes(before[1], restorable(log)) == []


@pytest.mark.parametrize("setting", ["storePathCommitLog", "readOnlyCommitLogStorePaths"])
def test_nothing_is_planned_for_a_sound_store_whose_log_lies_elsewhere(setting, writable_store, tmp_path, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    moved = sorted((root / "commitlog").iterdir())[: None if setting == "storePathCommitLog" else 3]
    (tmp_path / "log").mkdir()
    for path in moved:
        path.rename(tmp_path / "log" / path.name)
    words = ["--conf", f"{setting}={tmp_path}/log", "--apply", "--allow", "state,primary"]
    status, shown = run(capsysbinary, "repair", root, *words)
    assert (status, shown["steps"], shown["left"]) == (Exit.DONE, [], [])


def test_damage_in_a_part_of_the_log_that_is_only_read_is_left_and_listed(writable_store, tmp_path, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    first = tmp_path / "log" / "00000000000000000000"
    first.parent.mkdir()
    (root / "commitlog" / first.name).rename(first)
    with first.open("r+b") as file:
        file.seek(32866 + 4)
        file.write(b"?")
    words = ["--conf", f"readOnlyCommitLogStorePaths={first.parent}", "--apply", "--allow", "state,primary"]
    before = tree_state(first.parent)
    status, shown = run(capsysbinary, "repair", root, *words)
    assert (status, [finding["code"] for finding in shown["left"]]) == (Exit.NO, ["CL-MAGIC"])
    assert tree_changes(before, tree_state(first.parent)) == []


@pytest.mark.parametrize("where", ["root", "log"])
def test_undoing_is_refused_as_a_whole_where_one_of_two_places_was_changed(where, elsewhere, capsysbinary):
    root, log = elsewhere
    _, shown = run(capsysbinary, "repair", root, "--apply", "--allow", "primary")
    changed = root / "checkpoint" if where == "root" else log / "00000000000000000000"
    with changed.open("ab") as file:
        file.write(b"?")
    before = tree_state(root), tree_state(log)
    status, error = run(capsysbinary, "repair", root, "--undo", shown["undo"])
    assert (status, error["error"]["file"]) == (Exit.REFUSED, str(changed))
    assert tree_changes(before[0], tree_state(root)) == []
    assert tree_changes(before[1], tree_state(log)) == []


def test_room_is_asked_for_on_every_disk(elsewhere, capsysbinary, monkeypatch):
    root, log = elsewhere
    before = tree_state(root), tree_state(log)

    def space(files: posix.PosixReadableFileSystem) -> Space:
        available = 100 if files.shown("").startswith(str(log)) else 1 << 40
        return Space(1 << 40, available, available)

    monkeypatch.setattr(posix.PosixReadableFileSystem, "space", space)
    status, error = run(capsysbinary, "repair", root, "--apply", "--allow", "primary")
    assert (status, error["error"]["file"]) == (Exit.WRITE_FAILED, str(log))
    assert tree_changes(before[0], tree_state(root)) == []
    assert tree_changes(before[1], tree_state(log)) == []
    assert not Path(f"{root}-rmqtool-undo").exists()


def test_what_is_no_journal_is_left_alone(damaged, tmp_path, capsysbinary):
    beside = Path(f"{damaged}-rmqtool-undo")
    (beside / "mine").mkdir(parents=True)
    (beside / "mine" / "note").write_text("not a journal")
    (beside / "note").write_text("neither")
    before = tree_state(beside / "mine")
    assert run(capsysbinary, "repair", damaged)[0] == Exit.NO
    status, shown = run(capsysbinary, "repair", damaged, "--apply")
    assert (status, shown["left"]) == (Exit.DONE, [])
    for directory in (beside / "mine", tmp_path):
        status, error = run(capsysbinary, "repair", "--undo", directory)
        assert (status, error["error"]["code"]) == (Exit.USAGE, "usage")
    assert tree_changes(before, tree_state(beside / "mine")) == []


def test_a_repair_under_way_is_not_taken_for_one_that_was_cut_short(damaged, capsysbinary):
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    journal = Path(shown["undo"]) / "0" / "journal"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    assert run(capsysbinary, "repair", damaged)[0] == Exit.REFUSED
    with PosixWritableFileSystem(str(damaged)) as files, files.lock():
        for words in ([], ["--apply"]):
            status, error = run(capsysbinary, "repair", damaged, *words)
            assert (status, error["error"]["code"]) == (Exit.IN_USE, "in-use")


TOPIC, QUEUE = "consumequeue/TopicA", "consumequeue/TopicA/1"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("abort", "directory"),
        ("abort", "link"),
        (f"{QUEUE}/00000000000000000000", "directory"),
        (f"{QUEUE}/00000000000000000000", "link"),
        (QUEUE, "file"),
        (QUEUE, "link"),
        (TOPIC, "file"),
    ],
)
def test_a_name_that_stands_for_something_else_is_refused(name, kind, damaged, capsysbinary):
    path = damaged / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
        (path / "mine").touch()
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to(damaged / "config", target_is_directory=True)
    before = tree_state(damaged)
    for words in ([], ["--apply", "--allow", "state,primary"]):
        status, error = run(capsysbinary, "repair", damaged, *words)
        assert (status, error["error"]["file"].startswith(str(path))) == (Exit.NOT_A_STORE, True)
        assert error["error"]["hint"]
    assert tree_changes(before, tree_state(damaged)) == []
    assert not Path(f"{damaged}-rmqtool-undo").exists()
