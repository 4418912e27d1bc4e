"""Bytes laid by hand from the specification, on purpose independent: nothing of rmqtool is imported here.

``SAMPLES`` holds one stored example of every fixed layout as a literal, with the values that stand in it; the worked
records of the specification follow. The functions below lay records, units and pages of any content with ``struct``,
for tests that need more than one example.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
MAGIC_ZERO = 0x00000000

BORN_V6 = 0x10
STORE_V6 = 0x20


def crc31(data: bytes) -> int:
    """CRC-32 with the top bit cleared."""
    return zlib.crc32(data) & 0x7FFFFFFF


def java_hash(text: str) -> int:
    """``String.hashCode()``: over UTF-16 code units, 32 bits, signed."""
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


# --- worked records -------------------------------------------------------------------------------------------------

EXAMPLE_A = bytes.fromhex(
    "000000cbdaa320a74a82166300000001000000000000000000000005000000000000040000000000"
    "0000018bcfe56800c0a8010a0000d4310000018bcfe5687bc0a8011400002a9f0000000000000000"
    "000000000000001048656c6c6f20526f636b65744d51203209546f7069635465737400574b455953"
    "016f726465722d3102554e49515f4b45590143304138303130413130453131384234414143323437"
    "4237363030303030303702434c55535445520144656661756c74436c757374657202544147530154"
    "616741"
)
# The same message by 5.3.3: WAIT is kept, another order, a separator at the end.
_TAIL_B = bytes.fromhex(
    "00 62 55 4e 49 51 5f 4b 45 59 01 43 30 41"
    "38 30 31 30 41 31 30 45 31 31 38 42 34 41 41 43 32 34 37 42 37 36 30 30 30 30 30 30 37 02 43 4c"
    "55 53 54 45 52 01 44 65 66 61 75 6c 74 43 6c 75 73 74 65 72 02 54 41 47 53 01 54 61 67 41 02 4b"
    "45 59 53 01 6f 72 64 65 72 2d 31 02 57 41 49 54 01 74 72 75 65 02"
)
EXAMPLE_B = b"\x00\x00\x00\xd6" + EXAMPLE_A[4:0x72] + _TAIL_B
# And with enabledAppendPropCRC=true.
EXAMPLE_C = (
    b"\x00\x00\x00\xea"
    + EXAMPLE_A[4:0x72]
    + b"\x00\x76"
    + _TAIL_B[2:]
    + bytes.fromhex("5f 5f 43 52 43 33 32 23 01 37 36 33 38 34 34 38 32 30 32 02")
)
# Both hosts IPv6, nothing in it.
EXAMPLE_D = bytes.fromhex(
    "0000007cdaa320a7000000000000000100000000000000000000000500000000"
    "0000040000000030 0000018bcfe56800"
    "fe800000000000000000000000000001 0000d431 0000018bcfe5687b"
    "20010db8000000000000000000000020 00002a9f"
    "00000000 0000000000000000 00000000"
    "09546f7069635465737400 00"
)

# The index file of the specification: 8 slots, 6 entries.
EXAMPLE_INDEX_FILE = bytes.fromhex(
    "0000018bcfe5687b0000018bcfe57c03 000000000000040000000000000004ce"
    "00000002000000040000000300000000 00000000000000000000000100000000"
    "00000000000000000000000000000000 0000000000000000000000005a820624"
    "00000000000004000000000000000000 6d0746d0000000000000040000000000"
    "000000006d0746d000000000000004ce 00000005000000020000000000000000"
    "00000000000000000000000000000000 00000000000000000000000000000000"
)

EXAMPLE_DLEDGER_HEAD = bytes.fromhex(
    "00000001000000fb000000000000000000000000000000010000000000000000000000000000000000000000000000cb"
)
EXAMPLE_EXT_UNIT = bytes.fromhex("001c 000000000027a807 0000018bcfe5687b 0008 0000000000040201")
EXAMPLE_BATCH = bytes.fromhex("00000022 00000000 00000000 00000000 00000002 6d31 000a 54414753015461674102")


# --- one stored example of every fixed layout -----------------------------------------------------------------------


class Sample(NamedTuple):
    """Bytes, and the values of the fields in their order."""

    data: bytes
    values: tuple[Any, ...]


def _sample(text: str, *values: int | bytes) -> Sample:
    return Sample(bytes.fromhex(text), values)


_V4 = bytes.fromhex("c0a8010a"), bytes.fromhex("c0a80114")
_V6 = bytes.fromhex("fe800000000000000000000000000001"), bytes.fromhex("20010db8000000000000000000000020")
_HEAD = "000000cbdaa320a74a82166300000001 fffffffe 0000000000000005 0000000000000400"
_HEAD_VALUES = 203, MAGIC_V1, 1250039395, 1, -2, 5, 1024
_TAIL = "00000003 0000000000000200 00000010"


def _prefix(sys_flag: int, born: bytes, store: bytes) -> Sample:
    text = (
        f"{_HEAD} {sys_flag:08x} 0000018bcfe56800 {born.hex()} 0000d431 0000018bcfe5687b {store.hex()} 00002a9f {_TAIL}"
    )
    hosts = 1700000000000, born, 54321, 1700000000123, store, 10911
    return _sample(text, *_HEAD_VALUES, sys_flag, *hosts, 3, 512, 16)


SAMPLES: dict[str, Sample] = {
    "MESSAGE_PREFIX_V4V4": _prefix(0, _V4[0], _V4[1]),
    "MESSAGE_PREFIX_V4V6": _prefix(STORE_V6, _V4[0], _V6[1]),
    "MESSAGE_PREFIX_V6V4": _prefix(BORN_V6, _V6[0], _V4[1]),
    "MESSAGE_PREFIX_V6V6": _prefix(BORN_V6 | STORE_V6, _V6[0], _V6[1]),
    "RECORD_START": _sample("000000cb daa320a7", 203, MAGIC_V1),
    "BLANK_RECORD": _sample("00000200 cbd43194", 512, MAGIC_BLANK),
    "CONSUME_QUEUE_UNIT": _sample("0000000000000400 000000cb ffffffffbe14d05d", 1024, 203, -1105932195),
    "CONSUME_QUEUE_EXT_HEAD": _sample("001c 000000000027a807 0000018bcfe5687b 0008", 28, 2598919, 1700000000123, 8),
    "BATCH_CONSUME_QUEUE_UNIT": _sample(
        "0000000000000400 000000bb 000000000027a807 0000018bcfe5687b 0000000000000064 0005 ffffffff 00000000",
        *(1024, 187, 2598919, 1700000000123, 100, 5, -1, 0),
    ),
    "INDEX_HEADER": _sample(
        "0000018bcfe5687b 0000018bcfe57c03 0000000000000400 00000000000004ce 00000002 00000004",
        *(1700000000123, 1700000005123, 1024, 1230, 2, 4),
    ),
    "INDEX_SLOT": _sample("00000003", 3),
    "INDEX_ENTRY": _sample("6d0746d0 00000000000004ce 00000005 00000002", 1829193424, 1230, 5, 2),
    "STORE_CHECKPOINT": _sample(
        "0000018bcfe5687b 0000018bcfe5687a 0000018bcfe56879 0000000000000400 00000000000004ce",
        *(1700000000123, 1700000000122, 1700000000121, 1024, 1230),
    ),
    "TIMER_SLOT": _sample(
        "000000006553f13c 0000000000000034 0000000000000068 00000002 00000000", 1700000060, 52, 104, 2, 0
    ),
    "TIMER_LOG_UNIT": _sample(
        "00000034 ffffffffffffffff 00000001 0000018bcfe56800 0000ea60 0000000000000400 0000012c 8e987641"
        "0000000000000000",
        *(52, -1, 1, 1700000000000, 60000, 1024, 300, -1902610879, 0),
    ),
    "TIMER_LOG_BLANK": _sample("00000038 0000000000000000 cbd43194", 56, 0, MAGIC_BLANK),
    "TIMER_CHECKPOINT": _sample(
        "0000018bcfe56800 0000000000000034 0000000000000007 0000000000000006 0000000000000000 0000018bcfe5687b"
        "0000000000000003",
        *(1700000000000, 52, 7, 6, 0, 1700000000123, 3),
    ),
    "DLEDGER_ENTRY_HEAD": Sample(EXAMPLE_DLEDGER_HEAD, (1, 251, 0, 1, 0, 0, 0, 0, 203)),
    "DLEDGER_INDEX_UNIT": _sample(
        "00000001 0000000000000000 000000fb 0000000000000000 0000000000000001", 1, 0, 251, 0, 1
    ),
    "ROCKSDB_QUEUE_VALUE": _sample(
        "0000000000000400 000000cb 000000000027a807 0000018bcfe5687b", 1024, 203, 2598919, 1700000000123
    ),
    "ROCKSDB_QUEUE_KEY_TAIL": _sample("01 00000001 01 0000000000000005", 1, 1, 1, 5),
    "ROCKSDB_OFFSET_VALUE": _sample("0000000000000400 0000000000000005", 1024, 5),
    "ROCKSDB_DATA_VERSION": _sample("0000000000000000 0000018bcfe56800 0000000000000003", 0, 1700000000000, 3),
    "ROCKSDB_TIMER_VALUE": _sample("0000012c 0000000000000400", 300, 1024),
    "ROCKSDB_TRANS_VALUE": _sample("00000002 0000012c", 2, 300),
    "LONG": _sample("fffffffffffffffe", -2),
    "INT": _sample("fffffffe", -2),
    "SHORT": _sample("fffe", -2),
    "BYTE": _sample("fe", -2),
    "TIERED_INDEX_HEADER": _sample(
        "00000001 0000018bcfe56800 0000018bcfe5687b 00000008 00000004", 1, 1700000000000, 1700000000123, 8, 4
    ),
    "TIERED_INDEX_ITEM": _sample(
        "6d0746d0 00000007 00000001 0000000000000400 000000cb 00000005 00000002", 1829193424, 7, 1, 1024, 203, 5, 2
    ),
    "TIERED_INDEX_SLOT": _sample("00000324 00000070", 804, 112),
    "TIERED_SEALED_ITEM": _sample(
        "6d0746d0 00000007 00000001 0000000000000400 000000cb fffffffe", 1829193424, 7, 1, 1024, 203, -2
    ),
    "TIERED_CODA": _sample("00000010 cbd43194 0000018bcfe5687b", 16, MAGIC_BLANK, 1700000000123),
    "BATCH_ITEM_PREFIX": _sample("00000022 00000000 00000000 00000007 00000002", 34, 0, 0, 7, 2),
}


# --- records, units and pages of any content ------------------------------------------------------------------------


class Host(NamedTuple):
    """Address bytes and port."""

    ip: bytes
    port: int


BORN_V4_HOST = Host(_V4[0], 54321)
STORE_V4_HOST = Host(_V4[1], 10911)
BORN_V6_HOST = Host(_V6[0], 54321)
STORE_V6_HOST = Host(_V6[1], 10911)


def properties(*pairs: tuple[str, str], terminated: bool = True) -> bytes:
    """A property text."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    return (text + "\x02" if pairs and terminated else text).encode()


