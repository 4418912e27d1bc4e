"""Checks the store as a whole: names, sizes, missing and foreign files, lock and abort marker."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rmqtool.checks.case import Case, Depth
from rmqtool.checks.log import check_gaps, check_last, check_names, segment_size
from rmqtool.files.filesystem import Kind, join
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import control_texts, paths
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import FileKind
from rmqtool.look.disk import check_disk, read_disk_use
from rmqtool.look.strangers import iter_strangers
from rmqtool.store.listing import LOG_IS_EMPTY
from rmqtool.store.queues import greatest_end, simple_queues
from rmqtool.store.segments import Segment, SegmentQueue, usual_size

# Bytes at the end of a queue file that tell whether its last entry is written; also at its beginning.
_TAIL = 20


def check_files(case: Case) -> Iterator[Finding]:
    """Yield the findings about names, sizes and markers."""
    yield from case.store.config.findings
    yield from check_lock(case)
    yield from check_abort(case)
    yield from check_mount(case)
    yield from iter_strangers(case.store)
    if case.depth is Depth.QUICK:
        yield from check_disk(read_disk_use(case.store))
    yield from check_segments(case)
    yield from check_queue_files(case)


def check_lock(case: Case) -> Iterator[Finding]:
    """Yield the findings about the lock."""
    if case.lock is None:
        yield no_lock_file()
    elif case.live:
        by = f"process {case.lock.pid} holds the lock" if case.lock.pid else "another process holds the lock"
        yield new_finding(
            "ST-LOCK", f"{by}: bytes that it is still writing are not reported as damage", Place(paths.LOCK)
        )
    data = case.store.read_file(paths.LOCK, 1 << 16)
    flaw = control_texts.check_lock(data) if data is not None else None
    if flaw is not None:
        text = "lock does not hold the word lock"
        place = Place(paths.LOCK, flaw.at, flaw.length)
        yield new_finding(flaw.code, text, place, consequence="none: brokers do not read it")


def no_lock_file() -> Finding:
    """Return the finding of a ``lock`` that is a directory or cannot be opened."""
    text = "the lock cannot be opened as a file"
    why = "a broker cannot start on this store"
    return new_finding("ST-LOCK", text, Place(paths.LOCK), severity=Severity.ERROR, consequence=why)


def check_abort(case: Case) -> Iterator[Finding]:
    """Yield the findings about the abort marker."""
    if not case.abort:
        return
    status = case.store.filesystem.find_stat(paths.ABORT)
    if status is not None and status.kind is not Kind.FILE:
        text = f"abort is a {status.kind}; a 5.x broker recovers, then fails to start"
        yield new_finding("ST-ABORT", text, Place(paths.ABORT), severity=Severity.ERROR)
        return
    decoded = control_texts.decode_abort(case.store.read_file(paths.ABORT, 1 << 12) or b"")
    if isinstance(decoded, Flaw):
        text = f"abort is {decoded.message}"
        yield new_finding("ST-ABORT", text, Place(paths.ABORT, 0, decoded.length), severity=Severity.NOTICE)
    if case.live:
        text = "abort is present: a broker is running"
        yield new_finding("ST-ABORT", text, Place(paths.ABORT), severity=Severity.NOTICE)
        return
    by = f" (process {decoded.pid})" if not isinstance(decoded, Flaw) and decoded.pid else ""
    yield new_finding("ST-ABORT", f"abort is present: the last stop was not clean{by}", Place(paths.ABORT))


def is_unmounted(case: Case) -> bool:
    """Return whether there are queues without a log: then entries that point to the log cannot be judged."""
    return not len(case.log) and (case.store.has_file_queues or paths.CONSUME_QUEUE in case.store.listing.databases())


def check_mount(case: Case) -> Iterator[Finding]:
    """Yield a finding if there are queues without a log."""
    if is_unmounted(case):
        text = f"{LOG_IS_EMPTY}: is its volume mounted?"
        yield new_finding("ST-MOUNT", text, Place(paths.COMMIT_LOG))


def check_segments(case: Case) -> Iterator[Finding]:
    """Yield wrong names and sizes of the log's files, and gaps between them."""
    if len(case.log) > 1:
        yield from _check_stated(case, FileKind.COMMIT_LOG, case.log.segments, segment_size(case))
    yield from check_sizes(case)
    yield from check_names(case)
    if not case.live:
        yield from check_last(case, greatest_end(simple_queues(case.store.listing)))
    yield from check_gaps(case)


