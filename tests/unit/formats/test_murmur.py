"""MurmurHash3 against published values of its 128-bit form for 64-bit machines."""

from __future__ import annotations

import pytest

from rmqtool.formats.bloom import murmur_low64


@pytest.mark.parametrize(
    ("data", "low"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_published_values(data: bytes, low: int) -> None:
    assert murmur_low64(data) == low
