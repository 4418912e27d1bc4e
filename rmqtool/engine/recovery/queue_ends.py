"""Where each queue ends once the log was read: units behind its last record that no record claims.

Some of them belong to messages that are lost or gone, and keep their numbers. The others were left by a log that has
lost its end, or are damage. What this recovery takes from a queue becomes zeros, so that nothing brings it back.

upstream: ConsumeQueue.truncateDirtyLogicFiles moves a position; the units stay, and a later start finds them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from rmqtool.engine.recovery.queue_pass import QueueCheck
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.findings.wording import counted
from rmqtool.formats import layouts
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.consume_queue import UNIT_SIZE, is_written
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import FileKind, segment_directory
from rmqtool.storage.segments import Segment

_UNIT = layouts.CONSUME_QUEUE_UNIT
_CHUNK = 256


@dataclass
class QueueEnd:
    """One queue, the files it had when the recovery began, and where its units end."""

    check: QueueCheck
    segments: Sequence[Segment]
    # The first unit that no record claims, and the end.
    unclaimed: int
    end: int

    @classmethod
    def begin(cls, check: QueueCheck, segments: Sequence[Segment]) -> Self:
        """Return the end behind the last record."""
        first = segments[0].base_offset // UNIT_SIZE if segments else 0
        unclaimed = first if check.expected is None else check.expected
        return cls(check, segments, unclaimed, unclaimed)

    def find(self) -> None:
        """Go over the units that no record claims, to the first that cannot stay."""
        is_real = self.check.expected is not None
        for unit in self.units_behind():
            if not self.check.may_stay(self.end, unit):
                break
            is_real = is_real or unit.size != FILLER_SIZE
            self.end += 1
        if not is_real:
            # upstream: 4.9 takes the size of a filler for the end of the log, and dispatches no message any more.
            self.end = self.unclaimed

    def settle(self) -> None:
        """Let further records of the queue stand behind its end."""
        if self.check.expected is not None or self.end > self.unclaimed:
            self.check.expected = self.end

    def units_behind(self) -> list[ConsumeQueueUnit]:
        """Return the written units from the end on."""
        found: list[ConsumeQueueUnit] = []
        while True:
            for unit in _UNIT.iter_decode(self.check.read(self.end + len(found), _CHUNK)):
                if not is_written(unit):
                    return found
                found.append(unit)

    def clear(self, remove: Callable[[str], None], log_end: int, *, thorough: bool) -> list[Finding]:
        """Clear what stands behind the end, unless it is as a broker left it: units beyond a log that ends in peace."""
        if self.check.expected is not None:
            self.end = max(self.end, self.check.expected)
        behind = self.units_behind()
        findings = []
        if behind:
            topic, queue_id = self.check.key
            place = Place(segment_directory(FileKind.CONSUME_QUEUE, topic, queue_id), topic=topic, queue_id=queue_id)
            ahead = all(unit.physical_offset >= log_end for unit in behind)
            belong = counted(len(behind), "unit belongs", "units belong")
            text = f"from queue offset {self.end} on, {belong} to no record of this queue"
            findings.append(new_finding("CQ-AHEAD" if ahead else "CQ-WRONG", text, place, units=len(behind)))
            if ahead and not thorough:
                return findings
            self._zero()
        for segment in self.segments:
            if segment.base_offset >= self.end * UNIT_SIZE:
                remove(segment.path)
        return findings

    def _zero(self) -> None:
        """Zero the rest of the file that the queue ends in."""
        position = self.end * UNIT_SIZE
        holding = next((one for one in self.segments if one.base_offset < position < one.end_offset), None)
        if holding is not None:
            rest = self.check.read(self.end, (holding.end_offset - position) // UNIT_SIZE).rstrip(b"\0")
            self.check.clear(self.end, -(-len(rest) // UNIT_SIZE))
