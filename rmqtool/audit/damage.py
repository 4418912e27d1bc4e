"""The map of damage: the ranges of a log that do not hold valid records.

It is the one place that answers whether an offset is in damage (then a queue entry may point there), how many messages
at most were lost between two offsets, and which bridge a repair wrote there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from rmqtool.formats.commit_log import MIN_RECORD_SIZE, Message
from rmqtool.formats.flaws import Flaw
from rmqtool.store.segments import Segment


class Span(Protocol):
    """Bytes of the log from ``start`` to before ``end``."""

    @property
    def start(self) -> int:
        """The offset of the first byte."""

    @property
    def end(self) -> int:
        """The offset after the last byte."""


AnySpan = TypeVar("AnySpan", bound=Span)


class Stretch(NamedTuple):
    """A range of the log, with nothing else known about it."""

    start: int
    end: int


def find_covering(spans: Sequence[AnySpan], physical_offset: int) -> AnySpan | None:
    """Return the span that holds an offset, or None. The spans must be in the order of the log and not overlap."""
    at = bisect_right(spans, physical_offset, key=_start_of) - 1
    return spans[at] if at >= 0 and physical_offset < spans[at].end else None


def is_any_between(spans: Sequence[Span], start: int, end: int) -> bool:
    """Return whether a span has bytes between two offsets. The spans must be in the order of the log."""
    at = bisect_right(spans, start, key=_end_of)
    return at < len(spans) and spans[at].start < end


def lost_between(start: int, end: int, *maps: Sequence[Span]) -> int:
    """Return how many records of the least size fit into the spans between two offsets, rounded up.

    No more records can have been lost there. The spans of each map must be in the order of the log and not overlap.
    """
    lost = 0
    for spans in maps:
        for span in islice(spans, bisect_right(spans, start, key=_end_of), None):
            if span.start >= end:
                break
            lost += min(span.end, end) - max(span.start, start)
    return -(-lost // MIN_RECORD_SIZE)


def joined(spans: Iterable[Span]) -> list[Stretch]:
    """Return spans in the order of the log; spans that touch or overlap become one."""
    found: list[Stretch] = []
    for one in sorted(spans, key=_start_of):
        if found and one.start <= found[-1].end:
            found[-1] = Stretch(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(Stretch(one.start, one.end))
    return found


class Damage(NamedTuple):
    """Bytes of the log that do not hold a valid record.

    Without a ``segment``, the bytes are in a gap between two. ``record`` is the message here if its structure is whole:
    only its content is wrong. ``is_empty`` marks the unused end of a segment without a blank record.
    """

    start: int
    end: int
    segment: Segment | None
    flaw: Flaw
    record: Message | None = None
    is_empty: bool = False


class Bridge(NamedTuple):
    """A placeholder record that a repair wrote over damage; everything from it to ``end`` is lost."""

    physical_offset: int
    size: int
    end: int

    @property
    def start(self) -> int:
        """``physical_offset`` under the name that every ``Span`` has."""
        return self.physical_offset


@dataclass
class DamageMap:
    """All damage of a log, in order, and the bridges over earlier damage."""

    spans: list[Damage] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)

    def covers(self, physical_offset: int) -> bool:
        """Return whether the byte at a physical offset is damaged."""
        return find_covering(self.spans, physical_offset) is not None

    def find_bridge(self, physical_offset: int) -> Bridge | None:
        """Return the bridge whose lost range holds an offset, or None."""
        at = bisect_right(self.bridges, physical_offset, key=_start_of) - 1
        return self.bridges[at] if at >= 0 and physical_offset < self.bridges[at].end else None

    def find_last_bridge(self, start: int, end: int) -> Bridge | None:
        """Return the last bridge that begins at ``start`` or later and before ``end``, or None."""
        at = bisect_right(self.bridges, end - 1, key=_start_of) - 1
        return self.bridges[at] if at >= 0 and self.bridges[at].physical_offset >= start else None

    def lost_between(self, start: int, end: int) -> int:
        """Return how many records at most were lost between two offsets, in damage and under bridges."""
        return lost_between(start, end, self.spans, self.bridges)


def _start_of(span: Span) -> int:
    return span.start


def _end_of(span: Span) -> int:
    return span.end
