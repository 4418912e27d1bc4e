"""The checksum that is declared is the one that is computed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats import declarations
from rmqtool.formats.java import crc31, fastest_crc32


@given(st.binary(max_size=300))
def test_every_way_gives_the_declared_checksum(data: bytes) -> None:
    declared = declarations.crc32(data)
    assert zlib.crc32(data) == fastest_crc32()(data) == declared
    assert crc31(data) == declared & 0x7FFFFFFF
    assert crc31(bytearray(data)) == crc31(memoryview(data)) == crc31(data)


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"a", 0x68B7BE43),
        (b"hello", 0x3610A686),
        (b"Hello RocketMQ 2", 1250039395),
        (b"123456789", 0xCBF43926 & 0x7FFFFFFF),
    ],
)
def test_checksums_of_the_specification(data: bytes, checksum: int) -> None:
    assert crc31(data) == checksum
    assert declarations.crc32(data) & 0x7FFFFFFF == checksum
