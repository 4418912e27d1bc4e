"""Messages that a consumer could not consume: delivered again later, and in the end dead letters.

upstream: AbstractSendMessageProcessor.consumerSendMsgBack for parallel consumers,
SendMessageProcessor.handleRetryAndDLQ for messages that ordered consumers give up,
ConsumeMessageOrderlyService.sendMessageBack.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from rmqtool.broker.services.redelivery import stored_again, stored_properties
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message
from rmqtool.formats.ids import encode_offset_msg_id
from rmqtool.formats.paths import SUBSCRIPTION_GROUP
from rmqtool.formats.property_names import (
    DELAY,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
)
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, dlq_topic, retry_topic
from rmqtool.store.config_files import load_config

# Tries of a message if neither its group nor its consumer has a limit.
MOST_RETRIES = 16
# The delay level of the first retry; each later one is one level higher.
FIRST_LEVEL = 3


class Retries:
    """The retry and dead-letter topics of one store."""

    def __init__(self, store: MessageStore, topics: TopicConfigs, chance: Random | None = None) -> None:
        self._store = store
        self._topics = topics
        self._version = store.setup.config.version
        self._chance = chance or Random()  # noqa: S311  (which queue, no secret)
        table = load_config(store.setup.files, SUBSCRIPTION_GROUP).get("subscriptionGroupTable") or {}
        self._groups: dict[str, Mapping[str, Any]] = {
            name: one for name, one in table.items() if isinstance(one, Mapping)
        }

    def most_retries(self, group: str) -> int:
        """Return the number of retries of a group's messages."""
        return int(self._groups.get(group, {}).get("retryMaxTimes", MOST_RETRIES))

    def send_back(
        self, group: str, record: Message, delay_level: int = 0, max_reconsume_times: int | None = None
    ) -> PutTicket | None:
        """Have a message delivered to the group again, or store it as a dead letter; return None if it is dropped.

        Level 0 is the next level of the schedule, a negative level gives up at once. A group without retry queues does
        not get the message again.
        """
        queues = int(self._groups.get(group, {}).get("retryQueueNums", 1))
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
        return self._put(record, topic, queues, properties, record.reconsume_times + 1)

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
        return self._put_into(message.topic, 1, message)

    def _put(
        self, record: Message, topic: str, queues: int, properties: dict[str, str], reconsume_times: int
    ) -> PutTicket:
        message = stored_again(record, topic, self._chance.randrange(queues), properties)
        message.reconsume_times = reconsume_times
        if self._version is not Version.V4_9:
            message.store_host = None
        return self._put_into(topic, queues, message)

    def _put_into(self, topic: str, queues: int, message: Any) -> PutTicket:
        self._topics.ensure(topic, queues, PERM_READ | PERM_WRITE)
        return self._store.put(message)
