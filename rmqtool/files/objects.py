"""The files of a store on object storage, for reading.

All names below a root are found by one listing, and files that are read in order are read ahead. A request costs tens
of milliseconds, so bytes are kept as *spans*: a small one at a random place, larger ones while a reader goes on, and,
when a reader has said what it will read, several at once.

Objects have no holes. The space that a broker reserved at the end of a segment is stored as zeros, and reading it would
cost more than the log. So ``iter_data`` looks at samples of large segments, which are filled from their beginning: if
the end and all samples before it are zeros, the data ends before them. A reader that follows records still reads every
byte that belongs to one. Files that are filled in any order, such as the timer wheel, are read whole.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from rmqtool.errors import FileMissing, ReadFailed
from rmqtool.files.filesystem import (
    Entry,
    Extent,
    Kind,
    LockState,
    ReadableFile,
    ReadableFileSystem,
    Space,
    Status,
    path_parts,
    require_range,
    require_unshrunk,
)
from rmqtool.files.object_storage import Address, attempt, connect, parse_address, settings
from rmqtool.formats.paths import parse_segment_name

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# The first request at a place, and the largest; between them each is four times the one before.
_SMALL, _LARGE, _GROWTH = 16 << 10, 4 << 20, 4
# Large spans that are requested before they are needed.
_AHEAD = 4
_MOST_SPANS = 12
# A file up to this size is taken for data as a whole.
_WHOLE = 8 << 20
# Bytes of a sample, how many are taken of what seems to be reserved space, how exactly its beginning is searched, and
# the least distance of two samples.
_SAMPLE, _SAMPLES, _NEAR = 4 << 10, 32, 64 << 10
_APART = 1 << 20
_READERS = 16
_CHANGED = "objects may have been removed meanwhile: run the command again"


@lru_cache(maxsize=1)
def _readers() -> ThreadPoolExecutor:
    """Return the threads that wait for answers."""
    # Every store is opened through this module, and local ones need no threads.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_READERS, thread_name_prefix="rmqtool-objects")


class _Span:
    """Bytes of a file that were requested."""

    __slots__ = ("begin", "data", "end")

    def __init__(self, begin: int, end: int, data: Future[bytes]) -> None:
        self.begin, self.end, self.data = begin, end, data


class ObjectReadableFile(ReadableFile):
    """One object."""

    def __init__(self, address: Address, path: str, listed: Status | None = None) -> None:
        self.path = path
        self.shown = str(address)
        self._mtime_ns = 0 if listed is None else listed.mtime_ns
        # A listed object is opened once: with another size or time it would be another object.
        self._object = _open(address) if listed is None else _open_listed(address, listed, settings())
        self._size = int(self._object.size())
        self._lock = threading.Lock()
        self._spans: OrderedDict[int, _Span] = OrderedDict()
        self._expected = Extent(0, 0)
        self._last_end, self._step = -1, _SMALL
        self._data_end: int | None = None

    def expect(self, file_offset: int, end: int) -> None:
        """Be ready for a reader that reads from ``file_offset`` to ``end`` in order."""
        data_end = min(end, self._find_data_end())
        self._expected = Extent(file_offset, max(data_end - file_offset, 0))

    def pread(self, length: int, file_offset: int) -> bytes:
        require_range(self.shown, length, file_offset)
        wanted = max(0, min(length, self._size - file_offset))
        pieces = list(self._pieces(file_offset, wanted))
        return pieces[0].tobytes() if len(pieces) == 1 else b"".join(pieces)

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        with memoryview(buffer).cast("B") as view:
            require_range(self.shown, len(view), file_offset)
            done = 0
            for piece in self._pieces(file_offset, max(0, min(len(view), self._size - file_offset))):
                view[done : done + len(piece)] = piece
                done += len(piece)
            return done

    def _pieces(self, file_offset: int, length: int) -> Iterator[memoryview]:
        """Yield the bytes from an offset on, span by span."""
        at, end = file_offset, file_offset + length
        while at < end:
            span = self._span_at(at, end - at)
            try:
                data = span.data.result()
            except BaseException:
                # The next reader asks again.
                with self._lock:
                    self._spans.pop(span.begin, None)
                raise
            if len(data) < span.end - span.begin:
                with self._lock:
                    self._spans.pop(span.begin, None)
                require_unshrunk(self.shown, span.end, span.begin + len(data), self._size)
            piece = memoryview(data)[at - span.begin : end - span.begin]
            at += len(piece)
            yield piece

    def _span_at(self, at: int, length: int) -> _Span:
        """Return the span with the byte at an offset; request it, and those that are expected after it."""
        with self._lock:
            found = next((span for span in self._spans.values() if span.begin <= at < span.end), None)
            if self._expected.file_offset <= at < self._expected.end:
                found = found or self._request(at, min(at + _LARGE, self._expected.end))
                # The oldest spans go when others are requested.
                self._spans.move_to_end(found.begin)
                self._read_ahead(found)
            elif found is None:
                is_next = self._last_end - _SMALL <= at <= self._last_end + _SMALL
                self._step = min(self._step * _GROWTH, _LARGE) if is_next else _SMALL
                found = self._request(at, min(at + max(length, self._step), at + _LARGE, self._size))
                self._last_end = found.end
            self._spans.move_to_end(found.begin)
            return found

    def _read_ahead(self, span: _Span) -> None:
        """Request what follows a span, as far as a reader said that it will go on."""
        at = span.end
        for _ in range(_AHEAD):
            if at >= self._expected.end:
                return
            known = next((one for one in self._spans.values() if one.begin <= at < one.end), None)
            at = (known or self._request(at, min(at + _LARGE, self._expected.end))).end

    def _request(self, begin: int, end: int) -> _Span:
        span = _Span(begin, end, _readers().submit(self._fetch, begin, end))
        self._spans[begin] = span
        while len(self._spans) > _MOST_SPANS:
            self._spans.popitem(last=False)
        return span

    def _fetch(self, begin: int, end: int) -> bytes:
        found: bytes = attempt(lambda: self._object.read_at(end - begin, begin), "read", self.shown)
        return found

    def stat(self) -> Status:
        return _file_status(self._size, self._mtime_ns)

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        require_range(self.shown, 0, file_offset)
        end = min(self._size if end is None else end, self._find_data_end())
        if file_offset < end:
            yield Extent(file_offset, end - file_offset)

    def _find_data_end(self) -> int:
        """Return where the zeros begin that fill the rest of the file; its size if it does not end with zeros."""
        if self._data_end is None:
            grows = parse_segment_name(self.path.rpartition("/")[2]) is not None
            self._data_end = self._known_data_end() if grows and self._size > _WHOLE else self._size
        return self._data_end

    def _known_data_end(self) -> int:
        """Return where the data ends. Each range of a segment opens it again, and the search is many requests."""
        version = (self._object.metadata() or {}).get("ETag")
        if version is None:
            return self._search_data_end()
        key = (self.shown, self._size, version)
        if key not in _DATA_ENDS:
            _DATA_ENDS[key] = self._search_data_end()
            while len(_DATA_ENDS) > _MOST_KNOWN:
                _DATA_ENDS.pop(next(iter(_DATA_ENDS)), None)
        return _DATA_ENDS[key]

    def _search_data_end(self) -> int:
        low, high = 0, self._size
        step = _SAMPLE
        # Back from the end, in growing steps, to the first sample with data; then by halves.
        while high > 0:
            low = max(self._size - step, 0)
            if not self._is_zero(low):
                break
            high, step = low, step * 16
        while high - low > _NEAR:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_zero(middle) else (middle, high)
        if high >= self._size:
            return self._size
        apart = max((self._size - high) // (_SAMPLES + 1), _APART)
        samples = _readers().map(self._is_zero, range(high + apart, self._size, apart))
        return high if all(samples) else self._size

    def _is_zero(self, at: int) -> bool:
        data = self._fetch(at, min(at + _SAMPLE, self._size))
        return data.count(0) == len(data)

    def close(self) -> None:
        with self._lock:
            self._spans.clear()
        # Requests that are under way end by themselves; nothing on the server is held open.
        self._expected = Extent(0, 0)


# Where the data of an object ends, by its address, size and version.
_DATA_ENDS: dict[tuple[str, int, bytes], int] = {}
_MOST_KNOWN = 4096


def _open(address: Address) -> Any:
    storage = connect(address)
    return attempt(lambda: storage.open_input_file(address.path), "open", str(address))


@lru_cache(maxsize=256)
def _open_listed(address: Address, _listed: Status, _settings: tuple[str | None, ...]) -> Any:
    return _open(address)


class _Tree:
    """All names below a root, as one listing found them: the entries of each directory, and the status of each."""

    def __init__(self, address: Address) -> None:
        self.entries: dict[str, dict[str, Status]] = {"": {}}
        for info in _list(address, recursive=True):
            path = info.path[len(address.path) :].strip("/")
            if path:
                self._add(path, info)

    def _add(self, path: str, info: Any) -> None:
        from pyarrow.fs import FileType

        status = _DIRECTORY if info.type is FileType.Directory else _file_status(info.size, info.mtime_ns or 0)
        while path:
            directory, _, name = path.rpartition("/")
            names = self.entries.setdefault(directory, {})
            if name in names and status is _DIRECTORY:
                return
            names[name] = status
            if status is _DIRECTORY:
                self.entries.setdefault(path, {})
            path, status = directory, _DIRECTORY


def _list(address: Address, *, recursive: bool) -> list[Any]:
    from pyarrow.fs import FileSelector

    storage = connect(address)
    selector = FileSelector(address.path, recursive=recursive, allow_not_found=True)
    found: list[Any] = attempt(lambda: storage.get_file_info(selector), "list", str(address))
    return found


def _file_status(size: int, mtime_ns: int) -> Status:
    """Return a status. Objects have neither owner nor mode, and each has one name."""
    return Status(Kind.FILE, size, 0o444, 0, 0, 1, mtime_ns, mtime_ns, 0, 0)


_DIRECTORY = Status(Kind.DIRECTORY, 0, 0o555, 0, 0, 1, 0, 0, 0, 0)
# File systems that are open at the same time share a listing: a command opens a store more than once.
_TREES: WeakValueDictionary[str, _Tree] = WeakValueDictionary()


class ObjectReadableFileSystem(ReadableFileSystem):
    """The files below an address. The listing is that of the first question which needs it."""

    def __init__(self, root: str) -> None:
        self._address = parse_address(root)
        self.root = str(self._address)
        self._listed: _Tree | None = None

    @property
    def _tree(self) -> _Tree:
        if self._listed is None:
            self._listed = _TREES.get(self.root)
        if self._listed is None:
            self._listed = _TREES[self.root] = _Tree(self._address)
        return self._listed

    def open_read(self, path: str) -> ObjectReadableFile:
        status = self._known(path)
        if status is not None and status.kind is Kind.DIRECTORY:
            shown = self.shown(path)
            raise ReadFailed(f"{shown} is a directory, not a regular file", file=shown, hint="name a file in it")
        return ObjectReadableFile(self._at(path), path, status)

    def listdir(self, path: str = "") -> list[Entry]:
        names = self._tree.entries.get("/".join(path_parts(path)))
        if names is None:
            raise FileMissing(f"{self.shown(path)} does not exist", file=self.shown(path), hint=_CHANGED)
        return [Entry(name, names[name].kind) for name in sorted(names)]

    def list_now(self, path: str) -> list[tuple[str, int]]:
        """Return names and sizes of the files that are in a directory now, from a listing of its own."""
        from pyarrow.fs import FileType

        listed = _list(self._at(path), recursive=False)
        return [(info.base_name, info.size) for info in listed if info.type is FileType.File]

    def find_stat(self, path: str) -> Status | None:
        parts = path_parts(path)
        if not parts:
            return _DIRECTORY
        return self._tree.entries.get("/".join(parts[:-1]), {}).get(parts[-1])

    def find_kind(self) -> Kind | None:
        """Return whether the address itself is a file or a directory; None without an object there."""
        if self._tree.entries[""]:
            return Kind.DIRECTORY
        return None if self._own_info() is None else Kind.FILE

    def own_size(self) -> int:
        """Return the size of the object at the address itself."""
        info = self._own_info()
        if info is None:
            raise FileMissing(f"{self.root} does not exist", file=self.root, hint=_CHANGED)
        return int(info.size)

    def _own_info(self) -> Any:
        from pyarrow.fs import FileType

        storage = connect(self._address)
        info = attempt(lambda: storage.get_file_info(self._address.path), "look at", self.root)
        return info if info.type is FileType.File else None

    def _known(self, path: str) -> Status | None:
        """Return the status of a name if it was listed already."""
        return None if self._listed is None else self.find_stat(path)

    def _at(self, path: str) -> Address:
        key = "/".join((*filter(None, (self._address.key,)), *path_parts(path)))
        return self._address._replace(key=key)

    def space(self) -> Space:
        """Return no room: object storage has no disk that fills up."""
        return Space(0, 0, 0)

    def lock_state(self, path: str = "lock") -> LockState:  # noqa: ARG002
        """Return free: an object is not locked by the broker whose file was copied there."""
        return LockState(held=False)

    def shown(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def close(self) -> None:
        self._listed = None
