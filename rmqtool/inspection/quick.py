"""What can be said against a store without reading it through: the findings of ``info``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.formats import checkpoints, index, paths
from rmqtool.formats.paths import FileKind
from rmqtool.storage.segments import SegmentQueue
from rmqtool.storage.store import Store

if TYPE_CHECKING:
    from rmqtool.inspection.overview import Overview


def check_overview(store: Store, overview: Overview) -> Iterator[Finding]:
    """Yield what the overview shows to be wrong."""
    yield from _check_log(store.commit_log)
    yield from _check_mount(overview)
    yield from _check_abort(overview)
    yield from _check_checkpoint(store, overview)
    yield from _check_index(store)
    yield from _check_offsets(overview)


def no_lock_file() -> Finding:
    """Return what is said of a ``lock`` that is a directory, or cannot be opened."""
    text = "the lock is no file that can be opened"
    return new_finding("ST-LOCK", text, Place(paths.LOCK), severity=Severity.ERROR)


def _check_abort(overview: Overview) -> Iterator[Finding]:
    if not overview.abort:
        return
    if overview.lock == "held":
        yield Finding("ST-ABORT", Severity.NOTICE, "abort is present: a broker is running", file=paths.ABORT)
        return
    yield Finding(
        "ST-ABORT",
        Severity.WARNING,
        "abort is present: the last stop was not clean",
        file=paths.ABORT,
        consequence="the next start of a broker recovers abnormally",
        fix="rmqtool recover shows what that start would do",
    )


def _check_log(log: SegmentQueue) -> Iterator[Finding]:
    for gap in log.gaps():
        length = gap.end_offset - gap.start_offset
        yield Finding(
            "CL-GAP",
            Severity.ERROR,
            f"{length} bytes of the commit log are missing from {gap.start_offset} on",
            file=paths.segment_name(gap.start_offset),
            offset=0,
            length=length,
            consequence="everything before the gap is out of the broker's order",
        )
    for segment in log:
        if segment.size != log.segment_size:
            text = f"{segment.path} has {segment.size} bytes, the others {log.segment_size}"
            consequence = "a broker refuses to start"
            yield Finding("CL-SIZE", Severity.ERROR, text, file=segment.path, consequence=consequence)


def _check_mount(overview: Overview) -> Iterator[Finding]:
    if not overview.log_files and any(topic.queues for topic in overview.topics.values()):
        yield Finding(
            "ST-MOUNT",
            Severity.ERROR,
            "the commit log is empty, yet queues exist: is its volume not mounted?",
            file=paths.COMMIT_LOG,
            consequence="a broker that starts now deletes every consume queue",
            fix="mount the volume of the commit log, then look again",
        )


def _check_checkpoint(store: Store, overview: Overview) -> Iterator[Finding]:
    data = store.read_file(paths.CHECKPOINT, 1 << 20)
    if data is None and not overview.log_files:
        return
    if data is None:
        yield Finding("CP-BAD", Severity.WARNING, "there is no checkpoint", file=paths.CHECKPOINT)
        return
    flaw = checkpoints.check_checkpoint(data)
    if flaw is not None:
        yield Finding(
            flaw.code, Severity.WARNING, flaw.message, file=paths.CHECKPOINT, offset=flaw.at, length=flaw.length
        )
    last = overview.log_end.last
    times = checkpoints.decode_checkpoint(data)
    if last is not None and checkpoints.min_timestamp(times) > last.store_timestamp:
        text = "its times lie behind the last message"
        yield Finding(
            "CP-AHEAD",
            Severity.WARNING,
            f"the checkpoint is ahead of the log: {text}",
            file=paths.CHECKPOINT,
            consequence="after a crash a broker replays too little",
        )


def _check_index(store: Store) -> Iterator[Finding]:
    for file in store.listing.of_kind(FileKind.INDEX):
        if file.size < index.HEADER_SIZE:
            text = f"{file.path} is shorter than a header"
            yield Finding("IX-HEAD", Severity.WARNING, text, file=file.path, offset=0, length=file.size)


def _check_offsets(overview: Overview) -> Iterator[Finding]:
    for group, topics in overview.groups.items():
        for topic, places in topics.items():
            for queue_id, place in places.items():
                if place.committed < 0 or place.lag < 0:
                    known = overview.topics.get(topic)
                    if known is None or queue_id not in known.queues:
                        continue
                    maximum = known.queues[queue_id].max_offset
                    yield Finding(
                        "OF-RANGE",
                        Severity.WARNING,
                        f"group {group} committed {place.committed}, the queue ends at {maximum}",
                        file=paths.config_path(paths.CONSUMER_OFFSET),
                        topic=topic,
                        queue_id=queue_id,
                    )
