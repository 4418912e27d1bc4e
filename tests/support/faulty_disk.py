"""A disk in memory that loses what was not synced, and every state that a crash may leave on it.

``FaultyDisk`` keeps two truths: what programs see, and what would be there after a power cut. ``crash_at(n)`` raises
``Crash`` inside the n-th call that changes or syncs something, ``fail(n, errno)`` lets that call fail, ``after_crash``
makes the disk that the next start finds, and ``iter_outcomes`` makes all of them, or a seeded sample. The file systems
on such a disk are ``tests.support.faulty.FaultyFileSystem``.

The model is the worst that POSIX allows. Of the writes since the last sync any subset survives, in any file; each may
be torn at sectors, lose a piece in the middle, or leave nothing but the new size; names survive one by one; a rename is
all or nothing, and one between directories may leave both names. After a failed sync the bytes are still read but no
later sync makes them durable.
"""

from __future__ import annotations

import errno
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmqtool.files.filesystem import Attributes, Kind, path_parts

SECTOR = 512
_TEARS = 4
_TICK_NS = 1_000_000

# Given how many outcomes something may have, says which it has; 0 is "as if synced", 1 "as if never done".
Chooser = Callable[[int], int]


class Crash(BaseException):
    """The power went away. Not an ``Exception``: nothing may handle it but the test."""


@dataclass(frozen=True)
class Call:
    """One call that changes or syncs something."""

    operation: str
    path: str


@dataclass(eq=False)
class Change:
    """Something done to an inode that is not known to be durable."""

    apply: Callable[[Inode, int], None]
    count_outcomes: Callable[[Inode], int] = lambda _inode: 2
    of_attributes: bool = False
    synced: bool = False
    # Its sync failed: it stays in doubt for ever.
    doomed: bool = False
    # It can only survive together with this one.
    needs: Change | None = None


@dataclass(eq=False)
class Inode:
    """A file or directory: what programs see, and what the disk has of it."""

    number: int
    kind: Kind
    attributes: Attributes
    data: bytearray = field(default_factory=bytearray)
    names: dict[str, Inode] = field(default_factory=dict)
    # What the disk certainly holds, and what may have reached it since.
    durable: Inode | None = None
    changes: list[Change] = field(default_factory=list)
    # Another inode has the same buffer: it must be copied before it is changed.
    shares: bool = False

    def copy(self) -> Inode:
        """Return the same inode with nothing in doubt."""
        self.shares = True
        return Inode(self.number, self.kind, self.attributes, self.data, dict(self.names), shares=True)

    def own(self) -> bytearray:
        """Return the data for changing."""
        if self.shares:
            self.data, self.shares = bytearray(self.data), False
        return self.data

    def change(self, change: Change) -> None:
        """Do something whose durability is in doubt."""
        change.apply(self, 0)
        self.changes.append(change)

    def sync(self, *, attributes: bool = True) -> None:
        """Make everything durable, of which an earlier sync did not fail."""
        for change in self.changes:
            if not change.doomed and (attributes or not change.of_attributes):
                change.synced = True
                if change.needs is not None and not change.needs.doomed:
                    change.needs.synced = True
        assert self.durable is not None
        while self.changes and self.changes[0].synced:
            self.changes.pop(0).apply(self.durable, 0)
        if attributes and not self.changes:
            self.durable.attributes = self.attributes

    def doom(self) -> None:
        """Let a sync fail: what was in doubt stays so for ever."""
        for change in self.changes:
            if not change.synced:
                change.doomed = True


