"""From records to queue units and index texts."""

from __future__ import annotations

import pytest

from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import (
    DispatchRules,
    QueueEntry,
    batch_unit,
    dispatch_targets,
    has_queue_unit,
    iter_index_texts,
    queue_entries,
    rules_of,
    tags_code,
)
from rmqtool.formats.layouts import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from rmqtool.formats.topics import DEFAULT_DELAY_LEVELS, parse_delay_levels
from tests.support import builders

DELAYS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
OLD = rules_of("4.9", DELAYS)
MIDDLE = rules_of("5.3", DELAYS)
NEW = rules_of("5.4", DELAYS)
STORED = 1700000000123


def message(
    topic: str = "TopicTest", *pairs: tuple[str, str], sys_flag: int = 0, queue_id: int = 3, queue_offset: int = 5
) -> Message:
    data = builders.record(
        b"",
        topic.encode(),
        builders.properties(*pairs),
        sys_flag=sys_flag,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=1024,
    )
    found = decode_record(data)
    assert isinstance(found, Message)
    return found


def delayed(level: str) -> Message:
    return message("SCHEDULE_TOPIC_XXXX", ("DELAY", level), ("TAGS", "TagA"))


def test_delay_levels() -> None:
    assert len(DELAYS) == 18
    assert (DELAYS[0], DELAYS[2], DELAYS[4], DELAYS[17]) == (1000, 10_000, 60_000, 7_200_000)
    assert parse_delay_levels("1s 2s 2s 3s 1m 30m 2h 1d") == (1000, 2000, 2000, 3000, 60000, 1800000, 7200000, 86400000)


# What parseDelayLevel of the real ScheduleMessageService of 4.9.7 and of 5.4.0 made of these texts.
@pytest.mark.parametrize(
    ("text", "delays"),
    [
        ("+5s", (5000,)),
        ("-1s", (-1000,)),
        ("-0s", (0,)),
        ("  ", ()),
        (" ", ()),
        ("1s 2s  ", (1000, 2000)),
        ("00000000000000000000000000001s", (1000,)),
        ("\u0661s", (1000,)),
        ("9223372036854775807s", (-1000,)),
        ("9223372036854775807d", (-86_400_000,)),
        ("-9223372036854775808s", (0,)),
        ("99999999999999999h", (-6_657_342_515_612_937_856,)),
    ],
)
def test_unusual_delay_levels_are_read_as_a_broker_reads_them(text: str, delays: tuple[int, ...]) -> None:
    assert parse_delay_levels(text) == delays


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1s",
        "1s  2s",
        "1s\t2s",
        "s",
        "+s",
        "1S",
        "1s 5q",
        "9223372036854775808s",
        "5",
        "1x",
        "1.5s",
        "1 s",
        "\U0001f600s",
    ],
)
def test_what_is_no_delay(text: str) -> None:
    with pytest.raises(ValueError, match="is not a delay"):
        parse_delay_levels(text)


def test_a_number_of_thousands_of_digits_is_no_delay() -> None:
    with pytest.raises(ValueError, match="is not a delay"):
        parse_delay_levels("9" * 5000 + "s")


def test_the_time_of_a_delivery_overflows_as_a_long() -> None:
    assert tags_code(delayed("1"), (2**63 - 1,)) == STORED + 2**63 - 1 - 2**64


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TagABCDEF", -1105932195),
        ("*", 42),
        ("中文", 646394),
        ("𝄞", 1772394),
        ("TagA || TagB", builders.java_hash("TagA || TagB")),
    ],
)
def test_code_of_a_tag(tags: str, code: int) -> None:
    assert tags_code(message("T", ("TAGS", tags)), DELAYS) == code
    assert tags_code(message("T", ("TAGS", tags), sys_flag=2), DELAYS) == code


def test_code_without_a_tag() -> None:
    assert tags_code(message("T"), DELAYS) == 0
    assert tags_code(message("T", ("TAGS", "")), DELAYS) == 0
    # Elsewhere the delay says nothing.
    assert tags_code(message("T", ("DELAY", "3"), ("TAGS", "TagA")), DELAYS) == 2598919


@pytest.mark.parametrize(
    ("level", "delay"),
    [("1", 1000), ("3", 10_000), ("18", 7_200_000), ("19", 7_200_000), ("+3", 10_000), ("003", 10_000)],
)
def test_code_of_a_delayed_message_is_its_delivery_time(level: str, delay: int) -> None:
    assert tags_code(delayed(level), DELAYS) == STORED + delay


