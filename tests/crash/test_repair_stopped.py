"""A repair, and its undoing, in a process that is killed: the next one completes either, byte, owner, mode and time."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.crash.test_copy_stopped import FAR, stop
from tests.support.damaged import Workshop, mutations
from tests.support.stores import FileState, tree_changes, tree_state

APPLY = ("--apply", "--allow", "state,primary", "--quiet")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stopped")
    with Workshop(place).damaged("5.3.3", mutations("5.3.3")["A/body-flip@4thlast-mid"], abort=True) as root:
        shutil.copytree(root, place / "source")
    (place / "source/consumequeue/TopicA/1/00000000000000000000").unlink()
    return place / "source"


def restorable(root: Path) -> dict[str, FileState]:
    """Return everything but the times of inodes, and the lock, which taking it makes."""
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items() if path not in ("", "lock")}


def undo_of(root: Path) -> Path:
    (found,) = Path(f"{root}-rmqtool-undo").iterdir()
    return found


def check_apply(source: Path, root: Path, call: int) -> None:
    """Kill a repair: it can be taken back, and begun anew."""
    shutil.copytree(source, root)
    before = restorable(root)
    code, _ = stop("SIGKILL", call, ["repair", str(root), *APPLY])
    assert code == -signal.SIGKILL
    again = root.with_name("again")
    journals = Path(f"{root}-rmqtool-undo")
    for name in [one.name for one in journals.iterdir()] if journals.exists() else ():
        assert main(["repair", "--undo", str(journals / name), "--quiet"]) in (Exit.DONE, Exit.USAGE)
    assert (call, tree_changes(before, restorable(root))) == (call, [])
    shutil.copytree(source, again)
    stop("SIGKILL", call, ["repair", str(again), *APPLY])
    assert (call, main(["repair", str(again), *APPLY])) == (call, Exit.DONE)
    assert main(["check", str(again), "--quiet"]) == Exit.DONE


def check_undo(source: Path, root: Path, call: int) -> None:
    """Kill the taking back of a repair: the next one completes it."""
    shutil.copytree(source, root)
    before = restorable(root)
    assert main(["repair", str(root), *APPLY]) == Exit.DONE
    words = ["repair", "--undo", str(undo_of(root)), "--quiet"]
    assert stop("SIGKILL", call, words)[0] == -signal.SIGKILL
    assert main(words) == Exit.DONE
    assert (call, tree_changes(before, restorable(root))) == (call, [])


def calls_of(source: Path, place: Path) -> tuple[int, int]:
    """Return how many calls a repair takes that nothing stops, and its undoing."""
    root = place / "store"
    shutil.copytree(source, root)
    _, shown = stop("SIGINT", FAR, ["repair", str(root), *APPLY, "--json"])
    apply = FAR - int(shown.splitlines()[-1])
    undo = json.loads("\n".join(shown.splitlines()[:-1]))["undo"]
    _, shown = stop("SIGINT", FAR, ["repair", "--undo", undo, "--quiet"])
    return apply, FAR - int(shown.splitlines()[-1])


@pytest.mark.parametrize("check", [check_apply, check_undo])
def test_a_repair_that_is_killed_in_its_midst(
    check: Callable[[Path, Path, int], None], damaged: Path, tmp_path: Path
) -> None:
    calls = calls_of(damaged, tmp_path)[check is check_undo]
    check(damaged, tmp_path / "killed", max(calls * 2 // 3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_apply, check_undo])
def test_a_repair_that_is_killed_at_every_call(
    check: Callable[[Path, Path, int], None], damaged: Path, tmp_path: Path
) -> None:
    calls = calls_of(damaged, tmp_path)[check is check_undo]
    for call in range(1, calls + 1):
        check(damaged, tmp_path / f"{call}" / "store", call)
        shutil.rmtree(tmp_path / f"{call}")
