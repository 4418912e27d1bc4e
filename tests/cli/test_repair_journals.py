"""The journals of repairs: which are believed, in which order they are undone, where they are, and what is listed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files import posix
from rmqtool.files.filesystem import Space
from rmqtool.repairs import run as repairs
from tests.support.schemas import validate
from tests.support.stores import FileState, tree_changes, tree_state


@pytest.fixture
def damaged(writable_store):
    """A store that has lost its checkpoint, and was not closed."""
    root = writable_store("recovery-5.3.3/base-A")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    return root


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def restorable(root: Path) -> dict[str, FileState]:
    """Return everything but the times of inodes, which nobody can set."""
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


# -- a journal that somebody else made


def line(entries: list[dict[str, Any]]) -> bytes:
    """Return a line of a journal, laid by hand."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode() + b" " + text + b"\n"


PAYLOAD = b"#!/bin/sh\necho owned by journal\n"


def planted(name: str, mode: int) -> list[dict[str, Any]]:
    """Return entries that would write a file anew."""
    owner = {"mode": mode, "owner": os.geteuid(), "group": os.getegid(), "mtime_ns": 1}
    pieces = [[0, len(PAYLOAD), 0, hashlib.blake2b(PAYLOAD, digest_size=16).hexdigest()]]
    return [
        {"file": name, **owner, "size": len(PAYLOAD)},
        {"bytes": name, "file_offset": 0, "length": len(PAYLOAD), "pieces": pieces},
        {"taken": name},
    ]


def plant(store: Path, journals: list[tuple[Path, list[dict[str, Any]]]], *, done: bool = False) -> Path:
    """Lay the journals of a repair beside a store; return their directory."""
    directory = Path(f"{store}-rmqtool-undo") / "deadbeef0000"
    for number, (root, entries) in enumerate(journals):
        place = directory / str(number)
        place.mkdir(parents=True)
        about = {"plan": "x", "root": str(root.resolve()), "store": str(store.resolve())}
        last = line([{"done": {}}]) if done else b""
        (place / "journal").write_bytes(line([{"begin": 1, "about": about}]) + line(entries) + last)
        (place / "old-bytes").write_bytes(PAYLOAD)
    return directory


@pytest.fixture
def victim(tmp_path):
    root = tmp_path / "victim"
    root.mkdir()
    (root / "existing").write_text("mine")
    (root / "delete-me").write_text("mine")
    return root


def foreign_root(store: Path, victim: Path) -> list[tuple[Path, list[dict[str, Any]]]]:
    entries = [*planted("suid-root", 0o4755), *planted("existing", 0o644), {"absent": "delete-me"}]
    own = [{"directory": "", "mode": 0o755, "owner": 0, "group": 0, "mtime_ns": 1}]
    return [(store, own), (victim, entries)]


def setuid_file(store: Path, victim: Path) -> list[tuple[Path, list[dict[str, Any]]]]:
    return [(store, planted("config/run-me", 0o4755))]


def path_upwards(store: Path, victim: Path) -> list[tuple[Path, list[dict[str, Any]]]]:
    return [(store, planted("../victim/existing", 0o644))]


