"""The file system of a disk that loses what was not synced: the contract of storage, for tests of crashes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from rmqtool.errors import ReadFailed, StoreInUse, WriteFailed
from rmqtool.files import lock as broker_lock
from rmqtool.files.failures import os_error, read_failed, write_failed
from rmqtool.files.filesystem import (
    Attributes,
    Buffer,
    Closable,
    Entry,
    Extent,
    Failure,
    Kind,
    LockState,
    ReadableFile,
    Space,
    Status,
    WritableFile,
    WritableFileSystem,
    merged,
    neighbour_attributes,
    path_parts,
    require_range,
    require_unshrunk,
    split,
)
from tests.support.faulty_disk import Change, FaultyDisk, Inode, dress, link, move, resize, unlink, write

_BLOCK = 4096


class FaultyFileSystem(WritableFileSystem):
    """The files beneath one directory of a disk."""

    def __init__(self, disk: FaultyDisk, directory: str = "") -> None:
        self.disk = disk
        self._root = disk.directory(directory)

    def open_read(self, path: str) -> FaultyReadableFile:
        return FaultyReadableFile(self.disk, self._regular("open", path), path)

    def listdir(self, path: str = "") -> list[Entry]:
        inode = self._find(path)
        if inode is None or inode.kind is not Kind.DIRECTORY:
            raise read_failed("list", self.shown(path), os_error(errno.ENOENT if inode is None else errno.ENOTDIR))
        return [Entry(name, inode.names[name].kind) for name in sorted(inode.names)]

    def find_stat(self, path: str) -> Status | None:
        inode = self._find(path)
        return None if inode is None else _status(inode)

    def space(self) -> Space:
        return Space(total=1 << 40, free=1 << 40, available=1 << 40)

    def lock_state(self, path: str = "lock") -> LockState:
        inode = self._find(path)
        return LockState(held=inode is not None and inode.number in self.disk.locked)

    def close(self) -> None:
        """The disk stays."""

    def create(self, path: str, size: int = 0) -> FaultyWritableFile:
        require_range(path, 0, size, WriteFailed)
        directory, name = self._free_name("create", path)
        attributes = neighbour_attributes(self, split(path)[0], Kind.FILE)
        self._begin("create", path)
        inode = self.disk.new_inode(Kind.FILE, attributes)
        if size:
            inode.change(resize(size))
        self._name(directory, link(name, inode))
        self.disk.end()
        return FaultyWritableFile(self.disk, inode, path)

    def open_write(self, path: str) -> FaultyWritableFile:
        return FaultyWritableFile(self.disk, self._regular("open", path, WriteFailed), path)

    def rename(self, source: str, target: str) -> None:
        inode = self._regular("rename", source, WriteFailed)
        old, old_name = self._directory_of("rename", source)
        new, new_name = self._directory_of("rename", target)
        if new_name in new.names:
            self._regular("rename", target, WriteFailed)
        self._begin("rename", target)
        if old is new:
            self._name(new, move(old_name, new_name, inode))
        elif new.names.get(new_name) is not inode:
            arrival = link(new_name, inode)
            self._name(new, arrival)
            self._name(old, unlink(old_name, needs=arrival))
        self.disk.end()

    def unlink(self, path: str) -> None:
        self._regular("remove", path, WriteFailed)
        self._remove("unlink", path)

    def mkdir(self, path: str) -> None:
        directory, name = self._free_name("create", path)
        attributes = neighbour_attributes(self, split(path)[0], Kind.DIRECTORY)
        self._begin("mkdir", path)
        self._name(directory, link(name, self.disk.new_inode(Kind.DIRECTORY, attributes)))
        self.disk.end()

    def rmdir(self, path: str) -> None:
        inode = self._find(path, WriteFailed)
        number = None
        if inode is None:
            number = errno.ENOENT
        elif inode.kind is not Kind.DIRECTORY:
            number = errno.ENOTDIR
        elif inode.names:
            number = errno.ENOTEMPTY
        elif not path:
            number = errno.EBUSY
        if number is not None:
            raise write_failed("remove", self.shown(path), os_error(number))
        self._remove("rmdir", path)

    def fsync_dir(self, path: str = "") -> None:
        inode = self._find(path, WriteFailed)
        if inode is None or inode.kind is not Kind.DIRECTORY:
            raise write_failed("sync", self.shown(path), os_error(errno.ENOENT if inode is None else errno.ENOTDIR))
        _sync(self.disk, inode, "fsync_dir", path)

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        inode = self._find(path, WriteFailed)
        if inode is None or inode.kind not in (Kind.FILE, Kind.DIRECTORY):
            raise read_failed("stat", self.shown(path), os_error(errno.ENOENT))
        self._begin("set_attributes", path)
        mtime_ns = inode.attributes.mtime_ns if attributes.mtime_ns is None else attributes.mtime_ns
        inode.change(dress(attributes._replace(mtime_ns=mtime_ns)))
        self.disk.end()

    def lock(self, path: str = "lock") -> Closable:
        if self.lock_state(path).held:
            raise StoreInUse("the store is in use", file=self.shown(path))
        with self.open_write(path) if self.exists(path) else self.create(path) as file:
            broker_lock.write_content(file)
            self.disk.locked.add(file.inode.number)
            return _FaultyLock(self.disk, file.inode.number)

    def plant(self, path: str, kind: Kind) -> None:
        """Put something that is neither a file nor a directory, durably."""
        directory, name = self._free_name("create", path)
        directory.change(link(name, self.disk.new_inode(kind, Attributes(0o777, 0, 0))))
        directory.sync()

    def _begin(self, operation: str, path: str) -> None:
        number = self.disk.begin(operation, path)
        if number is not None:
            raise write_failed(operation, self.shown(path), os_error(number))

    def _remove(self, operation: str, path: str) -> None:
        directory, name = self._directory_of("remove", path)
        self._begin(operation, path)
        self._name(directory, unlink(name))
        self.disk.end()

    def _name(self, directory: Inode, change: Change) -> None:
        directory.change(change)
        directory.attributes = directory.attributes._replace(mtime_ns=self.disk.tick())

    def _find(self, path: str, error: Failure = ReadFailed) -> Inode | None:
        self.disk.require_power()
        found: Inode | None = self._root
        for name in path_parts(path, error):
            if found is not None and found.kind is Kind.SYMLINK:
                raise read_failed("open", self.shown(path), os_error(errno.ELOOP))
            found = None if found is None else found.names.get(name)
        return found

    def _directory_of(self, operation: str, path: str) -> tuple[Inode, str]:
        directory, name = split(path)
        inode = self._find(directory, WriteFailed)
        path_parts(path, WriteFailed)
        if not path or inode is None or inode.kind is not Kind.DIRECTORY:
            raise write_failed(operation, self.shown(path), os_error(errno.ENOENT if inode is None else errno.ENOTDIR))
        return inode, name

    def _free_name(self, operation: str, path: str) -> tuple[Inode, str]:
        directory, name = self._directory_of(operation, path)
        if name in directory.names:
            raise write_failed(operation, self.shown(path), os_error(errno.EEXIST))
        return directory, name

    def _regular(self, operation: str, path: str, error: Failure = ReadFailed) -> Inode:
        inode = self._find(path, error)
        failed = read_failed if error is ReadFailed else write_failed
        if inode is None:
            raise failed(operation, self.shown(path), os_error(errno.ENOENT))
        if inode.kind is not Kind.FILE:
            raise error(f"{self.shown(path)} is a {inode.kind}, not a regular file", file=self.shown(path))
        return inode


class FaultyReadableFile(ReadableFile):
    """An open file of a disk."""

    def __init__(self, disk: FaultyDisk, inode: Inode, path: str) -> None:
        self.path = self.shown = path
        self.inode = inode
        self._disk = disk
        self._size_at_open = len(inode.data)
        self._closed = False

    def pread(self, length: int, file_offset: int) -> bytes:
        require_range(self.shown, length, file_offset)
        self._require_open(read_failed, "read")
        start, stop = self._disk.bad_spans.get(self.path, (0, 0))
        if max(start, file_offset) < min(stop, file_offset + length):
            raise read_failed("read", self.shown, os_error(errno.EIO))
        found = bytes(self.inode.data[file_offset : file_offset + length])
        if len(found) < length:
            require_unshrunk(self.shown, file_offset + length, file_offset + len(found), self._size_at_open)
        return found

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        with memoryview(buffer).cast("B") as view:
            found = self.pread(len(view), file_offset)
            view[: len(found)] = found
        return len(found)

    def stat(self) -> Status:
        self._require_open(read_failed, "stat")
        return _status(self.inode)

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        require_range(self.shown, 0, file_offset)
        self._require_open(read_failed, "read")
        size = len(self.inode.data)
        require_unshrunk(self.shown, self._size_at_open if end is None else end, size, self._size_at_open)
        yield from merged(self._iter_blocks(file_offset, size if end is None else min(end, size)))

    def close(self) -> None:
        self._closed = True

    def _iter_blocks(self, position: int, end: int) -> Iterator[Extent]:
        while position < end:
            stop = min((position // _BLOCK + 1) * _BLOCK, end)
            if any(self.inode.data[position:stop]):
                yield Extent(position, stop - position)
            position = stop

    def _require_open(self, failed: Callable[[str, str, OSError], Exception], operation: str) -> None:
        self._disk.require_power()
        if self._closed:
            raise failed(operation, self.shown, os_error(errno.EBADF))


class FaultyWritableFile(FaultyReadableFile, WritableFile):
    """An open file of a disk, for changing."""

    def pwrite(self, data: Buffer, file_offset: int) -> None:
        require_range(self.shown, len(data), file_offset, WriteFailed)
        self._require_open(write_failed, "write to")
        number = self._disk.begin("pwrite", self.path)
        written = bytes(data) if number is None else bytes(data[: len(data) // 2])
        if written:
            self._change(write(written, file_offset))
        if number is not None:
            raise write_failed("write to", self.shown, os_error(number))
        self._disk.end()

    def truncate(self, size: int) -> None:
        require_range(self.shown, 0, size, WriteFailed)
        self._require_open(write_failed, "resize")
        number = self._disk.begin("truncate", self.path)
        if number is not None:
            raise write_failed("resize", self.shown, os_error(number))
        self._change(resize(size))
        self._size_at_open = min(self._size_at_open, size)
        self._disk.end()

    def fdatasync(self) -> None:
        self._require_open(write_failed, "sync")
        _sync(self._disk, self.inode, "fdatasync", self.path)

    def fsync(self) -> None:
        self._require_open(write_failed, "sync")
        _sync(self._disk, self.inode, "fsync", self.path)

    def _change(self, change: Change) -> None:
        self.inode.change(change)
        self.inode.attributes = self.inode.attributes._replace(mtime_ns=self._disk.tick())


class _FaultyLock(Closable):
    def __init__(self, disk: FaultyDisk, number: int) -> None:
        self._disk = disk
        self._number: int | None = number

    def close(self) -> None:
        if self._number is not None:
            self._disk.locked.discard(self._number)
            self._number = None


def _sync(disk: FaultyDisk, inode: Inode, operation: str, path: str) -> None:
    number = disk.begin(operation, path)
    if number is not None:
        inode.doom()
        raise write_failed("sync", path, os_error(number))
    disk.end()
    inode.sync(attributes=operation != "fdatasync")


def _status(inode: Inode) -> Status:
    attributes = inode.attributes
    mtime_ns = attributes.mtime_ns or 0
    return Status(
        inode.kind,
        len(inode.data),
        attributes.mode,
        attributes.owner,
        attributes.group,
        1,
        mtime_ns,
        mtime_ns,
        1,
        inode.number,
    )
