"""What a screen names next leads on, in stores that only their own broker writes and in those that have lost a file."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import FileState, tree_changes, tree_state

_MOST = 5


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def follow(root: Path, capsysbinary: Any) -> tuple[list[str], Path]:
    """Type what each screen names next, from check on; return the commands, and the store of the last one."""
    command, typed = f"rmqtool check {root}", []
    while command:
        assert command not in typed, f"in a circle: {typed}"
        typed.append(command)
        assert len(typed) <= _MOST, f"no end: {typed}"
        words = shlex.split(command)[1:]
        main(words)
        shown = capsysbinary.readouterr().out.decode()
        if words[0] == "repair" and "--apply" in words and "; no problems remain" in shown:
            break
        following = [line.removeprefix("Next: ") for line in shown.splitlines() if line.startswith("Next: ")]
        command = following[0] if following else ""
    last = shlex.split(typed[-1])
    return typed, Path(last[3] if last[1] == "copy" else last[2])


def restorable(root: Path) -> dict[str, FileState]:
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


def damage_dledger_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/raft")


def damage_dledger_entry(root: Path) -> None:
    with (root / "dledger-n0/data/00000000000000000000").open("r+b") as file:
        file.seek(445)
        file.write(b"XXXX")


def damage_rocksdb(root: Path) -> None:
    path = max((root / "consumequeue").glob("*.sst"), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[100:104] = b"XXXX"
    path.write_bytes(data)


def lose_segment(root: Path) -> None:
    (root / "commitlog/00000000000000065536").unlink()


@pytest.mark.parametrize(
    ("store", "damage", "most"),
    [
        ("49-dledger", damage_dledger_queues, 3),
        ("49-dledger", damage_dledger_entry, 3),
        ("53-rocksdb", damage_rocksdb, 3),
        ("recovery-5.3.3/base-A", lose_segment, 3),
    ],
)
def test_following_next_ends_in_a_store_that_check_passes(store, damage, most, writable_store, capsysbinary):
    root = writable_store(store)
    damage(root)
    typed, last = follow(root, capsysbinary)
    assert len(typed) <= most
    assert main(["check", str(last)]) == Exit.DONE, typed


def test_repair_does_what_recover_does_for_dledger_and_can_take_it_back(writable_store, capsysbinary):
    root = writable_store("49-dledger")
    damage_dledger_queues(root)
    before = restorable(root)
    other = root.with_name("recovered")
    shutil.copytree(root, other)
    assert main(["recover", str(other), "--apply", "--quiet"]) == Exit.DONE
    capsysbinary.readouterr()
    status, shown = run(capsysbinary, "repair", root, "--apply")
    assert (status, shown["left"], {step["class"] for step in shown["steps"]}) == (Exit.DONE, [], {"derived"})
    for path in other.rglob("consumequeue/*/*/*"):
        assert (root / path.relative_to(other)).read_bytes() == path.read_bytes()
    assert run(capsysbinary, "repair", root, "--undo", "last")[0] == Exit.DONE
    assert tree_changes(before, restorable(root)) == []


def test_the_log_of_a_group_is_not_repaired_by_name(writable_store, capsysbinary):
    status, error = run(capsysbinary, "repair", writable_store("49-dledger"), "log")
    assert (status, "only its group can append" in error["error"]["message"]) == (Exit.NOT_A_STORE, True)


def test_a_missing_segment_says_what_is_lost_and_where_it_may_be(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    main(["cat", str(root), "--jsonl"])
    messages = [json.loads(row) for row in capsysbinary.readouterr().out.splitlines()]
    messages.sort(key=lambda one: one["commitLogOffset"])
    before = [one["storeTimestamp"] for one in messages if one["commitLogOffset"] < 65536]
    after = [one["storeTimestamp"] for one in messages if one["commitLogOffset"] >= 131072]
    lose_segment(root)
    main(["check", str(root), "--jsonl", "--only", "CL-GAP"])
    found = json.loads(capsysbinary.readouterr().out.splitlines()[0])
    assert (found["file"], found["offset"], found["length"]) == ("commitlog/00000000000000065536", 0, 65536)
    assert (found["data"]["storedAfter"], found["data"]["storedBefore"]) == (before[-1], after[0])
    assert "a slave may still have the file" in found["consequence"]


def test_recover_says_that_it_cannot_be_undone(writable_store, capsysbinary):
    root = writable_store("49-dledger")
    damage_dledger_queues(root)
    main(["recover", str(root), "--apply"])
    assert b"this cannot be undone" in capsysbinary.readouterr().out
