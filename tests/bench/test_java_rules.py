"""Java's rules cost what the arithmetic under them costs."""

from __future__ import annotations

import timeit
import zlib

import pytest

from rmqtool.formats import java

BODY = bytes(range(256)) * 256
AT_MOST = 1.1


@pytest.mark.bench
def test_checksum_of_a_body_costs_a_checksum() -> None:
    ours, plain = (min(timeit.repeat(lambda f=f: f(BODY), number=1000, repeat=7)) for f in (java.crc31, zlib.crc32))
    print(f"\ncrc31 of 64 KiB: {ours * 1e3:.2f} us, zlib {plain * 1e3:.2f} us, ratio {ours / plain:.3f}")
    assert ours / plain <= AT_MOST
