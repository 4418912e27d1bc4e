"""A producer with its broker in one: what a client does to a message, then what the broker does, then the put.

Upstream: ``DefaultMQProducerImpl``, ``SendMessageProcessor``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from rmqtool.broker.receiving import as_received
from rmqtool.broker.sending import UniqKeys
from rmqtool.config import StoreConfig
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.store import MessageStore, opened_at
from rmqtool.engine.stored_config import read_config
from rmqtool.engine.ticket import PutTicket
from rmqtool.errors import UsageError
from rmqtool.formats.paths import TOPICS
from rmqtool.formats.topics import check_topic_name, is_allowed_to_send

# Queues of a topic that nobody has created: what a client asks for.
DEFAULT_QUEUES = 4
ANY_QUEUE = -1
_LOCALHOST = bytes((127, 0, 0, 1))
FIELDS = (
    "status",
    "msgId",
    "offsetMsgId",
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "storeTimestamp",
)


class Produced(NamedTuple):
    """What became of one message."""

    msg_id: str
    ticket: PutTicket

    def as_json(self) -> dict[str, object]:
        """Return the line of the contract."""
        ticket = self.ticket
        status = ticket.status or PutStatus.UNKNOWN_ERROR
        values = (
            status.value,
            self.msg_id,
            ticket.offset_msg_id,
            ticket.topic,
            ticket.queue_id,
            ticket.queue_offset,
            ticket.physical_offset,
            ticket.store_timestamp,
        )
        return dict(zip(FIELDS, values, strict=True))


class Producer:
    """Sends messages into a store that is open."""

    def __init__(self, store: MessageStore) -> None:
        # Messages that are not acceptable, and those that the store could not take.
        self.refused = self.failed = 0
        self._store = store
        self._config = store.setup.config
        self._keys = UniqKeys(_LOCALHOST, os.getpid(), 0, store.setup.clock)
        topics = read_config(store.setup.files, TOPICS).get("topicConfigTable") or {}
        self._queues = {topic: int(settings.get("writeQueueNums", 0)) for topic, settings in topics.items()}
        self._turn = 0

    def send(self, messages: Sequence[NewMessage]) -> list[Produced]:
        """Store messages, in their order, and say what became of each."""
        ready = [self._prepare(message) for message in messages]
        tickets = self._store.put_many(message for _, message in ready)
        for ticket in tickets:
            if ticket.status is not None and not ticket.is_ok:
                self.refused += ticket.status.is_about_message
                self.failed += not ticket.status.is_about_message
        self._store.tick()
        return [Produced(key, ticket) for (key, _), ticket in zip(ready, tickets, strict=True)]

    def _prepare(self, message: NewMessage) -> tuple[str, NewMessage]:
        topic, version = message.topic, self._config.version
        refusal = check_topic_name(topic, version)
        if refusal is None and not is_allowed_to_send(topic, version):
            refusal = f"topic {topic} is the broker's own, and clients do not send to it"
        if refusal is not None:
            raise UsageError(refusal)
        key = self._keys.next()
        properties = {**message.property_map(), "UNIQ_KEY": key, "WAIT": "true"}
        queue_id = message.queue_id
        if queue_id == ANY_QUEUE:
            queue_id = self._turn % (self._queues.get(topic) or DEFAULT_QUEUES)
            self._turn += 1
        sent = replace(message, queue_id=queue_id, properties=properties)
        return key, as_received(sent, self._config, key)


@contextmanager
def open_producer(root: str, config: StoreConfig) -> Iterator[Producer]:
    """Open the store at ``root`` for a producer; at the end everything is durable, in queues and index too."""
    with opened_at(root, config) as store:
        yield Producer(store)
