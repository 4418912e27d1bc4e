"""Dispatch rules: which queue entries and index keys a record gets. Pure functions of one record.

A broker reads each new record of the log again and *dispatches* it: it writes an entry to the record's queue, entries
to further queues that a property names, and index entries for the unique key and the user's keys. In a queue of delayed
messages the tags code is the time of delivery, which the delay levels give.

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
from rmqtool.formats.java import int64, parse_int, parse_long, parse_short, string_hash
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.property_names import DELAY, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM
from rmqtool.formats.topics import (
    DEFAULT_DELAY_LEVELS,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    parse_delay_levels,
)

_DEFAULT_DELAYS = parse_delay_levels(DEFAULT_DELAY_LEVELS)


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """How a broker's version and settings change the dispatch."""

    delays: tuple[int, ...] = _DEFAULT_DELAYS
    # The settings enableMultiDispatch and enableLmq. With RocksDB queues a broker takes enableLmq for both.
    multi_dispatch: bool = True
    lmq: bool = True
    # From 5.1.1 on, retry, system and delayed messages have no further queues, and a queue name
    # with a slash is ignored.
    guarded: bool = False
    # From 5.4 on, tags are indexed too.
    tag_entries: bool = False


def rules_of(
    version: str, delays: tuple[int, ...] = _DEFAULT_DELAYS, *, multi_dispatch: bool = True, lmq: bool = True
) -> DispatchRules:
    """Return the rules of a broker of ``version``; ``delays`` are those of its delay levels in ms, level 1 first."""
    return DispatchRules(
        delays, multi_dispatch, lmq, guarded=is_since(version, "5.1.1"), tag_entries=is_since(version, "5.4.0")
    )


class QueueEntry(NamedTuple):
    """An entry, and the place in a queue where it belongs."""

    topic: str
    queue_id: int
    queue_offset: int
    unit: ConsumeQueueUnit


def has_queue_unit(sys_flag: int) -> bool:
    """Return whether a record has an entry in its queue.

    Half messages and rollbacks do not, so consumers never see them.
    """
    return sys_flag & TRANSACTION_MASK in (TransactionType.NONE, TransactionType.COMMIT)


def tags_code(message: Message, delays: Sequence[int]) -> int:
    """Return the tags code of a message's entry, before any extension: the hash of the tag.

    It is 0 without a tag. For a message with a delay level in the delay queues it is the time of delivery in ms, which
    a broker compares with its clock.
    """
    if message.topic == SCHEDULE_TOPIC:
        # A level beyond the last one is the last one, as for a broker.
        level = min(parse_int(message.properties.get(DELAY, "")) or 0, len(delays))
        if level > 0:
            return int64(message.store_timestamp + delays[level - 1])
    tags = message.tags
    return string_hash(tags) if tags else 0


def queue_entries(message: Message, rules: DispatchRules) -> Iterator[QueueEntry]:
    """Yield the entries of ``message`` in simple queues: that of its own queue first, then those of further queues.

    Half messages and rollbacks have no entries.
    """
    if not has_queue_unit(message.sys_flag):
        return
    code = tags_code(message, rules.delays)
    unit = ConsumeQueueUnit(message.physical_offset, message.total_size, code)
    yield QueueEntry(message.topic, message.queue_id, message.queue_offset, unit)
    for topic, queue_id, queue_offset in dispatch_targets(message, rules):
        yield QueueEntry(topic, queue_id, queue_offset, unit)


def batch_unit(message: Message, delays: Sequence[int]) -> BatchConsumeQueueUnit:
    """Return the entry of ``message`` in a batch queue: one for all messages of an inner batch."""
    count = parse_short(message.properties.get(INNER_NUM, ""))
    base = parse_long(message.properties.get(INNER_BASE, ""))
    # Without both properties the record is a batch of one message.
    if count is None or base is None:
        count, base = 1, message.queue_offset
    place = message.physical_offset, message.total_size, tags_code(message, delays), message.store_timestamp
    return BatchConsumeQueueUnit(*place, base, count, compacted_offset=-1, reserved=0)


def dispatch_targets(message: Message, rules: DispatchRules) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and queue offset of each further queue that a message names.

    Lists of different length name no queue. An offset that is not a number ends the list, because upstream's dispatch
    throws there.
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
        # A light queue is a topic with a single queue.
        light = rules.lmq and name.startswith(LMQ_PREFIX)
        yield name, 0 if light else message.queue_id, queue_offset


def _split(text: str) -> list[str]:
    """Return ``text.split(",")`` as Java does: empty parts at the end are dropped.

    A text of only blanks and commas has no parts.
    """
    return text.rstrip(",").split(",") if text.strip(" ,") else []


def topic_allows_lmq(topic: str) -> bool:
    """Return whether a broker from 5.1.1 on dispatches messages of a topic to further queues."""
    return not topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) and topic != SCHEDULE_TOPIC


def iter_index_texts(message: Message, rules: DispatchRules) -> Iterator[str]:
    """Yield the texts that ``message`` is indexed under, in the order of their entries. Rollbacks are not indexed."""
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
