"""Rows of the RocksDB stores, as the real classes read them: taken apart, written back, and made from the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rmqtool.formats import declarations, layouts, rocksdb_rows
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Layout
from rmqtool.formats.layouts import RocksDBOffsetValue, RocksDBQueueValue
from rmqtool.formats.properties import key_tokens
from tests.agreement.comparisons.queues import derived_units
from tests.agreement.ledger import Subject, comparison
from tests.agreement.logs import messages, report_missing

Row = tuple[bytes, bytes]


def rows(subject: Subject, database: str, family: str) -> list[Row]:
    """Key and value of every row of a column family."""
    found = subject.truth.get("rocksdb", {}).get(database, {}).get(family, [])
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in found]


class Kind(NamedTuple):
    """Rows of one form: where they stand, how their keys and values are taken apart."""

    database: str
    family: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    layout: Layout[Any] | None
    bookkeeping: tuple[bytes, ...] = ()


KINDS = {
    "queue": Kind(
        "consumequeue",
        "default",
        rocksdb_rows.decode_queue_key,
        rocksdb_rows.encode_queue_key,
        layouts.ROCKSDB_QUEUE_VALUE,
    ),
    "bound": Kind(
        "consumequeue",
        "offset",
        rocksdb_rows.decode_bound_key,
        rocksdb_rows.encode_bound_key,
        layouts.ROCKSDB_OFFSET_VALUE,
    ),
    "config": Kind("config/rdb", "default", rocksdb_rows.decode_config_key, rocksdb_rows.encode_config_key, None),
    "pop": Kind("kvStore", "popState", rocksdb_rows.decode_pop_key, rocksdb_rows.encode_pop_key, None),
    "index": Kind(
        "rocksdbstore",
        "default",
        rocksdb_rows.decode_index_key,
        rocksdb_rows.encode_index_key,
        layouts.LONG,
        rocksdb_rows.INDEX_BOOKKEEPING,
    ),
    "timer": Kind(
        "rocksdbstore",
        "timer",
        rocksdb_rows.decode_timer_key,
        rocksdb_rows.encode_timer_key,
        layouts.ROCKSDB_TIMER_VALUE,
        rocksdb_rows.TIMER_BOOKKEEPING,
    ),
    "trans": Kind(
        "rocksdbstore",
        "trans",
        rocksdb_rows.decode_trans_key,
        rocksdb_rows.encode_trans_key,
        layouts.ROCKSDB_TRANS_VALUE,
        rocksdb_rows.TRANS_BOOKKEEPING,
    ),
}


def is_log_end(key: object) -> bool:
    """Whether a bound is the row that says how far the log was dispatched."""
    return isinstance(key, rocksdb_rows.BoundRowKey) and key.topic == rocksdb_rows.CHECKPOINT_TOPIC


def layout_of(kind: Kind, key: Any) -> Layout[Any] | None:
    """The layout of a row's value."""
    if is_log_end(key):
        return layouts.LONG
    if isinstance(key, rocksdb_rows.ConfigRowKey):
        if not key.names:
            return layouts.ROCKSDB_DATA_VERSION
        return layouts.LONG if key.queue_id is not None else None
    return kind.layout


def back(layout: Layout[Any], value: bytes) -> bytes | Flaw:
    """A value decoded and encoded again, or what is wrong with it."""
    found = rocksdb_rows.decode_row_value(layout, value)
    return found if isinstance(found, Flaw) else layout.encode(found)


@comparison("RocksDB rows, written back", rows="rows")
def rows_back(subject: Subject) -> None:
    """Every key and every value gives its own bytes again; nothing is a flaw but the rows of bookkeeping."""
    for name, kind in KINDS.items():
        for key, value in rows(subject, kind.database, kind.family):
            found = kind.decode(key)
            where = f"{name} row {key.hex()}"
            if key in kind.bookkeeping:
                ours = {"flaw": isinstance(found, Flaw), "value": back(layouts.LONG, value)}
                subject.compare(where, ours, {"flaw": True, "value": value})
                continue
            layout = layout_of(kind, found)
            ours = {"flaw": isinstance(found, Flaw), "key": kind.encode(found)}
            if layout is not None:
                ours["value"] = back(layout, value)
            elif isinstance(found, rocksdb_rows.ConfigRowKey):
                text = rocksdb_rows.decode_config_json(value)
                ours["value"] = rocksdb_rows.encode_config_json(text) if isinstance(text, str) else b""
            else:
                ours["value"] = value
            subject.compare(where, ours, {"flaw": False, "key": key, "value": value})


