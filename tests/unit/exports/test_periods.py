"""Periods of store time: only the part of a segment that can have their messages is read, and no message is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.exports.choice import DEFAULT
from rmqtool.exports.splits import BatchReader, plan_sources
from rmqtool.log import ranges
from tests.support.stores import truth

Unpacker = Callable[[str], Path]
NAME = "54-broker"
PERIODS = 25


def read(root: Path, begin: int | None, end: int | None) -> tuple[list[int], int]:
    """Return the places of the messages of a period, and how many bytes of the log are planned for them."""
    choice = replace(DEFAULT, begin=begin, end=end, split_size=16 << 10)
    (source,) = plan_sources([str(root)], choice)
    places: list[int] = []
    for asked in source.ranges:
        reader = BatchReader(asked, source.choice, source.choice.projection("b", "ms"), source.plan.queues)
        for found in reader.pieces():
            places += found.batch["commitlog_offset"].to_pylist()  # type: ignore[union-attr]
    return places, source.bytes


@pytest.fixture
def many_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the entries of a small store, and the clock that made it, for enough."""
    monkeypatch.setattr(ranges, "_MARKS", 6)
    monkeypatch.setattr(ranges, "_CLOCK_STEP", 0)


def test_no_message_of_a_period_is_missing(store: Unpacker, many_marks: None) -> None:
    messages = truth(NAME)["messages"]
    times = sorted({message["storeTimestamp"] for message in messages})
    whole = read(store(NAME), None, None)[1]
    shares = []
    for at in range(0, len(times), len(times) // PERIODS):
        for begin, end in ((times[at], None), (None, times[at]), (times[at], times[min(at + 9, len(times) - 1)])):
            places, size = read(store(NAME), begin, end)
            assert places == [
                message["commitLogOffset"]
                for message in messages
                if (begin is None or message["storeTimestamp"] >= begin)
                and (end is None or message["storeTimestamp"] < end)
            ], (begin, end)
            shares.append(size / whole)
    assert min(shares) < 0.25
    assert sum(shares) / len(shares) < 0.5


def test_a_clock_that_was_set_back_bounds_nothing(
    store: Unpacker, many_marks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = truth(NAME)["messages"]
    begin = messages[len(messages) // 2]["storeTimestamp"]
    bounded = read(store(NAME), begin, None)[1]
    marks = iter((5, 4, 7))
    real = ranges._time_at
    monkeypatch.setattr(ranges, "_time_at", lambda *where: next(marks, None) or real(*where))
    assert read(store(NAME), begin, None)[1] > bounded


def test_usual_steps_of_a_clock_are_allowed_for(store: Unpacker, monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages of this store are from ten minutes: nothing is left out."""
    monkeypatch.setattr(ranges, "_MARKS", 6)
    begin = truth(NAME)["messages"][-1]["storeTimestamp"]
    (source,) = plan_sources([str(store(NAME))], replace(DEFAULT, begin=begin))
    assert source.choice.physical_begin == 0
