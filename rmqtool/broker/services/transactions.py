"""Transactions: half messages, which consumers do not see, and the op records that decide them.

An op record names the queue offsets of decided half messages; 4.9 writes one for each decision at once, 5.x collects
them for some time. If the op record of a commit is lost, the check asks again and the message is committed twice.
upstream: TransactionalMessageBridge, EndTransactionProcessor, TransactionalOpBatchService.

``TransactionCheck`` asks producers about undecided half messages, and gives up after too many tries. Each half message
is written again, after the others, when it is asked about, so that progress is one offset. When all op records are read
and none decides a half message, it is asked about. upstream: TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import NamedTuple, TypeAlias

from rmqtool.broker.offsets import ConsumerOffsets
from rmqtool.broker.services.events import Happened, Service
from rmqtool.broker.services.retry import (
    find_number,
    stored_again,
    stored_properties,
    text_of,
    with_transaction_type,
)
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.engine.get import GetMessageResult, GetMessageStatus
from rmqtool.engine.message import NewMessage, PutStatus
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.properties import BUILT_BINS
from rmqtool.formats.property_names import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
)
from rmqtool.formats.system_bodies import decode_op_body, encode_op_body
from rmqtool.formats.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, PERM_READ, PERM_WRITE, TRANS_GROUP

# The tag of op records. As upstream.
REMOVE_TAG = "d"
_SECOND = 1000


class TransactionState(StrEnum):
    """A producer's decision about its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class EndStatus(StrEnum):
    """The broker's answer to a decision."""

    SUCCESS = "SUCCESS"
    SYSTEM_ERROR = "SYSTEM_ERROR"
    ILLEGAL_OPERATION = "ILLEGAL_OPERATION"
    NO_PERMISSION = "NO_PERMISSION"
    NOTHING = "NOTHING"


class EndRequest(NamedTuple):
    """The decision about a half message: where it is, whose it is, and whether the broker had asked."""

    producer_group: str
    commit_log_offset: int
    tran_state_table_offset: int
    state: TransactionState
    from_check: bool = False


class Ended(NamedTuple):
    """The result of a decision: the answer, and the committed record."""

    status: EndStatus
    ticket: PutTicket | None = None


@dataclass
class _Ops:
    """The decisions about one half queue without an op record, and the time of the first."""

    since: int = 0
    offsets: list[int] = field(default_factory=list)
    size: int = 0


