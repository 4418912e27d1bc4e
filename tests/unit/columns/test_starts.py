"""Record starts: always those of the walk one by one."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from rmqtool.columns import starts
from rmqtool.columns.starts import Declined, cover_with_units, record_starts
from rmqtool.formats.commit_log import Blank, Flaw, Nothing
from tests.support.builders import blank, record
from tests.support.one_by_one import assert_like_walk, walk
from tests.support.seeded_stores import make_segment, seeded


def log(count: int, seed: int, smallest: int = 0, largest: int = 60) -> bytes:
    """Plain records back to back."""
    rng = random.Random(seed)
    parts, at = [], 0
    for number in range(count):
        body = rng.randbytes(rng.randint(smallest, largest))
        parts.append(record(body, physical_offset=at, queue_offset=number))
        at += len(parts[-1])
    return b"".join(parts)


@seeded
def test_every_kind_of_segment(seed: int) -> None:
    segment = make_segment(seed)
    found = record_starts(segment.data)
    assert found.file_offsets.tolist()[: len(segment.starts)] == segment.starts
    assert_like_walk(segment.data)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_segments(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(make_segment(seed * 7, fakes=bool(seed % 2)).data)
    for _ in range(rng.randrange(1, 6) if data else 0):
        at, length = rng.randrange(len(data)), rng.randrange(1, 400)
        data[at : at + length] = rng.choice((bytes, rng.randbytes))(len(data[at : at + length]))
    assert_like_walk(bytes(data))


@pytest.mark.parametrize("seed", range(20))
def test_from_any_start_to_any_end(seed: int) -> None:
    rng = random.Random(seed)
    segment = make_segment(seed)
    if segment.starts:
        assert_like_walk(segment.data, rng.choice(segment.starts), rng.randrange(len(segment.data) + 1))


def test_records_in_bodies_do_not_lead_astray() -> None:
    """Every body holds records that claim the places they have, so that they look right wherever a walk begins."""
    rng = random.Random(5)
    parts, at = [], 0
    for _ in range(4000):
        fake = record(rng.randbytes(20), physical_offset=at + 88)
        fake += record(rng.randbytes(rng.randrange(60)), physical_offset=at + 88 + len(fake))
        parts.append(record(fake, b"Real", physical_offset=at))
        at += len(parts[-1])
    data = b"".join(parts) + bytes(100)
    seeds = starts._find_seeds(memoryview(data), 0, (at // 4000, at // 2000), 0)
    true = set(walk(data)[0])
    assert sum(seed not in true for seed in seeds.tolist()) > 20, "no walk began in a body: the test is void"
    assert_like_walk(data)


def test_sizes_that_change_along_the_segment() -> None:
    """The first records say nothing about the others."""
    small, large = log(3000, 1), log(30, 2, 50_000, 90_000)
    assert_like_walk(large + small)
    assert_like_walk(log(70, 3) + large + small + bytes(9))


def test_wrong_place_in_the_first_record() -> None:
    data = bytearray(log(2000, 4))
    data[28:36] = (12345).to_bytes(8, "big")
    assert_like_walk(bytes(data))


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), 90, 7, (1 << 31) - 1])
def test_a_size_that_cannot_be_ends_the_walk(size: int) -> None:
    data = log(500, 6)
    at = walk(data)[0][400]
    damaged = data[:at] + struct.pack(">i", size) + data[at + 4 :]
    found = record_starts(damaged)
    assert found.stopped_at == at
    assert isinstance(found.stopped_by, Flaw)
    assert found.stopped_by.code == "CL-LEN"
    assert_like_walk(damaged)


def test_what_ends_the_walk() -> None:
    data = log(200, 7)
    assert record_starts(data + blank(64) + bytes(56)).stopped_by == Blank(64)
    assert record_starts(data + bytes(50)).stopped_by == Nothing(50)
    assert record_starts(data + b"\1\2\3").stopped_by == Nothing(3)
    assert record_starts(data).stopped_by == Nothing(0)
    wrong = record_starts(data + b"\0\0\0\x64garbage!").stopped_by
    assert isinstance(wrong, Flaw)
    assert wrong.code == "CL-MAGIC"


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_buffer(make: type) -> None:
    data = log(300, 8)
    assert record_starts(make(data)).file_offsets.tolist() == walk(data)[0]


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_any_length(length: int) -> None:
    assert_like_walk(log(80, 9)[-length - 5000 :][:length])
    data = log(80, 9)
    assert_like_walk(data[: len(data) - length])


def cover(units: list[tuple[int, int]], begin: int, end: int) -> object:
    offsets = np.array([offset for offset, _ in units], np.int64)
    return cover_with_units(offsets, np.array([size for _, size in units], np.int32), begin, end)


def test_units_cover_the_log_but_for_gaps() -> None:
    found = cover([(300, 100), (100, 100), (100, 100), (500, 50)], 0, 600)
    assert not isinstance(found, Declined)
    assert found.file_offsets.tolist() == [100, 300, 500]
    assert found.sizes.tolist() == [100, 100, 50]
    assert list(zip(found.gap_offsets.tolist(), found.gap_lengths.tolist(), strict=True)) == [
        (0, 100),
        (200, 100),
        (400, 100),
        (550, 50),
    ]


def test_no_units_leave_one_gap() -> None:
    found = cover([], 40, 100)
    assert not isinstance(found, Declined)
    assert (found.gap_offsets.tolist(), found.gap_lengths.tolist()) == ([40], [60])
    assert found.file_offsets.tolist() == []


@pytest.mark.parametrize(
    ("units", "at"),
    [
        ([(0, 100), (50, 100)], 50),
        ([(0, 100), (0, 120)], 0),
        ([(0, 100), (190, 20)], 200),
        ([(-5, 100)], -5),
        ([(0, 100), (120, 0)], 120),
        ([(0, 100), (120, -8)], 112),
    ],
)
def test_units_that_cannot_be_are_declined(units: list[tuple[int, int]], at: int) -> None:
    found = cover(units, 0, 200)
    assert isinstance(found, Declined)
    assert found.file_offset in (at, *[offset for offset, size in units if size <= 0])


@pytest.mark.parametrize("seed", range(0, 300, 10))
def test_units_and_gaps_together_are_the_log(seed: int) -> None:
    """Dropping units leaves gaps; walking those gives back what was dropped."""
    rng = random.Random(seed)
    segment = make_segment(seed)
    sizes = np.diff([*segment.starts, segment.end])
    kept = np.array([rng.random() < 0.8 for _ in segment.starts], bool)
    order = rng.sample(range(int(kept.sum())), int(kept.sum()))
    offsets = np.array(segment.starts, np.int64)
    found = cover_with_units(offsets[kept][order], sizes[kept][order], 0, segment.end)
    assert not isinstance(found, Declined)
    walked = [
        record_starts(segment.data, gap, gap + length).file_offsets
        for gap, length in zip(found.gap_offsets.tolist(), found.gap_lengths.tolist(), strict=True)
    ]
    assert np.sort(np.concatenate((found.file_offsets, *walked))).tolist() == segment.starts