@comparison("RocksDB queue rows, from the log", rows="rows")
def queue_rows(subject: Subject) -> None:
    """Every row is the unit of a record, every record's unit is there, and the bounds agree."""
    found = dict(rows(subject, "consumequeue", "default"))
    if not found:
        return
    times = {message.physical_offset: message.store_timestamp for message in messages(subject.root)}
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for (topic, queue_id), units in derived_units(subject).items():
        for number, unit in units.items():
            key = rocksdb_rows.encode_queue_key(rocksdb_rows.QueueRowKey(topic, queue_id, number))
            made = RocksDBQueueValue(*unit, times[unit.physical_offset])
            parsed = declarations.ROCKSDB_QUEUE_VALUE.parse(found.get(key, bytes(28)))
            ours = {"value": layouts.ROCKSDB_QUEUE_VALUE.encode(made), "construct": list(made)}
            theirs = {"value": found.pop(key, None), "construct": [parsed[name] for name in made._fields]}
            subject.compare(f"{topic}/{queue_id} at {number}", ours, theirs)
            last[topic, queue_id] = (unit.physical_offset, number)
    report_missing(subject, "record of row", [key.hex() for key in found])
    for key, value in rows(subject, "consumequeue", "offset"):
        bound = rocksdb_rows.decode_bound_key(key)
        assert isinstance(bound, rocksdb_rows.BoundRowKey)
        where = f"{bound.bound} of {bound.topic}/{bound.queue_id}"
        if is_log_end(bound):
            log_end = max(message.physical_offset + message.total_size for message in messages(subject.root))
            subject.compare(where, {"end": layouts.LONG.pack(log_end)}, {"end": value})
        elif bound.bound == "max":
            most = RocksDBOffsetValue(*last[bound.topic, bound.queue_id])
            subject.compare(where, {"value": layouts.ROCKSDB_OFFSET_VALUE.encode(most)}, {"value": value})
        else:
            # Its physical offset is that of a moment when the queue may still have been empty.
            least = layouts.ROCKSDB_OFFSET_VALUE.decode(value)
            subject.compare(where, {"queue offset": least.queue_offset}, {"queue offset": 0})


def index_rows_of(message: Message) -> Iterator[Row]:
    """The rows that 5.4 indexes a message under."""
    if not message.uniq_key or message.sys_flag & 0xC == 0xC:
        return
    hour = message.store_timestamp // rocksdb_rows.HOUR_MS * rocksdb_rows.HOUR_MS
    texts = [("K", f"{token}@{message.uniq_key}") for token in dict.fromkeys(key_tokens(message.properties))]
    texts += [("T", f"{message.tags}@{message.uniq_key}")] if message.tags else []
    for kind, text in [*texts, ("U", message.uniq_key)]:
        key = rocksdb_rows.IndexRowKey(hour, message.topic, kind, text, message.physical_offset)
        yield rocksdb_rows.encode_index_key(key), layouts.LONG.pack(message.store_timestamp)


@comparison("RocksDB index rows, from the log", rows="rows")
def index_rows(subject: Subject) -> None:
    """Every row comes from a record, and every record's rows are there."""
    found = dict(rows(subject, "rocksdbstore", "default"))
    if not found:
        return
    for message in messages(subject.root):
        for key, value in index_rows_of(message):
            theirs = found.pop(key, None)
            decoded = rocksdb_rows.decode_index_key(key)
            assert isinstance(decoded, rocksdb_rows.IndexRowKey)
            ours = {"value": value, "uniqKey": decoded.uniq_key}
            subject.compare(key.hex(), ours, {"value": theirs, "uniqKey": message.uniq_key})
    last = messages(subject.root)[-1]
    expected = {
        b"lastOffsetPy": layouts.LONG.pack(last.physical_offset),
        b"lastStoreTimeStamp": layouts.LONG.pack(last.store_timestamp),
    }
    subject.compare("bookkeeping", {"rows": expected}, {"rows": found})


@comparison("RocksDB timer rows, from the log", rows="rows")
def timer_rows(subject: Subject) -> None:
    """Every row leads to its record in the timer topic."""
    by_offset = {message.physical_offset: message for message in messages(subject.root)}
    for key, value in rows(subject, "rocksdbstore", "timer"):
        found = rocksdb_rows.decode_timer_key(key)
        if isinstance(found, rocksdb_rows.TimerRowKey):
            row = layouts.ROCKSDB_TIMER_VALUE.decode(value)
            message = by_offset[row.physical_offset]
            ours = {"deliver": str(found.deliver_time), "uniqKey": found.uniq_key, "size": row.size}
            theirs = {
                "deliver": message.properties["TIMER_OUT_MS"],
                "uniqKey": message.uniq_key,
                "size": message.total_size,
            }
            subject.compare(key.hex(), ours, theirs)


@comparison("RocksDB POP rows, key from value", rows="rows")
def pop_rows(subject: Subject) -> None:
    """The key says nothing that the value does not."""
    for key, value in rows(subject, "kvStore", "popState"):
        record = json.loads(value)
        made = rocksdb_rows.PopRowKey(
            record["popTime"] + record["invisibleTime"],
            record["groupId"],
            record["topicId"],
            record["queueId"],
            record["offset"],
        )
        found = rocksdb_rows.decode_pop_key(key)
        assert isinstance(found, rocksdb_rows.PopRowKey)
        subject.compare(key.hex(), found._asdict(), made._asdict())
