"""The log searched through, for what no queue and no index leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.findings import Finding, Severity
from rmqtool.formats.commit_log import Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.storage.log_end import read_record
from rmqtool.storage.segments import Segment
from rmqtool.storage.store import Store
from rmqtool.storage.walk import Place, SegmentWalk, walk_dledger

if TYPE_CHECKING:
    from rmqtool.scan.plan import Plan
    from rmqtool.scan.ranges import Effort
    from rmqtool.scan.reading import Damage
    from rmqtool.scan.selection import Selection

# So many messages are looked at one by one before columns are worth their start.
_WALKED = 2000


class LogRange(NamedTuple):
    """Physical offsets, half-open."""

    start: int
    end: int


@dataclass(frozen=True)
class Hint:
    """What the wanted messages have in common, so that most others need not be looked at.

    Their properties hold ``needle``; ``key`` is one of their keys, ``tag`` their tag, ``queue_offset`` a queue offset
    they may have. Some that hold one of ``near`` are given too.
    """

    needle: bytes
    key: str | None = None
    tag: str | None = None
    queue_offset: int | None = None
    near: tuple[bytes, ...] = ()


@dataclass
class LogSearch:
    """What was searched of a log, and what of it could not be read. ``effort`` makes how hard is
    worked, and who watches, when it is needed."""

    store: Store
    effort: Callable[[], Effort] | None = None
    ranges: list[LogRange] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How many bytes were searched."""
        return sum(end - start for start, end in self.ranges)

    def iter_messages(self, start: int, end: int, hint: Hint | None = None) -> Iterator[Message]:
        """Yield the valid messages from ``start``, where a record is due, to ``end``.

        With a hint not all of those that the hint excludes.
        """
        if start >= end:
            return
        self._miss_gaps(start, end)
        reached, walked = start, 0
        for segment in self.store.commit_log:
            if segment.end_offset <= start or segment.base_offset >= end:
                continue
            for place in self._places(segment, max(start - segment.base_offset, 0)):
                at = segment.base_offset + place.file_offset
                if at >= end:
                    break
                if hint is not None and walked >= _WALKED and isinstance(place.what, Message):
                    yield from self._iter_scanned(at, end, hint)
                    self.ranges.append(LogRange(start, min(end, self.store.commit_log.end_offset)))
                    return
                if isinstance(place.what, Message):
                    walked += 1
                    yield place.what
                elif isinstance(place.what, Flaw) and place.what.code != "CL-STALE":
                    self._miss(place.what.code, segment.path, place.file_offset, place.length, place.what.message)
                if not isinstance(place.what, Nothing):
                    reached = max(reached, min(end, at + place.length))
        self.ranges.append(LogRange(start, reached))

    def _iter_scanned(self, start: int, end: int, hint: Hint) -> Iterator[Message]:
        from rmqtool.scan.ranges import Effort
        from rmqtool.scan.reading import Damage
        from rmqtool.scan.searching import Sought, search

        selection = _selection(hint, start)
        plan = plan_of(self.store, selection)
        plan = replace(plan, wanted=[file for file in plan.wanted if file.base_offset < end])
        sought = Sought(hint.needle, selection, hint.queue_offset, hint.near)
        for answer in search(plan, sought, self.effort() if self.effort is not None else Effort()):
            damages = [answer] if isinstance(answer, Damage) else answer.damages
            for damage in damages:
                self._miss(damage.code, damage.file, damage.file_offset, damage.length, damage.message)
            places = set() if isinstance(answer, Damage) else {*answer.found, *answer.near}
            for place in sorted(places):
                message = read_record(self.store.commit_log, place) if place < end else None
                if message is not None:
                    yield message
                elif place < end:
                    self._miss_record(place)

    def miss_all(self, damages: list[Damage]) -> None:
        """Remember damage that others met."""
        for damage in damages:
            self._miss(damage.code, damage.file, damage.file_offset, damage.length, damage.message)

    def _miss_gaps(self, start: int, end: int) -> None:
        for gap in self.store.commit_log.gaps():
            if gap.start_offset < end and gap.end_offset > start:
                length = gap.end_offset - gap.start_offset
                self._miss("CL-GAP", "", gap.start_offset, length, "a segment is missing")

    def _miss_record(self, physical_offset: int) -> None:
        segment = self.store.commit_log.find(physical_offset)
        if segment is not None:
            text = "the record's checksum is wrong"
            self._miss("CL-CRC", segment.path, physical_offset - segment.base_offset, 0, text)

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


def _selection(hint: Hint, start: int) -> Selection:
    from rmqtool.filters.tags import parse_tags
    from rmqtool.scan.selection import Selection

    plain = hint.tag is not None and "|" not in hint.tag and hint.tag == hint.tag.strip() and hint.tag != "*"
    tags = parse_tags(hint.tag) if plain else None
    return Selection(physical_from=start, key=hint.key, tags=tags)


def plan_of(store: Store, selection: Selection) -> Plan:
    """Return what is read of a store's log for a selection."""
    from rmqtool.scan.logs import logs_of
    from rmqtool.scan.plan import read_plan

    return read_plan(logs_of(store), selection, live=store.is_live)
