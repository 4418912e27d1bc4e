"""A store is listed once for a call that writes into it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqtool
from rmqtool.files.posix import PosixReadableFileSystem


def test_queues_are_listed_once_for_a_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path / "store")
    rmqtool.init(root)
    rmqtool.put(root, {"topic": "T", "body": "first"}, create=True)
    listed: list[str] = []
    real = PosixReadableFileSystem.listdir

    def noted(files: PosixReadableFileSystem, path: str = "") -> object:
        listed.append(path)
        return real(files, path)

    monkeypatch.setattr(PosixReadableFileSystem, "listdir", noted)
    (stored,) = rmqtool.put(root, {"topic": "T", "body": "second"})
    assert stored["status"] == "PUT_OK"
    assert listed.count("consumequeue") == 1
    assert listed.count("index") == 1
