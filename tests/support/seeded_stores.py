"""Segments of any content, made from a seed with ``tests.support.builders``: every kind of record and of ending.

A segment knows where its records begin and what stands behind the last one. Bodies may hold whole records, at the
right place and size: only walking from the start tells them from real ones.
"""

from __future__ import annotations

import random
import zlib
from typing import NamedTuple

import pytest

from tests.support.builders import (
    BORN_V4_HOST,
    BORN_V6_HOST,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_V4_HOST,
    STORE_V6_HOST,
    Host,
    blank,
    properties,
    record,
    record_with_property_crc,
)

SEEDS = range(300)

seeded = pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed % 4 == 0 else pytest.mark.slow) for seed in SEEDS]
)
"""A test for each seed: one in four in the default run, all of them in the long one."""

_COMPRESSED = 0x001
_TRANSACTIONS = (0x000, 0x000, 0x000, 0x004, 0x008, 0x00C)
_CODECS = (0x000, 0x300)
_TOPICS = (
    b"TopicA",
    b"TopicB",
    b"orders.new",
    b"%RETRY%group",
    "Тема".encode(),
    b"x" * 127,
    b"SCHEDULE_TOPIC_XXXX",
    b"",
)
_LONG_TOPICS = (b"%RETRY%" + b"y" * 140, b"z" * 255, b"w" * 3000)
_VALUES = ("v", "TagA", "TagB", "Тег", "\U0001d11e", "a b  c", "12", "x\x01y", 'quote " \\ \n end', "é" * 40)
_NAMES = (
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "DELAY",
    "CLUSTER",
    "TAG",
    "Имя",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
)
_ODD_PROPERTIES = (
    b"",
    b"\x02",
    b"\x01\x02",
    b"a\x01",
    b"\x01b\x02",
    b"name\x02k\x01v",
    b"a\x01\x02k\x01v",
    b"k\x01v\x01w\x02",
    b"TAGS\x01one\x02TAGS\x01two\x02",
    b"TAGS\x01one\x02KEYS\x01k\x02TAGS\x01\x02",
    b"TAGS\x01\xed\xa0\x80x\x02",
    b"TAGS\x01\xff\xfe\x02\xff\x01v\x02\xfe\x01w",
    b"KEYS\x01" + b" ".join(b"%d" % n for n in range(300)) + b"\x02",
    b"big\x01" + b"v" * 9000 + b"\x02TAGS\x01t",
    b"x\x01\x01\x01\x02\x02\x02y\x01z\x02\x02",
)


class Segment(NamedTuple):
    """The bytes of a segment, the place of its first byte in the log, its record starts, and where they end."""

    data: bytes
    base: int
    starts: list[int]
    end: int


def make_segment(seed: int, *, fakes: bool | None = None) -> Segment:
    """Return the segment of a seed; ``fakes`` asks for bodies with records in them or forbids them."""
    rng = random.Random(seed)
    base = rng.choice((0, 65536, 7 << 30, (1 << 40) + 12345))
    count = rng.choice((0, 1, 5, 60, 64, 65, 300, 900))
    with_fakes = rng.random() < 0.3 if fakes is None else fakes
    mixed = rng.random() < 0.7
    parts: list[bytes] = []
    starts: list[int] = []
    at = 0
    for number in range(count):
        one = (
            _any_record(rng, base + at, number, with_fakes)
            if mixed
            else _plain_record(rng, base + at, number, with_fakes)
        )
        starts.append(at)
        parts.append(one)
        at += len(one)
    parts.append(_ending(rng, base + at))
    return Segment(b"".join(parts), base, starts, at)


def _plain_record(rng: random.Random, place: int, number: int, with_fakes: bool) -> bytes:
    body = _fake_body(rng, place + 88) if with_fakes and rng.random() < 0.5 else rng.randbytes(rng.randrange(120))
    pairs = (("KEYS", f"key{number}"), ("UNIQ_KEY", f"{number:032X}"), ("TAGS", rng.choice(("TagA", "TagB"))))
    terminated = rng.random() < 0.5
    text = properties(*pairs, terminated=terminated)
    return record(body, rng.choice(_TOPICS[:3]), text, queue_offset=number, physical_offset=place, queue_id=number % 4)


