"""Judges the commit log: its files together, then its records by the reports of its segments.

Of the files, names are checked, gaps between them, and whether files are missing at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqtool.audit.damage import Stretch, joined
from rmqtool.checks.case import Case
from rmqtool.errors import FileMissing, ReadFailed
from rmqtool.files.filesystem import join
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import layouts, paths
from rmqtool.formats.flaws import within_log
from rmqtool.formats.hosts import format_host
from rmqtool.log.end import LogEnd, read_record, real_base
from rmqtool.look.regions import time_words
from rmqtool.store.listing import QueueId
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue, next_base

if TYPE_CHECKING:
    from rmqtool.audit.due import HostRun
    from rmqtool.audit.log_pass import OddTime
    from rmqtool.audit.reports import FlawRun, SegmentReport

# Clocks are set back by this much all the time.
_SMALL_STEP_MS = 1000
# If more than one record in this many has a host of its own, hosts prove nothing.
_RECORDS_PER_ODD_HOST = 200
_PORT_SIZE = layouts.INT.size
# The consequences of findings that need no action.
_WHY = {
    "CL-BRIDGE": "consumers skip it; the messages that were here stay lost",
    "BD-INFLATE": "it was sent like this; consumers fail to decode it",
}


def check_names(case: Case) -> Iterator[Finding]:
    """Yield files of the log whose names differ from where their records begin."""
    right = {(segment.path, segment.base_offset) for segment in case.log}
    for segment in case.store.commit_log:
        if (segment.path, segment.base_offset) in right:
            continue
        real = real_base(segment)
        text = f"overlaps the other segments, which begin every {case.log.segment_size} bytes"
        if real is not None:
            text = f"its records say that it begins at {real}"
        yield new_finding("CL-NAME", text, Place(case.shown(segment)))


def segment_size(case: Case) -> int:
    """Return the size that the files of the log should have: the usual one, and of a single file the stated one."""
    config = case.store.config
    if len(case.log) == 1 and "mappedFileSizeCommitLog" in config.origins:
        return config.mapped_file_size_commit_log
    return case.log.segment_size


def check_last(case: Case, queues_end: int) -> Iterator[Finding]:
    """Yield a finding if files are missing at the end of the log: queues have entries up to ``queues_end``.

    A last file that is too short is reported as such; here only the files after it count.
    """
    if not case.log.segments:
        return
    last = case.log.segments[-1]
    end = next_base(last, segment_size(case))
    if queues_end > end:
        file = join(last.path.rpartition("/")[0], paths.segment_name(end))
        text = f"the log ends at {last.end_offset}, queues name messages up to {queues_end}"
        yield new_finding("CL-GAP", text, Place(file, 0, queues_end - end))


def check_gaps(case: Case) -> Iterator[Finding]:
    """Yield the missing files between two files. A file that is too short is reported as such."""
    for before, segment in zip(case.log.segments, case.log.segments[1:], strict=False):
        begin = next_base(before, case.log.segment_size)
        if segment.base_offset > begin:
            yield from _gap(case, before._replace(size=begin - before.base_offset), segment)


def _gap(case: Case, before: Segment, segment: Segment) -> Iterator[Finding]:
    """Yield the findings of the bytes between two segments; ``before`` has the size that it should have."""
    length = segment.base_offset - before.end_offset
    led = max((_last_place(queue, segments) for queue, segments in case.queues.items()), default=-1)
    if segment.base_offset > case.last_written:
        text = f"is empty and {length} bytes past the end of the log: a broker deletes it"
        yield new_finding("CL-NAME", text, Place(case.shown(segment)))
        if led < before.end_offset:
            return
    directory = case.shown(before).rpartition("/")[0]
    file = join(directory, paths.segment_name(before.end_offset))
    units = sum(_units_into(queue, segments, before, segment) for queue, segments in case.queues.items())
    missing = counted(length, "byte of the commit log is", "bytes of the commit log are")
    lead = counted(units, "queue entry points", "queue entries point")
    text = f"{missing} missing from {before.end_offset} on; {lead} there"
    first, last = _times_around(case, before, segment)
    if first and last:
        text += f"; messages stored from {time_words(first)} to {time_words(last)} are lost"
    place = Place(file, 0, length)
    found = new_finding("CL-GAP", text, place, bytes=length, units=units, storedAfter=first, storedBefore=last)
    yield replace(found, consequence=f"{found.consequence}; a slave may still have the file: copy it from there")


def _times_around(case: Case, before: Segment, after: Segment) -> tuple[int | None, int | None]:
    """Return the store times of the last message before a gap in the log and of the first one after it."""
    last = -1
    for queue, segments in case.queues.items():
        files = ConsumeQueueFiles(queue, segments)
        unit = files.read_unit(files.find_offset(before.end_offset) - 1)
        if unit is not None and before.base_offset <= unit.physical_offset < before.end_offset:
            last = max(last, unit.physical_offset)
    left = read_record(case.log, last) if last >= 0 else None
    right = read_record(case.log, after.base_offset)
    return (left.store_timestamp if left else None, right.store_timestamp if right else None)


def _units_into(queue: QueueId, segments: SegmentQueue, before: Segment, after: Segment) -> int:
    """Return how many entries of a queue point between two files. Entries are in the order of the log."""
    files = ConsumeQueueFiles(queue, segments)
    return files.find_offset(after.base_offset) - files.find_offset(before.end_offset)


def _last_place(queue: QueueId, segments: SegmentQueue) -> int:
    unit = ConsumeQueueFiles(queue, segments).last_unit
    return -1 if unit is None else unit.physical_offset


class LogJudge:
    """Takes the reports of the segments in order, and adds to the case what the other parts need to know."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.end = case.log.min_offset
        self.records = 0
        self.record_bytes = 0
        self.bridges = 0
        self.bridge_bytes = 0
        self.damaged_bytes = 0
        self.is_complete = True
        self._before: SegmentReport | None = None
        self._hosts: list[HostRun] = []

    @property
    def messages(self) -> tuple[int, int]:
        """The number of messages read, and their bytes."""
        return self.records - self.bridges, self.record_bytes - self.bridge_bytes

    def take(self, report: SegmentReport) -> Iterator[Finding]:
        """Yield the findings of one segment."""
        is_last = report.base_offset >= self.case.last_written
        for run in report.flaws:
            yield from self._flaw(report, run, is_last)
        if report.unread is not None:
            yield self._unread(report, *report.unread)
        elif not is_last and not report.closed:
            yield from self._unclosed(report)
        if is_last and report.closed and report.base_offset == self.case.log.segments[-1].base_offset:
            yield from self._no_next(report)
        for odd in self._odd_times(report):
            far = abs(odd.store_timestamp - odd.neighbour) > _SMALL_STEP_MS
            text = f"store time {odd.store_timestamp} next to {odd.neighbour}"
            if odd.records > 1:
                text = f"{odd.records} records in a row have store times before the record in front of them: {text}"
            place = self.case.place(odd.physical_offset, odd.length)
            self.case.odd_times.append(Stretch(odd.physical_offset, odd.physical_offset + odd.length))
            why = None if far else "searches by time are off by at most that much"
            yield new_finding("CL-TIME", text, place, severity=Severity.WARNING if far else None, consequence=why)
        for place_of, size, flaw in report.record_flaws:
            if flaw.code == "CL-BRIDGE":  # a record, but not a message
                from rmqtool.audit.log_pass import covered_end

                self.bridges += 1
                self.bridge_bytes += size
                self.case.damage.append(Stretch(place_of, covered_end(self.case.log, place_of, size)))
            # Clients in other languages may send any bytes within a batch.
            severity = Severity.WARNING if flaw.code == "CL-PROPS" else None
            yield new_finding(
                flaw.code,
                flaw.message,
                self.case.place(place_of, size),
                severity=severity,
                consequence=_WHY.get(flaw.code),
            )
        self._hosts += report.hosts
        self.records += report.records
        self.record_bytes += report.record_bytes
        if report.records:
            self.end = report.end
            self._before = report

    def odd_hosts(self) -> Iterator[Finding]:
        """Yield single records stored by another host than their neighbours.

        A broker keeps its address while it runs.
        """
        for size in {len(run.host) for run in self._hosts}:
            runs = [run for run in self._hosts if len(run.host) == size]
            alone = [
                run
                for before, run, after in zip(runs, runs[1:], runs[2:], strict=False)
                if run.records == 1 and before.host == after.host != run.host
            ]
            if len(alone) > max(1, self.records // _RECORDS_PER_ODD_HOST):
                continue
            for run in alone:
                host = format_host(run.host[:-_PORT_SIZE], layouts.INT.unpack_from(run.host, size - _PORT_SIZE)[0])
                text = f"it was stored by {host}, unlike the records before and after it"
                yield new_finding("CL-HEAD", text, self.case.place(run.physical_offset, run.length))

    def finish(self, *, learn_end: bool) -> None:
        """Sort the damage, and set the end of the log if the whole log was read. Call it when all reports are taken."""
        if self._before is not None and learn_end:
            self.case.learn_end(LogEnd(self.end, read_record(self.case.log, self._before.tail[-1].physical_offset)))
        self.case.damage = joined(self.case.damage)
        self.case.odd_times = joined(self.case.odd_times)

    def _flaw(self, report: SegmentReport, run: FlawRun, is_last: bool) -> Iterator[Finding]:
        start = report.base_offset + run.file_offset
        place = self.case.place(start, run.length)
        code, message = run.flaw.code, run.flaw.message
        if code == "CL-TIME":
            self.case.odd_times.append(Stretch(start, start + run.length))
            yield new_finding(code, message, place, severity=Severity.WARNING)
            return
        span = Stretch(start, start + run.length)
        if run.first is not None:
            self.case.last_seen = max(self.case.last_seen, run.first.store_timestamp)
        if is_last and code == "CL-STALE":
            self.case.stale.append(span)
            why = "an earlier recovery cut them off and no consumer receives them; rmqtool cat FILE --carve shows them"
            yield new_finding(code, message, place, consequence=why)
            return
        if not (is_last and code == "CL-TORN"):  # queue and index entries of a torn record get findings of their own
            self.case.damage.append(span)
        self.damaged_bytes += run.length
        if not is_last:
            code, message = within_log(run.flaw)[:2]
        elif code == "CL-TORN":
            message = f"the last record is torn: {message}"
        if run.records > 1:
            message = _run_words(run, start)
        lost = _lost_message(run)
        words = _name_words(lost)
        message += f"; the message had {words}" if words else ""
        found = new_finding(code, message, _with_queue(place, run), records=run.records)
        yield replace(found, data={**found.data, **lost})

    def _unread(
        self, report: SegmentReport, file: str | None, file_offset: int | None, message: str, is_gone: bool
    ) -> Finding:
        """Return the finding of a segment that was not read to its end; entries that point there are not judged."""
        self.case.damage.append(Stretch(report.end, report.base_offset + report.size))
        self.is_complete = False
        kind = FileMissing if is_gone else ReadFailed
        return self.case.unread(kind(message, file=file, offset=file_offset))

    def _unclosed(self, report: SegmentReport) -> Iterator[Finding]:
        flawed = (report.base_offset + run.file_offset + run.length for run in report.flaws)
        start = max(report.end, *flawed, report.base_offset)
        length = report.base_offset + report.size - start
        if length <= 0:
            return
        self.case.damage.append(Stretch(start, start + length))
        self.damaged_bytes += length
        text = "the segment has no blank record at its end, and records follow in the next segment"
        yield new_finding("CL-MID", text, self.case.place(start, length))

    def _no_next(self, report: SegmentReport) -> Iterator[Finding]:
        if self.case.live:
            return
        place = self.case.place(report.end, report.base_offset + report.size - report.end)
        text = "the last segment is full and there is no next one: nothing was written since, or it is lost"
        yield new_finding("CL-GAP", text, place, severity=Severity.NOTICE)

    def _odd_times(self, report: SegmentReport) -> Iterator[OddTime]:
        from rmqtool.audit.reports import find_odd_edge, iter_odd_times

        edge = None if self._before is None else find_odd_edge(self._before, report)
        for odd in (*((edge,) if edge is not None else ()), *iter_odd_times(report, edge)):
            if odd.store_timestamp > 0:  # an impossible time is reported as a flaw of its own
                yield odd


def _run_words(run: FlawRun, start: int) -> str:
    if not run.moved:
        return f"{counted(run.records, 'flaw')}, the first: {run.flaw.message}"
    way = "further on" if run.moved > 0 else "further back"
    say = counted(run.records, "record says that it is", "records say that they are")
    return f"{say} {counted(abs(run.moved), 'byte')} {way}, from {start + run.moved} on"


def _lost_message(run: FlawRun) -> dict[str, str]:
    """Return the names that users know a damaged message by, if its properties are still readable."""
    if run.first is None or run.records > 1:
        return {}
    keys, uniq_key = run.first.keys, run.first.uniq_key
    return {name: value for name, value in (("keys", keys), ("uniqKey", uniq_key)) if value}


def _name_words(lost: Mapping[str, str]) -> str:
    """Return the keys of a lost message, each in quotes, and its unique key."""
    keys = [f'"{key}"' for key in lost.get("keys", "").split()]
    words = [f"the key{'s' if len(keys) > 1 else ''} {', '.join(keys)}"] if keys else []
    return " and ".join([*words, *([f"the unique key {lost['uniqKey']}"] if "uniqKey" in lost else [])])


def _with_queue(place: Place, run: FlawRun) -> Place:
    if run.first is None or run.records > 1:
        return place
    return place._replace(topic=run.first.topic, queue_id=run.first.queue_id)
