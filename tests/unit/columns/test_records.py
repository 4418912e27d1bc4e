"""Columns of records: what ``formats.decode_record`` and ``check_record`` say, for all records at once."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from rmqtool.columns import records as module
from rmqtool.columns.records import (
    decode_records,
    have_right_crc,
    have_right_property_crc,
    have_zeros,
    lie_in_place,
)
from rmqtool.columns.starts import Declined, record_starts
from rmqtool.formats.commit_log import Message, check_record, decode_record
from tests.support.builders import EXAMPLE_A, EXAMPLE_C, EXAMPLE_D, MAGIC_V1, MAGIC_V2, record
from tests.support.one_by_one import assert_like_formats
from tests.support.seeded_stores import make_segment, seeded


@seeded
def test_every_kind_of_record(seed: int) -> None:
    segment = make_segment(seed)
    found, declined = decode_records(segment.data, np.array(segment.starts, np.int64))
    assert declined is None, "declined on clean data"
    assert len(found) == len(segment.starts)
    some = segment.starts if seed % 10 == 0 else segment.starts[:25]
    assert_like_formats(segment.data, some)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_records(seed: int) -> None:
    """Damage to a record's head or lengths ends the columns exactly where decoding one by one ends."""
    rng = random.Random(seed)
    segment = make_segment(seed)
    for _ in range(8 if segment.starts else 0):
        data = bytearray(segment.data)
        at = rng.choice(segment.starts)
        end = decode_record(segment.data, at).total_size + at
        spot = rng.choice((at + rng.randrange(91), rng.randrange(at, end)))
        data[spot] ^= 1 << rng.randrange(8)
        first = max(segment.starts.index(at) - 2, 0)
        assert_like_formats(bytes(data), segment.starts[first : first + 5])


def test_every_bit_of_a_record() -> None:
    """The middle one of three records with each of its bits flipped."""
    three = [record(b"body", b"Topic", b"k\x01v\x02", physical_offset=at) for at in range(3)]
    starts = [0, len(three[0]), 2 * len(three[0])]
    for bit in range(len(three[1]) * 8):
        middle = bytearray(three[1])
        middle[bit // 8] ^= 1 << bit % 8
        assert_like_formats(three[0] + bytes(middle) + three[2], starts)


def test_examples() -> None:
    data = EXAMPLE_A + EXAMPLE_C + EXAMPLE_D
    found = assert_like_formats(data, [0, len(EXAMPLE_A), len(EXAMPLE_A) + len(EXAMPLE_C)])
    assert found.column("queue_offset").tolist() == [5, 5, 5]
    assert found.column("body_crc").tolist() == [1250039395, 1250039395, 0]
    assert found.column("sys_flag").tolist() == [0, 0, 0x30]
    assert found.column("body_crc").dtype == np.dtype(np.int32)
    assert found.column("physical_offset").dtype == np.dtype(np.int64)


@pytest.mark.parametrize("cut", range(len(EXAMPLE_D)))
def test_cut_records(cut: int) -> None:
    assert_like_formats(EXAMPLE_D[:cut], [0])
    assert_like_formats(EXAMPLE_A + EXAMPLE_D, [0, len(EXAMPLE_A)], len(EXAMPLE_A) + cut)


def test_any_order_and_any_offsets() -> None:
    segment = make_segment(26)
    shuffled = random.Random(1).sample(segment.starts, len(segment.starts))
    assert_like_formats(segment.data, shuffled)
    for at in range(500):
        assert_like_formats(segment.data, [shuffled[0], at])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(200), "no record was ever written here"),
        (bytes(3), "no record was ever written here"),
        (b"\0\0\0\xc8\xcb\xd4\x31\x94" + bytes(192), "the blank record at the end of the segment"),
        (b"\0\0\0\xc8\xcb\xd4\x31\x95" + bytes(192), "magic 0xcbd43195 is not a record magic"),
    ],
)
def test_what_is_no_record_is_declined_with_its_reason(data: bytes, reason: str) -> None:
    found, declined = decode_records(EXAMPLE_A + data, np.array([0, len(EXAMPLE_A)]))
    assert len(found) == 1
    assert declined == Declined(reason, len(EXAMPLE_A))


def test_no_records() -> None:
    found, declined = decode_records(b"", np.empty(0, np.int64))
    assert (len(found), declined) == (0, None)
    assert have_right_crc(found).tolist() == []
    assert have_right_property_crc(found).tolist() == []


