"""What of a log is no right record, by its places: the one map of damage.

Everything that asks whether damage takes a place asks here: whether a queue entry may lead there, how many messages
at most were lost between two places, and which bridge a repair has laid there.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.formats.commit_log import MIN_RECORD_SIZE, Message
from rmqtool.formats.flaws import Flaw
from rmqtool.store.segments import Segment


class Damage(NamedTuple):
    """Bytes of the log that are no valid record; ``record`` is the message in them whose structure is whole."""

    start: int
    end: int
    segment: Segment | None
    flaw: Flaw
    record: Message | None = None
    is_empty: bool = False


class Bridge(NamedTuple):
    """A record that a repair has laid over damage; what was there before ``end`` is lost."""

    physical_offset: int
    size: int
    end: int


@dataclass
class DamageMap:
    """All damage, in the order of the log, and what bridges damage that was there before."""

    spans: list[Damage] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)

    def covers(self, physical_offset: int) -> bool:
        """Return whether an offset is in damage."""
        at = bisect_right(self.spans, physical_offset, key=_start_of) - 1
        return at >= 0 and physical_offset < self.spans[at].end

    def find_bridge(self, physical_offset: int) -> Bridge | None:
        """Return the bridge over an offset."""
        at = bisect_right(self.bridges, physical_offset, key=_place_of) - 1
        return self.bridges[at] if at >= 0 and physical_offset < self.bridges[at].end else None

    def find_last_bridge(self, start: int, end: int) -> Bridge | None:
        """Return the last bridge between two offsets."""
        at = bisect_right(self.bridges, end - 1, key=_place_of) - 1
        return self.bridges[at] if at >= 0 and self.bridges[at].physical_offset >= start else None

    def lost_between(self, start: int, end: int) -> int:
        """Return how many records at most were in the damage between two offsets."""
        at = max(bisect_right(self.spans, start, key=_start_of) - 1, 0)
        lost = 0
        for bridge in self.bridges[max(bisect_right(self.bridges, start, key=_place_of) - 1, 0) :]:
            if bridge.physical_offset >= end:
                break
            lost += max(min(bridge.end, end) - max(bridge.physical_offset, start), 0)
        for span in self.spans[at:]:
            if span.start >= end:
                break
            lost += max(min(span.end, end) - max(span.start, start), 0)
        return -(-lost // MIN_RECORD_SIZE)


def _start_of(damage: Damage) -> int:
    return damage.start


def _place_of(bridge: Bridge) -> int:
    return bridge.physical_offset
