"""The compiled kernel says what ``formats`` says: on real stores, on damaged ones, on noise, on records in bodies."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool import kernel
from rmqtool.columns import compiled
from rmqtool.columns.index_build import Keys
from rmqtool.formats import index, layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqtool.remoting.binary_header import encode_binary_header
from rmqtool.remoting.frames import decode_frame
from tests.agreement.logs import commit_log_segments
from tests.support import builders, wire
from tests.support.column_files import IndexContent
from tests.support.damaged import VERSIONS, Workshop, mutations
from tests.support.kernel_twins import Comparison, damage
from tests.support.seeded_stores import make_segment, seeded
from tests.support.stores import STORES

ROOT = Path(__file__).resolve().parents[2]
GARBAGE = 20_000

NATIVE, WHY_NOT = kernel.load(True, ROOT / "native")
pytestmark = pytest.mark.skipif(NATIVE is None, reason=f"there is no compiled kernel: {WHY_NOT}")


@pytest.fixture
def comparison() -> Comparison:
    assert NATIVE is not None
    return Comparison(NATIVE)


# In this one the records are inside of DLedger's entries.
@pytest.mark.parametrize("name", [name for name in STORES if name != "49-dledger"])
def test_real_stores(name: str, store: Callable[[str], Path], comparison: Comparison) -> None:
    """Whole, from inner places, with cut ends, and with some damage of each."""
    rng = random.Random(name)
    for segment in commit_log_segments(store(name)):
        data = segment.data[: 256 << 10]
        comparison.look(data, segment.base_offset)
        for _ in range(4):
            at = rng.randrange(len(data) + 1)
            comparison.look(damage(rng, data[at : at + 20_000]), segment.base_offset + at)
            comparison.look(damage(rng, data[:8_000]), segment.base_offset)
    seen = comparison.seen
    compared = ("starts", "rows", "messages", "fields of records", "spans", "lines", "encoded", "units", "properties")
    assert all(seen[what] for what in compared)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part == 0 else pytest.mark.slow) for part in range(12)]
)
def test_damaged_stores(version: str, part: int, tmp_path: Path, comparison: Comparison) -> None:
    """Every variant of the recovery catalogues; ten of each version in the default run."""
    every = mutations(version)
    keys = sorted(every)[part::12]
    workshop = Workshop(tmp_path)
    for key in keys[:10] if part == 0 else keys:
        with workshop.damaged(version, every[key], abort=True) as root:
            for segment in commit_log_segments(root):
                comparison.look(segment.data[: 64 << 10], segment.base_offset)
    assert comparison.seen["rows"] > 10


@seeded
def test_seeded_segments(seed: int, comparison: Comparison) -> None:
    """Records of every kind, with bodies that hold records at their right places."""
    segment = make_segment(seed)
    comparison.look(segment.data, segment.base)
    rng = random.Random(seed)
    comparison.look(damage(rng, segment.data), segment.base)
    assert comparison.seen["buffers"] == 2
    assert comparison.seen["rows"] >= len(segment.starts)


@pytest.mark.parametrize("part", [pytest.param(part, marks=() if part == 0 else pytest.mark.slow) for part in range(8)])
def test_noise(part: int, comparison: Comparison) -> None:
    """Noise, good records cut and changed, lengths that claim gigabytes: an answer, and the right one."""
    rng = random.Random(part)
    examples = (builders.EXAMPLE_A, builders.EXAMPLE_B, builders.EXAMPLE_C, builders.EXAMPLE_D)
    for _ in range(GARBAGE // 8):
        whole = b"".join(rng.choices(examples, k=rng.randrange(1, 4)))
        comparison.look(rng.randbytes(rng.randrange(300)) if rng.random() < 0.2 else damage(rng, whole))
    assert comparison.seen["buffers"] == GARBAGE // 8
    assert comparison.seen["rows"] > GARBAGE // 80


def test_fakes_in_large_bodies(comparison: Comparison) -> None:
    """Blocks large enough for many walks at once, with records in bodies where walks may start."""
    for seed in range(3):
        rng = random.Random(seed)
        parts, at = [], 0
        while at < (3 << 20):
            body = rng.randbytes(rng.choice((0, 10, 300, 3000)))
            if rng.random() < 0.5:
                inner, place = [], at + 88
                for _ in range(rng.choice((1, 3, 200))):
                    fake = builders.record(
                        rng.randbytes(rng.choice((5, 50))), b"T", physical_offset=place + rng.choice((0, 0, 7))
                    )
                    inner.append(fake)
                    place += len(fake)
                body = b"".join(inner) + body
            one = builders.record(body, b"Topic%d" % rng.randrange(5), b"KEYS\x01k\x02", physical_offset=at)
            parts.append(one)
            at += len(one)
        data = b"".join(parts)
        assert NATIVE is not None
        comparison._walk(data)
        comparison._walk(damage(rng, data))
        comparison._walk(data[at // 3 :])
    assert comparison.seen["starts"] > 2000


def test_every_length_of_a_checksum() -> None:
    rng = random.Random(1)
    data = rng.randbytes(3000)
    assert NATIVE is not None
    for length in (*range(1300), 2999, 3000):
        begin = rng.randrange(3000 - length + 1)
        assert NATIVE.crc32(data[begin : begin + length]) == zlib.crc32(data[begin : begin + length])
    crcs = np.empty(2, np.uint32)
    NATIVE.crc32_each(data, np.array([0, 2990], np.int64), np.array([17, 10], np.int64), crcs)
    assert crcs.tolist() == [zlib.crc32(data[:17]), zlib.crc32(data[2990:])]


@pytest.mark.parametrize("seed", range(20))
def test_index_entries(seed: int) -> None:
    """Entries and slots are those of one insertion after the other, into slots that hold anything."""
    rng = random.Random(seed)
    slots, count = rng.choice((1, 3, 100)), rng.choice((1, 5, 60))
    before = [rng.choice((0, 0, 1, 5, 200, -3)) for _ in range(slots)]
    first, begin = rng.choice((1, 1, 7)), rng.choice((0, -5, 1000))
    keys = [(rng.randrange(1 << 31), rng.randrange(1 << 40), rng.choice((500, 1000, 99_000, -1))) for _ in range(count)]
    table_bytes = bytearray(b"".join(map(layouts.INDEX_SLOT.pack, before)))
    entries = bytearray(count * layouts.INDEX_ENTRY.size)
    columns = [
        np.array(column, kind)
        for column, kind in zip(zip(*keys, strict=True), (np.int32, *[np.int64] * 2), strict=True)
    ]
    assert NATIVE is not None
    taken = NATIVE.hang_in(entries, table_bytes, *columns, first, begin)
    expected, heads, empty = [], list(before), 0
    for number, (hashed, place, time) in enumerate(keys, first):
        head = heads[hashed % slots]
        head = head if 0 < head <= number else 0
        empty += head == 0
        expected.append((hashed, place, index.time_diff(time, begin), head))
        heads[hashed % slots] = number
        if number == 1:
            begin = keys[0][2]
    assert [tuple(entry) for entry in layouts.INDEX_ENTRY.iter_decode(bytes(entries))] == expected
    assert [slot for (slot,) in layouts.INDEX_SLOT.iter_decode(bytes(table_bytes))] == heads
    assert taken == empty


def test_texts_of_properties() -> None:
    assert NATIVE is not None
    odd: list[object] = []
    make = NATIVE.text_maker(("KEYS", "Тег", "x"), True, lambda given: odd.append(given) or b"odd")
    plain = {"KEYS": "a b", "Тег": "é", "x": "\U0001d11e"}
    assert make(plain) == "KEYS\1a b\2Тег\1é\2x\1\U0001d11e\2".encode()
    for given in ({"KEYS": "a"}, {**plain, "x": "\ud800"}, {**plain, "x": 1}, {**plain, "x": "y" * 3000}):
        assert make(given) == b"odd"  # type: ignore[arg-type]
    assert len(odd) == 4
    assert NATIVE.text_maker(("KEYS",), False, make)({"KEYS": "k"}) == b"KEYS\1k"
    assert NATIVE.text_maker((), True, make)({}) == b""


class Spoiler:
    """A key of a mapping that changes the mapping when it is compared."""

    def __init__(self, given: dict[object, str]) -> None:
        self.given = given

    def __hash__(self) -> int:
        return hash("b")

    def __eq__(self, other: object) -> bool:
        self.given["a"] = "changed"
        return False


def test_a_plain_record_is_declined_where_it_is_not_plain() -> None:
    assert NATIVE is not None
    kind = NATIVE.record_kind(*KIND)
    usual: dict[str, Any] = {
        "properties": {"a": "1"},
        "uniq_key": "k",
        "body": b"b",
        **dict.fromkeys(("flag", "queue_id", "queue_offset", "physical_offset", "born", "stored"), 0),
        "born_host": None,
    }
    made = NATIVE.plain_record(kind, *usual.values())
    assert made is not None
    assert made.endswith(b"\1T\0\x0ea\x011\x02UNIQ_KEY\1k")
    odd: list[dict[str, Any]] = [
        *({"properties": given} for given in ({}, {"a": 1}, {"a": "\ud800"}, {"a": "x" * 33_000}, b"a\x011", None)),
        *({"body": body} for body in (None, bytearray(1), "text", bytes(1 << 20))),
        *({"flag": 1 << 31}, {"queue_id": -1}, {"queue_id": 1 << 31}, {"queue_offset": 1 << 63}, {"flag": "x"}),
        *({"born": -(1 << 63) - 1}, {"stored": 1 << 63}, {"uniq_key": None}),
        *(
            {"born_host": host}
            for host in ((bytes(5), 1), (bytes(4), 1 << 31), (bytes(4),), ("x", 1), (bytes(4), "1"), 7)
        ),
    ]
    for change in odd:
        assert NATIVE.plain_record(kind, *(usual | change).values()) is None, change
    of_another = NATIVE.plain_record(kind, *(usual | {"born_host": (bytes(range(16)), 7)}).values())
    assert of_another is not None
    assert of_another[48:68] == bytes(range(16)) + b"\0\0\0\7"
    assert of_another[36:40] == b"\0\0\0\x10"
    two = NATIVE.record_kind(*KIND[:4], ("a", "b"), (None, None), -1, True, 1 << 20)
    given: dict[object, str] = {}
    given |= {Spoiler(given): "", "b": "2"}
    given["a"] = "a text of its own".upper()
    found = NATIVE.plain_record(two, given, *[*usual.values()][1:])
    assert found is not None
    assert found.endswith(b"a\1A TEXT OF ITS OWN\2b\x012\2")


@pytest.mark.parametrize("has_crc", [False, True])
@pytest.mark.parametrize("born", [builders.BORN_V4_HOST, builders.BORN_V6_HOST])
@pytest.mark.parametrize("store_host", [builders.STORE_V4_HOST, builders.STORE_V6_HOST])
def test_records_laid_by_hand(has_crc: bool, born: builders.Host, store_host: builders.Host) -> None:
    assert NATIVE is not None
    made = NATIVE.encode(
        *(
            MESSAGE_MAGIC_V1,
            3,
            -2,
            0,
            1700000000000,
            *born,
            *store_host,
            4,
            5,
            b"body",
            b"\5Topic",
            b"KEYS\1k\2",
            has_crc,
        )
    )
    NATIVE.place(made, 7, 1 << 40, 1700000000123, has_crc)
    prefix = 64 + len(born.ip) + len(store_host.ip) + 16
    expected = builders.record(
        b"body", b"Topic", b"KEYS\1k\2", queue_id=3, flag=-2, queue_offset=7, physical_offset=1 << 40, born_host=born,
        store_host=store_host, reconsume_times=4, prepared_transaction_offset=5,
    )  # fmt: skip
    assert bytes(made) == (builders.record_with_property_crc(expected, prefix) if has_crc else expected)


def batch_item(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """Return a message of a client's batch, by the specification."""
    size = 22 + len(body) + len(properties)
    return struct.pack(">5i", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(properties)) + properties


