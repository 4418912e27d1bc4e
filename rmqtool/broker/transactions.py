"""Transactions: half messages that nobody sees, and the records that decide them.

Upstream: ``TransactionalMessageBridge``, ``EndTransactionProcessor``, ``TransactionalMessageServiceImpl``,
``TransactionalOpBatchService``. A half message is decided by an op record that names its offset; 4.9 writes one at
once for each, 5.x gathers them for some time. A commit whose op record is lost happens again: the check asks once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from rmqtool.broker.happened import Happened, Service
from rmqtool.broker.stored_again import (
    find_number,
    stored_again,
    stored_properties,
    text_of,
    with_transaction_type,
)
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.store import MessageStore
from rmqtool.engine.ticket import PutTicket
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.properties import BUILT_BINS
from rmqtool.formats.system_bodies import encode_op_body
from rmqtool.formats.topics import HALF_TOPIC, OP_HALF_TOPIC

# The tag of op records.
REMOVE_TAG = "d"
_SECOND = 1000


class TransactionState(StrEnum):
    """What a producer says of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class EndStatus(StrEnum):
    """The broker's answer."""

    SUCCESS = "SUCCESS"
    SYSTEM_ERROR = "SYSTEM_ERROR"
    ILLEGAL_OPERATION = "ILLEGAL_OPERATION"
    NO_PERMISSION = "NO_PERMISSION"
    NOTHING = "NOTHING"


class EndRequest(NamedTuple):
    """Which half message is decided, by where it lies, by whom, and whether the broker had asked."""

    producer_group: str
    commit_log_offset: int
    tran_state_table_offset: int
    state: TransactionState
    from_check: bool = False


class Ended(NamedTuple):
    """What came of a decision: the answer, and the record in the real topic."""

    status: EndStatus
    ticket: PutTicket | None = None


@dataclass
class _Ops:
    """Decisions of one half queue that no op record names yet, and when the first of them was made."""

    since: int = 0
    offsets: list[int] = field(default_factory=list)
    size: int = 0


class Transactions:
    """Half messages and decisions of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._config = store.setup.config
        self._is_4_9 = self._config.version is Version.V4_9
        self._ops: dict[int, _Ops] = {}

    def prepare(self, message: NewMessage) -> PutTicket | EndStatus:
        """Store a message that its producer is yet to decide. It names its group in PGROUP."""
        if self._config.reject_transaction_message:
            return EndStatus.NO_PERMISSION
        properties = dict(message.property_map())
        # A producer takes it out: nobody would get the message.
        properties.pop("DELAY", None)
        properties["TRAN_MSG"] = "true"
        if not self._is_4_9 and properties.get("UNIQ_KEY"):
            properties["__transactionId__"] = properties["UNIQ_KEY"]
        properties |= {"REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)}
        half = NewMessage(
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
        return self._store.put(half)

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
        """Put the message that everybody sees; None when the half message does not say where."""
        message = self._committed(half)
        return None if message is None else self._store.put(message)

    def decide(self, half: Message) -> bool:
        """Note that a half message is done with: in an op record, at once or with others; tell whether it is noted."""
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
        """Write the op records that are due, by their size or after some time; ``at_once``: all there are."""
        found, now = [], self._store.setup.clock.now()
        for queue_id, ops in self._ops.items():
            while ops.offsets and (at_once or self._are_due(ops, now)):
                ticket = self._write_op(queue_id, self._take(ops, now))
                if not ticket.is_ok:
                    # The half messages stay undecided, and are asked about again.
                    break
                found.append(Happened(Service.TRANSACTION, "ops", ticket=ticket))
        return found

    def _is_too_late(self, half: Message) -> bool:
        """Tell whether the producer had said for how long it would be silent, and that is over: the check decides."""
        wanted = find_number(half.properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"))
        if wanted is None:
            return False
        immunity = immunity_time(half, self._config.transaction_time_out)
        return self._store.setup.clock.now() - half.born_timestamp > immunity

    def _committed(self, half: Message) -> NewMessage | None:
        """Return the message that everybody sees. Its text still says that it was a half message."""
        stored = stored_properties(half)
        topic, queue_id = stored.get("REAL_TOPIC"), find_number(stored.get("REAL_QID"))
        if not topic or queue_id is None:
            return None
        shown = {name: value for name, value in stored.items() if name not in ("REAL_TOPIC", "REAL_QID")}
        kept = {name: value for name, value in shown.items() if name != "TRAN_MSG"}
        message = stored_again(half, topic, queue_id, kept)
        # Before 5.4 the text is made before anything is taken out.
        message.property_text = text_of(stored if self._config.version < Version.V5_4 else shown, self._config.version)
        message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.COMMIT)
        message.prepared_transaction_offset = half.physical_offset
        return message

    def _are_due(self, ops: _Ops, now: int) -> bool:
        is_full = ops.size >= self._config.transaction_op_msg_max_size
        return is_full or now - ops.since >= self._config.transaction_op_batch_interval

    def _take(self, ops: _Ops, now: int) -> bytes:
        """Return the body of the next op record: entries until it is as long as it may be."""
        body = b""
        while ops.offsets and len(body) < self._config.transaction_op_msg_max_size:
            body += encode_op_body([ops.offsets.pop(0)], listed=True)
        ops.size -= len(body)
        ops.since = now
        return body

    def _write_op(self, queue_id: int, body: bytes) -> PutTicket:
        properties = {"TAGS": REMOVE_TAG, "WAIT": "true"}
        return self._store.put(NewMessage(OP_HALF_TOPIC, body, queue_id, properties, property_bins=BUILT_BINS))


def _belongs(half: Message, request: EndRequest) -> bool:
    """Tell whether a record is the half message that a producer speaks of."""
    return (
        half.properties.get("PGROUP") == request.producer_group
        and half.queue_offset == request.tran_state_table_offset
        and half.physical_offset == request.commit_log_offset
    )


def immunity_time(half: Message, default: int) -> int:
    """Return for how long (ms) after its birth nobody asks about a half message."""
    wanted = find_number(half.properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"))
    return default if wanted is None or wanted == -1 else wanted * _SECOND
