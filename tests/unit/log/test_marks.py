"""Marks of what came twice: nothing that did is left out."""

from __future__ import annotations

import numpy as np

from rmqtool.log.group import Marks, is_marked


def test_what_came_twice_is_marked_and_most_of_the_rest_is_not():
    rng = np.random.default_rng(3)
    once = np.unique(rng.integers(0, 2**63, 5000).astype(np.uint64)) * np.uint64(2)
    again = once[:100]
    marks = Marks()
    marks.add(once, np.ones(len(once), np.int64))
    marks.add(again, np.ones(len(again), np.int64))
    marked = is_marked(marks.packed(), once)
    assert marked[:100].all()
    assert marked[100:].sum() < 10


def test_what_comes_twice_at_once_is_marked():
    marks = Marks()
    hashes = np.array([1, 1 << 60], np.uint64)
    marks.add(hashes, np.array([300, 1]))
    assert is_marked(marks.packed(), hashes).tolist() == [True, False]


def test_many_additions_do_not_run_over():
    marks = Marks()
    hashes = np.array([1 << 50], np.uint64)
    for _ in range(300):
        marks.add(hashes, np.ones(1, np.int64))
    assert is_marked(marks.packed(), hashes).tolist() == [True]