def test_batches_laid_by_hand() -> None:
    assert NATIVE is not None
    born, store_host, shared = builders.BORN_V6_HOST, builders.STORE_V4_HOST, b"MSG_REGION\1r"
    given = [(b"one", b"KEYS\1k\2", -2), (b"", b"", 0), (b"three", b"a\1b", 7)]
    stored = [b"KEYS\1k\2MSG_REGION\1r", b"MSG_REGION\1r", b"a\1b\2MSG_REGION\1r"]
    head = (MESSAGE_MAGIC_V1, 3, 0, 1700000000000, *born, *store_host, 4, 5)
    messages = b"".join(batch_item(*one) for one in given)
    found = NATIVE.encode_batch(*head, messages, b"\5Topic", shared, 1000)
    assert found is not None
    records, count = found
    places = np.zeros(3, np.int64)
    NATIVE.place_batch(records, 7, 1 << 40, 1700000000123, places)
    at, expected = 1 << 40, []
    for number, ((body, _, flag), text) in enumerate(zip(given, stored, strict=True)):
        expected.append(
            builders.record(
                body, b"Topic", text, queue_id=3, flag=flag, queue_offset=7 + number, physical_offset=at,
                born_host=born, store_host=store_host, reconsume_times=4, prepared_transaction_offset=5,
            )
        )  # fmt: skip
        assert places[number] == at
        at += len(expected[-1])
    assert (count, bytes(records)) == (3, b"".join(expected))
    largest = max(map(len, expected))
    assert NATIVE.encode_batch(*head, messages, b"\5Topic", shared, largest) is not None
    assert NATIVE.encode_batch(*head, messages, b"\5Topic", shared, largest - 1) is None
    long = batch_item(b"b", bytes(32767 - len(shared) - 1))
    assert NATIVE.encode_batch(*head, long, b"\5Topic", shared, 1 << 20) is not None
    assert NATIVE.encode_batch(*head, batch_item(b"b", bytes(32767)), b"\5Topic", shared, 1 << 20) is None
    assert NATIVE.encode_batch(*head, b"", b"\5Topic", shared, 1000) is None


