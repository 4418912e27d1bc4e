"""Patterns over bodies: found or not, and never for ever."""

from __future__ import annotations

import re
import signal

import pytest

from rmqtool.errors import UsageError
from rmqtool.filters.wanted import BodyPattern


def test_bodies_are_searched():
    assert BodyPattern(re.compile("b+c")).search(["abbc", "abb", ""]) == [True, False, False]


def test_a_pattern_that_never_ends_is_refused_with_a_sentence():
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(UsageError, match=r"\(a\+\)\+\$.* 0.2 s on one body of 41 characters") as told:
        BodyPattern(re.compile("(a+)+$")).search(["a", "a" * 40 + "b"], most_seconds=0.2)
    assert "a++" in str(told.value.hint)
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_the_time_is_that_of_one_body():
    # Each is below the bound, all together are far above it.
    slow = ["a" * 18 + "b"] * 40
    pattern = BodyPattern(re.compile("(a+)+$"))
    assert pattern.search(slow, most_seconds=2) == [False] * 40
