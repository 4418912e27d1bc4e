"""The page of charts: each count once, columns wide enough to be seen, and no name that is taken for markup."""

from __future__ import annotations

import re
from datetime import UTC

import pytest

from rmqtool.render.stat import Section, page

HOUR = 3_600_000
START = 1_700_000_000_000 - 1_700_000_000_000 % HOUR


def counts(by, rows):
    """Return the JSON object of a count: ``rows`` are values and messages, of ten bytes each."""
    total = sum(messages for _, messages in rows)
    times = {"firstStoreTimestamp": START, "lastStoreTimestamp": START}
    return {
        "by": [by],
        "rows": [{by: value, "messages": messages, "bytes": 10 * messages, **times} for value, messages in rows],
        "total": {"messages": total, "bytes": 10 * total, "groups": len(rows), **times},
        "damaged": {"bytes": 0},
    }


def drawn(hours):
    """Return the columns that are drawn for messages in those hours: what each says, and where it begins and ends."""
    shown = counts("hour", [(START + hour * HOUR, count) for hour, count in hours.items()])
    text = page("store", "1", [Section("By hour", shown, over_time=True)], UTC)
    places = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)
    said = re.findall(r"<title>(\S+ \S+), (.*?): ([\d,]+) messages?, ", text)
    return (
        text,
        [(when, span, int(count.replace(",", ""))) for when, span, count in said],
        [tuple(map(float, at)) for at in places],
    )


def test_an_hour_is_a_column():
    text, said, places = drawn({0: 3, 1: 1, 5: 2})
    assert said == [("2023-11-14 22:00", "hour", 3), ("2023-11-14 23:00", "hour", 1), ("2023-11-15 03:00", "hour", 2)]
    assert places[1][0] - places[0][0] == pytest.approx((places[2][0] - places[1][0]) / 4, abs=0.1)
    assert "At most 3 messages in one hour." in text
    assert "<span>2023-11-14 22:00</span><span>2023-11-15 03:00</span>" in text


@pytest.mark.parametrize(("length", "span"), [(180, "hour"), (181, "2 hours"), (800, "6 hours"), (40_000, "720 hours")])
def test_many_hours_share_columns_that_can_be_seen_and_lose_no_message(length, span):
    text, said, places = drawn({hour: hour % 3 + 1 for hour in range(length)})
    assert {words for _, words, _ in said} == {span}
    assert sum(count for _, _, count in said) == sum(hour % 3 + 1 for hour in range(length))
    assert len(said) <= 180
    assert min(width for _, width in places) > 4
    assert max(x + width for x, width in places) <= 1000
    assert f"At most {max(count for _, _, count in said):,} messages in" in text


def test_one_moment_is_one_column_and_has_one_time_below():
    text, said, places = drawn({0: 1})
    assert (len(said), len(places)) == (1, 1)
    assert text.count("<span>2023-11-14 22:00</span>") == 1


def test_names_are_never_markup():
    hostile = ["<script>alert(1)</script>", "a&b\"'", "%RETRY%\x1b[31mred", "名" * 100]
    text = page("</title><script>", "1", [Section("By topic", counts("topic", [(name, 1) for name in hostile]))], UTC)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "a&amp;b&quot;&#x27;" in text
    assert "名" * 100 in text
