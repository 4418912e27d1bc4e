from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from rmqtool.columns import checksums


def test_both_checksums_agree() -> None:
    rng = random.Random(3)
    for length in [*range(200), 5000, 1 << 20]:
        body = rng.randbytes(length)
        assert checksums.fastest_crc32()(body) == zlib.crc32(body)


LENGTHS = {
    "none": [],
    "one": [7],
    "equal": [100] * 2500,
    "empty": [0] * 1100,
    "varied": [*range(300), *range(200, 0, -1)] * 5,
    "equal, then varied": [*[40] * 1024, *range(1024)],
    "long": [3000, 2000, 1, 0] * 300,
    "equal and long": [2000] * 1100,
    "short beside one that is very long": [*[10] * 1023, 400_000, *[10] * 1024],
}


@pytest.mark.parametrize("crc32", [None, zlib.crc32], ids=["fastest", "zlib"])
@pytest.mark.parametrize("name", LENGTHS)
def test_every_piece_has_its_own_sum(name: str, crc32: checksums.Crc32 | None) -> None:
    """The last piece ends with the buffer; the second half comes before the first."""
    lengths = np.array(LENGTHS[name], np.int64)
    ends = np.cumsum(lengths + 3)
    offsets = np.roll(ends - lengths, len(lengths) // 2)
    lengths = np.roll(lengths, len(lengths) // 2)
    data = random.Random(5).randbytes(int(ends.max(initial=0)))
    found = checksums.crc32_each(np.frombuffer(data, np.uint8), offsets, lengths, crc32)
    pairs = zip(offsets.tolist(), lengths.tolist(), strict=True)
    assert found.tolist() == [zlib.crc32(data[at : at + length]) for at, length in pairs]
