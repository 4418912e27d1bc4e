"""The files of an unpacked store, as the comparisons read them: sparse files without the hole at their end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.formats import commit_log, dledger
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import DLedgerEntryHead
from tests.agreement.ledger import Subject
from tests.support.stores import data_extents

Decoded = Message | Blank | Nothing | Flaw

# Killed, or cut back by a recovery or by retention: what a broker would write now differs from what stands there.
KILLED = frozenset({"49-killed", "49-killed-torn", "49-killed-broker", "53-killed"})
RECOVERED = frozenset({"49-ghost", "49-recovered"})
CLEANED = frozenset({"49-cleaned", "53-cleaned"})


class Segment(NamedTuple):
    """A file of a log: where it begins, how long it is, and its bytes up to the hole at its end."""

    base_offset: int
    size: int
    data: bytes


class Placed(NamedTuple):
    """What a decoder found, and where."""

    segment: Segment
    file_offset: int
    found: Decoded

    @property
    def physical_offset(self) -> int:
        """Where it lies in its log."""
        return self.segment.base_offset + self.file_offset

    @property
    def data(self) -> bytes:
        """The bytes of a record."""
        assert isinstance(self.found, Message)
        return self.segment.data[self.file_offset : self.file_offset + self.found.total_size]


def read_dense(path: Path) -> bytes:
    """The bytes of a file, without the hole at its end."""
    with path.open("rb") as file:
        extents = list(data_extents(file.fileno(), path.stat().st_size))
        return os.pread(file.fileno(), sum(extents[-1]), 0) if extents else b""


def read_segment(path: Path) -> Segment:
    """One file that is named after its offset."""
    return Segment(int(path.name), path.stat().st_size, read_dense(path))


def read_segments(directory: Path) -> list[Segment]:
    """The files of one directory that are named after their offset, in order; none when there is no directory."""
    if not directory.is_dir():
        return []
    return [read_segment(path) for path in sorted(directory.iterdir()) if path.name.isdecimal() and path.is_file()]


def is_dledger(root: Path) -> bool:
    """Whether the log is DLedger's."""
    return (root / "dledger-n0").is_dir()


@cache
def commit_log_segments(root: Path) -> list[Segment]:
    """The files of the commit log, wherever they lie."""
    directories = [root / "dledger-n0" / "data"] if is_dledger(root) else sorted(root.glob("commitlog*"))
    return sorted(segment for directory in directories for segment in read_segments(directory))


def walk_segment(segment: Segment) -> Iterator[Placed]:
    """Record after record, to the first place that is not one."""
    at = 0
    while True:
        # A hole reads as zeros; at the end of a file without one there is nothing.
        found = commit_log.decode_record(segment.data, at)
        yield Placed(segment, at, found)
        if not isinstance(found, Message):
            return
        at += found.total_size


def walk_dledger(segment: Segment) -> Iterator[Placed]:
    """The records within the entries."""
    at = 0
    while isinstance(head := dledger.decode_entry_head(segment.data, at), DLedgerEntryHead):
        record_at = at + dledger.HEAD_SIZE
        yield Placed(segment, record_at, commit_log.decode_record(segment.data, record_at, at + head.size))
        at += head.size


@cache
def placed(root: Path) -> list[Placed]:
    """All of the commit log: every record, and what ends every file."""
    walk: Callable[[Segment], Iterator[Placed]] = walk_dledger if is_dledger(root) else walk_segment
    return [one for segment in commit_log_segments(root) for one in walk(segment)]


@cache
def messages(root: Path) -> list[Message]:
    """Every sound record in the order of the log."""
    return [one.found for one in placed(root) if isinstance(one.found, Message)]


def truth_messages(subject: Subject) -> dict[int, dict[str, Any]]:
    """The messages of the truth by their place."""
    return {message["commitLogOffset"]: message for message in subject.truth["messages"]}


def report_missing(subject: Subject, what: str, places: Iterable[object]) -> None:
    """A difference for each place of the truth where nothing was found; no row when there is none."""
    for place in places:
        subject.compare(f"{what} at {place}", {"found": False}, {"found": True})


class QueueFiles(NamedTuple):
    """A queue's directory."""

    topic: str
    queue_id: int
    segments: list[Segment]


def queue_files(root: Path, directory: str) -> list[QueueFiles]:
    """The queues below ``directory``; RocksDB's own files beside them are left out."""
    found = sorted(path for path in (root / directory).glob("*/*") if path.is_dir() and path.name.isdecimal())
    return [QueueFiles(path.parent.name, int(path.name), read_segments(path)) for path in found]
