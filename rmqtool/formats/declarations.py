"""The layouts of all stored structures (message records, queue entries, index, timer, ...), declared with construct.

Each field is declared once, here. The rest is derived: ``tools/derive.py`` writes ``layouts`` (struct packers,
field tables, dtypes, value classes), and the manual pages show the texts beside the fields. Integers are big-endian and
signed, as Java writes them; nothing is aligned or padded.

Programs may parse and build with the declarations: each is a construct ``Struct``, and docs/library.md shows how.
``LAYOUTS`` has all of them by name: ``FIXED`` the ones of a fixed size in the order of the manual, ``VARIABLE`` the
others. The four prefixes of ``MESSAGE`` (two hosts of 4 or 16 bytes) are cut out of it by ``tools/derive.py``.

This module loads construct, so only ``dump --as-declared`` and the library import it; fast code uses ``layouts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import crcmod
from construct import (
    Bytes,
    Construct,
    ConstructError,
    Container,
    IfThenElse,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    Renamed,
    Struct,
    this,
)

from rmqtool.formats.codes import MESSAGE_MAGIC_V2, SysFlag
from rmqtool.formats.layout import LayoutError

BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)

# The checksum of bodies and of properties, of which 31 bits are stored: CRC-32 of IEEE 802.3. zlib and the kernel
# compute it; a property test compares them with this definition.
crc32 = crcmod.mkCrcFun(0x104C11DB7, initCrc=0, rev=True, xorOut=0xFFFFFFFF)


def _host(address_size: int) -> Struct:
    return Struct("ip" / Bytes(address_size), "port" / Int32sb)


MESSAGE = Struct(
    "total_size" / Int32sb * "Bytes of the whole record, these four included",
    "magic" / Int32ub * "0xDAA320A7 version 1, 0xDAA320AB version 2 (two-byte topic length)",
    "body_crc" / Int32sb * "CRC-32 of the stored body with the top bit cleared; 0 for an empty body",
    "queue_id" / Int32sb * "Queue of the topic",
    "flag" / Int32sb * "The producer's own value",
    "queue_offset" / Int64sb * "Number of the message in its queue; 0 for prepared and rolled-back transactions",
    "physical_offset" / Int64sb * "Place of this record in the commit log",
    "sys_flag" / Int32sb * "Compression, transaction, host and batch bits",
    "born_timestamp" / Int64sb * "Producer's clock, ms",
    "born_host" / IfThenElse(this.sys_flag & BORN_HOST_V6, _host(16), _host(4)) * "Producer's address and port",
    "store_timestamp" / Int64sb * "Broker's clock at the append, ms",
    "store_host" / IfThenElse(this.sys_flag & STORE_HOST_V6, _host(16), _host(4)) * "Broker's address and port",
    "reconsume_times" / Int32sb * "How often the message was retried",
    "prepared_transaction_offset" / Int64sb * "Committed transactions: place of the half message",
    "body_length" / Int32sb * "Bytes of the stored body",
    "body" / Bytes(this.body_length) * "The body as stored, maybe compressed",
    "topic_length" / IfThenElse(this.magic == MESSAGE_MAGIC_V2, Int16sb, Int8sb) * "Bytes of the topic",
    "topic" / Bytes(this.topic_length) * "UTF-8",
    "properties_length" / Int16sb * "Bytes of the properties",
    "properties" / Bytes(this.properties_length) * "name 0x01 value 0x02 ..., UTF-8",
)

BLANK = Struct(
    "total_size" / Int32sb * "Bytes left in the segment, these four included",
    "magic" / Int32ub * "0xCBD43194; what follows is undefined",
)

# The first 8 bytes of any record, enough to walk from record to record.
RECORD_START = Struct(
    "total_size" / Int32sb * "Bytes of the whole record or blank",
    "magic" / Int32ub * "Which kind of record this is",
)

BATCH_ITEM = Struct(
    "total_size" / Int32sb * "Bytes of this message within the batch",
    "magic" / Int32sb * "0",
    "body_crc" / Int32sb * "0",
    "flag" / Int32sb * "The producer's own value",
    "body_length" / Int32sb * "Bytes of the body",
    "body" / Bytes(this.body_length) * "The body",
    "properties_length" / Int16sb * "Bytes of the properties",
    "properties" / Bytes(this.properties_length) * "name 0x01 value 0x02 ..., UTF-8",
)

CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb * "Place of the message in the commit log",
    "size" / Int32sb * "Its total size; 2147483647 in a filler entry",
    "tags_code" / Int64sb * "Hash of the tag, delivery time of a delayed message, or address of an extension entry",
)

CONSUME_QUEUE_EXT_HEAD = Struct(
    "size" / Int16sb * "Bytes of the entry; -1 ends the file",
    "tags_code" / Int64sb * "The real tags code",
    "msg_store_time" / Int64sb * "Store timestamp, ms",
    "bit_map_size" / Int16sb * "Bytes of the bit map that follows",
)

CONSUME_QUEUE_EXT_UNIT = Struct(
    *CONSUME_QUEUE_EXT_HEAD.subcons,
    "filter_bit_map" / Bytes(this.bit_map_size) * "Bits of the groups whose filter the message passes",
)

BATCH_CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb * "Place of the record in the commit log; -1 ends a sparse file",
    "size" / Int32sb * "Its total size",
    "tags_code" / Int64sb * "As in the simple queue",
    "store_time" / Int64sb * "Store timestamp, ms",
    "msg_base_offset" / Int64sb * "Queue offset of the first message of the record",
    "batch_size" / Int16sb * "Messages in the record",
    "compacted_offset" / Int32sb * "-1",
    "reserved" / Int32sb * "0",
)

INDEX_HEADER = Struct(
    "begin_timestamp" / Int64sb * "Store timestamp of the first entry, ms",
    "end_timestamp" / Int64sb * "Store timestamp of the last entry, ms",
    "begin_phy_offset" / Int64sb * "Place of the first entry's message",
    "end_phy_offset" / Int64sb * "Place of the last entry's message",
    "hash_slot_count" / Int32sb * "Slots in use (entries, up to 4.7.0)",
    "index_count" / Int32sb * "Number of the next entry: entries + 1",
)

INDEX_SLOT = Struct("index_no" / Int32sb * "Newest entry of the chain, 0 when empty")

INDEX_ENTRY = Struct(
    "key_hash" / Int32sb * "Hash of topic#key, not negative",
    "phy_offset" / Int64sb * "Place of the message in the commit log",
    "time_diff" / Int32sb * "Seconds after the header's begin",
    "prev_index" / Int32sb * "Entry before this one in the slot's chain, 0 at its end",
)

STORE_CHECKPOINT = Struct(
    "physic_msg_timestamp" / Int64sb * "The commit log is known to be flushed up to this store timestamp",
    "logics_msg_timestamp" / Int64sb * "The queues are",
    "index_msg_timestamp" / Int64sb * "End of the newest full index file",
    "master_flushed_offset" / Int64sb * "From 5.0.0",
    "confirm_phy_offset" / Int64sb * "From 5.1.1",
)

TIMER_SLOT = Struct(
    "time" / Int64sb * "Delivery time divided by the precision",
    "first_pos" / Int64sb * "Timer log position of the first entry, or -1",
    "last_pos" / Int64sb * "Timer log position of the newest entry",
    "num" / Int32sb * "Pending messages",
    "magic" / Int32sb * "0",
)

TIMER_LOG_UNIT = Struct(
    "size" / Int32sb * "52",
    "prev_pos" / Int64sb * "Entry before this one in the slot, -1 at the end",
    "magic" / Int32sb * "1 default, 2 rolled, 4 cancels",
    "write_time" / Int64sb * "Time of the wheel when written, ms",
    "delay" / Int32sb * "Delivery time less write time, ms",
    "offset_py" / Int64sb * "Place of the timer message in the commit log",
    "size_py" / Int32sb * "Its total size",
    "topic_hash" / Int32sb * "Hash of the real topic",
    "reserved" / Int64sb * "0",
)

TIMER_LOG_BLANK = Struct(
    "size" / Int32sb * "Bytes left in the file",
    "prev_pos" / Int64sb * "0",
    "magic" / Int32ub * "0xCBD43194",
)

TIMER_CHECKPOINT = Struct(
    "last_read_time_ms" / Int64sb * "Everything before is delivered",
    "last_timer_log_flush_pos" / Int64sb * "The timer log is flushed up to here",
    "last_timer_queue_offset" / Int64sb * "Next offset to read in the timer topic",
    "master_timer_queue_offset" / Int64sb * "The same of the master",
    "state_version" / Int64sb * "Data version",
    "timestamp" / Int64sb * "Data version, ms",
    "counter" / Int64sb * "Data version",
)

DLEDGER_ENTRY_HEAD = Struct(
    "magic" / Int32sb * "1 data, 2 no-op, 3 configuration change; -1 blank to the end of the file",
    "size" / Int32sb * "Bytes of the entry, head included",
    "entry_index" / Int64sb * "Number of the entry",
    "term" / Int64sb * "Term of the leader",
    "pos" / Int64sb * "Place of the entry",
    "channel" / Int32sb * "0",
    "chain_crc" / Int32sb * "0, never computed",
    "body_crc" / Int32sb * "0, never computed",
    "body_length" / Int32sb * "Bytes of the commit log record that follows",
)

DLEDGER_INDEX_UNIT = Struct(
    "magic" / Int32sb * "1",
    "pos" / Int64sb * "Place of the entry",
    "size" / Int32sb * "Its size",
    "entry_index" / Int64sb * "Its number",
    "term" / Int64sb * "Its term",
)

ROCKSDB_QUEUE_VALUE = Struct(
    "physical_offset" / Int64sb * "Place of the message in the commit log",
    "size" / Int32sb * "Its total size",
    "tags_code" / Int64sb * "As in the file queue",
    "store_time" / Int64sb * "Store timestamp, ms",
)

ROCKSDB_QUEUE_KEY_TAIL = Struct(
    "separator_1" / Int8sb * "1",
    "queue_id" / Int32sb * "Queue",
    "separator_2" / Int8sb * "1",
    "queue_offset" / Int64sb * "Queue offset",
)

ROCKSDB_OFFSET_VALUE = Struct(
    "physical_offset" / Int64sb * "Place of the bound's message",
    "queue_offset" / Int64sb * "Last existing offset (max), first one (min)",
)

ROCKSDB_DATA_VERSION = Struct(
    "state_version" / Int64sb * "State machine version",
    "timestamp" / Int64sb * "Time of the last change, ms",
    "counter" / Int64sb * "Changes",
)

ROCKSDB_TIMER_VALUE = Struct(
    "size" / Int32sb * "Total size of the timer message",
    "physical_offset" / Int64sb * "Its place in the commit log",
)

ROCKSDB_TRANS_VALUE = Struct(
    "check_times" / Int32sb * "Checks so far",
    "size" / Int32sb * "Total size of the half message",
)

LONG = Struct("value" / Int64sb * "One number")
INT = Struct("value" / Int32sb * "One number")
SHORT = Struct("value" / Int16sb * "One number")
BYTE = Struct("value" / Int8sb * "One number")

TIERED_INDEX_HEADER = Struct(
    "magic" / Int32sb * "Which state the file is in",
    "begin_timestamp" / Int64sb * "Creation of the file, ms",
    "end_timestamp" / Int64sb * "Newest message, ms",
    "hash_slot_count" / Int32sb * "Slots in use",
    "index_item_count" / Int32sb * "Items",
)

TIERED_INDEX_SLOT = Struct(
    "position" / Int32sb * "Sealed: file offset of its items. Before: number of the newest item, 0 without one",
    "length" / Int32sb * "Sealed: bytes of its items. Before: 0",
)

TIERED_INDEX_ITEM = Struct(
    "hash_code" / Int32sb * "Hash of the key",
    "topic_id" / Int32sb * "Topic's number in the metadata",
    "queue_id" / Int32sb * "Queue",
    "offset" / Int64sb * "Place in the tiered commit log",
    "size" / Int32sb * "Size of the message",
    "time_diff" / Int32sb * "Seconds after the begin",
    "item_index" / Int32sb * "Item before this one in the slot",
)

TIERED_SEALED_ITEM = Struct(*TIERED_INDEX_ITEM.subcons[:-1])

TIERED_CODA = Struct(
    "size" / Int32sb * "16",
    "magic" / Int32ub * "0xCBD43194",
    "max_store_timestamp" / Int64sb * "Newest message of the segment, ms",
)

# Name of the value class -> (declaration, one line for the manual).
FIXED: dict[str, tuple[Construct[Any, Any], str]] = {
    "RecordStart": (RECORD_START, "The first bytes of any commit log record"),
    "BlankRecord": (BLANK, "End of a commit log segment"),
    "ConsumeQueueUnit": (CONSUME_QUEUE_UNIT, "Entry of a simple consume queue"),
    "ConsumeQueueExtHead": (CONSUME_QUEUE_EXT_HEAD, "Head of an entry of the queue's extension file"),
    "BatchConsumeQueueUnit": (BATCH_CONSUME_QUEUE_UNIT, "Entry of a batch or sparse consume queue"),
    "IndexHeader": (INDEX_HEADER, "Head of an index file"),
    "IndexSlot": (INDEX_SLOT, "Slot of an index file"),
    "IndexEntry": (INDEX_ENTRY, "Entry of an index file"),
    "StoreCheckpoint": (STORE_CHECKPOINT, "The fields of checkpoint; zeros fill the page"),
    "TimerSlot": (TIMER_SLOT, "Slot of the timer wheel"),
    "TimerLogUnit": (TIMER_LOG_UNIT, "Entry of the timer log"),
    "TimerLogBlank": (TIMER_LOG_BLANK, "End of a timer log file"),
    "TimerCheckpoint": (TIMER_CHECKPOINT, "The fields of timercheck; zeros fill the page"),
    "DLedgerEntryHead": (DLEDGER_ENTRY_HEAD, "Head of a DLedger entry"),
    "DLedgerIndexUnit": (DLEDGER_INDEX_UNIT, "Entry of the DLedger index"),
    "RocksDBQueueValue": (ROCKSDB_QUEUE_VALUE, "Value of a RocksDB queue row"),
    "RocksDBQueueKeyTail": (ROCKSDB_QUEUE_KEY_TAIL, "The rest of a RocksDB queue row's key, after the topic"),
    "RocksDBOffsetValue": (ROCKSDB_OFFSET_VALUE, "Value of a RocksDB queue bound"),
    "RocksDBDataVersion": (
        ROCKSDB_DATA_VERSION,
        "Data version of a table in version 2 of the configuration in RocksDB",
    ),
    "RocksDBTimerValue": (ROCKSDB_TIMER_VALUE, "Value of a RocksDB timer row"),
    "RocksDBTransValue": (ROCKSDB_TRANS_VALUE, "Value of a RocksDB transaction row"),
    "Long": (LONG, "A single 64-bit number"),
    "Int": (INT, "A single 32-bit number"),
    "Short": (SHORT, "A single 16-bit number"),
    "Byte": (BYTE, "A single 8-bit number"),
    "TieredIndexHeader": (TIERED_INDEX_HEADER, "Head of a tiered index file"),
    "TieredIndexSlot": (TIERED_INDEX_SLOT, "Slot of a tiered index file"),
    "TieredIndexItem": (TIERED_INDEX_ITEM, "Item of a tiered index file that is not sealed"),
    "TieredSealedItem": (TIERED_SEALED_ITEM, "Item of a sealed tiered index file"),
    "TieredCoda": (TIERED_CODA, "End of an uploaded commit log segment"),
}

VARIABLE: dict[str, tuple[Construct[Any, Any], str]] = {
    "MessageRecord": (MESSAGE, "A message of the commit log"),
    "BatchItem": (BATCH_ITEM, "A message of a batch, as clients send it"),
    "ConsumeQueueExtUnit": (CONSUME_QUEUE_EXT_UNIT, "Entry of the queue's extension"),
}

LAYOUTS = FIXED | VARIABLE


class ParsedField(NamedTuple):
    """A field as its declaration parses it; ``offset`` is from the layout's first byte.

    A host has ``fields``, and None as its value.
    """

    name: str
    offset: int
    length: int
    value: int | bytes | None
    doc: str
    fields: tuple[ParsedField, ...] = ()


def parse_fields(layout: str, data: bytes) -> tuple[ParsedField, ...]:
    """Return the fields of the layout of this name at the beginning of ``data``; bytes after it are ignored.

    Raises LayoutError if ``data`` is too short or a length in it is impossible.
    """
    declared, _ = LAYOUTS[layout]
    try:
        parsed: Container[Any] = declared.parse(data)
    except ConstructError as error:
        raise LayoutError(f"{layout} does not fit these {len(data)} bytes: {error}") from error
    return _fields_of(declared, parsed, parsed, 0)


def _fields_of(
    declared: Construct[Any, Any], parsed: Mapping[str, Any], record: Container[Any], at: int
) -> tuple[ParsedField, ...]:
    """Return the fields of a struct at offset ``at``; lengths and branches depend on the values of ``record``."""
    context = {name: value for name, value in record.items() if name != "_io"}
    fields = []
    for part in declared.subcons:
        length, value, doc = part.sizeof(**context), parsed[part.name], str(part.docs).strip()
        inner = bare(part, record)
        nested = _fields_of(inner, value, record, at) if isinstance(inner, Struct) else ()
        fields.append(ParsedField(part.name, at, length, None if nested else value, doc, nested))
        at += length
    return tuple(fields)


def bare(part: Construct[Any, Any], context: Container[Any]) -> Construct[Any, Any]:
    """Return the construct of a field without the name, and of two branches the one that ``context`` chooses.

    ``context`` has the values of the record. If these do not include what a branch depends on, both branches stay.
    """
    while isinstance(part, Renamed | IfThenElse):
        if isinstance(part, Renamed):
            part = part.subcon
        elif "sys_flag" in context or "magic" in context:
            part = part.thensubcon if part.condfunc(context) else part.elsesubcon
        else:
            break
    return part
