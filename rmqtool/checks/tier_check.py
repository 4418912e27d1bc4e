"""The check of a tier without its store: findings as they are found, then a summary of what was verified."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rmqtool.checks.case import Depth
from rmqtool.checks.check import CheckOptions, Summary
from rmqtool.checks.tier_judge import TierJudge
from rmqtool.errors import OptionalMissing, UsageError
from rmqtool.findings import Finding, Severity, addressed
from rmqtool.log.ranges import Effort
from rmqtool.store.tiers import Tier


class TierCheck:
    """One check of a tier without its store: iterate over its findings, then read ``summary``."""

    missing: OptionalMissing | None = None

    def __init__(self, tier: Tier, options: CheckOptions, effort: Effort) -> None:
        if options.max_seconds is not None or options.resume is not None:
            raise UsageError(
                f"{tier.root} is a tier, which is checked at once", hint="leave out --max-time and --resume"
            )
        self.tier, self.options = tier, options
        self.summary = Summary()
        self._judge = TierJudge(tier, quick=options.depth is Depth.QUICK, effort=effort)

    def __iter__(self) -> Iterator[Finding]:
        judge, summary = self._judge, self.summary
        summary.files, summary.queues, summary.indexes = judge.files, len(self.tier.queues), len(self.tier.index)
        for finding in judge.findings():
            if self.options.takes(finding):
                summary.add(finding.severity)
                yield finding if finding.severity is Severity.NOTICE else addressed(finding, self.tier.root)
        summary.messages, summary.bytes, summary.lost = judge.messages, judge.bytes, judge.lost
        summary.complete = judge.complete
        summary.proven, summary.not_proven = self._proofs()

    def _proofs(self) -> tuple[list[str], list[str]]:
        found = self.summary.errors + self.summary.warnings + self.summary.notices
        apart = "except for the problems above: " if found else ""
        open_ends = ["the metadata, index entries of each topic (check the store of the tier)"]
        if self.options.only or self.options.topics.patterns:
            return [], ["anything excluded by --only or -t", *open_ends]
        if self.options.depth is Depth.QUICK:
            return [f"{apart}names of files"], ["messages, queue entries (run it without --quick)", *open_ends]
        return [f"{apart}messages, queue entries, index files"], open_ends

    def next_commands(self, name: str) -> list[str]:
        """Return the command to type next; ``name`` is the tier as the user named it."""
        if self.options.depth is Depth.QUICK:
            return [f"rmqtool check {shlex.quote(name)}"]
        return []
