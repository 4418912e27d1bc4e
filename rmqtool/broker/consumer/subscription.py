"""Which messages of a topic a group wants, by tag or by SQL92 selector, and where a new group begins.

Hashes of tags are compared while the queue is read, their texts when the message is. upstream: SubscriptionData,
PullAPIWrapper.processPullResult, RebalancePushImpl.computePullFromWhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from rmqtool.broker.consumer.queue_view import QueueView
from rmqtool.filters.sql92 import Selector
from rmqtool.filters.tags import TagExpression, parse_tags
from rmqtool.formats.commit_log import Message
from rmqtool.formats.topics import RETRY_PREFIX


@dataclass(frozen=True)
class Subscription:
    """A filter for one topic. With a ``selector`` the tags are not used."""

    tags: TagExpression
    selector: Selector | None = None

    @property
    def is_everything(self) -> bool:
        """Whether all messages are wanted."""
        return self.selector is None and self.tags.everything

    def wants_unit(self, tags_code: int | None) -> bool:
        """Return whether the record of a queue entry is worth reading."""
        return self.selector is not None or self.tags.matches_code(tags_code)

    def wants(self, message: Message) -> bool:
        """Return whether a message reaches the consumer."""
        if self.selector is not None:
            return self.selector.matches(message.properties)
        return self.tags.matches(message.tags)


EVERYTHING = Subscription(parse_tags("*"))


# A consumer that starts by time, without a time, begins this long (ms) before its start.
DEFAULT_BACK = 30 * 60 * 1000

_TIME = "%Y%m%d%H%M%S"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ConsumeFromWhere(StrEnum):
    """Where a group without progress begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


def start_offset(
    stored: int | None, where: ConsumeFromWhere, queues: QueueView, topic: str, queue_id: int, timestamp: int
) -> int:
    """Return the offset to begin with; ``stored`` is the group's progress.

    The three names that upstream deprecates mean the last offset. The first read corrects an offset before the queue's
    first message.
    """
    if stored is not None and stored >= 0:
        return stored
    is_retry = topic.startswith(RETRY_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        if is_retry:
            return queues.max_offset(topic, queue_id)
        return queues.offset_by_time(topic, queue_id, timestamp)
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or is_retry:
        return 0
    return queues.max_offset(topic, queue_id)


def encode_consume_timestamp(time: int, zone: tzinfo) -> str:
    """Return a time (ms) in the form of clients: local time, to the second."""
    return f"{(_EPOCH + timedelta(milliseconds=time)).astimezone(zone):{_TIME}}"


def parse_consume_timestamp(text: str, zone: tzinfo) -> int | None:
    """Return the time (ms) of a ``yyyyMMddHHmmss`` text, None if it is not one."""
    if len(text) != 14 or not text.isascii() or not text.isdigit():
        return None
    try:
        local = datetime.strptime(text, _TIME).replace(tzinfo=zone)
    except ValueError:
        return None
    return (local - _EPOCH) // timedelta(milliseconds=1)


def default_consume_timestamp(now: int) -> int:
    """Return the time (ms) from which a consumer begins that starts ``now`` and was given no time."""
    return (now - DEFAULT_BACK) // 1000 * 1000
