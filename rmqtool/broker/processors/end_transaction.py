"""Transactions that producers decide, timer messages that they recall, and messages that consumers give back.

Upstream: ``EndTransactionProcessor``, ``RecallMessageProcessor``, ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rmqtool.broker.client_registry import Connection
from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.replies import Putting, Reply, Steps
from rmqtool.broker.services.retry import find_number, stored_properties, text_of
from rmqtool.broker.services.transactions import EndRequest, EndStatus, TransactionState
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import PutTicket
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.commit_log import Message, encode_message
from rmqtool.formats.ids import decode_recall_handle, encode_offset_msg_id
from rmqtool.formats.java import encode_text, parse_long
from rmqtool.formats.property_names import (
    BORN_TIMESTAMP,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TRACE_CONTEXT,
    UNIQ_KEY,
    WAIT,
)
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import HALF_TOPIC, PERM_WRITE
from rmqtool.remoting.answers import GROUP_NOT_EXIST, MESSAGE_BACK_NOT_FOUND, answer, refuse
from rmqtool.remoting.command import ONEWAY, RemotingCommand
from rmqtool.remoting.requests.messages import (
    CheckTransactionState,
    ConsumerSendMsgBack,
    EndTransaction,
    RecallMessage,
    RecallMessageAnswer,
)

_SECOND = 1000
_STATES: Final = {
    TransactionType.COMMIT.value: TransactionState.COMMIT,
    TransactionType.ROLLBACK.value: TransactionState.ROLLBACK,
}
_ANSWERS: Final = {
    EndStatus.SUCCESS: (ResponseCode.SUCCESS, None),
    EndStatus.SYSTEM_ERROR: (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
    EndStatus.ILLEGAL_OPERATION: (ResponseCode.SYSTEM_ERROR, "Message commit fail [illegal operation]"),
    EndStatus.NO_PERMISSION: (ResponseCode.NO_PERMISSION, None),
}


def end_transaction(broker: Broker, asked: Asked) -> Steps:
    """Commit or roll back. An undecided transaction gets no answer, as upstream."""
    header: EndTransaction = asked.header  # type: ignore[assignment]
    state = _STATES.get(header.commit_or_rollback, TransactionState.UNKNOWN)
    request = EndRequest(
        header.producer_group,
        header.commit_log_offset,
        header.tran_state_table_offset,
        state,
        from_check=header.from_transaction_check,
    )
    # The half message may have arrived in the same read, and not be written yet.
    broker.store.write_now()
    yield partial(broker.store.reader.message_at, header.commit_log_offset)
    ended = broker.services.transactions.end(request)
    if ended.status is EndStatus.NOTHING:
        return None
    code, remark = _ANSWERS[ended.status]
    return answer(asked.command, code, remark)


def take_back(broker: Broker, asked: Asked) -> Steps:
    """Have a group get a message again later, or make it a dead letter."""
    header: ConsumerSendMsgBack = asked.header  # type: ignore[assignment]
    command, group = asked.command, header.group
    if broker.groups.find_or_create(group) is None:
        return refuse(command, GROUP_NOT_EXIST, broker.version, group=group)
    record = yield partial(broker.store.reader.message_at, header.offset)
    if record is None:
        return refuse(command, MESSAGE_BACK_NOT_FOUND, broker.version, offset=header.offset)
    again = broker.services.retry.sent_back(group, record, header.delay_level, header.max_reconsume_times)
    if again is None:
        return answer(command)
    ticket = broker.store.put_async(again)
    return Putting(ticket, partial(_taken_back, command, ticket))


def _taken_back(command: RemotingCommand, ticket: PutTicket) -> RemotingCommand:
    if ticket.status is not None and ticket.status.is_stored:
        return answer(command)
    status = "UNKNOWN_ERROR" if ticket.status is None else ticket.status.value
    return answer(command, ResponseCode.SYSTEM_ERROR, status)


def recall_message(broker: Broker, asked: Asked) -> Reply:
    """Take back a message that waits for its time: a message of its own that cancels it there."""
    header: RecallMessage = asked.header  # type: ignore[assignment]
    command, topic = asked.command, header.topic
    if not broker.config.broker_permission & PERM_WRITE or broker.read_only:
        return answer(command, ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
    if broker.topics.find(topic) is None:
        return answer(command, ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
    handle, flaw = decode_recall_handle(header.recall_handle), None
    if handle is None:
        return answer(command, ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    left = (parse_long(handle.time) or 0) - broker.store.setup.clock.now()
    if handle.topic != topic:
        flaw = "topic not match"
    elif handle.broker_name != broker.config.broker_name:
        flaw = "broker service not available"
    elif not 0 < left < broker.config.timer_max_delay_sec * _SECOND:
        flaw = "timestamp invalid"
    if flaw is not None:
        return answer(command, ResponseCode.ILLEGAL_OPERATION, f"recall failed, {flaw}")
    key = handle.uniq_key
    properties = {
        TAGS: "_RECALL_TAG_",
        TIMER_DEL_UNIQKEY: f"{topic}+{key}",
        UNIQ_KEY: key,
        TIMER_DELIVER_MS: handle.time,
        BORN_TIMESTAMP: str(broker.store.setup.clock.now()),
        TRACE_CONTEXT: "",
        PGROUP: header.producer_group or "",
    }
    ticket = broker.store.put_async(NewMessage(topic, b"0", 0, properties, born_host=asked.host))
    return Putting(ticket, partial(_recalled, command, ticket, key))


def _recalled(command: RemotingCommand, ticket: PutTicket, key: str) -> RemotingCommand:
    if ticket.status is not None and ticket.status.is_stored:
        return answer(command, header=RecallMessageAnswer(msg_id=key))
    return answer(command, ResponseCode.SYSTEM_ERROR, "recall failed, execute error")


def check_request(broker: Broker, half: Message) -> tuple[Connection, RemotingCommand] | None:
    """Return who is asked about a half message, and the request; None where no producer of its group is there.

    upstream: Broker2Client.checkProducerTransactionState. Its body is the message as it will be; a Go client ignores a
    request whose body does not decode.
    """
    group = half.properties.get(PGROUP, "")
    producers = list(broker.clients.producers.get(group, ()))
    topic, queue_id = half.properties.get(REAL_TOPIC), find_number(half.properties.get(REAL_QID))
    if not producers or topic is None or queue_id is None:
        return None
    raw = encode_text(topic)
    # upstream: the broker has set WAIT to false by now, in the map that this body is made of.
    text = text_of({**stored_properties(half), WAIT: "false"}, broker.config.version)
    size = half.total_size + len(raw) - len(half.raw_topic) + len(text) - len(half.raw_properties)
    shown = half._replace(total_size=size, raw_topic=raw, raw_properties=text, queue_id=queue_id)
    key = half.uniq_key
    is_5 = broker.config.version is not Version.V4_9
    request = CheckTransactionState(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=key,
        transaction_id=key,
        offset_msg_id=encode_offset_msg_id(half.store_host_ip, half.store_host_port, half.physical_offset),
        topic=HALF_TOPIC if is_5 else None,
        bname=broker.config.broker_name if is_5 else None,
    )
    code = CheckTransactionState.codes[0].code
    command = RemotingCommand(code, request.encode(), encode_message(shown), flag=ONEWAY)
    return broker.chance.choice(producers), command
