"""Index files: hash, times, places, geometry."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.formats import index, layouts
from tests.support.builders import EXAMPLE_INDEX_FILE


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
    slot = index.slot_of(index.key_hash("TopicTest#order-1"), slots)
    (newest,) = layouts.INDEX_SLOT.decode(EXAMPLE_INDEX_FILE, index.slot_offset(slot))
    assert newest == 3
    entry = layouts.INDEX_ENTRY.decode(EXAMPLE_INDEX_FILE, index.entry_offset(slots, newest))
    assert entry == (1829193424, 1230, 5, 2)
    assert index.time_diff(1700000005123, header.begin_timestamp) == entry.time_diff
    older = layouts.INDEX_ENTRY.decode(EXAMPLE_INDEX_FILE, index.entry_offset(slots, entry.prev_index))
    assert older == (1829193424, 1024, 0, 0)


def test_the_slot_of_a_key_is_its_hash_modulo_the_slots() -> None:
    assert index.slot_of(1829193424, 5_000_000) == 4193424
    assert index.slot_of(0, 4) == 0
    assert index.slot_of(np.array([5, 4, 2147483647], np.int32), np.int64(4)).tolist() == [1, 0, 3]


def test_places_of_the_default_geometry() -> None:
    slots, entries = index.DEFAULT_GEOMETRY
    assert index.file_size(slots, entries) == 420_000_040
    assert index.slot_offset(4193424) == 16773736
    assert index.slot_offset(0) == 40
    assert index.entry_offset(slots, 0) == 20_000_040
    assert index.entry_offset(slots, 1) == 20_000_060
    assert index.entry_offset(slots, entries) == 420_000_040
