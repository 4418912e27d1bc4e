"""Reports of ``stat`` about a broker's own records: delays, transactions, retries, and retention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.formats import checkpoints, paths, topics
from rmqtool.formats.codes import TRANSACTION_MASK, SysFlag, TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import parse_long
from rmqtool.formats.paths import FileKind
from rmqtool.formats.property_names import (
    FIRST_POP_TIME,
    PGROUP,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
)
from rmqtool.formats.system_bodies import decode_op_body
from rmqtool.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC, TopicKind, topic_kind
from rmqtool.look.history import HALF_TOPICS, due_time, is_cancelled_by, is_pop_mark
from rmqtool.look.place_search import plan_of
from rmqtool.look.statistics import Statistics, Wish, read_statistics
from rmqtool.store.config_files import read_configs
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import ConsumeQueueFiles

if TYPE_CHECKING:
    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection


@dataclass
class Tally:
    """The counts of one row of a report."""

    messages: int = 0
    bytes: int = 0
    body_bytes: int = 0
    first: int | None = None
    last: int | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        time = message.store_timestamp
        self.messages += 1
        self.bytes += message.total_size
        self.body_bytes += message.body_length
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)

    def count(self, name: str, amount: int = 1) -> None:
        self.more[name] = self.more.get(name, 0) + amount

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "bodyBytes": self.body_bytes,
            "firstStoreTimestamp": self.first,
            "lastStoreTimestamp": self.last,
            **self.more,
        }


class Tallies:
    """The rows of a report by their names, and its total."""

    def __init__(self, by: tuple[str, ...], **counts: Any) -> None:
        self.by = by
        self.counts = counts
        self.rows: dict[tuple[Any, ...], Tally] = {}
        self.found = Statistics(by, [], 0)

    def row(self, *names: Any) -> Tally:
        """Return the row with these names; a new one begins with the counts of the report."""
        return self.rows.setdefault(names, Tally(more=dict(self.counts)))

    def take(self, message: Message, *names: Any) -> Tally:
        """Count a message in a row and in the total."""
        row = self.row(*names)
        row.take(message)
        self.found.messages += 1
        self.found.bytes += message.total_size
        return row

    def settle(self) -> Statistics:
        """Return the report."""
        ordered = sorted(self.rows, key=lambda names: tuple((name is None, str(name).zfill(20)) for name in names))
        self.found.rows = [{**dict(zip(self.by, key, strict=True)), **self.rows[key].as_json()} for key in ordered]
        self.found.groups = len(ordered)
        self.found.first = min((row.first for row in self.rows.values() if row.first is not None), default=None)
        self.found.last = max((row.last for row in self.rows.values() if row.last is not None), default=None)
        return self.found


def _pick(
    store: Store, asked: tuple[Selection, Effort], tallies: Tallies, wanted: Callable[[str], bool], sys_flag: int = 0
) -> list[Message]:
    """Return the messages that a report is about; damage goes into the report."""
    from rmqtool.log.search import iter_picked

    selection, effort = asked
    picked = []
    for found in iter_picked(plan_of(store, selection), selection, effort, wanted, sys_flag):
        if isinstance(found, Message):
            picked.append(found)
        else:
            tallies.found.damages.append(found)
    return picked


def report_delays(store: Store, selection: Selection, effort: Effort, now: int) -> Statistics:
    """Count delayed messages by level, and timers: delivered, waiting, late.

    The progress of a level is its offset in ``delayOffset.json``, that of the timer the time in ``timercheck``. Without
    them, messages that were due when the log ended count as delivered. A message is late if it waits and was due before
    ``now``.
    """
    tallies = Tallies(
        ("delay",), delivered=0, waiting=0, late=0, rolled=0, cancels=0, cancelled=0, nextDueTimestamp=None
    )
    picked = _pick(store, (selection, effort), tallies, {SCHEDULE_TOPIC, TIMER_TOPIC}.__contains__)
    for delay in iter_delays(store, picked):
        row = tallies.take(delay.message, delay.name)
        row.count(delay.state)
        if delay.state == "waiting":
            row.count("late", int(delay.due < now))
            known = row.more["nextDueTimestamp"]
            row.more["nextDueTimestamp"] = delay.due if known is None else min(known, delay.due)
    return tallies.settle()


class Delay(NamedTuple):
    """A delayed message: the name of its level or timer, when it is due, and what became of it.

    ``state`` is waiting, delivered, rolled, cancels or cancelled.
    """

    message: Message
    name: str
    due: int
    state: str


def iter_delays(store: Store, picked: Sequence[Message]) -> Iterator[Delay]:
    """Yield the delayed messages and timers among ``picked``, which are all of a store."""
    ended = max((message.store_timestamp for message in picked), default=0)
    progress = _delay_offsets(store)
    for message in picked:
        if message.topic == SCHEDULE_TOPIC:
            level = message.queue_id + 1
            due = due_time(store, message)
            done = message.queue_offset < progress[level] if level in progress else due <= ended
            yield Delay(message, f"level {level}", due, "delivered" if done else "waiting")
    yield from _iter_timers(store, [message for message in picked if message.topic == TIMER_TOPIC], ended)


def _delay_offsets(store: Store) -> dict[int, int]:
    try:
        return read_configs(store, tolerant=True).delay_offsets
    except OptionalMissing:
        return {}


def _iter_timers(store: Store, timers: list[Message], ended: int) -> Iterator[Delay]:
    """Yield each timer once, by its last record, because a rolled timer is stored again.

    ``ended`` is when the log ended.
    """
    data = store.read_file(paths.config_path(paths.TIMER_CHECK), checkpoints.PAGE_SIZE)
    read = checkpoints.decode_timer_checkpoint(data).last_read_time_ms if data else 0
    reached = read or ended
    last = {_timer_key(message): message for message in timers}
    cancels: dict[str, list[Message]] = {}
    for message in timers:
        if TIMER_DEL_UNIQKEY in message.properties:
            cancels.setdefault(message.properties.get(TIMER_OUT_MS, ""), []).append(message)
    for message in timers:
        out = message.properties.get(TIMER_OUT_MS, "")
        due = parse_long(out)
        due = message.store_timestamp if due is None else due
        if last[_timer_key(message)] is not message:
            state = "rolled"
        elif TIMER_DEL_UNIQKEY in message.properties:
            state = "cancels"
        elif any(is_cancelled_by(store, message, cancel) for cancel in cancels.get(out, ())):
            state = "cancelled"
        else:
            state = "delivered" if due < reached else "waiting"
        yield Delay(message, "POP" if is_pop_mark(message) else "timer", due, state)


def _timer_key(message: Message) -> tuple[str, ...]:
    """Return the properties that stay the same when a timer is rolled."""
    names = (REAL_TOPIC, TIMER_OUT_MS, TIMER_DEL_UNIQKEY)
    told = (message.properties.get(name, "") for name in names)
    return (message.uniq_key or str(message.physical_offset), *told)


def report_transactions(store: Store, selection: Selection, effort: Effort) -> Statistics:
    """Count transactions by producer group: how they were decided, or since when they are open."""
    counts = {"transactions": 0, "checks": 0, "committed": 0, "rolledBack": 0, "givenUp": 0, "undecided": 0}
    tallies = Tallies(("group",), **counts, oldestUndecidedTimestamp=None)
    books = {*HALF_TOPICS, *HALF_TOPICS.values(), topics.CHECK_MAX_TIME_TOPIC}
    picked = _pick(store, (selection, effort), tallies, books.__contains__, int(SysFlag.TRANSACTION_COMMIT))
    decided: set[tuple[str, int, int]] = set()
    committed: set[int] = set()
    given_up: set[str] = set()
    halves: dict[str, list[Message]] = {}
    for message in picked:
        key = message.uniq_key or str(message.physical_offset)
        if message.topic in HALF_TOPICS:
            halves.setdefault(key, []).append(message)
        elif message.topic in HALF_TOPICS.values():
            offsets = decode_op_body(message.raw_body)
            if not isinstance(offsets, Flaw):
                decided.update((message.topic, message.queue_id, offset) for offset in offsets)
        elif message.topic == topics.CHECK_MAX_TIME_TOPIC:
            given_up.add(key)
        elif message.sys_flag & TRANSACTION_MASK == TransactionType.COMMIT:
            committed.add(message.prepared_transaction_offset)
    for key, copies in halves.items():
        for message in copies:
            row = tallies.take(message, message.properties.get(PGROUP))
        row.count("transactions")
        row.count("checks", len(copies) - 1)
        places = {(HALF_TOPICS[message.topic], message.queue_id, message.queue_offset) for message in copies}
        if committed & {message.physical_offset for message in copies}:
            row.count("committed")
        elif places & decided:
            row.count("rolledBack")
        elif key in given_up:
            row.count("givenUp")
        else:
            row.count("undecided")
            known, born = row.more["oldestUndecidedTimestamp"], copies[0].born_timestamp
            row.more["oldestUndecidedTimestamp"] = born if known is None else min(known, born)
    return tallies.settle()


def report_retries(store: Store, selection: Selection, effort: Effort) -> Statistics:
    """Count retries and dead letters by consumer group and topic."""
    tallies = Tallies(("group", "topic"), retries=0, revived=0, deadLetters=0, most=0)
    picked = _pick(
        store, (selection, effort), tallies, lambda topic: topic_kind(topic) in (TopicKind.RETRY, TopicKind.DLQ)
    )
    for message in picked:
        group = topics.retried_group(message.topic) or ""
        topic = message.properties.get(RETRY_TOPIC)
        popped = FIRST_POP_TIME in message.properties
        if popped and topic is None:
            group, topic = _pop_names(message.topic, group)
        row = tallies.take(message, group, topic)
        dead = topic_kind(message.topic) is TopicKind.DLQ
        row.count("deadLetters" if dead else "revived" if popped else "retries")
        row.more["most"] = max(row.more["most"], message.reconsume_times)
    return tallies.settle()


def _pop_names(retry_topic: str, group: str) -> tuple[str, str | None]:
    """Return group and topic of POP's retry topic. With an underscore between them, the two cannot be separated."""
    if "+" in retry_topic:
        return group, retry_topic.rpartition("+")[2]
    return group, None


