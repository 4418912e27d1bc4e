"""The log searched through, for what no queue and no index leads to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.findings import Finding, Severity
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.storage.segments import Segment
from rmqtool.storage.store import Store
from rmqtool.storage.walk import Place, SegmentWalk, walk_dledger


class LogRange(NamedTuple):
    """Physical offsets, half-open."""

    start: int
    end: int


@dataclass
class LogSearch:
    """What was searched of a log, and what of it could not be read."""

    store: Store
    ranges: list[LogRange] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)
    _searched: list[LogRange] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How many bytes were searched."""
        return sum(end - start for start, end in self.ranges)

    def iter_messages(self, start: int, end: int) -> Iterator[Message]:
        """Yield the valid messages from ``start``, where a record is due, to ``end``."""
        if start >= end:
            return
        begun = reached = start
        for gap in self.store.commit_log.gaps():
            if gap.start_offset < end and gap.end_offset > start:
                self._miss("CL-GAP", "", gap.start_offset, gap.end_offset - gap.start_offset, "a segment is missing")
        for segment in self.store.commit_log:
            if segment.end_offset <= start or segment.base_offset >= end:
                continue
            first = max(start - segment.base_offset, 0)
            for place in self._places(segment, first):
                if segment.base_offset + place.file_offset >= end:
                    break
                if isinstance(place.what, Message):
                    yield place.what
                elif isinstance(place.what, Flaw) and place.what.code != "CL-STALE":
                    self._miss(place.what.code, segment.path, place.file_offset, place.length, place.what.message)
            reached = max(reached, min(end, segment.end_offset))
        self.ranges.append(LogRange(begun, reached))

    def _miss(self, code: str, path: str, offset: int, length: int, text: str) -> None:
        finding = Finding(code, Severity.ERROR, text, file=path or None, offset=offset, length=length)
        if finding not in self.unread:
            self.unread.append(finding)

    def _places(self, segment: Segment, start: int) -> Iterator[Place]:
        file = self.store.commit_log.open(segment)
        if self.store.is_dledger:
            for entry in walk_dledger(file, segment.base_offset):
                if entry.file_offset + entry.length > start:
                    head = entry.head
                    yield Place(entry.file_offset, entry.length, head) if isinstance(head, Flaw) else entry.record
        else:
            yield from SegmentWalk(file, segment.base_offset).places(start)
