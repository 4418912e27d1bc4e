"""Whether the store takes messages, and why not.

Upstream: ``RunningFlags``. To its bits comes one thing upstream lacks: the first write or sync that failed. Nobody can
say what of the bytes written before it is on the disk, and a second sync does not mend that; so from then on the store
only reads, until it is opened again.
"""

from __future__ import annotations

from collections import deque
from enum import IntFlag
from typing import NamedTuple

from rmqtool.findings import Finding

# What went wrong is said; a store that is wrong in every record must not fill the memory with it.
_MOST_FINDINGS = 1000


class RunningFlag(IntFlag):
    """Upstream's bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16


_NO_PUTS = ~RunningFlag.NOT_READABLE


class Health:
    """The state of one open store, shared by everything that works on it."""

    def __init__(self) -> None:
        self.flags = RunningFlag(0)
        self.failure: BaseException | None = None
        # Whether puts are taken, and whether the dispatch goes on; each message asks both, so they are known ahead. A
        # full disk does not end the dispatch: what it could not write it tries again.
        self.is_writeable = self.is_queue_writeable = True
        self.findings: deque[Finding] = deque(maxlen=_MOST_FINDINGS)

    def poison(self, failure: BaseException) -> None:
        """Remember the first failure; from now on nothing is written."""
        if self.failure is None:
            self.failure = failure
            self.is_writeable = self.is_queue_writeable = False

    def set(self, flag: RunningFlag, on: bool = True) -> None:
        """Set or clear a flag."""
        self.flags = self.flags | flag if on else self.flags & ~flag
        self.is_writeable = self.failure is None and not self.flags & _NO_PUTS
        self.is_queue_writeable = self.failure is None and not self.flags & RunningFlag.NOT_WRITEABLE

    def report(self, finding: Finding) -> None:
        """Keep a finding for whoever asks."""
        self.findings.append(finding)


class Condition(NamedTuple):
    """How a store is: positions in its log, what it has done, and what is wrong."""

    min_offset: int
    wrote_offset: int
    committed_offset: int
    flushed_offset: int
    dispatched_offset: int
    written_count: int
    flags: RunningFlag
    failure: BaseException | None
    findings: tuple[Finding, ...]
    # How full the disk of the log was at the last look, in percent; 0 before.
    disk_used: int
