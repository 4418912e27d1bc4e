"""Sizes of files that nothing in a store shows: said in the plan, stated with --conf, judged by ``check --conf``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.schemas import validate

QUEUE_SIZE = "mappedFileSizeConsumeQueue"
DEFAULT = 6_000_000
INDEX = {"maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000}


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def sizes(root: Path, directory: str) -> set[int]:
    return {path.stat().st_size for path in (root / directory).rglob("*") if path.is_file()}


@pytest.fixture
def without_queues(writable_store):
    root = writable_store("recovery-5.3.3/base-A")
    assert sizes(root, "consumequeue") == {2000}
    shutil.rmtree(root / "consumequeue")
    return root


def test_a_size_that_no_file_shows_is_in_the_plan(without_queues, capsysbinary):
    status, shown = run(capsysbinary, "repair", without_queues)
    validate("repair", shown)
    assert (status, shown["assumed"]) == (Exit.NO, {QUEUE_SIZE: DEFAULT})
    assert run(capsysbinary, "repair", without_queues, "--conf", f"{QUEUE_SIZE}=2000")[1].get("assumed") is None


def test_the_screen_asks_for_the_size(without_queues, capsys):
    main(["repair", str(without_queues)])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"assumed {QUEUE_SIZE}={DEFAULT}: no remaining file shows it" in shown
    assert "then no problems remain if the assumed sizes are right" in shown
    assert f"Next: rmqtool repair {without_queues} --conf {QUEUE_SIZE}={DEFAULT} --apply --plan " in shown


def test_index_files_too(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    shutil.rmtree(root / "index")
    assert run(capsysbinary, "repair", root)[1]["assumed"] == INDEX


def test_a_size_that_a_file_shows_is_not_assumed(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    shutil.rmtree(root / "consumequeue/TopicA")
    status, shown = run(capsysbinary, "repair", root, "--apply")
    assert (status, "assumed" in shown, sizes(root, "consumequeue")) == (Exit.DONE, False, {2000})


def findings(root: Path, capsysbinary: Any, *words: str) -> tuple[int, list[dict[str, Any]]]:
    status = main(["check", str(root), "--jsonl", *words])
    return status, [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()[:-1]]


def test_what_was_made_by_a_wrong_guess_is_found_and_made_anew(without_queues, capsysbinary):
    root, stated = without_queues, ("--conf", f"{QUEUE_SIZE}=2000")
    assert run(capsysbinary, "repair", root, "--apply")[0] == Exit.DONE
    assert sizes(root, "consumequeue") == {DEFAULT}
    status, found = findings(root, capsysbinary, *stated)
    assert (status, [(one["code"], one["data"]["size"]) for one in found]) == (Exit.NO, [("CQ-SIZE", 2000)])
    assert found[0]["fix"] == f"rmqtool repair {root} --conf {QUEUE_SIZE}=2000"
    status, shown = run(capsysbinary, "repair", root, *stated, "--apply")
    assert (status, shown["left"], sizes(root, "consumequeue")) == (Exit.DONE, [], {2000})
    assert findings(root, capsysbinary, *stated) == (Exit.DONE, [])
    assert run(capsysbinary, "repair", root, "--undo", "last")[0] == Exit.DONE
    assert sizes(root, "consumequeue") == {DEFAULT}


def test_a_setting_is_rounded_up_to_whole_units_as_a_broker_does(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    assert findings(root, capsysbinary, "--conf", f"{QUEUE_SIZE}=1999") == (Exit.DONE, [])


def test_segments_of_another_size_than_the_settings_state_are_found(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    status, found = findings(root, capsysbinary, "--conf", "mappedFileSizeCommitLog=131072")
    assert status == Exit.NO
    (one,) = [one for one in found if one["code"] == "CL-SIZE"]
    assert (one["file"], one["data"]["size"]) == ("commitlog/00000000000000000000", 131072)
    assert "mappedFileSizeCommitLog=65536" in one["fix"]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (["maxHashSlotNum=64"], None),
        (["maxHashSlotNum=64", "maxIndexNum=200"], None),
        (["maxHashSlotNum=128"], "5 files have 64 slots for 200 entries, but maxHashSlotNum is 128"),
        (["maxIndexNum=400"], "5 files have 64 slots for 200 entries, but maxIndexNum is 400"),
        # The size of the file is the same.
        (
            ["maxHashSlotNum=69", "maxIndexNum=199"],
            "5 files have 64 slots for 200 entries, but maxHashSlotNum is 69, maxIndexNum is 199",
        ),
    ],
)
def test_check_compares_index_files_with_the_settings(store, stated, said, capsysbinary):
    root = store("53-broker")
    words = [word for setting in stated for word in ("--conf", setting)]
    status, found = run(capsysbinary, "check", root, *words)
    told = [(one["code"], one["message"]) for one in found if one.get("severity") == "warning"]
    assert told == ([] if said is None else [("IX-HEAD", said)])
    assert status == (Exit.DONE if said is None else Exit.NO)
