"""The files that hold messages, as values that any process can open."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.posix import PosixReadableFileSystem
from rmqtool.storage.segments import Segment
from rmqtool.storage.store import Store


class LogKind(StrEnum):
    """How records lie in a file."""

    COMMIT_LOG = "commit log"
    DLEDGER = "DLedger data"
    COMPACTION = "compaction log"


class LogFile(NamedTuple):
    """One file of a log: ``path`` beneath ``directory``. ``name`` is what people and programs are told of it."""

    base_offset: int
    size: int
    directory: str
    path: str
    name: str
    kind: LogKind = LogKind.COMMIT_LOG

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.base_offset + self.size

    def open(self) -> ReadableFile:
        """Open the file; it stays open when it is renamed or removed."""
        with PosixReadableFileSystem(self.directory) as files:
            return files.open_read(self.path)


def logs_of(store: Store) -> list[LogFile]:
    """Return the files of a store's log, in their order. A store that went over to DLedger has two kinds."""
    found = [_log_file(store, segment, LogKind.COMMIT_LOG) for segment in store.listing.log_segments]
    found += [_log_file(store, segment, LogKind.DLEDGER) for segment in store.dledger_data]
    return sorted(found)


def _log_file(store: Store, segment: Segment, kind: LogKind) -> LogFile:
    files = segment.filesystem
    assert isinstance(files, PosixReadableFileSystem), "a log that other processes read lies in real files"
    name = segment.path if files is store.filesystem else files.shown(segment.path)
    return LogFile(segment.base_offset, segment.size, files.root, segment.path, name, kind)
