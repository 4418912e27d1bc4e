"""What tools ask of one member of a group: the broker passes it on, and the member's answer back.

Upstream: ``AdminBrokerProcessor.callConsumer``.
"""

from __future__ import annotations

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.queries import record_bytes
from rmqtool.broker.processors.replies import Forwarded, Reply
from rmqtool.formats.ids import decode_offset_msg_id
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import MEMBER_NOT_ONLINE, answer, refuse
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.clients import ConsumeMessageDirectly, GetConsumerRunningInfo


def ask_running_info(broker: Broker, asked: Asked) -> Reply:
    """Ask a member how it is doing."""
    header: GetConsumerRunningInfo = asked.header  # type: ignore[assignment]
    return _ask(broker, asked, header.consumer_group, header.client_id)


def have_consumed(broker: Broker, asked: Asked) -> Reply:
    """Have a member consume one message now; the broker adds the message to the request."""
    header: ConsumeMessageDirectly = asked.header  # type: ignore[assignment]
    place = decode_offset_msg_id(header.msg_id or "")
    record = None if place is None else broker.store.reader.message_at(place.physical_offset)
    if record is None:
        return answer(asked.command, ResponseCode.SYSTEM_ERROR, f"no message has the id {header.msg_id}")
    return _ask(broker, asked, header.consumer_group, header.client_id or "", record_bytes(broker, record))


def _ask(broker: Broker, asked: Asked, group: str, client_id: str, body: bytes = b"") -> Reply:
    command, member = asked.command, broker.clients.find_member(group, client_id)
    if member is None:
        return refuse(command, MEMBER_NOT_ONLINE, broker.version, group=group, client_id=client_id)

    def answered(found: RemotingCommand | None) -> Reply:
        if found is None:
            remark = f"consumer <{group}> <{client_id}> Timeout"
            return answer(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        return found.replaced(opaque=command.opaque, serialize_type=command.serialize_type)

    return Forwarded(member, RemotingCommand(command.code, dict(command.ext), body), answered)