def check_sizes(case: Case) -> Iterator[Finding]:
    """Yield the files of the log that have another size than most."""
    size = segment_size(case)
    for segment in case.log:
        if segment.size != size and not _is_being_made(case, case.log, segment):
            text = f"{segment.size} bytes, the others have {size}"
            yield new_finding("CL-SIZE", text, Place(case.shown(segment), 0, segment.size), size=size)


# The setting for the size of each kind of file, and the unit that a broker rounds it up to.
_STATED = {
    FileKind.COMMIT_LOG: ("mappedFileSizeCommitLog", 1, "CL-SIZE"),
    FileKind.CONSUME_QUEUE: ("mappedFileSizeConsumeQueue", UNIT_SIZE, "CQ-SIZE"),
    FileKind.BATCH_CONSUME_QUEUE: ("mapperFileSizeBatchConsumeQueue", BATCH_UNIT_SIZE, "CQ-SIZE"),
    FileKind.CONSUME_QUEUE_EXT: ("mappedFileSizeConsumeQueueExt", 1, "CQ-SIZE"),
}


def _check_stated(case: Case, kind: FileKind, segments: Sequence[Segment], size: int) -> Iterator[Finding]:
    """Yield a finding if the files of a kind have a common size that is not the configured one."""
    name, unit, code = _STATED[kind]
    config = case.store.config
    if name not in config.origins or not segments:
        return
    stated = int(str(config.value(name)))
    if -(-stated // unit) * unit == size:
        return
    of_size = [segment for segment in segments if segment.size == size]
    store = shlex.quote(case.store.root)
    by_settings = f"--conf {name}={stated}"
    fix = f"set {name}={size} in broker.conf, or leave out {by_settings}"
    if kind is FileKind.CONSUME_QUEUE:
        fix = f"rmqtool repair {store} {by_settings}"
    place = Place(case.shown(of_size[0]) if kind is FileKind.COMMIT_LOG else of_size[0].path, 0, size)
    files = counted(len(of_size), "file has", "files have")
    text = f"{files} {size} bytes, and {name} is {stated}"
    yield replace(new_finding(code, text, place, size=stated, files=len(of_size)), fix=fix)


def _is_being_made(case: Case, segments: SegmentQueue, segment: Segment) -> bool:
    """Return whether a file may be growing now: the last one of a live store."""
    return case.live and segment == segments.segments[-1]


def check_queue_files(case: Case) -> Iterator[Finding]:
    """Yield wrong sizes of queue files, and gaps between them."""
    for kind, queues in (
        (FileKind.CONSUME_QUEUE, case.queues),
        (FileKind.BATCH_CONSUME_QUEUE, case.batch_queues),
        (FileKind.CONSUME_QUEUE_EXT, case.exts),
    ):
        every = [segment for queue in queues.values() for segment in queue]
        size = usual_size(every)
        yield from _check_stated(case, kind, sorted(every, key=lambda segment: segment.path), size)
        for (topic, queue_id), segments in queues.items():
            if kind is not FileKind.CONSUME_QUEUE_EXT:
                yield from _check_last(case, segments, Place(None, None, None, topic, queue_id))
            for segment in segments:
                if segment.size != size and not _is_being_made(case, segments, segment):
                    text = f"{segment.size} bytes, other {kind}s have {size}"
                    place = Place(segment.path, 0, segment.size, topic, queue_id)
                    yield new_finding("CQ-SIZE", text, place, size=size)
            # A closer check reports the missing messages instead.
            for gap in segments.gaps() if case.depth is Depth.QUICK else ():
                directory = segments.segments[0].path.rpartition("/")[0]
                length = gap.end_offset - gap.start_offset
                file = join(directory, paths.segment_name(gap.start_offset))
                text = f"{length} bytes of the queue are missing, from its byte {gap.start_offset} on"
                yield new_finding("CQ-SIZE", text, Place(file, 0, length, topic, queue_id))


def _check_last(case: Case, segments: SegmentQueue, place: Place) -> Iterator[Finding]:
    """Yield an empty last file if the one before it is not full."""
    if len(segments) < 2 or case.live:
        return
    before, last = segments.segments[-2:]
    data = segments.open(before).pread(min(_TAIL, before.size), max(before.size - _TAIL, 0))
    if not data.strip(b"\0") and last.size and not _has_data(segments, last):
        text = "the segment is empty, and the one before it is not full"
        yield new_finding("CQ-SIZE", text, place._replace(file=last.path), severity=Severity.NOTICE)


def _has_data(segments: SegmentQueue, segment: Segment) -> bool:
    return bool(segments.open(segment).pread(min(_TAIL, segment.size), 0).strip(b"\0"))
