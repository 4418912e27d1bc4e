"""Periods of store time: only the part of a segment that can have their messages is read, and no message is missing."""

from __future__ import annotations

import struct
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


@pytest.mark.parametrize("is_begin", [True, False], ids=["begin", "end"])
def test_a_clock_that_was_wrong_between_two_marks_leaves_out_no_message_near_the_bound(
    is_begin: bool, writable_store: Unpacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mark shows it. One message next to the bound was stored in the period by the clock of that moment."""
    monkeypatch.setattr(ranges, "_MARKS", 12)
    monkeypatch.setattr(ranges, "_CLOCK_STEP", 0)
    root = writable_store(NAME)
    (source,) = plan_sources([str(root)], DEFAULT)
    marks = next(found for file in source.plan.files if len(found := ranges._marks(file, source.log.queues)) > 8)
    bound = 5
    (left, _), (right, _) = marks[bound - 1 : bound + 1] if is_begin else marks[bound : bound + 2]
    victim = next(one["commitLogOffset"] for one in truth(NAME)["messages"] if left < one["commitLogOffset"] < right)
    begin, end = (marks[bound][1] + 1, None) if is_begin else (None, marks[bound][1])
    file = source.plan.files[[one.end_offset > victim for one in source.plan.files].index(True)]
    with (root / file.path).open("r+b") as opened:
        opened.seek(victim - file.base_offset + 56)
        opened.write(struct.pack(">q", marks[bound][1] + (1 if is_begin else -1)))
    places, size = read(root, begin, end)
    assert victim in places
    assert size < read(root, None, None)[1]


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


def test_a_read_begins_at_the_place_that_a_filter_names(store: Unpacker) -> None:
    """What comes before it is not read, although messages of a tier could be before offset 0."""
    places = [message["commitLogOffset"] for message in truth(NAME)["messages"]]
    wanted = replace(DEFAULT, physical_begin=places[-20])
    (source,) = plan_sources([str(store(NAME))], wanted)
    (whole,) = plan_sources([str(store(NAME))], DEFAULT)
    assert source.choice.physical_begin == places[-20]
    assert source.bytes < whole.bytes / 4
