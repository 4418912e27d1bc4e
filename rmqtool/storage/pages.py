"""Bytes that changed over bytes that did not: the contents of a file of an overlay, in pages."""

from __future__ import annotations

import heapq
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO

from rmqtool.storage.failures import read_failed, write_failed
from rmqtool.storage.filesystem import Buffer, Extent, ReadableFile, merged

PAGE = 4096
_ZEROS = bytes(PAGE)
_SPILL = "the temporary file of changed bytes"

Below = Callable[[], ReadableFile]


class Pages:
    """Pages of bytes, known by a number, for the contents of many files.

    The first ``memory_limit`` bytes of pages lie in memory. What comes after lies in a temporary file that has no name,
    so that nothing is left of it whatever happens to the process.
    """

    def __init__(self, memory_limit: int) -> None:
        # Held by whoever looks at the pages of a file, or changes which pages it has.
        self.guard = threading.RLock()
        self._in_memory = memory_limit // PAGE
        self._memory: list[bytearray] = []
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Return the number of a page whose bytes may be anything."""
        if self._free:
            return self._free.pop()
        if len(self._memory) < self._in_memory:
            self._memory.append(bytearray(PAGE))
            return len(self._memory) - 1
        self._spilled += 1
        return self._in_memory + self._spilled - 1

    def give_back(self, page: int) -> None:
        """Let the number be used again."""
        self._free.append(page)

    def read(self, page: int, start: int, length: int) -> bytes:
        """Return bytes of one page."""
        if page < self._in_memory:
            return bytes(memoryview(self._memory[page])[start : start + length])
        try:
            return os.pread(self._descriptor(), length, self._place(page) + start)
        except OSError as error:
            raise read_failed("read", _SPILL, error) from error

    def write(self, page: int, start: int, data: Buffer) -> None:
        """Write bytes into one page."""
        if page < self._in_memory:
            self._memory[page][start : start + len(data)] = data
            return
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._descriptor(), data[done:], self._place(page) + start + done)
        except OSError as error:
            raise write_failed("write to", _SPILL, error) from error

    def close(self) -> None:
        """Forget every page."""
        self._memory.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _place(self, page: int) -> int:
        return (page - self._in_memory) * PAGE

    def _descriptor(self) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (as long as the pages; `close` ends it)
        return self._file.fileno()


class Content:
    """The bytes of one file: pages where they changed, elsewhere ``base_size`` bytes of a file below, then zeros.

    A page holds zeros behind the end of the file, so that growing it again shows zeros.
    """

    def __init__(self, pages: Pages, size: int, base_size: int = 0) -> None:
        self.size = size
        self.base_size = base_size
        self._pages = pages
        self._numbers: dict[int, int] = {}

    @property
    def untouched(self) -> bool:
        """Whether this is the file below, whole."""
        return not self._numbers and self.base_size == self.size

    def read(self, length: int, file_offset: int, below: Below) -> bytes:
        """Return the bytes of a span, as far as there are any."""
        with self._pages.guard:
            end = min(file_offset + length, self.size)
            return b"".join(self._iter_bytes(file_offset, end, below))

    def write(self, data: Buffer, file_offset: int, below: Below) -> None:
        """Write, and grow where needed."""
        with self._pages.guard, memoryview(data).cast("B") as view:
            end = file_offset + len(view)
            position = file_offset
            while position < end:
                index, start = divmod(position, PAGE)
                length = min(PAGE - start, end - position)
                done = position - file_offset
                self._pages.write(self._changed_page(index, length, below), start, view[done : done + length])
                position += length
            if len(view):
                self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        """Cut, or grow by zeros."""
        with self._pages.guard:
            if size < self.size:
                for index in [index for index in self._numbers if index * PAGE >= size]:
                    self._pages.give_back(self._numbers.pop(index))
                index, start = divmod(size, PAGE)
                if index in self._numbers:
                    self._pages.write(self._numbers[index], start, _ZEROS[start:])
                self.base_size = min(self.base_size, size)
            self.size = size

    def iter_pages(self, file_offset: int, end: int) -> Iterator[Extent]:
        """Walk over the spans that changed."""
        with self._pages.guard:
            indexes = sorted(self._numbers)
        for extent in merged(Extent(index * PAGE, PAGE) for index in indexes):
            start, stop = max(extent.file_offset, file_offset), min(extent.end, end)
            if start < stop:
                yield Extent(start, stop - start)

    def iter_data(self, file_offset: int, end: int, below: Below) -> Iterator[Extent]:
        """Walk over the spans that may hold something else than zeros."""
        end = min(end, self.size)
        shown_end = min(end, self.base_size)
        shining = below().iter_data(file_offset, shown_end) if file_offset < shown_end else iter(())
        changed = self.iter_pages(file_offset, end)
        return merged(heapq.merge(shining, changed, key=lambda extent: extent.file_offset))

    def _iter_bytes(self, position: int, end: int, below: Below) -> Iterator[bytes]:
        numbers = self._numbers
        while position < end:
            index, start = divmod(position, PAGE)
            if index in numbers:
                length = min(PAGE - start, end - position)
                yield self._pages.read(numbers[index], start, length)
            else:
                length = self._unchanged_until(index, end) - position
                shining = max(0, min(length, self.base_size - position))
                if shining:
                    yield below().pread_exactly(shining, position)
                if shining < length:
                    yield bytes(length - shining)
            position += length

    def _unchanged_until(self, index: int, end: int) -> int:
        if not self._numbers:
            return end
        while index * PAGE < end and index not in self._numbers:
            index += 1
        return min(index * PAGE, end)

    def _changed_page(self, index: int, length: int, below: Below) -> int:
        """Return the number of the page at ``index``, which is about to be written; give it one if it has none."""
        number = self._numbers.get(index)
        if number is None:
            start = index * PAGE
            shining = max(0, min(PAGE, self.base_size - start)) if length < PAGE else 0
            found = below().pread_exactly(shining, start) if shining else b""
            number = self._pages.take()
            self._pages.write(number, 0, found + _ZEROS[len(found) :])
            self._numbers[index] = number
        return number
