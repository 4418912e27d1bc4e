"""What is read from many property texts at once is what the dispatch of each record makes of its own."""

from __future__ import annotations

import random

import pytest

from rmqtool.formats.commit_log import decode_record
from rmqtool.formats.dispatch import iter_index_texts, rules_of, tags_code
from rmqtool.upstream.index_counts import NamedValues, count_index_texts
from tests.support.builders import record

NAMES = ("UNIQ_KEY", "KEYS", "TAGS", "KEY", "XKEYS", "KEYSX", "WAIT", "")
VALUES = ("", "a", " ", "a b", "  a  b ", "a\x01b", "KEYS", "é 漢", "a=b", "\x01")


def made(block: bytes, version: str) -> int:
    message = decode_record(record(b"body", property_text=block))
    return len(list(iter_index_texts(message, rules_of(version, ()))))


def draw_blocks(dice: random.Random) -> list[bytes]:
    blocks = []
    for _ in range(dice.randrange(1, 60)):
        pairs = [f"{dice.choice(NAMES)}\x01{dice.choice(VALUES)}" for _ in range(dice.randrange(6))]
        text = "\x02".join(pairs) + dice.choice(("", "\x02", "\x02\x02", "\x02KEYS"))
        blocks.append(text.encode())
    return blocks


@pytest.mark.parametrize(("version", "tags"), [("5.3.3", False), ("5.4.0", True)])
def test_as_many_are_counted_as_are_made(version, tags):
    dice = random.Random(7)
    seen = set()
    for _ in range(150):
        blocks = draw_blocks(dice)
        expected = [made(block, version) for block in blocks]
        assert [count_index_texts(block, tags=tags) for block in blocks] == expected
        assert NamedValues(blocks).count_texts(tags=tags).tolist() == expected
        seen.update(expected)
    assert seen >= {0, 1, 2, 3}


def test_records_without_properties():
    assert NamedValues([b"", b"", b""]).count_texts(tags=True).tolist() == [0, 0, 0]


def test_tags_have_the_hashes_of_their_units():
    dice = random.Random(8)
    seen = set()
    for _ in range(150):
        blocks = draw_blocks(dice)
        expected = [tags_code(decode_record(record(b"body", property_text=block)), ()) for block in blocks]
        assert NamedValues(blocks).tags_hashes().tolist() == expected
        seen.update(expected)
    assert 0 in seen
    assert len(seen) >= 7
