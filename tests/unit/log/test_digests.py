"""Digests: the same for what says the same, another for everything that a reader could tell apart."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from rmqtool.columns.records import decode_records
from rmqtool.log.digests import Sense, digest_records
from tests.support.builders import (
    BORN_V4_HOST,
    MAGIC_V2,
    STORE_V4_HOST,
    Host,
    properties,
    record,
    record_with_property_crc,
)

PAIRS = (("KEYS", "k1 k2"), ("UNIQ_KEY", "AC1100020001"), ("TAGS", "TagA"))
PLAIN = {"queue_offset": 5, "physical_offset": 1000, "queue_id": 2, "born_timestamp": 7, "store_timestamp": 9}


def digest(sense, body=b"hello", topic=b"T", pairs=PAIRS, **changes):
    one = record(body, topic, properties(*pairs), **{**PLAIN, **changes})
    return digest_of(one, sense)


def digest_of(one, sense):
    found = digest_records(decode_records(one, np.zeros(1, np.int64))[0], sense)
    return int(found.lows[0]), int(found.highs[0])


ELSEWHERE = {
    "place": {"physical_offset": 2000},
    "queue": {"queue_id": 3, "queue_offset": 9},
    "order of properties": {"pairs": PAIRS[::-1]},
    "compression": {"body": zlib.compress(b"hello"), "sys_flag": 0x301},
    "magic": {"magic": MAGIC_V2},
    "half message": {"prepared_transaction_offset": 77},
}
STORED = {
    "born host": {"born_host": Host(bytes((10, 0, 0, 9)), 1)},
    "store time": {"store_timestamp": 10},
    "store host": {"store_host": Host(bytes((10, 0, 0, 9)), 1)},
    "tries": {"reconsume_times": 1},
}
SAID = {
    "body": {"body": b"hellp"},
    "topic": {"topic": b"U"},
    "a tag": {"pairs": (*PAIRS[:2], ("TAGS", "TagB"))},
    "a property less": {"pairs": PAIRS[:2]},
    "flag": {"flag": 1},
    "born": {"born_timestamp": 8},
    "transaction": {"sys_flag": 0x8},
    "a byte from body to topic": {"body": b"hell", "topic": b"oT"},
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_where_and_how_a_message_is_stored_does_not_count(name):
    for sense in (Sense.STORED, Sense.SENT):
        assert digest(sense, **ELSEWHERE[name]) == digest(sense)
    assert digest(Sense.BYTES, **ELSEWHERE[name]) != digest(Sense.BYTES)


@pytest.mark.parametrize("name", STORED)
def test_who_stored_it_when_counts_for_queues_only(name):
    assert digest(Sense.SENT, **STORED[name]) == digest(Sense.SENT)
    assert digest(Sense.STORED, **STORED[name]) != digest(Sense.STORED)


@pytest.mark.parametrize("name", SAID)
def test_what_it_says_counts(name):
    for sense in Sense:
        assert digest(sense, **SAID[name]) != digest(sense)


def test_the_checksum_over_the_record_does_not_count():
    plain = record(b"hello", b"T", properties(*PAIRS), **PLAIN)
    checked = record_with_property_crc(plain)
    assert digest_of(checked, Sense.STORED) == digest_of(plain, Sense.STORED)


def test_the_hosts_of_the_builders_differ():
    assert BORN_V4_HOST != STORE_V4_HOST
