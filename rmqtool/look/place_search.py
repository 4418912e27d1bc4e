"""Messages by physical offset, by queue offset, by time, and by topic; and searches through the log itself.

A queue answers if its entry points to the right message. Otherwise ``LogSearch`` reads the log, and remembers what it
read and what it could not read, so that an answer can say what it is based on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import merge
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.findings import Finding, Severity, addressed, new_finding
from rmqtool.findings import Place as Where
from rmqtool.formats.bridges import LARGEST_SIZE, START_SIZE, find_last_start, is_bridge
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import Message, Nothing
from rmqtool.formats.dispatch import DispatchRules, batch_unit, has_queue_unit, queue_entries
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import CONSUME_QUEUE, FileKind
from rmqtool.log.end import first_record, read_record
from rmqtool.log.walk import Place, SegmentWalk, read_record_at, walk_dledger
from rmqtool.look.queue_bounds import read_database_bounds, read_database_queue
from rmqtool.look.regions import time_words
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store, unread_finding
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.rocksdb import has_database_queues, open_database, read_queue_row
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.log.ranges import Effort, Plan
    from rmqtool.log.read import Damage
    from rmqtool.log.select import Selection

# Messages that are walked one by one before columns are started.
_WALKED = 2000


class LogRange(NamedTuple):
    """Physical offsets, half-open."""

    start: int
    end: int


@dataclass(frozen=True)
class Hint:
    """Facts about the wanted messages that exclude most others.

    Their properties contain ``needle``; ``key`` is one of their keys, ``tag`` their tag, ``queue_offset`` an offset
    they may have. Some messages that contain one of ``near`` are returned too.
    """

    needle: bytes
    key: str | None = None
    tag: str | None = None
    queue_offset: int | None = None
    near: tuple[bytes, ...] = ()


@dataclass
class LogSearch:
    """The searched ranges of a log, and what could not be read in them.

    ``effort`` returns how many threads may search.
    """

    store: Store
    effort: Callable[[], Effort] | None = None
    ranges: list[LogRange] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How many bytes were searched."""
        return sum(end - start for start, end in self.ranges)

    def iter_messages(self, start: int, end: int, hint: Hint | None = None) -> Iterator[Message]:
        """Yield the valid messages from ``start``, where a record is expected, to ``end``.

        With a hint, messages that it excludes can be left out.
        """
        if start >= end:
            return
        self._miss_gaps(start, end)
        reached, walked = start, 0
        for segment in self.store.commit_log:
            if segment.end_offset <= start or segment.base_offset >= end:
                continue
            for place in self._places(segment, max(start - segment.base_offset, 0)):
                at = segment.base_offset + place.file_offset
                if at >= end:
                    break
                if hint is not None and walked >= _WALKED and isinstance(place.what, Message):
                    yield from self._iter_scanned(at, end, hint)
                    self.ranges.append(LogRange(start, min(end, self.store.commit_log.end_offset)))
                    return
                if isinstance(place.what, Message):
                    walked += 1
                    yield place.what
                elif isinstance(place.what, Flaw | Nothing):
                    self._miss_place(place, segment)
                if not isinstance(place.what, Nothing):
                    reached = max(reached, min(end, at + place.length))
        self.ranges.append(LogRange(start, reached))

    def _iter_scanned(self, start: int, end: int, hint: Hint) -> Iterator[Message]:
        from rmqtool.log.ranges import Effort
        from rmqtool.log.read import Damage
        from rmqtool.log.search import Sought, search

        selection = _selection(hint, start)
        plan = plan_of(self.store, selection)
        plan = replace(plan, wanted=[file for file in plan.wanted if file.base_offset < end])
        sought = Sought(hint.needle, selection, hint.queue_offset, hint.near)
        for answer in search(plan, sought, self.effort() if self.effort is not None else Effort()):
            damages = [answer] if isinstance(answer, Damage) else answer.damages
            for damage in damages:
                self._miss(damage.code, damage.file, damage.file_offset, damage.length, damage.message)
            places = set() if isinstance(answer, Damage) else {*answer.found, *answer.near}
            for place in sorted(places):
                message = read_record(self.store.commit_log, place) if place < end else None
                if message is not None:
                    yield message
                elif place < end:
                    self._miss_record(place)

    def _miss_place(self, place: Place, segment: Segment) -> None:
        """Remember a place as damage, unless it is the normal end of a log."""
        from rmqtool.log.read import as_damage, damage_at, is_left_over

        found = damage_at(place, segment.path, segment.size)
        if found is not None and is_left_over(place, segment.size):
            file = next(file for file in self._whole.files if file.base_offset == segment.base_offset)
            follow = self._whole.has_records_after(file)
            found = as_damage(found, records_follow=follow, live=self.store.is_live)
        if found is not None:
            self.miss_all([found])

    @cached_property
    def _whole(self) -> Plan:
        """The plan of a read of the whole log."""
        from rmqtool.log.select import Selection

        return plan_of(self.store, Selection())

    def miss_all(self, damages: list[Damage]) -> None:
        """Remember damage that another search found."""
        for damage in damages:
            self._miss(damage.code, damage.file, damage.file_offset, damage.length, damage.message)

    def miss_unread(self, error: ReadFailed) -> None:
        """Remember a file that another search could not read."""
        finding = unread_finding(self.store.root, error)
        if finding not in self.unread:
            self.unread.append(finding)

    def miss_flaw(self, flaw: Flaw, path: str, offset: int) -> None:
        """Remember a damaged place that another search met."""
        self._miss(flaw.code, path, offset, 0, flaw.message)

    def _miss_gaps(self, start: int, end: int) -> None:
        log = self.store.commit_log
        for before, after in pairwise(log.segments):
            if before.end_offset < end and start < after.base_offset > before.end_offset:
                from rmqtool.log.ranges import missing_after

                self.miss_all(list(missing_after(before.path, before, after.base_offset, log.segment_size)))

    def _miss_record(self, physical_offset: int) -> None:
        segment = self.store.commit_log.find(physical_offset)
        if segment is not None:
            text = "the record's checksum is wrong"
            self._miss("CL-CRC", segment.path, physical_offset - segment.base_offset, 0, text)

    def _miss(self, code: str, path: str, offset: int, length: int, text: str) -> None:
        finding = Finding(code, Severity.ERROR, text, file=path or None, offset=offset, length=length)
        if finding not in self.unread:
            self.unread.append(finding)

    def _places(self, segment: Segment, start: int) -> Iterator[Place]:
        file = self.store.commit_log.open(segment)
        if self.store.is_dledger:
            for entry in walk_dledger(file, segment.base_offset):
                if entry.file_offset + entry.length > start:
                    head = entry.head
                    yield Place(entry.file_offset, entry.length, head) if isinstance(head, Flaw) else entry.record
        else:
            yield from SegmentWalk(file, segment.base_offset).places(start)


