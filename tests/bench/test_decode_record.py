"""What decoding a record costs over the least that reads the same fields."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from rmqtool.formats import declarations
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.layouts import MessageRecord
from tests.support import builders

AT_MOST = 1.2
ROUNDS = 60

_V4V4 = struct.Struct(">iIiiiqqiq4siq4siiqi")
_OTHERS = {
    0x10: struct.Struct(">iIiiiqqiq16siq4siiqi"),
    0x20: struct.Struct(">iIiiiqqiq4siq16siiqi"),
    0x30: struct.Struct(">iIiiiqqiq16siq16siiqi"),
}
_SHORT = struct.Struct(">h")
_new = tuple.__new__

PAIRS = [("UNIQ_KEY", "C0A8010A10E118B4AAC247B760000007"), ("CLUSTER", "DefaultCluster"), ("TAGS", "TagA")]
RECORDS = {
    "example of the specification": builders.EXAMPLE_A,
    "1 KiB body": builders.record(bytes(1024), b"TopicTest", builders.properties(*PAIRS)),
    "version 2": builders.record(
        bytes(100), b"%RETRY%" + b"g" * 150, builders.properties(*PAIRS), magic=builders.MAGIC_V2
    ),
    "IPv6 hosts": builders.record(
        bytes(100),
        b"T",
        builders.properties(*PAIRS),
        born_host=builders.BORN_V6_HOST,
        store_host=builders.STORE_V6_HOST,
    ),
}


def plain(data: bytes, at: int) -> MessageRecord:
    """Unpack, slice, make the tuple; trust every byte. It reads both versions and all hosts, as ours does."""
    values = _V4V4.unpack_from(data, at)
    body_at = at + 88
    if values[7] & 0x30:
        other = _OTHERS[values[7] & 0x30]
        values = other.unpack_from(data, at)
        body_at = at + other.size
    body_end = body_at + values[16]
    if values[1] == builders.MAGIC_V2:
        topic_at = body_end + 2
        topic_end = topic_at + _SHORT.unpack_from(data, body_end)[0]
    else:
        topic_at = body_end + 1
        topic_end = topic_at + data[body_end]
    properties_at = topic_end + 2
    record_end = properties_at + _SHORT.unpack_from(data, topic_end)[0]
    variable = data[body_at:body_end], data[topic_at:topic_end], data[properties_at:record_end]
    return _new(MessageRecord, values + variable)


def bare(data: bytes, at: int) -> tuple[Any, ...]:
    """The same for nothing but short IPv4 records of version 1, without names for the fields."""
    values = _V4V4.unpack_from(data, at)
    body_end = at + 88 + values[16]
    topic_end = body_end + 1 + data[body_end]
    record_end = topic_end + 2 + _SHORT.unpack_from(data, topic_end)[0]
    return values + (data[at + 88 : body_end], data[body_end + 1 : topic_end], data[topic_end + 2 : record_end])  # noqa: RUF005


def seconds(functions: dict[str, Callable[[bytes, int], object]], record: bytes) -> dict[str, float]:
    """The least time of each function per record, taken in turns so that a busy machine disturbs all alike."""
    data = record * 64
    places = range(0, len(data), len(record))
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(ROUNDS):
        for name, function in functions.items():
            start = time.perf_counter()
            for at in places:
                function(data, at)
            best[name] = min(best[name], (time.perf_counter() - start) / len(places))
    return best


@pytest.mark.bench
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_costs_little_over_a_plain_struct_loop(name: str) -> None:
    record = RECORDS[name]
    found = decode_record(record)
    assert isinstance(found, Message)
    assert found == plain(record, 0)
    functions: dict[str, Callable[[bytes, int], object]] = {"decode_record": decode_record, "plain loop": plain}
    if name in ("example of the specification", "1 KiB body"):
        assert found == bare(record, 0)
        functions["bare tuples"] = bare
    functions["construct"] = lambda data, at: declarations.MESSAGE.parse(data[at : at + len(record)])
    times = seconds(functions, record)
    ratio = times["decode_record"] / times["plain loop"]
    shown = ", ".join(f"{title} {value * 1e9:.0f} ns" for title, value in times.items())
    print(f"\n{name}: {shown}; decode_record / plain loop = {ratio:.2f}")
    assert ratio <= AT_MOST
