"""Damaged stores after a repair, started by the real classes: they load them, and serve every message that survives."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.conformance.oracle.runs import read_json, start_many
from tests.conformance.test_recovered_stores import REFUSED, served_places
from tests.support.recovered import valid_records
from tests.support.recovery import VERSIONS, Case, cases, sizes_as_words

pytestmark = pytest.mark.conformance
EACH = 60
BRIDGED = 24
PIECES = 8
# Records whose own numbers are wrong: the reader of the real classes believes no number behind them any more.
ODD = {"CL-QOFF", "CL-TOPIC", "CL-PROPS", "CL-HEAD"}
QUARANTINE = "RMQTOOL_QUARANTINE"


def candidates(version: str) -> list[Case]:
    every = {(case.mutation.key, case.outcome["abort"]): case for case in cases(version)}
    usable = [case for _, case in sorted(every.items()) if case.mutation.name not in REFUSED]
    random.Random(f"repaired {version}").shuffle(usable)
    return usable


def repair(case: Case, root: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    """Repair a store with every leave."""
    settings = [word for setting in case.settings for word in ("--conf", setting)]
    words = ["repair", str(root), "--as", VERSIONS[case.version].value, *settings, "--apply", "--json"]
    status = main([*words, "--allow", "state,primary"])
    assert status in (Exit.DONE, Exit.NO), case.name
    shown: dict[str, Any] = json.loads(capsysbinary.readouterr().out)
    return shown


def repaired(
    chosen: list[Case], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], *, bridged: bool = False
) -> Iterator[tuple[Case, Path, dict[str, Any]]]:
    """Yield damaged stores that are repaired, or those of them that got a bridge."""
    for number, case in enumerate(chosen):
        root = case.prepare(tmp_path / "bases", tmp_path / f"{number}" / "store")
        before = {record.physical_offset for record in valid_records(root)}
        shown = repair(case, root, capsysbinary)
        kept = {record.physical_offset for record in valid_records(root)}
        assert (case.name, before - kept) == (case.name, set())
        if bridged and not any(step["action"] == "bridge" for step in shown["steps"]):
            shutil.rmtree(root)
            continue
        yield case, root, shown


def serve(version: str, stores: list[tuple[Case, Path, dict[str, Any]]]) -> None:
    """Start the stores with the real classes; they must load, and serve as many whole messages as are there."""
    outs = [root.parent / "out.json" for _, root, _ in stores]
    expected = [(served_places(root), valid_records(root)) for _, root, _ in stores]
    by_settings: dict[tuple[str, ...], list[int]] = {}
    for number, (case, _, _) in enumerate(stores):
        by_settings.setdefault(tuple(sizes_as_words(case.sizes)), []).append(number)
    for words, numbers in by_settings.items():
        settings = dict(word.split("=") for word in words)
        start_many(version, [stores[n][1] for n in numbers], [outs[n] for n in numbers], settings=settings)
    wrong = []
    for (case, _, shown), out, (places, records) in zip(stores, outs, expected, strict=True):
        answer = read_json(out)
        if answer["load"].get("result") is not True or "running" not in answer:
            wrong.append((case.name, "", "", answer["load"], sorted(answer)))
            continue
        own = {r.physical_offset: (r.topic, str(r.queue_id)) for r in records if r.topic != QUARANTINE}
        odd = any(finding["code"] in ODD and not _only_ends_in_zeros(finding) for finding in shown["left"])
        for queue, units in places.items():
            whole = [place for place in units if place in own and (odd or own[place] == queue)]
            served = answer["running"]["queues"].get(queue[0], {}).get(queue[1], {"readable": 0, "served": 0})
            count = served["served" if odd else "readable"]
            if count < len(whole):
                wrong.append((case.name, *queue, count, len(whole)))
        placed = {place for units in places.values() for place in units}
        lost = [r for r in records if r.dispatched and r.physical_offset not in placed]
        if lost and not odd:
            wrong.append((case.name, "", "", len(lost), lost[0]))
    assert wrong == []


def _only_ends_in_zeros(finding: dict[str, Any]) -> bool:
    """Whether a record lost the end of its properties to zeros: its numbers are right."""
    return "properties end in" in finding["message"]


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_real_classes_serve_what_was_repaired(
    version: str,
    real_classes: Callable[[str], None],
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    real_classes(version)
    serve(version, list(repaired(candidates(version)[:EACH], tmp_path, capsysbinary)))


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_nothing_behind_a_bridge_is_lost_when_a_broker_recovers_after_a_crash(
    version: str,
    real_classes: Callable[[str], None],
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    real_classes(version)
    # Without a checkpoint the whole log is read again, 5.4 reads its last ten files: these logs have seven.
    few_files = [case for case in candidates(version) if case.mutation.base != "L"]
    stores = list(islice(repaired(few_files, tmp_path, capsysbinary, bridged=True), BRIDGED))
    for _, root, _ in stores:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
    serve(version, stores)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_real_classes_serve_every_repaired_store(
    version: str,
    piece: int,
    real_classes: Callable[[str], None],
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The pieces together are every variant, each a seeded sample; each can be run alone."""
    real_classes(version)
    serve(version, list(repaired(candidates(version)[piece::PIECES], tmp_path, capsysbinary)))