class FaultyDisk:
    """The disk: inodes, the calls made so far, and the faults to come."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.crashed = False
        # path → (file_offset, end) of what cannot be read
        self.bad_spans: dict[str, tuple[int, int]] = {}
        self.locked: set[int] = set()
        self._inodes = 0
        self._now_ns = 1_700_000_000_000_000_000
        self._crash_at = 0
        self._fail_at: dict[int, int] = {}
        # Called inside each call that changes or syncs something, where a crash would come.
        self.watch: Callable[[], object] = lambda: None
        self.root = self.new_inode(Kind.DIRECTORY, Attributes(0o755, 0, 0))

    # -- what a test asks for

    def directory(self, path: str) -> Inode:
        """Return a directory of the disk; it is made at once, durably, if it is not there."""
        found = self.root
        for name in path_parts(path):
            if name not in found.names:
                found.change(link(name, self.new_inode(Kind.DIRECTORY, Attributes(0o755, 0, 0))))
                found.sync()
            found = found.names[name]
        return found

    def crash_at(self, call: int) -> None:
        """Cut the power inside the ``call``-th call from now on: 1 is the next."""
        self._crash_at = len(self.calls) + call

    def fail(self, call: int, number: int = errno.EIO) -> None:
        """Let the ``call``-th call from now on fail; a write has done half of its work then."""
        self._fail_at[len(self.calls) + call] = number

    def after_crash(self, choose: Chooser, choose_name: Chooser | None = None) -> FaultyDisk:
        """Return the disk as the next start may find it; ``choose`` decides whatever is open.

        Of names ``choose_name`` decides, if it is given.
        """
        of_names = choose_name or choose
        disk = FaultyDisk()
        disk._inodes, disk._now_ns = self._inodes, self._now_ns
        decided: dict[int, bool] = {}
        made: dict[int, Inode] = {}

        def survives(change: Change) -> bool:
            if id(change) not in decided:
                needed = change.needs is None or survives(change.needs)
                decided[id(change)] = needed and (change.synced or of_names(2) == 0)
            return decided[id(change)]

        def remake(inode: Inode) -> Inode:
            if inode.number in made:
                return made[inode.number]
            assert inode.durable is not None
            found = made[inode.number] = inode.durable.copy()
            for change in inode.changes:
                if inode.kind is Kind.DIRECTORY:
                    if survives(change):
                        change.apply(found, 0)
                else:
                    change.apply(found, 0 if change.synced else choose(change.count_outcomes(found)))
            for name in sorted(found.names):
                found.names[name] = remake(found.names[name])
            found.durable = found.copy()
            return found

        disk.root = remake(self.root)
        return disk

    def iter_outcomes(self, limit: int = 64, seed: int = 0) -> Iterator[FaultyDisk]:
        """Walk over every state that a crash now may leave; where there are more than ``limit``, over a sample.

        The first two are the disk on which everything arrived, and the one on which nothing did.
        """
        counts: list[int] = []

        def keep(count: int) -> int:
            counts.append(count)
            return 0

        yield self.after_crash(keep)
        yield self.after_crash(lambda _count: 1)
        if math.prod(counts) <= limit:
            # Names that do not arrive can open other choices, so there may be many more.
            every = list(itertools.islice(self._iter_every_outcome(), limit + 1))
            if len(every) <= limit:
                yield from every
                return
        for number in range(limit - 2):
            chance = random.Random(f"{seed}/{number}")
            yield self.after_crash(chance.randrange)

    def _iter_every_outcome(self) -> Iterator[FaultyDisk]:
        wanted: list[int] = []
        while True:
            made: list[tuple[int, int]] = []

            def choose(count: int, made: list[tuple[int, int]] = made, wanted: list[int] = wanted) -> int:
                choice = wanted[len(made)] if len(made) < len(wanted) else 0
                made.append((choice, count))
                return choice

            yield self.after_crash(choose)
            while made and made[-1][0] + 1 == made[-1][1]:
                made.pop()
            if not made:
                return
            wanted = [choice for choice, _ in made]
            wanted[-1] += 1

    # -- what the file systems need

    def new_inode(self, kind: Kind, attributes: Attributes) -> Inode:
        self._inodes += 1
        inode = Inode(self._inodes, kind, attributes._replace(mtime_ns=self.tick()))
        inode.durable = inode.copy()
        return inode

    def tick(self) -> int:
        self._now_ns += _TICK_NS
        return self._now_ns

    def require_power(self) -> None:
        if self.crashed:
            raise Crash

    def begin(self, operation: str, path: str) -> int | None:
        """Count a call; return the error number with which it fails, if it does."""
        self.require_power()
        self.calls.append(Call(operation, path))
        return self._fail_at.pop(len(self.calls), None)

    def end(self) -> None:
        """Cut the power if this was the call."""
        self.watch()
        if len(self.calls) == self._crash_at:
            self.crashed = True
            raise Crash


def link(name: str, inode: Inode) -> Change:
    """Give an inode a name."""

    def apply_link(directory: Inode, _outcome: int) -> None:
        directory.names[name] = inode

    return Change(apply_link)


def unlink(name: str, needs: Change | None = None) -> Change:
    """Take a name away."""

    def apply_unlink(directory: Inode, _outcome: int) -> None:
        directory.names.pop(name, None)

    return Change(apply_unlink, needs=needs)


def move(old: str, new: str, inode: Inode) -> Change:
    """Rename within one directory."""

    def apply_move(directory: Inode, _outcome: int) -> None:
        if old != new:
            directory.names.pop(old, None)
        directory.names[new] = inode

    return Change(apply_move)


def dress(attributes: Attributes) -> Change:
    """Give an inode attributes."""

    def apply_attributes(inode: Inode, outcome: int) -> None:
        if outcome == 0:
            inode.attributes = attributes

    return Change(apply_attributes, of_attributes=True)


def resize(size: int) -> Change:
    """Cut, or grow by zeros."""

    def apply_size(inode: Inode, outcome: int) -> None:
        if outcome == 0:
            data = inode.own()
            del data[size:]
            data.extend(bytes(size - len(data)))

    return Change(apply_size)


def write(data: bytes, file_offset: int) -> Change:
    """Write bytes."""

    end = file_offset + len(data)
    first = (file_offset // SECTOR + 1) * SECTOR
    borders = list(range(first, end, SECTOR))
    borders = borders[:: max(1, len(borders) // _TEARS)]

    torn = [
        *((file_offset, border) for border in borders),
        *((border, end) for border in borders),
    ]

    def count_outcomes(inode: Inode) -> int:
        # Kept, dropped; torn at a border, the left or the right part kept; a piece in the middle lost; only the size
        # kept, where it grew.
        return 2 + len(torn) + max(len(borders) - 1, 0) + (end > len(inode.data))

    def apply_write(inode: Inode, outcome: int) -> None:
        if outcome == 1:
            return
        kept = [(file_offset, end)]
        if 2 <= outcome < 2 + len(torn):
            kept = [torn[outcome - 2]]
        elif 2 + len(torn) <= outcome <= len(torn) + len(borders):
            middle = outcome - 2 - len(torn)
            kept = [(file_offset, borders[middle]), (borders[middle + 1], end)]
        elif outcome >= 2:
            kept = [(end, end)]
        found = inode.own()
        for start, stop in kept:
            if stop > len(found):
                found.extend(bytes(stop - len(found)))
            found[start:stop] = data[start - file_offset : stop - file_offset]

    return Change(apply_write, count_outcomes)
