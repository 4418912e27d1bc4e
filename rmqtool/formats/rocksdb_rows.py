"""Keys and values of the RocksDB stores of 5.x; the databases are opened elsewhere.

Upstream: ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``, ``ConfigHelper`` (v2),
``PopConsumerRecord``, ``IndexRocksDBRecord``, ``TimerRocksDBRecord``, ``TransRocksDBRecord``. A row that does not
parse is a ``Flaw``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text, encode_text
from rmqtool.formats.layout import Buffer

SEPARATOR = b"\x01"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
HOUR_MS = 3_600_000
KV_DATA_VERSION_KEY = b"kvDataVersionKey"

_INT = layouts.INT
_SHORT = layouts.SHORT
_LONG = layouts.LONG


def _flaw(what: str, key: bytes) -> Flaw:
    return Flaw("RX-ROW", f"{what} does not parse: {key[:64].hex()}", 0, len(key))


class QueueRowKey(NamedTuple):
    """Key of a queue unit."""

    topic: str
    queue_id: int
    queue_offset: int


def encode_queue_key(key: QueueRowKey) -> bytes:
    """Return the key of a queue unit."""
    topic = encode_text(key.topic)
    tail = layouts.ROCKSDB_QUEUE_KEY_TAIL.packer.pack(1, key.queue_id, 1, key.queue_offset)
    return _INT.packer.pack(len(topic)) + SEPARATOR + topic + tail


def decode_queue_key(key: bytes) -> QueueRowKey | Flaw:
    """Return what the key of a queue unit says."""
    head = _INT.size + len(SEPARATOR)
    topic_end = len(key) - layouts.ROCKSDB_QUEUE_KEY_TAIL.size
    if topic_end < head or _INT.unpack_from(key)[0] != topic_end - head:
        return _flaw("queue key", key)
    tail = layouts.ROCKSDB_QUEUE_KEY_TAIL.decode(key, topic_end)
    if tail.separator_1 != 1 or tail.separator_2 != 1 or key[_INT.size : head] != SEPARATOR:
        return _flaw("queue key", key)
    return QueueRowKey(decode_text(key[head:topic_end]), tail.queue_id, tail.queue_offset)


class BoundRowKey(NamedTuple):
    """Key of a queue's bound; ``bound`` is ``max`` or ``min``."""

    topic: str
    bound: str
    queue_id: int


def encode_bound_key(key: BoundRowKey) -> bytes:
    """Return the key of a queue's bound."""
    topic = encode_text(key.topic)
    parts = (_INT.packer.pack(len(topic)), topic, key.bound.encode("ascii"), _INT.packer.pack(key.queue_id))
    return SEPARATOR.join(parts)


def decode_bound_key(key: bytes) -> BoundRowKey | Flaw:
    """Return what the key of a bound says."""
    head = _INT.size + len(SEPARATOR)
    if len(key) < head:
        return _flaw("bound key", key)
    (length,) = _INT.unpack_from(key)
    rest = key[head + max(length, 0) :]
    if length < 0 or len(rest) != 2 * len(SEPARATOR) + 3 + _INT.size or rest[1:4] not in (b"max", b"min"):
        return _flaw("bound key", key)
    (queue_id,) = _INT.unpack_from(rest, len(rest) - _INT.size)
    return BoundRowKey(decode_text(key[head : head + length]), rest[1:4].decode("ascii"), queue_id)


def decode_bound_value(value: bytes) -> layouts.RocksDBOffsetValue | None:
    """Return where a bound lies; None for the row of the last dispatched record, which holds one number."""
    layout = layouts.ROCKSDB_OFFSET_VALUE
    return layout.decode(value) if len(value) == layout.size else None


class ConfigTable(IntEnum):
    """Tables of the v2 configuration database."""

    CONSUMER_OFFSET = 1
    PULL_OFFSET = 2
    TOPIC = 3
    SUBSCRIPTION_GROUP = 4


class ConfigRowKey(NamedTuple):
    """Key of a v2 configuration row; ``names`` is () for a data version, (name) or (group, topic)."""

    table: int
    names: tuple[str, ...]
    queue_id: int | None = None


_TABLE_PREFIX = 1
_RECORD_DATA_VERSION = 1
_RECORD_DATA = 2


def encode_config_key(key: ConfigRowKey) -> bytes:
    """Return the key of a v2 configuration row."""
    head = bytes([_TABLE_PREFIX]) + _SHORT.packer.pack(key.table)
    if not key.names:
        return head + bytes([_RECORD_DATA_VERSION]) + b"data_version"
    texts = [encode_text(name) for name in key.names]
    joined = SEPARATOR.join(_SHORT.packer.pack(len(text)) + text for text in texts)
    queue = b"" if key.queue_id is None else SEPARATOR + _INT.packer.pack(key.queue_id)
    return head + bytes([_RECORD_DATA]) + joined + queue


