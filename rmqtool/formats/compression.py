"""Compressed bodies: which codec the system flag names, decompression with a limit, compression.

ZLIB is a zlib stream, LZ4 and ZSTD are frames. A broker stores what the producer sent, and the body checksum is over
the compressed bytes. Upstream: ``Compressor`` of ``common/compression``.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from rmqtool.formats.codes import COMPRESSION_MASK, COMPRESSION_SHIFT, BodyCodec, SysFlag
from rmqtool.formats.flaws import Flaw

# A default broker takes bodies of up to 4 MiB, compressed or not. One that grows beyond this limit counts as damaged.
DEFAULT_BODY_CAP = 128 << 20

# The names of codecs that options, JSON and screens show.
CODEC_NAMES = {BodyCodec.ZLIB_LEGACY: "zlib", BodyCodec.LZ4: "lz4", BodyCodec.ZSTD: "zstd", BodyCodec.ZLIB: "zlib"}


class Inflated(NamedTuple):
    """A body as a consumer gets it, and the name of its codec; None if it was stored plain."""

    body: bytes
    codec: str | None


def body_codec(sys_flag: int) -> str | None:
    """Return the name of the codec of a record's body (``unknown`` and a number if undefined), None if it is plain."""
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    number = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    return CODEC_NAMES[BodyCodec(number)] if number <= BodyCodec.ZLIB else f"unknown {number}"


def inflate_body(sys_flag: int, raw_body: bytes, cap: int = DEFAULT_BODY_CAP) -> Inflated | Flaw:
    """Return the body of a record as a consumer gets it; a body that is stored plain is returned as it is.

    The flaw BD-INFLATE is returned for a stream that is damaged or incomplete, for an unknown codec, and for a body
    that would have more than ``cap`` bytes; decompression stops there, or at most 64 KiB later.
    """
    codec = body_codec(sys_flag)
    # Clients do not decompress an empty body either, even if its flag names a codec.
    if codec is None or not raw_body:
        return Inflated(raw_body, codec)
    if codec not in _INFLATERS:
        return Flaw("BD-INFLATE", f"the body's codec is {codec}", 0, len(raw_body))
    try:
        return Inflated(_INFLATERS[codec](raw_body, cap), codec)
    except OverflowError:
        text = f"the body decompresses to more than the limit of {cap} bytes"
    except (zlib.error, RuntimeError, ValueError, EOFError, MemoryError) as error:
        text = f"the body is not a complete {codec} stream: {error}"
    return Flaw("BD-INFLATE", text, 0, len(raw_body))


def _inflate_zlib(data: bytes, cap: int) -> bytes:
    """Decompress a zlib stream; ``_INFLATERS`` names the errors. Bytes after its end are ignored, as by upstream."""
    inflater = zlib.decompressobj()
    body = inflater.decompress(data, cap + 1)
    if len(body) > cap:
        raise OverflowError
    if not inflater.eof:
        raise EOFError("it ends early")
    return body


def _inflate_lz4(data: bytes, cap: int) -> bytes:
    """Decompress LZ4 frames to the end of ``data``; for errors see ``_INFLATERS``.

    Bytes after a frame that are not a frame are an error, as for upstream.
    """
    from lz4.frame import LZ4FrameDecompressor

    body = bytearray()
    while data:
        inflater = LZ4FrameDecompressor()
        source = data
        while not inflater.eof:
            # The library allocates ``max_length`` bytes before it looks at the data, so the steps are small.
            piece = inflater.decompress(source, max_length=_STEP)
            if not piece and not inflater.eof:
                raise EOFError("it ends early")
            body += piece
            if len(body) > cap:
                raise OverflowError
            source = b""
        data = inflater.unused_data or b""
    return bytes(body)


def _inflate_zstd(data: bytes, cap: int) -> bytes:
    """Decompress ZSTD frames to the end of ``data``; for errors see ``_INFLATERS``.

    Bytes after a frame that are not a frame are an error, as for upstream. The library's stream reader takes a limit
    but does not notice an early end; its decompressor notices the end but takes no limit. So the stream reader measures
    the body, then the decompressor makes it.
    """
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            size = 0
            while piece := reader.read(_STEP):
                size += len(piece)
                if size > cap:
                    raise OverflowError
        frames = []
        while data:
            inflater = zstandard.ZstdDecompressor().decompressobj()
            frames.append(inflater.decompress(data))
            if not inflater.eof:
                raise EOFError("it ends early")
            data = inflater.unused_data
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    return b"".join(frames)


# They raise OverflowError for a body beyond the cap, and other errors for a stream that is damaged or ends early.
_INFLATERS = {"zlib": _inflate_zlib, "lz4": _inflate_lz4, "zstd": _inflate_zstd}
# Bytes asked of a decompressor at once; the limit is compared after each step.
_STEP = 1 << 16


def compress_body(codec: BodyCodec, body: bytes, level: int = 5) -> bytes:
    """Return ``body`` compressed as a client does. 5 is a client's default level; LZ4 ignores ``level``."""
    if codec is BodyCodec.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)
        return packed
    if codec is BodyCodec.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    return zlib.compress(body, level)


def compression_flag(codec: BodyCodec) -> int:
    """Return the bits of the system flag for a body compressed with ``codec``."""
    return int(SysFlag.COMPRESSED) | codec << COMPRESSION_SHIFT