Laid = Callable[[Path, Path], list[tuple[Path, list[dict[str, Any]]]]]


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("laid", [foreign_root, setuid_file, path_upwards])
def test_a_journal_about_anything_but_files_of_the_store_is_not_believed(
    laid: Laid, done: bool, damaged: Path, victim: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    directory = plant(damaged, laid(damaged, victim), done=done)
    before = tree_state(damaged), tree_state(victim)
    attempts: list[list[object]] = [["--undo", directory], [damaged, "--undo", directory]]
    if not done:  # one that is complete is in nobody's way
        attempts += [[damaged], [damaged, "--apply"], [damaged, "--apply", "--allow", "state,primary"]]
    for words in attempts:
        status, error = run(capsysbinary, "repair", *words)
        assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")
        assert "is not trusted" in error["error"]["message"]
    assert run(capsysbinary, "repair", damaged, "--list") == (Exit.DONE, [])
    assert tree_changes(before[0], tree_state(damaged)) == []
    assert tree_changes(before[1], tree_state(victim)) == []


def of_another_user(directory: Path) -> None:
    os.chown(directory / "0" / "journal", 1234, 1234)


def writable_for_others(directory: Path) -> None:
    directory.chmod(0o777)


def behind_a_link(directory: Path) -> None:
    moved = directory.with_name("moved")
    (directory / "0").rename(moved)
    (directory / "0").symlink_to(moved, target_is_directory=True)


def of_two_names(directory: Path) -> None:
    os.link(directory / "0" / "old-bytes", directory / "0" / "another")


@pytest.mark.parametrize("spoil", [of_another_user, writable_for_others, behind_a_link, of_two_names])
def test_a_journal_that_another_could_have_written_is_not_believed(
    spoil: Callable[[Path], None], damaged: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    if spoil is of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    spoil(Path(shown["undo"]))
    before = tree_state(damaged)
    status, error = run(capsysbinary, "repair", damaged, "--undo", shown["undo"])
    assert (status, "is not trusted" in error["error"]["message"]) == (Exit.REFUSED, True)
    assert tree_changes(before, tree_state(damaged)) == []


def test_a_repair_that_was_cut_short_before_its_first_journal_is_undone_by_nothing(damaged, capsysbinary):
    directory = Path(f"{damaged}-rmqtool-undo") / "0123456789ab"
    directory.mkdir(parents=True)
    before = tree_state(damaged)
    for _ in range(2):
        status, shown = run(capsysbinary, "repair", damaged, "--undo", directory)
        assert (status, shown["files"], shown["deleted"]) == (Exit.DONE, [], [])
        (directory / "0").mkdir(exist_ok=True)
    assert tree_changes(before, tree_state(damaged)) == []
    assert run(capsysbinary, "repair", damaged, "--apply")[0] == Exit.DONE


# -- the order of undoing, the list


@pytest.fixture
def repaired_twice(damaged, capsysbinary):
    """A store that was repaired twice; its state before each, the two plans."""
    states, plans = [restorable(damaged)], []
    plans.append(run(capsysbinary, "repair", damaged, "checkpoint", "--apply")[1])
    states.append(restorable(damaged))
    plans.append(run(capsysbinary, "repair", damaged, "--apply")[1])
    assert plans[1]["left"] == []
    return damaged, states, plans


def test_only_the_newest_repair_is_undone_and_a_refusal_names_it(repaired_twice, capsysbinary):
    root, states, plans = repaired_twice
    after = tree_state(root)
    status, error = run(capsysbinary, "repair", root, "--undo", plans[0]["undo"])
    assert (status, plans[1]["undo"] in error["error"]["hint"]) == (Exit.REFUSED, True)
    assert tree_changes(after, tree_state(root)) == []
    for plan, state in zip(reversed(plans), reversed(states), strict=True):
        status, shown = run(capsysbinary, "repair", root, "--undo", "last")
        validate("repair-undone", shown)
        assert (status, shown["undone"]) == (Exit.DONE, plan["undo"])
        assert tree_changes(state, restorable(root)) == []
    status, error = run(capsysbinary, "repair", root, "--undo", "last")
    assert (status, error["error"]["code"]) == (Exit.USAGE, "usage")


def test_the_list_has_the_newest_first_with_what_each_did(repaired_twice, capsysbinary):
    root, _, plans = repaired_twice
    status, rows = run(capsysbinary, "repair", root, "--list")
    assert status == Exit.DONE
    assert [(row["undo"], row["plan"], row["store"], row["undone"]) for row in rows] == [
        (plan["undo"], plan["plan"], str(root), False) for plan in reversed(plans)
    ]
    assert [[step["file"] for step in row["steps"]] for row in rows] == [["abort"], ["checkpoint"]]
    assert rows[0]["time"] >= rows[1]["time"] > 1_700_000_000_000
    for row in rows:
        validate("repair-past", row)
    run(capsysbinary, "repair", root, "--undo", "last")
    assert [row["undone"] for row in run(capsysbinary, "repair", root, "--list")[1]] == [True, False]


def test_files_that_undoing_takes_away_are_listed_as_deleted(repaired_twice, capsysbinary):
    root, _, _ = repaired_twice
    assert run(capsysbinary, "repair", root, "--undo", "last")[1]["deleted"] == []
    shown = run(capsysbinary, "repair", root, "--undo", "last")[1]
    assert shown["deleted"] == ["checkpoint"]
    assert "checkpoint" not in shown["files"]


@pytest.mark.parametrize("words", [["--undo", "last", "--list"], ["--undo", "last", "--apply"], ["--list", "--apply"]])
def test_looking_back_and_repairing_are_two_commands(words, damaged, capsysbinary):
    assert run(capsysbinary, "repair", damaged, *words)[0] == Exit.USAGE


# -- a journal on another disk


@pytest.fixture(params=["first", "after another"])
def elsewhere(request, damaged, tmp_path, capsysbinary) -> Iterator[tuple[Path, Path, dict[str, FileState]]]:
    """A store that is repaired with its journal elsewhere; in one case a journal beside the store is older."""
    if request.param == "after another":
        run(capsysbinary, "repair", damaged, "checkpoint", "--apply")
    before = restorable(damaged)
    status, shown = run(capsysbinary, "repair", damaged, "--apply", "--journal", tmp_path / "disk")
    assert (status, Path(shown["undo"]).parent) == (Exit.DONE, tmp_path / "disk")
    return damaged, Path(shown["undo"]), before


def test_a_journal_on_another_disk_is_found_again(elsewhere, capsysbinary):
    root, directory, before = elsewhere
    assert run(capsysbinary, "repair", root, "--list")[1][0]["undo"] == str(directory)
    assert run(capsysbinary, "repair", root, "--undo", "last")[1]["undone"] == str(directory)
    assert tree_changes(before, restorable(root)) == []


def test_a_repair_that_was_cut_short_is_found_on_the_other_disk_and_taken_back(elsewhere, capsysbinary):
    root, directory, before = elsewhere
    journal = directory / "0" / "journal"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    assert run(capsysbinary, "repair", root)[0] == Exit.REFUSED
    status, shown = run(capsysbinary, "repair", root, "--undo", directory)
    assert (status, shown["undone"]) == (Exit.DONE, str(directory))
    assert tree_changes(before, restorable(root)) == []


def test_a_disk_of_journals_that_is_not_there_stops_a_repair(elsewhere, capsysbinary):
    root, directory, _ = elsewhere
    directory.parent.rename(directory.parent.with_name("unmounted"))
    for words in ([], ["--apply"], ["--list"], ["--undo", "last"]):
        status, error = run(capsysbinary, "repair", root, *words)
        assert (status, "mount that disk" in error["error"]["hint"]) == (Exit.REFUSED, True)


def test_a_store_on_a_full_disk_is_repaired_with_its_journal_elsewhere(damaged, tmp_path, capsysbinary, monkeypatch):
    """Overwriting in place and removing take no room; only what is new does."""
    (damaged / "checkpoint").write_bytes(b"\1" * 4096)
    journals = tmp_path / "disk"

    def space(files: posix.PosixReadableFileSystem) -> Space:
        free = 1 << 40 if files.shown("").rstrip("/") == str(journals) else 0
        return Space(1 << 40, free, free)

    monkeypatch.setattr(posix.PosixReadableFileSystem, "space", space)
    monkeypatch.setattr(repairs, "_on_one_disk", lambda one, other: str(journals) not in other.shown(""))
    before = restorable(damaged)
    status, error = run(capsysbinary, "repair", damaged, "--apply")
    assert (status, "--journal DIR" in error["error"]["hint"]) == (Exit.WRITE_FAILED, True)
    status, shown = run(capsysbinary, "repair", damaged, "--apply", "--journal", journals)
    assert (status, [step["file"] for step in shown["steps"]]) == (Exit.DONE, ["checkpoint", "abort"])
    assert run(capsysbinary, "repair", damaged, "--undo", "last")[0] == Exit.DONE
    assert tree_changes(before, restorable(damaged)) == []


@pytest.mark.parametrize("place", ["config", "no/such/place"])
def test_a_journal_is_not_kept_within_the_store_nor_where_nothing_is(place, damaged, capsysbinary):
    before = tree_state(damaged)
    status, error = run(
        capsysbinary,
        "repair",
        damaged,
        "--apply",
        "--journal",
        damaged.parent / place if place != "config" else damaged / place,
    )
    assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")
    assert tree_changes(before, tree_state(damaged)) == []
    assert not os.path.lexists(f"{damaged}-rmqtool-undo")


# -- one file under two names


@pytest.mark.parametrize("name", ["config/consumerOffset.json.bak", "config/topics.json.bak"])
def test_a_store_in_which_one_file_has_two_names_is_named_and_not_written(name, damaged, capsysbinary):
    log = damaged / "commitlog/00000000000000000000"
    path = damaged / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.link(log, path)
    before = tree_state(damaged)
    main(["check", str(damaged), "--jsonl"])
    found = [json.loads(row) for row in capsysbinary.readouterr().out.splitlines()[:-1]]
    (link,) = [one for one in found if one["code"] == "ST-LINK"]
    assert link["file"] in (name, "commitlog/00000000000000000000")
    for words in (["repair"], ["repair", "--apply", "--allow", "state,primary"], ["recover", "--apply"]):
        status, error = run(capsysbinary, words[0], damaged, *words[1:])
        assert (words, status, "hard links" in error["error"]["message"]) == (words, Exit.REFUSED, True)
    assert tree_changes(before, tree_state(damaged)) == []
    os.system(link["fix"])
    assert log.stat().st_nlink == 1
    assert run(capsysbinary, "repair", damaged, "--apply", "--allow", "state,primary")[0] != Exit.REFUSED
