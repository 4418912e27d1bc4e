"""Messages by their place in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rmqtool.findings import Finding, Severity
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.inspection.log_search import LogSearch, plan_of
from rmqtool.storage.log_end import read_record
from rmqtool.storage.store import Store
from rmqtool.storage.walk import read_record_at

# A segment of more bytes is not walked record by record.
_WALKED = 8 << 20


class PlaceAnswer(NamedTuple):
    """What stands at a physical offset: a message, or why there is none."""

    message: Message | None
    reason: str | None = None
    near: tuple[int, ...] = ()


def find_at(store: Store, physical_offset: int, log: LogSearch) -> PlaceAnswer:
    """Return what stands at ``physical_offset``. Damage there is remembered by ``log``."""
    segments = store.commit_log
    segment = segments.find(physical_offset)
    if segment is None:
        return PlaceAnswer(None, _outside(store, physical_offset))
    found = read_record_at(segments.open(segment), segment.base_offset, physical_offset - segment.base_offset)
    if isinstance(found, Message):
        return PlaceAnswer(found)
    if isinstance(found, Flaw):
        file_offset = physical_offset - segment.base_offset
        log.unread.append(
            Finding(found.code, Severity.ERROR, found.message, file=segment.path, offset=file_offset + found.at)
        )
        return PlaceAnswer(None, f"the record at {physical_offset} is damaged: {found.message}")
    if segment.size > _WALKED:
        return _scan_for(store, physical_offset, log)
    before: Message | None = None
    for message in log.iter_messages(segment.base_offset, segment.end_offset):
        if message.physical_offset > physical_offset:
            return _between(physical_offset, before, message)
        before = message
    return _between(physical_offset, before, None)


def _scan_for(store: Store, physical_offset: int, log: LogSearch) -> PlaceAnswer:
    """Find the neighbours of an offset in a segment too large to be walked."""
    from rmqtool.scan.ranges import Effort
    from rmqtool.scan.searching import find_neighbours
    from rmqtool.scan.selection import Selection

    plan = plan_of(store, Selection())
    plan = replace(plan, wanted=[file for file in plan.wanted if file.base_offset <= physical_offset < file.end_offset])
    found = find_neighbours(plan, physical_offset, log.effort() if log.effort is not None else Effort())
    log.miss_all(found.damages)
    places = (found.before, found.behind)
    return _between(physical_offset, *(None if at is None else read_record(store.commit_log, at) for at in places))


def _between(physical_offset: int, before: Message | None, after: Message | None) -> PlaceAnswer:
    near = tuple(message.physical_offset for message in (before, after) if message is not None)
    if before is not None and physical_offset < before.physical_offset + before.total_size:
        text = f"{physical_offset} lies inside the message at {before.physical_offset}"
        return PlaceAnswer(None, text, near)
    if before is not None and after is None:
        end = before.physical_offset + before.total_size
        return PlaceAnswer(None, f"no message begins at {physical_offset}; the last one before it ends at {end}", near)
    return PlaceAnswer(None, f"no message begins at {physical_offset}", near)


def _outside(store: Store, physical_offset: int) -> str:
    log = store.commit_log
    if not log:
        return "the store has no commit log"
    if physical_offset < log.min_offset:
        return f"{physical_offset} is gone: the log begins at {log.min_offset}"
    if physical_offset >= log.end_offset:
        return f"{physical_offset} lies beyond the log, whose files end at {log.end_offset}"
    return f"the segment that held {physical_offset} is missing"


def find_first_since(store: Store, timestamp: int, latest_before: bool, log: LogSearch) -> Message | None:
    """Return the first message stored at ``timestamp`` or later; ``latest_before``: the last one not later.

    The segments are told apart by their first messages, so the one that holds the time is read, and no other.
    """
    segments = store.commit_log.segments
    chosen = 0
    for number, segment in enumerate(segments):
        first = next(log.iter_messages(segment.base_offset, segment.end_offset), None)
        if first is None or first.store_timestamp > timestamp:
            break
        chosen = number
    before: Message | None = None
    start = segments[chosen].base_offset if segments else 0
    for message in log.iter_messages(start, store.commit_log.end_offset):
        if message.store_timestamp >= timestamp and not latest_before:
            return message
        if message.store_timestamp > timestamp:
            break
        before = message
    return before if latest_before else None
