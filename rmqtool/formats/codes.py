"""Record versions begin here: the magic of each one; the system flags of records; the releases of RocketMQ.

The fields of a version are in ``declarations``, its decoder in ``commit_log``.

Codes are open: an unknown value stays a value and is shown as a number. Releases are written ``4.9``, ``5.3``, ``5.4``,
or exactly, as ``5.3.1``.

Upstream: ``MessageDecoder``, ``CommitLog``, ``MessageSysFlag``, ``CompressionType``.
"""

from __future__ import annotations

from enum import KEEP, IntEnum, IntFlag

# Bytes 4 to 8 of a record. Version 2 has a topic length of two bytes, for topics of more than 127 bytes.
MESSAGE_MAGIC_V1 = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
# The magics of messages. A blank record fills the end of a segment and is not a message.
RECORD_MAGICS = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)

# The magics as they are in a file, big-endian, for searches over raw bytes.
MAGIC_BYTES = tuple(magic.to_bytes(4, "big") for magic in (*RECORD_MAGICS, BLANK_MAGIC))

MAGIC_WORDS = {
    MESSAGE_MAGIC_V1: "message, version 1",
    MESSAGE_MAGIC_V2: "message, version 2",
    BLANK_MAGIC: "blank to the end of the segment",
}

# The size in a filler entry. Filler entries take the place of deleted messages at the head of a queue, so that an
# entry's position is still its queue offset.
FILLER_SIZE = 0x7FFFFFFF

# A tags code at or below this limit is not a hash but an address in the queue's extension file. A hash has 32 bits, so
# no hash is this small.
MAX_EXT_ADDRESS = -(1 << 31) - 1
# A tags code that is an address is the offset in the extension file minus this, so it is far below any hash.
EXT_ADDRESS_BASE = 1 << 63


class SysFlag(IntFlag, boundary=KEEP):
    """The system flag of a record.

    Counted from 0, bits 2 and 3 are the transaction type, bits 8 to 10 the codec of the body.
    """

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


# Which of the two hosts of a record have 16-byte addresses. These bits decide how long the fixed part of the record is.
HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
# The bits of the transaction type, and those of the body's codec.
TRANSACTION_MASK = 0x00C
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8


class TransactionType(IntEnum):
    """The value of the two transaction bits. A half message is PREPARED."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class BodyCodec(IntEnum):
    """The value of the three codec bits; 4 to 7 are undefined.

    0 is zlib too: older producers set COMPRESSED and no codec.
    """

    ZLIB_LEGACY = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> TransactionType:
    return TransactionType(sys_flag & TRANSACTION_MASK)


def sys_flag_words(sys_flag: int) -> str:
    """Return the flag in words, for people; bits without a name in hexadecimal; ``none`` if no bit is set."""
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
    # The codec bits mean something only on a compressed body.
    known = 0x0FF | COMPRESSION_MASK if sys_flag & SysFlag.COMPRESSED else 0x0FF
    rest = sys_flag & 0xFFFFFFFF & ~known
    if rest:
        words.append(f"unknown {rest:#x}")
    return " | ".join(words) or "none"


# The exact releases whose behaviour was recorded; ``--as`` takes the short names.
RELEASES = {"4.9": (4, 9, 8), "5.3": (5, 3, 3), "5.4": (5, 4, 0)}


def release(version: str) -> tuple[int, ...]:
    """Return a version as a tuple that compares; a short name is the release that was recorded for it.

    Raises ValueError when ``version`` is not numbers between dots.
    """
    return RELEASES.get(version) or tuple(int(part) for part in version.split("."))


def is_since(version: str, since: str) -> bool:
    """Return whether ``version`` is release ``since`` or a later one; ValueError as for ``release``."""
    return release(version) >= tuple(int(part) for part in since.split("."))
