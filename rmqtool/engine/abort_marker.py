"""The file ``abort``: it is there while the store is open, so a start that finds it knows the last end was none.

Upstream: ``DefaultMessageStore.createTempFile``. It is durable before the first change of the store, and goes away only
when everything else is durable. upstream: it is made when the store is opened, as the last file, and never synced.
"""

from __future__ import annotations

import os
from contextlib import suppress

from rmqtool.config import Version
from rmqtool.errors import WriteFailed
from rmqtool.formats.paths import ABORT, Copy
from rmqtool.storage.filesystem import WritableFileSystem

_BAK = ABORT + Copy.BAK


def mark_open(files: WritableFileSystem, version: Version) -> tuple[str, ...]:
    """Put the marker; return the files that were made. Where it cannot be put, nothing is left of it.

    5.x writes its process id into it, and leaves the previous content, nothing, beside it.
    """
    content = b"" if version is Version.V4_9 else str(os.getpid()).encode("ascii")
    made = (ABORT,) if version is Version.V4_9 or files.exists(_BAK) else (ABORT, _BAK)
    try:
        with files.create(ABORT) as marker:
            if content:
                marker.pwrite(content, 0)
            marker.fsync()
        if _BAK in made:
            files.create(_BAK).close()
        files.fsync_dir()
    except WriteFailed:
        for path in made:
            # The first error tells what is wrong; that the file stays, too, adds nothing to it.
            with suppress(WriteFailed):
                if files.exists(path):
                    files.unlink(path)
        raise
    return made


def mark_closed(files: WritableFileSystem, made: tuple[str, ...] = (ABORT,)) -> None:
    """Remove the marker, or all files that were made with it."""
    for path in made:
        files.unlink(path)
    files.fsync_dir()
