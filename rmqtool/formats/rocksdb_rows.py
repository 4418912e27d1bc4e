"""Keys and values of the RocksDB databases of 5.x. Nothing here opens a database.

Numbers are big-endian, ``|`` is the byte 0x01, texts are UTF-8::

    queue entry     topic length (4) | topic | queue id (4) | queue offset (8)
    queue bound     topic length (4) | topic | max or min | queue id (4)
    configuration   0x01, table (2), then 0x01 data_version, or 0x02 name length (2), name, and for offsets
                    | name length (2), name | queue id (4)
    POP state       time when visible again (8) group@topic@ queue id (4) @ queue offset (8)
    index           hour (8) @topic@kind@key@unique key@ physical offset (8); kind is K, T (tag) or U (unique key only)
    timer           delivery time (8) unique key
    transaction     physical offset (8) @topic@transaction id

The fixed parts of the values are in ``declarations``. A key is accepted only if encoding it gives the same bytes; every
other key is a ``Flaw``.

Upstream: ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``, ``ConfigHelper`` (v2),
``PopConsumerRecord``, ``IndexRocksDBRecord``, ``TimerRocksDBRecord``, ``TransRocksDBRecord``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from rmqtool.formats import layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import decode_pop_id
from rmqtool.formats.java import decode_text, encode_text
from rmqtool.formats.layout import Buffer, Layout, LayoutError

# The byte that the table above shows as ``|``.
SEPARATOR = b"\x01"
# The topic of one row among the bounds that is not a bound: it has the place of the last dispatched record.
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
# The first number in a key of the index is the store time rounded down to this.
HOUR_MS = 3_600_000

# The keys of bookkeeping rows, plain names among the other keys: of a data version, and those of the databases of the
# index, of timers and of transactions.
KV_DATA_VERSION_KEY = b"kvDataVersionKey"
INDEX_BOOKKEEPING = (b"lastOffsetPy", b"lastStoreTimeStamp")
TIMER_BOOKKEEPING = (b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint")
TRANS_BOOKKEEPING = (b"lastOffsetPy",)

_INT = layouts.INT
_SHORT = layouts.SHORT
_LONG = layouts.LONG
_QUEUE_TAIL = layouts.ROCKSDB_QUEUE_KEY_TAIL

Key = TypeVar("Key", bound=tuple[Any, ...])
Value = TypeVar("Value", bound=tuple[Any, ...])


def _flaw(what: str, row: Buffer) -> Flaw:
    return Flaw("RX-ROW", f"{what} does not parse: {bytes(row[:64]).hex()}", 0, len(row))


def _proven(what: str, key: bytes, found: Key, encode: Callable[[Key], bytes]) -> Key | Flaw:
    """Return the parts ``found`` in ``key`` if encoding them gives the same bytes, else a flaw."""
    try:
        return found if encode(found) == key else _flaw(what, key)
    except LayoutError:  # replacing malformed text made it longer than its field
        return _flaw(what, key)


def decode_row_value(layout: Layout[Value], value: Buffer) -> Value | Flaw:
    """Return a value by its layout; a flaw if it is shorter or longer."""
    return layout.decode(value) if len(value) == layout.size else _flaw(layout.name, value)


class QueueRowKey(NamedTuple):
    """Key of a queue entry in RocksDB."""

    topic: str
    queue_id: int
    queue_offset: int


def encode_queue_key(key: QueueRowKey) -> bytes:
    topic = encode_text(key.topic)
    return _INT.pack(len(topic)) + SEPARATOR + topic + _QUEUE_TAIL.pack(1, key.queue_id, 1, key.queue_offset)


def decode_queue_key(key: bytes) -> QueueRowKey | Flaw:
    """Return the parts of the key of a queue entry; a flaw for any other key."""
    topic_at, topic_end = _INT.size + 1, len(key) - _QUEUE_TAIL.size
    if topic_end < topic_at:
        return _flaw("queue key", key)
    tail = _QUEUE_TAIL.decode(key, topic_end)
    found = QueueRowKey(decode_text(key[topic_at:topic_end]), tail.queue_id, tail.queue_offset)
    return _proven("queue key", key, found, encode_queue_key)


class BoundRowKey(NamedTuple):
    """Key of a queue's bound; ``bound`` is ``max`` or ``min``."""

    topic: str
    bound: str
    queue_id: int


def encode_bound_key(key: BoundRowKey) -> bytes:
    topic = encode_text(key.topic)
    return SEPARATOR.join((_INT.pack(len(topic)), topic, encode_text(key.bound), _INT.pack(key.queue_id)))


