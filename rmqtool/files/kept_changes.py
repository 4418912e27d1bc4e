"""Overlays whose changes are kept in a file, so that another process can go on with them, also after a kill.

The file is a list of changes in the order in which they were made. A change is a line of JSON, and its first key is its
type. ``write`` is followed by ``length`` bytes, whose CRC-32 is ``crc``:

* ``file``: a name belongs to a file from now on, and the file has a number. It shows ``below`` bytes of the file
  ``base`` of the store, and zeros up to ``size``
* ``name``: a name belongs to the file with a number; ``null``: the name is removed
* ``directory``: a directory was made
* ``write``, ``cut``: bytes of a file, by its number, or its new size
* ``synced``: the file was made durable up to this size, before this line was written

``area`` says in which of several overlays. A change is in the file before its caller goes on, so a killed process loses
none. A crash of the machine can lose and tear changes after the last sync. They are left out from the first torn one
on, and ``left_out`` says so if there were more. A torn change before the last ``synced`` is damage: nothing is read
then, and nothing is thrown away. Reading the file makes the same overlays again. Then the file is replaced by one with
the result only.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from rmqtool.errors import StoreError, WriteFailed
from rmqtool.files.failures import read_failed, write_failed
from rmqtool.files.filesystem import Buffer, Closable, Kind, ReadableFileSystem, Space, Status, join
from rmqtool.files.overlay import Below, Content, Node, OverlayFileSystem
from rmqtool.files.salvaged import salvaged

CHANGES = "changes"
_NEW = ".new"
_PRIVATE = 0o600
# The longest line that a change has, and the bytes of a snapshot that are written at once.
_LONGEST_LINE, _PIECE = 1 << 20, 1 << 20

Change = dict[str, Any]

_NONE = type(None)
# By the type of a change, the types of its values.
_FORMS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "file": {"file": str, "number": int, "base": (str, _NONE), "below": int, "size": int},
    "name": {"name": str, "number": (int, _NONE)},
    "directory": {"directory": str},
    "write": {"write": int, "at": int, "length": int, "crc": int},
    "cut": {"cut": int, "size": int},
    "synced": {"synced": int},
}
# No file of a store is longer.
_LONGEST_FILE = 1 << 48


class KeptOverlay(OverlayFileSystem):
    """An overlay that tells each change to ``keep`` before the caller goes on."""

    def __init__(self, base: ReadableFileSystem) -> None:
        super().__init__(base)
        self._keep: Callable[[Change, Buffer], None] | None = None
        self._nodes: dict[int, Node] = {}
        self._numbers = itertools.count(1)
        self._sync: Callable[[], None] = lambda: None
        self._space = base.space

    def keep(
        self, keep: Callable[[Change, Buffer], None], sync: Callable[[], None], space: Callable[[], Space]
    ) -> None:
        """Tell the changes from now on; they take the ``space`` of another disk."""
        self._keep, self._sync, self._space = keep, sync, space

    def space(self) -> Space:
        return self._space()

    def write(self, node: Node, data: Buffer, file_offset: int, below: Below) -> None:
        # A page that the disk cannot read is written over in parts.
        super().write(node, data, file_offset, lambda: salvaged(below()))
        if self._keep is not None:
            self._keep(_written(self._number(node), data, file_offset), data)

    def cut(self, node: Node, size: int) -> None:
        super().cut(node, size)
        if self._keep is not None:
            self._keep({"cut": self._number(node), "size": size}, b"")

    def sync(self) -> None:
        self._sync()

    def fsync_dir(self, path: str = "") -> None:
        super().fsync_dir(path)
        self._sync()

    def _bind(self, path: str, node: Node | None) -> None:
        # Kept first: a name that could not be kept must not be there either.
        if self._keep is not None:
            if node is None:
                self._keep({"name": path, "number": None}, b"")
            elif node.status.kind is Kind.DIRECTORY:
                self._keep({"directory": path}, b"")
            elif node.number:
                self._keep({"name": path, "number": node.number}, b"")
            else:
                self._begin(self._keep, path, node)
        super()._bind(path, node)

    def _number(self, node: Node) -> int:
        """Return the number of a file. A file that was never named is named first, by its name in the store below."""
        if not node.number and self._keep is not None:
            assert node.base is not None, "a file that was made here has a number"
            self._begin(self._keep, node.base, node)
        return node.number

    def _begin(self, keep: Callable[[Change, Buffer], None], path: str, node: Node) -> None:
        """Give a file a number, unless that cannot be kept: later changes must not name an unknown number."""
        number = next(self._numbers)
        keep(self._begun(path, node, number), b"")
        node.number = number
        self._nodes[number] = node

    def _begun(self, path: str, node: Node, number: int) -> Change:
        content = node.content
        return {
            "file": path,
            "number": number,
            "base": node.base,
            "below": content.base_size,
            "size": content.size,
        }

    def apply(self, change: Change, data: bytes) -> None:
        """Make a change that was kept."""
        what = next(iter(change))
        if what == "write":
            node = self._nodes[change["write"]]
            super().write(node, data, change["at"], lambda: salvaged(self.open_below(node)))
        elif what == "cut":
            super().cut(self._nodes[change["cut"]], change["size"])
        elif what == "name":
            super()._bind(change["name"], None if change["number"] is None else self._nodes[change["number"]])
        elif what == "directory":
            super()._bind(change["directory"], Node(_status(Kind.DIRECTORY, 0), Content(self._pages, 0)))
        else:
            self._nodes[change["number"]] = node = self._made(change)
            super()._bind(change["file"], node)

    def _made(self, change: Change) -> Node:
        content = Content(self._pages, change["size"], change["below"])
        below = None if change["base"] is None else self._base.find_stat(change["base"])
        # A file of which nothing shows through any more may be gone below.
        status = _status(Kind.FILE, change["size"]) if below is None else below
        node = Node(status, content, change["base"], number=change["number"])
        if below is None or below.size != change["size"]:
            node.changed_ns = time.time_ns()
        return node

    def iter_snapshot(self) -> Iterator[tuple[Change, bytes]]:
        """Yield changes that make this overlay of the store below; the files get new numbers."""
        self._nodes, self._numbers = {}, itertools.count(1)
        # Directories come before what is in them.
        for directory in sorted(self._names):
            for name, node in self._names[directory].items():
                if name:
                    yield from self._snapshot_of(join(directory, name), node)

    def _snapshot_of(self, path: str, node: Node | None) -> Iterator[tuple[Change, bytes]]:
        if node is None:
            yield {"name": path, "number": None}, b""
            return
        if node.status.kind is Kind.DIRECTORY:
            yield {"directory": path}, b""
            return
        node.number = 0
        if node.base == path and node.content.untouched:
            return
        node.number = next(self._numbers)
        self._nodes[node.number] = node
        yield self._begun(path, node, node.number), b""
        for extent in node.content.iter_pages(0, node.content.size):
            for at in range(extent.file_offset, extent.end, _PIECE):
                length = min(_PIECE, extent.end - at)
                data = node.content.read(length, at, lambda: self.open_below(node))
                yield _written(node.number, data, at), data


def _written(number: int, data: Buffer, file_offset: int) -> Change:
    return {"write": number, "at": file_offset, "length": len(data), "crc": zlib.crc32(data)}


def _status(kind: Kind, size: int) -> Status:
    now = time.time_ns()
    mode = 0o755 if kind is Kind.DIRECTORY else 0o644
    return Status(kind, size, mode, os.getuid(), os.getgid(), 1, now, now, 0, 0)


class KeptChanges(Closable):
    """The file of changes in a directory, for the overlays of one store.

    Opening it makes the overlays as the last process left them; from then on it keeps what changes.
    """

    def __init__(self, directory: ReadableFileSystem, overlays: Sequence[KeptOverlay]) -> None:
        self._path = directory.shown(CHANGES)
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._is_synced = True
        self._failure: WriteFailed | None = None
        # Names the changes that the last process had not synced and that are lost.
        self.left_out: str | None = None
        self.was_there = os.path.exists(self._path)
        if self.was_there:
            self._replay(overlays)
        self._descriptor = self._rewrite(overlays)
        for number, overlay in enumerate(overlays):
            overlay.keep(self._keeper(number), self.sync, directory.space)

    def _replay(self, overlays: Sequence[KeptOverlay]) -> None:
        at, durable = 0, -1
        try:
            with open(self._path, "rb") as file:
                for change, data in _iter_changes(file):
                    if "synced" in change:
                        durable = change["synced"]
                    else:
                        overlays[change.pop("area", 0)].apply(change, data)
                    at = file.tell()
                file.seek(at)
                rest = file.read()
            durable = max([durable, *_synced_sizes(rest, at)])
            is_more = _has_change(rest[1:])
            # Without any note of a sync it is unknown what was durable.
            if durable > at or (is_more and durable < 0):
                raise self._damaged(at)
            if is_more:
                self.left_out = (
                    f"{self._path}: the machine stopped before the last {len(rest)} bytes of changes were on disk, "
                    "and they are left out"
                )
        except OSError as error:
            raise read_failed("read", self._path, error) from error
        except (LookupError, TypeError, ValueError) as error:
            # It is another kind of line, or it changes a file that no earlier change made.
            raise self._damaged(at) from error

    def _damaged(self, at: int) -> StoreError:
        return StoreError(
            f"{self._path} is damaged from byte {at} on: a change there is not whole, and further changes follow",
            file=self._path,
            offset=at,
            hint=f"restore it from a backup, or keep what comes before: truncate -s {at} {shlex.quote(self._path)}",
        )

    def _rewrite(self, overlays: Sequence[KeptOverlay]) -> int:
        """Write what the overlays are now, in place of how they came to be."""
        path = self._path + _NEW
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, _PRIVATE)
            try:
                for number, overlay in enumerate(overlays):
                    for change, data in overlay.iter_snapshot():
                        _append(descriptor, _line(number, change, data))
                # It gets its name only after it is durable.
                _append(descriptor, _synced(os.fstat(descriptor).st_size))
                os.fdatasync(descriptor)
                os.replace(path, self._path)
                # Else a power cut could bring back the file before, without what is synced from now on.
                sync_directory(os.path.dirname(path))
            except BaseException:
                os.close(descriptor)
                with suppress(OSError):
                    os.unlink(path)
                raise
        except OSError as error:
            raise write_failed("write to", self._path, error) from error
        return descriptor

    def _keeper(self, number: int) -> Callable[[Change, Buffer], None]:
        def keep(change: Change, data: Buffer) -> None:
            line = _line(number, change, data)
            with self._lock:
                self._append(line)

        return keep

    def _append(self, line: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        self._is_synced = False
        end = None
        try:
            end = os.fstat(self._descriptor).st_size
            _append(self._descriptor, line)
        except OSError as error:
            failure = write_failed("write to", self._path, error)
            if end is not None:
                try:
                    os.ftruncate(self._descriptor, end)
                except OSError:
                    # The rest of this change would hide all later ones, so none is taken any more.
                    self._failure = failure
            raise failure from error

    def sync(self) -> None:
        """Make the changes durable."""
        # A caller waits while another thread syncs: its changes are durable after that, not before.
        with self._syncing:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                if self._is_synced or self._descriptor < 0:
                    return
                self._is_synced = True
                descriptor = os.dup(self._descriptor)
                size = os.fstat(descriptor).st_size
            try:
                os.fdatasync(descriptor)
                self._mark(size)
            except OSError as error:
                # It is unknown now which changes are on disk. A second sync would succeed, and prove nothing.
                self._failure = write_failed("sync", self._path, error)
                raise self._failure from error
            finally:
                os.close(descriptor)

    def _mark(self, size: int) -> None:
        """Note that the file is durable up to a size. The note itself is durable after the next sync."""
        with self._lock:
            if self._failure is None and self._descriptor >= 0:
                is_synced = self._is_synced
                # On a full disk the note is missing, which does no harm.
                with suppress(WriteFailed):
                    self._append(_synced(size))
                self._is_synced = is_synced

    def close(self) -> None:
        """Make the changes durable, and keep no more."""
        try:
            self.sync()
        finally:
            with self._lock:
                descriptor, self._descriptor = self._descriptor, -1
                if descriptor >= 0:
                    os.close(descriptor)


def _line(area: int, change: Change, data: Buffer) -> bytes:
    told = {**change, "area": area} if area else change
    return json.dumps(told, separators=(",", ":")).encode() + b"\n" + bytes(data)


def _synced(size: int) -> bytes:
    return _line(0, {"synced": size}, b"")


def sync_directory(path: str) -> None:
    """Make the names in a directory durable; raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _append(descriptor: int, line: bytes) -> None:
    done = 0
    while done < len(line):
        done += os.write(descriptor, line[done:])


