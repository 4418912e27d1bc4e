"""Tells whether the next start of a broker reads a damaged place of the log, and how many messages it deletes there.

The registry of codes has only the rule: "after a crash it reads the log files since the checkpoint". A rehearsal of the
start gives the answer for one store. It reads what the broker would read, so it is made only for a log with damage.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.errors import ReadFailed, StoreError
from rmqtool.findings import Finding
from rmqtool.findings.finding import counted
from rmqtool.formats import paths

if TYPE_CHECKING:
    from rmqtool.checks.case import Case
    from rmqtool.upstream.outcome import StartOutcome

# The codes of damage at which a start ends the log.
DAMAGE = frozenset({"CL-MAGIC", "CL-LEN", "CL-CRC", "CL-MID"})


class NextStart(NamedTuple):
    """The rehearsed start; None if the store is in use, its start is not modelled, or a file cannot be read."""

    outcome: StartOutcome | None

    @classmethod
    def of(cls, case: Case) -> NextStart:
        """Rehearse the start of the broker, unless the store is in use."""
        from rmqtool.upstream.rehearsal import rehearse

        if case.live:
            return cls(None)
        try:
            with rehearse(case.store) as rehearsal:
                return cls(rehearsal.run(finds_unreached=False))
        except (StoreError, ReadFailed):
            return cls(None)

    def words(self, finding: Finding, case: Case) -> str | None:
        """Say what the start does at a damaged place of the log; None if that is not known."""
        outcome = self.outcome
        segment = next((one for one in case.log if case.shown(one) == finding.file), None)
        if outcome is None or outcome.scan is None or segment is None or finding.offset is None:
            return None
        first = paths.parse_segment_name(os.path.basename(outcome.scan.path))
        if not outcome.loads or outcome.max_physical_offset is None or first is None:
            return None
        at, who = segment.base_offset + finding.offset, f"the next start (as {outcome.version})"
        if segment.base_offset < first:
            return f"{who} does not read this file, so it deletes nothing here"
        if at < outcome.max_physical_offset:
            return f"{who} reads this place and goes on after it"
        if not outcome.messages_destroyed:
            return f"{who} cuts the log here or before; no valid message follows"
        lost = counted(outcome.messages_destroyed, "valid message")
        where = "here" if at == outcome.max_physical_offset else f"at {outcome.max_physical_offset}, before this place,"
        return f"DO NOT START A BROKER: {who} cuts the log {where} and deletes {lost}"
