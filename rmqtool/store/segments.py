"""Segments and segment queues: files of one size, each named by the offset of its first byte.

A segment queue is what the directory has, not what it should have: a missing segment is a gap, and a file of another
size keeps its size. The segments can be in several directories (multi-path commit logs).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

from rmqtool.files.filesystem import ReadableFile, ReadableFileSystem

# A store can have more segments than the system allows open files.
_OPEN_FILES = 16


class Segment(NamedTuple):
    """One file of a segment queue; ``path`` is relative to its file system."""

    base_offset: int
    size: int
    path: str
    filesystem: ReadableFileSystem

    @property
    def end_offset(self) -> int:
        """The offset after the last byte."""
        return self.base_offset + self.size


class Gap(NamedTuple):
    """Offsets between two segments that none of them has."""

    start_offset: int
    end_offset: int


class OpenFiles:
    """Segments that are open for reading: a limited number for all queues of a store, which can be thousands."""

    def __init__(self, most: int = _OPEN_FILES) -> None:
        self._most = most
        # The last answer, which is often the next one.
        self._last: tuple[Segment, ReadableFile] | None = None
        self._open: OrderedDict[tuple[int, str], ReadableFile] = OrderedDict()

    def open(self, segment: Segment) -> ReadableFile:
        """Return the open file of a segment. It is closed when enough others were opened after it."""
        last = self._last
        if last is not None and last[0] is segment:
            return last[1]
        key = (id(segment.filesystem), segment.path)
        file = self._open.pop(key, None) or segment.filesystem.open_read(segment.path)
        self._open[key] = file
        if len(self._open) > self._most:
            self._open.popitem(last=False)[1].close()
        self._last = segment, file
        return file

    def close(self) -> None:
        self._last = None
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SegmentQueue:
    """The segments of one log or queue, in order. ``files`` is shared by the queues of a store."""

    def __init__(
        self, segments: Iterable[Segment], segment_size: int | None = None, files: OpenFiles | None = None
    ) -> None:
        self.segments = tuple(sorted(segments))
        self.segment_size = segment_size or usual_size(self.segments)
        self._bases = [segment.base_offset for segment in self.segments]
        self._files = files or OpenFiles()

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def add(self, segment: Segment) -> None:
        """Add a segment after the last one.

        Other threads may be reading meanwhile, so the tuple is replaced, not changed.
        """
        self.segments = (*self.segments, segment)
        self._bases = [*self._bases, segment.base_offset]

    def remove_first(self) -> None:
        """Forget the first segment and close its file, so that its space is free once it is deleted."""
        self.segments = self.segments[1:]
        self._bases = self._bases[1:]
        self._files.close()

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 without segments."""
        return self._bases[0] if self._bases else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last byte; 0 without segments."""
        return self.segments[-1].end_offset if self.segments else 0

    def find(self, offset: int) -> Segment | None:
        """Return the segment with the byte at ``offset``, or None."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0 or offset >= self.segments[at].end_offset:
            return None
        return self.segments[at]

    def gaps(self) -> list[Gap]:
        """Return the gaps between the first and the last segment."""
        return [
            Gap(before.end_offset, after.base_offset)
            for before, after in zip(self.segments, self.segments[1:], strict=False)
            if before.end_offset < after.base_offset
        ]

    def open(self, segment: Segment) -> ReadableFile:
        """Return the open file of a segment; see ``OpenFiles.open``."""
        return self._files.open(segment)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``, from one segment; no bytes if no segment has that offset."""
        segment = self.find(offset)
        if segment is None:
            return b""
        return self.open(segment).pread(length, offset - segment.base_offset)

    def close(self) -> None:
        """Close the open files, also those of other queues that share them."""
        self._files.close()


class Sized(Protocol):
    """A file among others of one size, each named by the offset of its first byte."""

    @property
    def base_offset(self) -> int:
        """The offset of the first byte."""

    @property
    def size(self) -> int:
        """The number of bytes."""


def next_base(segment: Sized, size: int) -> int:
    """Return where the file after ``segment`` begins in a log with files of ``size`` bytes; a shorter file was cut."""
    return segment.base_offset + max(segment.size, size)


def usual_size(segments: Iterable[Sized]) -> int:
    """Return the size that segments should have; 0 if none has a byte.

    Each file votes for its size, and each pair of neighbours for the distance of their names. A name that is not a
    multiple of a size counts twice against it: files get cut or grow by accident, but names are multiples of one size.
    If two sizes are equal, the larger one wins.
    """
    there = list(segments)
    votes = Counter(segment.size for segment in there if segment.size)
    if not votes:
        return 0
    bases = sorted({segment.base_offset for segment in there})
    votes += Counter(after - before for before, after in pairwise(bases))
    return max(votes, key=lambda size: (votes[size] - 2 * sum(base % size > 0 for base in bases), size))