def _selection(hint: Hint, start: int) -> Selection:
    from rmqtool.filters.tags import parse_tags
    from rmqtool.log.select import Selection

    plain = hint.tag is not None and "|" not in hint.tag and hint.tag == hint.tag.strip() and hint.tag != "*"
    tags = parse_tags(hint.tag) if plain else None
    return Selection(physical_from=start, key=hint.key, tags=tags)


def plan_of(store: Store, selection: Selection) -> Plan:
    """Return what is read of a store's log for a selection."""
    from rmqtool.log.ranges import read_plan
    from rmqtool.log.sources import logs_of

    return read_plan(logs_of(store), selection, live=store.is_live)


def is_at(message: Message, queue: QueueId, queue_offset: int, rules: DispatchRules) -> bool:
    """Return whether a message has this offset in a queue, its own or a further one."""
    if message.sys_flag & SysFlag.INNER_BATCH and has_queue_unit(message.sys_flag):
        unit = batch_unit(message, rules.delays)
        own = (message.topic, message.queue_id) == queue
        return own and unit.msg_base_offset <= queue_offset < unit.msg_base_offset + unit.batch_size
    return any(
        (entry.topic, entry.queue_id, entry.queue_offset) == (*queue, queue_offset)
        for entry in queue_entries(message, rules)
    )