_BEGIN = re.compile(rb'\{"(%s)":' % "|".join(_FORMS).encode())


_SYNCED = re.compile(rb'\{"synced":([0-9]{1,18})\}\n')


def _synced_sizes(data: bytes, at: int) -> Iterator[int]:
    """Yield the sizes in the notes of syncs among damaged bytes that begin at ``at`` in the file."""
    for found in _SYNCED.finditer(data):
        if int(found[1]) <= at + found.start():
            yield int(found[1])


def _has_change(data: bytes) -> bool:
    """Return whether a whole change begins anywhere in some bytes."""
    for begin in _BEGIN.finditer(data):
        line, end, _ = data[begin.start() : begin.start() + _LONGEST_LINE].partition(b"\n")
        try:
            change = json.loads(line) if end else None
        except (ValueError, RecursionError):
            continue
        if isinstance(change, dict) and change.keys() - {"area"} == _FORMS[begin[1].decode()].keys():
            after = begin.start() + len(line) + 1
            length = change.get("length", 0)
            if not length or zlib.crc32(data[after : after + length]) == change["crc"]:
                return True
    return False


def _require_form(change: Change) -> None:
    """Raise ValueError for a change that cannot have been kept."""
    form = _FORMS.get(next(iter(change), ""))
    wanted = {**form, "area": int} if form is not None and "area" in change else form
    if wanted is None or wanted.keys() != change.keys():
        raise ValueError(f"unknown change: {list(change)}")
    for name, value in change.items():
        if not isinstance(value, wanted[name]) or (isinstance(value, int) and not 0 <= value <= _LONGEST_FILE):
            raise ValueError(f"{name} of a change is {value!r}")


def _iter_changes(file: BinaryIO) -> Iterator[tuple[Change, bytes]]:
    """Yield the changes of a file up to one that is torn."""
    while line := file.readline(_LONGEST_LINE):
        try:
            change = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not line.endswith(b"\n") or not isinstance(change, dict) or not change:
            return
        _require_form(change)
        length = change.get("length", 0) if "write" in change else 0
        data = file.read(length)
        if len(data) < length or (length and zlib.crc32(data) != change["crc"]):
            return
        yield change, data
