"""Damaged stores: every message outside the damage is exported, and ``TARGET_damage`` names the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.errors import StoreError
from rmqtool.exports.choice import DEFAULT, OnCorrupt
from rmqtool.exports.run import DAMAGE_SCHEMA
from rmqtool.exports.target import damage_directory
from rmqtool.log.ranges import Effort, read_plan
from rmqtool.log.read import Damage, Note, Part
from rmqtool.log.sources import read_store_log
from rmqtool.log.stream import iter_parts
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.exported import export, read
from tests.support.stores import truth

Unpacker = Callable[[str], Path]
# A message of 49-basic with a body, and where the body of a record begins.
FLIPPED = next(
    message["commitLogOffset"]
    for message in truth("49-basic")["messages"]
    if message["commitLogOffset"] >= 65536 and message["storedBodyLength"]
)
BODY_AT = 88
EMIT = replace(DEFAULT, on_corrupt=OnCorrupt.EMIT)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def by_walking(root: Path) -> tuple[list[int], list[Damage]]:
    """Return where the messages of a store begin, and its damage, as one reader in one piece sees them."""
    log = read_store_log(str(root))
    plan = read_plan(log.files, DEFAULT.selection(), log.queues)
    places, damages = [], []
    for found in iter_parts(plan, DEFAULT.selection(), Effort()):
        if isinstance(found, Part):
            places += found.records.column("physical_offset").tolist()
        elif isinstance(found, Damage):
            damages.append(found)
        else:
            assert isinstance(found, Note)
    return places, damages


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_stores_lose_nothing_more_in_splits(version: str, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    every = mutations(version)
    seen = 0
    for key in sample(version, 12, seed=14):
        with workshop.damaged(version, every[key], abort=False) as root:
            if not list(root.glob("commitlog/*")):
                continue
            places, damages = by_walking(root)
            target = tmp_path / "out" / key
            outcome = export(
                target, root, choice=replace(EMIT, split_size=20 << 10, columns=("commitlog_offset", "body"))
            )
        found = read(target)["commitlog_offset"].to_pylist() if outcome.files else []
        assert found == places, key
        assert [damage for _, damage in outcome.damages if damage.code != "BD-INFLATE"] == damages, key
        seen += len(damages)
        if outcome.damages:
            table = pq.read_table(damage_directory(str(target)))
            assert table.schema.equals(DAMAGE_SCHEMA)
            rows = [(row["code"], row["file"], row["offset"], row["length"]) for row in table.to_pylist()]
            assert rows == [damage[:4] for _, damage in outcome.damages], key
    assert seen > 2


@pytest.fixture
def broken(writable_store: Unpacker) -> Path:
    """Give a store with one flipped bit in a body, at a place that tests may state."""
    root = writable_store("49-basic")
    path = root / "commitlog" / f"{65536:020}"
    data = bytearray(path.read_bytes())
    data[FLIPPED - 65536 + BODY_AT] ^= 1
    path.write_bytes(data)
    return root


def test_emit_names_the_damage_and_exports_the_rest(broken: Path, tmp_path: Path) -> None:
    outcome = export(tmp_path / "out", broken, choice=EMIT)
    assert outcome.rows == 682
    (row,) = pq.read_table(tmp_path / "out_damage").to_pylist()
    assert (row["code"], row["file"], row["offset"]) == ("CL-CRC", f"commitlog/{65536:020}", FLIPPED - 65536)
    assert row["broker"] == broken.parent.name
    assert pq.read_table(tmp_path / "out").num_rows == 682


def test_skip_leaves_it_out_without_a_word_in_files(broken: Path, tmp_path: Path) -> None:
    outcome = export(tmp_path / "out", broken, choice=replace(DEFAULT, on_corrupt=OnCorrupt.SKIP))
    assert (outcome.rows, len(outcome.damages)) == (682, 1)
    assert not (tmp_path / "out_damage").exists()


def test_fail_stops_and_leaves_nothing(broken: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"CL-CRC: .* \(\d+ bytes\)") as failed:
        export(tmp_path / "out", broken)
    assert (failed.value.file, failed.value.offset) == (f"commitlog/{65536:020}", FLIPPED - 65536)
    assert "--on-corrupt emit" in (failed.value.hint or "")
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.iterdir()) == []


def test_body_that_does_not_inflate_is_exported_as_stored_and_named(store: Unpacker, tmp_path: Path) -> None:
    outcome = export(tmp_path / "out", store("49-compressed-batch"), choice=EMIT)
    assert outcome.rows == 164
    (row,) = pq.read_table(tmp_path / "out_damage").to_pylist()
    assert (row["code"], row["file"]) == ("BD-INFLATE", f"commitlog/{131072:020}")


def test_segment_that_vanishes_while_it_is_read_is_named(writable_store: Unpacker, tmp_path: Path) -> None:
    from rmqtool.exports.run import Answers, Job
    from tests.support.exported import HERE

    root = writable_store("49-basic")

    def deleting(jobs: list[Job]) -> Answers:
        os.unlink(root / "commitlog" / f"{131072:020}")
        yield from HERE(jobs)

    outcome = export(tmp_path / "out", root, choice=EMIT, engine=deleting)
    assert [(damage.code, damage.file) for _, damage in outcome.damages] == [("ST-READ", f"commitlog/{131072:020}")]
    assert 500 < outcome.rows < 683
