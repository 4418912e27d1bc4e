"""A producer and its broker in one: the client's work on a message, then the broker's, then the put.

The broker adds properties that tell where the message arrived, and from 5.0 on a missing unique key. 4.9 does not store
whether the sender waits. upstream: DefaultMQProducerImpl, SendMessageProcessor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from random import randrange
from types import MappingProxyType
from typing import Any, Protocol

from rmqtool.broker.groups import SubscriptionGroups
from rmqtool.broker.producer.client import MOST_KEYS, Outgoing, UniqKeys, check_batch, check_body, queue_index_by_key
from rmqtool.broker.producer.result import Later, Sent, sent_batch, sent_columns, sent_one, sent_tickets
from rmqtool.broker.topics import TopicConfig, TopicConfigs
from rmqtool.config import BrokerRole, StoreConfig, Version
from rmqtool.engine.message import COMPRESS_OVER, NewMessage, PutStatus, compressed, property_text, text_template
from rmqtool.engine.put import MATTERS, due_time, is_for_later
from rmqtool.engine.put_columns import MessageColumns, PutColumns
from rmqtool.engine.store import MessageStore, opened_at
from rmqtool.errors import NotFound, Refused, UsageError
from rmqtool.formats.batches import BatchItem, encode_batch
from rmqtool.formats.codes import BodyCodec
from rmqtool.formats.compression import compress_body, compression_flag
from rmqtool.formats.ids import encode_offset_msg_id
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.paths import SUBSCRIPTION_GROUP, TOPICS
from rmqtool.formats.properties import BUILT_BINS
from rmqtool.formats.property_names import CLUSTER, MSG_REGION, SHARDING_KEY, TRACE_ON, UNIQ_KEY, WAIT
from rmqtool.formats.topics import (
    AUTO_CREATE_TOPIC,
    PERM_READ,
    PERM_WRITE,
    check_topic_name,
    is_allowed_to_send,
    parse_delay_levels,
)
from rmqtool.store.config_files import config_text


def broker_properties(config: StoreConfig) -> Mapping[str, str]:
    """Return the properties that the broker of ``config`` adds to each message with a unique key, in its order."""
    return _added(config.version, config.region_id, config.trace_on, config.broker_cluster_name)


@lru_cache(maxsize=64)
def _added(version: Version, region: str, traces: bool, cluster: str) -> Mapping[str, str]:
    if version is Version.V4_9:
        return MappingProxyType({CLUSTER: cluster})
    return MappingProxyType({MSG_REGION: region, TRACE_ON: str(traces).lower(), CLUSTER: cluster})


def as_received(
    message: NewMessage, config: StoreConfig, uniq_key: str, sent: Mapping[str, str] | None = None
) -> NewMessage:
    """Return a client's message as the broker of ``config`` stores it; ``uniq_key`` replaces a missing key.

    ``sent`` are the properties that the client sent, if they are not those of the message.
    """
    received = message.with_properties(dict(message.property_map() if sent is None else sent))
    receive(received, config, uniq_key)
    return received


def receive(message: NewMessage, config: StoreConfig, uniq_key: str) -> None:
    """Make of a message what the broker of ``config`` stores. Its properties are a dict, which is changed."""
    properties = message.properties
    assert type(properties) is dict, "the properties are the message's own"
    if config.version is not Version.V4_9:
        properties.setdefault(UNIQ_KEY, uniq_key)
    properties.update(broker_properties(config))
    if config.version is Version.V4_9:
        message.property_text = _stored_text(tuple(properties))(properties)


@lru_cache(maxsize=4096)
def _stored_text(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], bytes]:
    """Return a function that makes the text that 4.9 stores of properties with these names."""
    return text_template(tuple(name for name in names if name != WAIT), BUILT_BINS, terminated=False)


# Queues of a topic that is created by sending. As a client asks for.
DEFAULT_QUEUES = 4
ANY_QUEUE = -1
_LOCALHOST = bytes((127, 0, 0, 1))
# From this many messages on, columns pay for the import of their libraries.
LEAST_FOR_COLUMNS = 2048
_PLACE_DIGITS = 16
# Kinds of messages whose texts are known. A producer of random property names must not fill the memory.
_MOST_MAKERS = 4096
# Properties that decide how a client sends a message.
_MADE = frozenset({UNIQ_KEY, WAIT, SHARDING_KEY})

_Text = Callable[[Mapping[str, str]], bytes]


class ColumnWork(Protocol):
    """Turns lines into columns of messages, and results into lines.

    The messages that it reads have ``topics`` (``codes`` and ``values``), ``bodies``, ``queue_ids``, ``flags`` and
    ``properties``: for each name a single text for all messages, or a column with nulls.
    """

    def read(self, data: bytes | bytearray) -> Any | None:
        """Return the messages of lines; None if they must be looked at one by one."""

    def keys(self, properties: Mapping[str, Any], generated: Sequence[str]) -> Any:
        """Return the unique keys of messages as a column: their own keys, or generated ones."""

    def texts(
        self, properties: Mapping[str, Any], count: int, text_of: Callable[[tuple[str, ...]], _Text]
    ) -> list[bytes]:
        """Return the property texts of messages."""

    def lines(self, keys: Any, topics: Any, queue_ids: Any, put: PutColumns, id_prefix: str) -> bytes:
        """Return the result lines of messages that were all stored."""


class Producer:
    """Sends messages into an open store.

    With ``creates`` a missing topic is created, as brokers do; ``groups`` are written with the first topics. The queues
    of a topic are used in turn, beginning at ``turn`` or, as clients do, at random.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups | None = None,
        *,
        creates: bool = False,
        turn: int | None = None,
    ) -> None:
        self._store = store
        self._groups = groups
        self._config = store.setup.config
        self._keys = UniqKeys(_LOCALHOST, os.getpid(), 0, store.setup.clock)
        self._topics = topics
        self._creates = creates
        # For each topic that was sent to: the queues that a client uses in turn, and the queues that a broker accepts.
        self._queues: dict[str, tuple[int, int]] = {}
        self._first_turn = turn
        self._turns: dict[str, int] = {}
        self._delays = parse_delay_levels(self._config.message_delay_level)
        self._slave_status = status_without_slave(self._config)
        self._makers: dict[tuple[str, ...], _Text] = {}
        # The kinds of messages that are stored by the shortest way, by topic and names of properties.
        self._kinds: dict[tuple[str, ...], object | None] = {}
        # The properties that client and broker add to each message. 4.9 does not store whether the sender waits.
        waits = {} if self._config.version is Version.V4_9 else {WAIT: "true"}
        self._made, self._now = {**waits, **broker_properties(self._config)}, store.setup.clock.now

    def check(self, message: NewMessage) -> None:
        """Raise the error of a client or broker for a message that it does not accept."""
        if (refusal := check_body(message.body)) is not None:
            raise UsageError(refusal, hint="give it a body; --on-error skip leaves such messages out")
        _, limit = self._queues.get(message.topic) or self._find_topic(message.topic)
        if message.queue_id >= limit or message.queue_id < ANY_QUEUE:
            hint = f"more queues: rmqtool topic STORE alter {message.topic} --queues {message.queue_id + 1}"
            raise UsageError(f"topic {message.topic} has no queue {message.queue_id}: there are {limit}", hint=hint)

    def send(self, messages: Sequence[NewMessage]) -> Sent:
        """Store checked messages in order, and return their results."""
        if len(messages) == 1 and (sent := self._send_plain(messages[0])) is not None:
            return sent
        messages = [self._compressed(self._placed(message)) for message in messages]
        keys = [message.property_map().get(UNIQ_KEY) or self._keys.next() for message in messages]
        return self._send_keyed(messages, keys)

    def _send_keyed(self, messages: Sequence[NewMessage], keys: Sequence[str]) -> Sent:
        """Store messages as they leave the client, with their unique keys."""
        columns = self._columns_of(messages, keys) if len(messages) >= LEAST_FOR_COLUMNS else None
        if columns is not None:
            sent = sent_columns(keys, messages, self._store.put_columns(columns), self._store.store_host)
        else:
            ready = [self._received(message, key) for message, key in zip(messages, keys, strict=True)]
            store = self._store
            tickets = [store.put(ready[0])] if len(ready) == 1 else store.put_many(ready)
            sent = sent_tickets(keys, tickets)
            self._note_later(sent, messages)
        if self._slave_status is not None:
            self._note_slaves(sent, messages, self._slave_status)
        return self._done(sent)

    def _send_plain(self, message: NewMessage) -> Sent | None:
        """Store one message as ``send`` does, by the shortest way; None if it needs a closer look."""
        given, body, topic = message.properties, message.body, message.topic
        if type(given) is not dict or not body or len(body) >= COMPRESS_OVER:
            return None
        if message.property_text is not None or message.property_bins is not None:
            return None
        names = (topic, *given)
        try:
            kind = self._kinds[names]
        except KeyError:
            kind = self._kind_of(names)
        if kind is None:
            return None
        now = self._now()
        if message.queue_id == ANY_QUEUE:
            turns = self._turns
            turn = turns[topic] if topic in turns else self._turn_of(topic)
            message.queue_id = turn % self._queues[topic][0]
            turns[topic] = turn + 1
        key = self._keys.at(now)
        placed = self._store.put_plain(kind, message, key, now)
        if placed is None:
            return self._send_keyed([message], [key])
        sent = Sent(None, (key, placed)) if placed[0] is PutStatus.PUT_OK else sent_one(key, placed)
        if self._topics.is_changed:
            return self._done(sent)
        self._store.tick_soon()
        return sent

    def _kind_of(self, names: tuple[str, ...]) -> object | None:
        """Return the kind of messages with a topic and names of properties, and keep it; None for a closer look."""
        if len(self._kinds) >= _MOST_MAKERS:
            self._kinds.clear()
        topic, *given = names
        kind = None
        if _MADE.isdisjoint(given) and MATTERS.isdisjoint(given) and self._slave_status is None:
            kind = self._store.plain_kind(topic, tuple(dict.fromkeys((*given, UNIQ_KEY, *self._made))), self._made)
        self._kinds[names] = kind
        return kind

    @staticmethod
    def _note_slaves(sent: Sent, messages: Sequence[NewMessage], status: PutStatus) -> None:
        """Set the status for a missing slave on messages whose producer waits."""
        rows = list(sent.rows)
        for number, message in enumerate(messages):
            waits = message.property_map().get(WAIT, "true").lower() == "true"
            if waits and rows[number][0] == PutStatus.PUT_OK:
                rows[number] = (status.value, *rows[number][1:])
        sent.rows = rows

    def _note_later(self, sent: Sent, messages: Sequence[NewMessage]) -> None:
        """Record which messages are delayed, and until when."""
        later = {}
        for number, (message, row) in enumerate(zip(messages, sent.rows, strict=True)):
            if row[3] != message.topic and is_for_later(properties := message.property_map()):
                due = due_time(properties, self._delays, row[-1] or 0)
                if due is not None:
                    later[number] = Later(message.topic, due)
        sent.later = later

    def _done(self, sent: Sent) -> Sent:
        """Save topics that were created, once one of their messages is stored; then flush and dispatch if due."""
        if sent.stored and self._topics.save_changed() and self._groups is not None:
            self._groups.add_own()
            self._groups.save_changed()
        if len(sent) == 1:
            self._store.tick_soon()
        else:
            self._store.tick()
        return sent

    @property
    def takes_columns(self) -> bool:
        """Whether messages may come as columns."""
        return self._slave_status is None

    def send_incoming(self, incoming: Any, work: ColumnWork) -> Sent | None:
        """Store messages that ``work`` has read, and return their results; None if they must be sent one by one."""
        names = incoming.properties
        if len(incoming) > MOST_KEYS or not MATTERS.isdisjoint(names) or WAIT in names or not all(incoming.bodies):
            return None
        queue_ids = self._queue_ids(incoming)
        if queue_ids is None:
            return None
        count, topics = len(incoming), incoming.topics
        keys = work.keys(incoming.properties, self._keys.take(count))
        properties = {
            **incoming.properties,
            UNIQ_KEY: keys,
            WAIT: "true",
            **broker_properties(self._config),
        }
        bodies, sys_flags = self._compressed_bodies(incoming.bodies)
        columns = MessageColumns(
            topics.values[0] if len(topics.values) == 1 else [topics.values[code] for code in topics.codes.tolist()],
            bodies,
            work.texts(properties, count, self._text_of),
            queue_ids,
            incoming.flags,
            sys_flags,
        )
        put = self._store.put_columns(columns)
        host = self._store.store_host
        if put.refused:
            sent = sent_columns(keys.to_pylist(), [columns.message(row) for row in range(count)], put, host)
        else:
            prefix = encode_offset_msg_id(*host, 0)[:-_PLACE_DIGITS]
            sent = Sent(None)
            sent.lines = count, work.lines(keys, topics, queue_ids, put, prefix)
        return self._done(sent)

    def full_disk(self) -> str | None:
        """Return the error if the disk is too full for messages, else None."""
        return self._store.full_disk()

    def _queue_ids(self, incoming: Any) -> Any | None:
        """Return the queue of each message, chosen if it names none; None if a topic or a queue is refused."""
        import numpy as np

        codes = incoming.topics.codes
        try:
            found = [self._queues.get(topic) or self._find_topic(topic) for topic in incoming.topics.values]
        except (UsageError, NotFound, Refused):
            return None
        counts, limits = (np.array(column, np.int64)[codes] for column in zip(*found, strict=True))
        queue_ids = incoming.queue_ids
        if (queue_ids < ANY_QUEUE).any() or (queue_ids >= limits).any():
            return None
        is_free = queue_ids == ANY_QUEUE
        if not is_free.any():
            return queue_ids
        queue_ids = queue_ids.copy()
        sharding_keys = incoming.properties.get(SHARDING_KEY)
        if sharding_keys is not None:
            every = [sharding_keys] * len(codes) if isinstance(sharding_keys, str) else sharding_keys.to_pylist()
            for row in np.flatnonzero(is_free).tolist():
                if every[row] is not None:
                    queue_ids[row] = queue_index_by_key(every[row], int(counts[row]))
                    is_free[row] = False
        for code in np.unique(codes[is_free]).tolist():
            rows = np.flatnonzero(is_free & (codes == code))
            topic = incoming.topics.values[code]
            queue_ids[rows] = (self._turn_of(topic) + np.arange(len(rows))) % counts[rows]
            self._turns[topic] += len(rows)
        return queue_ids

    def _turn_of(self, topic: str) -> int:
        """Return the number of a topic's next message. Its queue is the remainder by the number of queues."""
        if topic not in self._turns:
            self._turns[topic] = _random_turn() if self._first_turn is None else self._first_turn
        return self._turns[topic]

    def _compressed_bodies(self, bodies: list[bytes]) -> tuple[list[bytes], list[int] | int]:
        """Return bodies as a client sends them, and the flags of the compressed ones."""
        large = [row for row, body in enumerate(bodies) if COMPRESS_OVER <= len(body) <= self._config.max_message_size]
        if not large:
            return bodies, 0
        sys_flags = [0] * len(bodies)
        for row in large:
            bodies[row] = compress_body(BodyCodec.ZLIB, bodies[row])
            sys_flags[row] = compression_flag(BodyCodec.ZLIB)
        return bodies, sys_flags

    def send_batch(self, messages: Sequence[NewMessage]) -> Sent:
        """Store messages of one topic as a client's batch: in one queue, all or none."""
        refusal = check_batch([Outgoing(one.topic, one.body or b"", dict(one.property_map())) for one in messages])
        if refusal is not None:
            raise UsageError(refusal, hint="--batch 1 sends each by itself")
        first = self._placed(messages[0])
        keys = [message.property_map().get(UNIQ_KEY) or self._keys.next() for message in messages]
        items = [self._batch_item(message, key) for message, key in zip(messages, keys, strict=True)]
        # upstream: 5.3 gives the batch a key of its own, which replaces those of its messages (#9416).
        shared = {CLUSTER: self._config.broker_cluster_name}
        ticket = self._store.put_batch(replace(first, body=encode_batch(items), properties=shared, flag=0))
        return self._done(sent_batch(keys, ticket))

    def _batch_item(self, message: NewMessage, key: str) -> BatchItem:
        properties = {WAIT: "true", **message.property_map(), UNIQ_KEY: key}
        return BatchItem(message.flag, message.body or b"", property_text(properties, BUILT_BINS, terminated=False))

    def _placed(self, message: NewMessage) -> NewMessage:
        """Return the message with its queue chosen."""
        if message.queue_id == ANY_QUEUE:
            count, _ = self._queues[message.topic]
            sharding_key = message.property_map().get(SHARDING_KEY)
            if sharding_key is not None:
                message.queue_id = queue_index_by_key(sharding_key, count)
            else:
                message.queue_id = self._turn_of(message.topic) % count
                self._turns[message.topic] += 1
        return message

    def _compressed(self, message: NewMessage) -> NewMessage:
        if message.body is not None and COMPRESS_OVER <= len(message.body) <= self._config.max_message_size:
            return compressed(message, BodyCodec.ZLIB)
        return message

    def _received(self, message: NewMessage, key: str) -> NewMessage:
        sent = {WAIT: "true", **message.property_map(), UNIQ_KEY: key}
        return as_received(message, self._config, key, sent)

    def _columns_of(self, messages: Sequence[NewMessage], keys: Sequence[str]) -> MessageColumns | None:
        """Return plain messages as columns, as the broker stores them; None if one is not plain."""
        texts, added = [], broker_properties(self._config)
        for message, key in zip(messages, keys, strict=True):
            given = message.property_map()
            names = tuple(given)
            maker = self._makers.get(names) or self._maker_of(names)
            if maker is None:
                return None
            texts.append(maker({WAIT: "true", **given, UNIQ_KEY: key, **added}))
        return MessageColumns(
            [message.topic for message in messages],
            [message.body or b"" for message in messages],
            texts,
            [message.queue_id for message in messages],
            [message.flag for message in messages],
            [message.sys_flag for message in messages],
        )

    def _maker_of(self, names: tuple[str, ...]) -> _Text | None:
        """Return a function that makes the text of a client's properties, and keep it for the next such message.

        None if they need a closer look.
        """
        if not MATTERS.isdisjoint(names):
            return None
        if len(self._makers) >= _MOST_MAKERS:
            self._makers.clear()
        whole = tuple(dict.fromkeys((*names, UNIQ_KEY, WAIT, *broker_properties(self._config))))
        maker = self._makers[names] = self._text_of(whole)
        return maker

    def _text_of(self, whole: tuple[str, ...]) -> _Text:
        """Return a function that makes the text of all stored properties of a message."""
        if self._config.version is not Version.V4_9:
            return self._store.text_maker(whole)
        return _stored_text(whole)

    def _find_topic(self, topic: str) -> tuple[int, int]:
        """Return the number of queues of a topic: those to use in turn, and all that are accepted."""
        version = self._config.version
        refusal = check_topic_name(topic, version)
        if refusal is None and not is_allowed_to_send(topic, version):
            refusal = f"topic {topic} is the broker's own, and clients cannot send to it"
        if refusal is not None:
            raise UsageError(refusal, hint="rmqtool topic STORE list")
        config = self._topics.find(topic)
        if config is None and self._creates:
            config = self._make(topic)
        elif config is None:
            near = get_close_matches(topic, self._topics.table, n=1)
            hint = f"did you mean {near[0]}? --create creates a new topic" if near else "--create creates it"
            raise NotFound(f"there is no topic {topic}", hint=hint)
        if not int(config.get("perm", 0)) & self._config.broker_permission & PERM_WRITE:
            raise self._not_writeable(topic)
        count = int(config.get("writeQueueNums") or 0) or 1
        self._queues[topic] = count, max(count, int(config.get("readQueueNums") or 0))
        return self._queues[topic]

    def _not_writeable(self, topic: str) -> Refused:
        if not self._config.broker_permission & PERM_WRITE:
            hint = f"--conf brokerPermission={PERM_READ | PERM_WRITE} sends anyway"
            return Refused("this broker does not allow writes: see brokerPermission (NO_PERMISSION)", hint=hint)
        return Refused(f"topic {topic} is not writable", hint=f"rmqtool topic STORE alter {topic} --perm rw")

    def _make(self, topic: str) -> TopicConfig:
        """Create a topic as a broker does for a client; it is saved with its first message."""
        is_allowed = self._config.auto_create_topic_enable
        if is_allowed:
            self._topics.add_own(self._config)
        made = self._topics.auto_create(topic, AUTO_CREATE_TOPIC, DEFAULT_QUEUES) if is_allowed else None
        if made is None:
            raise Refused(
                f"there is no topic {topic}, and this broker does not create topics: autoCreateTopicEnable is false",
                hint=f"rmqtool topic STORE create {topic} --queues {DEFAULT_QUEUES}",
            )
        return made


