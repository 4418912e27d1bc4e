"""The model disk as the campaigns use it: a disk that loses what was not synced, read without the code under test.

The disk itself is ``tests.support.faulty_disk``: the worst that POSIX allows after a power cut. Unsynced writes survive
in any subset, torn at sectors; names, renames and sizes survive or not, one by one.
"""

from __future__ import annotations

from rmqtool.files.filesystem import Kind, path_parts
from tests.support.faulty_disk import FaultyDisk, Inode

STORE = "store"
# Large, nearly empty, and read by no campaign.
_LEFT_OUT = frozenset({"timerwheel"})


def tree_of_disk(disk: FaultyDisk, directory: str = STORE) -> dict[str, bytes]:
    """Return the files below a directory of a disk, straight from its inodes."""
    found: dict[str, bytes] = {}
    inode: Inode | None = disk.root
    for name in path_parts(directory):
        inode = None if inode is None else inode.names.get(name)
    if inode is not None:
        _collect(inode, "", found)
    return found


def _collect(inode: Inode, path: str, found: dict[str, bytes]) -> None:
    for name, one in inode.names.items():
        below = f"{path}/{name}" if path else name
        if one.kind is Kind.DIRECTORY:
            _collect(one, below, found)
        elif one.kind is Kind.FILE and name not in _LEFT_OUT:
            found[below] = bytes(one.data)


def settle(disk: FaultyDisk) -> None:
    """Make everything on a disk durable, as if it had been written long ago, and forget the calls so far."""
    pending, seen = [disk.root], set()
    while pending:
        inode = pending.pop()
        if inode.number in seen:
            continue
        seen.add(inode.number)
        inode.sync()
        pending += inode.names.values()
    disk.calls.clear()
