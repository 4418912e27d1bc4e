"""Where cases are made: a directory in memory, sparse copies of stores, and what a store looks like from outside."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.support.stores import unpack

_PIECE = 1 << 20


@lru_cache(maxsize=1)
def workshop() -> Path:
    """Return a directory for the templates, in memory where the machine has room for it; it ends with the process."""
    import atexit

    place = Path(tempfile.mkdtemp(prefix="rmqtool-proof-", dir=_fast_directory()))
    owner = os.getpid()
    # A forked child must not take the directory of its parent away.
    atexit.register(lambda: shutil.rmtree(place, ignore_errors=True) if os.getpid() == owner else None)
    return place


def _fast_directory() -> str | None:
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free > 1 << 30 else None


class _Part(NamedTuple):
    """A file or a directory of a prepared one: its place below it, its mode, times and size, and where it has data."""

    path: str
    status: os.stat_result
    data: tuple[tuple[int, int], ...]


@contextmanager
def copied(parent: Path) -> Iterator[Path]:
    """Give a copy of a prepared directory, holes as holes; it is removed afterwards. The path is that of the store."""
    place = workshop() / "case"
    try:
        place.mkdir()
        for part in _parts(parent):
            if stat.S_ISDIR(part.status.st_mode):
                os.mkdir(f"{place}/{part.path}")
            else:
                _copy(f"{parent}/{part.path}", f"{place}/{part.path}", part)
        yield place / "store"
    finally:
        shutil.rmtree(place)


@lru_cache(maxsize=128)
def _parts(parent: Path) -> tuple[_Part, ...]:
    """Return what is in a prepared directory, which nobody changes; directories before what is in them."""
    found = []
    for directory, names, files in os.walk(parent):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            data = tuple(_iter_data(path)) if name in files else ()
            found.append(_Part(os.path.relpath(path, parent), os.stat(path), data))
    return tuple(found)


def _iter_data(path: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each piece of a file that is no hole."""
    with open(path, "rb") as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            yield at, end
            at = end


def _copy(source: str, target: str, part: _Part) -> None:
    new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(part.status.st_mode))
    try:
        if part.data:
            old = os.open(source, os.O_RDONLY)
            for begin, end in part.data:
                for at in range(begin, end, _PIECE):
                    os.pwrite(new, os.pread(old, min(_PIECE, end - at), at), at)
            os.close(old)
        os.ftruncate(new, part.status.st_size)
        os.fchmod(new, stat.S_IMODE(part.status.st_mode))
        os.utime(new, ns=(part.status.st_atime_ns, part.status.st_mtime_ns))
    finally:
        os.close(new)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file, its holes as holes, over what has the name."""
    target.unlink(missing_ok=True)
    _copy(str(source), str(target), _Part(source.name, source.stat(), tuple(_iter_data(str(source)))))


@lru_cache(maxsize=32)
def unpacked(name: str) -> Path:
    """Return the directory that has the store of a fixture in it, as ``store``; nobody may change it."""
    parent = workshop() / f"of-{name}"
    unpack(name, parent)
    return parent


def snapshot(place: Path) -> dict[str, tuple[int, int, int, str]]:
    """Return kind and mode, size, time and content of everything below a directory."""
    found = {}
    for directory, names, files in os.walk(place):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content = _digest(path) if os.path.isfile(path) and not os.path.islink(path) else ""
            size = status.st_size if content else 0
            found[os.path.relpath(path, place)] = (status.st_mode, size, status.st_mtime_ns, content)
    return found


def _digest(path: str) -> str:
    """Return the digest of the data of a file and of where it lies; holes are passed over."""
    made = hashlib.blake2b(digest_size=16)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size, at = os.fstat(descriptor).st_size, 0
        while at < size:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(descriptor, at, os.SEEK_HOLE)
            while at < end:
                data = os.pread(descriptor, min(_PIECE, end - at), at)
                if data.count(0) < len(data):
                    made.update(b"%d:" % at + data)
                at += len(data)
    finally:
        os.close(descriptor)
    return made.hexdigest()
