"""A copy that is stopped on its way: nothing is at its place, and the next one clears what a killed one left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.damaged import Workshop, mutations
from tests.support.recovered import valid_records
from tests.support.stores import FIXTURES

# Stops itself by a signal inside the n-th call to the disk that makes, forces, renames or removes something.
_STOPPED = """
import os, signal, sys
from rmqtool.cli import main
# A shell lets what it runs in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
number, left = getattr(signal, sys.argv[1]), int(sys.argv[2])
def hear(event, arguments):
    global left
    made = event in ("os.rename", "os.mkdir", "os.remove", "os.truncate")
    if made or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
sys.addaudithook(hear)
status = main(sys.argv[3:])
if left > 0:
    print(left)
sys.exit(status)
"""
FAR = 100_000
# The call that makes the file of the ids, which lies in a directory of its own.
LISTED = 11


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a damaged store, so that there is a lost-and-found."""
    place = tmp_path_factory.mktemp("stopped")
    with Workshop(place).damaged("5.3.3", mutations("5.3.3")["A/body-flip@4thlast-mid"], abort=True) as root:
        shutil.copytree(root, place / "source")
    return place / "source"


def words_for(source: Path, place: Path) -> list[str]:
    return ["copy", str(source), str(place / "new"), "--salvage", "--ids", str(place / "ids" / "ids.jsonl"), "--quiet"]


def stop(signal_name: str, call: int, words: list[str]) -> tuple[int, str]:
    # -B: modules compiled on the way would count.
    done = subprocess.run(
        [sys.executable, "-B", "-c", _STOPPED, signal_name, str(call), *words],
        cwd=FIXTURES.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def calls_of(source: Path, place: Path) -> int:
    """Return how many calls a copy takes that nothing stops."""
    (place / "ids").mkdir(parents=True)
    status, shown = stop("SIGINT", FAR, words_for(source, place))
    assert status == Exit.SKIPPED
    return FAR - int(shown.splitlines()[-1])


def check_complete(source: Path, place: Path) -> None:
    assert sorted(os.listdir(place)) == ["ids", "new", "new.lost-and-found"]
    assert os.listdir(place / "ids") == ["ids.jsonl"]
    messages = len(valid_records(source))
    assert len(valid_records(place / "new")) == messages
    assert len((place / "ids" / "ids.jsonl").read_text().splitlines()) == messages
    assert len((place / "new.lost-and-found" / "list.jsonl").read_text().splitlines()) == 1


def check_interrupted(source: Path, place: Path, call: int) -> bool:
    """Interrupt a copy; return whether it was complete by then."""
    (place / "ids").mkdir(parents=True)
    status, _ = stop("SIGINT", call, words_for(source, place))
    assert (call, status) in ((call, Exit.INTERRUPTED), (call, Exit.SKIPPED))
    if (place / "new").exists():
        check_complete(source, place)
        return True
    assert (call, status) == (call, Exit.INTERRUPTED)
    assert (call, os.listdir(place), os.listdir(place / "ids")) == (call, ["ids"], [])
    return False


def check_killed(source: Path, place: Path, call: int) -> bool:
    """Kill a copy, and copy again; return whether the first was complete by then."""
    (place / "ids").mkdir(parents=True)
    assert stop("SIGKILL", call, words_for(source, place))[0] == -signal.SIGKILL
    was_complete = (place / "new").exists()
    assert (call, main(words_for(source, place))) == (call, Exit.REFUSED if was_complete else Exit.SKIPPED)
    check_complete(source, place)
    return was_complete


CHECKS = {"SIGINT": check_interrupted, "SIGKILL": check_killed}


def test_a_copy_that_is_stopped_at_some_calls(damaged: Path, tmp_path: Path) -> None:
    calls = calls_of(damaged, tmp_path / "whole")
    # At its beginning, in its midst, and when what belongs to it has its place and it has not.
    assert not check_interrupted(damaged, tmp_path / "begun", 2)
    assert not check_interrupted(damaged, tmp_path / "listed", LISTED)
    assert not check_interrupted(damaged, tmp_path / "midst", calls // 2)
    assert not check_killed(damaged, tmp_path / "placed", calls - 3)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_a_copy_that_is_stopped_at_every_call(
    check: Callable[[Path, Path, int], bool], damaged: Path, tmp_path: Path
) -> None:
    calls = calls_of(damaged, tmp_path / "whole")
    complete = []
    for call in range(1, calls + 1):
        complete.append(check(damaged, tmp_path / f"{call}", call))
        shutil.rmtree(tmp_path / f"{call}")
    assert complete == sorted(complete)
    assert not complete[0]


def test_two_copies_to_one_place(damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What runs is not taken for dead, also where it holds no lock of a store."""
    staging = tmp_path / ".new.rmqtool-copy"
    staging.mkdir()
    hold = "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, 2); print('held', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", hold, str(staging / "running")], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert main(["copy", str(damaged), str(tmp_path / "new"), "--salvage", "--json"]) == Exit.IN_USE
        other.communicate(b"\n")
    assert json.loads(capsys.readouterr().err)["error"]["file"] == str(staging)
    assert main(["copy", str(damaged), str(tmp_path / "new"), "--salvage", "--quiet"]) == Exit.SKIPPED
    assert not staging.exists()
