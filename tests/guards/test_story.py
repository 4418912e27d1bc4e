"""No two commands contradict each other about one store, and no screen leads nowhere.

Every variant of the recovery catalogues and every incident made by hand is heard (``story.hear``) and compared
(``story.contradictions``); then the screens are obeyed (``story.follow``), from `check` and from each "fix" on.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.guards import story
from tests.guards.incidents import INCIDENTS, Around, Incident
from tests.guards.typed import Typed, at, is_ours
from tests.judged.rows import CONFIG_VERSIONS, catalogue, has_abort
from tests.support import damaged
from tests.support.mutations import apply_mutation
from tests.support.stores import unpack

# How many variants of each catalogue, and how many incidents, the default run hears; the long one hears all.
SAMPLE, INCIDENT_SAMPLE = 3, 40
SEED = 23
# What is not mended yet, by incident: the reason. Strict, so that what is mended must leave this table.
OPEN: dict[str, str] = {}


def _variants() -> Iterator[ParameterSet]:
    for version in (*damaged.VERSIONS, *CONFIG_VERSIONS):
        keys = sorted(catalogue(version))
        heard = set(random.Random(f"{version}-{SEED}").sample(keys, SAMPLE))
        for key in keys:
            marks = [] if key in heard else [pytest.mark.slow]
            if (name := f"{version} {key}") in OPEN:
                marks.append(pytest.mark.xfail(reason=OPEN[name]))
            yield pytest.param(version, key, marks=marks, id=f"{version}-{key}")


def _incidents(count: int) -> Iterator[ParameterSet]:
    heard = set(random.Random(SEED).sample(sorted(INCIDENTS), count))
    for name in INCIDENTS:
        marks = [] if name in heard else [pytest.mark.slow]
        if name in OPEN:
            marks.append(pytest.mark.xfail(reason=OPEN[name]))
        yield pytest.param(name, marks=marks, id=name)


class Shelf:
    """Undamaged stores, unpacked once, and copies of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def copy(self, name: str, parent: Path) -> Path:
        """Copy a store below a directory of its own; return its root."""
        clean = self._directory / name.replace("/", "-")
        if not clean.exists():
            unpack(name, clean)
        parent.mkdir()
        subprocess.run(["cp", "-a", "--sparse=always", clean / "store", parent / "store"], check=True)
        return parent / "store"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Give the stores."""
    return Shelf(tmp_path_factory.mktemp("shelf"))


def judge(make: Callable[[Path], Path], around: Around, place: Path, *, every: bool) -> list[str]:
    """Return what is wrong with the story of a store. ``every``: obey each "fix" too, and rehearse each broker."""

    @contextmanager
    def standing(name: str) -> Iterator[Path]:
        root = make(place / name)
        with at(root.parent), around(root):
            yield root
        shutil.rmtree(root.parent)

    with standing("heard") as root:
        told = story.hear(root, story.ALL_VERSIONS if every else story.FEWEST_VERSIONS)
        wrong = list(story.contradictions(told))
        fixes = sorted(
            {one["fix"].replace(str(root), "{store}") for one in told.check if is_ours(one.get("fix") or "")}
        )
    for start in ["rmqtool check {store}", *(["rmqtool recover {store}", *fixes] if every else [])]:
        with standing("followed") as root:
            wrong += story.follow(start.replace("{store}", str(root)), known=[str(root)])
    return [words.replace(str(place), "") for words in wrong]


@pytest.mark.parametrize(("version", "key"), list(_variants()))
def test_a_variant_has_one_story(
    version: str, key: str, shelf: Shelf, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mutation = catalogue(version)[key]
    long = request.node.get_closest_marker("slow") is not None

    def make(parent: Path) -> Path:
        root = shelf.copy(f"recovery-{version}/base-{mutation.base}", parent)
        apply_mutation(root, mutation, abort=has_abort(mutation))
        return root

    assert judge(make, INCIDENTS["foreign file in the log"].around, tmp_path, every=long) == [], mutation.description


@pytest.mark.parametrize("name", list(_incidents(INCIDENT_SAMPLE)))
def test_an_incident_has_one_story(name: str, shelf: Shelf, tmp_path: Path) -> None:
    assert _judge_incident(INCIDENTS[name], shelf, tmp_path, every=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_incidents(len(INCIDENTS))))
def test_every_fix_of_an_incident_leads_somewhere(name: str, shelf: Shelf, tmp_path: Path) -> None:
    assert _judge_incident(INCIDENTS[name], shelf, tmp_path, every=True) == []


def _judge_incident(incident: Incident, shelf: Shelf, place: Path, *, every: bool) -> list[str]:
    def make(parent: Path) -> Path:
        root = shelf.copy(incident.store, parent)
        incident.damage(root)
        return root

    return judge(make, incident.around, place, every=every)


# -- the guard is able to fail

GRAVE = {"code": "CL-GAP", "severity": "error", "file": "commitlog/0", "message": "gone"}
GOOD_START = {
    "as": "5.3",
    "loads": True,
    "starts": True,
    "config": [],
    "files": [],
    "cut": None,
    "messagesUnreachable": 0,
}
ALL_WELL = {"info": 0, "check": 0, "check --quick": 0, "repair": 0, "recover": 0}
FOUND = ALL_WELL | {"check": 1, "check --quick": 1, "repair": 1}


def told(**words: object) -> story.Told:
    """Return answers that agree but for what is said."""
    return story.Told(**({"statuses": ALL_WELL, "plan": {"left": [], "steps": []}} | words))  # type: ignore[arg-type]


def test_stories_that_agree_are_not_found_fault_with() -> None:
    assert list(story.contradictions(told())) == []
    plan = {"left": [GRAVE], "steps": []}
    agreed = told(statuses=FOUND, info=[GRAVE], check=[GRAVE], quick=[GRAVE], plan=plan)
    assert list(story.contradictions(agreed)) == []


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"info": [GRAVE]}, "info finds CL-GAP commitlog/0 (gone) and check does not"),
        ({"info": [GRAVE]}, "info finds CL-GAP commitlog/0 (gone) and check --quick does not"),
        (
            {"info": [GRAVE], "check": [GRAVE | {"file": "commitlog/1"}], "quick": [GRAVE], "statuses": FOUND},
            "info finds CL-GAP commitlog/0 (gone) and check does not",
        ),
        (
            {"info": [GRAVE], "check": [GRAVE | {"severity": "notice"}], "quick": [GRAVE]},
            "info finds CL-GAP commitlog/0 (gone) and check does not",
        ),
        ({"statuses": ALL_WELL | {"check": 70}}, "check ends with 70, which is no answer"),
        ({"statuses": ALL_WELL | {"recover": 9999}}, "recover ends with 9999, which is no answer"),
        ({"statuses": ALL_WELL | {"info": 1}}, "info ends with 1, although it does not judge"),
        (
            {"statuses": ALL_WELL | {"info": 3}, "info_error": "no"},
            "info ends with 3 (no) and check finds nothing wrong",
        ),
        (
            {"check": [GRAVE], "plan": {"left": [GRAVE], "steps": []}},
            "check ends with 0 and finds CL-GAP commitlog/0: gone",
        ),
        ({"statuses": ALL_WELL | {"check": 1}}, "check ends with 1 and finds nothing"),
        ({"statuses": FOUND, "check": [GRAVE]}, "repair has nothing to do and check finds CL-GAP commitlog/0: gone"),
        (
            {"starts": [GOOD_START | {"starts": False, "reason": "commitlog/7 has 12 bytes"}]},
            "a 5.3 broker does not start (commitlog/7 has 12 bytes) and check does not name ['commitlog/7']",
        ),
        (
            {"starts": [GOOD_START | {"lost": [{"file": "commitlog/7", "leftover": False}]}]},
            "a 5.3 broker destroys messages of ['commitlog/7'] and check names none of these files",
        ),
        (
            {"starts": [GOOD_START | {"config": [{"file": "config/topics.json", "damaged": True}]}]},
            "a 5.3 broker cannot read config/topics.json and check does not name it",
        ),
        (
            {
                "starts": [
                    GOOD_START | {"files": [{"action": "delete", "path": "consumequeue/T/0/00", "sizeBefore": 20}]}
                ]
            },
            "a 5.3 broker deletes files of consumequeue/T/0 and check names nothing there",
        ),
        (
            {"starts": [GOOD_START | {"messagesUnreachable": 3}]},
            "a 5.3 broker leaves 3 messages in no queue and check finds nothing",
        ),
        (
            {"start_errors": ["commitlog/7: is a directory"]},
            "recover refuses (commitlog/7: is a directory) and check does not name it",
        ),
        ({"plan": {"left": [GRAVE], "steps": []}}, "repair would leave CL-GAP commitlog/0, which check does not know"),
        (
            {"plan": {"left": [], "steps": [{"class": "primary", "file": "commitlog/0"}]}},
            "repair would change commitlog/0 and check does not name it",
        ),
        (
            {"summary": {"errors": 1, "warnings": 0, "notices": 0}},
            "check shows (0, 0, 0) errors, warnings, notices and counts (1, 0, 0)",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_answers_that_contradict_each_other_are_told(answers: dict[str, object], words: str) -> None:
    assert words in list(story.contradictions(told(**answers)))


def screens(*rows: tuple[str, int, str]) -> Callable[[str], Typed]:
    """Return a fake tool that knows these lines: status, and what it says."""
    known = {line: Typed(line, status, said) for line, status, said in rows}
    return lambda line: known[line]


CHECK, REPAIR, APPLY = "rmqtool check /s", "rmqtool repair /s", "rmqtool repair /s --apply"


@pytest.mark.parametrize(
    ("rows", "sound", "wrong"),
    [
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, f"Next: {CHECK}")], False, "in a circle"),
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, f"Next: {CHECK}")], True, None),
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, "nothing can be repaired here")], False, "nothing says"),
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, "its messages are gone")], False, None),
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 70, "")], False, "ends with 70"),
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, f"Next: {APPLY}"), (APPLY, 0, "sound")], True, None),
        ([(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, f"Next: {APPLY}"), (APPLY, 0, "sound")], False, "nothing says"),
        (
            [(CHECK, 1, f"Next: {REPAIR}"), (REPAIR, 1, f"Next: {APPLY}"), (APPLY, 1, f"Next: {CHECK}")],
            False,
            "nothing says",
        ),
        ([(f"{CHECK}{n}", 1, f"Next: {CHECK}{n + 1}") for n in range(9)], False, "nothing says"),
    ],
    ids=[
        "circle",
        "sound all the same",
        "dead end",
        "told",
        "a bug",
        "mended",
        "not mended",
        "round after round",
        "no end",
    ],
)
def test_screens_that_lead_nowhere_are_told(
    rows: list[tuple[str, int, str]], sound: bool, wrong: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "by_hand", lambda root: False)
    found = list(story.follow(rows[0][0], screens(*rows), lambda store: sound))
    assert (found == []) if wrong is None else (len(found) == 1 and wrong in found[0])


def test_there_are_enough_incidents_and_each_does_something(shelf: Shelf, tmp_path: Path) -> None:
    assert len(INCIDENTS) >= 40
    damaging = [
        name for name, incident in INCIDENTS.items() if incident.damage is not Incident._field_defaults["damage"]
    ]
    for number, name in enumerate(damaging[:: len(damaging) // 8]):
        incident = INCIDENTS[name]
        root, clean = (shelf.copy(incident.store, tmp_path / f"{number}-{which}") for which in ("hit", "clean"))
        incident.damage(root)
        same = subprocess.run(
            ["diff", "-r", "--no-dereference", root, clean], capture_output=True, check=False, timeout=60
        )
        assert same.returncode != 0, f"{name} changes nothing"
