"""Two large collections compared in little memory: sums first, then only those items whose sums differ.

An item has an identity and says something. Items are thrown into buckets by their identity; where a bucket's sums are
equal on both sides so are its items. What is left is read again and matched, item by item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints, Mask
from rmqtool.scan.digests import Digests, Hashes

BUCKETS = 1 << 16
# So many items of both sides are held at once.
MOST_ITEMS = 1 << 21

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(48)


class Items(NamedTuple):
    """Items as columns. ``places`` is -1 where no message is behind an item; ``queues`` numbers queues, -1: none."""

    identities: Hashes
    lows: Hashes
    highs: Hashes
    places: Ints
    sizes: Ints
    queues: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.identities)

    def select(self, rows: Mask | Ints) -> Items:
        """Return some of the items."""
        columns: list[Any] = [column[rows] for column in self]
        return Items(*columns)


def items_of(digests: Digests) -> Items:
    """Return messages as items of no queue."""
    none = np.full(len(digests), -1, np.int64)
    return Items(digests.identities, digests.lows, digests.highs, digests.places, digests.sizes, none, none)


def join_items(parts: Iterable[Items]) -> Items:
    """Return items one behind the other as one."""
    kept = [part for part in parts if len(part)]
    if not kept:
        words, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        return Items(words, words, words, numbers, numbers, numbers, numbers)
    columns: list[Any] = [np.concatenate(some) for some in zip(*kept, strict=True)]
    return Items(*columns)


def bucket_of(identities: Hashes) -> Ints:
    """Return the bucket of each identity."""
    found: Ints = (((identities ^ (identities >> np.uint64(29))) * _MIX) >> _SHIFT).astype(np.int64)
    return found


class Buckets:
    """How many items a collection has in each bucket, and their sums."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(BUCKETS, np.int64)
        self._sums: Hashes = np.zeros((2, BUCKETS), np.uint64)

    def add(self, items: Items) -> None:
        """Add items; each word is bound to what stands before it, so that no two change places unseen."""
        rows = bucket_of(items.identities)
        bound = items.identities * _MIX
        np.add.at(self.counts, rows, 1)
        for sums, words in zip(self._sums, (items.lows, items.highs), strict=True):
            mixed = (words ^ bound) * _MIX
            bound = mixed ^ (mixed >> np.uint64(32))
            np.add.at(sums, rows, bound)

    def differing(self, other: Buckets) -> Mask:
        """Return which buckets are not the same on both sides."""
        found: Mask = (self.counts != other.counts) | (self._sums != other._sums).any(axis=0)
        return found


def passes(a: Buckets, b: Buckets) -> Iterator[Mask]:
    """Yield the differing buckets, so many at a time that their items can be held."""
    differing = np.flatnonzero(a.differing(b))
    counts = np.cumsum((a.counts + b.counts)[differing])
    for number in np.unique(counts // MOST_ITEMS).tolist():
        wanted = np.zeros(BUCKETS, np.bool_)
        wanted[differing[counts // MOST_ITEMS == number]] = True
        yield wanted


class Pair(NamedTuple):
    """Rows of two items that are not the same; -1 where one side has none."""

    a: int
    b: int


def match(a: Items, b: Items) -> Iterator[Pair]:
    """Yield what is only on one side, and what has one identity and says different things."""
    left = (np.flatnonzero(_unpaired(a, b)).tolist(), np.flatnonzero(_unpaired(b, a)).tolist())
    names_a, names_b = a.identities, b.identities
    of_b: dict[int, list[int]] = {}
    for row in left[1]:
        of_b.setdefault(int(names_b[row]), []).append(row)
    for row in left[0]:
        others = of_b.get(int(names_a[row]))
        yield Pair(row, others.pop(0) if others else -1)
    yield from (Pair(-1, row) for rows in of_b.values() for row in rows)


def _unpaired(mine: Items, others: Items) -> Mask:
    """Return which of ``mine`` have no equal among ``others``; of several equal ones as many as others lack."""
    split = len(mine)
    keys = [np.concatenate((getattr(mine, name), getattr(others, name))) for name in ("identities", "lows", "highs")]
    is_other = np.arange(len(keys[0])) >= split
    order = np.lexsort((~is_other, *keys))
    changes = np.zeros(len(order), np.bool_)
    changes[:1] = True
    for key in keys:
        changes[1:] |= key[order][1:] != key[order][:-1]
    runs = np.cumsum(changes) - 1
    others_of = np.bincount(runs, is_other[order]).astype(np.int64) if len(runs) else np.zeros(0, np.int64)
    ranks = np.arange(len(order)) - np.flatnonzero(changes)[runs] if len(runs) else np.zeros(0, np.int64)
    unpaired = np.zeros(len(order), np.bool_)
    # Others stand first in a run: the rank of mine is theirs and mine before it.
    unpaired[order] = ~is_other[order] & (ranks >= 2 * others_of[runs])
    return unpaired[:split]
