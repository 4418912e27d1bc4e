"""Records whose store time is out of order: each is named once, however the log is divided into batches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from rmqtool.audit.log_pass import NAMED, LogTimes, OddTime, take_times

SIZE = 100
EARLY, LATE = -10_000, 10_000


def taken(shifts: Mapping[int, int], records: int, batch: int) -> list[OddTime]:
    """Return the odd times of a log with a record a millisecond, some of them shifted, read in batches of a size."""
    order = LogTimes()
    for start in range(0, records, batch):
        rows = range(start, min(start + batch, records))
        take_times(order, _batch(rows, shifts))  # type: ignore[arg-type]
    return order.odd_times


def _batch(rows: Iterable[int], shifts: Mapping[int, int]) -> SimpleNamespace:
    numbers = list(rows)
    return SimpleNamespace(
        physical_offsets=np.array([row * SIZE for row in numbers], np.int64),
        sizes=np.full(len(numbers), SIZE, np.int64),
        store_timestamps=np.array([1_700_000_000_000 + row + shifts.get(row, 0) for row in numbers], np.int64),
    )


def places(found: Iterable[OddTime]) -> list[tuple[int, int]]:
    """Return the number of the first record, and how many there are."""
    return [(odd.physical_offset // SIZE, odd.records) for odd in found]


@pytest.mark.parametrize("batch", [5000, 700])
def test_few_odd_times_far_in_a_large_batch_are_named_one_by_one(batch: int) -> None:
    found = taken({1500: EARLY, 3000: LATE, 4500: EARLY}, 5000, batch)
    assert places(found) == [(1500, 1), (3000, 1), (4500, 1)]
    assert [odd.length for odd in found] == [SIZE] * 3


@pytest.mark.parametrize("batch", [4 * (NAMED + 50), 8])
def test_so_many_are_named_and_the_last_one_counts_the_rest(batch: int) -> None:
    count = NAMED + 50
    found = taken({4 * number + 1: EARLY for number in range(count)}, 4 * count, batch)
    assert len(found) == NAMED
    assert (found[0].records, sum(odd.records for odd in found)) == (1, count)
    assert (found[-1].physical_offset + found[-1].length) // SIZE == 4 * (count - 1) + 2


@pytest.mark.parametrize("shift", [EARLY, LATE], ids=["early", "late"])
@pytest.mark.parametrize("odd", [4, 5, 6, 7])
def test_an_odd_time_at_the_border_of_two_batches_is_named_once(odd: int, shift: int) -> None:
    assert places(taken({odd: shift}, 12, 6)) == [(odd, 1)]


def test_batches_of_any_size_give_the_same() -> None:
    drawn = random.Random(7)
    for _ in range(50):
        shifts = {row: drawn.choice((EARLY, LATE)) for row in range(3, 60) if row % 4 == 0 and drawn.random() < 0.5}
        expected = taken(shifts, 64, 64)
        for batch in (2, 3, 7, 16):
            assert taken(shifts, 64, batch) == expected, (shifts, batch)
