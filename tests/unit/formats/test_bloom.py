"""Bit maps of SQL filters: positions (C10.18), and the bit maps themselves."""

from __future__ import annotations

import pytest

from rmqtool.formats.bloom import bit_positions, make_bit_map, may_match


@pytest.mark.parametrize(
    ("group", "topic", "positions"),
    [
        ("g", "t", (22, 87, 58)),
        ("group", "topic", (79, 21, 21)),
        ("CG_A", "TopicTest", (41, 45, 62)),
        ("G", "0123456789abcd", (19, 79, 34)),  # 16 bytes: one whole block
        ("a-consumer-group-of-thirty-two-c", "orders", (47, 55, 97)),
    ],
)
def test_positions(group: str, topic: str, positions: tuple[int, ...]) -> None:
    """C10.18."""
    assert bit_positions(group, topic) == positions


def test_a_bit_map() -> None:
    assert make_bit_map([(22, 87, 58)]).hex() == "0000400000000004000080000000"
    assert make_bit_map([]) == bytes(14)


def test_may_match() -> None:
    both = make_bit_map([(22, 87, 58), (79, 21, 21)])
    assert may_match(both, (22, 87, 58))
    assert may_match(both, (79, 21, 21))
    assert not may_match(both, (22, 87, 57))
    # A bit map of another length says nothing: the properties are looked at.
    assert may_match(b"", (1, 2, 3))
    assert may_match(bytes(8), (1, 2, 3))
