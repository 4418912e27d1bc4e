"""Keys and values of the RocksDB stores: the rows of the specification, and what is no row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmqtool.formats import layouts, rocksdb_rows
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.rocksdb_rows import (
    BoundRowKey,
    ConfigRowKey,
    IndexRowKey,
    PopRowKey,
    QueueRowKey,
    TimerRowKey,
    TransRowKey,
)
from tests.support import builders

QUEUE = "00 00 00 09 01 54 6f 70 69 63 54 65 73 74 01 00 00 00 01 01 00 00 00 00 00 00 00 05"
BOUND = "00 00 00 09 01 54 6f 70 69 63 54 65 73 74 01 6d 61 78 01 00 00 00 01"
CHECKPOINT = "00 00 00 10 01 43 48 45 43 4b 50 4f 49 4e 54 5f 54 4f 50 49 43 01 6d 61 78 01 00 00 00 00"
OFFSET = "01 00 01 02 00 06 67 72 6f 75 70 41 01 00 09 54 6f 70 69 63 54 65 73 74 01 00 00 00 00"
PULL = "01 00 02 02 00 06 67 72 6f 75 70 41 01 00 09 54 6f 70 69 63 54 65 73 74 01 00 00 00 07"
TOPIC = "01 00 03 02 00 09 54 6f 70 69 63 54 65 73 74"
GROUP = "01 00 04 02 00 06 67 72 6f 75 70 41"
VERSION = "01 00 03 01 64 61 74 61 5f 76 65 72 73 69 6f 6e"
POP = "00 00 01 8b cf e6 52 60 67 72 6f 75 70 41 40 54 6f 70 69 63 41 40 00 00 00 03 40 00 00 00 00 00 00 00 64"
_INDEX = "0000018bcfd93300 40546f70696354657374 40 {} 40 0000000000000400"
INDEX_U = _INDEX.format("55 40 55494431")
INDEX_K = _INDEX.format("4b40 6f726465722d31 40 55494431")
INDEX_T = _INDEX.format("5440 54616741 40 55494431")
TIMER = "0000018bcfe65260 55494431"
TRANS = "0000000000000400 40546f70696354657374 40 55494431"

Row = tuple[str, str, Any]
ROWS: list[Row] = [
    ("queue", QUEUE, QueueRowKey("TopicTest", 1, 5)),
    ("bound", BOUND, BoundRowKey("TopicTest", "max", 1)),
    ("bound", BOUND.replace("6d 61 78", "6d 69 6e"), BoundRowKey("TopicTest", "min", 1)),
    ("bound", CHECKPOINT, BoundRowKey(rocksdb_rows.CHECKPOINT_TOPIC, "max", 0)),
    ("config", OFFSET, ConfigRowKey(1, ("groupA", "TopicTest"), 0)),
    ("config", PULL, ConfigRowKey(2, ("groupA", "TopicTest"), 7)),
    ("config", TOPIC, ConfigRowKey(3, ("TopicTest",))),
    ("config", GROUP, ConfigRowKey(4, ("groupA",))),
    ("config", VERSION, ConfigRowKey(3, ())),
    ("pop", POP, PopRowKey(1700000060000, "groupA", "TopicA", 3, 100)),
    ("index", INDEX_U, IndexRowKey(1699999200000, "TopicTest", "U", "UID1", 1024)),
    ("index", INDEX_K, IndexRowKey(1699999200000, "TopicTest", "K", "order-1@UID1", 1024)),
    ("index", INDEX_T, IndexRowKey(1699999200000, "TopicTest", "T", "TagA@UID1", 1024)),
    ("timer", TIMER, TimerRowKey(1700000060000, "UID1")),
    ("trans", TRANS, TransRowKey(1024, "TopicTest", "UID1")),
]


def decoder(kind: str) -> Callable[[bytes], Any]:
    found: Callable[[bytes], Any] = getattr(rocksdb_rows, f"decode_{kind}_key")
    return found


def encoder(kind: str) -> Callable[[Any], bytes]:
    found: Callable[[Any], bytes] = getattr(rocksdb_rows, f"encode_{kind}_key")
    return found


@pytest.mark.parametrize(("kind", "text", "key"), ROWS)
def test_rows_of_the_specification(kind: str, text: str, key: Any) -> None:
    data = bytes.fromhex(text)
    assert decoder(kind)(data) == key
    assert type(decoder(kind)(data)) is type(key)
    assert encoder(kind)(key) == data


@pytest.mark.parametrize(("kind", "text", "key"), ROWS)
def test_every_truncation_is_a_flaw_or_another_whole_key(kind: str, text: str, key: Any) -> None:
    data = bytes.fromhex(text)
    for length in range(len(data)):
        found = decoder(kind)(data[:length])
        if isinstance(found, Flaw):
            assert (found.code, found.at, found.length) == ("RX-ROW", 0, length)
        else:
            # Only where texts have no length of their own: the end may be cut off, or be taken for an offset.
            assert kind in ("timer", "trans", "index")
            assert encoder(kind)(found) == data[:length]


SEPARATORS = [
    ("queue", QUEUE, [4, 14, 19]),
    ("bound", BOUND, [4, 14, 18]),
    ("config", OFFSET, [0, 3, 12, 24]),
    ("config", TOPIC, [0, 3]),
    ("config", VERSION, [0, 3, 5]),
    ("pop", POP, [14, 21, 26]),
    ("index", INDEX_K, [8, 18, 20, -9]),
    ("trans", TRANS, [8, 18]),
]


@pytest.mark.parametrize(("kind", "text", "places"), SEPARATORS)
def test_a_separator_that_is_another_byte(kind: str, text: str, places: list[int]) -> None:
    for place in places:
        data = bytearray.fromhex(text)
        data[place] ^= 0x20
        found = decoder(kind)(bytes(data))
        assert isinstance(found, Flaw), place
        assert found.code == "RX-ROW"
        assert found.message.startswith(
            {"pop": "POP", "config": "configuration", "trans": "transaction"}.get(kind, kind)
        )


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("queue", QueueRowKey("", 0, 0)),
        ("queue", QueueRowKey("主题", 0x7FFFFFFF, (1 << 63) - 1)),
        ("queue", QueueRowKey("a\x01b", -1, -1)),
        ("bound", BoundRowKey("a\x01max\x01", "min", 3)),
        ("config", ConfigRowKey(1, ("g\x01", "t"), 2)),
        ("config", ConfigRowKey(9, ("n",))),
        ("config", ConfigRowKey(3, ("",))),
        ("config", ConfigRowKey(1, ())),
        ("pop", PopRowKey(0, "", "", 0, 0)),
        ("pop", PopRowKey(1, "g", "%RETRY%g_t@x", 0, 0)),
        ("index", IndexRowKey(0, "", "U", "", 0)),
        ("index", IndexRowKey(0, "t", "K", "a@b@id", 0)),
        ("timer", TimerRowKey(0, "")),
        ("timer", TimerRowKey(1, "t@0@4@g@1700000000000@broker-a@ck")),
        ("trans", TransRowKey(0, "", "a@b")),
    ],
)
def test_odd_names_come_back(kind: str, key: Any) -> None:
    assert decoder(kind)(encoder(kind)(key)) == key


def test_parts_of_an_index_key() -> None:
    unique = rocksdb_rows.decode_index_key(bytes.fromhex(INDEX_U))
    keyed = rocksdb_rows.decode_index_key(bytes.fromhex(INDEX_K))
    assert isinstance(unique, IndexRowKey)
    assert isinstance(keyed, IndexRowKey)
    assert (unique.key, unique.uniq_key) == ("UID1", "UID1")
    assert (keyed.key, keyed.uniq_key) == ("order-1", "UID1")
    assert keyed._replace(text="a@b@UID1").key == "a@b"
    of_pop = keyed._replace(text="a@b@T@0@3@g@1700000000000@broker-a@ack")
    assert (of_pop.key, of_pop.uniq_key) == ("a@b", "T@0@3@g@1700000000000@broker-a@ack")
    assert (keyed._replace(text="no id").key, keyed._replace(text="no id").uniq_key) == ("no id", "")


@pytest.mark.parametrize("kind", ["queue", "bound", "config", "pop", "index", "timer", "trans"])
def test_malformed_text_is_a_flaw(kind: str) -> None:
    text = next(text for of, text, _ in ROWS if of == kind)
    data = bytes.fromhex(text)
    for name in (b"TopicTest", b"groupA", b"UID1"):
        data = data.replace(name, b"\xff" * len(name))
    assert isinstance(decoder(kind)(data), Flaw)


def test_text_that_grows_when_replaced_is_a_flaw_too() -> None:
    data = b"\1\0\3\2" + (32767).to_bytes(2, "big") + b"\xff" * 32767
    assert isinstance(rocksdb_rows.decode_config_key(data), Flaw)


@pytest.mark.parametrize("key", [*rocksdb_rows.TIMER_BOOKKEEPING, *rocksdb_rows.INDEX_BOOKKEEPING])
def test_rows_of_bookkeeping_are_no_keys(key: bytes) -> None:
    assert isinstance(rocksdb_rows.decode_index_key(key), Flaw)
    assert isinstance(rocksdb_rows.decode_trans_key(key), Flaw)
    if key in rocksdb_rows.TIMER_BOOKKEEPING:
        assert isinstance(rocksdb_rows.decode_timer_key(key), Flaw)


VALUES = (
    "ROCKSDB_QUEUE_VALUE",
    "ROCKSDB_OFFSET_VALUE",
    "ROCKSDB_DATA_VERSION",
    "ROCKSDB_TIMER_VALUE",
    "ROCKSDB_TRANS_VALUE",
    "LONG",
)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    layout, sample = getattr(layouts, name), builders.SAMPLES[name]
    assert rocksdb_rows.decode_row_value(layout, sample.data) == sample.values
    for wrong in (b"", sample.data[:-1], sample.data + b"\0"):
        found = rocksdb_rows.decode_row_value(layout, wrong)
        assert found == Flaw("RX-ROW", f"{layout.name} does not parse: {wrong.hex()}", 0, len(wrong))


def test_numbers_of_the_specification() -> None:
    assert [(table.name, table.value) for table in rocksdb_rows.ConfigTable] == [
        ("CONSUMER_OFFSET", 1),
        ("PULL_OFFSET", 2),
        ("TOPIC", 3),
        ("SUBSCRIPTION_GROUP", 4),
    ]
    assert rocksdb_rows.HOUR_MS == 3_600_000


def test_json_values() -> None:
    assert rocksdb_rows.decode_config_json(b'\1{"order":false}') == '{"order":false}'
    assert rocksdb_rows.encode_config_json('{"a":"中"}') == b'\1{"a":"\xe4\xb8\xad"}'
    assert isinstance(rocksdb_rows.decode_config_json(b""), Flaw)
    assert isinstance(rocksdb_rows.decode_config_json(b"\2{}"), Flaw)