class Transactions:
    """The half messages and decisions of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._config = store.setup.config
        self._is_4_9 = self._config.version is Version.V4_9
        self._ops: dict[int, _Ops] = {}

    def prepare(self, message: NewMessage) -> PutTicket | EndStatus:
        """Store a message that its producer is yet to decide. It names its group in PGROUP."""
        half = self.half_of(message)
        return half if isinstance(half, EndStatus) else self._store.put(half)

    def half_of(self, message: NewMessage) -> NewMessage | EndStatus:
        """Return the half message that is stored of one that its producer is yet to decide."""
        if self._config.reject_transaction_message:
            return EndStatus.NO_PERMISSION
        properties = dict(message.property_map())
        # As upstream's producer does: a half message with a delay would go to the schedule topic.
        properties.pop(DELAY, None)
        properties[TRAN_MSG] = "true"
        if not self._is_4_9 and properties.get(UNIQ_KEY):
            properties[TRANSACTION_ID] = properties[UNIQ_KEY]
        properties |= {REAL_TOPIC: message.topic, REAL_QID: str(message.queue_id)}
        return NewMessage(
            HALF_TOPIC,
            message.body,
            0,
            properties,
            message.flag,
            with_transaction_type(message.sys_flag, TransactionType.NONE),
            message.born_timestamp,
            message.born_host,
            message.store_host,
            message.reconsume_times,
        )

    def end(self, request: EndRequest) -> Ended:
        """Take a producer's decision."""
        if request.state is TransactionState.UNKNOWN:
            return Ended(EndStatus.NOTHING)
        half = self._store.reader.message_at(request.commit_log_offset)
        if half is None or not _belongs(half, request):
            return Ended(EndStatus.SYSTEM_ERROR)
        if not self._is_4_9 and not request.from_check and self._is_too_late(half):
            return Ended(EndStatus.ILLEGAL_OPERATION)
        if request.state is TransactionState.ROLLBACK:
            return Ended(EndStatus.SUCCESS if self.decide(half) else EndStatus.SYSTEM_ERROR)
        ticket = self.commit(half)
        if ticket is None or ticket.status not in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT):
            return Ended(EndStatus.SYSTEM_ERROR, ticket)
        self.decide(half)
        return Ended(EndStatus.SUCCESS, ticket)

    def commit(self, half: Message) -> PutTicket | None:
        """Put the message that consumers see; return None if the half message does not name its topic and queue."""
        message = self._committed(half)
        return None if message is None else self._store.put(message)

    def decide(self, half: Message) -> bool:
        """Record that a half message is decided, in an op record of its own or with others.

        Return whether that worked.
        """
        if self._is_4_9:
            return self._write_op(half.queue_id, encode_op_body([half.queue_offset], listed=False)).is_ok
        ops = self._ops.setdefault(half.queue_id, _Ops())
        if not ops.offsets:
            ops.since = self._store.setup.clock.now()
        ops.offsets.append(half.queue_offset)
        ops.size += len(encode_op_body([half.queue_offset], listed=True))
        self.write_ops()
        return True

    def write_ops(self, *, at_once: bool = False) -> list[Happened]:
        """Write the op records that are due, by size or by time; with ``at_once`` all of them."""
        found, now = [], self._store.setup.clock.now()
        for queue_id, ops in self._ops.items():
            while ops.offsets and (at_once or self._are_due(ops, now)):
                ticket = self._write_op(queue_id, self._take(ops, now))
                if not ticket.is_ok:
                    # The half messages stay undecided, and the check asks again.
                    break
                found.append(Happened(Service.TRANSACTION, "ops", ticket=ticket))
        return found

    def _is_too_late(self, half: Message) -> bool:
        """Return whether a decision comes after the time that the producer itself asked for: then the check decides."""
        wanted = find_number(half.properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS))
        if wanted is None:
            return False
        immunity = immunity_time(half, self._config.transaction_time_out)
        return self._store.setup.clock.now() - half.born_timestamp > immunity

    def _committed(self, half: Message) -> NewMessage | None:
        """Return the message that consumers see. Its property text still marks it as a half message."""
        stored = stored_properties(half)
        topic, queue_id = stored.get(REAL_TOPIC), find_number(stored.get(REAL_QID))
        if not topic or queue_id is None:
            return None
        shown = {name: value for name, value in stored.items() if name not in (REAL_TOPIC, REAL_QID)}
        kept = {name: value for name, value in shown.items() if name != TRAN_MSG}
        message = stored_again(half, topic, queue_id, kept)
        # Before 5.4 the text is made from all properties.
        message.property_text = text_of(stored if self._config.version < Version.V5_4 else shown, self._config.version)
        message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.COMMIT)
        message.prepared_transaction_offset = half.physical_offset
        return message

    def _are_due(self, ops: _Ops, now: int) -> bool:
        is_full = ops.size >= self._config.transaction_op_msg_max_size
        return is_full or now - ops.since >= self._config.transaction_op_batch_interval

    def _take(self, ops: _Ops, now: int) -> bytes:
        """Return the body of the next op record: as many offsets as its largest size allows."""
        body = b""
        while ops.offsets and len(body) < self._config.transaction_op_msg_max_size:
            body += encode_op_body([ops.offsets.pop(0)], listed=True)
        ops.size -= len(body)
        ops.since = now
        return body

    def _write_op(self, queue_id: int, body: bytes) -> PutTicket:
        properties = {TAGS: REMOVE_TAG, WAIT: "true"}
        return self._store.put(NewMessage(OP_HALF_TOPIC, body, queue_id, properties, property_bins=BUILT_BINS))


