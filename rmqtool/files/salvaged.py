"""Reading a file from a failing disk: every readable byte, and a list of the others.

A bad sector must cost only the records that touch it. If a read fails because of the disk, the span is read again in
halves, down to single pages. The bytes of an unreadable page are returned as ``FILL``, which is not zero and begins no
record; ``unreadable`` lists the pages. A record that touches one is damaged even if its checksum is right, because most
checksums leave the properties out. A page that failed is not read again: a disk can take seconds to fail.
"""

from __future__ import annotations

import errno
from bisect import bisect_right, insort
from collections.abc import Iterator

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import Extent, ReadableFile, Status, merged

# Disks fail by sectors; kernels read by pages.
PAGE = 4096
FILL = b"\xff"
# The errors of disks, and of file systems that verify checksums, for lost bytes.
_OF_THE_DISK = frozenset({errno.EIO, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ})


class SalvagedFile(ReadableFile):
    """A file in which every byte can be read; unreadable ones are filled in."""

    def __init__(self, file: ReadableFile) -> None:
        self.path = file.path
        self.shown = file.shown
        self._file = file
        # Numbers of unreadable pages, ascending.
        self._bad: list[int] = []

    @property
    def has_unreadable(self) -> bool:
        """Whether any byte that was asked for could not be read."""
        return bool(self._bad)

    @property
    def unreadable(self) -> list[Extent]:
        """The spans that could not be read so far, ascending."""
        return list(merged(Extent(page * PAGE, PAGE) for page in self._bad))

    def find_unreadable(self, file_offset: int, end: int) -> Extent | None:
        """Return the first unreadable span that touches the given one, or None; it can begin before or end after it."""
        if not self._bad:
            return None
        return next((one for one in self.unreadable if one.end > file_offset and one.file_offset < end), None)

    def pread(self, length: int, file_offset: int) -> bytes:
        try:
            if not self._is_bad(length, file_offset):
                return self._file.pread(length, file_offset)
        except ReadFailed as error:
            if not is_of_the_disk(error):
                raise
        end = min(file_offset + length, max(self._file.size(), file_offset))
        return b"".join(self._pieces(file_offset, end))

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        with memoryview(buffer).cast("B") as view:
            try:
                if not self._is_bad(len(view), file_offset):
                    return self._file.pread_into(view, file_offset)
            except ReadFailed as error:
                if not is_of_the_disk(error):
                    raise
            found = self.pread(len(view), file_offset)
            view[: len(found)] = found
            return len(found)

    def stat(self) -> Status:
        return self._file.stat()

    def expect(self, file_offset: int, end: int) -> None:
        self._file.expect(file_offset, end)

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        return self._file.iter_data(file_offset, end)

    def close(self) -> None:
        self._file.close()

    def _is_bad(self, length: int, file_offset: int) -> bool:
        """Return whether a span has a page that is known to be unreadable."""
        at = bisect_right(self._bad, file_offset // PAGE - 1)
        return at < len(self._bad) and self._bad[at] * PAGE < file_offset + length

    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of a span; a part that cannot be read is read in halves, down to a page."""
        if begin >= end:
            return
        page, last = begin // PAGE, (end - 1) // PAGE
        if not self._is_bad(end - begin, begin):
            try:
                yield self._file.pread_exactly(end - begin, begin)
            except ReadFailed as error:
                if not is_of_the_disk(error):
                    raise
                if page == last:
                    insort(self._bad, page)
            else:
                return
        if page == last:
            yield FILL * (end - begin)
            return
        middle = (page + last + 1) // 2 * PAGE
        yield from self._pieces(begin, middle)
        yield from self._pieces(middle, end)


def salvaged(file: ReadableFile) -> SalvagedFile:
    """Return ``file`` with unreadable bytes filled in."""
    return file if isinstance(file, SalvagedFile) else SalvagedFile(file)


def is_of_the_disk(error: ReadFailed) -> bool:
    """Return whether the disk caused the error, so that other bytes of the file may be readable."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _OF_THE_DISK