def test_batches_of_any_bytes(comparison: Comparison) -> None:
    rng = random.Random(3)
    for _ in range(400):
        items = [
            batch_item(
                rng.randbytes(rng.choice((0, 1, 50, 4000))),
                rng.choice((b"", b"a\1b", b"KEYS\1k\2", b"\2", bytes(rng.choice((9, 32_700))))),
                rng.choice((0, -1)),
            )
            for _ in range(rng.choice((1, 2, 30)))
        ]
        data = b"".join(items)
        comparison.batch(data)
        comparison.batch(damage(rng, data))
        comparison.batch(data[: rng.randrange(len(data))])
    comparison.batch(b"")
    seen = comparison.seen
    assert seen["batches"] > 150
    assert seen["refused batches"] > 400
    assert seen["declined batches"] > 50


def test_slabs_laid_by_hand() -> None:
    assert NATIVE is not None
    hosts = [builders.BORN_V4_HOST, builders.BORN_V6_HOST, builders.BORN_V4_HOST]
    expected, place = [], 1000
    for number, host in enumerate(hosts):
        one = builders.record(
            b"b" * number, b"T", b"", queue_id=number, queue_offset=number + 7, physical_offset=place, born_host=host,
            magic=MESSAGE_MAGIC_V2,
        )  # fmt: skip
        expected.append(one)
        place += len(one)
    numbers = np.arange(3)
    port = layouts.INT.pack
    sizes = np.empty(3, np.int64)
    made = NATIVE.encode_slab(
        [b"b" * number for number in range(3)],
        [b"\0\1T\0\0"] * 3,
        (MESSAGE_MAGIC_V2, numbers, 0, numbers + 7, 0x30, 1700000000000, 1700000000123, 0, 0),
        [host.ip + port(host.port) for host in hosts],
        [builders.STORE_V4_HOST.ip + port(builders.STORE_V4_HOST.port)],
        1000,
        sizes,
    )
    assert bytes(made) == b"".join(expected)
    assert sizes.tolist() == [len(one) for one in expected]


