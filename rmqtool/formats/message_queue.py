"""Message queues: one queue of a topic on one broker; and the offsets file of a broadcasting consumer.

A broadcasting consumer keeps its offsets on its own machine, in a file ``offsets.json`` whose keys are objects::

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}

An object as a key is not JSON, but both versions of fastjson write and read it.

Upstream: ``MessageQueue``, ``OffsetSerializeWrapper``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rmqtool.formats.config_files import decode_value
from rmqtool.formats.fastjson import INT, LONG, STRING, Bean, BeanField, Dialect, FastjsonError, Table, parse, write
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import INT_MAX, INT_MIN, decode_text, encode_text, hash_map_order, int32, string_hash

_MESSAGE_QUEUE = Bean({"brokerName": BeanField(STRING), "queueId": BeanField(INT), "topic": BeanField(STRING)})
# The shape of the file after its keys were put in quotes.
_OFFSETS = Bean({"offsetTable": BeanField(Table(LONG))})
# The initial size of upstream's map; it doubles when three quarters are full.
_BINS = 16

# An object that contains no object, and the colon that makes it a key.
_KEY = re.compile(r'(\{(?:[^{}"]|"(?:[^"\\]|\\.)*+")*+\})\s*+:', re.DOTALL)


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Queues compare field by field in this order, as upstream's do."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Return the text that Java's ``toString`` gives; consistent hashing hashes it."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


def decode_local_offsets(data: bytes) -> dict[MessageQueue, int] | Flaw:
    """Return the offsets in the order of the file, or why a client does not load it; empty without an offset table."""
    text = _KEY.sub(lambda match: json.dumps(match[1], ensure_ascii=False) + ":", decode_text(data))
    decoded = decode_value(encode_text(text), _OFFSETS)
    if isinstance(decoded, Flaw):
        # The flaw's offset is in the text with quoted keys, so only the file as a whole is named.
        return Flaw(decoded.code, decoded.message)
    table: dict[MessageQueue, int] = {}
    for key, offset in (decoded.value.get("offsetTable") or {}).items():
        queue = _decode_key(key)
        if queue is None:
            return Flaw("CF-JSON", f"$.offsetTable has a key that does not name a queue: {key[:80]}")
        table[queue] = offset
    return table


def _decode_key(text: str) -> MessageQueue | None:
    """Return the queue that a key names, or None. Without a queueId it is 0, the default in Java."""
    try:
        found = parse(text).value
    except FastjsonError:
        return None
    if not isinstance(found, dict):
        return None
    topic, broker_name, queue_id = found.get("topic"), found.get("brokerName"), found.get("queueId", 0)
    if not isinstance(topic, str) or not isinstance(broker_name, str) or not isinstance(queue_id, int):
        return None
    return MessageQueue(topic, broker_name, queue_id) if INT_MIN <= queue_id <= INT_MAX else None


def encode_local_offsets(table: Mapping[MessageQueue, int], dialect: Dialect) -> bytes:
    """Return the file in the order of ``table``, as a client with that version of fastjson writes it."""
    entries = []
    for queue, offset in table.items():
        key = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
        entries.append(write(key, _MESSAGE_QUEUE, dialect).replace("\n", "\n\t\t") + f":{offset}")
    if dialect is Dialect.FASTJSON_1:
        inner = ",".join(entries) + "\n\t" if entries else ""
    else:
        inner = "\n\t\t" + ",\n\t\t".join(entries) + "\n\t"
    return encode_text('{\n\t"offsetTable":{' + inner + "}\n}")


def order_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order in which upstream's map, filled in the given order, iterates over them."""
    listed = list(dict.fromkeys(queues))
    bins = _BINS
    while len(listed) >= bins * 3 // 4:
        bins *= 2
    by_hash: dict[int, list[MessageQueue]] = {}
    for queue in listed:
        by_hash.setdefault(_hash(queue), []).append(queue)
    return [queue for hashed in hash_map_order(by_hash, bins) for queue in by_hash[hashed]]


def _hash(queue: MessageQueue) -> int:
    # MessageQueue.hashCode: 31 times the hash so far plus that of the next field, from 1 on.
    hashed = 31 + string_hash(queue.broker_name)
    hashed = 31 * hashed + queue.queue_id
    return int32(31 * hashed + string_hash(queue.topic))
