"""Selections on columns: for each message the answer that looking at it alone gives."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from rmqtool.columns.records import Records, decode_records
from rmqtool.filters.sql92 import parse_selector
from rmqtool.filters.tags import parse_tags
from rmqtool.filters.wanted import BodyPattern, parse_patterns
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.log.select import Selection
from tests.support.builders import properties, record
from tests.support.seeded_stores import make_segment

T0 = 1700000000123


def records_of(*parts: bytes) -> Records:
    starts = np.cumsum([0, *map(len, parts)])[:-1]
    records, declined = decode_records(b"".join(parts), starts)
    assert declined is None
    return records


def taken(selection: Selection, *parts: bytes) -> list[int]:
    """Which of the parts are selected."""
    records = records_of(*parts)
    number = {start: row for row, start in enumerate(records.file_offsets.tolist())}
    return [number[start] for start in selection.select(records).file_offsets.tolist()]


def test_nothing_asked_is_everything():
    assert taken(Selection(), record(b"a"), record(b"b", sys_flag=4)) == [0, 1]


def test_topics_by_pattern():
    parts = [record(topic=name) for name in (b"orders", b"orders.new", b"Orders", "Тема".encode())]
    assert taken(Selection(topics=parse_patterns(["orders*"])), *parts) == [0, 1]
    assert taken(Selection(topics=parse_patterns(["Orders", "Тема"])), *parts) == [2, 3]


def test_queue_and_offset():
    parts = [record(queue_id=q, queue_offset=o) for q in (0, 1) for o in (4, 5, 6)]
    assert taken(Selection(queue_id=1), *parts) == [3, 4, 5]
    assert taken(Selection(least_offset=5), *parts) == [1, 2, 4, 5]
    assert taken(Selection(queue_id=0, least_offset=6), *parts) == [2]


def test_offsets_of_certain_queues():
    parts = [record(topic=t, queue_id=q, queue_offset=o) for t in (b"A", b"B", b"C") for q in (0, 1) for o in (0, 1)]
    selection = Selection(least_offsets={("A", 1): 1, ("B", 0): 2})
    assert taken(selection, *parts) == [0, 1, 3, 6, 7]  # of A/0 and B/1 nothing is read yet, C is not consumed
    assert taken(replace(selection, queue_id=1), *parts) == [3, 6, 7]


def test_times_are_half_open():
    parts = [record(store_timestamp=T0 + step) for step in (-1, 0, 1, 2)]
    assert taken(Selection(begin=T0, end=T0 + 2), *parts) == [1, 2]


def test_places_in_the_log():
    parts = [record(physical_offset=place) for place in (0, 100, 200)]
    assert taken(Selection(physical_from=100), *parts) == [1, 2]


def test_tags_are_compared_as_text_not_as_hash():
    parts = [record(property_text=properties(("TAGS", tag))) for tag in ("AaAa", "BBBB", "AaBB")] + [record()]
    assert taken(Selection(tags=parse_tags("BBBB")), *parts) == [1]
    assert taken(Selection(tags=parse_tags("AaAa || AaBB")), *parts) == [0, 2]
    assert taken(Selection(tags=parse_tags("*")), *parts) == [0, 1, 2, 3]


def test_keys_are_words_and_the_unique_key_is_one():
    texts = [("KEYS", "k1 k2"), ("KEYS", "k11"), ("KEYS", "  k1"), ("UNIQ_KEY", "k1"), ("OTHER", "k1")]
    parts = [record(property_text=properties(pair)) for pair in texts]
    assert taken(Selection(key="k1"), *parts) == [0, 2, 3]
    assert taken(Selection(key="k2"), *parts) == [0]
    assert taken(Selection(key="k1 k2"), *parts) == []


def test_keys_of_any_script():
    parts = [record(property_text=properties(("KEYS", key))) for key in ("ключ a", "клю")]
    assert taken(Selection(key="ключ"), *parts) == [0]


def test_a_where_sees_properties():
    parts = [record(property_text=properties(("n", str(number)))) for number in (1, 5, 9)] + [record()]
    assert taken(Selection(where=parse_selector("n BETWEEN 2 AND 9", whole=True)), *parts) == [1, 2]
    assert taken(Selection(where=parse_selector("n IS NULL", whole=True)), *parts) == [3]


def test_a_body_is_searched_inflated():
    import zlib

    parts = [record(b"amount 12"), record(zlib.compress(b"amount 7"), sys_flag=0x301), record(b"\xff12"), record(b"")]
    assert taken(Selection(body=BodyPattern(re.compile(r"\d"))), *parts) == [0, 1, 2]
    assert taken(Selection(body=BodyPattern(re.compile("^amount [0-9]$"))), *parts) == [1]


LIGHT = properties(("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"), ("INNER_MULTI_QUEUE_OFFSET", "3,9"))


def test_a_light_queue_has_the_messages_that_name_it():
    parts = [record(topic=b"Parent", queue_id=2, property_text=LIGHT), record(topic=b"Parent"), record(topic=b"%LMQ%a")]
    selection = Selection(topics=parse_patterns(["%LMQ%a"]))
    assert taken(selection, *parts) == [0, 2]
    assert taken(replace(selection, queue_id=0), *parts) == [0, 2]
    assert taken(replace(selection, queue_id=2), *parts) == []
    assert taken(replace(selection, least_offset=4), *parts) == []
    topics, queues, offsets = selection.queue_places(records_of(*parts[::2]))
    assert [topics.values[code] for code in topics.codes] == ["%LMQ%a", "%LMQ%a"]
    assert (queues.tolist(), offsets.tolist()) == ([0, 0], [3, 0])


def test_the_place_of_other_messages_is_their_own_queue():
    topics, queues, offsets = Selection().queue_places(records_of(record(topic=b"P", queue_id=2, queue_offset=7)))
    assert ([topics.values[code] for code in topics.codes], queues.tolist(), offsets.tolist()) == (["P"], [2], [7])


def naive(selection: Selection, message: Message) -> bool:
    body = message.raw_body.decode("utf-8", "replace")
    return (
        selection.topics.matches(message.topic)
        and selection.queue_id in (None, message.queue_id)
        and (selection.least_offset is None or message.queue_offset >= selection.least_offset)
        and (selection.begin is None or message.store_timestamp >= selection.begin)
        and (selection.end is None or message.store_timestamp < selection.end)
        and (selection.tags is None or selection.tags.matches(message.tags))
        and (selection.where is None or selection.where.matches(message.properties))
        and (
            selection.key is None
            or selection.key == message.uniq_key
            or selection.key in (message.keys or "").split(" ")
        )
        and (selection.body is None or selection.body.search(body) is not None)
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_selection_on_any_segment(seed):
    rng = random.Random(seed)
    made = make_segment(rng.randrange(300))
    starts = made.starts[:200]
    messages = [decode_record(made.data, start) for start in starts]
    choices = {
        "topics": parse_patterns(rng.choice((["Topic*"], ["*new", "Тема"]))),
        "queue_id": rng.choice((0, 1)),
        "least_offset": rng.choice((3, 100)),
        "begin": 1700000000000 + rng.randrange(2000),
        "end": 1700000000000 + rng.randrange(3000),
        "tags": parse_tags("TagA || v"),
        "key": rng.choice(("key5", "12", "v")),
        "where": parse_selector("TAGS = 'TagA' OR KEYS IS NULL", whole=True),
    }
    selection = Selection(**dict(rng.sample(sorted(choices.items(), key=str), rng.randrange(1, 4))))
    records, _ = decode_records(made.data, np.array(starts, np.int64))
    wanted = [at for at, m in zip(starts, messages, strict=True) if isinstance(m, Message) and naive(selection, m)]
    assert selection.select(records).file_offsets.tolist() == wanted
