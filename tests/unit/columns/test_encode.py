"""Encoding many records: the bytes that laying them one after the other by hand gives."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest

from rmqtool.columns.encode import Outgoing, encode_records, record_sizes
from tests.support.builders import (
    BORN_V4_HOST,
    BORN_V6_HOST,
    EXAMPLE_A,
    MAGIC_V1,
    MAGIC_V2,
    STORE_V4_HOST,
    STORE_V6_HOST,
    Host,
    properties,
    record,
)
from tests.support.column_files import encode_tail


def expected(messages: list[dict[str, Any]], place: int) -> bytes:
    parts = []
    for message in messages:
        parts.append(record(physical_offset=place, **message))
        place += len(parts[-1])
    return b"".join(parts)


def outgoing(messages: list[dict[str, Any]], store_host: Host) -> Outgoing:
    def numbers(name: str, dtype: Any = np.int64) -> Any:
        return np.array([message[name] for message in messages], dtype)

    bits = [(0x10 if len(m["born_host"].ip) == 16 else 0) | (0x20 if len(store_host.ip) == 16 else 0) for m in messages]
    return Outgoing(
        bodies=[message["body"] for message in messages],
        tails=[encode_tail(m["topic"], m["property_text"], m["magic"]) for m in messages],
        queue_ids=numbers("queue_id"),
        queue_offsets=numbers("queue_offset"),
        born_timestamps=numbers("born_timestamp"),
        store_timestamps=numbers("store_timestamp"),
        born_hosts=[tuple(message["born_host"]) for message in messages],
        store_host=tuple(store_host),
        magics=numbers("magic"),
        flags=numbers("flag"),
        sys_flags=numbers("sys_flag") | np.array(bits, np.int64),
        reconsume_times=numbers("reconsume_times"),
        prepared_transaction_offsets=numbers("prepared_transaction_offset"),
    )


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("crc32", [zlib.crc32, None], ids=["zlib", "fastest"])
def test_any_messages(seed: int, crc32: Any) -> None:
    rng = random.Random(seed)
    store_host = rng.choice((STORE_V4_HOST, STORE_V6_HOST))
    hosts = rng.choice(([BORN_V4_HOST], [BORN_V6_HOST], [BORN_V4_HOST, BORN_V6_HOST, Host(b"\1\2\3\4", 5)]))
    messages: list[dict[str, Any]] = []
    for number in range(rng.randrange(60)):
        long = rng.random() < 0.2
        messages.append(
            {
                "body": rng.randbytes(rng.randrange(300)),
                "topic": b"t" * (200 if long else rng.randrange(127)),
                "property_text": properties(("KEYS", str(number))),
                "magic": MAGIC_V2 if long else MAGIC_V1,
                "queue_id": rng.randrange(9),
                "queue_offset": rng.randrange(1 << 50),
                "flag": rng.randrange(-9, 9),
                "sys_flag": rng.choice((0, 4, 8, 0x301)),
                "born_timestamp": rng.randrange(1 << 50),
                "store_timestamp": rng.randrange(1 << 50),
                "reconsume_times": rng.randrange(17),
                "prepared_transaction_offset": rng.randrange(1 << 50),
                "born_host": rng.choice(hosts),
                "store_host": store_host,
            }
        )
    place = rng.choice((0, 1 << 33))
    slab = encode_records(outgoing(messages, store_host), place, crc32)
    assert slab.data == expected(messages, place)
    assert slab.sizes.tolist() == [len(record(**message)) for message in messages]
    assert slab.physical_offsets.tolist() == (place + np.cumsum([0, *slab.sizes])[:-1]).tolist()
    assert record_sizes(outgoing(messages, store_host)).tolist() == slab.sizes.tolist()


def test_example_of_the_specification() -> None:
    pairs = (("KEYS", "order-1"), ("UNIQ_KEY", "C0A8010A10E118B4AAC247B760000007"))
    pairs += (("CLUSTER", "DefaultCluster"), ("TAGS", "TagA"))
    one = Outgoing(
        bodies=[b"Hello RocketMQ 2"],
        tails=[encode_tail(b"TopicTest", properties(*pairs, terminated=False))],
        queue_ids=1,
        queue_offsets=5,
        born_timestamps=1700000000000,
        store_timestamps=1700000000123,
        born_hosts=[tuple(BORN_V4_HOST)],
        store_host=tuple(STORE_V4_HOST),
    )
    assert encode_records(one, 1024).data == EXAMPLE_A


def test_one_value_for_all_and_given_checksums() -> None:
    many = Outgoing(
        bodies=[b"a", b"bb", b"ccc"],
        tails=[encode_tail(b"T", b"")] * 3,
        queue_ids=2,
        queue_offsets=np.array([7, 8, 9]),
        born_timestamps=10,
        store_timestamps=11,
        born_hosts=[tuple(BORN_V4_HOST)],
        store_host=tuple(STORE_V4_HOST),
        body_crcs=np.array([1, 2, 3]),
    )
    parts, place = [], 500
    for number, body in enumerate((b"a", b"bb", b"ccc")):
        parts.append(
            record(
                body,
                b"T",
                body_crc=number + 1,
                queue_id=2,
                queue_offset=7 + number,
                physical_offset=place,
                born_timestamp=10,
                store_timestamp=11,
            )
        )
        place += len(parts[-1])
    assert encode_records(many, 500).data == b"".join(parts)


def test_nothing() -> None:
    none = Outgoing([], [], 0, 0, 0, 0, [tuple(BORN_V4_HOST)], tuple(STORE_V4_HOST))
    slab = encode_records(none, 0)
    assert (slab.data, slab.sizes.tolist(), slab.physical_offsets.tolist()) == (b"", [], [])
