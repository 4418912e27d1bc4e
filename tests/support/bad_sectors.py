"""A disk that cannot read some bytes of a file: the calls that touch them fail, in this process and in its copies."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_PREAD, _PREADV = os.pread, os.preadv


def spoil(monkeypatch: pytest.MonkeyPatch, path: Path, *spans: tuple[int, int]) -> None:
    """Let reading of the bytes from ``begin`` to before ``end`` of a file fail; the file itself stays as it is."""
    inode = path.stat().st_ino

    def judge(descriptor: int, length: int, at: int) -> None:
        if os.fstat(descriptor).st_ino == inode and any(at < end and begin < at + length for begin, end in spans):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(descriptor: int, length: int, at: int) -> bytes:
        judge(descriptor, length, at)
        return _PREAD(descriptor, length, at)

    def preadv(descriptor: int, buffers: Sequence[Any], at: int, *flags: int) -> int:
        judge(descriptor, sum(memoryview(buffer).nbytes for buffer in buffers), at)
        return _PREADV(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "preadv", preadv)
