"""Which queues a member of a group takes, decided by the broker, and whether it pulls or pops them.

Clients with ``clientRebalance=false`` ask. An administrator sets the mode of a topic and group (``setConsumeMode``);
without it they pull. upstream: ``QueryAssignmentProcessor``, ``MessageRequestModeManager``, whose table is in
``messageRequestMode.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqtool.broker.consumer.rebalance import Average, AverageByCircle, Strategy
from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config, new_bean, with_entry
from rmqtool.formats.config_shapes import MESSAGE_REQUEST_MODES as SHAPE
from rmqtool.formats.fastjson import Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.paths import MESSAGE_REQUEST_MODE
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import PERM_READ, RETRY_PREFIX
from rmqtool.remoting.answers import answer
from rmqtool.remoting.bodies.clients import (
    MessageModel,
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rmqtool.remoting.command import RemotingCommand
from rmqtool.store.config_files import config_text

_STRATEGIES: dict[str, Strategy] = {"AVG": Average(), "AVG_BY_CIRCLE": AverageByCircle()}
# A member that pops gets all queues under this number.
_ANY_QUEUE = -1
_TABLE = SHAPE.fields["messageRequestModeMap"].shape


class Assignments:
    """The modes of one broker's topics and groups, and answers by them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._text = config_text(broker.store.setup.files, MESSAGE_REQUEST_MODE)
        self._value: dict[str, Any] = self._text.load(_decode) or {}
        self._modes: dict[str, dict[str, dict[str, Any]]] = dict(self._value.get("messageRequestModeMap") or {})

    def set_mode(self, asked: Asked) -> RemotingCommand:
        """Set whether a group pulls or pops a topic."""
        body = SetMessageRequestModeRequestBody.decode(asked.command.body)
        topic, group = body.topic, body.consumer_group
        if topic.startswith(RETRY_PREFIX):
            return answer(asked.command, ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._broker.topics.find(topic) is None:
            return answer(asked.command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._broker.groups.find_or_create(group) is None:
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            return answer(asked.command, code, "subscription group does not exist")
        mode = {
            "consumerGroup": group,
            "mode": body.mode.value,
            "popShareQueueNum": body.pop_share_queue_num or 0,
            "topic": topic,
        }
        assert isinstance(_TABLE, Table), "the shape of the file says so"
        assert isinstance(_TABLE.values, Table), "the shape of the file says so"
        of_topic = with_entry(self._modes.get(topic, {}), group, mode, _TABLE.values)
        self._modes = with_entry(self._modes, topic, of_topic, _TABLE)
        self._save()
        return answer(asked.command)

    def _save(self) -> None:
        version = self._broker.version
        value = {**new_bean(SHAPE, version), **self._value, "messageRequestModeMap": self._modes}
        self._text.write(encode_config(MESSAGE_REQUEST_MODE, value, dialect_of(version)))

    def all_modes(self, asked: Asked) -> RemotingCommand:
        """Read the modes of all topics and groups."""
        table = {
            topic: {group: SetMessageRequestModeRequestBody.read(mode) for group, mode in groups.items()}
            for topic, groups in self._modes.items()
        }
        return answer(asked.command, body=MessageRequestModeSerializeWrapper(message_request_mode_map=table))

    def query(self, asked: Asked) -> RemotingCommand:
        """Say which queues of a topic a member takes; nothing where that is not known."""
        body = QueryAssignmentRequestBody.decode(asked.command.body)
        known = self._modes.get(body.topic, {}).get(body.consumer_group, {})
        mode = MessageRequestMode(known.get("mode") or MessageRequestMode.PULL)
        share = int(known.get("popShareQueueNum") or 0)
        queues = self._queues(body, share if mode is MessageRequestMode.POP else None)
        if queues is None:
            return answer(asked.command, body=QueryAssignmentResponseBody())
        assigned = [MessageQueueAssignment(message_queue=queue, mode=mode) for queue in dict.fromkeys(queues)]
        return answer(asked.command, body=QueryAssignmentResponseBody(message_queue_assignments=assigned))

    def _queues(self, body: QueryAssignmentRequestBody, share: int | None) -> list[MessageQueue] | None:
        """Return the queues of a member; ``share`` is how many others pop each queue too, None if it pulls."""
        config, name = self._broker.topics.find(body.topic), self._broker.config.broker_name
        if config is None or not int(config["perm"]) & PERM_READ:
            return None
        queues = [MessageQueue(body.topic, name, number) for number in range(int(config["readQueueNums"]))]
        if body.message_model is MessageModel.BROADCASTING:
            return queues
        members = sorted(self._broker.clients.client_ids(body.consumer_group))
        strategy = _STRATEGIES.get(body.strategy_name)
        if not members or strategy is None:
            return None
        if share is not None:
            return _popped(strategy, queues, members, body.client_id, share)
        return list(strategy.allocate(queues, members).get(body.client_id, ()))


def _popped(
    strategy: Strategy, queues: Sequence[MessageQueue], members: list[str], member: str, share: int
) -> list[MessageQueue]:
    """Return the queues that a member pops: its own, and those of the next members in the list.

    upstream: allocate4Pop
    """
    if share <= 0 or share >= len(members) - 1:
        return [queue._replace(queue_id=_ANY_QUEUE) for queue in queues]
    if member not in members:
        return []
    place = members.index(member)
    if len(members) > len(queues):
        return [queues[place % len(queues)]]
    allocated = strategy.allocate(queues, members)
    others = [members[(place + step) % len(members)] for step in range(share + 1)]
    return [queue for other in others for queue in allocated[other]]


def _decode(data: bytes) -> dict[str, Any] | Flaw:
    decoded = decode_config(MESSAGE_REQUEST_MODE, data)
    return decoded if isinstance(decoded, Flaw) else decoded.value
