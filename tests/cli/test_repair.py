"""``rmqtool repair``: its screens, its statuses, the plan that must still hold, the way back, who is in the way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.storage.posix_write import PosixWritableFileSystem
from tests.schemas import validate
from tests.stores import tree_changes, tree_state


@pytest.fixture
def damaged(writable_store):
    """A store that has lost its checkpoint and a queue, and was not closed."""
    root = writable_store("recovery-5.3.3/base-A")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    for path in (root / "consumequeue/TopicA/1").iterdir():
        path.unlink()
    return root


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def test_a_plan_says_what_would_be_done_and_touches_nothing(damaged, capsysbinary):
    before = tree_state(damaged)
    status, shown = run(capsysbinary, "repair", damaged)
    validate("repair", shown)
    assert status == Exit.NO
    assert [(step["n"], step["class"], step["action"], step["file"]) for step in shown["steps"]] == [
        (1, "derived", "create", "consumequeue/TopicA/1/00000000000000000000"),
        (2, "derived", "create", "checkpoint"),
        (3, "derived", "delete", "abort"),
    ]
    assert (shown["applied"], shown["left"], "undo" in shown) == (False, [], False)
    assert tree_changes(before, tree_state(damaged)) == []
    assert not Path(f"{damaged}-rmqtool-undo").exists()


def test_what_is_named_alone_is_repaired(damaged, capsysbinary):
    status, shown = run(capsysbinary, "repair", damaged, "checkpoint", "--apply")
    assert (status, [step["file"] for step in shown["steps"]]) == (Exit.NO, ["checkpoint"])
    assert {finding["code"] for finding in shown["left"]} == {"CQ-MISSING", "ST-ABORT"}
    assert (damaged / "abort").exists()


def test_a_plan_that_was_seen_is_done_and_an_older_one_is_refused(damaged, capsysbinary):
    _, seen = run(capsysbinary, "repair", damaged)
    os.utime(damaged / "lock", ns=(1, 1))
    os.utime(damaged / "consumequeue/TopicA/0/00000000000000000000", ns=(1, 1))
    before = tree_state(damaged)
    status, error = run(capsysbinary, "repair", damaged, "--apply", "--plan", seen["plan"])
    assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")
    assert tree_changes(before, tree_state(damaged)) == []
    _, seen = run(capsysbinary, "repair", damaged)
    status, shown = run(capsysbinary, "repair", damaged, "--apply", "--plan", seen["plan"])
    assert (status, shown["plan"], shown["applied"], shown["left"]) == (Exit.DONE, seen["plan"], True, [])
    assert shown["undo"] == str(Path(f"{damaged}-rmqtool-undo") / seen["plan"])


def test_a_store_in_use_is_left_alone(damaged, capsysbinary):
    with PosixWritableFileSystem(str(damaged)) as files, files.lock():
        before = tree_state(damaged)
        for words in ([], ["--apply"]):
            status, error = run(capsysbinary, "repair", damaged, *words)
            assert (status, error["error"]["code"]) == (Exit.IN_USE, "in-use")
        assert tree_changes(before, tree_state(damaged)) == []


def test_what_is_made_has_the_owner_and_mode_of_its_neighbours(damaged, capsysbinary):
    for path in (damaged, *damaged.rglob("*")):
        os.chown(path, 1234, 4321)
        path.chmod(0o750 if path.is_dir() else 0o640)
    run(capsysbinary, "repair", damaged, "--apply")
    found = {(s.st_uid, s.st_gid, s.st_mode & 0o777) for s in (p.stat() for p in damaged.rglob("*") if p.is_file())}
    assert found == {(1234, 4321, 0o640)}
    beside = Path(f"{damaged}-rmqtool-undo")
    assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in (beside, *beside.glob("*"))} == {
        (1234, 0o750)
    }


def test_undoing_twice_is_undoing_once_and_a_broker_in_between_forbids_it(damaged, capsysbinary):
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    assert run(capsysbinary, "repair", "--undo", shown["undo"])[0] == Exit.DONE
    status, again = run(capsysbinary, "repair", damaged, "--undo", shown["undo"])
    validate("repair-undone", again)
    assert (status, again["files"]) == (Exit.DONE, [])
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    with (damaged / "consumequeue/TopicA/1/00000000000000000000").open("ab") as file:
        file.write(b"?")
    status, error = run(capsysbinary, "repair", damaged, "--undo", shown["undo"])
    assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")


def test_the_way_back_of_one_store_is_not_that_of_another(damaged, tmp_path, capsysbinary):
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    status, _ = run(capsysbinary, "repair", tmp_path, "--undo", shown["undo"])
    assert status == Exit.REFUSED
    assert main(["repair", str(damaged), "--undo", str(tmp_path / "none")]) == Exit.USAGE


@pytest.mark.parametrize("words", [["wheels"], ["--allow", "everything"]])
def test_words_that_mean_nothing_are_refused(words, damaged, capsys):
    assert main(["repair", str(damaged), *words]) == Exit.USAGE


def test_the_screen(damaged, capsys, monkeypatch):
    monkeypatch.chdir(damaged.parent)
    assert main(["repair", "store"]) == Exit.NO
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  derived  create    consumequeue/TopicA/1/00000000000000000000, 2.0 KiB: CQ-MISSING: 73 units were wrong or"
        " missing",
        "  derived  create    checkpoint, 4.0 KiB: does not say what the store holds",
        "  derived  delete    abort: the last stop was not clean; nothing is left to recover",
        "3 steps to do; then the store is sound",
        "Next: rmqtool repair store --apply",
    ]
    assert main(["repair", "store", "--apply"]) == Exit.DONE
    undo = next(Path("store-rmqtool-undo").iterdir()).resolve()
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "done: 3 of 3 steps; the store is sound",
        f"Next: rmqtool repair store --undo {undo}",
    ]
    assert main(["repair", "store"]) == Exit.DONE
    assert capsys.readouterr().out == "nothing to repair\n"
