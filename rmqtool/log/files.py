"""The files of a log, as values that any process can open."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, Self

from rmqtool.errors import FileMissing
from rmqtool.files.filesystem import Kind, ReadableFile, join, split
from rmqtool.files.posix import FOLLOWED, PosixReadableFileSystem
from rmqtool.formats import paths
from rmqtool.store.open import Store
from rmqtool.store.segments import Segment


class LogKind(StrEnum):
    """How the records of a file are wrapped."""

    COMMIT_LOG = "commit log"
    DLEDGER = "DLedger data"
    COMPACTION = "compaction log"


class LogFile(NamedTuple):
    """One file of a log, at ``path`` below ``directory``. ``name`` is the name that people and programs see."""

    base_offset: int
    size: int
    directory: str
    path: str
    name: str
    kind: LogKind = LogKind.COMMIT_LOG

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.size

    def open(self) -> ReadableFile:
        """Open the file. The handle stays valid when the file is renamed or removed."""
        with PosixReadableFileSystem(self.directory, FOLLOWED) as files:
            return files.open_read(self.path)


def logs_of(store: Store) -> list[LogFile]:
    """Return the files of a store's log in order. A store that was changed over to DLedger has files of both kinds."""
    found = [_log_file(store, segment, LogKind.COMMIT_LOG) for segment in store.listing.log_segments]
    found += [_log_file(store, segment, LogKind.DLEDGER) for segment in store.dledger_data]
    return sorted(found)


def _log_file(store: Store, segment: Segment, kind: LogKind) -> LogFile:
    files = segment.filesystem
    assert isinstance(files, PosixReadableFileSystem), "a log that other processes read must be in real files"
    name = segment.path if files is store.filesystem else files.shown(segment.path)
    return LogFile(segment.base_offset, segment.size, files.root, segment.path, name, kind)


class LogDirectory(NamedTuple):
    """A directory with files of a log, at ``path`` below ``directory``; ``name`` is the name that people see."""

    directory: str
    path: str
    name: str
    kind: LogKind

    def files(self) -> Iterator[LogFile]:
        """Yield the files that are in it now; none if the directory is gone."""
        with suppress(FileMissing), PosixReadableFileSystem(self.directory, FOLLOWED) as found:
            for entry in found.listdir(self.path):
                base_offset = paths.parse_segment_name(entry.name)
                path = join(self.path, entry.name)
                status = found.find_stat(path) if base_offset is not None and entry.kind is Kind.FILE else None
                if base_offset is not None and status is not None:
                    yield LogFile(
                        base_offset, status.size, self.directory, path, join(self.name, entry.name), self.kind
                    )


def directories_of(store: Store) -> list[LogDirectory]:
    """Return the directories of a store's log; for a store without one, the directory that a broker would create."""
    found = {
        LogDirectory(file.directory, split(file.path)[0], split(file.name)[0], file.kind): None
        for file in logs_of(store)
    }
    usual = store.listing.log_directories or [paths.COMMIT_LOG]
    return list(found) or [LogDirectory(store.root, path, path, LogKind.COMMIT_LOG) for path in usual]


def list_logs(directories: Iterable[LogDirectory]) -> list[LogFile]:
    """Return the files that are in the directories now, in the order of the log."""
    return sorted(file for directory in directories for file in directory.files())


class OpenLogs:
    """Open files of logs, up to sixteen at a time."""

    _MOST = 16

    def __init__(self) -> None:
        self._open: OrderedDict[LogFile, ReadableFile] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def get(self, file: LogFile) -> ReadableFile:
        """Return the open file. It stays open until sixteen other files were asked for."""
        opened = self._open.pop(file, None) or file.open()
        self._open[file] = opened
        if len(self._open) > self._MOST:
            self._open.popitem(last=False)[1].close()
        return opened
