"""Where cases are made: a directory in memory, sparse copies of stores, and what a store looks like from outside."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

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


@contextmanager
def copied(parent: Path) -> Iterator[Path]:
    """Give a copy of a prepared directory, holes as holes; it is removed afterwards. The path is that of the store."""
    place = workshop() / "case"
    try:
        for directory, names, files in os.walk(parent):
            target = place / Path(directory).relative_to(parent)
            target.mkdir(exist_ok=True)
            for one in names:
                (target / one).mkdir()
            for one in files:
                copy_sparse(Path(directory, one), target / one)
        yield place / "store"
    finally:
        shutil.rmtree(place)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file, its holes as holes."""
    with source.open("rb") as old, target.open("wb") as new:
        size, at = os.fstat(old.fileno()).st_size, 0
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < end:
                data = os.pread(old.fileno(), min(_PIECE, end - at), at)
                at += os.pwrite(new.fileno(), data, at)
        os.ftruncate(new.fileno(), size)
    shutil.copystat(source, target)


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
