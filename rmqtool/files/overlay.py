"""Overlays: changes to a store that are kept in memory, over files that are only read.

Models of a broker's start-up and plans of repairs run on an overlay: they delete, cut and write, and the difference to
the store below is the result. The store must not change meanwhile: if a file is removed or cut there, using its bytes
is an error.

A file's content is pages of 4096 bytes where it changed, the bytes of the file below elsewhere, and zeros after that.
Only changed pages take memory, so creating a file of 1 GiB costs nothing.
"""

from __future__ import annotations

import errno
import heapq
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import IO

from rmqtool.errors import ReadFailed, RmqtoolError, StoreInUse, WriteFailed
from rmqtool.files import lock as broker_lock
from rmqtool.files.failures import os_error, read_failed, write_failed
from rmqtool.files.filesystem import (
    Attributes,
    Buffer,
    Closable,
    Entry,
    Extent,
    Kind,
    LockState,
    ReadableFile,
    ReadableFileSystem,
    Space,
    Status,
    WritableFile,
    WritableFileSystem,
    copy_tree,
    join,
    merged,
    neighbour_attributes,
    path_parts,
    require_range,
    require_unshrunk,
    split,
)

PAGE = 4096
_ZEROS = bytes(PAGE)
_SPILL = "the temporary file of changed bytes"

Below = Callable[[], ReadableFile]