@pytest.mark.parametrize("seed", range(0, 300, 6))
@pytest.mark.parametrize("crc32", [zlib.crc32, None], ids=["zlib", "fastest"])
def test_checks_are_those_of_one_record(seed: int, crc32: module.Crc32 | None) -> None:
    """Bodies, places and property blocks are damaged; each check names the same records as the check of one does."""
    rng = random.Random(seed)
    segment = make_segment(seed)
    data = bytearray(segment.data)
    for at in segment.starts:
        message = decode_record(segment.data, at)
        assert isinstance(message, Message)
        if rng.random() < 0.1:
            time_at = at + 56 + 12 * (message.sys_flag >> 4 & 1)
            data[time_at : time_at + 8] = rng.choice((bytes(8), b"\xff" * 8))
        if rng.random() < 0.2:
            data[at + 28 + rng.randrange(8)] ^= 1
        if message.raw_body and rng.random() < 0.2:
            data[at + 88 + 12 * (message.sys_flag >> 4 & 3).bit_count()] ^= 4
        if len(message.raw_properties) >= 20 and rng.random() < 0.5:
            data[at + message.total_size - rng.randrange(2, 12)] ^= 1
    found, declined = decode_records(data, np.array(segment.starts, np.int64))
    assert declined is None
    crc, place = have_right_crc(found, crc32), lie_in_place(found, segment.base)
    property_crc, times = have_right_property_crc(found, crc32), found.column("store_timestamp") > 0
    for row, at in enumerate(segment.starts):
        message = decode_record(data, at)
        assert isinstance(message, Message)
        flaws = list(check_record(message, data, at, segment.base + at))
        assert place[row] == (not any(flaw.code == "CL-PHY" for flaw in flaws))
        assert times[row] == (not any(flaw.code == "CL-TIME" for flaw in flaws))
        assert crc[row] == (not any("body checksum" in flaw.message for flaw in flaws))
        assert property_crc[row] == (not any("property checksum" in flaw.message for flaw in flaws))


def test_checks_name_damage() -> None:
    wrong = EXAMPLE_A[:88] + b"J" + EXAMPLE_A[89:]
    data = EXAMPLE_A + wrong + EXAMPLE_C
    offsets = np.array([0, len(wrong), 2 * len(wrong)])
    found, _ = decode_records(data, offsets)
    assert have_right_crc(found).tolist() == [True, False, True]
    assert lie_in_place(found, 1024).tolist() == [True, False, False]
    assert have_right_property_crc(found).tolist() == [True, True, True]
    other = data[:-2] + b"1\x02"
    assert have_right_property_crc(decode_records(other, offsets)[0]).tolist() == [True, True, False]


def test_lengths_that_lead_back_are_no_lengths() -> None:
    """Topic and body lengths below zero, with bytes in the body that would make the sum come out."""
    for magic, length_size in ((MAGIC_V1, 1), (MAGIC_V2, 2)):
        one = bytearray(record(bytes(300), b"t" * 5, b"k\x01v\x02", magic=magic))
        topic_at = 88 + 300 + length_size
        one[topic_at - length_size : topic_at] = (-100).to_bytes(length_size, "big", signed=True)
        properties_at = topic_at - 100 + 2
        one[properties_at - 2 : properties_at] = (len(one) - properties_at).to_bytes(2, "big")
        assert len(assert_like_formats(bytes(one), [0])) == 0
        one[84:88] = (-1).to_bytes(4, "big", signed=True)
        assert len(assert_like_formats(bytes(one), [0])) == 0


@pytest.mark.parametrize("at", range(1, 21))
def test_what_only_looks_like_a_property_checksum(at: int) -> None:
    """A block with any of its bytes changed to what cannot stand there is no block, and nothing to be wrong about."""
    data = bytearray(EXAMPLE_C)
    data[88] ^= 1
    found, _ = decode_records(bytes(data), np.array([0]))
    assert have_right_property_crc(found).tolist() == [False]
    data[-at] = ord("x")
    found, _ = decode_records(bytes(data), np.array([0]))
    assert have_right_property_crc(found).tolist() == [True]
    assert not any("property" in flaw.message for flaw in check_record(decode_record(data), data, 0, None))


@pytest.mark.parametrize("rows", [slice(2, 5), np.array([7, 1, 1]), np.arange(9) % 2 == 0])
def test_select(rows: object) -> None:
    data = b"".join(record(bytes(n), physical_offset=n) for n in range(9))
    found, _ = decode_records(data, record_starts(data).file_offsets)
    chosen = found.select(rows)  # type: ignore[arg-type]
    assert chosen.column("physical_offset").tolist() == np.arange(9)[rows].tolist()  # type: ignore[index]
    assert chosen.body_lengths.tolist() == np.arange(9)[rows].tolist()  # type: ignore[index]
    assert chosen.topic_offsets.tolist() == found.topic_offsets[rows].tolist()  # type: ignore[index]


@pytest.mark.parametrize("last", [b"", b"k\x01v\x02"], ids=["last one without properties", "all with properties"])
def test_zeros_in_topic_or_properties(last: bytes) -> None:
    """A zero in any byte of topic or properties is seen; one in body, lengths or other fields is none."""
    parts = [(b"body\0", b"Topic", b"k\x01v\x02"), (b"", b"T", b""), (b"\0\0", b"Other", last)]
    data = b"".join(record(*part) for part in parts)
    starts = record_starts(data).file_offsets
    assert have_zeros(decode_records(data, starts)[0]).tolist() == [False, False, False]
    for row, (begin, (_, topic, texts)) in enumerate(zip(starts.tolist(), parts, strict=True)):
        end = begin + len(record(*parts[row]))
        places = [*range(end - len(texts), end), *range(end - len(texts) - 2 - len(topic), end - len(texts) - 2)]
        for place in places:
            torn = data[:place] + b"\0" + data[place + 1 :]
            assert have_zeros(decode_records(torn, starts)[0]).tolist() == [one == row for one in range(3)]
