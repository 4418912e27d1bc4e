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
    """Inflate a zlib stream; what follows the stream is ignored, as upstream does."""
    inflater = zlib.decompressobj()
    body = inflater.decompress(data, cap + 1)
    if len(body) > cap:
        raise OverflowError
    if not inflater.eof:
        raise EOFError("it ends early")
    return body


def _inflate_lz4(data: bytes, cap: int) -> bytes:
    """Inflate LZ4 frames that stand back to back: upstream takes nothing else."""
    from lz4.frame import LZ4FrameDecompressor

    body = bytearray()
    while data:
        inflater = LZ4FrameDecompressor()
        source = data
        while not inflater.eof:
            # The inflater allocates all that it may return before it looks at the data.
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
    """Inflate ZSTD frames that stand back to back: upstream takes nothing else.

    The one reader of the library is bounded but stops quietly where the input does, the other knows the frame's end
    but is not bounded: the first one measures, the second one inflates.
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


_INFLATERS = {"zlib": _inflate_zlib, "lz4": _inflate_lz4, "zstd": _inflate_zstd}
_STEP = 1 << 16


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