def _any_record(rng: random.Random, place: int, number: int, with_fakes: bool) -> bytes:
    born = (
        BORN_V6_HOST
        if rng.random() < 0.2
        else rng.choice((BORN_V4_HOST, Host(bytes((10, 0, 0, rng.randrange(9))), -1)))
    )
    store = STORE_V6_HOST if rng.random() < 0.1 else STORE_V4_HOST
    long = rng.random() < 0.1
    body, sys_flag = _any_body(rng, place + 112, with_fakes)
    one = record(
        body,
        rng.choice(_LONG_TOPICS if long else _TOPICS),
        _any_properties(rng, number),
        magic=MAGIC_V2 if long else MAGIC_V1,
        queue_id=rng.choice((0, 1, 2, 7, 1 << 20)),
        flag=rng.randrange(-(1 << 31), 1 << 31),
        queue_offset=rng.choice((number, 0, 1 << 40)),
        physical_offset=place,
        sys_flag=sys_flag | rng.choice(_TRANSACTIONS),
        born_timestamp=rng.choice((0, -1, 1700000000000 + number, (1 << 63) - 1)),
        born_host=born,
        store_timestamp=1700000000000 + 10 * number,
        store_host=store,
        reconsume_times=rng.choice((0, 0, 16)),
        prepared_transaction_offset=rng.choice((0, place, -1)),
    )
    if not long and rng.random() < 0.1:
        prefix = 88 + (12 if len(born.ip) == 16 else 0) + (12 if len(store.ip) == 16 else 0)
        one = record_with_property_crc(one, prefix)
    return one


def _any_body(rng: random.Random, place: int, with_fakes: bool) -> tuple[bytes, int]:
    """A body, and the bits of the system flag that tell how it is stored."""
    if with_fakes and rng.random() < 0.5:
        return _fake_body(rng, place), 0
    text = rng.choice(
        (b"", b"hello", '{"a": "ü", "b": [1, 2]}'.encode(), b"\xff\x00\x01\x02", rng.randbytes(rng.randrange(600)))
    )
    if rng.random() < 0.15:
        stored = zlib.compress(text) if rng.random() < 0.8 else text
        return stored, _COMPRESSED | rng.choice(_CODECS)
    return text, 0


def _fake_body(rng: random.Random, place: int) -> bytes:
    """Whole records as a body: with the place they really have, or with any size and place."""
    parts = []
    for _ in range(rng.randrange(1, 5)):
        fake = bytearray(record(rng.randbytes(rng.randrange(30)), b"Fake", physical_offset=place))
        if rng.random() < 0.3:
            fake[:4] = rng.choice((0, 91, 200, 100_000)).to_bytes(4, "big")
        parts.append(bytes(fake))
        place += len(fake)
    return b"".join(parts)


def _any_properties(rng: random.Random, number: int) -> bytes:
    if rng.random() < 0.3:
        return rng.choice(_ODD_PROPERTIES)
    pairs = [(name, rng.choice(_VALUES)) for name in rng.sample(_NAMES, rng.randrange(len(_NAMES)))]
    if rng.random() < 0.5:
        pairs.append(("UNIQ_KEY", f"{number:032X}"))
    if rng.random() < 0.2:
        pairs += [("INNER_MULTI_DISPATCH", "%LMQ%a,TopicB"), ("INNER_MULTI_QUEUE_OFFSET", f"{number},{number + 7}")]
    return properties(*pairs, terminated=rng.random() < 0.5)


def _ending(rng: random.Random, place: int) -> bytes:
    whole = record(rng.randbytes(50), b"TopicA", b"KEYS\x01k\x02", physical_offset=place)
    return rng.choice(
        (
            b"",
            bytes(7),
            bytes(200),
            blank(300) + rng.randbytes(292),
            blank(8),
            whole[: rng.randrange(8, len(whole))],
            whole[: rng.randrange(8, len(whole))] + bytes(500),
            bytes(4) + whole[4:],
            (90).to_bytes(4, "big") + whole[4:],
            b"\xff" + whole[1:],
            rng.randbytes(100),
            whole[:4] + MAGIC_BLANK.to_bytes(4, "big") + whole[8:],
        )
    )
