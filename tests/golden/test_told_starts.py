"""What the real brokers did to damaged stores is what the model says: a sample here, all of it with ``slow``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.recovery import FIELDS, VERSIONS, Case, cases, rehearsed, undetermined

SAMPLE = 15
SEED = 20261118

every_version = pytest.mark.parametrize("version", VERSIONS)


def differences(chosen: Iterable[Case], tmp_path: Path) -> tuple[list[str], Counter[str], Counter[str]]:
    """Return what differs, how often each field was compared, and how often its difference was not for us to know."""
    wrong: list[str] = []
    compared: Counter[str] = Counter()
    unknowable: Counter[str] = Counter()
    for case in chosen:
        root = case.prepare(tmp_path / "bases", tmp_path / "store")
        ours, theirs = case.predict(root), case.recorded(root)
        excused = undetermined(ours, theirs, case.outcome, case.sizes["maxIndexNum"] - 1)
        for field in FIELDS:
            if field not in theirs:
                continue
            compared[field] += 1
            if ours[field] == theirs[field]:
                continue
            if field in excused:
                unknowable[field] += 1
            else:
                wrong.append(f"{case.name}, {field}: {ours[field]!r:.300} instead of {theirs[field]!r:.300}")
    return wrong, compared, unknowable


@every_version
def test_a_sample_of_the_recorded_starts(version: str, tmp_path: Path) -> None:
    chosen = random.Random(SEED).sample(list(cases(version)), SAMPLE)
    wrong, compared, _ = differences(chosen, tmp_path)
    assert wrong == []
    assert compared["loads"] == SAMPLE
    assert compared["queues"] > SAMPLE * 3 // 4


@every_version
def test_what_is_told_does_not_depend_on_what_is_written(version: str, tmp_path: Path) -> None:
    """Without the contents of index files a start is rehearsed faster; nothing that is told may differ."""
    assert differing(random.Random(SEED + 1).sample(list(cases(version)), SAMPLE // 2), tmp_path) == []


def differing(chosen: Iterable[Case], tmp_path: Path) -> list[str]:
    """Return the cases in which a start that is only told says something else than one that is written."""
    wrong = []
    for case in chosen:
        root = case.prepare(tmp_path / "bases", tmp_path / "store")
        with rehearsed(root, case.version, case.settings) as (written, _):
            pass
        with rehearsed(root, case.version, case.settings, contents=False) as (told, _):
            pass
        if told != written:
            wrong.append(case.name)
    return wrong


@pytest.mark.slow
@every_version
def test_nothing_that_is_told_depends_on_what_is_written(version: str, tmp_path: Path) -> None:
    assert differing(cases(version), tmp_path) == []


@pytest.mark.slow
@every_version
def test_every_recorded_start(version: str, tmp_path: Path) -> None:
    wrong, compared, unknowable = differences(cases(version), tmp_path)
    assert wrong == []
    assert compared["loads"] == {"4.9.8": 875, "5.3.3": 875, "5.4.0": 887}[version]
    assert (
        dict(unknowable)
        == {
            "4.9.8": {"create": 2, "bytes of the index": 2, "bytes of the checkpoint": 3},
            "5.3.3": {"create": 2, "bytes of the index": 2, "bytes of the checkpoint": 2},
            "5.4.0": {"create": 16, "bytes of the index": 16},
        }[version]
    )
