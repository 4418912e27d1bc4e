"""One check of a store: runs all parts, yields findings as they are found, and summarises what was verified.

The comparison of the log's segments with queues and index is done by one thread or by several.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.checks import databases, features, files, state
from rmqtool.checks.case import Case, Depth, Walk
from rmqtool.checks.index_files import IndexJudge, check_index_quickly
from rmqtool.checks.log import LogJudge
from rmqtool.checks.queues import QueueJudge
from rmqtool.errors import FileMissing, OptionalMissing, ReadFailed, UsageError
from rmqtool.filters.wanted import TopicPatterns, parse_patterns
from rmqtool.findings import FAMILIES, UNREAD, Finding, Severity, addressed, broker_text, find_code, is_command
from rmqtool.formats import paths
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store

if TYPE_CHECKING:
    from rmqtool.audit.due import Half
    from rmqtool.audit.log_pass import LogExtract
    from rmqtool.audit.reports import Queue, SegmentReport, Sequence
    from rmqtool.log.ranges import Effort
    from rmqtool.store.segments import Segment, SegmentQueue


class Working(NamedTuple):
    """How reports are made: the effort, and the extract of the log if there is one."""

    effort: Effort | None
    extract: LogExtract | None = None


def iter_reports(case: Case, index: IndexJudge, start: int, work_of: Working) -> Generator[SegmentReport, None, None]:
    """Yield the report of each segment from ``start`` on, in order. ``index`` gets the reports of its links before."""
    effort, extract = work_of
    from rmqtool.audit.due import Inflating, Wanted
    from rmqtool.audit.reports import IndexFileName, LinkReport, ReportWork, iter_work_reports
    from rmqtool.log.ranges import Effort

    wanted = Wanted(
        case.store.dispatch_rules,
        case.batch_topics,
        Inflating.WHOLE if case.depth is Depth.DEEP else Inflating.HEADS,
        tag_keys=index.tagged,
    )
    has_files = case.store.has_file_queues or paths.CONSUME_QUEUE not in case.store.listing.databases()
    work = ReportWork(
        wanted,
        case.store.filesystem,
        _segments(case.queues) if has_files else None,
        _segments(case.exts),
        _segments(case.batch_queues),
        [IndexFileName(part.path, part.geometry, part.header, part.runs) for part, _, _ in index.examined],
        case.store.is_dledger,
        case.end.physical_offset if case.live else None,
    )
    if extract is not None and extract.serves(wanted):
        work.extract = extract
    segments = [
        segment
        for segment in case.log
        if segment.base_offset >= start and (work.end is None or segment.base_offset < work.end)
    ]
    entries = [examined.examination.entries for examined in index.examined]
    for report in iter_work_reports(work, segments, entries, effort or Effort()):
        if isinstance(report, LinkReport):
            index.take_links(report)
        else:
            yield report


def _segments(queues: dict[QueueId, SegmentQueue]) -> dict[Queue, tuple[Segment, ...]]:
    return {(queue.topic, queue.queue_id): segments.segments for queue, segments in queues.items()}


_TOKEN = re.compile(r"log:(\d{1,19})")


@dataclass(frozen=True)
class CheckOptions:
    """What to check and how closely. ``only`` has families or codes; ``resume`` is where an earlier check stopped."""

    depth: Depth = Depth.DEFAULT
    only: tuple[str, ...] = ()
    topics: TopicPatterns = field(default_factory=lambda: parse_patterns(()))
    max_seconds: float | None = None
    resume: str | None = None

    def __post_init__(self) -> None:
        for word in self.only:
            if word.upper() not in FAMILIES and find_code(word) is None:
                known = ", ".join(FAMILIES)
                raise UsageError(f'"{word}" is not a finding code or a family of codes', hint=f"families: {known}")
        if self.resume is not None and not _TOKEN.fullmatch(self.resume):
            raise UsageError(f'"{self.resume}" is not a token to resume from', hint="it looks like log:393216")

    def wants(self, *families: str) -> bool:
        """Return whether findings of one of these families are requested."""
        return not self.only or any(word.upper().partition("-")[0] in families for word in self.only)

    def takes(self, finding: Finding) -> bool:
        """Return whether a finding is requested."""
        named = not self.only or any(finding.code.startswith(word.upper()) for word in self.only)
        return named and (finding.topic is None or self.topics.matches(finding.topic))

    @property
    def start(self) -> int:
        """The physical offset at which an earlier check stopped."""
        return int(self.resume.partition(":")[2]) if self.resume else 0


def lost_rows(lost: Mapping[QueueId, int]) -> list[dict[str, object]]:
    """Return queues with lost messages in the JSON form."""
    return [
        {"topic": queue.topic, "queueId": queue.queue_id, "messages": messages}
        for queue, messages in sorted(lost.items())
    ]


@dataclass
class Summary:
    """The result of a check. ``placeholders`` is the number of records that a repair wrote over damage: they are not
    messages. ``lost`` has the number of messages of each queue with an entry but without a record.

    ``resume`` is the token to continue with if the check stopped early.
    """

    errors: int = 0
    warnings: int = 0
    notices: int = 0
    files: int = 0
    queues: int = 0
    indexes: int = 0
    messages: int = 0
    bytes: int = 0
    placeholders: int = 0
    lost: dict[QueueId, int] = field(default_factory=dict)
    complete: bool = True
    resume: str | None = None
    proven: list[str] = field(default_factory=list)
    not_proven: list[str] = field(default_factory=list)

    def add(self, severity: Severity) -> None:
        """Count a finding."""
        match severity:
            case Severity.ERROR:
                self.errors += 1
            case Severity.WARNING:
                self.warnings += 1
            case Severity.NOTICE:
                self.notices += 1

    def lost_rows(self) -> list[dict[str, object]]:
        """Return the queues with lost messages in the JSON form."""
        return lost_rows(self.lost)

    def as_json(self) -> dict[str, object]:
        """Return the summary line of the JSON form."""
        found: dict[str, object] = {
            "errors": self.errors,
            "warnings": self.warnings,
            "notices": self.notices,
            "messages": self.messages,
            "bytes": self.bytes,
            "complete": self.complete,
            "placeholders": self.placeholders,
            "files": self.files,
            "queues": self.queues,
            "indexes": self.indexes,
            "lost": self.lost_rows(),
            "proven": self.proven,
            "notProven": self.not_proven,
        }
        if self.resume is not None:
            found["resume"] = self.resume
        return {"summary": found}


class _QueuesUnread(Exception):
    """A file of a queue or of the index cannot be read."""


class Check:
    """One check of one store: iterate over its findings, then read ``summary``."""

    def __init__(
        self,
        store: Store,
        options: CheckOptions | None = None,
        effort: Effort | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        extract: LogExtract | None = None,
    ) -> None:
        self.store = store
        self.options = options or CheckOptions()
        self._effort = effort
        # Segments that the extract has kept are not read again.
        self._extract = extract
        self.summary = Summary()
        self._repair_helps = False
        # The verified parts of the tier, as text.
        self._tier_words: str | None = None
        self._other_fix: str | None = None
        # Whether the check began again, without the queues and index files that cannot be read.
        self._repeats = False
        self.case = Case.of(store, self.options.depth)
        self._now = now
        self._sequences: dict[tuple[str, int], Sequence] | None = None
        self._deadline = None if self.options.max_seconds is None else now() + self.options.max_seconds

    @property
    def missing(self) -> OptionalMissing | None:
        """The optional library without which a part was not checked."""
        return self.case.missing

    def __repr__(self) -> str:
        found = self.summary
        return f"<Check of {self.store.root!r}: {found.errors} errors, {found.warnings} warnings>"

    def __iter__(self) -> Iterator[Finding]:
        told: list[Finding] = []
        for finding in self._all_readable():
            if finding.code in UNREAD and finding.severity is not Severity.NOTICE:
                self.summary.complete = False
            # Several parts of the check read one file, and a check that begins again finds the same again.
            if (finding.code in UNREAD or self._repeats) and finding in told:
                continue
            told.append(finding)
            if self.options.takes(finding):
                self.summary.add(finding.severity)
                yield self._completed(finding)

    def _all_readable(self) -> Iterator[Finding]:
        """Judge the store; where queues or index files cannot be read, the rest without them."""
        try:
            yield from self._all()
        except _QueuesUnread:
            self._repeats = True
            unread = self.case.find_unread()
            yield from map(self.case.unread, unread.values())
            self.case = self.case.set_aside(unread)
            yield from self._all()

    def _all(self) -> Iterator[Finding]:
        case, options = self.case, self.options
        self.summary.files = len(self.store.listing.files)
        self.summary.queues = len(case.queues) + len(case.batch_queues)
        if not options.resume and options.wants("ST", "CL", "CQ", "CF"):
            yield from self._guarded(files.check_files(case))
        if options.depth is Depth.QUICK:
            if options.wants("IX"):
                yield from self._guarded(check_index_quickly(case))
            if options.wants("CQ", "OF"):
                yield from self._guarded(state.check_queues_quickly(case))
        elif options.wants("CL", "CQ", "IX", "BD", "CF", "CP", "TX", "RX") and not files.is_unmounted(case):
            yield from self._guarded(self._messages())
        for families, check in (
            (("CP",), state.check_checkpoint),
            (("CF",), state.check_configs),
            (("OF",), state.check_offsets),
        ):
            if options.wants(*families) and (check is not state.check_offsets or options.depth is not Depth.QUICK):
                yield from self._guarded(check(case))
        if options.depth is not Depth.QUICK and not files.is_unmounted(case):
            yield from self._parts()
        if options.wants("TI", "CL") and self.store.config.tiered_store_file_path:
            yield from self._guarded(self._tier())
        self.summary.proven, self.summary.not_proven = self._proofs()

    def _completed(self, finding: Finding) -> Finding:
        """Return a finding with the command to type, and what the broker of this store would do."""
        if finding.severity is Severity.NOTICE:
            return finding
        entry = find_code(finding.code)
        finding = addressed(finding, self.store.root)
        version, fix = self.store.version.value, finding.fix
        broker = finding.broker
        if broker is None and entry is not None:
            broker = self.case.words_of_next_start(finding) or broker_text(entry, version, abnormal=self.case.abort)
        if fix is not None:
            if fix.startswith("rmqtool repair"):
                self._repair_helps = True
            elif self._other_fix is None or (is_command(fix) and not is_command(self._other_fix)):
                self._other_fix = fix
        return replace(finding, broker=broker)

    def _proofs(self) -> tuple[list[str], list[str]]:
        """Return what was verified and what was not: items short enough for one screen line each."""
        read = self.options.depth is not Depth.QUICK
        found = self.summary.errors + self.summary.warnings
        apart = "except for the problems above: " if found else ""
        proven = [f"{apart}files, checkpoint, configuration"]
        open_ends = []
        if self.options.only or self.options.topics.patterns:
            proven = []
            open_ends.append("anything excluded by --only or -t")
        elif files.is_unmounted(self.case):
            open_ends.append("messages, queue entries, index entries: the log is missing")
        elif not read:
            open_ends.append("messages, queue entries, index entries (run it without --quick)")
        else:
            proven = [f"{apart}messages, queues, index, settings"]
        if read and self.options.depth is not Depth.DEEP and not files.is_unmounted(self.case):
            open_ends.append("whole compressed bodies, long timer logs (add --deep)")
        if self._tier_words is not None and read:
            proven.append(f"{apart}{self._tier_words}")
        elif self.store.config.tiered_store_file_path and not self.options.only and not self.options.topics.patterns:
            open_ends.append("the tier" if read else "the tier (run it without --quick)")
        if self.case.live:
            open_ends.append(f"the log after {self.case.end.physical_offset}, which is being written")
        if self.summary.resume is not None:
            open_ends.append(f"the log from {self.summary.resume.partition(':')[2]} on")
        if self.options.resume:
            open_ends.append("queues without messages (needs a check without --resume)")
        return proven, open_ends

    def next_commands(self, name: str) -> list[str]:
        """Return the commands to type next; ``name`` is the store as the user named it."""
        store = shlex.quote(name)
        if self.summary.resume is not None:
            return [f"rmqtool check {store} --resume {self.summary.resume}"]
        if files.is_unmounted(self.case):
            return [f"findmnt --target {store}/{paths.COMMIT_LOG}"]
        if self.summary.errors or self.summary.warnings:
            repair = f"rmqtool repair {store}"
            return [repair if self._repair_helps else self._other_fix or repair]
        return [] if self.options.depth is not Depth.QUICK else [f"rmqtool check {store}"]

    def _parts(self) -> Iterator[Finding]:
        """Check the parts that only some stores have."""
        for families, check in (
            (("TM", "CP"), features.check_timers),
            (("TX", "PO"), features.check_internal),
            (("DL",), features.check_dledger),
            (("CM",), features.check_compaction),
        ):
            if self.options.wants(*families):
                yield from self._guarded(check(self.case))
        if self.options.wants("RX", "CQ"):
            yield from self._guarded(databases.check_databases(self.case, self._sequences))
            self.summary.queues = len(self.case.queues.keys() | self.case.row_queues) + len(self.case.batch_queues)

    def _tier(self) -> Iterator[Finding]:
        """Check the tier that the settings of the store name."""
        from rmqtool.checks import tier_judge

        counts = yield from tier_judge.check_tier(self.case, self._effort)
        if counts is not None:
            words = f"tier: {counts.messages} messages, queue entries, index files, metadata"
            self._tier_words = words if counts.is_complete else None
            self.summary.files += counts.files
            self.summary.complete = self.summary.complete and counts.is_complete

    def _messages(self) -> Iterator[Finding]:
        """Read the log, and judge queues and index by it."""
        with closing(IndexJudge(self.case)) as index:
            yield from self._by_the_log(index)

    def _by_the_log(self, index: IndexJudge) -> Iterator[Finding]:
        log, queues = LogJudge(self.case), QueueJudge(self.case)
        start = max(self.options.start, self.case.log.min_offset)
        commits: list[Half] = []
        reports = iter_reports(self.case, index, self.options.start, Working(self._effort, self._extract))
        with closing(reports):
            yield from self._guarded(index.examine())
            self.summary.indexes = len(index.examined)
            for report in reports:
                if report.unread is not None and not report.unread.is_gone:
                    self._require_queues_readable(report.unread.file)
                yield from self._guarded(log.take(report))
                commits += report.commits
                queues.take(report)
                index.take(report)
                self.summary.messages, self.summary.bytes = log.messages
                self.summary.placeholders = log.bridges
                if self._is_late(report.base_offset + report.size):
                    break
        self.summary.complete = self.summary.complete and log.is_complete
        log.finish(learn_end=self.summary.complete and not self.case.live)
        walk = self._walk(start, log.end if log.records or not self.options.resume else self.case.end.physical_offset)
        yield from self._guarded(log.odd_hosts())
        yield from self._guarded(index.iter_files())
        yield from self._guarded(queues.settle(walk))
        self.summary.lost = queues.lost()
        yield from self._guarded(index.settle())
        yield from self._guarded(queues.iter_findings())
        yield from self._guarded(index.iter_findings(walk))
        if self.options.wants("TX"):
            yield from self._guarded(features.check_commits(self.case, commits))
        self._sequences = queues.sequences if walk.is_whole else None
        self.case.log_queues = frozenset(QueueId(*queue) for queue in queues.sequences)

    def _is_late(self, reached: int) -> bool:
        """Return whether the time is over; if it is, remember where to resume."""
        late = self._deadline is not None and self._now() >= self._deadline
        if not late or reached >= self.case.log.end_offset:
            return False
        self.summary.complete = False
        self.summary.resume = f"log:{reached}"
        return True

    def _walk(self, start: int, log_end: int) -> Walk:
        """Return the part of the log that was read."""
        begins = start <= self.case.log.min_offset
        if self.summary.resume is None:
            return Walk(start, log_end, begins, ends=True)
        return Walk(start, int(self.summary.resume.partition(":")[2]), begins, ends=False)

    def _guarded(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Turn a failed read into a finding, so that the other parts are still checked."""
        try:
            yield from findings
        except ReadFailed as error:
            if not isinstance(error, FileMissing):
                self._require_queues_readable(error.file)
            self.summary.complete = False
            yield self.case.unread(error)

    def _require_queues_readable(self, unread: str | None) -> None:
        """Give up what was begun where the file that cannot be read is one that the log can be read without."""
        if not self._repeats and self.case.is_of_queues_or_index(unread):
            raise _QueuesUnread