_HOUR_MS = 3_600_000


def report_retention(store: Store, selection: Selection, effort: Effort) -> Statistics:
    """Count messages by segment, the next one to be deleted first: when it expires, and which groups still need it.

    A broker deletes a segment fileReservedTime hours after its last write, and earlier if the disk is nearly full.
    """
    (found,) = read_statistics(store, selection, [Wish(("segment",))], effort)
    reserved = store.config.file_reserved_time * _HOUR_MS
    mtimes = {file.path: file.mtime_ns // 1_000_000 for file in store.listing.files}
    segments = {segment.base_offset: segment for segment in store.commit_log}
    unread: dict[QueueId, ReadFailed] = {}
    for row in found.rows:
        segment = segments.get(row["segment"])
        if segment is not None:
            row["expiresTimestamp"] = mtimes[segment.path] + reserved if segment.path in mtimes else None
            row["unread"] = _unread(store, segment.base_offset, segment.end_offset, unread)
    found.unread = [*unread.values()]
    return found


def _unread(store: Store, start: int, end: int, failed: dict[QueueId, ReadFailed]) -> list[dict[str, Any]]:
    """Return how many messages of a span of the log each group has not read, by topic.

    Queues that cannot be read are added to ``failed``.
    """
    try:
        offsets = read_configs(store, tolerant=True).offsets
    except OptionalMissing:
        return []
    queues = store.listing.queues(FileKind.CONSUME_QUEUE)
    counts: dict[tuple[str, str], int] = {}
    for (topic, group), committed in offsets.items():
        if topic_kind(topic) is TopicKind.SYSTEM:
            continue
        for queue_id, offset in committed.items():
            segments = queues.get(QueueId(topic, queue_id))
            if segments is not None:
                queue = ConsumeQueueFiles(QueueId(topic, queue_id), segments)
                try:
                    first, last = max(queue.find_offset(start), offset), queue.find_offset(end)
                except ReadFailed as error:
                    failed[queue.queue] = error
                else:
                    counts[group, topic] = counts.get((group, topic), 0) + max(last - first, 0)
    return [
        {"group": group, "topic": topic, "messages": count} for (group, topic), count in sorted(counts.items()) if count
    ]
