"""A sector that the disk cannot read costs the records that touch it, and no others, in every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.bad_sectors import spoil

SECTOR = 4096


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def places(found: list[dict[str, Any]]) -> set[int]:
    return {one["commitLogOffset"] for one in found if "commitLogOffset" in one}


class Case:
    """A store, the segment that is spoiled, and which messages must still be there."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str], page: int) -> None:
        self.root = root
        segments = sorted((root / "commitlog").iterdir())
        number, in_file = divmod(page * SECTOR, segments[0].stat().st_size)
        self.segment = segments[number]
        self.span = (in_file, in_file + SECTOR)
        assert main(["cat", str(root), "--jsonl"]) in (Exit.DONE, Exit.SKIPPED)
        self.all = lines(capsys)
        begin, end = page * SECTOR, (page + 1) * SECTOR
        self.lost = {
            one["commitLogOffset"]
            for one in self.all
            if one["commitLogOffset"] < end and begin < one["commitLogOffset"] + one["storeSize"]
        }
        self.kept = places(self.all) - self.lost


@pytest.fixture(params=[0, 1, 5, 9, 10, 13])
def case(
    writable_store: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: Any
) -> Case:
    found = Case(writable_store("49-broker"), capsys, request.param)
    assert found.lost
    spoil(monkeypatch, found.segment, found.span)
    return found


def test_cat_loses_only_what_touches_it(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", str(case.root), "--jsonl"]) == Exit.SKIPPED
    found = lines(capsys)
    assert places(found) == case.kept
    damages = [one["damage"] for one in found if "damage" in one]
    assert {(damage["code"], damage["file"]) for damage in damages} == {("ST-READ", f"commitlog/{case.segment.name}")}
    assert damages[0]["offset"] == min(case.lost) - int(case.segment.name)
    base = int(case.segment.name)
    spans = [(base + damage["offset"], base + damage["offset"] + damage["length"]) for damage in damages]
    assert not [place for place in case.kept if any(begin <= place < end for begin, end in spans)]
    assert all(any(begin <= place < end for begin, end in spans) for place in case.lost)


def test_salvage_and_export_keep_the_rest(case: Case, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["copy", "--salvage", str(case.root), str(tmp_path / "copy")]) == Exit.SKIPPED
    assert main(["export", str(case.root), "--to", str(tmp_path / "table"), "--engine", "local"]) == Exit.SKIPPED
    capsys.readouterr()
    assert main(["cat", str(tmp_path / "copy"), "--jsonl"]) == Exit.DONE
    assert len(lines(capsys)) == len(case.kept)
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "table").num_rows == len(case.kept)


def test_looks_answer_and_check_names_it(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(case.root), "--json"]) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["commitLog"]["maxOffset"] >= max(case.kept)
    assert main(["stat", str(case.root), "--json"]) == Exit.SKIPPED
    counted = json.loads(capsys.readouterr().out)
    assert counted["total"]["messages"] == len(case.kept)
    assert main(["check", str(case.root), "--jsonl"]) == Exit.SKIPPED
    *findings, summary = lines(capsys)
    found = next(one for one in findings if one["code"] == "ST-READ")
    assert found["severity"] == "error"
    assert found["offset"] == min(case.lost) - int(case.segment.name)
    assert summary["summary"]["messages"] == len(case.kept)


def test_recover_and_repair_lose_nothing_else(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["recover", str(case.root), "--as", "4.9"]) in (Exit.DONE, Exit.NO, Exit.SKIPPED)
    assert main(["repair", str(case.root)]) in (Exit.DONE, Exit.NO, Exit.SKIPPED)
    main(["recover", str(case.root), "--apply"])
    capsys.readouterr()
    main(["cat", str(case.root), "--jsonl"])
    assert places(lines(capsys)) == case.kept


def test_check_counts_the_rest_of_a_log_whose_only_segment_begins_with_the_sector(
    writable_store: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Case(writable_store("53-epoch"), capsys, 0)
    spoil(monkeypatch, found.segment, found.span)
    assert main(["check", str(found.root), "--jsonl"]) == Exit.SKIPPED
    *findings, summary = lines(capsys)
    assert summary["summary"]["messages"] == len(found.kept)
    assert [(one["offset"], one["length"]) for one in findings if one["code"] == "ST-READ"] == [(0, 4282)]
