"""Batches of a log, read from its segments; and kept, so that the log is read only once.

A repair compares the same log with several states of its queues: as they are now, as a recovery leaves them, as a
broker would find them afterwards. The log does not change meanwhile. Its batches are small because they leave the
bodies out. So they are kept, first in memory, then in a temporary file without a name. A segment is read again only if
its file has changed.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Collection, Generator, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from rmqtool.audit.due import Batch, Ints, Wanted, batch_at, iter_batches
from rmqtool.errors import FileMissing
from rmqtool.files.failures import read_failed, write_failed
from rmqtool.files.filesystem import Closable
from rmqtool.log.read import DLedgerScan, SegmentScan
from rmqtool.log.walk import Place
from rmqtool.store.segments import Segment

# Larger extracts go to the temporary file.
_IN_MEMORY = 16 << 20
# The name of that file in errors.
_KEPT = "the temporary file of what the log says"


class LogReading:
    """Reads segments as batches with what is ``wanted``; ``dledger`` has the paths of data files of DLedger."""

    def __init__(self, wanted: Wanted, dledger: Collection[str] = ()) -> None:
        self.wanted = wanted
        self.dledger = dledger

    def pieces(self, segment: Segment, start: int = 0) -> Generator[Batch | Place, None, None]:
        """Yield the pieces of a segment from ``start`` of its file on; a record or a DLedger entry begins there."""
        with segment.filesystem.open_read(segment.path) as file:
            if segment.path in self.dledger:
                yield from iter_batches(file, DLedgerScan(file, segment.base_offset).pieces(start), self.wanted)
            else:
                yield from iter_batches(file, SegmentScan(file, segment.base_offset).pieces(start), self.wanted)

    def record(self, segment: Segment, file_offset: int, length: int) -> Batch:
        """Return the batch of one record whose structure is whole."""
        with segment.filesystem.open_read(segment.path) as file:
            return batch_at(file, file_offset, length, self.wanted)


class _Narrow(pickle.Pickler):
    """Writes columns of integers as the smallest type that holds their range.

    Half of an extract is physical offsets of neighbouring records: as differences from the first they need half the
    bytes.
    """

    def reducer_override(self, value: object) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != np.int64 or not value.size:
            return NotImplemented
        low = int(value.min())
        dtype = np.min_scalar_type(int(value.max()) - low)
        return _widen, (low, dtype.str, (value - low).astype(dtype).tobytes())


def _widen(low: int, dtype: str, data: bytes) -> Ints:
    """Return a column that ``_Narrow`` wrote; pickle calls this by its name."""
    return np.frombuffer(data, dtype).astype(np.int64) + low


class _State(NamedTuple):
    """Identifies the bytes of a segment: if this is equal, the file has not changed."""

    shown: str
    base_offset: int
    size: int
    mtime_ns: int


class LogExtract(LogReading, Closable):
    """Reads each segment once, and keeps its batches until it is closed."""

    def __init__(self, wanted: Wanted, dledger: Collection[str] = ()) -> None:
        super().__init__(wanted, dledger)
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  (`close` ends it)
        self._kept: dict[_State, list[int]] = {}

    def pieces(self, segment: Segment, start: int = 0) -> Generator[Batch | Place, None, None]:
        """Yield the pieces of a segment, the kept ones if its file is unchanged. A part of it is read and not kept."""
        if start:
            yield from super().pieces(segment, start)
            return
        state = _state_of(segment)
        if state in self._kept:
            yield from map(self._load, self._kept[state])
            return
        kept = []
        for found in super().pieces(segment):
            kept.append(self._keep(found))
            yield found
        self._kept[state] = kept

    def serves(self, wanted: Wanted) -> bool:
        """Return whether the kept batches have everything that is wanted."""
        mine = self.wanted
        same = (mine.rules, mine.batch_topics) == (wanted.rules, wanted.batch_topics)
        with_keys = mine.keys >= wanted.keys and mine.tag_keys >= wanted.tag_keys
        return same and with_keys and mine.inflating >= wanted.inflating

    def _keep(self, found: Batch | Place) -> int:
        """Write a piece to the end of the file; return its offset, for ``_load``."""
        try:
            at = self._file.seek(0, 2)
            _Narrow(self._file, pickle.HIGHEST_PROTOCOL).dump(found)
        except OSError as error:
            raise write_failed("write to", _KEPT, error) from error
        return at

    def _load(self, at: int) -> Batch | Place:
        try:
            self._file.seek(at)
            found: Batch | Place = pickle.load(self._file)  # noqa: S301  (only we can write a file without a name)
        except OSError as error:
            raise read_failed("read", _KEPT, error) from error
        return found

    def close(self) -> None:
        """Drop everything that was kept; the temporary file disappears."""
        self._kept.clear()
        self._file.close()


def _state_of(segment: Segment) -> _State:
    """Return the state of a segment's file now; raise FileMissing if a broker has deleted it."""
    status = segment.filesystem.find_stat(segment.path)
    if status is None:
        raise FileMissing(
            f"{segment.path} is gone",
            file=segment.filesystem.shown(segment.path),
            hint="run the command again: a segment was deleted while it read the log",
        )
    return _State(segment.filesystem.shown(segment.path), segment.base_offset, status.size, status.mtime_ns)


def iter_pieces(source: LogReading, segment: Segment, *, tag_keys: bool) -> Iterator[Batch | Place]:
    """Yield the pieces of a segment; without ``tag_keys`` batches have no index entries of tags, even if kept so."""
    for found in source.pieces(segment):
        yield found if tag_keys or isinstance(found, Place) else found.without_tag_keys()
