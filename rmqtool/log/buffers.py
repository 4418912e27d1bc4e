"""Memory that windows of files are read into, one after the other.

A buffer of some MiB that is made anew for each window costs the system as much as reading into it. So each thread keeps
two, on large pages, and one is filled again as soon as nobody looks at it any more: the map under it counts the views.
What is made of a window is freed before the next, too: that memory stays ours as well.

Memory of many MiB that is asked for and freed again and again.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress

from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats.layout import Buffer

# glibc raises its mmap threshold when a block of up to this size is freed; for larger blocks it does not.
_LARGEST_FREED = 31 << 20


def keep_freed_memory() -> None:
    """Make glibc keep freed blocks up to 31 MiB instead of returning them to the system.

    By default columns of a few MiB go back to the system at each free, and faulting the pages in again takes a fifth of
    all time. The array here is never touched, so it takes no memory.
    """
    import numpy as np

    np.empty(_LARGEST_FREED, np.uint8)


# A caller that loops over windows still holds the last one while it reads the next.
_KEPT = 2
# Smaller windows get memory of their own: a caller that keeps many of them must not keep large buffers.
_LEAST = 1 << 20


class Buffers(threading.local):
    """Up to two buffers of ``size`` bytes for each thread, which go with it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._maps: list[mmap.mmap] = []

    def read(self, file: ReadableFile, length: int, file_offset: int) -> Buffer:
        """Return up to ``length`` bytes of a file. They do not change while a view of them exists."""
        view = self._take() if _LEAST <= length <= self.size else None
        if view is None:
            return file.pread(length, file_offset)
        return view[: file.pread_into(view[:length], file_offset)]

    def _take(self) -> memoryview | None:
        """Return a view of a buffer that has no other view, or None."""
        for buffer in self._maps:
            with suppress(BufferError):
                buffer.resize(self.size)  # nothing changes, but with a view of it that is refused
                return memoryview(buffer)
        if len(self._maps) == _KEPT:
            return None
        if not self._maps:
            keep_freed_memory()
        buffer = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without large pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
        self._maps.append(buffer)
        return memoryview(buffer)
