"""Which of many hashes came more than once, as far as a few megabytes can tell.

Two hashes may share a bucket, so some that came once are marked too; none that came twice is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rmqtool.bulk.gather import Ints, Mask

_BITS = 25
_TWICE = 2


def _buckets(hashes: npt.NDArray[np.uint64]) -> Ints:
    found: Ints = (hashes >> np.uint64(64 - _BITS)).astype(np.int64)
    return found


class Marks:
    """Counts hashes by their buckets, up to two."""

    def __init__(self) -> None:
        self._counts = np.zeros(1 << _BITS, np.uint8)

    def add(self, hashes: npt.NDArray[np.uint64], times: Any) -> None:
        """Count each of ``hashes`` so many ``times``; none stands there twice."""
        buckets = _buckets(hashes)
        np.add.at(self._counts, buckets, np.minimum(times, _TWICE).astype(np.uint8))
        self._counts[buckets] = np.minimum(self._counts[buckets], _TWICE)

    def packed(self) -> bytes:
        """Return a bit for each bucket, set when it was counted twice."""
        return np.packbits(self._counts >= _TWICE).tobytes()


def is_marked(packed: bytes, hashes: npt.NDArray[np.uint64]) -> Mask:
    """Return which hashes are in buckets that were counted twice."""
    buckets = _buckets(hashes)
    bits = np.frombuffer(packed, np.uint8)[buckets >> 3] >> (7 - (buckets & 7)).astype(np.uint8)
    marked: Mask = bits & 1 != 0
    return marked
