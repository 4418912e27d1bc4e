"""Decides which queue offset a record has: the one that it claims, unless the records around it contradict.

The header of a record has no checksum, so a single queue offset is not believed against all others. If it does not
follow the one before it, the entry on disk and the next record of the queue decide. ``checks`` reports the records that
are not where they claim to be, ``engine.recovery`` writes the entries where they belong.

A topic that was deleted and created again begins again at 0, while records of the deleted topic are still in the log.
Those have no entries.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from rmqtool.formats.consume_queue import LAST_OFFSET, WIDEST_GAP
from rmqtool.formats.layouts import ConsumeQueueUnit


class Claim(NamedTuple):
    """A record's claim: its queue offset, and the entry that it is due."""

    queue_offset: int
    unit: ConsumeQueueUnit


class Verdict(StrEnum):
    """Where the entry of a record belongs; a STRAY record gets no entry at the offset that it claims."""

    CLAIMED = "at the queue offset that it claims"
    NEXT = "after the entry of the record before it"
    BEGINS = "at 0, where the queue begins again"
    STRAY = "at neither: its queue offset is wrong, and another record has the next one"


class Entries(Protocol):
    """The entries of a queue on disk, as far as a claim is judged by them."""

    def lead_to(self, queue_offset: int, unit: ConsumeQueueUnit) -> bool:
        """Return whether there is an entry at a queue offset and it points to the record that is due ``unit``."""


class QueueClaims:
    """Judges the records of one simple queue, which must be given in the order of the log.

    For each record call ``judge``, and ``judge_by`` if that returns None; then ``place`` if the record has an entry.
    ``lost_between`` returns how many records at most the damage between two offsets of the log can have held, ``start``
    is the start of the log.
    """

    def __init__(self, entries: Entries, lost_between: Callable[[int, int], int], start: int) -> None:
        # The next record of the queue should claim this offset; None before the first record.
        self.expected: int | None = None
        # The end of the last record that has an entry.
        self.last_end = start
        self._entries = entries
        self._lost_between = lost_between

    def judge(self, claim: Claim) -> Verdict | None:
        """Return where a record belongs, or None if the next record of the queue decides (``judge_by``)."""
        offset, expected = claim.queue_offset, self.expected
        if offset == expected:
            return Verdict.CLAIMED
        if not 0 <= offset <= LAST_OFFSET:
            return Verdict.STRAY
        # A lower offset than expected is possible only at 0, where a topic that was created again begins.
        is_behind = expected is not None and offset < expected
        if (not is_behind or not offset) and self._entries.lead_to(offset, claim.unit):
            return Verdict.BEGINS if is_behind else Verdict.CLAIMED
        if expected is not None and self._entries.lead_to(expected, claim.unit):
            return Verdict.NEXT
        return Verdict.STRAY if is_behind and offset else None

    def judge_by(self, claim: Claim, following: int | None) -> Verdict:
        """Return where a record belongs by what the next one claims (None for the last record)."""
        expected = self.expected
        if expected is not None and claim.queue_offset < expected:
            begins = following == claim.queue_offset + 1
            return Verdict.BEGINS if begins else Verdict.NEXT if following == expected + 1 else Verdict.STRAY
        if following == claim.queue_offset + 1 and self._is_credible(claim):
            return Verdict.CLAIMED
        if expected is not None and following == expected + 1:
            return Verdict.NEXT
        return Verdict.CLAIMED if self._may_be_right(claim, following) else Verdict.STRAY

    def _is_credible(self, claim: Claim) -> bool:
        """Return whether at most ``WIDEST_GAP`` entries are missing before a claim; a wider gap is a damaged offset.

        The claim of the first record is always credible.
        """
        return self.expected is None or claim.queue_offset - self.expected <= WIDEST_GAP

    def _may_be_right(self, claim: Claim, following: int | None) -> bool:
        """Return whether a claim may be right although the next record does not follow it.

        That of the first record may be if the next one claims a later offset; that of any other if damage explains the
        messages missing before it, and the next record does not claim the offset that was expected here.
        """
        if self.expected is None:
            return following is not None and following > claim.queue_offset
        return following != self.expected and self.is_explained(claim, self.expected)

    def is_explained(self, claim: Claim, expected: int) -> bool:
        """Return whether damage in the log can have held all messages from ``expected`` to before a record."""
        missing = claim.queue_offset - expected
        lost = self._lost_between(self.last_end, claim.unit.physical_offset)
        return 0 <= missing <= min(lost, WIDEST_GAP)

    def place(self, queue_offset: int, end: int) -> None:
        """Note that the record that ends at the physical offset ``end`` has the entry at a queue offset."""
        self.expected = queue_offset + 1
        self.last_end = end
