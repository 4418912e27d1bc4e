"""Tag expressions: what they parse to, and the two stages."""

from __future__ import annotations

import pytest

from rmqtool.filters.sql92 import FilterSyntaxError
from rmqtool.filters.tags import TagExpression, parse_tags


@pytest.mark.parametrize(
    ("check", "text", "names"),
    [
        ("C10.1", "A || B", {"A", "B"}),
        ("C10.1", "A||", {"A"}),
        ("C10.1", " A ", {"A"}),
        ("C10.1", "A||||A||B", {"A", "B"}),
        ("C10.1", "\tA\x01||\u00a0B", {"A", "\u00a0B"}),
        ("C10.2", " ", set()),
        ("C10.2", " || ", set()),
        ("stars in lists are tags", "*||A", {"*", "A"}),
        ("stars with blanks are tags", " *", {"*"}),
        ("a single bar is no separator", "a|b|||c", {"a|b", "|c"}),
    ],
)
def test_names(check: str, text: str, names: set[str]) -> None:
    tags = parse_tags(text)
    assert (set(tags.names), tags.everything) == (names, False)


@pytest.mark.parametrize("text", [None, "", "*"])
def test_everything(text: str | None) -> None:
    """C10.2."""
    tags = parse_tags(text)
    assert tags.everything
    assert tags.matches(None)
    assert tags.matches("A")
    assert tags.matches_code(0)


@pytest.mark.parametrize("text", ["||", "||||"])
def test_only_separators_are_refused(text: str) -> None:
    """C10.2."""
    with pytest.raises(FilterSyntaxError):
        parse_tags(text)


def test_blanks_match_nothing() -> None:
    """C10.2."""
    tags = parse_tags("  ")
    assert not tags.matches(None)
    assert not tags.matches("")
    assert not tags.matches_code(0)


def test_codes_are_the_hashes() -> None:
    assert parse_tags("TagA || TagABCDEF || Aa || BB").codes == {2598919, -1105932195, 2112}


def test_the_second_stage_sees_through_a_collision() -> None:
    tags = parse_tags("Aa")
    assert tags.matches_code(2112)
    assert [tags.matches(text) for text in ("Aa", "BB", "aa", "Aa || BB", "", None)] == [True, *[False] * 5]


def test_the_broker_looks_at_32_bits() -> None:
    tags = parse_tags("TagABCDEF")
    assert tags.matches_code(-1105932195)
    assert tags.matches_code((7 << 32) + (-1105932195 & 0xFFFFFFFF))
    assert not tags.matches_code(2598919)
    assert tags.matches_code(None)


def test_a_tag_with_hash_zero_passes_untagged_units() -> None:
    """The unit of a message without a tag has code 0, which is also the hash of some texts; the consumer drops it."""
    tags = parse_tags("f5a5a608")
    assert tags.codes == {0}
    assert tags.matches_code(0)
    assert not tags.matches(None)


def test_an_expression_is_a_value() -> None:
    assert parse_tags("A||B") == TagExpression("A||B", frozenset({"A", "B"}), frozenset({65, 66}))
