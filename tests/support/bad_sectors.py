"""A disk that cannot read some bytes of a file: the calls that touch them fail, in this process and in its copies."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

_PREAD, _PREADV = os.pread, os.preadv

Reading = tuple[Callable[[int, int, int], bytes], Callable[..., int]]


def failing_reads(path: Path, *spans: tuple[int, int]) -> Reading:
    """Return a pread and a preadv that fail for the bytes from ``begin`` to before ``end`` of a file, and no others."""
    return _failing({path.stat().st_ino: spans})


def _failing(spans_of: Mapping[int, Sequence[tuple[int, int]]]) -> Reading:
    """The same for several files, by their inodes."""

    def judge(descriptor: int, length: int, at: int) -> None:
        spans = spans_of.get(os.fstat(descriptor).st_ino, ())
        if any(at < end and begin < at + length for begin, end in spans):
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
    _use(monkeypatch, failing_reads(path, *spans))


def spoil_files(monkeypatch: pytest.MonkeyPatch, paths: Sequence[Path], begin: int = 0) -> None:
    """Let reading of some files fail in this test, in the first of them from ``begin`` on."""
    first, *others = paths
    whole = {path.stat().st_ino: ((0, sys.maxsize),) for path in others}
    _use(monkeypatch, _failing(whole | {first.stat().st_ino: ((begin, sys.maxsize),)}))


def _use(monkeypatch: pytest.MonkeyPatch, reading: Reading) -> None:
    pread, preadv = reading
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "preadv", preadv)
