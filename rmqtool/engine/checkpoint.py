"""The file ``checkpoint``: up to which store times log, queues and index are durable.

Upstream: ``StoreCheckpoint``. A broker that starts after a crash replays the log from shortly before the oldest of
these times, so none of them may run ahead of the disk.
upstream: the time of the queues is that of the last dispatched message, whether its unit is durable or not, and every
write between two flushes of the queues stores it.
"""

from __future__ import annotations

import threading

from rmqtool.errors import NoSpace
from rmqtool.formats import layouts
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_checkpoint
from rmqtool.formats.layouts import StoreCheckpoint
from rmqtool.formats.paths import CHECKPOINT
from rmqtool.storage.filesystem import WritableFile, WritableFileSystem


class Checkpoint:
    """The fields in memory, and the file."""

    def __init__(self, files: WritableFileSystem) -> None:
        self._files = files
        self._file: WritableFile | None = files.open_write(CHECKPOINT) if files.exists(CHECKPOINT) else None
        self._written = decode_checkpoint(b"" if self._file is None else self._file.pread(PAGE_SIZE, 0))
        self.fields: StoreCheckpoint = self._written
        self._lock = threading.Lock()

    def make(self) -> None:
        """Make a file of zeros where there is none: then nothing is known to be durable."""
        if self._file is None:
            self._file = _made(self._files)

    def advance(self, *, physic: int = 0, logics: int = 0, index: int = 0) -> None:
        """Move times forward."""
        with self._lock:
            fields = self.fields
            self.fields = fields._replace(
                physic_msg_timestamp=max(fields.physic_msg_timestamp, physic),
                logics_msg_timestamp=max(fields.logics_msg_timestamp, logics),
                index_msg_timestamp=max(fields.index_msg_timestamp, index),
            )

    def flush(self) -> None:
        """Write and force the fields if they changed."""
        fields = self.fields
        if fields != self._written:
            self.make()
            assert self._file is not None, "it was made"
            self._file.pwrite(layouts.STORE_CHECKPOINT.encode(fields), 0)
            self._file.fdatasync()
            self._written = fields

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _made(files: WritableFileSystem) -> WritableFile:
    file = files.create(CHECKPOINT, PAGE_SIZE)
    try:
        file.fsync()
        files.fsync_dir()
    except NoSpace:
        file.close()
        files.unlink(CHECKPOINT)
        raise
    return file