def _belongs(half: Message, request: EndRequest) -> bool:
    """Return whether a record is the half message that a producer refers to."""
    return (
        half.properties.get(PGROUP) == request.producer_group
        and half.queue_offset == request.tran_state_table_offset
        and half.physical_offset == request.commit_log_offset
    )


def immunity_time(half: Message, default: int) -> int:
    """Return how long after its birth (ms) a half message is not asked about."""
    wanted = find_number(half.properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS))
    return default if wanted is None or wanted == -1 else wanted * _SECOND


# The longest run of the check for one half queue (ms). As upstream.
_LONGEST_RUN = 60_000
_OPS_AT_ONCE = 32
_HOUR_MS = 3_600_000
_NOTHING_NEW = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.OFFSET_OVERFLOW_ONE)

# Called with a half message, as it was written again; returns UNKNOWN if the producer cannot be reached.
Producer: TypeAlias = Callable[[Message], TransactionState]


class _Verdict(Enum):
    """The next step for a half message that no op record decides so far."""

    ASK = auto()
    PUT_OFF = auto()
    DONE = auto()
    READ_MORE_OPS = auto()
    END = auto()


@dataclass
class _Decided:
    """The content of the op records, from an offset on."""

    next_offset: int
    # Half offset → op offset; op offset → half offsets not yet passed.
    halves: dict[int, int] = field(default_factory=dict)
    open_ops: dict[int, set[int]] = field(default_factory=dict)
    done_ops: set[int] = field(default_factory=set)
    # Birth of the newest op record that was read last; None if the read was empty.
    last_born: int | None = None

    def finish(self, half_offset: int) -> None:
        """Pass a decided half message."""
        op_offset = self.halves.pop(half_offset)
        left = self.open_ops[op_offset]
        left.discard(half_offset)
        if not left:
            del self.open_ops[op_offset]
            self.done_ops.add(op_offset)

    def progress(self, op_offset: int) -> int:
        """Return the first op record that is not finished."""
        while op_offset in self.done_ops:
            op_offset += 1
        return op_offset


