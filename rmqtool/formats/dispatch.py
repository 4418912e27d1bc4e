"""From a record to its queue units and its index keys, as pure functions.

Upstream: ``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``, ``checkMessageAndReturnSize``
(where the tags code is made), ``LmqDispatch`` / ``MultiDispatch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.formats import index
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType, is_since
from rmqtool.formats.commit_log import Message
from rmqtool.formats.java import parse_int, parse_long, parse_short, string_hash
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.property_names import DELAY, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM
from rmqtool.formats.topics import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of ``messageDelayLevel`` in ms, level 1 first.

    Raises ValueError with the word that is no delay.
    """
    delays = []
    for word in text.split():
        if word[-1] not in _UNIT_MS or not word[:-1].isdecimal():
            raise ValueError(f"{word!r} is not a delay: write a number and one of s, m, h, d")
        delays.append(int(word[:-1]) * _UNIT_MS[word[-1]])
    return tuple(delays)


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """What a broker's version and settings change in the dispatch."""

    delays: tuple[int, ...] = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    # enableMultiDispatch; with RocksDB queues it is enableLmq that decides both.
    multi_dispatch: bool = True
    lmq: bool = True
    # From 5.1.1: retry, system and delayed messages have no extra queues, and no queue is called like a path.
    guarded: bool = False
    # From 5.4: tags are indexed.
    tag_entries: bool = False


def rules_of(version: str, delays: tuple[int, ...], *, multi_dispatch: bool = True, lmq: bool = True) -> DispatchRules:
    """Return the rules of a broker of ``version``."""
    return DispatchRules(
        delays, multi_dispatch, lmq, guarded=is_since(version, "5.1.1"), tag_entries=is_since(version, "5.4.0")
    )


class QueueEntry(NamedTuple):
    """A unit and the queue it belongs to."""

    topic: str
    queue_id: int
    queue_offset: int
    unit: ConsumeQueueUnit


def has_queue_unit(sys_flag: int) -> bool:
    """Return whether a record of this flag stands in its queue: prepared and rolled-back ones do not."""
    return sys_flag & TRANSACTION_MASK in (TransactionType.NONE, TransactionType.COMMIT)


def tags_code(message: Message, delays: Sequence[int]) -> int:
    """Return the tags code of a message's unit, before any extension."""
    if message.topic == SCHEDULE_TOPIC:
        level = min(parse_int(message.properties.get(DELAY, "")) or 0, len(delays))
        if level > 0:
            return message.store_timestamp + delays[level - 1]
    tags = message.tags
    return string_hash(tags) if tags else 0


def queue_entries(message: Message, rules: DispatchRules) -> Iterator[QueueEntry]:
    """Yield the units that ``message`` gets in simple queues: its own queue's first, then those of extra targets."""
    if not has_queue_unit(message.sys_flag):
        return
    code = tags_code(message, rules.delays)
    unit = ConsumeQueueUnit(message.physical_offset, message.total_size, code)
    yield QueueEntry(message.topic, message.queue_id, message.queue_offset, unit)
    for topic, queue_id, queue_offset in dispatch_targets(message, rules):
        yield QueueEntry(topic, queue_id, queue_offset, unit)


def batch_unit(message: Message, delays: Sequence[int]) -> BatchConsumeQueueUnit:
    """Return the unit that ``message`` gets in a batch queue: one for the whole of an inner batch."""
    count = parse_short(message.properties.get(INNER_NUM, ""))
    base = parse_long(message.properties.get(INNER_BASE, ""))
    if count is None or base is None:
        count, base = 1, message.queue_offset
    place = message.physical_offset, message.total_size, tags_code(message, delays), message.store_timestamp
    return BatchConsumeQueueUnit(*place, base, count, compacted_offset=-1, reserved=0)


def dispatch_targets(message: Message, rules: DispatchRules) -> Iterator[tuple[str, int, int]]:
    """Yield (topic, queue id, queue offset) of each extra queue a message names.

    Lists of different length name nothing. An offset that is no number ends the list: there upstream's dispatch fails.
    """
    if not rules.multi_dispatch or (rules.guarded and not topic_allows_lmq(message.topic)):
        return
    names = _split(message.properties.get(INNER_MULTI_DISPATCH, ""))
    offsets = _split(message.properties.get(INNER_MULTI_QUEUE_OFFSET, ""))
    if len(names) != len(offsets):
        return
    for name, text in zip(names, offsets, strict=True):
        if rules.guarded and "/" in name:
            continue
        queue_offset = parse_long(text)
        if queue_offset is None:
            return
        light = rules.lmq and name.startswith(LMQ_PREFIX)
        yield name, 0 if light else message.queue_id, queue_offset


def _split(text: str) -> list[str]:
    """Return ``text.split(",")`` of Java, which drops empty parts at the end; nothing for a blank text."""
    return text.rstrip(",").split(",") if text.strip(" ,") else []


def topic_allows_lmq(topic: str) -> bool:
    """Return whether messages of a topic may name extra queues (from 5.1.1)."""
    return not topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) and topic != SCHEDULE_TOPIC


def iter_index_texts(message: Message, rules: DispatchRules) -> Iterator[str]:
    """Yield the texts that ``message`` is indexed under, in the order of the entries."""
    if message.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
        return
    topic = message.topic
    uniq_key = message.uniq_key
    if uniq_key:
        yield index.key_text(topic, uniq_key)
    for key in key_tokens(message.properties):
        yield index.key_text(topic, key)
    tags = message.tags
    if rules.tag_entries and tags:
        yield index.tag_key_text(topic, tags)
