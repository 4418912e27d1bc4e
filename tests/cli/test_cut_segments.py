"""Segments that are cut inside a record: no command takes that record for whole, and all count the same.

The cut is in the properties. No checksum covers those: with zeros in place of the missing bytes every length adds up.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit

SEGMENT = 65_536
# A segment, the length it is cut to, and the file offset of the record that the cut goes through.
MIDDLE = ("00000000000000131072", 20_000, 19_748)
LAST = ("00000000000000196608", 25_100, 24_723)


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def check(capsysbinary: pytest.CaptureFixture[bytes], root: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    main(["check", str(root), "--jsonl"])
    *findings, summary = map(json.loads, capsysbinary.readouterr().out.splitlines())
    return findings, summary["summary"]


def cut(root: Path, name: str, size: int) -> Path:
    path = root / "commitlog" / name
    os.truncate(path, size)
    return path


def lost(shown: dict[str, Any]) -> int:
    return sum(queue["messages"] for queue in shown["lost"])


@pytest.fixture
def middle(writable_store):
    root = writable_store("53-broker")
    cut(root, *MIDDLE[:2])
    return root


@pytest.fixture
def last(writable_store):
    root = writable_store("53-broker")
    cut(root, *LAST[:2])
    return root


def test_recovery_does_not_complete_a_record_with_zeros(middle, capsysbinary):
    name, size, at = MIDDLE
    path = middle / "commitlog" / name
    before = path.read_bytes()
    findings, summary = check(capsysbinary, middle)
    assert [(one["code"], one["offset"]) for one in findings] == [("CL-SIZE", 0), ("CL-MID", at)]
    assert (summary["messages"], lost(summary)) == (303, 112)
    status, shown = run(capsysbinary, "recover", middle, "--apply")
    assert (status, shown["messages"]) == (Exit.NO, 303)
    assert [(one["code"], one.get("offset")) for one in shown["findings"] if one["code"].startswith("CL-")] == [
        ("CL-SIZE", None),
        ("CL-MID", at),
    ]
    assert path.read_bytes() == before[:at] + bytes(SEGMENT - at)
    assert len(before) == size
    findings, summary = check(capsysbinary, middle)
    assert [(one["code"], one["offset"]) for one in findings if one["severity"] == "error"] == [("CL-MID", at)]
    assert (summary["messages"], lost(summary)) == (303, 112)


def test_a_plan_begins_its_placeholder_at_the_record(middle, capsysbinary):
    name, size, at = MIDDLE
    before = (middle / "commitlog" / name).read_bytes()
    _, shown = run(capsysbinary, "repair", middle)
    # Timers and transactions of the lost messages are no further problems, under the placeholder as before.
    assert (lost(shown), shown["left"]) == (112, [])
    (step,) = [one for one in shown["steps"] if one["class"] == "primary"]
    assert (step["action"], step["bytes"]) == ("bridge", SEGMENT - at)
    sizes = f"CL-SIZE: the segment has {size} bytes, the others have {SEGMENT}"
    assert step["reason"].startswith(
        f"{sizes}; its record at {at} is cut off, and cleared; it is made that long; CL-MID: "
    )
    assert f"(at {at})" in step["reason"]
    assert "112 messages lost here (counted by queue entries)" in step["reason"]
    _, shown = run(capsysbinary, "repair", middle, "--apply", "--allow", "primary", "--plan", shown["plan"])
    assert lost(shown) == 112
    after, summary = check(capsysbinary, middle)
    (bridge,) = [one for one in after if one["severity"] in ("error", "warning") or one["code"] == "CL-BRIDGE"]
    assert (bridge["offset"], summary["messages"]) == (at, 303)
    assert run(capsysbinary, "repair", middle, "--undo", "last")[0] == Exit.DONE
    assert (middle / "commitlog" / name).read_bytes() == before
    assert len(before) == size


def test_the_end_of_a_cut_log_is_not_completed_with_zeros(last, capsysbinary):
    name, _, at = LAST
    path = last / "commitlog" / name
    before = path.read_bytes()
    findings, summary = check(capsysbinary, last)
    assert ("CL-TORN", at) in [(one["code"], one.get("offset")) for one in findings]
    assert (summary["messages"], lost(summary)) == (414, 1)
    _, shown = run(capsysbinary, "repair", last)
    assert (shown["lost"], shown["left"]) == (summary["lost"], [])
    _, shown = run(capsysbinary, "recover", last, "--apply")
    assert shown["messages"] == 414
    assert path.read_bytes() == before[:at] + bytes(SEGMENT - at)
    assert check(capsysbinary, last)[1]["messages"] == 414


def places(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> set[tuple[str, str]]:
    """Return the codes and files of what a command calls damaged in the log."""
    main([*map(str, words)])
    rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    found = [row.get("damage", row) for row in rows if "damage" in row or "code" in row]
    return {(one["code"], one["file"]) for one in found if one["code"].startswith("CL-")}


@pytest.mark.parametrize("segment", ["middle", "last", "zeros"])
def test_one_damage_has_one_name_in_every_command(
    segment: str, writable_store, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """cat, copy and export called a cut segment CL-TORN and CL-GAP, and zeros CL-MAGIC."""
    root: Path = writable_store("53-broker")
    if segment == "zeros":
        with (root / "commitlog" / MIDDLE[0]).open("r+b") as opened:
            opened.seek(MIDDLE[2])
            opened.write(bytes(900))
    else:
        cut(root, *(MIDDLE if segment == "middle" else LAST)[:2])
    checked = places(capsysbinary, "check", root, "--only", "CL", "--jsonl", "--quiet")
    assert checked
    if segment == "last":
        # Nothing follows the cut end, so there are no bytes whose absence a reader of the log could see.
        checked = {one for one in checked if one[0] != "CL-SIZE"}
    assert places(capsysbinary, "cat", root, "--jsonl") == checked
    main(["copy", str(root), str(tmp_path / "copy"), "--salvage", "--quiet"])
    capsysbinary.readouterr()
    listed = (tmp_path / "copy.lost-and-found/list.jsonl").read_text().splitlines()
    assert {(one["code"], one["file"]) for one in (json.loads(line)["damage"] for line in listed)} == checked
    target = tmp_path / "lake"
    main(["export", str(root), "--engine", "local", "--to", str(target), "--quiet"])
    capsysbinary.readouterr()
    rows = pyarrow.parquet.read_table(f"{target}_damage").to_pylist()
    assert {(one["code"], one["file"]) for one in rows} == checked
    main(["query", str(root), "nobody", "--json"])
    unread = json.loads(capsysbinary.readouterr().out)["searched"]["unread"]
    assert {(one["code"], one["file"]) for one in unread} == checked


def test_a_recovery_counts_lost_messages_as_check_does(middle, capsysbinary):
    _, summary = check(capsysbinary, middle)
    _, shown = run(capsysbinary, "recover", middle, "--apply")
    assert (lost(shown), shown["lost"]) == (112, summary["lost"])
    assert check(capsysbinary, middle)[1]["lost"] == summary["lost"]
    assert run(capsysbinary, "recover", middle, "--apply")[1]["lost"] == summary["lost"]


def test_a_recovery_counts_the_messages_of_the_entries_that_it_removes(last, capsysbinary):
    _, summary = check(capsysbinary, last)
    _, shown = run(capsysbinary, "recover", last, "--apply")
    assert (lost(shown), shown["lost"]) == (1, summary["lost"])
    assert run(capsysbinary, "recover", last, "--apply")[1]["lost"] == []


def test_the_screen_of_a_recovery_counts_lost_messages(middle, capsysbinary):
    main(["recover", str(middle), "--apply", "--color", "never"])
    said = " ".join(capsysbinary.readouterr().out.decode().split())
    assert "LOST at least 112 messages: " in said
