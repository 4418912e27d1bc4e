"""A disk that fills up while a command runs: from the n-th new block on, what needs another block fails.

The files are real ones. As on a disk that writes in place, bytes that are on disk already can be written again: only a
write into a hole or past the end of a file needs a block, and so do a new directory and space that is reserved.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

BLOCK = 4096


class FillingDisk:
    """Counts the blocks that are needed beneath a directory, and refuses them once ``room`` are taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.root = root
        self.needed = 0
        self.room: int | None = None
        self._pwrite, self._mkdir, self._reserve = os.pwrite, os.mkdir, os.posix_fallocate
        monkeypatch.setattr(os, "pwrite", self._write)
        monkeypatch.setattr(os, "mkdir", self._make)
        monkeypatch.setattr(os, "posix_fallocate", self._fallocate)

    def fill_after(self, blocks: int) -> None:
        """Leave room for so many new blocks."""
        self.needed, self.room = 0, blocks

    def free(self) -> None:
        """Let the disk have room again."""
        self.needed, self.room = 0, None

    def _take(self, path: str) -> None:
        if Path(path).is_relative_to(self.root):
            self.needed += 1
            if self.room is not None and self.needed > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write(self, descriptor: int, data: Any, offset: int) -> int:
        if _is_hole(descriptor, offset, len(data)):
            self._take(os.readlink(f"/proc/self/fd/{descriptor}"))
        return self._pwrite(descriptor, data, offset)

    def _fallocate(self, descriptor: int, offset: int, length: int) -> None:
        self._take(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._reserve(descriptor, offset, length)

    def _make(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        below = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        self._take(os.path.join(below, path))
        self._mkdir(path, mode, dir_fd=dir_fd)


def _is_hole(descriptor: int, offset: int, length: int) -> bool:
    """Return whether a range has bytes that are in no block yet."""
    size = os.fstat(descriptor).st_size
    if offset + length > -(-size // BLOCK) * BLOCK:
        return True
    # At the end of the file everything is called a hole.
    return offset < size and os.lseek(descriptor, offset, os.SEEK_HOLE) < min(offset + length, size)