def record(
    body: bytes = b"",
    topic: bytes = b"TopicTest",
    property_text: bytes = b"",
    *,
    magic: int = MAGIC_V1,
    body_crc: int | None = None,
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 1700000000000,
    born_host: Host = BORN_V4_HOST,
    store_timestamp: int = 1700000000123,
    store_host: Host = STORE_V4_HOST,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """A message record; the host bits of the flag follow from the hosts."""
    sys_flag |= (BORN_V6 if len(born_host.ip) == 16 else 0) | (STORE_V6 if len(store_host.ip) == 16 else 0)
    topic_length = struct.pack(">b" if magic == MAGIC_V1 else ">h", len(topic))
    rest = b"".join(
        (
            struct.pack(">I", magic),
            struct.pack(">i", crc31(body) if body_crc is None else body_crc),
            struct.pack(">ii", queue_id, flag),
            struct.pack(">qq", queue_offset, physical_offset),
            struct.pack(">i", sys_flag),
            struct.pack(">q", born_timestamp),
            born_host.ip + struct.pack(">i", born_host.port),
            struct.pack(">q", store_timestamp),
            store_host.ip + struct.pack(">i", store_host.port),
            struct.pack(">i", reconsume_times),
            struct.pack(">q", prepared_transaction_offset),
            struct.pack(">i", len(body)) + body,
            topic_length + topic,
            struct.pack(">h", len(property_text)) + property_text,
        )
    )
    return struct.pack(">i", 4 + len(rest)) + rest


def record_with_property_crc(record_bytes: bytes, prefix_size: int = 88) -> bytes:
    """The same record with a checksum block at the end of its properties."""
    (body_length,) = struct.unpack_from(">i", record_bytes, prefix_size - 4)
    topic_at = prefix_size + body_length
    length_at = topic_at + 1 + record_bytes[topic_at]
    (length,) = struct.unpack_from(">h", record_bytes, length_at)
    total = len(record_bytes) + 20
    covered = (
        struct.pack(">i", total)
        + record_bytes[4:length_at]
        + struct.pack(">h", length + 20)
        + record_bytes[length_at + 2 :]
    )
    digits = f"{crc31(covered):010d}"[::-1]
    return covered + b"__CRC32#\x01" + digits.encode() + b"\x02"


def blank(length: int) -> bytes:
    """The head of the record that ends a segment."""
    return struct.pack(">iI", length, MAGIC_BLANK)


def queue_unit(physical_offset: int, size: int, tags_code: int) -> bytes:
    """A unit of a simple queue."""
    return struct.pack(">qiq", physical_offset, size, tags_code)


FILLER_UNIT = bytes.fromhex("0000000000000000 7fffffff 0000000000000000")


def ext_unit(tags_code: int, store_time: int, bit_map: bytes) -> bytes:
    """A unit of a queue's extension."""
    return struct.pack(">hqqh", 20 + len(bit_map), tags_code, store_time, len(bit_map)) + bit_map


def batch_item(body: bytes, property_text: bytes, flag: int = 0) -> bytes:
    """A message of a client batch."""
    head = struct.pack(">iiiii", 22 + len(body) + len(property_text), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(property_text)) + property_text


def page(*values: int) -> bytes:
    """A page of 4096 bytes that begins with 64-bit numbers."""
    return struct.pack(f">{len(values)}q", *values).ljust(4096, b"\0")


def timer_unit(prev_pos: int, magic: int, write_time: int, delay: int, offset: int = 0, size: int = 0) -> bytes:
    """A unit of the timer log."""
    return struct.pack(">iqiqiqiiq", 52, prev_pos, magic, write_time, delay, offset, size, 0, 0)


def timer_slot(time: int, first: int, last: int, num: int) -> bytes:
    """A slot of the timer wheel."""
    return struct.pack(">qqqii", time, first, last, num, 0)


def dledger_entry(index: int, term: int, pos: int, body: bytes) -> bytes:
    """An entry of DLedger's data file."""
    return struct.pack(">iiqqqiiii", 1, 48 + len(body), index, term, pos, 0, 0, 0, len(body)) + body


def rocksdb_queue_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    """Key of a RocksDB queue row."""
    return struct.pack(">i", len(topic)) + b"\1" + topic + struct.pack(">bibq", 1, queue_id, 1, queue_offset)
