"""Index files: hash, times, places, geometry."""

from __future__ import annotations

import itertools

import pytest

from rmqtool.formats import index, layouts
from tests.builders import EXAMPLE_INDEX_FILE


@pytest.mark.parametrize(
    ("text", "key_hash"),
    [
        ("TopicTest#order-1", 1829193424),
        ("TopicTest#C0A8010A10E118B4AAC247B760000007", 1518470692),
        ("TopicTest#vlsoaerz", 0),  # String.hashCode() is Integer.MIN_VALUE, which abs() leaves negative
        ("TopicTest#pIApmb", 2147483647),
        ("TopicTest#T#TagA", 1311325016),
        ("TagABCDEF", 1105932195),
        ("", 0),
        ("中文", 646394),
        ("𝄞", 1772394),
    ],
)
def test_key_hash(text: str, key_hash: int) -> None:
    assert index.key_hash(text) == key_hash


def test_key_texts() -> None:
    assert index.key_text("TopicTest", "order-1") == "TopicTest#order-1"
    assert index.tag_key_text("TopicTest", "TagA") == "TopicTest#T#TagA"


@pytest.mark.parametrize(
    ("store", "begin", "seconds"),
    [
        (1700000005123, 1700000000123, 5),
        (1700000005122, 1700000000123, 4),
        (1700000000123, 1700000000123, 0),
        (1700000000122, 1700000000123, 0),
        (1600000000000, 1700000000123, 0),
        (1700000000123, 0, 0),
        (1700000000123, -1, 0),
        (1 << 62, 1, 2147483647),
        (1 + 2147483647999, 1, 2147483647),
        (1 + 2147483646999, 1, 2147483646),
        (-(1 << 63), 1700000000123, 2147483647),  # Java's subtraction wraps
    ],
)
def test_time_diff(store: int, begin: int, seconds: int) -> None:
    assert index.time_diff(store, begin) == seconds


def test_the_file_of_the_specification() -> None:
    slots, entries = 8, 6
    assert index.file_size(slots, entries) == len(EXAMPLE_INDEX_FILE) == 192
    header = layouts.INDEX_HEADER.decode(EXAMPLE_INDEX_FILE)
    assert header == (1700000000123, 1700000005123, 1024, 1230, 2, 4)
    slot = index.key_hash("TopicTest#order-1") % slots
    (newest,) = layouts.INDEX_SLOT.decode(EXAMPLE_INDEX_FILE, index.slot_offset(slot))
    assert newest == 3
    entry = layouts.INDEX_ENTRY.decode(EXAMPLE_INDEX_FILE, index.entry_offset(slots, newest))
    assert entry == (1829193424, 1230, 5, 2)
    assert index.time_diff(1700000005123, header.begin_timestamp) == entry.time_diff
    older = layouts.INDEX_ENTRY.decode(EXAMPLE_INDEX_FILE, index.entry_offset(slots, entry.prev_index))
    assert older == (1829193424, 1024, 0, 0)


def test_places_of_the_default_geometry() -> None:
    slots, entries = index.DEFAULT_GEOMETRY
    assert index.file_size(slots, entries) == 420_000_040
    assert index.slot_offset(4193424) == 16773736
    assert index.slot_offset(0) == 40
    assert index.entry_offset(slots, 0) == 20_000_040
    assert index.entry_offset(slots, 1) == 20_000_060
    assert index.entry_offset(slots, entries) == 420_000_040


@pytest.mark.parametrize("size", [40 + 4 + 20, 192, 40 + 64 * 4 + 200 * 20, 40 + 37 * 4 + 160 * 20])
def test_geometries_of_a_size(size: int) -> None:
    found = list(index.iter_geometries(size))
    by_trial = [
        (slots, entries)
        for slots in range(1, size // 4)
        for entries in range(1, size // 20)
        if 40 + 4 * slots + 20 * entries == size
    ]
    assert found == by_trial


def test_geometries_hold_the_true_one_and_begin_with_the_fewest_slots() -> None:
    assert (64, 200) in list(index.iter_geometries(40 + 64 * 4 + 200 * 20))
    assert list(itertools.islice(index.iter_geometries(420_000_040), 2)) == [(5, 20_999_999), (10, 20_999_998)]
    assert index.DEFAULT_GEOMETRY in itertools.islice(index.iter_geometries(420_000_040), 999_998, 1_000_002)


@pytest.mark.parametrize("size", [-1, 0, 39, 40, 44, 60, 63, 65, 66, 67, 193])
def test_sizes_that_no_index_file_has(size: int) -> None:
    assert list(index.iter_geometries(size)) == []
