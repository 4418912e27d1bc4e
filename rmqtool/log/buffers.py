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

# Of what glibc is given back at once, this is the most that it learns from.
_LESSON = 31 << 20


def keep_freed_memory() -> None:
    """Have the C library keep what is freed: it takes as large pieces as were once freed for what is often needed.

    By default columns of some MiB go back to the system, whose pages then cost a fifth of all time. Nothing is touched
    here, so no memory is taken.
    """
    import numpy as np

    np.empty(_LESSON, np.uint8)


# Who loops over windows still holds the last one when the next is read.
_KEPT = 2
# Less is read into memory of its own: who keeps many small windows must not keep large buffers.
_LEAST = 1 << 20


class Buffers(threading.local):
    """Up to two buffers of ``size`` bytes for each thread, which go with it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._maps: list[mmap.mmap] = []

    def read(self, file: ReadableFile, length: int, file_offset: int) -> Buffer:
        """Return up to ``length`` bytes of a file; they stay as they are while anybody has a view of them."""
        view = self._take() if _LEAST <= length <= self.size else None
        if view is None:
            return file.pread(length, file_offset)
        return view[: file.pread_into(view[:length], file_offset)]

    def _take(self) -> memoryview | None:
        """Return a view of a buffer that nobody has a view of."""
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
