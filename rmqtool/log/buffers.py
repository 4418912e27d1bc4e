"""Memory for windows of a file, used again and again.

A new buffer of several MiB for each window costs as much as reading into it. So each thread keeps up to two, on large
pages. A buffer is filled again as soon as no view of it is left; the map below it counts the views. Arrays made from a
window are freed before the next window, and glibc is made to keep that memory too.
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
    """Up to two buffers of ``size`` bytes for each thread, freed when the thread ends."""

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
                buffer.resize(self.size)  # the size stays; this only fails while a view exists
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
