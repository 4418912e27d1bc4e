"""A process that is killed with -9 in the middle of delivery, retry, commit and revive: the next one does the rest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool.config import Version
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.crash.waiting_life import came, lay, live_on, promised, setup_on
from tests.support.stores import FIXTURES

# A life makes more calls than this; by default it is cut short at so many of them.
FEWEST_CALLS, ROUNDS = 48, 6
VERSIONS = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])

Live = Callable[[Path, int], str]


@pytest.fixture
def live(version: Version) -> Iterator[Live]:
    """Return a function that lets a process live on a store until it is killed before a call."""
    words = [sys.executable, "-m", "tests.crash.killed_lives", version.value]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=FIXTURES.parent, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def ask(root: Path, number: int) -> str:
            asked.write(f"{root} {number}\n")
            return answers.readline().strip()

        yield ask


def check_kills(live: Live, version: Version, tmp_path: Path, numbers: range) -> int:
    """Kill before each of these calls, go on, and judge; return how often there was such a call."""
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    with PosixWritableFileSystem(str(waiting)) as files:
        lay(files, version)
    for kills, number in enumerate(numbers):
        root = tmp_path / "store"
        shutil.copytree(waiting, root)
        end = live(root, number)
        with PosixWritableFileSystem(str(root)) as files:
            if end == "lived":
                with MessageStore.open(setup_on(files, version)) as store:
                    assert came(store, version) == dict.fromkeys(promised(version), 1)
                return kills
            assert end == "killed"
            recover(setup_on(files, version))
            assert live_on(files, version).keys() == promised(version), number
        shutil.rmtree(root)
    return len(numbers)


@VERSIONS
def test_killed_at_some_calls_everything_comes(live: Live, version: Version, tmp_path: Path) -> None:
    numbers = range(2, FEWEST_CALLS, FEWEST_CALLS // ROUNDS)
    assert check_kills(live, version, tmp_path, numbers) == len(numbers)


@pytest.mark.slow
@VERSIONS
def test_killed_at_every_call_everything_comes(live: Live, version: Version, tmp_path: Path) -> None:
    assert check_kills(live, version, tmp_path, range(1, 10_000)) > FEWEST_CALLS
