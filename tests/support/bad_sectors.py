"""A disk that cannot read some bytes of a file: the calls that touch them fail, in this process and in its copies."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

_PREAD, _PREADV = os.pread, os.preadv

Reading = tuple[Callable[[int, int, int], bytes], Callable[..., int]]


def failing_reads(path: Path, *spans: tuple[int, int]) -> Reading:
    """Return a pread and a preadv that fail for the bytes from ``begin`` to before ``end`` of a file, and no others."""
    inode = path.stat().st_ino

    def judge(descriptor: int, length: int, at: int) -> None:
        if any(at < end and begin < at + length for begin, end in spans) and os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(descriptor: int, length: int, at: int) -> bytes:
        judge(descriptor, length, at)
        return _PREAD(descriptor, length, at)

    def preadv(descriptor: int, buffers: Sequence[Any], at: int, *flags: int) -> int:
        judge(descriptor, sum(memoryview(buffer).nbytes for buffer in buffers), at)
        return _PREADV(descriptor, buffers, at, *flags)

    return pread, preadv


def spoil(monkeypatch: pytest.MonkeyPatch, path: Path, *spans: tuple[int, int]) -> None:
    """Let reading of some bytes of a file fail in this test; the file itself stays as it is."""
    pread, preadv = failing_reads(path, *spans)
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "preadv", preadv)


def spoil_files(monkeypatch: pytest.MonkeyPatch, paths: Sequence[Path], begin: int = 0) -> None:
    """Let reading of some files fail in this test, in the first of them from ``begin`` on."""
    inodes = {path.stat().st_ino: begin if path == paths[0] else 0 for path in paths}

    def judge(descriptor: int, length: int, at: int) -> None:
        first = inodes.get(os.fstat(descriptor).st_ino)
        if first is not None and length and at + length > first:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(descriptor: int, length: int, at: int) -> bytes:
        judge(descriptor, length, at)
        return _PREAD(descriptor, length, at)

    def preadv(descriptor: int, buffers: Sequence[Any], at: int, *flags: int) -> int:
        judge(descriptor, sum(memoryview(buffer).nbytes for buffer in buffers), at)
        return _PREADV(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "preadv", preadv)
