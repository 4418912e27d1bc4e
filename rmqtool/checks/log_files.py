"""Checks the files of the commit log together: names, gaps between them, and missing files at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqtool.checks.case import Case
from rmqtool.files.filesystem import join
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.log.end import read_record, real_base
from rmqtool.look.regions import time_words
from rmqtool.store.listing import QueueId
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue


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


def check_last(log: SegmentQueue, queues_end: int) -> Iterator[Finding]:
    """Yield a finding if files are missing at the end of the log: queues have entries up to ``queues_end``."""
    if log.segments and queues_end > log.end_offset:
        last = log.segments[-1]
        file = join(last.path.rpartition("/")[0], paths.segment_name(last.end_offset))
        text = f"the log ends at {last.end_offset}, queues name messages up to {queues_end}"
        yield new_finding("CL-GAP", text, Place(file, 0, queues_end - last.end_offset))


def check_gaps(case: Case) -> Iterator[Finding]:
    """Yield the gaps between two files. A file that is too short is reported as such."""
    for before, segment in zip(case.log.segments, case.log.segments[1:], strict=False):
        if segment.base_offset > before.end_offset and before.size == case.log.segment_size:
            yield from _gap(case, before, segment)


def _gap(case: Case, before: Segment, segment: Segment) -> Iterator[Finding]:
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
