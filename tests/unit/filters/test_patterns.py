"""Topic patterns."""

from __future__ import annotations

import pytest

from rmqtool.filters.wanted import parse_patterns


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("order*", "orders", True),
        ("order*", "order", True),
        ("order*", "Orders", False),
        ("order", "orders", False),
        ("order", "reorder", False),
        ("order?", "orders", True),
        ("order?", "order", False),
        ("order[12]", "order2", True),
        ("order[!12]", "order2", False),
        ("order[0-9]*", "order7x", True),
        ("%RETRY%*", "%RETRY%group", True),
        ("%RETRY%group", "%RETRY%group", True),
        ("%RETRY%*", "RETRYgroup", False),
        ("*%*", "a%b", True),
        ("a|b", "a|b", True),
        ("a|b", "a", False),
        ("a.b", "axb", False),
        ("a[b", "a[b", True),
        ("(a)+", "a", False),
        ("*", "", True),
        ("a*", "a\nb", True),
        ("a", "a\n", False),
        ("[z-a]", "m", False),
    ],
)
def test_matches(pattern: str, topic: str, matches: bool) -> None:
    assert parse_patterns([pattern]).matches(topic) is matches


def test_several() -> None:
    topics = ["orders", "%DLQ%g", "stock", "%RETRY%g"]
    assert parse_patterns(["%*", "stock"]).select(topics) == ["%DLQ%g", "stock", "%RETRY%g"]
    assert parse_patterns(["nothing"]).select(topics) == []


def test_no_pattern_is_every_topic() -> None:
    assert parse_patterns([]).select(["a", "%b"]) == ["a", "%b"]


def test_many_stars_do_not_backtrack() -> None:
    assert not parse_patterns(["*a" * 40 + "b"]).matches("a" * 4000)
