"""Copying whole trees from one file system into another; holes stay holes."""

from __future__ import annotations

from rmqtool.errors import WriteFailed
from rmqtool.files.filesystem import (
    Attributes,
    Kind,
    ReadableFile,
    ReadableFileSystem,
    WritableFile,
    WritableFileSystem,
    iter_tree,
)

_CHUNK = 1 << 20


def copy_tree(source: ReadableFileSystem, target: WritableFileSystem) -> list[str]:
    """Copy every file and directory into an empty ``target``, durably; return the paths that are neither.

    Modes and times are those of the source; owner and group are those of the target, so that everybody who can read a
    store can copy it. A copy that fails is left incomplete, and the caller removes it or does not give it a name.
    """
    if target.listdir():
        raise WriteFailed(
            f"{target.shown('')} is not empty: its files would mix with the copy",
            file=target.shown(""),
            hint="name a new or empty directory",
        )
    left_out = []
    directories = [""]
    for path, kind in iter_tree(source):
        if kind is Kind.DIRECTORY:
            target.mkdir(path)
            directories.append(path)
        elif kind is Kind.FILE:
            _copy_file(source, path, target)
        else:
            left_out.append(path)
    for directory in reversed(directories):
        _copy_attributes(source, directory, target)
        target.fsync_dir(directory)
    return left_out


def copy_data(source: ReadableFile, target: WritableFile) -> None:
    """Give an empty ``target`` the size and the bytes of ``source``; holes stay holes."""
    size = source.size()
    target.truncate(size)
    for extent in source.iter_data(0, size):
        for file_offset in range(extent.file_offset, extent.end, _CHUNK):
            target.pwrite(source.pread_exactly(min(_CHUNK, extent.end - file_offset), file_offset), file_offset)


def _copy_file(source: ReadableFileSystem, path: str, target: WritableFileSystem) -> None:
    with source.open_read(path) as old, target.create(path) as new:
        copy_data(old, new)
        _copy_attributes(source, path, target)
        new.fsync()


def _copy_attributes(source: ReadableFileSystem, path: str, target: WritableFileSystem) -> None:
    wanted, present = source.stat(path), target.stat(path)
    target.set_attributes(path, Attributes(wanted.mode, present.owner, present.group, wanted.mtime_ns))
