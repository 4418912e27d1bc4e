"""Sizes, names and blanks that lie: no valid message is lost, put aside or overwritten, and check blames the liar."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit

BLANK = 0xCBD43194


def read(root: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["cat", str(root), "--jsonl"]) in (Exit.DONE, Exit.SKIPPED)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [one for one in found if "damage" not in one]


def places(found: list[dict[str, Any]]) -> set[int]:
    return {one["commitLogOffset"] for one in found}


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def keep(root: Path, count: int) -> None:
    """Leave only the first segments of a store, whose queues and index are then made anew."""
    for path in segments(root)[count:]:
        path.unlink()


def findings(root: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    main(["check", str(root), "--jsonl"])
    return [one for one in map(json.loads, capsys.readouterr().out.splitlines()) if "code" in one]


REPAIR = ["repair", "--apply", "--allow", "state,primary"]
FIXES = pytest.mark.parametrize("fix", [["recover", "--apply"], REPAIR], ids=["recover", "repair"])


@FIXES
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("grown", ["last", "first", "all"])
def test_a_grown_segment_costs_nothing(
    writable_store: Any, capsys: pytest.CaptureFixture[str], fix: list[str], count: int, grown: str
) -> None:
    root = writable_store("49-broker")
    keep(root, count)
    before = places(read(root, capsys))
    sizes = [path.stat().st_size for path in segments(root)]
    chosen = {"last": segments(root)[-1:], "first": segments(root)[:1], "all": segments(root)}[grown]
    for path in chosen:
        os.truncate(path, path.stat().st_size + 4096)
    names = [path.name for path in segments(root)]
    main([fix[0], str(root), *fix[1:]])
    assert places(read(root, capsys)) == before
    assert [path.name for path in segments(root)] == names
    assert [path.stat().st_size for path in segments(root)] == sizes
    assert not (root / "quarantine").exists()


@FIXES
@pytest.mark.parametrize("wrong", [1, 4096, -4096])
@pytest.mark.parametrize("count", [2, 3])
def test_a_misnamed_segment_gets_its_name_back(
    writable_store: Any, capsys: pytest.CaptureFixture[str], fix: list[str], wrong: int, count: int
) -> None:
    root = writable_store("49-broker")
    keep(root, count)
    before = places(read(root, capsys))
    names = [path.name for path in segments(root)]
    last = segments(root)[-1]
    last.rename(last.with_name(f"{int(last.name) + wrong:020d}"))
    main([fix[0], str(root), *fix[1:]])
    assert [path.name for path in segments(root)] == names
    assert places(read(root, capsys)) == before


def lay_blank(root: Path, number: int, size: str, capsys: pytest.CaptureFixture[str]) -> tuple[Path, int, set[int]]:
    """Lay a blank's header over a message of the first segment; return the file, where, and the other messages."""
    path = segments(root)[0]
    all_of_it = read(root, capsys)
    chosen = [one for one in all_of_it if one["commitLogOffset"] < path.stat().st_size][number]
    at = chosen["commitLogOffset"]
    sizes = {"rest": path.stat().st_size - at, "own": chosen["storeSize"], "8": 8, "huge": 0x7FFFFFFF}
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(">II", sizes[size], BLANK))
    return path, at, places(all_of_it) - {at}


@pytest.mark.parametrize("size", ["rest", "own", "8", "huge"])
def test_a_false_blank_hides_no_message(
    writable_store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, size: str
) -> None:
    root = writable_store("49-broker")
    path, at, others = lay_blank(root, 20, size, capsys)
    assert places(read(root, capsys)) == others
    assert main(["cat", str(root), "--jsonl"]) == Exit.SKIPPED
    found = findings(root, capsys)
    (blamed,) = (one for one in found if one["code"] in ("CL-MAGIC", "CL-LEN"))
    assert (blamed["file"], blamed["offset"]) == (f"commitlog/{path.name}", at)
    assert not [one for one in found if one["code"] == "CL-QOFF"]
    assert main(["copy", "--salvage", str(root), str(tmp_path / "copy")]) == Exit.SKIPPED
    assert len(read(tmp_path / "copy", capsys)) == len(others)
    assert main(["export", str(root), "--to", str(tmp_path / "table"), "--engine", "local"]) == Exit.SKIPPED
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "table").num_rows == len(others)


@FIXES
@pytest.mark.parametrize("number", [0, 20])
def test_a_false_blank_costs_one_message(
    writable_store: Any, capsys: pytest.CaptureFixture[str], fix: list[str], number: int
) -> None:
    root = writable_store("49-broker")
    _, _, others = lay_blank(root, number, "rest", capsys)
    main([fix[0], str(root), *fix[1:]])
    assert places(read(root, capsys)) >= others


def lay_over(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, int, set[int]]:
    """Let a damaged record, whose lengths add up, reach to the middle of the record after its successor."""
    path = segments(root)[0]
    all_of_it = read(root, capsys)
    first, _, third = sorted(all_of_it, key=lambda one: one["commitLogOffset"])[30:33]
    at, reach = first["commitLogOffset"], third["commitLogOffset"] + 120 - first["commitLogOffset"]
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, at, reach)
    # Without a topic's end the lengths do not add up: body, one byte of topic, no properties.
    struct.pack_into(">i", data, at + 84, reach - 88 - 1 - 1 - 2)
    end = at + reach
    data[end - 4 : end] = b"\x01T\x00\x00"
    path.write_bytes(data)
    return path, at, places(all_of_it) - {at, third["commitLogOffset"]}


def test_a_damaged_record_over_a_valid_one_hides_it_from_nobody(
    writable_store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = writable_store("49-broker")
    path, at, others = lay_over(root, capsys)
    assert places(read(root, capsys)) == others
    blamed = [one for one in findings(root, capsys) if one["code"] == "CL-LEN"]
    assert (f"commitlog/{path.name}", at) in [(one["file"], one["offset"]) for one in blamed]
    assert main(["copy", "--salvage", str(root), str(tmp_path / "copy")]) == Exit.SKIPPED
    assert len(read(tmp_path / "copy", capsys)) == len(others)


@FIXES
def test_a_damaged_record_over_a_valid_one_is_no_reason_to_write_over_it(
    writable_store: Any, capsys: pytest.CaptureFixture[str], fix: list[str]
) -> None:
    root = writable_store("49-broker")
    _, _, others = lay_over(root, capsys)
    main([fix[0], str(root), *fix[1:]])
    assert places(read(root, capsys)) >= others
