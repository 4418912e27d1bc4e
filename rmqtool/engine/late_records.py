"""Records whose properties hold queue offsets: they are encoded under the writer's lock, when those are known.

Upstream: ``MultiDispatch`` (4.9), ``LmqDispatch`` (5.x) for messages that further queues name too, without another
copy of the body; ``BatchConsumeQueue.assignQueueOffset`` for inner batches, which take as many offsets as they hold
messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmqtool.config import StoreConfig
from rmqtool.engine.encoder import Encoder, TopicRules
from rmqtool.engine.message import Host, NewMessage
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.queue_offsets import QueueKey, QueueOffsets
from rmqtool.engine.record import Record
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.dispatch import topic_allows_lmq
from rmqtool.formats.java import parse_short
from rmqtool.formats.topics import LMQ_PREFIX

MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
_WAIT = "WAIT"


class LateParts(NamedTuple):
    """What is known of a record before its queue offsets; ``place``: its queue, the store's host, and now."""

    encoder: Encoder
    message: NewMessage
    rules: TopicRules
    properties: Mapping[str, str]
    place: tuple[int, Host, int]

    def encode(self, properties: Mapping[str, str]) -> Record | PutStatus:
        """Return the record with these properties."""
        text = self.encoder.text(properties, self.message.property_bins)
        return self.encoder.encode(self.message, self.rules, *self.place, text)


class MultiDispatchRecord:
    """A message that names further queues: it holds its offsets in them."""

    def __init__(self, parts: LateParts, queue: QueueKey) -> None:
        self._parts = parts
        self._targets = _targets(parts.encoder, queue, parts.properties[MULTI_DISPATCH])

    def __call__(self, offsets: QueueOffsets) -> tuple[Record, Sequence[QueueKey]] | PutStatus:
        """Return the record, and the queues that it takes an offset of."""
        encoder = self._parts.encoder
        texts = ["" if target is None else str(offsets.next(target)) for target in self._targets]
        properties = {**self._parts.properties, MULTI_QUEUE_OFFSET: ",".join(texts)}
        if encoder.is_4_9:
            properties.pop(_WAIT, None)
        record = self._parts.encode(properties)
        if isinstance(record, PutStatus):
            return record
        if not encoder.is_4_9 and record[0] > encoder.max_body:
            return PutStatus.MESSAGE_ILLEGAL
        # upstream: a queue named twice loses a number, and with it the order of its units.
        return record, [target for target in dict.fromkeys(self._targets) if target is not None]


def _targets(encoder: Encoder, queue: QueueKey, names: str) -> list[QueueKey | None]:
    """Return the queues that are named; None for one that gets no number, as 5.x gives none to plain topics."""
    found: list[QueueKey | None] = []
    for name in names.split(","):
        if encoder.is_4_9:
            light = name.startswith(LMQ_PREFIX) and encoder.config.enable_lmq
            found.append((name, 0 if light else queue[1]))
        else:
            found.append((name, 0) if name.startswith(LMQ_PREFIX) else None)
    return found


def names_queues(topic: str, properties: Mapping[str, str], config: StoreConfig, *, is_4_9: bool) -> bool:
    """Return whether a message gets numbers in further queues."""
    if not properties.get(MULTI_DISPATCH, "").strip():
        return False
    if is_4_9:
        return config.enable_multi_dispatch
    return config.enable_lmq and topic_allows_lmq(topic)


class InnerBatchRecord:
    """A batch stored as one record: it holds the offset of its first message."""

    def __init__(self, parts: LateParts, queue: QueueKey) -> None:
        self._parts = parts
        self._queue = queue

    def __call__(self, offsets: QueueOffsets) -> tuple[Record, Sequence[QueueKey]] | PutStatus:
        """Return the record."""
        properties = {**self._parts.properties, INNER_BASE: str(offsets.next(self._queue))}
        record = self._parts.encode(properties)
        return record if isinstance(record, PutStatus) else (record, ())


def inner_count(properties: Mapping[str, str], sys_flag: int, *, is_batch_topic: bool) -> int | PutStatus:
    """Return how many messages a record of 5.x holds, refused where flag, number and topic contradict each other."""
    is_inner = bool(sys_flag & SysFlag.INNER_BATCH)
    text = properties.get(INNER_NUM)
    if text is not None and not is_inner:
        return PutStatus.MESSAGE_ILLEGAL
    if is_inner and not is_batch_topic:
        return PutStatus.MESSAGE_ILLEGAL
    if text is None:
        return 1
    count = parse_short(text)
    return count if count is not None and count > 0 else PutStatus.MESSAGE_ILLEGAL
