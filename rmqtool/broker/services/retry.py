"""Messages that a consumer could not consume: delivered again later, and in the end dead letters.

``stored_again`` turns a stored message into a new one, as each service does to deliver, commit, check, send back or
revive it. upstream makes a MessageExtBrokerInner of a MessageExt in many places, which differ in what they keep.

upstream: AbstractSendMessageProcessor.consumerSendMsgBack for parallel consumers,
SendMessageProcessor.handleRetryAndDLQ for messages that ordered consumers give up,
ConsumeMessageOrderlyService.sendMessageBack.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from rmqtool.broker.groups import SubscriptionGroups
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage, property_text
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.formats.codes import HOST_BITS, TRANSACTION_MASK
from rmqtool.formats.commit_log import Message
from rmqtool.formats.ids import encode_offset_msg_id
from rmqtool.formats.java import parse_int
from rmqtool.formats.properties import BUILT_BINS, DECODED_BINS, decode_properties
from rmqtool.formats.property_names import (
    DELAY,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    PROPERTY_CRC32,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
)
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, dlq_topic, retry_topic


def stored_properties(record: Message) -> dict[str, str]:
    """Return the properties of a record, without the checksum that belongs to the record only."""
    # The record would cache its own mapping; many records are processed at once.
    found = decode_properties(record.raw_properties)
    found.pop(PROPERTY_CRC32, None)
    return found


def text_of(properties: Mapping[str, str], version: Version) -> bytes:
    """Return the property text that a broker makes of a decoded mapping."""
    is_4_9 = version is Version.V4_9
    return property_text(properties, BUILT_BINS if is_4_9 else DECODED_BINS, terminated=not is_4_9)


def stored_again(record: Message, topic: str, queue_id: int, properties: Mapping[str, str]) -> NewMessage:
    """Return a record as a new message with the same body, flag, birth time, hosts and count of deliveries."""
    return NewMessage(
        topic,
        record.raw_body,
        queue_id,
        properties,
        record.flag,
        record.sys_flag & ~HOST_BITS,
        record.born_timestamp,
        (record.born_host_ip, record.born_host_port),
        (record.store_host_ip, record.store_host_port),
        record.reconsume_times,
    )


def with_transaction_type(sys_flag: int, kind: int) -> int:
    """Return a system flag with another transaction type. upstream: resetTransactionValue"""
    return sys_flag & ~TRANSACTION_MASK | kind


@lru_cache(maxsize=256)
def find_number(text: str | None) -> int | None:
    """Return the Java int of a property; None if it is missing or not a number."""
    return None if text is None else parse_int(text)


# Tries of a message if neither its group nor its consumer has a limit.
MOST_RETRIES = 16
# The delay level of the first retry; each later one is one level higher.
FIRST_LEVEL = 3


class Retries:
    """The retry and dead-letter topics of one store."""

    def __init__(
        self, store: MessageStore, topics: TopicConfigs, groups: SubscriptionGroups, chance: Random | None = None
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._version = store.setup.config.version
        self._chance = chance or Random()  # noqa: S311  (which queue, no secret)

    def _config(self, group: str) -> Mapping[str, Any]:
        found = self._groups.find(group)
        return found if isinstance(found, Mapping) else {}

    def most_retries(self, group: str) -> int:
        """Return how often a message of a group is tried again."""
        return int(self._config(group).get("retryMaxTimes", MOST_RETRIES))

    def send_back(
        self, group: str, record: Message, delay_level: int = 0, max_reconsume_times: int | None = None
    ) -> PutTicket | None:
        """Have a group get a message again later, or store it as a dead letter; None when it is dropped."""
        message = self.sent_back(group, record, delay_level, max_reconsume_times)
        return None if message is None else self._store.put(message)

    def sent_back(
        self, group: str, record: Message, delay_level: int = 0, max_reconsume_times: int | None = None
    ) -> NewMessage | None:
        """Return what is put so that a group gets a message again later, or never; None: it is dropped.

        Level 0 is the next level of the schedule, a negative level gives up at once. A group without retry queues does
        not get the message again.
        """
        queues = int(self._config(group).get("retryQueueNums", 1))
        if queues <= 0:
            return None
        most = self.most_retries(group) if max_reconsume_times is None else max_reconsume_times
        properties = stored_properties(record)
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties[WAIT] = "false"
        properties[ORIGIN_MESSAGE_ID] = properties.get(ORIGIN_MESSAGE_ID, "").strip() or encode_offset_msg_id(
            record.store_host_ip, record.store_host_port, record.physical_offset
        )
        if record.reconsume_times >= most or delay_level < 0:
            topic, queues = dlq_topic(group), 1
            properties[DELAY] = "0"
        else:
            topic = retry_topic(group)
            properties[DELAY] = str(delay_level or FIRST_LEVEL + record.reconsume_times)
        message = stored_again(record, topic, self._chance.randrange(queues), properties)
        message.reconsume_times = record.reconsume_times + 1
        if self._version is not Version.V4_9:
            message.store_host = None
        self._topics.ensure(topic, queues, PERM_READ | PERM_WRITE)
        return message

    def give_up(
        self,
        group: str,
        record: Message,
        reconsume_times: int,
        max_reconsume_times: int,
        pulled: tuple[int, int] | None = None,
    ) -> PutTicket:
        """Store a message that an ordered consumer could not consume as a dead letter.

        The consumer sends it to the retry topic with its counts, and the broker sees that its tries are used up.
        ``pulled`` are the bounds of the queue that the consumer's pull returned; by default the current ones.
        """
        low, high = pulled or self._store.reader.bounds(record.topic, record.queue_id)
        properties = stored_properties(record)
        properties[RETRY_TOPIC] = properties.get(RETRY_TOPIC, record.topic)
        origin = properties.get(ORIGIN_MESSAGE_ID, "").strip() or record.uniq_key
        properties |= {
            ORIGIN_MESSAGE_ID: origin
            or encode_offset_msg_id(record.store_host_ip, record.store_host_port, record.physical_offset),
            RECONSUME_TIME: str(reconsume_times),
            MAX_RECONSUME_TIMES: str(max_reconsume_times),
            # The bounds that the pull returned.
            MIN_OFFSET: str(low),
            MAX_OFFSET: str(high),
            DELAY: "0" if self._version is Version.V4_9 else "-1",
        }
        properties.pop(TRAN_MSG, None)
        message = stored_again(record, dlq_topic(group), 0, properties)
        message.reconsume_times = reconsume_times
        message.born_timestamp = message.born_host = message.store_host = None
        self._topics.ensure(message.topic, 1, PERM_READ | PERM_WRITE)
        return self._store.put(message)
