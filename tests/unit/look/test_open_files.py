"""A check closes what it opens: a process that checks many stores must not run out of files."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from rmqtool.cli import main


def open_files(root: Path) -> list[str]:
    """Return which files below a directory this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the listing itself
            continue
    return sorted(path for path in found if path.startswith(f"{root}/"))


@pytest.mark.parametrize("command", ["check", "repair", "recover", "info", "stat"])
def test_no_file_of_the_store_stays_open(command, writable_store, capsys):
    root = writable_store("49-killed-torn")
    gc.disable()  # what only the collector closes stays open for long
    try:
        main([command, str(root)])
        assert open_files(root) == []
    finally:
        gc.enable()
        gc.collect()
    capsys.readouterr()
