"""Whether the store takes messages, and why not.

upstream: RunningFlags. Added to its bits is the first write or sync that failed. After it the bytes written earlier may
or may not be on disk, and a second sync would not help. So the store takes no message until it is opened again. The
messages that it has taken still get their entries, because consumers find them by these. Only after a failed dispatch
they do not.
"""

from __future__ import annotations

from collections import deque
from enum import IntFlag
from typing import NamedTuple

from rmqtool.findings import Finding

# The newest findings are kept: a store with a problem in every record must not fill the memory.
_MOST_FINDINGS = 1000


class RunningFlag(IntFlag):
    """The bits of upstream's RunningFlags."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16


# Each flag but NOT_READABLE refuses puts.
_NO_PUTS = ~RunningFlag.NOT_READABLE


class Health:
    """The state of one open store, shared by everything that works on it."""

    def __init__(self) -> None:
        self.flags = RunningFlag(0)
        self.failure: BaseException | None = None
        # Whether another failure followed the one in ``failure``.
        self.has_more_failures = False
        self._has_dispatch_failed = False
        # Whether puts are taken, and whether the dispatch continues. Precomputed because each message asks. A full disk
        # does not end the dispatch: it tries again.
        self.is_writeable = self.is_queue_writeable = True
        self.findings: deque[Finding] = deque(maxlen=_MOST_FINDINGS)

    def poison(self, failure: BaseException, *, in_dispatch: bool = False) -> None:
        """Remember the first failure; from now on only entries of messages that are stored are written.

        After a failure in the dispatch not even those: which of them reached the file is not known.
        """
        if self.failure is None:
            self.failure = failure
        elif failure is not self.failure:
            self.has_more_failures = True
        self._has_dispatch_failed |= in_dispatch
        self.set(RunningFlag(0))

    def forget_failure(self) -> None:
        """Let puts and the dispatch go on after a write that failed and was taken back; the flags stay."""
        self.failure = None
        self.set(RunningFlag(0))

    def set(self, flag: RunningFlag, on: bool = True) -> None:
        """Set or clear a flag. All flags but NOT_READABLE refuse puts; only NOT_WRITEABLE ends the dispatch."""
        self.flags = self.flags | flag if on else self.flags & ~flag
        self.is_writeable = self.failure is None and not self.flags & _NO_PUTS
        self.is_queue_writeable = not self._has_dispatch_failed and not self.flags & RunningFlag.NOT_WRITEABLE

    def report(self, finding: Finding) -> None:
        """Keep a finding for the store's ``Condition``; the oldest goes when there are too many."""
        self.findings.append(finding)


class Condition(NamedTuple):
    """A snapshot of a store: positions in its log, its counts, and its problems."""

    min_offset: int
    wrote_offset: int
    committed_offset: int
    flushed_offset: int
    dispatched_offset: int
    written_count: int
    flags: RunningFlag
    failure: BaseException | None
    findings: tuple[Finding, ...]
    # Percent of the log's disk in use at the last look; 0 before the first.
    disk_used: int
