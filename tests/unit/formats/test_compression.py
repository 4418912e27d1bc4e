"""Bodies: every codec, whole and broken, and a cap that holds."""

from __future__ import annotations

import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from rmqtool.formats.codes import BodyCodec
from rmqtool.formats.compression import (
    DEFAULT_BODY_CAP,
    Inflated,
    body_codec,
    compress_body,
    compression_flag,
    inflate_body,
)
from rmqtool.formats.flaws import Flaw

PLAIN = b"hello hello hello hello"
# PLAIN as written by others: Java's Deflater at level 5, the command lines of lz4 and zstd.
ZLIB = bytes.fromhex("785ecb48cdc9c957c8402701680308b1")
LZ4 = bytes.fromhex("04224d186440a70f0000006868656c6c6f2006005068656c6c6f00000000f26b940b")
LZ4_SIZED = bytes.fromhex("04224d186c401700000000000000070f0000006868656c6c6f2006005068656c6c6f00000000f26b940b")
ZSTD = bytes.fromhex("28b52ffd04586500003068656c6c6f200100994b11175eae0d")
ZSTD_UNCHECKED = bytes.fromhex("28b52ffd00586500003068656c6c6f200100994b11")

STREAMS = [(0x001, ZLIB), (0x301, ZLIB), (0x101, LZ4), (0x101, LZ4_SIZED), (0x201, ZSTD), (0x201, ZSTD_UNCHECKED)]
CODECS = {0x001: "zlib", 0x301: "zlib", 0x101: "lz4", 0x201: "zstd"}


def flaw_of(sys_flag: int, body: bytes, cap: int = DEFAULT_BODY_CAP) -> str:
    """The text of the flaw, which must be BD-INFLATE and speak of the whole body."""
    found = inflate_body(sys_flag, body, cap)
    assert isinstance(found, Flaw)
    assert (found.code, found.at, found.length) == ("BD-INFLATE", 0, len(body))
    return found.message


@pytest.mark.parametrize(
    ("sys_flag", "codec"),
    [
        (0x000, None),
        (0x0F2, None),
        (0x300, None),
        (0x001, "zlib"),
        (0x101, "lz4"),
        (0x201, "zstd"),
        (0x301, "zlib"),
        (0x3FF, "zlib"),
        (0x401, "unknown 4"),
        (0x501, "unknown 5"),
        (0x601, "unknown 6"),
        (0x701, "unknown 7"),
        (-1, "unknown 7"),
    ],
)
def test_codec_of_a_flag(sys_flag: int, codec: str | None) -> None:
    assert body_codec(sys_flag) == codec


@pytest.mark.parametrize(("sys_flag", "stream"), STREAMS)
def test_streams_of_others(sys_flag: int, stream: bytes) -> None:
    assert inflate_body(sys_flag, stream) == Inflated(PLAIN, CODECS[sys_flag])


def test_what_a_client_does_by_default() -> None:
    assert compress_body(BodyCodec.ZLIB, PLAIN) == ZLIB
    assert DEFAULT_BODY_CAP == 134_217_728


def test_a_plain_body_is_the_body() -> None:
    assert inflate_body(0, PLAIN) == Inflated(PLAIN, None)
    assert inflate_body(0x300, ZLIB) == Inflated(ZLIB, None)
    assert inflate_body(0, PLAIN, cap=0) == Inflated(PLAIN, None)


@pytest.mark.parametrize("sys_flag", [0x001, 0x101, 0x201, 0x701])
def test_an_empty_body_is_empty_whatever_the_flag_says(sys_flag: int) -> None:
    assert inflate_body(sys_flag, b"") == Inflated(b"", body_codec(sys_flag))


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_codecs_that_are_not_defined(sys_flag: int) -> None:
    assert flaw_of(sys_flag, ZLIB) == f"the body's codec is unknown {sys_flag >> 8}"


@pytest.mark.parametrize("sys_flag", CODECS)
def test_a_body_that_is_no_stream(sys_flag: int) -> None:
    assert flaw_of(sys_flag, b"plain text all the time").startswith(
        f"the body is not a complete {CODECS[sys_flag]} stream: "
    )


