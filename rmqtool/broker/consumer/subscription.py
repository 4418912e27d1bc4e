"""What a group wants of a topic: by tag, or by a SQL92 selector.

Upstream: ``SubscriptionData``, ``PullAPIWrapper.processPullResult``. The hash of a tag is compared where the queue is
read, its text where the message is.

Where a consumer begins in a queue. Upstream: ``RebalancePushImpl.computePullFromWhere``.
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
    """A filter for one topic; with a ``selector`` the tags do not count."""

    tags: TagExpression
    selector: Selector | None = None

    @property
    def is_everything(self) -> bool:
        """Whether all messages are wanted."""
        return self.selector is None and self.tags.everything

    def wants_unit(self, tags_code: int | None) -> bool:
        """Tell whether the record of a unit is worth reading."""
        return self.selector is not None or self.tags.matches_code(tags_code)

    def wants(self, message: Message) -> bool:
        """Tell whether a message reaches the consumer."""
        if self.selector is not None:
            return self.selector.matches(message.properties)
        return self.tags.matches(message.tags)


EVERYTHING = Subscription(parse_tags("*"))


# How long before its start a consumer begins that starts by time and was told none.
DEFAULT_BACK = 30 * 60 * 1000

_TIME = "%Y%m%d%H%M%S"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ConsumeFromWhere(StrEnum):
    """What a group without progress begins with."""

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

    The three names that upstream deprecates mean the last offset. What lies below the queue's first message is
    corrected by the first read.
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
    """Return a time (ms) as clients are told it: local, to the second."""
    return f"{(_EPOCH + timedelta(milliseconds=time)).astimezone(zone):{_TIME}}"


def parse_consume_timestamp(text: str, zone: tzinfo) -> int | None:
    """Return the time (ms) that ``yyyyMMddHHmmss`` stands for, None when it is no time."""
    if len(text) != 14 or not text.isascii() or not text.isdigit():
        return None
    try:
        local = datetime.strptime(text, _TIME).replace(tzinfo=zone)
    except ValueError:
        return None
    return (local - _EPOCH) // timedelta(milliseconds=1)


def default_consume_timestamp(now: int) -> int:
    """Return the time (ms) that a consumer begins with that starts ``now`` and was told none."""
    return (now - DEFAULT_BACK) // 1000 * 1000