def decode_bound_key(key: bytes) -> BoundRowKey | Flaw:
    """Return the parts of the key of a queue's bound; a flaw for any other key."""
    # ``max`` and ``min`` are both three letters, so the end of the topic is found from the end of the key.
    names = key[_INT.size + 1 : -_INT.size - 1]
    topic, bound = names[:-4], names[-3:]
    if bound not in (b"max", b"min"):
        return _flaw("bound key", key)
    (queue_id,) = _INT.unpack_from(key, len(key) - _INT.size)
    found = BoundRowKey(decode_text(topic), decode_text(bound), queue_id)
    return _proven("bound key", key, found, encode_bound_key)


def decode_bound_value(value: bytes) -> layouts.RocksDBOffsetValue | None:
    """Return a queue's bound; None for a value of another size, as that of the last dispatched record (one number)."""
    layout = layouts.ROCKSDB_OFFSET_VALUE
    return layout.decode(value) if len(value) == layout.size else None


class ConfigTable(IntEnum):
    """Tables of version 2 of the configuration database."""

    CONSUMER_OFFSET = 1
    PULL_OFFSET = 2
    TOPIC = 3
    SUBSCRIPTION_GROUP = 4


class ConfigRowKey(NamedTuple):
    """Key of a row of version 2 of the configuration; ``names`` is () for a data version, (name,) or (group, topic)."""

    table: int
    names: tuple[str, ...]
    queue_id: int | None = None


# Key of version 2: 0x01, table (2 bytes), then ``_DATA_VERSION``, or ``_DATA`` and the names, each after its length
# (2 bytes). In the tables of offsets a separator follows each of the two names, then comes the queue id (4 bytes).
_TABLE_PREFIX = b"\x01"
_DATA_VERSION = b"\x01data_version"
_DATA = b"\x02"


def table_prefix(table: int) -> bytes:
    """Return the beginning of the keys of one table of version 2."""
    return _TABLE_PREFIX + _SHORT.pack(table)


def encode_config_key(key: ConfigRowKey) -> bytes:
    """Return the key of a row of version 2 of the configuration; without names it is that of a data version."""
    head = table_prefix(key.table)
    if not key.names:
        return head + _DATA_VERSION
    texts = [encode_text(name) for name in key.names]
    joined = SEPARATOR.join(_SHORT.pack(len(text)) + text for text in texts)
    queue = b"" if key.queue_id is None else SEPARATOR + _INT.pack(key.queue_id)
    return head + _DATA + joined + queue


def decode_config_key(key: bytes) -> ConfigRowKey | Flaw:
    """Return the parts of a key of version 2 of the configuration, in which names come after their lengths."""
    at = len(_TABLE_PREFIX) + _SHORT.size
    if len(key) <= at:
        return _flaw("configuration key", key)
    (table,) = _SHORT.unpack_from(key, len(_TABLE_PREFIX))
    offsets = table in (ConfigTable.CONSUMER_OFFSET, ConfigTable.PULL_OFFSET)
    names: list[str] = []
    if key[at:] != _DATA_VERSION:
        for _ in range(2 if offsets else 1):
            name_at = at + 1 + _SHORT.size
            if name_at > len(key):
                return _flaw("configuration key", key)
            at = name_at + max(_SHORT.unpack_from(key, at + 1)[0], 0)
            names.append(decode_text(key[name_at:at]))
    queue_id = None
    if offsets and names:
        if at + 1 + _INT.size > len(key):
            return _flaw("configuration key", key)
        (queue_id,) = _INT.unpack_from(key, at + 1)
    return _proven("configuration key", key, ConfigRowKey(table, tuple(names), queue_id), encode_config_key)


# The first byte of the value of a topic or group: it is serialized as JSON.
_JSON = b"\x01"


def encode_config_json(text: str) -> bytes:
    """Return the value of a topic or group: a byte for the serialization, 1 for JSON, then the text."""
    return _JSON + encode_text(text)


def decode_config_json(value: bytes) -> str | Flaw:
    """Return the JSON text of a topic or group: what follows the byte for the serialization, which must be 1."""
    return decode_text(value[1:]) if value[:1] == _JSON else _flaw("configuration value", value)


class PopRowKey(NamedTuple):
    """Key of a popped message that is not acknowledged; ``visibility_timeout`` is when it is visible again, in ms."""

    visibility_timeout: int
    group: str
    topic: str
    queue_id: int
    queue_offset: int


