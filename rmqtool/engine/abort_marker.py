"""The file ``abort``: it is there while the store is open, so a start that finds it knows the last end was none.

Upstream: ``DefaultMessageStore.createTempFile``. It is durable before the first message is taken, and goes away only
when everything else is durable. upstream: it is made last, and never synced.
"""

from __future__ import annotations

import os

from rmqtool.config import Version
from rmqtool.formats.paths import ABORT, Copy
from rmqtool.storage.filesystem import WritableFileSystem

_BAK = ABORT + Copy.BAK


def mark_open(files: WritableFileSystem, version: Version) -> None:
    """Put the marker. 5.x writes its process id into it, and leaves the previous content, nothing, beside it."""
    content = b"" if version is Version.V4_9 else str(os.getpid()).encode("ascii")
    with files.create(ABORT) as marker:
        if content:
            marker.pwrite(content, 0)
        marker.fsync()
    if version is not Version.V4_9 and not files.exists(_BAK):
        files.create(_BAK).close()
    files.fsync_dir()


def mark_closed(files: WritableFileSystem) -> None:
    """Take the marker away."""
    files.unlink(ABORT)
    files.fsync_dir()
