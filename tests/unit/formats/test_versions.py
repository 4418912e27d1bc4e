"""Versions as numbers."""

from __future__ import annotations

import pytest

from rmqtool.formats.codes import is_since, release


@pytest.mark.parametrize(
    ("version", "since", "there"),
    [
        ("4.9", "4.9.3", True),
        ("4.9.2", "4.9.3", False),
        ("5.3", "5.3.1", True),
        ("5.3", "5.4.0", False),
        ("5.4", "5.4.0", True),
        ("5.10.0", "5.4.0", True),
        ("4.9", "4.0.0", True),
    ],
)
def test_what_came_when(version: str, since: str, there: bool) -> None:
    assert is_since(version, since) is there


def test_the_short_names_stand_for_the_recorded_releases() -> None:
    assert [release(name) for name in ("4.9", "5.3", "5.4")] == [(4, 9, 8), (5, 3, 3), (5, 4, 0)]


def test_a_version_is_numbers() -> None:
    with pytest.raises(ValueError, match="five"):
        release("five")