HEADERS = [
    encode_binary_header(decode_frame(raw.data))
    for raw in wire.raw_frames()[::7]
    if decode_frame(raw.data).code <= 32767
]


def fields_of(header: bytes) -> tuple[int, int]:
    """Return where the fields of a header begin and end."""
    begin = 21 + int.from_bytes(header[13:17], "big")
    return begin, len(header)


def test_fields_of_real_headers(comparison: Comparison) -> None:
    """Of recorded frames, written as ROCKETMQ headers: whole, cut, damaged, and at made-up places."""
    rng = random.Random(1)
    for header in HEADERS:
        begin, end = fields_of(header)
        comparison.header_fields(header, begin, end)
        comparison.header_fields(header, begin, rng.randrange(begin, end + 1))
        comparison.header_fields(header, rng.randrange(end + 1), end)
        for _ in range(4):
            comparison.header_fields(damaged := damage(rng, header[begin:]), 0, len(damaged))
    seen = comparison.seen
    assert seen["fields"] > 5000
    assert seen["refused headers"] > 1000
    assert seen["declined headers"] > 50


JSON_HEADERS = [
    raw.data[8 : 8 + int.from_bytes(raw.data[5:8], "big")] for raw in wire.raw_frames()[::7] if raw.data[4] == 0
]


def test_recorded_json_headers(comparison: Comparison) -> None:
    """Whole, cut and damaged. Those of Node and C++ have numbers among the fields, which are left to Python."""
    rng = random.Random(2)
    for header in JSON_HEADERS:
        comparison.json_header(header)
    seen = comparison.seen
    assert seen["headers"] > 1000
    assert seen["typed headers"] > 300
    assert seen["refused headers"] == 0
    assert seen["declined headers"] < 30
    for header in JSON_HEADERS:
        comparison.json_header(header[: rng.randrange(len(header))])
        for _ in range(4):
            comparison.json_header(damage(rng, header))
    assert seen["refused headers"] > 1000
    assert seen["declined headers"] > 40