def status_without_slave(config: StoreConfig) -> PutStatus | None:
    """Return the answer of a broker without a slave; None if that makes no difference.

    upstream: 5.x waits for ``inSyncReplicas`` brokers, including itself; 4.9 looks for a slave first.
    """
    if config.broker_role is not BrokerRole.SYNC_MASTER:
        return None
    if config.version is Version.V4_9:
        return PutStatus.SLAVE_NOT_AVAILABLE
    return PutStatus.FLUSH_SLAVE_TIMEOUT if config.in_sync_replicas > 1 else None


def _random_turn() -> int:
    """Return where a client begins. upstream: ThreadLocalIndex."""
    return randrange(INT_MAX)  # noqa: S311  (not a secret)


@contextmanager
def open_producer(
    root: str,
    config: StoreConfig,
    *,
    creates: bool = False,
) -> Iterator[Producer]:
    """Open the store at ``root`` for a producer; at the end everything is durable, including queues and index."""
    with opened_at(root, config) as store:
        clock = store.setup.clock
        topics = TopicConfigs(config_text(store.setup.files, TOPICS), config.version, clock)
        groups = SubscriptionGroups(config_text(store.setup.files, SUBSCRIPTION_GROUP), config, clock)
        yield Producer(store, topics, groups, creates=creates)
