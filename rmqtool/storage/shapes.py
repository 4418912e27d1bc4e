"""What a store's names must be before anything is written: files where it has files, directories where directories."""

from __future__ import annotations

from collections.abc import Iterable

from rmqtool.errors import StoreError
from rmqtool.formats import paths
from rmqtool.storage.filesystem import Closable, Kind, ReadableFileSystem, WritableFileSystem

_FILES = (paths.LOCK, paths.CHECKPOINT, paths.ABORT + paths.Copy.BAK)
_DIRECTORIES = (
    paths.CONSUME_QUEUE,
    paths.CONSUME_QUEUE_EXT,
    paths.BATCH_CONSUME_QUEUE,
    paths.INDEX,
    paths.CONFIG,
)


def lock_store(files: WritableFileSystem, log_directories: Iterable[tuple[ReadableFileSystem, str]] = ()) -> Closable:
    """Take the lock of a store that is about to be written; refuse one whose names stand for something else."""
    wanted = [(files, name, Kind.FILE) for name in _FILES]
    wanted += [(files, name, Kind.DIRECTORY) for name in _DIRECTORIES]
    for where, name, kind in (*wanted, *((where, name, Kind.DIRECTORY) for where, name in log_directories if name)):
        status = where.find_stat(name)
        if status is not None and status.kind is not kind:
            raise _refusal(name, kind, status.kind, where.shown(name))
    if files.is_directory(paths.ABORT) and files.listdir(paths.ABORT):
        raise _refusal(paths.ABORT, Kind.FILE, Kind.DIRECTORY, files.shown(paths.ABORT))
    return files.lock()


def _refusal(name: str, wanted: Kind, found: Kind, shown: str) -> StoreError:
    what = "directory" if wanted is Kind.DIRECTORY else "file"
    hint = "nothing was written; move it out of the way"
    if found is Kind.SYMLINK:
        hint = "nothing was written; links are not followed: put there what the link leads to"
        if wanted is Kind.DIRECTORY and name not in _DIRECTORIES:
            hint = "nothing was written; links are not followed: name its target, --conf storePathCommitLog=DIR"
    return StoreError(f"{name} is a {found.value}, a store has a {what} there", file=shown, hint=hint)
