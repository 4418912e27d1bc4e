"""The result of a recovery: the range of the log, findings, misfits, and files that were written; with its JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.errors import OptionalMissing
from rmqtool.findings import Finding, worst_first
from rmqtool.store.listing import QueueId


class Change(NamedTuple):
    """One file that was written; ``action`` is create, modify, resize, rename or delete."""

    path: str
    action: str


class Misfit(NamedTuple):
    """A valid record that cannot be at the queue offset that it claims, and why."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return an item of ``notRestored`` in the JSON of a recovery; see docs/contract.md."""
        return {
            "commitLogOffset": self.physical_offset,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "reason": self.reason,
        }


@dataclass
class RecoveryReport:
    """The result of one recovery; ``changes`` is empty if nothing had to be written."""

    # Whether the mark of an open store was there: after a crash.
    abnormal: bool
    min_offset: int = 0
    max_offset: int = 0
    messages: int = 0
    # Placeholder records, which are over the damage of earlier repairs.
    bridges: int = 0
    findings: list[Finding] = field(default_factory=list)
    # Those that a recovery cannot repair: it deletes no bytes that may be messages, and cannot bring lost ones back.
    left: list[Finding] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)
    changes: dict[str, Change] = field(default_factory=dict)
    # Why a part of the store was not compared.
    missing: OptionalMissing | None = None

    @property
    def loses_only_the_end(self) -> bool:
        """Whether the recovery cut off at most a torn end of the log.

        Repaired queues and index do not count, because they are made from the log. Nor does an empty last segment that
        was deleted: a process that was killed had just created it.
        """
        if self.misfits or self.missing is not None:
            return False
        of_log = [finding for finding in self.findings if finding.code.startswith(("CL-", "ST-"))]
        torn = [finding.code for finding in of_log if not (finding.code == "CL-SIZE" and self._deletes(finding.file))]
        return torn in ([], ["CL-TORN"])

    def _deletes(self, path: str | None) -> bool:
        change = self.changes.get(path or "")
        return change is not None and change.action == "delete"

    def cut_off(self) -> Counter[QueueId]:
        """Return how many messages of each queue were lost with the end of the log: their entries were removed.

        Messages that an earlier recovery cut off were not lost by this damage.
        """
        cut: Counter[QueueId] = Counter()
        if not any(finding.code == "CL-STALE" for finding in self.findings):
            for finding in self.findings:
                if finding.code == "CQ-AHEAD":
                    cut[QueueId(finding.topic or "", finding.queue_id or 0)] += int(str(finding.data["units"]))
        return cut

    def note(self, path: str, action: str) -> None:
        """Record that a file was written. The first action on a file tells most, so only a deletion replaces it.

        A file that was created and then deleted is not reported.
        """
        if action == "delete" and path in self.changes:
            before = self.changes.pop(path)
            if before.action == "create":
                return
        self.changes.setdefault(path, Change(path, action))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of a recovery; see docs/contract.md."""
        return {
            "mode": "abnormal" if self.abnormal else "normal",
            "applied": True,
            "minPhyOffset": self.min_offset,
            "maxPhyOffset": self.max_offset,
            "messages": self.messages,
            "files": [change._asdict() for _, change in sorted(self.changes.items())],
            "findings": [finding.as_json() for finding in worst_first(self.findings)],
            "left": [finding.as_json() for finding in worst_first(self.left)],
            "notRestored": [misfit.as_json() for misfit in self.misfits],
        }
