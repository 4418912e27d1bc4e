"""The stores of ``fixtures/``: their names, their truth, unpacking, and proof that a store was left alone.

A store is unpacked sparse (holes stay holes) and with its modification times to the nanosecond, because brokers look at
them. Holes are never read: the whole set unpacks in about a second.

    python -m tests.support.stores                     the names
    python -m tests.support.stores 49-basic DIR        unpack one, print its root
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_SUFFIX = ".tar.xz"
_BLOCK = 1 << 16

STORES = tuple(sorted(path.name.removesuffix(_SUFFIX) for path in FIXTURES.glob("*" + _SUFFIX)))
"""Every store that has a truth file; ``49-…`` was written by 4.9.7, ``53-…`` by 5.3.3, ``54-…`` by 5.4.0."""

BASES = tuple(
    sorted(str(path.relative_to(FIXTURES)).removesuffix(_SUFFIX) for path in FIXTURES.glob("recovery-*/*" + _SUFFIX))
)
"""Every undamaged store that the recovery outcomes start from, e.g. ``recovery-5.3.3/base-A``."""

every_store = pytest.mark.parametrize("name", STORES)

VARIED = (
    "49-compressed-batch", "49-dledger", "49-ext", "49-killed-torn", "49-lmq", "49-multidir", "53-basic",
    "53-compaction", "53-rocksdbv2", "54-combine",
)  # fmt: skip
"""A store of each kind: layouts of queues, logs elsewhere, light queues, an end that is torn."""

varied_stores = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in VARIED else pytest.mark.slow) for name in STORES]
)
"""For what the layout alone decides: a store of each kind in the default run, all of them in the long one."""


@cache
def truth(name: str) -> dict[str, Any]:
    """Return what the real classes said about the store ``name``. Shared between tests: never change it."""
    with lzma.open(FIXTURES / f"{name}.truth.json.xz", "rt", encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def read_lines(name: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file of ``fixtures/``, packed by xz or not."""
    path = FIXTURES / name
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def unpack(name: str, target: Path) -> Path:
    """Unpack the store or base ``name`` below the new directory ``target``; return the store's root."""
    with tarfile.open(FIXTURES / (name + _SUFFIX)) as archive:
        # Before 3.11.4 there may be no filters; the digests of the archives are checked anyway.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(target)
        for member in reversed(archive.getmembers()):  # files before the directories that hold them
            when = Decimal(member.pax_headers.get("mtime", member.mtime))
            os.utime(target / member.name, ns=(int(when * 10**9),) * 2)
    return target / "store"


def data_extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the parts of an open file that are not holes."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end - start


def content_digest(path: Path) -> str:
    """Return a digest of the file's content, equal whether its zeros are written or holes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(b"%d" % size)
        done = 0
        for start, length in data_extents(file.fileno(), size):
            for offset in range(max(done, start - start % _BLOCK), start + length, _BLOCK):
                block = os.pread(file.fileno(), _BLOCK, offset)
                if block.count(0) != len(block):
                    digest.update(b"@%d:" % offset + block)
                done = offset + _BLOCK
    return digest.hexdigest()


class FileState(NamedTuple):
    """What must not change about a file or directory that a command only looks at."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    digest: str | None


def tree_state(root: Path, *, content: bool = True) -> dict[str, FileState]:
    """Return the state of ``root`` and everything below; without ``content`` no byte is read."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        regular = stat.S_ISREG(status.st_mode)
        found[str(path.relative_to(root))] = FileState(
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            content_digest(path) if content and regular else None,
        )
    return found


def tree_changes(before: dict[str, FileState], after: dict[str, FileState]) -> list[str]:
    """Say what differs between two states of one tree, a line per path."""
    changes = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            changes.append(f"{path}: {'appeared' if old is None else 'vanished'}")
        elif old != new:
            fields = (name for name, a, b in zip(FileState._fields, old, new, strict=True) if a != b)
            changes.append(f"{path}: {', '.join(fields)} changed")
    return changes


@contextmanager
def left_alone(root: Path) -> Iterator[None]:
    """Fail unless every byte, mode and time below ``root`` is the same afterwards (access times apart)."""
    before = tree_state(root)
    yield
    changes = tree_changes(before, tree_state(root))
    assert not changes, f"{root} was not left alone:\n" + "\n".join(changes)


def main(arguments: list[str]) -> int:
    """List the names, or unpack one store."""
    if not arguments:
        print(*STORES, *BASES, sep="\n")
        return 0
    name, target = arguments
    print(unpack(name, Path(target)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