@dataclass
class QueueSearch:
    """One search for the message at an offset of a queue."""

    store: Store
    queue: QueueId
    queue_offset: int
    log: LogSearch
    found: Message | None = None
    answered_by: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    expired: bool = False
    bridged: bool = False

    def run(self) -> None:
        unit, is_read = None, True
        try:
            unit = find_in_queue(self.store, self.queue, self.queue_offset)
        except ReadFailed as error:
            is_read = False
            self.log.miss_unread(error)
            self.findings.append(unread_finding(self.store.root, error))
        if unit is not None:
            physical_offset = unit.physical_offset
            message = read_record(self.store.commit_log, physical_offset)
            if message is not None and is_at(message, self.queue, self.queue_offset, self.store.dispatch_rules):
                self.found = message
                self.answered_by.append("queue")
                return
            self.expired = physical_offset < self.store.commit_log.min_offset
            self.bridged = message is not None and is_bridge(message)
            damaged = None if message is not None else find_damaged(self.store, physical_offset)
            if damaged is not None and is_at(damaged, self.queue, self.queue_offset, self.store.dispatch_rules):
                topic, queue_id = self.queue
                text = f"{topic}/{queue_id}@{self.queue_offset}: the record at {physical_offset} is damaged"
                self.findings.append(damaged_finding(self.store, damaged, text))
            elif not self.expired and not self.bridged:
                self._complain("CQ-WRONG", f"its queue entry points to {physical_offset}, where another message is")
        if self.expired:
            return
        self._ask_log(has_no_unit=unit is None and is_read)

    def _ask_log(self, *, has_no_unit: bool) -> None:
        log = self.store.commit_log
        hint = Hint(b"", queue_offset=self.queue_offset)
        for message in self.log.iter_messages(log.min_offset, log.end_offset, hint):
            if is_at(message, self.queue, self.queue_offset, self.store.dispatch_rules):
                self.found = message
                self.answered_by.append("scan")
                if has_no_unit:
                    queues = self.store.listing.queues(FileKind.CONSUME_QUEUE)
                    files = ConsumeQueueFiles(self.queue, queues.get(self.queue, SegmentQueue(())))
                    self._complain(*_missing(files, message, self.queue_offset))
                return

    def _complain(self, code: str, text: str) -> None:
        self.findings.append(_unit_finding(self.store, code, self.queue, self.queue_offset, text))


def _unit_finding(store: Store, code: str, queue: QueueId, queue_offset: int, text: str) -> Finding:
    topic, queue_id = queue
    found = new_finding(code, f"{topic}/{queue_id}@{queue_offset}: {text}", severity=Severity.WARNING)
    found = replace(found, file=f"{CONSUME_QUEUE}/{topic}/{queue_id}", topic=topic, queue_id=queue_id)
    return addressed(found, store.root)


def _missing(files: ConsumeQueueFiles, message: Message, queue_offset: int) -> tuple[str, str]:
    """Return code and text for a message without an entry at its queue offset.

    The queue began again after the message if an entry before that offset, or at it, points to a newer message.
    """
    at = message.physical_offset
    first = files.read_unit(files.first_offset) if files.segments else None
    if first is not None and files.first_offset <= queue_offset and first.size > 0 and first.physical_offset > at:
        return "CQ-REUSED", f"the message is at {at} and in no queue: the queue began again after it"
    return "CQ-MISSING", f"the message is at {at}, but no queue entry points to it"


def find_damaged(store: Store, physical_offset: int) -> Message | None:
    """Return the record at a place whose fields are in order, but whose body does not match its checksum."""
    log = store.commit_log
    if read_record(log, physical_offset) is not None:
        return None
    return read_record(log, physical_offset, verify=False)


def damaged_finding(store: Store, damaged: Message, text: str) -> Finding:
    """Return the finding about a record that is where it should be; its place can be pasted after ``rmqtool dump``."""
    at = damaged.physical_offset
    segment = store.commit_log.find(at)
    place = Where(None if segment is None else segment.path, None if segment is None else at - segment.base_offset)
    place = place._replace(length=damaged.total_size, topic=damaged.topic, queue_id=damaged.queue_id)
    why = "its body or properties are not as they were sent, and cannot be restored; rmqtool dump shows its fields"
    found = new_finding("CL-CRC", f"{text} (its checksum is wrong)", place, consequence=why)
    return addressed(found, store.root)


