"""Taking pieces out of a buffer."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.columns.gather import find_bytes, gather, iter_window_groups, rows_with

DATA = np.arange(1, 101, dtype=np.uint8)


@pytest.mark.parametrize("width", [1, 7, 99, 100, 101, 250])
def test_windows_may_reach_behind_the_end(width: int) -> None:
    offsets = np.array([0, 99, 3, 100, 50, 3])
    padded = DATA.tobytes() + bytes(500)
    found = gather(DATA, offsets, width)
    assert found.shape == (6, width)
    assert [row.tobytes() for row in found] == [padded[at : at + width] for at in offsets.tolist()]


def test_no_offsets() -> None:
    assert gather(DATA, np.empty(0, np.int64), 8).shape == (0, 8)


@pytest.mark.parametrize("length", [0, 1, 65535, 65536, 65537, 200_000])
def test_find_bytes_crosses_blocks(length: int) -> None:
    values = np.zeros(length, np.uint8)
    wanted = [at for at in (0, 65535, 65536, 131072, length - 1) if 0 <= at < length]
    values[wanted] = 9
    assert find_bytes(values, lambda some: some == 9).tolist() == sorted(set(wanted))


def test_rows_with() -> None:
    bounds = np.array([0, 4, 4, 10, 12])
    assert rows_with(np.array([3, 4, 9]), bounds).tolist() == [True, False, True, False]
    assert rows_with(np.array([10]), bounds).tolist() == [False, False, False, True]


def test_window_groups_hold_every_row_once_and_stay_small() -> None:
    lengths = np.array([0, 1, 32, 33, 64, 65, 3_000_000, 40, *[20_000] * 300])
    groups = list(iter_window_groups(lengths))
    assert sorted(row for rows, _ in groups for row in rows.tolist()) == list(range(len(lengths)))
    for rows, width in groups:
        assert lengths[rows].max() <= width
        assert len(rows) == 1 or len(rows) * width <= 2 << 20
        assert width <= max(2 * lengths[rows].max(), 32)
    assert list(iter_window_groups(np.empty(0, np.int64))) == []
