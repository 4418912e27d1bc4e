"""A name of the store that is something else: every command that writes says which, and has written nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import tree_changes, tree_state

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device")
FILES = ("lock", "checkpoint", "abort.bak")
DIRECTORIES = ("commitlog", "consumequeue", "index", "config")
COMMANDS = {
    "produce": ("-t", "TopicA", "hello"),
    "recover": ("--apply",),
    "tick": (),
    "topic": ("create", "New"),
}


def as_directory(path: Path, _aside: Path) -> None:
    path.mkdir()


def as_file(path: Path, _aside: Path) -> None:
    path.write_bytes(b"x")


def as_link(path: Path, aside: Path) -> None:
    path.symlink_to(aside)


SHAPES: list[tuple[str, Callable[[Path, Path], None], str]] = [
    *((name, as_directory, "is a directory, a store has a file there") for name in FILES),
    *((name, as_file, "is a file, a store has a directory there") for name in DIRECTORIES),
    *((name, as_link, "is a symbolic link, a store has a") for name in (*FILES, *DIRECTORIES)),
]


def test_what_is_something_else_is_said_and_nothing_written(
    writable_store: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the user had a server: then the commands look for the owner of the lock first.
    monkeypatch.setattr("rmqtool.store.owner.any_owner", lambda: True)
    root = writable_store("53-basic")
    (root / "lock").touch()
    aside = root.parent / "aside"
    for name, change, text in SHAPES:
        path = root / name
        path.rename(aside)
        change(path, aside)
        before = tree_state(root)
        for command, given in COMMANDS.items():
            if command == "topic" and name == "commitlog":
                # It has nothing to do with the log.
                continue
            status = main([command, str(root), *given])
            said = capsys.readouterr().err
            assert (name, command, status) == (name, command, Exit.NOT_A_STORE), said
            assert f"{name} {text}" in said, command
            assert "nothing was written" in said, command
            assert tree_changes(before, tree_state(root)) == [], command
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        aside.rename(path)
    assert main(["produce", str(root), *COMMANDS["produce"]]) == Exit.DONE


def as_fifo(path: Path, _aside: Path) -> None:
    os.mkfifo(path)


def as_device(path: Path, _aside: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


@pytest.mark.parametrize("change", [as_fifo, as_link, pytest.param(as_device, marks=ONLY_ROOT)])
def test_a_rehearsal_of_what_is_something_else_is_refused_as_no_store(
    change: Callable[[Path, Path], None], writable_store: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = writable_store("53-broker")
    (root / "abort").touch()
    index = min(path.name for path in (root / "index").iterdir())
    aside = root.parent / "aside"
    for name in (f"commitlog/{131072:020}", "checkpoint", f"index/{index}", "lock", "abort"):
        path = root / name
        path.rename(aside)
        change(path, aside)
        before = tree_state(root)
        assert (name, main(["recover", str(root)])) == (name, Exit.NOT_A_STORE)
        assert name in capsys.readouterr().err
        assert tree_changes(before, tree_state(root)) == []
        path.unlink()
        aside.rename(path)
    assert main(["recover", str(root)]) == Exit.DONE
