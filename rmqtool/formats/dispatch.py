"""From a record to its queue units and its index keys, as pure functions.

Upstream: ``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``, ``checkMessageAndReturnSize``
(where the tags code is made), ``LmqDispatch`` / ``MultiDispatch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.formats import index
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.java import string_hash
from rmqtool.formats.layouts import ConsumeQueueUnit

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LMQ_PREFIX = "%LMQ%"
RETRY_PREFIX = "%RETRY%"
SYSTEM_PREFIX = "rmq_sys_"

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of ``messageDelayLevel`` in ms, level 1 first.

    Raises ValueError with the word that is no delay.
    """
    delays = []
    for word in text.split():
        if word[-1] not in _UNIT_MS or not word[:-1].isdecimal():
            raise ValueError(f"{word!r} is no delay: a number and one of s, m, h, d")
        delays.append(int(word[:-1]) * _UNIT_MS[word[-1]])
    return tuple(delays)


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """What a broker's version and settings change in the dispatch."""

    delays: tuple[int, ...] = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    multi_dispatch: bool = True
    lmq: bool = True
    # 5.x: only light queues are targets, always in queue 0, and system topics take no part.
    lmq_targets_only: bool = False
    tag_entries: bool = False


def rules_of(version: str, delays: tuple[int, ...], *, multi_dispatch: bool = True, lmq: bool = True) -> DispatchRules:
    """Return the rules of a broker of ``version``: ``4.9``, ``5.3`` or ``5.4``."""
    return DispatchRules(delays, multi_dispatch, lmq, version != "4.9", version == "5.4")


class QueueEntry(NamedTuple):
    """A unit and the queue it belongs to."""

    topic: str
    queue_id: int
    queue_offset: int
    unit: ConsumeQueueUnit


def has_queue_unit(sys_flag: int) -> bool:
    """Return whether a record of this flag stands in its queue: prepared and rolled-back ones do not."""
    return transaction_type(sys_flag) in (TransactionType.NONE, TransactionType.COMMIT)


def tags_code(message: Message, delays: Sequence[int]) -> int:
    """Return the tags code of a message's unit, before any extension."""
    if message.topic == SCHEDULE_TOPIC:
        level = _level(message.properties.get("DELAY", ""))
        if level > 0:
            level = min(level, len(delays))
            return message.store_timestamp + (delays[level - 1] if delays else 1000)
    tags = message.tags
    return string_hash(tags) if tags else 0


def _level(text: str) -> int:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else 0
    except ValueError:
        return 0


def queue_entries(message: Message, rules: DispatchRules) -> Iterator[QueueEntry]:
    """Yield the units that ``message`` gets: its own queue's first, then those of its extra targets.

    An inner batch belongs to a batch queue; that is the caller's matter.
    """
    if not has_queue_unit(message.sys_flag):
        return
    code = tags_code(message, rules.delays)
    unit = ConsumeQueueUnit(message.physical_offset, message.total_size, code)
    yield QueueEntry(message.topic, message.queue_id, message.queue_offset, unit)
    if rules.multi_dispatch:
        for topic, queue_id, queue_offset in dispatch_targets(message, rules):
            yield QueueEntry(topic, queue_id, queue_offset, unit)


def dispatch_targets(message: Message, rules: DispatchRules) -> Iterator[tuple[str, int, int]]:
    """Yield (topic, queue id, queue offset) of each extra queue a message names.

    A list that does not parse names nothing: upstream's dispatch of it fails as a whole.
    """
    names = message.properties.get("INNER_MULTI_DISPATCH", "").strip()
    offsets = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "").strip()
    if not names or not offsets:
        return
    if rules.lmq_targets_only and not topic_allows_lmq(message.topic):
        return
    names_list, offset_list = names.split(","), offsets.split(",")
    if len(names_list) != len(offset_list) or not all(text.lstrip("-").isdecimal() for text in offset_list):
        return
    for name, offset in zip(names_list, offset_list, strict=True):
        if rules.lmq_targets_only and "/" in name:
            continue
        light = name.startswith(LMQ_PREFIX) and rules.lmq
        own_queue = not rules.lmq_targets_only and not light
        yield name, message.queue_id if own_queue else 0, int(offset)


def topic_allows_lmq(topic: str) -> bool:
    """Return whether messages of a topic may name light queues (5.x)."""
    return not topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) and topic != SCHEDULE_TOPIC


def iter_index_texts(message: Message, rules: DispatchRules) -> Iterator[str]:
    """Yield the texts that ``message`` is indexed under, in the order of the entries."""
    if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
        return
    topic = message.topic
    uniq_key = message.uniq_key
    if uniq_key:
        yield index.key_text(topic, uniq_key)
    for key in (message.keys or "").split(" "):
        if key:
            yield index.key_text(topic, key)
    tags = message.tags
    if rules.tag_entries and tags:
        yield index.tag_key_text(topic, tags)
