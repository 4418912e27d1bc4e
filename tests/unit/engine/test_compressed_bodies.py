"""Bodies that a client compresses: what stands in the log, as libraries of their own read it, whichever way it came."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import lz4.frame
import pytest
import zstandard

from rmqtool.config import Version
from rmqtool.engine.message import NewMessage, compressed
from rmqtool.engine.store import MessageStore
from rmqtool.formats.batches import BatchItem, encode_batch
from rmqtool.formats.codes import BodyCodec
from tests.support.engine_stores import a_message, read_bytes, small_store

COMPRESSED_BIT = 0x001
MULTI_TAGS = 0x002
# The bits that stand for a codec, the four bytes its stream begins with where they are fixed, and a reader of it.
CODECS: dict[BodyCodec, tuple[int, bytes, Callable[[bytes], bytes]]] = {
    BodyCodec.LZ4: (0x100, b"\x04\x22\x4d\x18", lz4.frame.decompress),
    BodyCodec.ZSTD: (
        0x200,
        b"\x28\xb5\x2f\xfd",
        lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    ),
    BodyCodec.ZLIB: (0x300, b"\x78", zlib.decompress),
}
_CHANCE = random.Random(4096)
BODIES = [
    b"",
    b"x" * 4095,
    b"x" * 4096,
    b"rocket " * 3000,
    _CHANCE.randbytes(4095),
    _CHANCE.randbytes(4096),
    _CHANCE.randbytes(30_000),
]
# Of a record with IPv4 hosts: size, magic, CRC, queue, flag, two offsets, sys flag; what is between; the body's length.
_RECORD = struct.Struct(">iiIiiqqi44xi")


def stored(store: MessageStore) -> list[tuple[int, bytes]]:
    """Return sys flag and body of each record, by the layout alone; the checksum covers what is stored."""
    data = read_bytes(store.setup.files, f"commitlog/{0:020d}")
    found, at = [], 0
    while (fields := _RECORD.unpack_from(data, at))[0]:
        start = at + _RECORD.size
        body = data[start : start + fields[8]]
        assert zlib.crc32(body) & 0x7FFFFFFF == fields[2]
        found.append((fields[7], body))
        at += fields[0]
    return found


def put_each(store: MessageStore, messages: Sequence[NewMessage]) -> None:
    assert all(store.put(message).is_ok for message in messages)


def put_many(store: MessageStore, messages: Sequence[NewMessage]) -> None:
    assert all(ticket.is_ok for ticket in store.put_many(messages))


def put_batches(store: MessageStore, messages: Sequence[NewMessage]) -> None:
    """Put each message as a batch of two: the flag of a batch is that of each of its messages."""
    for message in messages:
        items = [BatchItem(0, message.body or b"", b"")] * 2
        assert store.put_batch(a_message(body=encode_batch(items), properties={}, sys_flag=message.sys_flag)).is_ok


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("put", "copies"), [(put_each, 1), (put_many, 1), (put_batches, 2)])
def test_what_stands_in_the_log_is_what_other_libraries_read(
    put: Callable[[MessageStore, Sequence[NewMessage]], None], copies: int, codec: BodyCodec, version: Version
) -> None:
    bits, begin, read = CODECS[codec]
    messages = [compressed(a_message(body=body, properties={}, sys_flag=MULTI_TAGS), codec) for body in BODIES]
    with small_store(version, mappedFileSizeCommitLog=1 << 20, maxMessageSize=1 << 18) as store:
        put(store, messages)
        found = stored(store)
    expected = [body for body in BODIES for _ in range(copies)]
    assert len(found) == len(expected)
    for (sys_flag, body), plain in zip(found, expected, strict=True):
        if len(plain) < 4096:
            assert (sys_flag, body) == (MULTI_TAGS, plain)
        else:
            assert sys_flag == MULTI_TAGS | COMPRESSED_BIT | bits
            assert body.startswith(begin)
            assert read(body) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_what_compresses_well_is_small(codec: BodyCodec) -> None:
    with small_store(mappedFileSizeCommitLog=1 << 20, maxMessageSize=1 << 18) as store:
        assert store.put(compressed(NewMessage("T", b"rocket " * 3000), codec)).is_ok
        ((_, body),) = stored(store)
        assert len(body) < 200
