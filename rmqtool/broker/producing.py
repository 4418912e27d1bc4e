"""A producer with its broker in one: what a client does to a message, then what the broker does, then the put.

Upstream: ``DefaultMQProducerImpl``, ``SendMessageProcessor``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import NamedTuple

from rmqtool.broker.receiving import as_received
from rmqtool.broker.saved_text import SavedText
from rmqtool.broker.sending import UniqKeys
from rmqtool.broker.topics import TopicConfig, TopicConfigs
from rmqtool.config import StoreConfig
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.store import MessageStore, opened_at
from rmqtool.engine.ticket import PutTicket
from rmqtool.errors import NotFound, Refused, UsageError
from rmqtool.formats.paths import TOPICS
from rmqtool.formats.topics import AUTO_CREATE_TOPIC, PERM_WRITE, check_topic_name, is_allowed_to_send

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
    """Sends messages into a store that is open. With ``creates`` a topic that is not there is made, as brokers do."""

    def __init__(self, store: MessageStore, topics: TopicConfigs, *, creates: bool = False) -> None:
        # Messages that are not acceptable, and those that the store could not take.
        self.refused = self.failed = 0
        self._store = store
        self._config = store.setup.config
        self._keys = UniqKeys(_LOCALHOST, os.getpid(), 0, store.setup.clock)
        self._topics = topics
        self._creates = creates
        # Topics that were sent to, and how many queues each has.
        self._queues: dict[str, int] = {}
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
        count = self._queues.get(message.topic) or self._find_topic(message.topic)
        key = self._keys.next()
        properties = {**message.property_map(), "UNIQ_KEY": key, "WAIT": "true"}
        queue_id = message.queue_id
        if queue_id == ANY_QUEUE:
            queue_id = self._turn % count
            self._turn += 1
        sent = replace(message, queue_id=queue_id, properties=properties)
        return key, as_received(sent, self._config, key)

    def _find_topic(self, topic: str) -> int:
        """Return how many queues a topic has that is sent to for the first time."""
        version = self._config.version
        refusal = check_topic_name(topic, version)
        if refusal is None and not is_allowed_to_send(topic, version):
            refusal = f"topic {topic} is the broker's own, and clients do not send to it"
        if refusal is not None:
            raise UsageError(refusal)
        config = self._topics.find(topic)
        if config is None and self._creates:
            config = self._make(topic)
        elif config is None and self._topics.table and all(queue.key[0] != topic for queue in self._store.queues()):
            near = get_close_matches(topic, self._topics.table, n=1)
            hint = f"did you mean {near[0]}? --create makes a new topic" if near else "--create makes it"
            raise NotFound(f"there is no topic {topic}", hint=hint)
        # A store without settings of topics says nothing against one.
        config = config or {"writeQueueNums": DEFAULT_QUEUES, "perm": PERM_WRITE}
        if not int(config.get("perm", 0)) & PERM_WRITE:
            raise Refused(f"topic {topic} is not to be written to", hint=f"rmqtool topic STORE alter {topic} --perm rw")
        self._queues[topic] = int(config.get("writeQueueNums") or 0) or 1
        return self._queues[topic]

    def _make(self, topic: str) -> TopicConfig:
        """Make a topic as a broker does when a client sends to it; here also where the broker would not."""
        made = self._topics.auto_create(topic, AUTO_CREATE_TOPIC, DEFAULT_QUEUES)
        if made is None:
            made = self._topics.create(topic, readQueueNums=DEFAULT_QUEUES, writeQueueNums=DEFAULT_QUEUES)
        self._topics.save()
        return made


@contextmanager
def open_producer(
    root: str,
    config: StoreConfig,
    text_of: Callable[[MessageStore, str], SavedText],
    *,
    creates: bool = False,
) -> Iterator[Producer]:
    """Open the store at ``root`` for a producer; at the end everything is durable, in queues and index too.

    ``text_of`` gives a configuration file of the store by its name.
    """
    with opened_at(root, config) as store:
        setup = store.setup
        topics = TopicConfigs(text_of(store, TOPICS), config.version, setup.clock)
        yield Producer(store, topics, creates=creates)
