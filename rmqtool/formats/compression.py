"""Bodies: which codec a record's flag names, inflating under a cap, compressing.

Upstream: ``Compressor`` of ``common/compression``. ZLIB is a zlib stream, LZ4 and ZSTD are frames. The broker stores
what the producer sent; the body checksum covers the compressed bytes.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from rmqtool.formats.codes import COMPRESSION_MASK, COMPRESSION_SHIFT, BodyCodec, SysFlag
from rmqtool.formats.flaws import Flaw

# A body inflates to this at the most: the largest message a default broker takes is 4 MiB.
DEFAULT_BODY_CAP = 128 << 20

CODEC_NAMES = {BodyCodec.ZLIB_LEGACY: "zlib", BodyCodec.LZ4: "lz4", BodyCodec.ZSTD: "zstd", BodyCodec.ZLIB: "zlib"}


class Inflated(NamedTuple):
    """A body as the consumer sees it, and how it was stored."""

    body: bytes
    codec: str | None


def body_codec(sys_flag: int) -> str | None:
    """Return the name of the codec of a record's body, None when stored plain."""
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    number = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    return CODEC_NAMES[BodyCodec(number)] if number <= BodyCodec.ZLIB else f"unknown {number}"


def inflate_body(sys_flag: int, raw_body: bytes, cap: int = DEFAULT_BODY_CAP) -> Inflated | Flaw:
    """Return the body of a record, or the flaw BD-INFLATE."""
    codec = body_codec(sys_flag)
    if codec is None or not raw_body:
        return Inflated(raw_body, codec)
    try:
        body = _INFLATERS[codec](raw_body, cap + 1) if codec in _INFLATERS else None
    except (zlib.error, RuntimeError, ValueError, EOFError, MemoryError) as error:
        return Flaw("BD-INFLATE", f"the body is no whole {codec} stream: {error}", 0, len(raw_body))
    if body is None:
        return Flaw("BD-INFLATE", f"the body's codec is {codec}", 0, len(raw_body))
    if len(body) > cap:
        return Flaw("BD-INFLATE", f"the body inflates beyond the cap of {cap} bytes", 0, len(raw_body))
    return Inflated(body, codec)


def _inflate_zlib(data: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj()
    body = inflater.decompress(data, most)
    if not inflater.eof and len(body) < most:
        raise EOFError("it ends early")
    return body


def _inflate_lz4(data: bytes, most: int) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    inflater = LZ4FrameDecompressor()
    body: bytes = inflater.decompress(data, max_length=most)
    while not inflater.eof and len(body) < most:
        more = inflater.decompress(b"", max_length=most - len(body))
        if not more:
            raise EOFError("it ends early")
        body += more
    return body


def _inflate_zstd(data: bytes, most: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=False) as reader:
            pieces = []
            left = most
            while left and (piece := reader.read(min(left, 1 << 20))):
                pieces.append(piece)
                left -= len(piece)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    body = b"".join(pieces)
    # The reader stops quietly where the input does; only the frame's own end proves a whole body.
    checker = zstandard.ZstdDecompressor().decompressobj()
    if len(body) < most:
        checker.decompress(data)
        if not checker.eof:
            raise EOFError("it ends early")
    return body


_INFLATERS = {"zlib": _inflate_zlib, "lz4": _inflate_lz4, "zstd": _inflate_zstd}


def compress_body(codec: BodyCodec, body: bytes, level: int = 5) -> bytes:
    """Return ``body`` compressed as a client of that codec does; ``level`` is the client's default."""
    if codec is BodyCodec.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)
        return packed
    if codec is BodyCodec.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def compression_flag(codec: BodyCodec) -> int:
    """Return the system flag bits of a body compressed with ``codec``."""
    return int(SysFlag.COMPRESSED) | codec << COMPRESSION_SHIFT