def test_json_headers_laid_by_hand() -> None:
    assert NATIVE is not None
    empty = (0, None, 0, 0, None, 0, None)
    headers: dict[bytes, tuple[object, ...] | None] = {
        b'{"code":310,"opaque":-7,"flag":2,"version":479}': (310, None, -7, 2, None, 479, None),
        b' {\n"code" : 1\t} ': (1, *empty[1:]),
        b'{"extFields":{}}': (0, {}, *empty[2:]),
        b'{"extFields":{"a":"1","a":"2","b":""}}': (0, {"a": "2", "b": ""}, *empty[2:]),
        b'{"extFields":{"a\\u0041":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u007F"}}': (
            0, {"aA": '"\\/\b\f\n\r\t\x01\x7f'}, *empty[2:],
        ),
        '{"remark":"é中","language":"GO","other":"x"}'.encode(): (0, None, 0, 0, "GO", 0, "é中"),
        b'{"code":2147483647}': (2147483647, *empty[1:]),
        b'{"code":2147483648}': None,
        b'{"code":01}': None,
        b'{"code":1.5}': None,
        b'{"code":"1"}': None,
        b'{"extFields":{"a":1}}': None,
        b'{"extFields":{"a":"\\u00e9"}}': None,
        b'{"extFields":{"a":"\x01"}}': None,
        b'{"extFields":{"a":"\xff"}}': None,
        b'{"extFields":{"a":"b",}}': None,
        b'{"extFields":{"a":"b"}': None,
        b'{"code":1}x': None,
        b"{}": None,
        b"": None,
    }  # fmt: skip
    assert {header: NATIVE.json_header(header, 0, len(header), 9) for header in headers} == headers
    two = b'{"extFields":{"a":"b","c":"d"}}'
    assert NATIVE.json_header(two, 0, len(two), 1) is None
    assert NATIVE.json_header(memoryview(b"x" + two), 1, len(two) + 1, 2) is not None


def test_values_of_fields_laid_by_hand() -> None:
    assert NATIVE is not None
    types = {"t": ("text", 0), "i": ("int", 1), "l": ("long", 2), "b": ("boolean", 3), "o": ("other", -1)}
    fields = {"t": "é", "i": "999999999", "l": "999999999999999999", "b": "false", "unknown": "x"}
    expected = {"text": "é", "int": 999999999, "long": 999999999999999999, "boolean": False}
    assert NATIVE.typed_fields(fields, types) == expected
    for name, text in (("i", "-1"), ("i", ""), ("i", "1" * 10), ("l", "1" * 19), ("i", "٣"), ("b", "TRUE"), ("o", "x")):
        assert NATIVE.typed_fields({name: text}, types) is None, (name, text)
    assert NATIVE.typed_fields({"t": "\ud800"}, types) is None


def test_fields_laid_by_hand() -> None:
    assert NATIVE is not None
    fields = {
        "one": (b"\0\1a\0\0\0\1b", {"a": "b"}),
        "the last of two of one name": (b"\0\1a\0\0\0\1b\0\1a\0\0\0\1c", {"a": "c"}),
        "without a value": (b"\0\1a\0\0\0\0\0\1b\0\0\0\1c", {"b": "c"}),
        "without a name": (b"\0\0\0\0\0\1b", {}),
        "none": (b"", {}),
        "beyond ASCII": ("\0\2é\0\0\0\3中".encode(), {"é": "中"}),
        "no UTF-8": (b"\0\1a\0\0\0\1\xff", None),
        "half a length": (b"\0", None),
        "a name beyond the end": (b"\0\5a\0\0\0\0", None),
        "a value beyond the end": (b"\0\1a\0\0\0\2b", None),
        "a negative length": (b"\0\1a\xff\xff\xff\xffb", None),
    }
    assert {name: NATIVE.header_fields(block, 0, len(block), 9) for name, (block, _) in fields.items()} == {
        name: expected for name, (_, expected) in fields.items()
    }
    two = b"\0\1a\0\0\0\1b\0\1b\0\0\0\1b"
    assert NATIVE.header_fields(two, 0, 16, 1) is None
    assert NATIVE.header_fields(memoryview(b"x" + two), 1, 17, 2) == {"a": "b", "b": "b"}


def of_properties(changes: dict[int, object]) -> tuple[object, ...]:
    """Return arguments for the columns of one property, with some of them changed."""
    block, ends = b"a\1b\2", [np.zeros(2, np.int32) for _ in range(4)]
    texts = [bytearray(len(block)) for _ in range(3)]
    places = np.array([0]), np.array([len(block)])
    usual = (block, *places, ends[0], ends[1], texts[0], ends[2], texts[1], b"a\2", ends[3], texts[2])
    return tuple(changes.get(number, given) for number, given in enumerate(usual))


def test_columns_of_properties_laid_by_hand() -> None:
    assert NATIVE is not None
    given = of_properties({})
    assert NATIVE.property_columns(*given) == 1
    ends, texts = [given[at].tolist() for at in (3, 4, 6, 9)], [bytes(given[at])[:1] for at in (5, 7, 10)]  # type: ignore[attr-defined, call-overload]
    assert (ends, texts) == ([[0, 1]] * 4, [b"a", b"b", b"b"])
    assert NATIVE.property_columns(*of_properties({0: b"a\1\xff\2"})) == -1
    assert NATIVE.property_columns(*of_properties({0: b"a\1bb"})) == 1


