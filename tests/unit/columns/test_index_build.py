"""Index files: the bytes that inserting one key after the other gives."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from rmqtool.columns.index_build import Keys
from tests.support.builders import EXAMPLE_INDEX_FILE, java_hash
from tests.support.column_files import IndexContent, insert_keys

Key = tuple[int, int, int]


class OneByOne:
    """An index as the specification writes it, one key after the other."""

    def __init__(self, slots: int, entries: int) -> None:
        self.slots, self.entries = slots, entries
        self.files = [bytearray(40 + 4 * slots + 20 * entries)]

    def put(self, key: Key) -> None:
        if not self.put_key(*key):
            last_time, last_place = struct.unpack_from(">8xq8xq", self.files[-1])
            new = bytearray(len(self.files[-1]))
            for offset, value in ((0, last_time), (8, last_time), (16, last_place), (24, last_place)):
                if value > 0:
                    struct.pack_into(">q", new, offset, value)
            self.files.append(new)
            assert self.put_key(*key)

    def put_key(self, key_hash: int, place: int, time: int) -> bool:
        data = self.files[-1]
        begin, _, _, _, used, count = struct.unpack_from(">4q2i", data)
        count = max(count, 1)
        if count >= self.entries:
            return False
        slot_at = 40 + 4 * (key_hash % self.slots)
        (head,) = struct.unpack_from(">i", data, slot_at)
        if head <= 0 or head > count:
            head = 0
        seconds = min(max(int((time - begin) / 1000), 0), 0x7FFFFFFF) if begin > 0 else 0
        struct.pack_into(">iqii", data, 40 + 4 * self.slots + 20 * count, key_hash, place, seconds, head)
        struct.pack_into(">i", data, slot_at, count)
        if count <= 1:
            struct.pack_into(">q", data, 0, time)
            struct.pack_into(">q", data, 16, place)
        struct.pack_into(">ii", data, 32, used + (head == 0), count + 1)
        struct.pack_into(">q", data, 8, time)
        struct.pack_into(">q", data, 24, place)
        return True


def columns(keys: list[Key]) -> Keys:
    hashes, places, times = zip(*keys, strict=True) if keys else ((), (), ())
    return Keys(np.array(hashes, np.int32), np.array(places, np.int64), np.array(times, np.int64))


def random_keys(rng: random.Random, count: int) -> list[Key]:
    """Keys with repeated hashes; several of one message; times that stand still, jump, go back or are none."""
    keys: list[Key] = []
    place, time = rng.choice((0, 1 << 40)), rng.choice((1700000000000, 0, -5, 1))
    while len(keys) < count:
        keys += [
            (rng.choice((0, 7, 0x7FFFFFFF, rng.randrange(1 << 31))), place, time)
            for _ in range(rng.choice((1, 1, 2, 5)))
        ]
        place += rng.randrange(91, 500)
        time += rng.choice((0, 1, 999, 1000, 60_000, -3000, 10**13))
    return keys[:count]


def test_example_of_the_specification() -> None:
    uniq = "TopicTest#C0A8010A10E118B4AAC247B760000007"
    content = IndexContent(b"", 8, 6)
    keys = [
        (abs(java_hash(uniq)), 1024, 1700000000123),
        (1829193424, 1024, 1700000000123),
        (1829193424, 1230, 1700000005123),
    ]
    assert content.insert(columns(keys)) == 3
    assert content.data.tobytes() == EXAMPLE_INDEX_FILE.ljust(192, b"\0")


@pytest.mark.parametrize("seed", range(60))
def test_same_bytes_as_one_by_one(seed: int) -> None:
    """Any keys in pieces of any size, over several files."""
    rng = random.Random(seed)
    slots, entries = rng.choice((1, 2, 7, 64)), rng.choice((2, 3, 10, 100))
    keys = random_keys(rng, rng.choice((0, 1, entries - 1, entries, 250)))
    expected = OneByOne(slots, entries)
    for key in keys:
        expected.put(key)
    contents = [IndexContent(b"", slots, entries)]
    at = 0
    while at < len(keys):
        step = rng.choice((1, 2, 3, 40, 250))
        contents[-1:] = insert_keys(contents[-1], columns(keys[at : at + step]))
        at += step
    assert [content.data.tobytes() for content in contents] == [bytes(file) for file in expected.files]


@pytest.mark.parametrize("seed", range(40))
def test_same_bytes_on_a_file_that_a_crash_left(seed: int) -> None:
    """Slots and entries ahead of the header or behind it: what upstream takes for a chain, we take for one."""
    rng = random.Random(seed)
    slots, entries = 8, 60
    expected = OneByOne(slots, entries)
    for key in random_keys(rng, rng.randrange(50)):
        expected.put(key)
    damaged = expected.files[-1]
    for slot in range(slots):
        if rng.random() < 0.5:
            struct.pack_into(">i", damaged, 40 + 4 * slot, rng.choice((-1, 0, 5, 20, 59, 1 << 30)))
    struct.pack_into(">i", damaged, 36, rng.choice((-1, 0, 1, 10, 40)))
    content = IndexContent(bytes(damaged), slots, entries)
    more = random_keys(rng, rng.randrange(1, 100))
    for key in more:
        expected.put(key)
    found = insert_keys(content, columns(more))
    assert [one.data.tobytes() for one in found] == [bytes(file) for file in expected.files]
