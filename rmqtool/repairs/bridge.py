"""Damage within the log: bridged, so that nothing after it is lost, or cut off together with everything after it.

At its start a broker cuts the log at the first bad record and destroys what follows. A valid record over the damage
prevents that. No valid message is changed, and the damaged bytes are kept in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.audit.damage import Damage
from rmqtool.audit.extract import LogReading
from rmqtool.audit.log_pass import LogPass
from rmqtool.engine.commit_log import LogDirectory
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.formats.bridges import bridge_sizes, encode_blank, encode_bridge, least_size
from rmqtool.formats.codes import BLANK_MAGIC
from rmqtool.formats.commit_log import BLANK_SIZE, Message
from rmqtool.formats.layouts import RECORD_START
from rmqtool.log.end import read_record
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.segments import Segment, SegmentQueue

# The smallest span that is bridged by itself: room for a bridge that resembles any neighbour.
_LEAST_ALONE = 256
# A broker accepts a record without a time. No record can be written where a segment is missing.
_NOT_BRIDGED = ("CL-TIME", "CL-GAP")


class Span(NamedTuple):
    """Damaged bytes of one segment, and their flaw."""

    segment: Segment
    start: int
    end: int
    message: str

    @property
    def file_offset(self) -> int:
        """The start of the span in its file."""
        return self.start - self.segment.base_offset

    @property
    def ends_segment(self) -> bool:
        """Whether the span reaches the end of its segment."""
        return self.end == self.segment.end_offset


def read_damage(log: SegmentQueue, now: int, source: LogReading) -> list[Damage]:
    """Return the damage that is followed by valid records, in the order of the log."""
    reading = LogPass(log, now, source)
    for _ in reading.batches():
        pass
    return [one for one in reading.damage.spans if one.segment is not None and one.flaw.code not in _NOT_BRIDGED]


def span_of(damage: Damage) -> Span:
    """Return damage as a span of its segment."""
    assert damage.segment is not None, "a missing segment cannot be repaired"
    return Span(damage.segment, damage.start, damage.end, f"{damage.flaw.code}: {damage.flaw.message}")


def bridge(
    log: SegmentQueue, damage: list[Damage], directories: list[LogDirectory], *, only_tell: bool
) -> Iterator[Span]:
    """Write bridges over damage; yield the bridged spans. Spans too small for a record are left as they are."""
    for span in _spans(damage):
        like = _neighbour(log, span)
        if like is None:
            continue
        pieces = list(_bridge_end(log, span, like) if span.ends_segment else _bridge_middle(span, like))
        overlay = _overlay_of(span.segment, directories)
        if not pieces or overlay is None:
            continue
        if not only_tell:
            with overlay.open_write(span.segment.path) as file:
                for physical_offset, data in pieces:
                    file.pwrite(data, physical_offset - span.segment.base_offset)
        yield span


def _spans(damage: list[Damage]) -> Iterator[Span]:
    """Yield the spans to bridge, one for each damaged place.

    Spans too small for a record are joined with their neighbours.
    """
    held: Span | None = None
    for one in damage:
        span = span_of(one)
        if held is not None and (held.segment, held.end) == (span.segment, span.start):
            small = min(held.end - held.start, span.end - span.start) < _LEAST_ALONE
            if small:
                held = held._replace(end=span.end)
                continue
        if held is not None:
            yield held
        held = span
    if held is not None:
        yield held


def _neighbour(log: SegmentQueue, span: Span) -> Message | None:
    """Return the next valid record after a span. A bridge takes its time, host and kind of checksum."""
    for segment in log:
        if segment.end_offset <= span.end:
            continue
        at = max(span.end - segment.base_offset, 0)
        with segment.filesystem.open_read(segment.path) as file:
            for place in SegmentWalk(file, segment.base_offset).places(at):
                if isinstance(place.what, Message):
                    return place.what
    return read_record(log, log.min_offset)


def _bridge_middle(span: Span, like: Message) -> Iterator[tuple[int, bytes]]:
    at = span.start
    for size in bridge_sizes(span.end - span.start, least_size(like)):
        yield at, encode_bridge(at, size, like)
        at += size


def _bridge_end(log: SegmentQueue, span: Span, like: Message) -> Iterator[tuple[int, bytes]]:
    """Close a segment again: with the blank record alone if only that was damaged, else with a bridge before it."""
    rest, least = span.end - span.start, least_size(like)
    if rest < BLANK_SIZE:
        return
    total_size, magic = RECORD_START.decode(log.read(span.start, RECORD_START.size))
    if magic == BLANK_MAGIC or total_size == rest or rest < least + BLANK_SIZE:
        yield span.start, encode_blank(rest)
        return
    yield span.start, encode_bridge(span.start, least, like)
    yield span.start + least, encode_blank(rest - least)


def truncate(log: SegmentQueue, start: int, directories: list[LogDirectory]) -> None:
    """Cut the log at an offset: zeros to the end of its segment, and no later segments."""
    for segment in log:
        overlay = _overlay_of(segment, directories)
        if overlay is None or segment.end_offset <= start:
            continue
        if segment.base_offset >= start and segment.base_offset != log.min_offset:
            overlay.unlink(segment.path)
            continue
        with overlay.open_write(segment.path) as file:
            file.truncate(max(start - segment.base_offset, 0))
            file.truncate(segment.size)


def _overlay_of(segment: Segment, directories: list[LogDirectory]) -> OverlayFileSystem | None:
    """Return the overlay of a segment; None if it may only be read."""
    for directory in directories:
        if directory.filesystem is segment.filesystem and isinstance(directory.filesystem, OverlayFileSystem):
            return directory.filesystem
    return None