def test_level_is_clamped_to_the_broker_s_own_levels() -> None:
    assert tags_code(delayed("18"), parse_delay_levels("1s 2h")) == STORED + 7_200_000
    assert tags_code(delayed("2147483647"), parse_delay_levels("7s")) == STORED + 7000
    assert tags_code(delayed("1"), ()) == 2598919


@pytest.mark.parametrize(
    "level", ["0", "-1", "", "x", "1s", "1.5", "+-1", "+", "2147483648", "9" * 5000, " 1", "1_0", "½"]
)
def test_what_is_no_level_leaves_the_tag_s_code(level: str) -> None:
    assert tags_code(delayed(level), DELAYS) == 2598919


@pytest.mark.parametrize(
    ("sys_flag", "has"), [(0x0, True), (0x4, False), (0x8, True), (0xC, False), (0xFF3, True), (0xFFF, False)]
)
def test_which_records_get_a_unit(sys_flag: int, has: bool) -> None:
    assert has_queue_unit(sys_flag) is has
    assert len(list(queue_entries(message(sys_flag=sys_flag & ~0x30), OLD))) == has


def test_unit_of_the_specification() -> None:
    record = decode_record(builders.EXAMPLE_A)
    assert isinstance(record, Message)
    (entry,) = queue_entries(record, OLD)
    assert entry[:3] == ("TopicTest", 1, 5)
    assert CONSUME_QUEUE_UNIT.encode(entry.unit) == bytes.fromhex(
        "00 00 00 00 00 00 04 00 | 00 00 00 cb | 00 00 00 00 00 27 a8 07".replace("|", "")
    )


def light(names: str, offsets: str, topic: str = "T") -> Message:
    return message(topic, ("INNER_MULTI_DISPATCH", names), ("INNER_MULTI_QUEUE_OFFSET", offsets), ("TAGS", "TagA"))


def test_extra_queues_get_the_same_unit() -> None:
    found = light("%LMQ%a,plain", "7,9")
    own, *extra = queue_entries(found, OLD)
    assert own[:3] == ("T", 3, 5)
    assert extra == [QueueEntry("%LMQ%a", 0, 7, own.unit), QueueEntry("plain", 3, 9, own.unit)]
    assert own.unit == (1024, found.total_size, 2598919)


@pytest.mark.parametrize("rules", [OLD, MIDDLE, NEW])
@pytest.mark.parametrize(
    ("names", "offsets", "targets"),
    [
        ("%LMQ%a", "0", [("%LMQ%a", 0, 0)]),
        ("%LMQ%a,%LMQ%b", "1,2", [("%LMQ%a", 0, 1), ("%LMQ%b", 0, 2)]),
        ("plain", "4", [("plain", 3, 4)]),
        ("%LMQ%a,", "1", [("%LMQ%a", 0, 1)]),
        ("%LMQ%a,%LMQ%b", "1", []),
        ("%LMQ%a", "1,2", []),
        # 5.3.2 and later write no number for a plain target.
        ("plain,%LMQ%a", ",7", []),
        ("%LMQ%a,plain", "7,", []),
        ("%LMQ%a,plain,%LMQ%b", "7,,8", [("%LMQ%a", 0, 7)]),
        ("%LMQ%a", "9223372036854775807", [("%LMQ%a", 0, (1 << 63) - 1)]),
        ("%LMQ%a", "9223372036854775808", []),
        ("%LMQ%a", "x", []),
        ("%LMQ%a", "9" * 5000, []),
        ("%LMQ%a", " ", []),
        (" ", "1", []),
        (",", ",", []),
    ],
)
def test_lists_of_extra_queues(
    names: str, offsets: str, targets: list[tuple[str, int, int]], rules: DispatchRules
) -> None:
    assert list(dispatch_targets(light(names, offsets), rules)) == targets


def test_rules_without_a_word_are_those_of_4_9() -> None:
    assert DispatchRules() == OLD == rules_of("4.9.8", DELAYS)
    assert rules_of("5.3.3", DELAYS) == MIDDLE
    assert rules_of("5.4.0", DELAYS) == NEW


