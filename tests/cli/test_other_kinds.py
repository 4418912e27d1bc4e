"""Something else than a file under the name of one: a look says so, and never calls it a failed write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit

NAMES = ("checkpoint", "lock", "abort", "config/topics.json", "index")


def put(path: Path, kind: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")


@pytest.mark.parametrize("kind", ["FIFO", "directory", "link"])
@pytest.mark.parametrize("name", NAMES)
def test_a_rehearsal_never_fails_to_write(
    writable_store: Any, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = writable_store("49-broker")
    put(root / name, kind)
    status = main(["recover", str(root)])
    assert status in (Exit.DONE, Exit.NO, Exit.NOT_A_STORE)
    if status == Exit.NOT_A_STORE:
        assert str(root / name) in capsys.readouterr().err
