"""All code reads the number in a property as Java does: there are no two answers about one message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqtool.broker.services.retry import find_number
from rmqtool.config import Version
from rmqtool.engine.message import PutStatus
from rmqtool.engine.put import Destination, delay_level, find_destination, inner_count
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, batch_unit, dispatch_targets, tags_code
from rmqtool.formats.java import parse_int, parse_long
from rmqtool.formats.topics import SCHEDULE_TOPIC
from tests.support.builders import properties, record
from tests.support.engine_stores import small_config

STORED = 1_700_000_000_123
DELAYS = (1000, 5000, 10_000)
# What Integer.parseInt and its relatives of a JDK 17 say: Arabic and full-width digits are digits, those beyond the
# first plane are two chars and none.
TEXTS = [
    ("3", 3),
    ("+3", 3),
    ("0003", 3),
    ("0" * 6000 + "3", 3),
    ("\u0663", 3),
    ("\uff13", 3),
    ("\U0001d7d1", None),
    ("\u00b3", None),
    ("3_0", None),
    (" 3", None),
    ("3\n", None),
    ("--3", None),
    ("9" * 6000, None),
    ("", None),
]
each_text = pytest.mark.parametrize(("text", "number"), TEXTS)


def _stored(topic: bytes = b"T", **named: str) -> Message:
    found = decode_record(record(b"x", topic, properties(*named.items())))
    assert isinstance(found, Message)
    return found


@each_text
def test_a_put_and_its_dispatch_read_one_level(text: str, number: int | None) -> None:
    assert delay_level({"DELAY": text}) == number
    due = STORED + DELAYS[number - 1] if number else 0
    assert tags_code(_stored(SCHEDULE_TOPIC.encode(), DELAY=text), DELAYS) == due
    assert find_number(text) == number


@each_text
@pytest.mark.parametrize("read", [parse_int, parse_long], ids=lambda read: read.__name__)
def test_models_of_a_start_and_filters_have_the_same_parser(
    read: Callable[[str], int | None], text: str, number: int | None
) -> None:
    from rmqtool.filters import expressions, sql92
    from rmqtool.upstream import commit_log, mapped_files

    assert read(text) == number
    assert expressions.parse_int is commit_log.parse_int is parse_int
    assert sql92.parse_long is mapped_files.parse_long is parse_long


@each_text
def test_the_number_of_an_inner_batch(text: str, number: int | None) -> None:
    put = inner_count({"INNER_NUM": text}, SysFlag.INNER_BATCH, is_batch_topic=True)
    assert put == (PutStatus.MESSAGE_ILLEGAL if number is None else number)
    unit = batch_unit(_stored(INNER_NUM=text, INNER_BASE="7"), DELAYS)
    assert (unit.msg_base_offset, unit.batch_size) == ((0, 1) if number is None else (7, number))


@each_text
def test_the_offset_of_an_extra_queue(text: str, number: int | None) -> None:
    message = _stored(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET=text)
    found = list(dispatch_targets(message, DispatchRules()))
    assert found == ([] if number is None else [("%LMQ%a", 0, number)])


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("\u0665", "1700000005000"),
        ("9223372036854775807", None),
        ("9223372036854775808", PutStatus.WHEEL_TIMER_MSG_ILLEGAL),
        ("5_0", PutStatus.WHEEL_TIMER_MSG_ILLEGAL),
    ],
)
def test_a_timer_of_seconds(text: str, out: str | PutStatus | None) -> None:
    # Seconds whose milliseconds leave a long become a time long ago: the message is due, and stored where it was sent.
    now = 1_700_000_000_500
    sent = Destination("T", 0, {"TIMER_DELAY_SEC": text}, False)
    config = small_config(Version.V5_3, timerWheelEnable=True)
    found = find_destination(sent, 0, config, 18, now)
    if isinstance(out, PutStatus):
        assert found is out
    else:
        assert isinstance(found, Destination)
        assert found.properties.get("TIMER_OUT_MS") == out