def test_messages_without_the_lists_have_no_extra_queues() -> None:
    assert list(dispatch_targets(message("T"), OLD)) == []
    assert list(dispatch_targets(message("T", ("INNER_MULTI_DISPATCH", "%LMQ%a")), OLD)) == []
    assert list(dispatch_targets(message("T", ("INNER_MULTI_QUEUE_OFFSET", "1")), OLD)) == []


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
def test_which_topics_have_extra_queues_changed_in_5_1_1(topic: str) -> None:
    found = light("%LMQ%a", "7", topic)
    assert list(dispatch_targets(found, OLD)) == [("%LMQ%a", 0, 7)]
    assert list(dispatch_targets(found, rules_of("5.1.0", DELAYS))) == [("%LMQ%a", 0, 7)]
    assert list(dispatch_targets(found, rules_of("5.1.1", DELAYS))) == []
    assert list(dispatch_targets(found, MIDDLE)) == []


def test_no_queue_is_called_like_a_path_in_5_x() -> None:
    found = light("%LMQ%a/b,%LMQ%c", "1,2")
    assert list(dispatch_targets(found, OLD)) == [("%LMQ%a/b", 0, 1), ("%LMQ%c", 0, 2)]
    assert list(dispatch_targets(found, MIDDLE)) == [("%LMQ%c", 0, 2)]


def test_settings_of_extra_queues() -> None:
    found = light("%LMQ%a,plain", "1,2")
    assert list(dispatch_targets(found, rules_of("4.9", DELAYS, multi_dispatch=False))) == []
    without_lmq = rules_of("4.9", DELAYS, lmq=False)
    assert list(dispatch_targets(found, without_lmq)) == [("%LMQ%a", 3, 1), ("plain", 3, 2)]


@pytest.mark.parametrize(
    ("pairs", "base", "count"),
    [
        ([("INNER_NUM", "5"), ("INNER_BASE", "100")], 100, 5),
        ([], 5, 1),
        ([("INNER_NUM", "5")], 5, 1),
        ([("INNER_BASE", "100")], 5, 1),
        ([("INNER_NUM", "32767"), ("INNER_BASE", "9223372036854775807")], (1 << 63) - 1, 32767),
        ([("INNER_NUM", "-32768"), ("INNER_BASE", "-9223372036854775808")], -(1 << 63), -32768),
        ([("INNER_NUM", "0" * 50 + "2"), ("INNER_BASE", "+7")], 7, 2),
        ([("INNER_NUM", "32768"), ("INNER_BASE", "100")], 5, 1),
        ([("INNER_NUM", "-32769"), ("INNER_BASE", "100")], 5, 1),
        ([("INNER_NUM", "2"), ("INNER_BASE", "-9223372036854775809")], 5, 1),
        ([("INNER_NUM", "x"), ("INNER_BASE", "100")], 5, 1),
        ([("INNER_NUM", "2"), ("INNER_BASE", "9223372036854775808")], 5, 1),
    ],
)
def test_unit_of_a_batch_queue(pairs: list[tuple[str, str]], base: int, count: int) -> None:
    found = message("T", *pairs, ("TAGS", "TagA"))
    unit = batch_unit(found, DELAYS)
    assert unit == (1024, found.total_size, 2598919, STORED, base, count, -1, 0)
    assert BATCH_CONSUME_QUEUE_UNIT.decode(BATCH_CONSUME_QUEUE_UNIT.encode(unit)) == unit


KEYED = ("UNIQ_KEY", "UID1"), ("KEYS", "b  a b "), ("TAGS", "TagA")


def test_index_texts_in_their_order() -> None:
    found = message("T", *KEYED)
    assert list(iter_index_texts(found, OLD)) == ["T#UID1", "T#b", "T#a", "T#b"]
    assert list(iter_index_texts(found, MIDDLE)) == ["T#UID1", "T#b", "T#a", "T#b"]
    assert list(iter_index_texts(found, NEW)) == ["T#UID1", "T#b", "T#a", "T#b", "T#T#TagA"]
    assert list(iter_index_texts(message("T"), NEW)) == []
    assert list(iter_index_texts(message("T", ("KEYS", "  ")), NEW)) == []


@pytest.mark.parametrize(("sys_flag", "count"), [(0x0, 5), (0x4, 5), (0x8, 5), (0xC, 0)])
def test_which_records_are_indexed(sys_flag: int, count: int) -> None:
    assert len(list(iter_index_texts(message("T", *KEYED, sys_flag=sys_flag), NEW))) == count
