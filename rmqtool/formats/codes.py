"""The codes that records carry: magic numbers and system flags. Open: an unknown value is a value.

Upstream: ``MessageDecoder``, ``CommitLog``, ``MessageSysFlag``, ``CompressionType``.

Versions of RocketMQ as this project speaks of them: ``4.9``, ``5.3``, ``5.4``, or an exact release.
"""

from __future__ import annotations

from enum import KEEP, IntEnum, IntFlag

MESSAGE_MAGIC_V1 = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
# What a message may begin with; a blank record is not a message.
RECORD_MAGICS = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)

# As they stand on disk, to search for.
MAGIC_BYTES = tuple(magic.to_bytes(4, "big") for magic in (*RECORD_MAGICS, BLANK_MAGIC))

MAGIC_WORDS = {
    MESSAGE_MAGIC_V1: "message, version 1",
    MESSAGE_MAGIC_V2: "message, version 2",
    BLANK_MAGIC: "blank to the end of the segment",
}

# A queue unit of this size fills the head of a queue whose first messages are gone.
FILLER_SIZE = 0x7FFFFFFF

# Tag codes up to this one are addresses in the queue's extension: one below the smallest hash.
MAX_EXT_ADDRESS = -(1 << 31) - 1
EXT_ADDRESS_BASE = 1 << 63


class SysFlag(IntFlag, boundary=KEEP):
    """System flag of a record."""

    COMPRESSED = 0x001
    MULTI_TAGS = 0x002
    TRANSACTION_PREPARED = 0x004
    TRANSACTION_COMMIT = 0x008
    BORN_HOST_V6 = 0x010
    STORE_HOST_V6 = 0x020
    NEED_UNWRAP = 0x040
    INNER_BATCH = 0x080
    LZ4 = 0x100
    ZSTD = 0x200


# Which of the two hosts of a record have 16 bytes: these bits decide how long its fixed part is.
HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
TRANSACTION_MASK = 0x00C
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8


class TransactionType(IntEnum):
    """What the two transaction bits say."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class BodyCodec(IntEnum):
    """What the compression bits say; 4 to 7 are not defined."""

    ZLIB_LEGACY = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    """Return the transaction type of a record."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


def sys_flag_words(sys_flag: int) -> str:
    """Return the flag in words, unknown bits in hex."""
    words = []
    if sys_flag & SysFlag.COMPRESSED:
        codec = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        names = {0: "ZLIB", 1: "LZ4", 2: "ZSTD", 3: "ZLIB"}
        words.append(f"COMPRESSED({names.get(codec, f'codec {codec}')})")
    if sys_flag & SysFlag.MULTI_TAGS:
        words.append("MULTI_TAGS")
    kind = transaction_type(sys_flag)
    if kind is not TransactionType.NONE:
        words.append(f"TRANSACTION_{kind.name}")
    words += [
        flag.name or ""
        for flag in (SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, SysFlag.NEED_UNWRAP, SysFlag.INNER_BATCH)
        if sys_flag & flag
    ]
    known = 0x0FF | COMPRESSION_MASK if sys_flag & SysFlag.COMPRESSED else 0x0FF
    rest = sys_flag & 0xFFFFFFFF & ~known
    if rest:
        words.append(f"unknown {rest:#x}")
    return " | ".join(words) or "none"


# What the short names of ``--as`` stand for: the release whose behaviour was recorded.
RELEASES = {"4.9": (4, 9, 8), "5.3": (5, 3, 3), "5.4": (5, 4, 0)}


def release(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare; ``4.9``, ``5.3`` and ``5.4`` are the releases they stand for.

    Raises ValueError when ``version`` is not numbers between dots.
    """
    return RELEASES.get(version) or tuple(int(part) for part in version.split("."))


def is_since(version: str, since: str) -> bool:
    """Return whether something that came with release ``since`` is there in ``version``."""
    return release(version) >= tuple(int(part) for part in since.split("."))