def decode_config_key(key: bytes) -> ConfigRowKey | Flaw:
    """Return what the key of a v2 configuration row says."""
    start = 1 + _SHORT.size + 1
    if len(key) < start or key[0] != _TABLE_PREFIX:
        return _flaw("configuration key", key)
    (table,) = _SHORT.unpack_from(key, 1)
    if key[start - 1] == _RECORD_DATA_VERSION:
        return ConfigRowKey(table, ())
    names: list[str] = []
    at = start
    wanted = 2 if table in (ConfigTable.CONSUMER_OFFSET, ConfigTable.PULL_OFFSET) else 1
    while len(names) < wanted:
        if at + _SHORT.size > len(key):
            return _flaw("configuration key", key)
        (length,) = _SHORT.unpack_from(key, at)
        end = at + _SHORT.size + length
        if length < 0 or end > len(key):
            return _flaw("configuration key", key)
        names.append(decode_text(key[at + _SHORT.size : end]))
        at = end + (wanted == 2)
    if wanted == 1:
        return ConfigRowKey(table, tuple(names)) if at == len(key) else _flaw("configuration key", key)
    if at + _INT.size != len(key):
        return _flaw("configuration key", key)
    return ConfigRowKey(table, tuple(names), _INT.unpack_from(key, at)[0])


class PopRowKey(NamedTuple):
    """Key of a POP state row."""

    visibility_timeout: int
    group: str
    topic: str
    queue_id: int
    queue_offset: int


def encode_pop_key(key: PopRowKey) -> bytes:
    """Return the key of a POP state row."""
    head = _LONG.packer.pack(key.visibility_timeout)
    names = encode_text(key.group) + b"@" + encode_text(key.topic) + b"@"
    return head + names + _INT.packer.pack(key.queue_id) + b"@" + _LONG.packer.pack(key.queue_offset)


def decode_pop_key(key: bytes) -> PopRowKey | Flaw:
    """Return what the key of a POP state row says."""
    tail = _INT.size + 1 + _LONG.size
    names = key[_LONG.size : -tail - 1]
    if len(key) < _LONG.size + tail + 2 or b"@" not in names or key[-_LONG.size - 1 : -_LONG.size] != b"@":
        return _flaw("POP key", key)
    group, topic = names.split(b"@", 1)
    (timeout,) = _LONG.unpack_from(key)
    (queue_id,) = _INT.unpack_from(key, len(key) - tail)
    (offset,) = _LONG.unpack_from(key, len(key) - _LONG.size)
    return PopRowKey(timeout, decode_text(group), decode_text(topic), queue_id, offset)


class IndexRowKey(NamedTuple):
    """Key of a 5.4 index row. ``kind`` is K, T or U; ``text`` is everything between kind and offset.

    Nothing escapes ``@``, so a topic or a key with one makes the middle ambiguous: ``topic`` ends at the first ``@``.
    """

    hour: int
    topic: str
    kind: str
    text: str
    physical_offset: int

    @property
    def key(self) -> str:
        """The key or tag; for a unique id, the id."""
        return self.text if self.kind == "U" else self.text.rpartition("@")[0]

    @property
    def uniq_key(self) -> str:
        """The unique id of the message."""
        return self.text if self.kind == "U" else self.text.rpartition("@")[2]


def encode_index_key(key: IndexRowKey) -> bytes:
    """Return the key of an index row."""
    text = encode_text(f"@{key.topic}@{key.kind}@{key.text}@")
    return _LONG.packer.pack(key.hour) + text + _LONG.packer.pack(key.physical_offset)


def decode_index_key(key: bytes) -> IndexRowKey | Flaw:
    """Return what the key of an index row says."""
    text = decode_text(key[_LONG.size : -_LONG.size])
    parts = text.split("@", 3)
    whole = len(key) > 2 * _LONG.size and len(parts) == 4 and parts[0] == "" and parts[3].endswith("@")
    if not whole or parts[2] not in ("K", "T", "U"):
        return _flaw("index key", key)
    (hour,) = _LONG.unpack_from(key)
    (offset,) = _LONG.unpack_from(key, len(key) - _LONG.size)
    return IndexRowKey(hour, parts[1], parts[2], parts[3][:-1], offset)


class TimerRowKey(NamedTuple):
    """Key of a 5.4 timer row."""

    deliver_time: int
    uniq_key: str


def encode_timer_key(key: TimerRowKey) -> bytes:
    """Return the key of a timer row."""
    return _LONG.packer.pack(key.deliver_time) + encode_text(key.uniq_key)


def decode_timer_key(key: bytes) -> TimerRowKey | Flaw:
    """Return what the key of a timer row says; the bookkeeping rows have ASCII names and are flaws here."""
    if len(key) < _LONG.size or key[:1] in (b"s", b"t"):
        return _flaw("timer key", key)
    return TimerRowKey(_LONG.unpack_from(key)[0], decode_text(key[_LONG.size :]))


class TransRowKey(NamedTuple):
    """Key of a 5.4 transaction row."""

    physical_offset: int
    topic: str
    transaction_id: str


def encode_trans_key(key: TransRowKey) -> bytes:
    """Return the key of a transaction row."""
    return _LONG.packer.pack(key.physical_offset) + encode_text(f"@{key.topic}@{key.transaction_id}")


def decode_trans_key(key: bytes) -> TransRowKey | Flaw:
    """Return what the key of a transaction row says."""
    parts = decode_text(key[_LONG.size :]).split("@", 2)
    if len(key) < _LONG.size or len(parts) != 3 or parts[0]:
        return _flaw("transaction key", key)
    return TransRowKey(_LONG.unpack_from(key)[0], parts[1], parts[2])


def decode_long(value: Buffer) -> int | Flaw:
    """Return a value that is one number."""
    if len(value) != _LONG.size:
        return _flaw("number", bytes(value))
    number: int = _LONG.unpack_from(value)[0]
    return number