def encode_pop_key(key: PopRowKey) -> bytes:
    names = encode_text(f"{key.group}@{key.topic}@")
    return _LONG.pack(key.visibility_timeout) + names + _INT.pack(key.queue_id) + b"@" + _LONG.pack(key.queue_offset)


def decode_pop_key(key: bytes) -> PopRowKey | Flaw:
    """Return the parts of a key of POP's state; the group ends at the first ``@``."""
    offset_at = len(key) - _LONG.size
    queue_at = offset_at - 1 - _INT.size
    if queue_at <= _LONG.size:
        return _flaw("POP key", key)
    group, _, topic = decode_text(key[_LONG.size : queue_at - 1]).partition("@")
    numbers = _INT.unpack_from(key, queue_at)[0], _LONG.unpack_from(key, offset_at)[0]
    found = PopRowKey(_LONG.unpack_from(key)[0], group, topic, *numbers)
    return _proven("POP key", key, found, encode_pop_key)


class IndexRowKey(NamedTuple):
    """Key of a row of 5.4's index. ``kind`` is K, T or U; ``text`` is the part between kind and offset.

    ``hour`` is the store time in ms, rounded down to the hour. ``@`` is not escaped, so a topic or key that contains
    one is ambiguous: ``topic`` ends at the first ``@``.
    """

    hour: int
    topic: str
    kind: str
    text: str
    physical_offset: int

    @property
    def key(self) -> str:
        """The key or tag; of a row for a unique key alone, that key."""
        return self._parts()[0]

    @property
    def uniq_key(self) -> str:
        return self._parts()[1]

    def _parts(self) -> tuple[str, str]:
        """Split at the last ``@``, or before the unique key of a POP record, which contains some.

        Without an ``@`` the unique key is empty.
        """
        if self.kind == "U":
            return self.text, self.text
        words = self.text.split("@")
        for number in range(1, len(words)):
            uniq_key = "@".join(words[number:])
            if number == len(words) - 1 or decode_pop_id(uniq_key) is not None:
                return "@".join(words[:number]), uniq_key
        return self.text, ""


def encode_index_key(key: IndexRowKey) -> bytes:
    text = encode_text(f"@{key.topic}@{key.kind}@{key.text}@")
    return _LONG.pack(key.hour) + text + _LONG.pack(key.physical_offset)


def decode_index_key(key: bytes) -> IndexRowKey | Flaw:
    """Return the parts of a key of the index; a bookkeeping row is a flaw."""
    offset_at = len(key) - _LONG.size
    parts = decode_text(key[_LONG.size : offset_at]).split("@", 3)
    if offset_at < _LONG.size or len(parts) < 4 or parts[2] not in ("K", "T", "U"):
        return _flaw("index key", key)
    numbers = _LONG.unpack_from(key)[0], _LONG.unpack_from(key, offset_at)[0]
    # The last part still has the ``@`` that comes before the offset.
    found = IndexRowKey(numbers[0], parts[1], parts[2], parts[3][:-1], numbers[1])
    return _proven("index key", key, found, encode_index_key)


class TimerRowKey(NamedTuple):
    """Key of a timer message in 5.4's database; ``deliver_time`` is in ms."""

    deliver_time: int
    uniq_key: str


def encode_timer_key(key: TimerRowKey) -> bytes:
    return _LONG.pack(key.deliver_time) + encode_text(key.uniq_key)


def decode_timer_key(key: bytes) -> TimerRowKey | Flaw:
    """Return the parts of a key of the timer; a bookkeeping row is a flaw."""
    if len(key) < _LONG.size or key in TIMER_BOOKKEEPING:
        return _flaw("timer key", key)
    found = TimerRowKey(_LONG.unpack_from(key)[0], decode_text(key[_LONG.size :]))
    return _proven("timer key", key, found, encode_timer_key)


class TransRowKey(NamedTuple):
    """Key of a half message in 5.4's database, with its place in the commit log."""

    physical_offset: int
    topic: str
    transaction_id: str


def encode_trans_key(key: TransRowKey) -> bytes:
    return _LONG.pack(key.physical_offset) + encode_text(f"@{key.topic}@{key.transaction_id}")


def decode_trans_key(key: bytes) -> TransRowKey | Flaw:
    """Return the parts of a key of a transaction; a bookkeeping row is a flaw."""
    parts = decode_text(key[_LONG.size :]).split("@", 2)
    if len(key) < _LONG.size or len(parts) < 3:
        return _flaw("transaction key", key)
    found = TransRowKey(_LONG.unpack_from(key)[0], parts[1], parts[2])
    return _proven("transaction key", key, found, encode_trans_key)
