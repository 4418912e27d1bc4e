from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.errors import UsageError
from rmqtool.render.text import timestamp
from rmqtool.times import (
    ACCEPTED,
    ACCEPTED_SPANS,
    ACCEPTED_ZONES,
    now_ms,
    parse_period,
    parse_span,
    parse_time,
    parse_zone,
)

EAST = timezone(timedelta(hours=8))
# 2026-08-23 11:41:57.120 +08:00
NOW = 1787456517120
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-08-23", EAST, 1787414400000),
        ("2026-08-23", UTC, 1787443200000),
        ("2026-08-23T11:41", EAST, 1787456460000),
        ("2026-08-23 11:41:57", EAST, 1787456517000),
        ("2026-08-23T11:41:57.12", EAST, NOW),
        ("2026-08-23T11:41:57,120", EAST, NOW),
        ("2026-08-23T11:41:57.120999", EAST, NOW),
        ("2026-08-23T11:41:57.120999999", EAST, NOW),
        ("2026-08-23 03:41:57.120Z", EAST, NOW),
        ("2026-08-23T03:41:57.120 Z", EAST, NOW),
        ("2026-08-23T11:41:57.120+08:00", UTC, NOW),
        ("2026-08-23T11:41:57.120+0800", UTC, NOW),
        ("2026-08-23T11:41:57.120+08", UTC, NOW),
        ("2026-08-23 11:41:57.120 +08:00", UTC, NOW),
        ("2026-08-22T18:11:57.120-09:30", UTC, NOW),
        ("2026-08-23#11:41:57:120", EAST, NOW),
        ("1787456517120", UTC, NOW),
        ("0", UTC, 0),
        ("-1", UTC, -1),
        ("9223372036854775807", UTC, (1 << 63) - 1),
        ("9223372036854775808", UTC, (1 << 63) - 1),
        (" now ", UTC, NOW),
        ("-2h", UTC, NOW - 2 * HOUR),
        ("-15m", UTC, NOW - 15 * 60_000),
        ("-1d12h", UTC, NOW - 36 * HOUR),
        ("-1.5h", UTC, NOW - 90 * 60_000),
        ("+500ms", UTC, NOW + 500),
        ("today", EAST, 1787414400000),
        ("yesterday", EAST, 1787414400000 - DAY),
        ("today", UTC, 1787443200000),
        ("1969-12-31T23:59:59.999Z", UTC, -1),
        ("20210701080000", UTC, 1625126400000),
        (" 20210701080000", UTC, 1625126400000),
    ],
)
def test_a_time_as_people_type_it(text: str, zone: tzinfo, expected: int) -> None:
    assert parse_time(text, now=NOW, zone=zone) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-08-23 25:00",
        "2026-13-01",
        "2026-02-30",
        "2026-8-23",
        "2026-08-23#11:41:57",
        "2026-08-23#11:41:57.120",
        "2026-W34",
        "2h",
        "-h",
        "-2x",
        "--2h",
        "20211301080000",
        "99999999999999",
        "9223372036854775809",
        "12:30",
        "2026-08-23T11:41:57+25:00",
        "0001-01-01T00:00:00+08:00x",
    ],
)
def test_what_is_no_time_is_shown_what_is(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_time(text, now=NOW, zone=UTC)
    assert caught.value.message == f'"{text}" is not a time'
    assert caught.value.hint == ACCEPTED


@pytest.mark.parametrize("text", ["20260823", "1787456517", "2026082315", "99999999999"])
def test_seconds_and_dates_without_dashes_are_not_taken_for_milliseconds(text: str) -> None:
    with pytest.raises(UsageError, match="epoch milliseconds have 13 digits"):
        parse_time(text, now=NOW)
    assert parse_time("9999999", now=NOW) == 9_999_999
    assert parse_time("100000000000", now=NOW) == 100_000_000_000


def test_every_example_of_the_hint_is_taken() -> None:
    for example in ACCEPTED.removeprefix("Try ").removesuffix(".").replace(" (epoch ms)", "").split(", "):
        parse_time(example, now=NOW)
    for example in ACCEPTED_SPANS.partition(";")[0].removeprefix("Try ").split(", "):
        parse_span(example)
    for example in ACCEPTED_ZONES.removeprefix("Try ").removesuffix(".").split(", "):
        parse_zone(example)


@pytest.mark.usefixtures("new_york")
def test_the_machines_zone_knows_summer_and_winter() -> None:
    assert parse_time("2026-07-01 12:00", now=NOW) == parse_time("2026-07-01T12:00-04:00", now=NOW)
    assert parse_time("2026-01-01 12:00", now=NOW) == parse_time("2026-01-01T12:00-05:00", now=NOW)
    # Yesterday had 23 hours when the clocks had gone forward in it.
    monday = parse_time("2026-03-09 09:00", now=NOW)
    start = parse_time("2026-03-08", now=NOW)
    assert parse_time("yesterday", now=monday) == start
    assert parse_time("today", now=monday) - start == 23 * HOUR
    assert parse_zone("local") is None
    assert timestamp(0) == "1969-12-31 19:00:00.000 -05:00"


@given(st.integers(-62135500000000, 253402200000000))
def test_what_a_screen_shows_can_be_typed_again(milliseconds: int) -> None:
    for zone in (UTC, EAST, ZoneInfo("UTC")):
        assert parse_time(timestamp(milliseconds, zone), now=NOW) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("30s", 30_000), ("2h", 2 * HOUR), ("1d12h", 36 * HOUR), ("500ms", 500), ("1w", 7 * DAY), ("1h30m", 90 * 60_000),
     ("1.5s", 1500), (" 10m ", 600_000), ("0s", 0)],
)  # fmt: skip
def test_spans(text: str, milliseconds: int) -> None:
    assert parse_span(text) == milliseconds


@pytest.mark.parametrize("text", ["", "30", "s", "1 h", "-1h", "1h-", "1y", "h1", "1e3s"])
def test_what_is_no_span_is_shown_what_is(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_span(text)
    assert caught.value.hint == ACCEPTED_SPANS


@pytest.mark.parametrize(
    ("text", "offset"),
    [("UTC", 0), ("z", 0), ("+08:00", 8), ("+0800", 8), ("-03", -3), ("Asia/Shanghai", 8), ("GMT", 0)],
)
def test_zones(text: str, offset: int) -> None:
    zone = parse_zone(text)
    assert zone is not None
    assert timestamp(NOW, zone).endswith(f"{offset:+03d}:00")


@pytest.mark.parametrize(
    "text", ["", "Mars/Base", "../etc/passwd", "/etc/passwd", "Asia", "+25:00", "8", "CEST!", "\0"]
)
def test_what_is_no_zone_is_shown_what_is(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_zone(text)
    assert caught.value.hint == ACCEPTED_ZONES


def test_a_period_is_half_open_and_may_be_open_at_either_end() -> None:
    assert parse_period(None, None, now=NOW) == (None, None)
    assert parse_period("-1h", None, now=NOW) == (NOW - HOUR, None)
    assert parse_period(None, "now", now=NOW) == (None, NOW)
    assert parse_period("yesterday", "today", now=NOW, zone=UTC) == (1787443200000 - DAY, 1787443200000)


@pytest.mark.parametrize(("begin", "end"), [("now", "now"), ("now", "-1h")])
def test_an_empty_period_is_refused(begin: str, end: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_period(begin, end, now=NOW)
    assert begin in caught.value.message
    assert "--end is exclusive" in (caught.value.hint or "")


def test_now_is_the_clock_in_milliseconds() -> None:
    before = time.time() * 1000
    assert before - 1 <= now_ms() <= time.time() * 1000 + 1