class TransactionCheck:
    """The check of one store. Without a ``producer`` no question is answered."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        topics: TopicConfigs,
        transactions: Transactions,
        producer: Producer | None = None,
    ) -> None:
        self.producer = producer
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._transactions = transactions
        self._config = store.setup.config
        self._clock = store.setup.clock

    def iter_due(self) -> Iterator[Happened]:
        """Run the check if it is due: one interval after the first open half message was asked about."""
        yield from self._transactions.write_ops()
        due = self.next_due()
        if due is not None and due <= self._clock.now():
            # upstream: the check does not know decisions that wait to be written, and asks about their half messages.
            yield from self._transactions.write_ops(at_once=True)
            self._store.dispatch_now()
            yield from self.iter_check()

    def next_due(self) -> int | None:
        """Return when the next check is due; None if no half message is open."""
        for half in self._iter_open():
            return half.store_timestamp + self._config.transaction_check_interval
        return None

    def waiting(self) -> int:
        """Return the number of open half messages."""
        return sum(1 for _ in self._iter_open())

    def iter_check(self) -> Iterator[Happened]:
        """Check each half queue once; yield one event for each half message that was asked about or given up."""
        for queue_id in self._queues():
            yield from self._check_queue(queue_id)

    def _queues(self) -> list[int]:
        return sorted(queue.key[1] for queue in self._store.queues() if queue.key[0] == HALF_TOPIC)

    def _progress(self, topic: str, queue_id: int) -> int:
        stored = self._offsets.query_offset(TRANS_GROUP, topic, queue_id)
        return stored if stored >= 0 else self._store.reader.bounds(topic, queue_id).min_offset

    def _iter_open(self) -> Iterator[Message]:
        for queue_id in self._queues():
            start = self._progress(HALF_TOPIC, queue_id)
            decided = _Decided(self._progress(OP_HALF_TOPIC, queue_id))
            while self._read_ops(decided, queue_id, start):
                continue
            for offset in range(start, self._store.reader.bounds(HALF_TOPIC, queue_id).max_offset):
                half = None if offset in decided.halves else _first(self._get(HALF_TOPIC, queue_id, offset, 1))
                if half is not None:
                    yield half

    def _check_queue(self, queue_id: int) -> Iterator[Happened]:
        half_start = self._progress(HALF_TOPIC, queue_id)
        op_start = self._progress(OP_HALF_TOPIC, queue_id)
        if half_start < 0 or op_start < 0:
            return
        decided = _Decided(op_start)
        self._read_ops(decided, queue_id, half_start)
        reached = half_start
        try:
            for offset, happened in self._visit(queue_id, half_start, decided):
                reached = offset
                if happened is not None:
                    yield happened
        finally:
            # Also when the caller stops here: what was decided must not be asked about again.
            if reached != half_start:
                self._offsets.commit_offset(TRANS_GROUP, HALF_TOPIC, queue_id, reached)
            if (op_reached := decided.progress(op_start)) != op_start:
                self._offsets.commit_offset(TRANS_GROUP, OP_HALF_TOPIC, queue_id, op_reached)

    def _visit(self, queue_id: int, offset: int, decided: _Decided) -> Iterator[tuple[int, Happened | None]]:
        """Visit the half messages; yield (the offset up to which all are finished, the event or None)."""
        started, deadline = self._clock.now(), self._clock.monotonic() + _LONGEST_RUN
        start, missed = offset, False
        while self._clock.monotonic() <= deadline:
            if offset in decided.halves:
                decided.finish(offset)
                offset += 1
                yield offset, None
                continue
            got = self._get(HALF_TOPIC, queue_id, offset, 1)
            half = _first(got)
            if half is None:
                if missed or got.status in _NOTHING_NEW:
                    return
                missed, offset = True, got.next_begin_offset
                yield offset, None
                continue
            times = find_number(half.properties.get(TRANSACTION_CHECK_TIMES)) or 0
            if times >= self._config.transaction_check_max or self._is_too_old(half):
                ticket = self._discard(half, times)
                if not ticket.is_ok:
                    return
                offset += 1
                yield offset, Happened(Service.TRANSACTION, "given up", half, ticket, {"times": times})
                continue
            if half.store_timestamp >= started:
                return
            verdict = self._judge(half, decided, started)
            if verdict is _Verdict.READ_MORE_OPS:
                self._read_ops(decided, queue_id, start)
                continue
            if verdict is _Verdict.END:
                return
            happened = None
            if verdict is not _Verdict.DONE:
                happened = self._ask(half, times + 1, is_immune=verdict is _Verdict.PUT_OFF)
                if happened is None:
                    return
            offset += 1
            yield offset, happened

    def _judge(self, half: Message, decided: _Decided, started: int) -> _Verdict:
        """Return the next step for a half message that no op record decides so far."""
        age = self._clock.now() - half.born_timestamp
        immunity = immunity_time(half, self._config.transaction_time_out)
        if CHECK_IMMUNITY_TIME_IN_SECONDS in half.properties:
            if age < immunity:
                first = find_number(half.properties.get(TRAN_PREPARED_QUEUE_OFFSET))
                if first is not None and first in decided.halves:
                    decided.finish(first)
                    return _Verdict.DONE
                return _Verdict.PUT_OFF
        elif 0 <= age < immunity:
            return _Verdict.END
        if age <= -1 or (decided.last_born is None and age > immunity):
            return _Verdict.ASK
        if decided.last_born is not None:
            return (
                _Verdict.ASK
                if decided.last_born - started > self._config.transaction_time_out
                else _Verdict.READ_MORE_OPS
            )
        # upstream: 5.3 and before loop here until the clock moves on.
        return _Verdict.END

    def _ask(self, half: Message, times: int, *, is_immune: bool) -> Happened | None:
        """Write a half message again and, unless it is immune, ask about it; return None if the write failed."""
        properties = {**stored_properties(half), TRANSACTION_CHECK_TIMES: str(times)}
        if is_immune:
            properties.setdefault(TRAN_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        message = stored_again(half, HALF_TOPIC, half.queue_id, properties)
        message.property_text = text_of(properties, self._config.version)
        # upstream: both are lost.
        message.flag = message.reconsume_times = 0
        ticket = self._store.put(message)
        if not ticket.is_ok:
            return None
        if is_immune:
            return Happened(Service.TRANSACTION, "put off", half, ticket)
        answer = TransactionState.UNKNOWN if self.producer is None else self._take_answer(ticket, self.producer)
        known = {} if answer is TransactionState.UNKNOWN else {"answer": answer.value}
        return Happened(Service.TRANSACTION, "checked", half, ticket, {"times": times, **known})

    def _take_answer(self, ticket: PutTicket, producer: Producer) -> TransactionState:
        again = self._store.reader.message_at(ticket.physical_offset)
        if again is None:
            return TransactionState.UNKNOWN
        answer = producer(again)
        group = again.properties.get(PGROUP, "")
        place = ticket.physical_offset, ticket.queue_offset
        ended = self._transactions.end(EndRequest(group, *place, answer, from_check=True))
        return answer if ended.status is EndStatus.SUCCESS else TransactionState.UNKNOWN

    def _discard(self, half: Message, times: int) -> PutTicket:
        self._topics.ensure(CHECK_MAX_TIME_TOPIC, 1, PERM_READ | PERM_WRITE)
        properties = {**stored_properties(half), TRANSACTION_CHECK_TIMES: str(max(times, 1))}
        message = stored_again(half, CHECK_MAX_TIME_TOPIC, 0, properties)
        message.property_text = text_of(properties, self._config.version)
        return self._store.put(message)

    def _is_too_old(self, half: Message) -> bool:
        return self._clock.now() - half.born_timestamp > self._config.file_reserved_time * _HOUR_MS

    def _read_ops(self, decided: _Decided, queue_id: int, least: int) -> bool:
        """Read more op records; return whether there were any. Offsets below ``least`` are passed already."""
        got = self._get(OP_HALF_TOPIC, queue_id, decided.next_offset, _OPS_AT_ONCE)
        decided.last_born = None
        if not got.messages and got.status not in _NOTHING_NEW and got.next_begin_offset != decided.next_offset:
            self._offsets.commit_offset(TRANS_GROUP, OP_HALF_TOPIC, queue_id, got.next_begin_offset)
        for one, op in zip(got.messages, got.decoded(), strict=True):
            if not isinstance(op, Message):
                continue
            decided.last_born = op.born_timestamp
            named = decode_op_body(op.raw_body) if op.tags == REMOVE_TAG else ()
            offsets = set() if isinstance(named, Flaw) else {offset for offset in named if offset >= least}
            if offsets:
                decided.halves |= dict.fromkeys(offsets, one.queue_offset)
                decided.open_ops[one.queue_offset] = offsets
            else:
                decided.done_ops.add(one.queue_offset)
        decided.next_offset = got.next_begin_offset
        return bool(got.messages)

    def _get(self, topic: str, queue_id: int, offset: int, most: int) -> GetMessageResult:
        return self._store.reader.get(topic, queue_id, offset, most)


def _first(got: GetMessageResult) -> Message | None:
    found = got.decoded()[0] if got.messages else None
    return found if isinstance(found, Message) else None
