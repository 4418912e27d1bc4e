from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rmqtool.files.filesystem import ReadableFile
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.log import read
from rmqtool.log.read import Buffers

SIZE = 8192


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadableFile:
    monkeypatch.setattr(read, "_LEAST", 100)
    (tmp_path / "f").write_bytes(bytes(range(256)) * 100)
    return PosixReadableFileSystem(str(tmp_path)).open_read("f")


def address(data: object) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)  # type: ignore[call-overload]


def test_a_buffer_is_filled_again_when_nobody_looks(file: ReadableFile) -> None:
    kept = Buffers(SIZE)
    first = address(kept.read(file, SIZE, 0))
    assert address(kept.read(file, SIZE, 1)) == first


def test_what_somebody_looks_at_stays(file: ReadableFile) -> None:
    """Also by way of an array of a part of it; and what is read when all buffers are in use."""
    kept = Buffers(SIZE)
    views = [np.frombuffer(kept.read(file, SIZE, at), np.uint8)[100:200] for at in range(5)]
    assert [view.tolist() for view in views] == [[*range(at + 100, at + 200)] for at in range(5)]
    addresses = {view.ctypes.data for view in views[:2]}
    del views
    assert address(kept.read(file, SIZE, 0)) + 100 in addresses


@pytest.mark.parametrize("length", [0, 99, 100, SIZE, SIZE + 1])
def test_as_much_as_there_is(file: ReadableFile, length: int) -> None:
    kept = Buffers(SIZE)
    assert bytes(kept.read(file, length, 7)) == file.pread(length, 7)
    assert bytes(kept.read(file, length, 25_000)) == file.pread(length, 25_000)


def test_each_thread_has_buffers_of_its_own(file: ReadableFile) -> None:
    """While this thread looks at both of its buffers another one reads into one of its own."""
    kept = Buffers(SIZE)
    views = [kept.read(file, SIZE, at) for at in range(2)]
    with ThreadPoolExecutor(1) as pool:
        theirs = [pool.submit(lambda: address(kept.read(file, SIZE, 0))).result() for _ in range(2)]
    assert theirs[0] == theirs[1]
    assert theirs[0] not in [address(view) for view in views]
