"""Repairs of what real brokers left and of every kind of damage: nothing valid is lost, every byte can come back."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.recovered import valid_records
from tests.support.schemas import validate
from tests.support.stores import STORES, FileState, tree_changes, tree_state

AS = {"4.9.8": "4.9", "5.3.3": "5.3", "5.4.0": "5.4"}
KILLED = ("49-killed", "49-killed-torn", "49-killed-broker", "53-killed")
CLEAN = [name for name in STORES if name not in (*KILLED, "49-ghost", "49-recovered")]
SOME = ("49-multidir", "53-rocksdb", "53-timer", "54-broker")
FEW = 2
# What a repair has to look at twice, and what is left of it: nothing, or what nobody can restore.
REMARKABLE = {
    ("4.9.8", "A/stray-subdir@commitlog"): [],
    ("5.3.3", "A/cl-extra-gap"): [],
    ("5.4.0", "A/storets-nonmonotonic@last-all"): ["CL-HEAD", "CL-TIME"],
    ("4.9.8", "A/stale-record-after-tail"): [],
    ("4.9.8", "A/fuzz-078"): [],
    ("4.9.8", "A/cfg-delayoffset-truncated-nobak"): ["CF-JSON"],
    ("5.3.3", "A/body-flip@seg0-first"): [],
    ("5.4.0", "A/cl-missing@middle"): ["CL-GAP"],
    # The last file that is left ends within the keys of a message.
    ("5.4.0", "L/ix-missing@last"): [],
}
PIECES = 16
# Damage after which nothing may be written, and the status that says so.
REFUSED = {"cl-missing@all": Exit.REFUSED, "cl-dir-missing": Exit.REFUSED, "lock-dir": Exit.NOT_A_STORE}


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, dict[str, Any]]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


@pytest.mark.parametrize(
    "name", [*SOME, *(pytest.param(one, marks=pytest.mark.slow) for one in CLEAN if one not in SOME)]
)
def test_nothing_is_planned_for_a_sound_store_and_nothing_is_changed(name, writable_store, capsysbinary):
    root = writable_store(name)
    before = tree_state(root)
    for words in ([], ["--apply", "--allow", "state,primary"]):
        status, shown = run(capsysbinary, "repair", root, *words)
        validate("repair", shown)
        assert (status, shown["steps"]) == (Exit.DONE, [])
    assert tree_changes(before, tree_state(root)) == []
    assert not Path(f"{root}-rmqtool-undo").exists()


def restorable(root: Path) -> dict[str, FileState]:
    """Return everything but the times of inodes, which nobody can set."""
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


def check_repaired(root: Path, version: str, capsysbinary: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    """Repair a damaged store, and take it back: nothing valid is lost, and nothing of it stays."""
    before, valid = restorable(root), valid_records(root)
    status, shown = run(capsysbinary, "repair", root, "--as", AS[version], "--apply", "--allow", "state,primary")
    validate("repair", shown)
    assert status == (Exit.NO if shown["left"] else Exit.DONE)
    # What is left is what no repair puts right.
    assert [f for f in shown["left"] if f.get("fix", "").startswith("rmqtool repair")] == []
    kept = {record.physical_offset for record in valid_records(root)}
    assert [record for record in valid if record.physical_offset not in kept] == []
    again, nothing = run(capsysbinary, "repair", root, "--as", AS[version], "--allow", "state,primary")
    assert (again, nothing["steps"]) == (Exit.NO if nothing["left"] else Exit.DONE, [])
    assert [f["code"] for f in nothing["left"]] == [f["code"] for f in shown["left"]]
    if "undo" in shown:
        assert run(capsysbinary, "repair", root, "--undo", shown["undo"])[0] == Exit.DONE
    assert tree_changes(before, restorable(root)) == []
    return shown


def check_variant(
    workshop: Workshop, version: str, key: str, capsysbinary: pytest.CaptureFixture[bytes], *, both: bool = False
) -> None:
    """Check one variant, with or without the abort marker as a seed says, or ``both``."""
    mutation = mutations(version)[key]
    aborts = (mutation.abort,) if mutation.abort is not None else (True, False) if both else (len(key) % 2 == 0,)
    for abort in aborts:
        with workshop.damaged(version, mutation, abort=abort) as root:
            if mutation.name in REFUSED:
                before = tree_state(root)
                status, _ = run(capsysbinary, "repair", root, "--apply", "--allow", "state,primary")
                assert (key, status) == (key, REFUSED[mutation.name])
                assert tree_changes(before, tree_state(root)) == []
            else:
                check_repaired(root, version, capsysbinary)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_stores_are_repaired_and_come_back(version, tmp_path, capsysbinary):
    workshop = Workshop(tmp_path)
    for key in sample(version, FEW):
        check_variant(workshop, version, key, capsysbinary)


@pytest.mark.parametrize(("version", "key"), REMARKABLE)
def test_what_is_left_is_what_nobody_can_restore(version, key, tmp_path, capsysbinary):
    with Workshop(tmp_path).damaged(version, mutations(version)[key], abort=False) as root:
        left = check_repaired(root, version, capsysbinary)["left"]
    assert sorted({finding["code"] for finding in left}) == REMARKABLE[version, key]


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_be_a_volume_that_is_not_mounted_is_left_alone(name, tmp_path, capsysbinary):
    check_variant(Workshop(tmp_path), "4.9.8", f"A/{name}", capsysbinary)


def test_a_log_whose_files_were_all_cut_short_keeps_every_message_that_is_left(tmp_path, capsysbinary):
    with Workshop(tmp_path).damaged("5.3.3", mutations("5.3.3")["A/cl-missing@last"], abort=True) as root:
        for path in (root / "commitlog").iterdir():
            os.truncate(path, 40_000)
        assert check_repaired(root, "5.3.3", capsysbinary)["left"] == []


@pytest.mark.parametrize(("place", "queue"), [(0, "TopicB/1"), (32980, "TopicB/1")])
def test_a_unit_of_a_struck_message_leads_to_the_bridge_also_where_the_queue_was_gone(
    place, queue, tmp_path, capsysbinary
):
    """Behind a unit that leads to nothing a broker passes over all that the queue has in the first segment."""
    with Workshop(tmp_path).damaged("4.9.8", mutations("4.9.8")["A/cq-all-missing"], abort=True) as root:
        (struck,) = (r for r in valid_records(root) if r.physical_offset == place)
        assert f"{struck.topic}/{struck.queue_id}" == queue
        with (root / "commitlog/00000000000000000000").open("r+b") as file:
            file.seek(place + 4)
            file.write(b"?")
        run(capsysbinary, "repair", root, "--as", "4.9", "--apply", "--allow", "primary")
        units = (root / f"consumequeue/{queue}/00000000000000000000").read_bytes()
    assert [unit[:2] for unit in struct.iter_unpack(">qiq", units)][struck.queue_offset] == (place, struck.size)
    assert b"\x7f\xff\xff\xff" not in units


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("version", VERSIONS)
def test_every_damaged_store_is_repaired_and_comes_back(version, piece, tmp_path, capsysbinary):
    """The pieces together are every variant, each a seeded sample of all kinds of damage; each can be run alone."""
    workshop = Workshop(tmp_path)
    keys = sorted(mutations(version))
    random.Random(version).shuffle(keys)
    for key in keys[piece::PIECES]:
        check_variant(workshop, version, key, capsysbinary, both=True)
