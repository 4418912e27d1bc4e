"""What is written from a store that others may not read is closed to them, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit


def modes(path: Path) -> dict[str, str]:
    every = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {str(one.relative_to(path)): oct(one.stat().st_mode & 0o777) for one in every}


WRITES = (
    ["export", "{root}", "--to", "{out}", "--engine", "local"],
    ["export", "{root}", "--to", "{out}", "--engine", "local", "-j", "2"],
    ["check", "{root}", "--report", "{out}.html"],
    ["stat", "{root}", "--html", "{out}"],
    ["copy", "{root}", "{out}.store", "--ids", "{out}"],
)


@pytest.fixture(autouse=True)
def usual_umask() -> Any:
    before = os.umask(0o022)
    yield
    assert os.umask(before) == 0o022


def write(words: list[str], root: Path, out: Path) -> dict[str, str]:
    assert main([word.format(root=root, out=out) for word in words]) in (Exit.DONE, Exit.NO)
    found = {f"{path.name}/{name}": mode for path in out.parent.glob("out*") for name, mode in modes(path).items()}
    assert found
    return found


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
@pytest.mark.parametrize("closed", ["root", "files"])
def test_nobody_else_may_read_it(words: list[str], closed: str, writable_store: Any, tmp_path: Path) -> None:
    root = writable_store("49-broker")
    if closed == "root":
        root.chmod(0o700)
    else:
        for path in root.rglob("*"):
            if path.is_file():
                path.chmod(0o600)
    found = write(words, root, tmp_path / "out")
    others = 0o077 if closed == "root" else 0o044
    assert not [(name, mode) for name, mode in found.items() if int(mode, 8) & others]


def test_of_an_open_store_it_is_as_open_as_usual(writable_store: Any, tmp_path: Path) -> None:
    root = writable_store("49-broker")
    root.chmod(0o755)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    found = write(WRITES[2], root, tmp_path / "out")
    assert set(found.values()) == {"0o644"}
