"""Index entries of many records: those that ``formats.dispatch`` gives, one record after the other."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.columns.dispatched import index_keys
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.records import Records, decode_records
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, iter_index_texts, rules_of
from rmqtool.formats.index import key_hash
from tests.support.builders import java_hash, properties, record
from tests.support.seeded_stores import SEEDS, make_segment

RULES = rules_of("5.3", ())
WITH_TAGS = rules_of("5.4", ())


def entries(records: Records, rules: DispatchRules) -> list[tuple[int, int]]:
    found = index_keys(records, decode_properties(records), rules)
    assert found.key_hashes.dtype == np.dtype(np.int32)
    return list(zip(found.rows.tolist(), found.key_hashes.tolist(), strict=True))


def decode(*parts: bytes) -> Records:
    found, declined = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    assert declined is None
    return found


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_every_kind_of_segment(seed: int) -> None:
    segment = make_segment(seed)
    rules = WITH_TAGS if seed % 2 else RULES
    expected = []
    for row, at in enumerate(segment.starts):
        message = decode_record(segment.data, at)
        assert isinstance(message, Message)
        expected += [(row, key_hash(text)) for text in iter_index_texts(message, rules)]
    found, _ = decode_records(segment.data, np.array(segment.starts, np.int64))
    assert entries(found, rules) == expected


def test_entries_by_hand() -> None:
    """Unique key, every key also when named twice, then the tag; none for rolled-back records."""
    pairs = properties(("KEYS", " a b  c a "), ("TAGS", "t"), ("UNIQ_KEY", "U"))
    found = decode(
        record(b"", b"T", pairs),
        record(b"", b"T", pairs, sys_flag=0xC),
        record(b"", b"T", properties(("KEYS", "k")), sys_flag=0x4),
        record(b"", b"T"),
        record(b"", "Тема".encode(), properties(("KEYS", "ключ \U0001d11e"))),
    )
    texts = ["T#U", "T#a", "T#b", "T#c", "T#a"]
    expected = [(0, abs(java_hash(text))) for text in texts]
    after = [(2, abs(java_hash("T#k"))), (4, abs(java_hash("Тема#ключ"))), (4, abs(java_hash("Тема#\U0001d11e")))]
    assert entries(found, RULES) == expected + after
    assert entries(found, WITH_TAGS) == [*expected, (0, abs(java_hash("T#T#t"))), *after]


def test_the_hash_without_an_absolute_value() -> None:
    assert entries(decode(record(b"", b"TopicTest", properties(("KEYS", "vlsoaerz")))), RULES) == [(0, 0)]


def test_no_keys() -> None:
    assert entries(decode(record(), record()), WITH_TAGS) == []
    assert entries(decode(), WITH_TAGS) == []
