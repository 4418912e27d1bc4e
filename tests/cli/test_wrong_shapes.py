"""A name of the store that is something else: every command that writes says which, and has written nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import tree_changes, tree_state

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