LONGS, INTS = np.zeros(4, np.int64), np.zeros(4, np.int32)
# Messages with the property "a" of their own, and a unique key.
KIND = (MESSAGE_MAGIC_V1, b"\1T", bytes(4), 1, ("a", "UNIQ_KEY"), (None, None), 1, False, 1 << 20)
REFUSED: dict[str, tuple[str, tuple[object, ...], type[Exception]]] = {
    "too few arguments": ("walk", (b"",), TypeError),
    "no buffer": ("crc32", (5,), TypeError),
    "place after the end": ("walk", (b"abc", 4, LONGS), ValueError),
    "place before the start": ("walk", (b"abc", -1, LONGS), ValueError),
    "half an item": ("walk", (b"abc", 0, bytearray(12)), ValueError),
    "not aligned": ("walk", (b"abc", 0, memoryview(bytearray(17))[1:]), ValueError),
    "not writable": ("walk", (b"abc", 0, bytes(8)), (BufferError, TypeError)),  # type: ignore[dict-item]
    "piece outside": ("crc32_each", (b"abc", np.array([0, 2]), np.array([3, 2]), INTS), ValueError),
    "negative piece": ("crc32_each", (b"abc", np.array([-1]), np.array([1]), INTS), ValueError),
    "text outside": ("number_texts", (b"abc", np.array([0, 2]), np.array([3, 2]), INTS, INTS), ValueError),
    "text before": ("number_texts", (b"abc", np.array([-1]), np.array([1]), INTS, INTS), ValueError),
    "few numbers of texts": ("number_texts", (b"abc", LONGS[:2], LONGS[:2], INTS[:1], INTS), ValueError),
    "fewer lengths": ("crc32_each", (b"abc", LONGS, LONGS[:2], INTS), ValueError),
    "small table": ("decode", (b"abc", LONGS, bytearray(10), 0, 0), ValueError),
    "halves of places": ("sound", (b"abc", bytes(12), 0), ValueError),
    "capacity beyond the table": ("scan", (b"abc", 0, bytearray(compiled.ROW_SIZE), 2, 0, 0), ValueError),
    "few codes": ("group", (INTS, INTS, INTS, INTS[:3], INTS, INTS), ValueError),
    "properties outside": ("property_columns", of_properties({1: LONGS[:1] + 4}), ValueError),
    "properties before": ("property_columns", of_properties({1: LONGS[:1] - 1}), ValueError),
    "fewer ends of records": ("property_columns", of_properties({3: INTS[:1]}), ValueError),
    "fewer lengths of properties": ("property_columns", of_properties({2: LONGS[:0]}), ValueError),
    "no end of a name": ("property_columns", of_properties({4: INTS[:0], 6: INTS[:0]}), (ValueError, BufferError)),
    "other ends of values": ("property_columns", of_properties({6: INTS[:1]}), ValueError),
    "little room for pairs": ("property_columns", of_properties({4: INTS[:1], 6: INTS[:1]}), ValueError),
    "little room for names": ("property_columns", of_properties({5: bytearray(2)}), ValueError),
    "little room for values": ("property_columns", of_properties({7: bytearray(2)}), ValueError),
    "little room for wanted values": ("property_columns", of_properties({10: bytearray(2)}), ValueError),
    "few ends of wanted values": ("property_columns", of_properties({9: INTS[:1]}), ValueError),
    "a wanted name that does not end": ("property_columns", of_properties({8: b"a\2b"}), ValueError),
    "many wanted names": ("property_columns", of_properties({8: b"a\2" * 9}), ValueError),
    "no slots": ("hang_in", (bytearray(20), b"", INTS[:1], LONGS[:1], LONGS[:1], 1, 0), (ValueError, BufferError)),  # type: ignore[dict-item]
    "entry 0": ("hang_in", (bytearray(20), bytearray(4), INTS[:1], LONGS[:1], LONGS[:1], 0, 0), ValueError),
    "numbers that overflow": (
        "hang_in",
        (bytearray(20), bytearray(4), INTS[:1], LONGS[:1], LONGS[:1], (1 << 31) - 1, 0),
        ValueError,
    ),
    "row beyond": ("json_lines", (b"", LONGS, 5, LONGS, bytearray(9)), ValueError),
    "queue number": (
        "encode",
        (MESSAGE_MAGIC_V1, 1 << 31, 0, 0, 0, bytes(4), 0, bytes(4), 0, 0, 0, b"", b"\1T", b"", False),
        OverflowError,
    ),
    "address": (
        "encode",
        (MESSAGE_MAGIC_V1, 0, 0, 0, 0, bytes(5), 0, bytes(4), 0, 0, 0, b"", b"\1T", b"", False),
        ValueError,
    ),
    "long properties": (
        "encode",
        (MESSAGE_MAGIC_V1, 0, 0, 0, 0, bytes(4), 0, bytes(4), 0, 0, 0, b"", b"\1T", bytes(32750), True),
        ValueError,
    ),
    "queue number of a batch": (
        "encode_batch",
        (MESSAGE_MAGIC_V1, 1 << 31, 0, 0, bytes(4), 0, bytes(4), 0, 0, 0, b"", b"\1T", b"", 9),
        OverflowError,
    ),
    "address of a batch": (
        "encode_batch",
        (MESSAGE_MAGIC_V1, 0, 0, 0, bytes(4), 0, bytes(5), 0, 0, 0, b"", b"\1T", b"", 9),
        ValueError,
    ),
    "magic of a batch": ("encode_batch", (1, 0, 0, 0, bytes(4), 0, bytes(4), 0, 0, 0, b"", b"\1T", b"", 9), ValueError),
    "long properties for all": (
        "encode_batch",
        (MESSAGE_MAGIC_V1, 0, 0, 0, bytes(4), 0, bytes(4), 0, 0, 0, b"", b"\1T", bytes(32768), 9),
        ValueError,
    ),
    "a record below nothing": (
        "encode_batch",
        (MESSAGE_MAGIC_V1, 0, 0, 0, bytes(4), 0, bytes(4), 0, 0, 0, b"", b"\1T", b"", -1),
        ValueError,
    ),
    "no records of a batch": ("place_batch", (bytearray(100), 0, 0, 0, LONGS[:1]), ValueError),
    "no places of a batch": ("place_batch", (bytearray(builders.EXAMPLE_A), 0, 0, 0, LONGS[:0]), ValueError),
    "more places than records": ("place_batch", (bytearray(builders.EXAMPLE_A), 0, 0, 0, LONGS[:2]), ValueError),
    "fewer places than records": ("place_batch", (bytearray(builders.EXAMPLE_A * 2), 0, 0, 0, LONGS[:1]), ValueError),
    "short record": ("place", (bytearray(90), 0, 0, 0, False), ValueError),
    "fields that end before they begin": ("header_fields", (b"abc", 2, 1, 9), ValueError),
    "fields after the end": ("header_fields", (b"abc", 0, 4, 9), ValueError),
    "fewer fields than none": ("header_fields", (b"abc", 0, 3, -1), ValueError),
    "a header that ends before it begins": ("json_header", (b"abc", 2, 1, 9), ValueError),
    "a header after the end": ("json_header", (b"abc", 0, 4, 9), ValueError),
    "fields that are no dict": ("typed_fields", ([], {}), TypeError),
    "a type that is no tuple": ("typed_fields", ({"a": "b"}, {"a": 1}), TypeError),
    "a type without a number": ("typed_fields", ({"a": "b"}, {"a": ("a", "b")}), TypeError),
    "no tuple": ("decoder", (int, (), None), TypeError),
    "no tuple of many": ("decoder_of_many", (int, (), None), TypeError),
    "no such field": ("decoder", (tuple, (0, 24), None), ValueError),
    "a field before the first": ("decoder_of_many", (tuple, (-1,), None), ValueError),
    "half a queue entry": ("span", (bytes(30), LONGS), ValueError),
    "few places": ("span", (bytes(40), LONGS[:1]), ValueError),
    "names": ("text_maker", ((1,), True, None), TypeError),
    "values without names": ("record_kind", (*KIND[:5], (None,), *KIND[6:]), ValueError),
    "place of a key": ("record_kind", (*KIND[:6], 2, *KIND[7:]), ValueError),
    "name that is no text": ("record_kind", (*KIND[:4], ("a", 1), *KIND[5:]), ValueError),
    "many names": ("record_kind", (*KIND[:4], ("a",) * 65, (None,) * 65, *KIND[6:]), ValueError),
    "address of a kind": ("record_kind", (*KIND[:2], bytes(5), *KIND[3:]), ValueError),
    "magic of a kind": ("record_kind", (7, *KIND[1:]), ValueError),
    "topic of a kind": ("record_kind", (KIND[0], bytes(40_000), *KIND[2:]), ValueError),
    "lone surrogate": ("record_kind", (*KIND[:4], ("a", "\ud800"), *KIND[5:]), UnicodeEncodeError),
    "no kind": ("plain_record", (None, {}, "k", b"b", 0, 0, 0, 0, 0, 0, None), ValueError),
    "place of a request": ("plain_requests", (b"", 1, 9, 9), ValueError),
    "size of a request": ("plain_requests", (b"", 0, -1, 9), ValueError),
    "columns": ("encode_slab", ([b""], [], (0,) * 9, [bytes(8)], [bytes(8)], 0, LONGS[:1]), ValueError),
    "queue number in a slab": (
        "encode_slab",
        ([b""], [b""], (0, 1 << 31, *(0,) * 7), [bytes(8)], [bytes(8)], 0, LONGS[:1]),
        OverflowError,
    ),
    "host": ("encode_slab", ([b""], [b""], (0,) * 9, [bytes(7)], [bytes(8)], 0, LONGS[:1]), ValueError),
}