class Pages:
    """Numbered pages for the contents of many files.

    The first ``memory_limit`` bytes are in memory. The rest is in a temporary file without a name, so that nothing is
    left when the process is killed.
    """

    def __init__(self, memory_limit: int) -> None:
        # Held while the pages of a file are read, or while it gets or loses one.
        self.guard = threading.RLock()
        self._in_memory = memory_limit // PAGE
        self._memory: list[bytearray] = []
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Return the number of a free page; its bytes are arbitrary."""
        if self._free:
            return self._free.pop()
        if len(self._memory) < self._in_memory:
            self._memory.append(bytearray(PAGE))
            return len(self._memory) - 1
        self._spilled += 1
        return self._in_memory + self._spilled - 1

    def give_back(self, page: int) -> None:
        """Free a page for another use."""
        self._free.append(page)

    def read(self, page: int, start: int, length: int) -> bytes:
        if page < self._in_memory:
            return bytes(memoryview(self._memory[page])[start : start + length])
        try:
            return os.pread(self._descriptor(), length, self._place(page) + start)
        except OSError as error:
            raise read_failed("read", _SPILL, error) from error

    def write(self, page: int, start: int, data: Buffer) -> None:
        if page < self._in_memory:
            self._memory[page][start : start + len(data)] = data
            return
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._descriptor(), data[done:], self._place(page) + start + done)
        except OSError as error:
            raise write_failed("write to", _SPILL, error) from error

    def close(self) -> None:
        """Free all pages."""
        self._memory.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _place(self, page: int) -> int:
        return (page - self._in_memory) * PAGE

    def _descriptor(self) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (as long as the pages; `close` ends it)
        return self._file.fileno()


class Content:
    """The bytes of one file: changed pages, else the first ``base_size`` bytes of the file below, then zeros.

    Bytes of a page after the end of the file are zeros, so that the file can grow again.
    """

    def __init__(self, pages: Pages, size: int, base_size: int = 0) -> None:
        self.size = size
        self.base_size = base_size
        self._pages = pages
        self._numbers: dict[int, int] = {}

    @property
    def untouched(self) -> bool:
        """Whether this is the whole file below, unchanged."""
        return not self._numbers and self.base_size == self.size

    def read(self, length: int, file_offset: int, below: Below) -> bytes:
        """Return the bytes of a span, fewer at the end of the file."""
        with self._pages.guard:
            end = min(file_offset + length, self.size)
            return b"".join(self._iter_bytes(file_offset, end, below))

    def write(self, data: Buffer, file_offset: int, below: Below) -> None:
        """Write bytes; the file grows if needed."""
        with self._pages.guard, memoryview(data).cast("B") as view:
            end = file_offset + len(view)
            position = file_offset
            while position < end:
                index, start = divmod(position, PAGE)
                length = min(PAGE - start, end - position)
                done = position - file_offset
                self._pages.write(self._changed_page(index, length, below), start, view[done : done + length])
                position += length
            if len(view):
                self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        """Cut the file, or let it grow by zeros."""
        with self._pages.guard:
            if size < self.size:
                for index in [index for index in self._numbers if index * PAGE >= size]:
                    self._pages.give_back(self._numbers.pop(index))
                index, start = divmod(size, PAGE)
                if index in self._numbers:
                    self._pages.write(self._numbers[index], start, _ZEROS[start:])
                self.base_size = min(self.base_size, size)
            self.size = size

    def iter_pages(self, file_offset: int, end: int) -> Iterator[Extent]:
        """Yield the spans that changed."""
        with self._pages.guard:
            indexes = sorted(self._numbers)
        for extent in merged(Extent(index * PAGE, PAGE) for index in indexes):
            start, stop = max(extent.file_offset, file_offset), min(extent.end, end)
            if start < stop:
                yield Extent(start, stop - start)

    def iter_data(self, file_offset: int, end: int, below: Below) -> Iterator[Extent]:
        """Yield the spans that may hold something other than zeros."""
        end = min(end, self.size)
        shown_end = min(end, self.base_size)
        visible = below().iter_data(file_offset, shown_end) if file_offset < shown_end else iter(())
        changed = self.iter_pages(file_offset, end)
        return merged(heapq.merge(visible, changed, key=lambda extent: extent.file_offset))

    def _iter_bytes(self, position: int, end: int, below: Below) -> Iterator[bytes]:
        """Yield the bytes of a span: changed pages, then the file below, then zeros."""
        numbers = self._numbers
        while position < end:
            index, start = divmod(position, PAGE)
            if index in numbers:
                length = min(PAGE - start, end - position)
                yield self._pages.read(numbers[index], start, length)
            else:
                length = self._unchanged_until(index, end) - position
                visible = max(0, min(length, self.base_size - position))
                if visible:
                    yield below().pread_exactly(visible, position)
                if visible < length:
                    yield bytes(length - visible)
            position += length

    def _unchanged_until(self, index: int, end: int) -> int:
        if not self._numbers:
            return end
        while index * PAGE < end and index not in self._numbers:
            index += 1
        return min(index * PAGE, end)

    def _changed_page(self, index: int, length: int, below: Below) -> int:
        """Return the number of the page at ``index``, made first if needed, for a write of ``length`` bytes."""
        number = self._numbers.get(index)
        if number is None:
            start = index * PAGE
            visible = max(0, min(PAGE, self.base_size - start)) if length < PAGE else 0
            found = below().pread_exactly(visible, start) if visible else b""
            number = self._pages.take()
            self._pages.write(number, 0, found + _ZEROS[len(found) :])
            self._numbers[index] = number
        return number


# Changed bytes kept in memory; more go into a temporary file.
_MEMORY_LIMIT = 64 << 20
_CHUNK = 1 << 20


class Action(StrEnum):
    """The difference between a file of the overlay and the one below."""

    DELETE = "delete"
    CREATE = "create"
    RESIZE = "resize"
    MODIFY = "modify"


@dataclass(frozen=True, slots=True)
class Change:
    """One file that differs from the one below the overlay."""

    path: str
    action: Action
    size_before: int | None
    size_after: int | None


@dataclass(eq=False, slots=True)
class Node:
    """A file or directory of the overlay, without its name."""

    status: Status
    content: Content
    # The path of the file below whose bytes are used where none changed.
    base: str | None = None
    # The time of the last change of bytes since ``status`` was made, if any.
    changed_ns: int | None = None
    # The number that kept changes have for this file; 0 until something of it is kept.
    number: int = 0

    def status_now(self) -> Status:
        """Return the status with the size and time of the content."""
        if self.changed_ns is None:
            return self.status
        now = self.changed_ns
        return self.status._replace(size=self.content.size, mtime_ns=now, ctime_ns=now)


class OverlayFileSystem(WritableFileSystem):
    """A writable file system over a readable one, which it never changes."""

    def __init__(
        self,
        base: ReadableFileSystem,
        *,
        memory_limit: int = _MEMORY_LIMIT,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._base = base
        self._now_ns = now_ns
        self._pages = Pages(memory_limit)
        # directory -> name -> the node, or None if it was removed. All other names are those of the base.
        self._names: dict[str, dict[str, Node | None]] = {}
        self._inodes = 0
        # The attributes of new files by directory, which are those of their neighbours.
        self._likes: dict[tuple[str, Kind], Attributes] = {}
        self._locked: set[str] = set()

    # -- looking

    def open_read(self, path: str) -> ReadableFile:
        return OverlayReadableFile(self, self._regular("open", path), path)

    def listdir(self, path: str = "") -> list[Entry]:
        status = self.find_stat(path)
        if status is None or status.kind is not Kind.DIRECTORY:
            raise read_failed("list", self.shown(path), os_error(errno.ENOENT if status is None else errno.ENOTDIR))
        found: dict[str, Entry] = {}
        if self._base.is_directory(path):
            found = {entry.name: entry for entry in self._base.listdir(path)}
        for name, node in self._names.get(path, {}).items():
            if node is None:
                found.pop(name, None)
            elif name:  # the attributes of the root are under the empty name
                found[name] = Entry(name, node.status.kind)
        return [found[name] for name in sorted(found)]

    def find_stat(self, path: str) -> Status | None:
        path_parts(path)
        directory, name = split(path)
        names = self._names.get(directory, {})
        if name in names:
            node = names[name]
            return None if node is None else node.status_now()
        return self._base.find_stat(path)

    def space(self) -> Space:
        return self._base.space()

    def lock_state(self, path: str = "lock") -> LockState:
        return LockState(held=True) if path in self._locked else self._base.lock_state(path)

    def shown(self, path: str) -> str:
        return self._base.shown(path)

    def below(self, path: str) -> ReadableFileSystem | None:
        """Return the file system that has the file ``path`` as it is here; None if it was changed here."""
        directory, name = split(path)
        return None if name in self._names.get(directory, {}) else self._base

    def close(self) -> None:
        """Drop all changes. The base stays open: it belongs to the caller."""
        self._names.clear()
        self._likes.clear()
        self._pages.close()

    # -- changing

    def create(self, path: str, size: int = 0) -> WritableFile:
        require_range(self.shown(path), 0, size, WriteFailed)
        node = Node(self._new_status(path, Kind.FILE, size), Content(self._pages, size))
        self._bind(path, node)
        return OverlayWritableFile(self, node, path)

    def open_write(self, path: str) -> WritableFile:
        return OverlayWritableFile(self, self._regular("open", path, writing=True), path)

    def rename(self, source: str, target: str) -> None:
        node = self._regular("rename", source, writing=True)
        self._require_directory("rename", target)
        if self.exists(target):
            self._regular("rename", target, writing=True)
        self._bind(source, None)
        self._bind(target, node)

    def unlink(self, path: str) -> None:
        self._regular("remove", path, writing=True)
        self._bind(path, None)

    def mkdir(self, path: str) -> None:
        self._bind(path, Node(self._new_status(path, Kind.DIRECTORY, 0), Content(self._pages, 0)))

    def rmdir(self, path: str) -> None:
        path_parts(path, WriteFailed)
        status = self.find_stat(path)
        if status is None:
            raise write_failed("remove", self.shown(path), os_error(errno.ENOENT))
        if not path or status.kind is not Kind.DIRECTORY:
            raise write_failed("remove", self.shown(path), os_error(errno.ENOTDIR if path else errno.EBUSY))
        if self.listdir(path):
            raise write_failed("remove", self.shown(path), os_error(errno.ENOTEMPTY))
        self._bind(path, None)

    def fsync_dir(self, path: str = "") -> None:
        """Check the name only: an overlay does not outlive the process."""
        self._require_directory("sync", join(path, "any"))

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        path_parts(path, WriteFailed)
        status = self.stat(path)
        if status.kind is Kind.DIRECTORY:
            directory, name = split(path)
            node = self._names.get(directory, {}).get(name)
            if node is None:
                node = Node(status, Content(self._pages, 0))
                self._names.setdefault(directory, {})[name] = node
        else:
            node = self._regular("change the attributes of", path, writing=True)
        before = node.status_now()
        mtime_ns = before.mtime_ns if attributes.mtime_ns is None else attributes.mtime_ns
        node.status = before._replace(
            mode=attributes.mode, owner=attributes.owner, group=attributes.group, mtime_ns=mtime_ns
        )
        node.changed_ns = None

    def lock(self, path: str = "lock") -> Closable:
        """Take a lock that only this overlay knows; the store below is not locked."""
        if path in self._locked:
            raise StoreInUse("the overlay is in use: its lock is held", file=self.shown(path), hint="close it first")
        with self.open_write(path) if self.exists(path) else self.create(path) as file:
            broker_lock.write_content(file)
        self._locked.add(path)
        return _OverlayLock(self._locked, path)

    # -- what changed

    def changes(self) -> list[Change]:
        """Return the files that differ from those below, in the order of their paths."""
        found = []
        for directory, names in self._names.items():
            for name, node in names.items():
                if change := self._change(join(directory, name), node):
                    found.append(change)
        return sorted(found, key=lambda change: change.path)

    def iter_changed(self, path: str) -> Iterator[Extent]:
        """Yield the spans, in whole pages, in which a file differs from the file of that name below.

        Where the file is longer than the one below, these are the spans that are not zero.
        """
        directory, name = split(path)
        node = self._names.get(directory, {}).get(name)
        if node is None or node.status.kind is not Kind.FILE or (node.base == path and node.content.untouched):
            return
        below = self._base.find_stat(path)
        with ExitStack() as opened:
            after = opened.enter_context(OverlayReadableFile(self, node, path))
            before = None
            if below is not None and below.kind is Kind.FILE:
                before = opened.enter_context(self._base.open_read(path))
            yield from _iter_different(before, after, after.iter_suspects(before))

    def find_source(self, path: str) -> str | None:
        """Return the path below of a file that was renamed to ``path``, else None."""
        directory, name = split(path)
        node = self._names.get(directory, {}).get(name)
        return None if node is None or node.base == path else node.base

    def iter_own(self, path: str) -> Iterator[Extent]:
        """Yield the spans of a file whose bytes are in the overlay: reading them does not use the file below."""
        content = self._regular("read", path).content
        yield from content.iter_pages(0, content.size)

    def removed_directories(self) -> list[str]:
        """Return the directories that were removed, in the order of their paths."""
        gone = [join(at, name) for at, names in self._names.items() for name, node in names.items() if node is None]
        return sorted(path for path in gone if self._base.is_directory(path))

    def write_to(self, target: WritableFileSystem) -> list[str]:
        """Write the whole store with its changes into an empty directory; see ``copy_tree``."""
        return copy_tree(self, target)

    def _change(self, path: str, node: Node | None) -> Change | None:
        below = self._base.find_stat(path)
        before = below.size if below is not None and below.kind is Kind.FILE else None
        after = node.content.size if node is not None and node.status.kind is Kind.FILE else None
        if after is None:
            return None if before is None else Change(path, Action.DELETE, before, None)
        if before is None:
            return Change(path, Action.CREATE, None, after)
        if before != after:
            return Change(path, Action.RESIZE, before, after)
        differs = next(self.iter_changed(path), None) is not None
        return Change(path, Action.MODIFY, before, after) if differs else None

    # -- nodes

    def _regular(self, operation: str, path: str, *, writing: bool = False) -> Node:
        """Return the node of a regular file. All openers of a file share one node."""
        failed, error = (write_failed, WriteFailed) if writing else (read_failed, ReadFailed)
        path_parts(path, error)
        status = self.find_stat(path)
        if status is None:
            raise failed(operation, self.shown(path), os_error(errno.ENOENT))
        if status.kind is Kind.SYMLINK:
            raise failed(operation, self.shown(path), os_error(errno.ELOOP))
        if status.kind is not Kind.FILE:
            shown = self.shown(path)
            raise error(f"{shown} is a {status.kind}, not a regular file", file=shown, hint="move it out of the store")
        directory, name = split(path)
        names = self._names.setdefault(directory, {})
        node = names.get(name)
        if node is None:
            node = names[name] = Node(status, Content(self._pages, status.size, status.size), base=path)
        return node

    def _bind(self, path: str, node: Node | None) -> None:
        directory, name = split(path)
        self._names.setdefault(directory, {})[name] = node

    def _require_directory(self, operation: str, path: str) -> None:
        """Raise unless the directory of ``path`` exists."""
        path_parts(path, WriteFailed)
        directory, _ = split(path)
        status = self.find_stat(directory)
        if status is None or status.kind is not Kind.DIRECTORY:
            number = errno.ENOENT if status is None else errno.ENOTDIR
            raise write_failed(operation, self.shown(path), os_error(number))

    def _new_status(self, path: str, kind: Kind, size: int) -> Status:
        self._require_directory("create", path)
        if not path or self.exists(path):
            raise write_failed("create", self.shown(path), os_error(errno.EEXIST))
        directory = split(path)[0]
        like = self._likes.get((directory, kind))
        if like is None:
            like = self._likes[directory, kind] = neighbour_attributes(self, directory, kind)
        self._inodes += 1
        now = self._now_ns()
        # No disk has device number 0, so a file of the overlay is never identical to one of the store.
        return Status(kind, size, like.mode, like.owner, like.group, 1, now, now, 0, self._inodes)

    def open_below(self, node: Node) -> ReadableFile:
        """Open the file below; raise if it was replaced since it was first seen."""
        assert node.base is not None, "only a file of the store beneath shows through"
        file = self._base.open_read(node.base)
        try:
            found = file.stat()
            if (found.device, found.inode) != (node.status.device, node.status.inode):
                raise ReadFailed(
                    f"{file.shown} was replaced by another file while it was read",
                    file=file.shown,
                    hint="run the command again while nothing writes to the store",
                )
            shown = node.content.base_size
            require_unshrunk(file.shown, shown, found.size, shown)
        except BaseException:
            file.close()
            raise
        return file

    def write(self, node: Node, data: Buffer, file_offset: int, below: Below) -> None:
        """Write bytes of a file."""
        node.content.write(data, file_offset, below)
        node.changed_ns = self._now_ns()

    def cut(self, node: Node, size: int) -> None:
        """Cut a file, or let it grow by zeros."""
        node.content.truncate(size)
        node.changed_ns = self._now_ns()

    def sync(self) -> None:
        """Do nothing: these changes do not outlive the process."""


class OverlayReadableFile(ReadableFile):
    """A file of an overlay. The file below is opened when its bytes are first needed."""

    def __init__(self, overlay: OverlayFileSystem, node: Node, path: str) -> None:
        self.path = path
        self.shown = overlay.shown(path)
        self._overlay = overlay
        self._node = node
        self._size_at_open = node.content.size
        self._opened_below: ReadableFile | None = None
        self._closed = False

    def pread(self, length: int, file_offset: int) -> bytes:
        require_range(self.shown, length, file_offset)
        self._require_open(read_failed, "read")
        found = self._node.content.read(length, file_offset, self._below)
        if len(found) < length:
            require_unshrunk(self.shown, file_offset + length, file_offset + len(found), self._size_at_open)
        return found

    def pread_at_once(self, length: int, file_offset: int) -> bytes:
        if self._node.content.untouched and self._node.base is not None:
            self._require_open(read_failed, "read")
            return self._below().pread_at_once(length, file_offset)
        return self.pread(length, file_offset)

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        with memoryview(buffer).cast("B") as view:
            found = self.pread(len(view), file_offset)
            view[: len(found)] = found
        return len(found)

    def stat(self) -> Status:
        self._require_open(read_failed, "stat")
        return self._node.status_now()

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        require_range(self.shown, 0, file_offset)
        self._require_open(read_failed, "read")
        size = self._node.content.size
        require_unshrunk(self.shown, self._size_at_open if end is None else end, size, self._size_at_open)
        yield from self._node.content.iter_data(file_offset, size if end is None else end, self._below)

    def iter_suspects(self, before: ReadableFile | None) -> Iterator[Extent]:
        """Yield the only spans in which this file can differ from ``before``."""
        content, size = self._node.content, self._node.content.size
        if before is not None and self._node.base == before.path:
            # A part that was cut off and grew again is zeros here, and may be data below.
            spans = [content.iter_pages(0, size), before.iter_data(content.base_size, size)]
        else:
            spans = [self.iter_data(), before.iter_data(0, size) if before is not None else iter(())]
        return merged(heapq.merge(*spans, key=lambda extent: extent.file_offset))

    def close(self) -> None:
        self._closed = True
        if self._opened_below is not None:
            self._opened_below.close()
            self._opened_below = None

    def _below(self) -> ReadableFile:
        if self._opened_below is None:
            self._opened_below = self._overlay.open_below(self._node)
        return self._opened_below

    def _require_open(self, failed: Callable[[str, str, OSError], RmqtoolError], operation: str) -> None:
        if self._closed:
            raise failed(operation, self.shown, os_error(errno.EBADF))


class OverlayWritableFile(OverlayReadableFile, WritableFile):
    def pwrite(self, data: Buffer, file_offset: int) -> None:
        require_range(self.shown, len(data), file_offset, WriteFailed)
        self._require_open(write_failed, "write to")
        self._overlay.write(self._node, data, file_offset, self._below)

    def truncate(self, size: int) -> None:
        require_range(self.shown, 0, size, WriteFailed)
        self._require_open(write_failed, "resize")
        self._overlay.cut(self._node, size)
        self._size_at_open = min(self._size_at_open, size)

    def fdatasync(self) -> None:
        self._require_open(write_failed, "sync")
        self._overlay.sync()

    def fsync(self) -> None:
        self.fdatasync()


class _OverlayLock(Closable):
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path: str | None = path

    def close(self) -> None:
        if self._path is not None:
            self._locked.discard(self._path)
            self._path = None


def _iter_different(before: ReadableFile | None, after: ReadableFile, spans: Iterator[Extent]) -> Iterator[Extent]:
    """Yield the pages of ``spans`` in which two files differ; after its end a file counts as zeros."""
    return merged(page for span in spans for page in _iter_different_pages(before, after, span))


def _iter_different_pages(before: ReadableFile | None, after: ReadableFile, span: Extent) -> Iterator[Extent]:
    for start in range(span.file_offset // PAGE * PAGE, span.end, _CHUNK):
        new = after.pread(_CHUNK, start)
        old = before.pread(len(new), start) if before is not None else b""
        old = old.ljust(len(new), b"\0")
        if old != new:
            for place in range(0, min(len(new), span.end - start), PAGE):
                page = slice(place, place + PAGE)
                if old[page] != new[page]:
                    yield Extent(start + place, len(new[page]))