def check_units(store: Store, messages: Iterable[Message]) -> Iterator[Finding]:
    """Yield findings where a queue's entry does not point to one of ``messages``."""
    # Imported when needed: it loads the configuration.
    from rmqtool.look.absent_queues import QueueAbsence

    queues, absent = store.listing.queues(FileKind.CONSUME_QUEUE), QueueAbsence(store)
    for message in messages:
        for entry in queue_entries(message, store.dispatch_rules):
            queue = QueueId(entry.topic, entry.queue_id)
            if queue not in queues:
                if absent.has(queue, message):
                    text = f"the message is at {message.physical_offset}, but its queue is not there"
                    yield _unit_finding(store, "CQ-MISSING", queue, entry.queue_offset, text)
                continue
            files = ConsumeQueueFiles(queue, queues[queue])
            unit = files.read_unit(entry.queue_offset)
            code, text = _missing(files, message, entry.queue_offset)
            has_another = unit is not None and (unit.physical_offset, unit.size) != (
                message.physical_offset,
                message.total_size,
            )
            if unit is None or not unit.size or (has_another and code == "CQ-REUSED"):
                yield _unit_finding(store, code, queue, entry.queue_offset, text)
            elif has_another:
                text = (
                    f"the message is at {message.physical_offset}, but its queue entry points to {unit.physical_offset}"
                )
                yield _unit_finding(store, "CQ-WRONG", queue, entry.queue_offset, text)


def find_in_queue(store: Store, queue: QueueId, queue_offset: int) -> ConsumeQueueUnit | None:
    """Return the entry that a queue has for an offset; in a batch queue, the batch that contains it.

    None if there is no entry, or if the queue is in a database that cannot be opened.
    """
    segments = store.listing.queues(FileKind.CONSUME_QUEUE).get(queue)
    if segments is not None:
        files = ConsumeQueueFiles(queue, segments)
        return files.read_unit(queue_offset) if queue_offset < files.max_offset else None
    segments = store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).get(queue)
    if segments is not None:
        for batch in BatchQueueFiles(queue, segments).iter_units():
            if batch.msg_base_offset <= queue_offset < batch.msg_base_offset + batch.batch_size:
                return ConsumeQueueUnit(batch.physical_offset, batch.size, batch.tags_code)
        return None
    return _find_in_database(store, queue, queue_offset) if has_database_queues(store) else None


def _find_in_database(store: Store, queue: QueueId, queue_offset: int) -> ConsumeQueueUnit | None:
    try:
        with open_database(store, CONSUME_QUEUE) as database:
            row = read_queue_row(database, queue, queue_offset)
    except OptionalMissing:
        return None
    return ConsumeQueueUnit(row.physical_offset, row.size, row.tags_code) if row is not None else None


# Larger segments are not walked record by record.
_NEAR_WALKED = 8 << 20


LOST_UNDER_BRIDGE = "the message there was damaged: a repair wrote a placeholder over it, and it is lost"


def find_bridge(log: SegmentQueue, physical_offset: int) -> Message | None:
    """Return the placeholder that covers an offset: it may replace several records, and the offset be within it."""
    segment = log.find(physical_offset)
    if segment is None:
        return None
    start = max(segment.base_offset, physical_offset - LARGEST_SIZE)
    before = find_last_start(log.read(start, physical_offset - start + START_SIZE))
    record = None if before is None else read_record(log, start + before)
    if record is None or not is_bridge(record):
        return None
    return record if physical_offset < record.physical_offset + record.total_size else None


class PlaceAnswer(NamedTuple):
    """The message at a physical offset, or the damaged one, or the reason why there is not one."""

    message: Message | None
    reason: str | None = None
    near: tuple[int, ...] = ()
    damaged: Message | None = None


def find_at(store: Store, physical_offset: int, log: LogSearch) -> PlaceAnswer:
    """Return the message at ``physical_offset``, or the reason why there is not one. ``log`` records damage."""
    segments = store.commit_log
    segment = segments.find(physical_offset)
    if segment is None:
        return PlaceAnswer(None, _outside(store, physical_offset))
    found = read_record_at(segments.open(segment), segment.base_offset, physical_offset - segment.base_offset)
    if isinstance(found, Message):
        return PlaceAnswer(found)
    damaged = find_damaged(store, physical_offset)
    if damaged is not None:
        return PlaceAnswer(None, damaged=damaged)
    if isinstance(found, Flaw):
        file_offset = physical_offset - segment.base_offset
        log.miss_flaw(found, segment.path, file_offset)
        return PlaceAnswer(None, f"the record at {physical_offset} is damaged: {found.message}")
    if segment.size > _NEAR_WALKED:
        return _scan_for(store, physical_offset, log)
    before: Message | None = None
    for message in log.iter_messages(segment.base_offset, segment.end_offset):
        if message.physical_offset > physical_offset:
            return _between(physical_offset, before, message)
        before = message
    return _between(physical_offset, before, None)


