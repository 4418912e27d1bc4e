"""Collections compared by sums and then item by item: nothing is missed, and equal items cancel."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rmqtool.log import digests as module
from rmqtool.log.digests import Buckets, Items, bucket_of, join_items, match, passes

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 1)), max_size=12)


def items(triples):
    columns = np.array(triples, np.int64).reshape(-1, 3).T
    words = [column.astype(np.uint64) for column in columns]
    places = np.arange(len(triples))
    return Items(*words, places, places, places, places)


def buckets(*parts):
    found = Buckets()
    for part in parts:
        found.add(part)
    return found


@given(PAIRS, PAIRS)
def test_what_does_not_match_is_what_multisets_lack(a, b):
    pairs = list(match(items(a), items(b)))
    only_a, only_b = Counter(a) - Counter(b), Counter(b) - Counter(a)
    assert Counter(a[row] for row, _ in pairs if row >= 0) == only_a
    assert Counter(b[row] for _, row in pairs if row >= 0) == only_b
    assert all(a[x][0] == b[y][0] for x, y in pairs if x >= 0 and y >= 0)
    # As many as can be are told as one message that says two things.
    both = Counter(name for name, *_ in only_a.elements()) & Counter(name for name, *_ in only_b.elements())
    assert sum(x >= 0 and y >= 0 for x, y in pairs) == both.total()


@given(PAIRS, PAIRS)
@example([(0, 0, 0), (0, 1, 1)], [(0, 0, 1), (0, 1, 0)])
def test_sums_differ_where_items_do(a, b):
    differing = set(np.flatnonzero(buckets(items(a)).differing(buckets(items(b)))).tolist())
    lacking = (Counter(a) - Counter(b)) + (Counter(b) - Counter(a))
    assert differing == {int(bucket_of(items([one]).identities)[0]) for one in lacking}


def test_two_items_that_change_places_are_seen():
    # One bucket, the same words, each under the other's name.
    first = next(n for n in range(1, 1 << 20) if bucket_of(np.array([n], np.uint64))[0] == 0)
    second = next(n for n in range(first + 1, 1 << 22) if bucket_of(np.array([n], np.uint64))[0] == 0)
    a, b = items([(first, 1, 1), (second, 2, 2)]), items([(first, 2, 2), (second, 1, 1)])
    assert np.flatnonzero(buckets(a).differing(buckets(b))).tolist() == [0]


def test_the_order_of_items_and_pieces_does_not_matter():
    a = [(n, n * 7 % 11, 0) for n in range(100)]
    assert not buckets(items(a)).differing(buckets(items(a[60:]), items(a[:60][::-1]))).any()


def test_passes_hold_a_bounded_number_and_cover_every_difference(monkeypatch):
    monkeypatch.setattr(module, "MOST_ITEMS", 10)
    a, b = items([(n, 0, 0) for n in range(100)]), items([(n, 1, 0) for n in range(50)])
    found = list(passes(buckets(a), buckets(b)))
    covered = sum(wanted.astype(np.int64) for wanted in found)
    assert covered.max() == 1
    assert covered[bucket_of(a.identities)].all()
    assert max(wanted[bucket_of(join_items([a, b]).identities)].sum() for wanted in found) <= 12