@pytest.mark.parametrize(("sys_flag", "stream"), STREAMS)
def test_truncated_at_every_length(sys_flag: int, stream: bytes) -> None:
    for length in range(1, len(stream)):
        text = flaw_of(sys_flag, stream[:length])
        assert text.endswith(("it ends early", "need dictionary")), (length, text)


@pytest.mark.parametrize(("sys_flag", "stream"), [item for item in STREAMS if item[1] != ZSTD_UNCHECKED])
def test_a_changed_byte_is_never_taken_for_another_body(sys_flag: int, stream: bytes) -> None:
    for at in range(len(stream)):
        found = inflate_body(sys_flag, stream[:at] + bytes([stream[at] ^ 0xFF]) + stream[at + 1 :])
        assert isinstance(found, Flaw) or found.body == PLAIN, at


def test_what_follows_the_stream() -> None:
    # Upstream's zlib stops at the end of its stream; its LZ4 and ZSTD streams go on with the next frame.
    assert inflate_body(0x001, ZLIB + b"trail") == Inflated(PLAIN, "zlib")
    assert inflate_body(0x101, LZ4 + LZ4_SIZED) == Inflated(PLAIN * 2, "lz4")
    assert inflate_body(0x201, ZSTD + ZSTD_UNCHECKED) == Inflated(PLAIN * 2, "zstd")
    for flag, stream in ((0x101, LZ4), (0x201, ZSTD)):
        flaw_of(flag, stream + b"trail")
        assert flaw_of(flag, stream + stream[:-1]).endswith("it ends early")
    skippable = bytes.fromhex("502a4d18 03000000 616263")
    assert inflate_body(0x101, LZ4 + skippable) == Inflated(PLAIN, "lz4")
    assert inflate_body(0x201, skippable + ZSTD) == Inflated(PLAIN, "zstd")


@pytest.mark.parametrize(("sys_flag", "stream"), STREAMS)
def test_the_cap_is_exact(sys_flag: int, stream: bytes) -> None:
    assert inflate_body(sys_flag, stream, cap=len(PLAIN)) == Inflated(PLAIN, CODECS[sys_flag])
    for cap in (0, 1, len(PLAIN) - 1):
        assert flaw_of(sys_flag, stream, cap) == f"the body decompresses to more than the limit of {cap} bytes"


@pytest.mark.parametrize("sys_flag", CODECS)
def test_a_bomb_costs_no_more_than_the_cap(sys_flag: int) -> None:
    codec = BodyCodec(sys_flag >> 8)
    bomb = compress_body(codec, bytes(1 << 27))
    assert len(bomb) < 1 << 20
    # Hidden behind a harmless frame where that makes one body.
    bomb = bomb if CODECS[sys_flag] == "zlib" else compress_body(codec, PLAIN) + bomb
    tracemalloc.start()
    try:
        assert flaw_of(sys_flag, bomb, 1 << 20) == f"the body decompresses to more than the limit of {1 << 20} bytes"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20, f"{peak} bytes"


@pytest.mark.parametrize("sys_flag", CODECS)
def test_a_small_body_costs_little_under_a_large_cap(sys_flag: int) -> None:
    stream = dict(STREAMS)[sys_flag]
    inflate_body(sys_flag, stream)
    tracemalloc.start()
    try:
        inflate_body(sys_flag, stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, f"{peak} bytes"


def by_others(codec: BodyCodec, data: bytes) -> bytes:
    """``data`` inflated by the library itself."""
    if codec is BodyCodec.LZ4:
        plain: bytes = lz4.frame.decompress(data)
        return plain
    if codec is BodyCodec.ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return zlib.decompress(data)


@pytest.mark.parametrize("codec", BodyCodec)
@pytest.mark.parametrize("body", [b"", b"x", PLAIN, bytes(range(256)) * 3000])
def test_compress(codec: BodyCodec, body: bytes) -> None:
    packed = compress_body(codec, body)
    assert by_others(codec, packed) == body
    flag = compression_flag(codec)
    assert flag == 1 | codec << 8
    assert inflate_body(flag, packed) == Inflated(body, CODECS[flag])