def _scan_for(store: Store, physical_offset: int, log: LogSearch) -> PlaceAnswer:
    """Return the neighbours of an offset in a segment that is too large for a walk."""
    from rmqtool.log.ranges import Effort
    from rmqtool.log.search import find_neighbours
    from rmqtool.log.select import Selection

    plan = plan_of(store, Selection())
    plan = replace(plan, wanted=[file for file in plan.wanted if file.base_offset <= physical_offset < file.end_offset])
    found = find_neighbours(plan, physical_offset, log.effort() if log.effort is not None else Effort())
    log.miss_all(found.damages)
    places = (found.before, found.after)
    return _between(physical_offset, *(None if at is None else read_record(store.commit_log, at) for at in places))


def _between(physical_offset: int, before: Message | None, after: Message | None) -> PlaceAnswer:
    near = tuple(message.physical_offset for message in (before, after) if message is not None)
    if before is not None and physical_offset < before.physical_offset + before.total_size:
        text = f"{physical_offset} is inside the message at {before.physical_offset}"
        return PlaceAnswer(None, text, near)
    if before is not None and after is None:
        end = before.physical_offset + before.total_size
        return PlaceAnswer(
            None, f"no message starts here at {physical_offset}; the last one before it ends at {end}", near
        )
    return PlaceAnswer(None, f"no message starts here at {physical_offset}", near)


def before_the_log(store: Store) -> str:
    """Return where the log begins and with which time, as text: earlier messages were deleted by retention."""
    log = store.commit_log
    first = first_record(log, dledger=store.is_dledger)
    when = None if first is None else time_words(first.store_timestamp)
    since = "" if when is None else f" with the message stored at {when}"
    return f"the log begins at {log.min_offset}{since}; retention deletes what is older"


def _outside(store: Store, physical_offset: int) -> str:
    log = store.commit_log
    if not log:
        return "the store has no commit log"
    if physical_offset < log.min_offset:
        return f"{physical_offset} is gone: {before_the_log(store)}"
    if physical_offset >= log.end_offset:
        return f"{physical_offset} is past the end of the log, whose files end at {log.end_offset}"
    return f"the segment that held {physical_offset} is missing"


def find_first_since(store: Store, timestamp: int, latest_before: bool, log: LogSearch) -> Message | None:
    """Return the first message stored at ``timestamp`` or later; with ``latest_before``, the last one not later.

    The first messages of the segments tell which segment has the time; only that one is read.
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
        if is_bridge(message):
            continue
        if message.store_timestamp >= timestamp and not latest_before:
            return message
        if message.store_timestamp > timestamp:
            break
        before = message
    return before if latest_before else None


def iter_messages_since(store: Store, wanted: Callable[[str], bool], physical_offset: int) -> Iterator[Message]:
    """Yield the messages of the wanted topics from ``physical_offset`` on, in the order of the log.

    They are found by their queues; without queues that can be read, the log is read.
    """
    if not store.has_file_queues and not has_database_queues(store):
        yield from _iter_log(store, wanted, physical_offset)
        return
    at = physical_offset
    try:
        for place in merge(*_iter_places(store, wanted, physical_offset)):
            message = read_record(store.commit_log, place)
            if message is not None and wanted(message.topic):
                yield message
                at = message.physical_offset + message.total_size
    except (OptionalMissing, ReadFailed):
        yield from _iter_log(store, wanted, at)


def _iter_log(store: Store, wanted: Callable[[str], bool], start: int) -> Iterator[Message]:
    found = LogSearch(store).iter_messages(start, store.commit_log.end_offset)
    return (message for message in found if wanted(message.topic))


def _iter_places(store: Store, wanted: Callable[[str], bool], start: int) -> Iterator[Iterator[int]]:
    known = store.listing.queues(FileKind.CONSUME_QUEUE)
    for queue_id, segments in known.items():
        if wanted(queue_id.topic):
            yield _file_places(ConsumeQueueFiles(queue_id, segments), start)
    for queue_id in read_database_bounds(store):
        if wanted(queue_id.topic):
            yield _row_places(store, queue_id, start)


def _file_places(queue: ConsumeQueueFiles, start: int) -> Iterator[int]:
    return (unit.physical_offset for _, unit in queue.iter_units(queue.find_offset(start)))


def _row_places(store: Store, queue: QueueId, start: int) -> Iterator[int]:
    rows = (row.value.physical_offset for row in read_database_queue(store, queue))
    return (place for place in rows if place >= start)
