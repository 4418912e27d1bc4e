"""What a path leads to: a store's log, one queue of it, the log of a compacted queue, or one file."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from rmqtool.errors import StoreError
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.scan.logs import LogDirectory, LogFile, LogKind, directories_of, list_logs, logs_of
from rmqtool.scan.queue_units import QueueFiles, queue_files_of
from rmqtool.storage.store import CONF_ENDINGS, Store, locate

_QUEUES = (FileKind.CONSUME_QUEUE, FileKind.CONSUME_QUEUE_EXT, FileKind.BATCH_CONSUME_QUEUE)
_LOGS = {
    FileKind.COMMIT_LOG: LogKind.COMMIT_LOG,
    FileKind.DLEDGER_DATA: LogKind.DLEDGER,
    FileKind.COMPACTION_LOG: LogKind.COMPACTION,
}


@dataclass
class Source:
    """The files of a log, and the store that they belong to, when it is one.

    ``directories`` are where new files will lie; none when one file was named. ``topic`` is a pattern for the topic,
    and ``queue_id`` the number, of the queue that the path named.
    """

    files: list[LogFile]
    directories: list[LogDirectory] = field(default_factory=list)
    store: Store | None = None
    queues: list[QueueFiles] = field(default_factory=list)
    topic: str | None = None
    queue_id: int | None = None

    @property
    def live(self) -> bool:
        """Whether a broker is writing."""
        return self.store is not None and self.store.is_live

    def list_files(self) -> list[LogFile]:
        """Return the files of the log as they are now; of one file that was named, that one."""
        if self.directories:
            return list_logs(self.directories)
        places = [(file, os.path.join(file.directory, file.path)) for file in self.files]
        return [file._replace(size=os.path.getsize(place)) for file, place in places if os.path.exists(place)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        if self.store is not None:
            self.store.close()


def open_source(path: str, open_store: Callable[[str], Store]) -> Source:
    """Open what ``path`` leads to."""
    is_directory = os.path.isdir(path)
    root, relative, what = _located(os.path.join(path, paths.segment_name(0)) if is_directory else path)
    if what.kind in _QUEUES:
        source = source_of(open_store(root))
        source.topic, source.queue_id = glob.escape(what.topic or ""), what.queue_id
        return source
    if what.kind is FileKind.COMPACTION_LOG and not is_directory:
        return Source(
            [LogFile(what.base_offset or 0, os.path.getsize(path), root, relative, relative, _LOGS[what.kind])]
        )
    if is_directory and what.kind in (FileKind.COMPACTION_LOG, FileKind.DLEDGER_DATA):
        return _of_directory(root, os.path.dirname(relative), _LOGS[what.kind])
    try:
        source = source_of(open_store(path))
        if not is_directory and not path.endswith(CONF_ENDINGS):
            source.directories.clear()
            _require_log(source, path)
        return source
    except StoreError:
        # Segments of a commit log that were copied out of their store.
        found = _of_directory(path, "", LogKind.COMMIT_LOG) if is_directory else None
        if found is None or not found.files:
            raise
        return found


def _require_log(source: Source, path: str) -> None:
    if not source.files:
        source.close()
        raise StoreError(
            f"{path} is no file of a log", file=path, hint=f"records in any file: rmqtool cat --carve {path}"
        )


def _located(path: str) -> tuple[str, str, paths.StorePath]:
    files, relative, what = locate(path)
    with files:
        return files.root, relative, what


def source_of(store: Store) -> Source:
    """Return the log of an open store."""
    return Source(logs_of(store), directories_of(store), store, queue_files_of(store))


def _of_directory(directory: str, path: str, kind: LogKind) -> Source:
    found = LogDirectory(directory, path, path, kind)
    return Source(list_logs([found]), [found])
