"""Timers under kill -9: life after life on one store, each ended at a random call that changes a file.

After each kill the store is recovered and checked: the wheel may lack only what the next start adds to it. In the end
everything comes that was acknowledged, and the wheel agrees with the timer log. Twice comes only what was delivered, or
put again to come nearer, in a life that was killed before it saved how far it was: a broker's timers promise no more.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool import check
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.findings import Severity
from tests.crash.timed_life import finish, setup_at
from tests.support.manual_clock import START
from tests.support.stores import FIXTURES

SEED = 20
# Kills in the default run, and in the long one; a store is finished after so many.
FEW, MANY, OF_ONE_STORE = 12, 2_000, 25
# A life makes fewer calls than this.
MOST_CALLS = 260

Live = Callable[[str], str]


@pytest.fixture
def live() -> Iterator[Live]:
    """Return a function that lives one life in a process of its own, and says how it ended."""
    words = [sys.executable, "-m", "tests.crash.timed_life"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=FIXTURES.parent, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def ask(line: str) -> str:
            asked.write(f"{line}\n")
            return answers.readline().strip()

        yield ask


class Notes:
    """What the lives of one store noted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.put: set[str] = set()
        # From where to where each life delivered what it did not save.
        self.unsaved: list[tuple[int, int]] = []
        self.now = START
        self._read = self._saved = 0

    def read(self) -> None:
        """Read the notes of the life that just ended."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in lines[self._read :]:
            self.add(line)
        self._read = len(lines)

    def add(self, line: str) -> None:
        """Add one note."""
        word, _, about = line.partition(" ")
        if word == "put":
            self.put.add(about)
        elif word == "now":
            self.now = int(about)
        else:
            if word == "began":
                self.unsaved.append((self._saved, int(about)))
            self._saved = int(about)


def lives_of(live: Live, place: Path, seed: int, kills: int) -> int:
    """Live and kill on one store, then judge; return how often it was killed."""
    chance = random.Random(seed)
    root, notes, killed = str(place / "store"), Notes(place / "notes"), 0
    Path(root).mkdir()
    with setup_at(root, START) as setup, MessageStore.create(setup):
        pass
    for _ in range(kills):
        end = live(f"{root} {chance.randrange(1, MOST_CALLS)} {chance.randrange(1 << 30)} {notes.now} {notes.path}")
        assert end in ("killed", "lived")
        killed += end == "killed"
        notes.read()
        with setup_at(root, notes.now) as setup:
            recover(setup)
        found = [one for one in check(root) if one.severity is not Severity.NOTICE]
        assert found == [], (seed, killed)
    with setup_at(root, notes.now) as setup:
        bodies = finish(setup, notes.add)
    assert [one for one in check(root) if one.code.startswith("TM")] == [], seed
    came = Counter(bodies)
    assert notes.put - came.keys() == set(), seed
    unsaved = {body for low, high in notes.unsaved for body in bodies[low:high]}
    twice = {body for body, count in came.items() if count > 1 and body.startswith("near")}
    assert twice <= unsaved, seed
    assert len(unsaved) < len(came), seed
    return killed


def test_what_waits_for_its_time_comes_after_some_kills(live: Live, tmp_path: Path) -> None:
    assert lives_of(live, tmp_path, SEED, FEW) > FEW // 2


@pytest.mark.slow
def test_what_waits_for_its_time_comes_after_two_thousand_kills(live: Live, tmp_path: Path) -> None:
    killed = seed = 0
    while killed < MANY:
        seed += 1
        place = tmp_path / str(seed)
        place.mkdir()
        killed += lives_of(live, place, seed, OF_ONE_STORE)
