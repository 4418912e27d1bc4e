"""Where consumption starts: the table of §8.3."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from rmqtool.broker.consumer.subscription import (
    ConsumeFromWhere,
    default_consume_timestamp,
    encode_consume_timestamp,
    parse_consume_timestamp,
    start_offset,
)
from tests.support.queue_views import StatedQueue, StatedQueues

RETRY = "%RETRY%g"
QUEUES = StatedQueues(
    {
        ("T", 0): StatedQueue(50, 90, by_time={1234: 77}),
        (RETRY, 0): StatedQueue(5, 9, by_time={1234: 6}),
    }
)
LAST = [
    where for where in ConsumeFromWhere if where.name not in ("CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP")
]
FIRST, TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


@pytest.mark.parametrize("where", ConsumeFromWhere)
@pytest.mark.parametrize("topic", ["T", RETRY])
def test_progress_that_there_is_comes_first(where: ConsumeFromWhere, topic: str) -> None:
    assert start_offset(0, where, QUEUES, topic, 0, 1234) == 0
    assert start_offset(60, where, QUEUES, topic, 0, 1234) == 60


@pytest.mark.parametrize("where", LAST)
def test_c8_6_last_is_the_end(where: ConsumeFromWhere) -> None:
    assert start_offset(None, where, QUEUES, "T", 0, 1234) == 90
    assert start_offset(-1, where, QUEUES, "T", 0, 1234) == 90


def test_c8_6_first_is_zero_and_the_first_read_corrects_it() -> None:
    assert start_offset(None, FIRST, QUEUES, "T", 0, 1234) == 0


def test_a_time_is_looked_up() -> None:
    assert start_offset(None, TIMESTAMP, QUEUES, "T", 0, 1234) == 77


@pytest.mark.parametrize(("where", "expected"), [*((where, 0) for where in LAST), (FIRST, 0), (TIMESTAMP, 9)])
def test_c8_13_retry_topics(where: ConsumeFromWhere, expected: int) -> None:
    assert start_offset(None, where, QUEUES, RETRY, 0, 1234) == expected


def test_times_as_clients_are_told_them() -> None:
    zone = timezone(timedelta(hours=8))
    assert encode_consume_timestamp(1_700_000_000_999, UTC) == "20231114221320"
    assert encode_consume_timestamp(1_700_000_000_999, zone) == "20231115061320"
    assert parse_consume_timestamp("20231115061320", zone) == 1_700_000_000_000
    assert default_consume_timestamp(1_700_000_000_999) == 1_699_998_200_000


@pytest.mark.parametrize(
    "text", ["", "2023111422132", "20231314221320", "2023111422132x", " 2023111422132", "٢٠٢٣١١١٤٢٢١٣٢٠"]
)
def test_what_is_no_time(text: str) -> None:
    assert parse_consume_timestamp(text, UTC) is None