@pytest.mark.parametrize(("name", "arguments", "error"), REFUSED.values(), ids=REFUSED)
def test_wrong_arguments_are_refused(name: str, arguments: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        getattr(NATIVE, name)(*arguments)


def test_both_sides_spell_one_table() -> None:
    assert NATIVE is not None
    assert NATIVE.COLUMNS.split() == [name for name, _ in compiled.COLUMNS]
    assert NATIVE.ROW_SIZE == compiled.ROW_SIZE


HEADER_WITH_ALL = b'{"extFields":{"a":"b","c":"\\u0001"},"language":"JAVA","remark":"d"}'


def test_messages_do_not_pile_up() -> None:
    """What a decoder and a text maker hand out is counted right: the memory stays what it is."""
    assert NATIVE is not None
    code = (
        "import array, sys, resource\n"
        "from rmqtool import kernel\n"
        "from rmqtool.formats.commit_log import Message\n"
        "from tests.support.builders import EXAMPLE_A\n"
        "decode = kernel.NATIVE.decoder(Message, tuple(range(20)), print)\n"
        "many = kernel.NATIVE.decoder_of_many(tuple, tuple(range(24)), lambda *_: None)\n"
        "places = array.array('q', [0, 1])\n"
        "text = kernel.NATIVE.text_maker(('a',), True, print)\n"
        f"kind = kernel.NATIVE.record_kind(*{KIND!r})\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"header = {HEADER_WITH_ALL!r}\n"
        "from tests.contract.test_kernel_sends import LONG, PLAIN, PULL\n"
        "send = LONG + PULL + PLAIN + LONG[:-1]\n"
        "for round in range(3):\n"
        "    for _ in range(100000):\n"
        f"        kernel.NATIVE.record_kind(*{KIND!r})\n"
        "        given = {'a': str(_)} if _ % 3 else {}\n"
        "        kernel.NATIVE.plain_record(kind, given, str(_), b'b', 0, 0, 0, 0, 0, 0, None)\n"
        "        kernel.NATIVE.plain_requests(send, 0, 9999, 999)\n"
        "        kernel.NATIVE.answer_frame((b'a', b'b'), ('x' if _ % 3 else None,), b'c', 9 if _ % 2 else 0, 99)\n"
        "        kernel.NATIVE.json_header(header, 0, len(header) - _ % 2, 9)\n"
        "        kernel.NATIVE.typed_fields({'a': '1' if _ % 3 else 'x', 'b': 'c'}, {'a': ('a', 1), 'b': ('b', 0)})\n"
        "        kernel.NATIVE.header_fields(b'\\0\\1a\\0\\0\\0\\1b\\0', 0, 8 + _ % 2, 9)\n"
        "        many(EXAMPLE_A, places); kernel.NATIVE.decoder_of_many(tuple, (1,), print)\n"
        "        decode(EXAMPLE_A); text({'a': 'b'}); kernel.NATIVE.text_maker(('a',), True, print)\n"
        "    before = before if round > 1 else peak()\n"
        "print(peak() - before)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RMQTOOL_PURE"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1000  # KiB; a leak of one object a round would be some MiB


def test_a_clone_compares_the_kernel_with_its_own_sources() -> None:
    assert Path(kernel._SOURCES).samefile(ROOT / "native")
    assert NATIVE is not None
    assert kernel.sources_digest(kernel._SOURCES) == NATIVE.SOURCES


def test_a_kernel_of_other_sources_is_refused(tmp_path: Path) -> None:
    sources = tmp_path / "native"
    sources.mkdir()
    (sources / "native.c").write_text("/* changed */")
    found, why = kernel.load(True, sources)
    assert found is None
    assert "different sources" in why


def test_pure_is_asked_for_by_the_environment() -> None:
    code = "from rmqtool import kernel; print(kernel.tier(), '|', kernel.WHY_NOT)"
    for value, said in (("1", "kernel: pure | RMQTOOL_PURE is set"), ("0", "kernel: native (C, CRC by ")):
        environment = {**os.environ, "RMQTOOL_PURE": value}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(said)


def test_a_whole_index_file(comparison: Comparison) -> None:
    """Keys in turn fill a file as the array operations do."""
    rng = np.random.default_rng(3)
    keys = Keys(rng.integers(0, 1 << 31, 500, np.int32), np.arange(500) * 100, np.arange(500) + 1_700_000_000_000)
    content = IndexContent(b"", 97, 600)
    content.insert(keys)
    slots, entries = bytearray(97 * 4), bytearray(500 * 20)
    taken = comparison.kernel.hang_in(entries, slots, *keys, 1, 0)
    assert bytes(entries) == content.entries[1:501].tobytes()
    assert bytes(slots) == content.data[index.slot_offset(0) : index.slot_offset(97)].tobytes()
    assert taken == content.header.hash_slot_count
