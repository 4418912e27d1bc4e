"""What a log says of its queues and its index, read from its segments; and kept, so that the log is read once.

A repair compares the same log with several states of the same queues: as they are, as a recovery leaves them, as a
broker would find them afterwards. What the log says does not change meanwhile, and is a small part of the log: the
bodies are left out. So it is kept, in memory and then in a temporary file without a name, and a segment is read again
only when its file has changed.
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

_IN_MEMORY = 16 << 20
_KEPT = "the temporary file of what the log says"


class LogReading:
    """Reads segments; ``dledger`` has the paths of those that are data files of DLedger."""

    def __init__(self, wanted: Wanted, dledger: Collection[str] = ()) -> None:
        self.wanted = wanted
        self.dledger = dledger

    def pieces(self, segment: Segment, start: int = 0) -> Generator[Batch | Place, None, None]:
        """Yield what is in a segment from ``start`` of its file, where a record is due, to its end."""
        with segment.filesystem.open_read(segment.path) as file:
            if segment.path in self.dledger:
                yield from iter_batches(file, DLedgerScan(file, segment.base_offset).pieces(start), self.wanted)
            else:
                yield from iter_batches(file, SegmentScan(file, segment.base_offset).pieces(start), self.wanted)

    def record(self, segment: Segment, file_offset: int, length: int) -> Batch:
        """Return what one record says whose structure is whole."""
        with segment.filesystem.open_read(segment.path) as file:
            return batch_at(file, file_offset, length, self.wanted)


class _Narrow(pickle.Pickler):
    """Keeps numbers in as few bytes as their span needs: half of what is kept are places that follow each other."""

    def reducer_override(self, value: object) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != np.int64 or not value.size:
            return NotImplemented
        low = int(value.min())
        dtype = np.min_scalar_type(int(value.max()) - low)
        return _widen, (low, dtype.str, (value - low).astype(dtype).tobytes())


def _widen(low: int, dtype: str, data: bytes) -> Ints:
    return np.frombuffer(data, dtype).astype(np.int64) + low


class _State(NamedTuple):
    """A segment, and what tells that its bytes are the same as before."""

    shown: str
    base_offset: int
    size: int
    mtime_ns: int


class LogExtract(LogReading, Closable):
    """Reads each segment once, and keeps what it says until it is closed."""

    def __init__(self, wanted: Wanted, dledger: Collection[str] = ()) -> None:
        super().__init__(wanted, dledger)
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  (`close` ends it)
        self._kept: dict[_State, list[int]] = {}

    def pieces(self, segment: Segment, start: int = 0) -> Generator[Batch | Place, None, None]:
        """Yield what is in a segment; a part of it is read and not kept."""
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
        """Return whether all that is wanted of the records is kept."""
        mine = self.wanted
        same = (mine.rules, mine.batch_topics) == (wanted.rules, wanted.batch_topics)
        with_keys = mine.keys >= wanted.keys and mine.tag_keys >= wanted.tag_keys
        return same and with_keys and mine.inflating >= wanted.inflating

    def _keep(self, found: Batch | Place) -> int:
        try:
            at = self._file.seek(0, 2)
            _Narrow(self._file, pickle.HIGHEST_PROTOCOL).dump(found)
        except OSError as error:
            raise write_failed("write to", _KEPT, error) from error
        return at

    def _load(self, at: int) -> Batch | Place:
        try:
            self._file.seek(at)
            found: Batch | Place = pickle.load(self._file)  # noqa: S301  (nobody else can write it: it has no name)
        except OSError as error:
            raise read_failed("read", _KEPT, error) from error
        return found

    def close(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._file.close()


def _state_of(segment: Segment) -> _State:
    status = segment.filesystem.find_stat(segment.path)
    if status is None:
        raise FileMissing(
            f"{segment.path} is gone",
            file=segment.filesystem.shown(segment.path),
            hint="run the command again: a segment was deleted while it read the log",
        )
    return _State(segment.filesystem.shown(segment.path), segment.base_offset, status.size, status.mtime_ns)


def iter_pieces(source: LogReading, segment: Segment, *, tag_keys: bool) -> Iterator[Batch | Place]:
    """Yield what is in a segment, the entries of tags only where they are wanted."""
    for found in source.pieces(segment):
        yield found if tag_keys or isinstance(found, Place) else found.without_tag_keys()
