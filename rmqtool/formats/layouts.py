"""The fixed layouts, derived from ``declarations``. Do not edit: ``make docs`` writes this module."""

# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from typing import NamedTuple

from rmqtool.formats.layout import Field, Layout


class MessagePrefix(NamedTuple):
    """Message record up to the body."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host_ip: bytes
    born_host_port: int
    store_timestamp: int
    store_host_ip: bytes
    store_host_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int


MESSAGE_PREFIX_V4V4 = Layout(
    "MessagePrefix",
    "Message record up to the body: born host IPv4, store host IPv4",
    (
        Field("total_size", 0, 4, "i32", "Bytes of the whole record, these four included"),
        Field("magic", 4, 4, "u32", "0xDAA320A7 version 1, 0xDAA320AB version 2 (two-byte topic length)"),
        Field("body_crc", 8, 4, "i32", "CRC-32 of the stored body with the top bit cleared; 0 for an empty body"),
        Field("queue_id", 12, 4, "i32", "Queue of the topic"),
        Field("flag", 16, 4, "i32", "The producer's own value"),
        Field("queue_offset", 20, 8, "i64", "Number of the message in its queue; 0 for prepared and rolled-back transactions"),
        Field("physical_offset", 28, 8, "i64", "Place of this record in the commit log"),
        Field("sys_flag", 36, 4, "i32", "Compression, transaction, host and batch bits"),
        Field("born_timestamp", 40, 8, "i64", "Producer's clock, ms"),
        Field("born_host_ip", 48, 4, "bytes", "Producer's address and port"),
        Field("born_host_port", 52, 4, "i32", "Producer's address and port"),
        Field("store_timestamp", 56, 8, "i64", "Broker's clock at the append, ms"),
        Field("store_host_ip", 64, 4, "bytes", "Broker's address and port"),
        Field("store_host_port", 68, 4, "i32", "Broker's address and port"),
        Field("reconsume_times", 72, 4, "i32", "How often the message was retried"),
        Field("prepared_transaction_offset", 76, 8, "i64", "Committed transactions: place of the half message"),
        Field("body_length", 84, 4, "i32", "Bytes of the stored body"),
    ),
    MessagePrefix,
)

MESSAGE_PREFIX_V4V6 = Layout(
    "MessagePrefix",
    "Message record up to the body: born host IPv4, store host IPv6",
    (
        Field("total_size", 0, 4, "i32", "Bytes of the whole record, these four included"),
        Field("magic", 4, 4, "u32", "0xDAA320A7 version 1, 0xDAA320AB version 2 (two-byte topic length)"),
        Field("body_crc", 8, 4, "i32", "CRC-32 of the stored body with the top bit cleared; 0 for an empty body"),
        Field("queue_id", 12, 4, "i32", "Queue of the topic"),
        Field("flag", 16, 4, "i32", "The producer's own value"),
        Field("queue_offset", 20, 8, "i64", "Number of the message in its queue; 0 for prepared and rolled-back transactions"),
        Field("physical_offset", 28, 8, "i64", "Place of this record in the commit log"),
        Field("sys_flag", 36, 4, "i32", "Compression, transaction, host and batch bits"),
        Field("born_timestamp", 40, 8, "i64", "Producer's clock, ms"),
        Field("born_host_ip", 48, 4, "bytes", "Producer's address and port"),
        Field("born_host_port", 52, 4, "i32", "Producer's address and port"),
        Field("store_timestamp", 56, 8, "i64", "Broker's clock at the append, ms"),
        Field("store_host_ip", 64, 16, "bytes", "Broker's address and port"),
        Field("store_host_port", 80, 4, "i32", "Broker's address and port"),
        Field("reconsume_times", 84, 4, "i32", "How often the message was retried"),
        Field("prepared_transaction_offset", 88, 8, "i64", "Committed transactions: place of the half message"),
        Field("body_length", 96, 4, "i32", "Bytes of the stored body"),
    ),
    MessagePrefix,
)

MESSAGE_PREFIX_V6V4 = Layout(
    "MessagePrefix",
    "Message record up to the body: born host IPv6, store host IPv4",
    (
        Field("total_size", 0, 4, "i32", "Bytes of the whole record, these four included"),
        Field("magic", 4, 4, "u32", "0xDAA320A7 version 1, 0xDAA320AB version 2 (two-byte topic length)"),
        Field("body_crc", 8, 4, "i32", "CRC-32 of the stored body with the top bit cleared; 0 for an empty body"),
        Field("queue_id", 12, 4, "i32", "Queue of the topic"),
        Field("flag", 16, 4, "i32", "The producer's own value"),
        Field("queue_offset", 20, 8, "i64", "Number of the message in its queue; 0 for prepared and rolled-back transactions"),
        Field("physical_offset", 28, 8, "i64", "Place of this record in the commit log"),
        Field("sys_flag", 36, 4, "i32", "Compression, transaction, host and batch bits"),
        Field("born_timestamp", 40, 8, "i64", "Producer's clock, ms"),
        Field("born_host_ip", 48, 16, "bytes", "Producer's address and port"),
        Field("born_host_port", 64, 4, "i32", "Producer's address and port"),
        Field("store_timestamp", 68, 8, "i64", "Broker's clock at the append, ms"),
        Field("store_host_ip", 76, 4, "bytes", "Broker's address and port"),
        Field("store_host_port", 80, 4, "i32", "Broker's address and port"),
        Field("reconsume_times", 84, 4, "i32", "How often the message was retried"),
        Field("prepared_transaction_offset", 88, 8, "i64", "Committed transactions: place of the half message"),
        Field("body_length", 96, 4, "i32", "Bytes of the stored body"),
    ),
    MessagePrefix,
)

MESSAGE_PREFIX_V6V6 = Layout(
    "MessagePrefix",
    "Message record up to the body: born host IPv6, store host IPv6",
    (
        Field("total_size", 0, 4, "i32", "Bytes of the whole record, these four included"),
        Field("magic", 4, 4, "u32", "0xDAA320A7 version 1, 0xDAA320AB version 2 (two-byte topic length)"),
        Field("body_crc", 8, 4, "i32", "CRC-32 of the stored body with the top bit cleared; 0 for an empty body"),
        Field("queue_id", 12, 4, "i32", "Queue of the topic"),
        Field("flag", 16, 4, "i32", "The producer's own value"),
        Field("queue_offset", 20, 8, "i64", "Number of the message in its queue; 0 for prepared and rolled-back transactions"),
        Field("physical_offset", 28, 8, "i64", "Place of this record in the commit log"),
        Field("sys_flag", 36, 4, "i32", "Compression, transaction, host and batch bits"),
        Field("born_timestamp", 40, 8, "i64", "Producer's clock, ms"),
        Field("born_host_ip", 48, 16, "bytes", "Producer's address and port"),
        Field("born_host_port", 64, 4, "i32", "Producer's address and port"),
        Field("store_timestamp", 68, 8, "i64", "Broker's clock at the append, ms"),
        Field("store_host_ip", 76, 16, "bytes", "Broker's address and port"),
        Field("store_host_port", 92, 4, "i32", "Broker's address and port"),
        Field("reconsume_times", 96, 4, "i32", "How often the message was retried"),
        Field("prepared_transaction_offset", 100, 8, "i64", "Committed transactions: place of the half message"),
        Field("body_length", 108, 4, "i32", "Bytes of the stored body"),
    ),
    MessagePrefix,
)


class MessageRecord(NamedTuple):
    """Message record: prefix, then body, topic and properties as stored."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host_ip: bytes
    born_host_port: int
    store_timestamp: int
    store_host_ip: bytes
    store_host_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    raw_body: bytes
    raw_topic: bytes
    raw_properties: bytes


class RecordStart(NamedTuple):
    """The first bytes of any commit log record."""

    total_size: int
    magic: int


RECORD_START = Layout(
    "RecordStart",
    "The first bytes of any commit log record",
    (
        Field("total_size", 0, 4, "i32", "Bytes of the whole record or blank"),
        Field("magic", 4, 4, "u32", "Which kind of record this is"),
    ),
    RecordStart,
)


class BlankRecord(NamedTuple):
    """End of a commit log segment."""

    total_size: int
    magic: int


BLANK_RECORD = Layout(
    "BlankRecord",
    "End of a commit log segment",
    (
        Field("total_size", 0, 4, "i32", "Bytes left in the segment, these four included"),
        Field("magic", 4, 4, "u32", "0xCBD43194; what follows is undefined"),
    ),
    BlankRecord,
)


class ConsumeQueueUnit(NamedTuple):
    """Entry of a simple consume queue."""

    physical_offset: int
    size: int
    tags_code: int


CONSUME_QUEUE_UNIT = Layout(
    "ConsumeQueueUnit",
    "Entry of a simple consume queue",
    (
        Field("physical_offset", 0, 8, "i64", "Place of the message in the commit log"),
        Field("size", 8, 4, "i32", "Its total size; 2147483647 in a filler entry"),
        Field("tags_code", 12, 8, "i64", "Hash of the tag, delivery time of a delayed message, or address of an extension entry"),
    ),
    ConsumeQueueUnit,
)


class ConsumeQueueExtHead(NamedTuple):
    """Head of an entry of the queue's extension file."""

    size: int
    tags_code: int
    msg_store_time: int
    bit_map_size: int


CONSUME_QUEUE_EXT_HEAD = Layout(
    "ConsumeQueueExtHead",
    "Head of an entry of the queue's extension file",
    (
        Field("size", 0, 2, "i16", "Bytes of the entry; -1 ends the file"),
        Field("tags_code", 2, 8, "i64", "The real tags code"),
        Field("msg_store_time", 10, 8, "i64", "Store timestamp, ms"),
        Field("bit_map_size", 18, 2, "i16", "Bytes of the bit map that follows"),
    ),
    ConsumeQueueExtHead,
)


class BatchConsumeQueueUnit(NamedTuple):
    """Entry of a batch or sparse consume queue."""

    physical_offset: int
    size: int
    tags_code: int
    store_time: int
    msg_base_offset: int
    batch_size: int
    compacted_offset: int
    reserved: int


BATCH_CONSUME_QUEUE_UNIT = Layout(
    "BatchConsumeQueueUnit",
    "Entry of a batch or sparse consume queue",
    (
        Field("physical_offset", 0, 8, "i64", "Place of the record in the commit log; -1 ends a sparse file"),
        Field("size", 8, 4, "i32", "Its total size"),
        Field("tags_code", 12, 8, "i64", "As in the simple queue"),
        Field("store_time", 20, 8, "i64", "Store timestamp, ms"),
        Field("msg_base_offset", 28, 8, "i64", "Queue offset of the first message of the record"),
        Field("batch_size", 36, 2, "i16", "Messages in the record"),
        Field("compacted_offset", 38, 4, "i32", "-1"),
        Field("reserved", 42, 4, "i32", "0"),
    ),
    BatchConsumeQueueUnit,
)


class IndexHeader(NamedTuple):
    """Head of an index file."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


INDEX_HEADER = Layout(
    "IndexHeader",
    "Head of an index file",
    (
        Field("begin_timestamp", 0, 8, "i64", "Store timestamp of the first entry, ms"),
        Field("end_timestamp", 8, 8, "i64", "Store timestamp of the last entry, ms"),
        Field("begin_phy_offset", 16, 8, "i64", "Place of the first entry's message"),
        Field("end_phy_offset", 24, 8, "i64", "Place of the last entry's message"),
        Field("hash_slot_count", 32, 4, "i32", "Slots in use (entries, up to 4.7.0)"),
        Field("index_count", 36, 4, "i32", "Number of the next entry: entries + 1"),
    ),
    IndexHeader,
)


class IndexSlot(NamedTuple):
    """Slot of an index file."""

    index_no: int


INDEX_SLOT = Layout(
    "IndexSlot",
    "Slot of an index file",
    (
        Field("index_no", 0, 4, "i32", "Newest entry of the chain, 0 when empty"),
    ),
    IndexSlot,
)


class IndexEntry(NamedTuple):
    """Entry of an index file."""

    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


INDEX_ENTRY = Layout(
    "IndexEntry",
    "Entry of an index file",
    (
        Field("key_hash", 0, 4, "i32", "Hash of topic#key, not negative"),
        Field("phy_offset", 4, 8, "i64", "Place of the message in the commit log"),
        Field("time_diff", 12, 4, "i32", "Seconds after the header's begin"),
        Field("prev_index", 16, 4, "i32", "Entry before this one in the slot's chain, 0 at its end"),
    ),
    IndexEntry,
)


class StoreCheckpoint(NamedTuple):
    """The fields of checkpoint; zeros fill the page."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int


STORE_CHECKPOINT = Layout(
    "StoreCheckpoint",
    "The fields of checkpoint; zeros fill the page",
    (
        Field("physic_msg_timestamp", 0, 8, "i64", "The commit log is known to be flushed up to this store timestamp"),
        Field("logics_msg_timestamp", 8, 8, "i64", "The queues are"),
        Field("index_msg_timestamp", 16, 8, "i64", "End of the newest full index file"),
        Field("master_flushed_offset", 24, 8, "i64", "From 5.0.0"),
        Field("confirm_phy_offset", 32, 8, "i64", "From 5.1.1"),
    ),
    StoreCheckpoint,
)


class TimerSlot(NamedTuple):
    """Slot of the timer wheel."""

    time: int
    first_pos: int
    last_pos: int
    num: int
    magic: int


TIMER_SLOT = Layout(
    "TimerSlot",
    "Slot of the timer wheel",
    (
        Field("time", 0, 8, "i64", "Delivery time divided by the precision"),
        Field("first_pos", 8, 8, "i64", "Timer log position of the first entry, or -1"),
        Field("last_pos", 16, 8, "i64", "Timer log position of the newest entry"),
        Field("num", 24, 4, "i32", "Pending messages"),
        Field("magic", 28, 4, "i32", "0"),
    ),
    TimerSlot,
)


class TimerLogUnit(NamedTuple):
    """Entry of the timer log."""

    size: int
    prev_pos: int
    magic: int
    write_time: int
    delay: int
    offset_py: int
    size_py: int
    topic_hash: int
    reserved: int


TIMER_LOG_UNIT = Layout(
    "TimerLogUnit",
    "Entry of the timer log",
    (
        Field("size", 0, 4, "i32", "52"),
        Field("prev_pos", 4, 8, "i64", "Entry before this one in the slot, -1 at the end"),
        Field("magic", 12, 4, "i32", "1 default, 2 rolled, 4 cancels"),
        Field("write_time", 16, 8, "i64", "Time of the wheel when written, ms"),
        Field("delay", 24, 4, "i32", "Delivery time less write time, ms"),
        Field("offset_py", 28, 8, "i64", "Place of the timer message in the commit log"),
        Field("size_py", 36, 4, "i32", "Its total size"),
        Field("topic_hash", 40, 4, "i32", "Hash of the real topic"),
        Field("reserved", 44, 8, "i64", "0"),
    ),
    TimerLogUnit,
)


class TimerLogBlank(NamedTuple):
    """End of a timer log file."""

    size: int
    prev_pos: int
    magic: int


TIMER_LOG_BLANK = Layout(
    "TimerLogBlank",
    "End of a timer log file",
    (
        Field("size", 0, 4, "i32", "Bytes left in the file"),
        Field("prev_pos", 4, 8, "i64", "0"),
        Field("magic", 12, 4, "u32", "0xCBD43194"),
    ),
    TimerLogBlank,
)


class TimerCheckpoint(NamedTuple):
    """The fields of timercheck; zeros fill the page."""

    last_read_time_ms: int
    last_timer_log_flush_pos: int
    last_timer_queue_offset: int
    master_timer_queue_offset: int
    state_version: int
    timestamp: int
    counter: int


TIMER_CHECKPOINT = Layout(
    "TimerCheckpoint",
    "The fields of timercheck; zeros fill the page",
    (
        Field("last_read_time_ms", 0, 8, "i64", "Everything before is delivered"),
        Field("last_timer_log_flush_pos", 8, 8, "i64", "The timer log is flushed up to here"),
        Field("last_timer_queue_offset", 16, 8, "i64", "Next offset to read in the timer topic"),
        Field("master_timer_queue_offset", 24, 8, "i64", "The same of the master"),
        Field("state_version", 32, 8, "i64", "Data version"),
        Field("timestamp", 40, 8, "i64", "Data version, ms"),
        Field("counter", 48, 8, "i64", "Data version"),
    ),
    TimerCheckpoint,
)


class DLedgerEntryHead(NamedTuple):
    """Head of a DLedger entry."""

    magic: int
    size: int
    entry_index: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_length: int


DLEDGER_ENTRY_HEAD = Layout(
    "DLedgerEntryHead",
    "Head of a DLedger entry",
    (
        Field("magic", 0, 4, "i32", "1 data, 2 no-op, 3 configuration change; -1 blank to the end of the file"),
        Field("size", 4, 4, "i32", "Bytes of the entry, head included"),
        Field("entry_index", 8, 8, "i64", "Number of the entry"),
        Field("term", 16, 8, "i64", "Term of the leader"),
        Field("pos", 24, 8, "i64", "Place of the entry"),
        Field("channel", 32, 4, "i32", "0"),
        Field("chain_crc", 36, 4, "i32", "0, never computed"),
        Field("body_crc", 40, 4, "i32", "0, never computed"),
        Field("body_length", 44, 4, "i32", "Bytes of the commit log record that follows"),
    ),
    DLedgerEntryHead,
)


class DLedgerIndexUnit(NamedTuple):
    """Entry of the DLedger index."""

    magic: int
    pos: int
    size: int
    entry_index: int
    term: int


DLEDGER_INDEX_UNIT = Layout(
    "DLedgerIndexUnit",
    "Entry of the DLedger index",
    (
        Field("magic", 0, 4, "i32", "1"),
        Field("pos", 4, 8, "i64", "Place of the entry"),
        Field("size", 12, 4, "i32", "Its size"),
        Field("entry_index", 16, 8, "i64", "Its number"),
        Field("term", 24, 8, "i64", "Its term"),
    ),
    DLedgerIndexUnit,
)


class RocksDBQueueValue(NamedTuple):
    """Value of a RocksDB queue row."""

    physical_offset: int
    size: int
    tags_code: int
    store_time: int


ROCKSDB_QUEUE_VALUE = Layout(
    "RocksDBQueueValue",
    "Value of a RocksDB queue row",
    (
        Field("physical_offset", 0, 8, "i64", "Place of the message in the commit log"),
        Field("size", 8, 4, "i32", "Its total size"),
        Field("tags_code", 12, 8, "i64", "As in the file queue"),
        Field("store_time", 20, 8, "i64", "Store timestamp, ms"),
    ),
    RocksDBQueueValue,
)


class RocksDBQueueKeyTail(NamedTuple):
    """The rest of a RocksDB queue row's key, after the topic."""

    separator_1: int
    queue_id: int
    separator_2: int
    queue_offset: int


ROCKSDB_QUEUE_KEY_TAIL = Layout(
    "RocksDBQueueKeyTail",
    "The rest of a RocksDB queue row's key, after the topic",
    (
        Field("separator_1", 0, 1, "i8", "1"),
        Field("queue_id", 1, 4, "i32", "Queue"),
        Field("separator_2", 5, 1, "i8", "1"),
        Field("queue_offset", 6, 8, "i64", "Queue offset"),
    ),
    RocksDBQueueKeyTail,
)


class RocksDBOffsetValue(NamedTuple):
    """Value of a RocksDB queue bound."""

    physical_offset: int
    queue_offset: int


ROCKSDB_OFFSET_VALUE = Layout(
    "RocksDBOffsetValue",
    "Value of a RocksDB queue bound",
    (
        Field("physical_offset", 0, 8, "i64", "Place of the bound's message"),
        Field("queue_offset", 8, 8, "i64", "Last existing offset (max), first one (min)"),
    ),
    RocksDBOffsetValue,
)


class RocksDBDataVersion(NamedTuple):
    """Data version of a table in version 2 of the configuration in RocksDB."""

    state_version: int
    timestamp: int
    counter: int


ROCKSDB_DATA_VERSION = Layout(
    "RocksDBDataVersion",
    "Data version of a table in version 2 of the configuration in RocksDB",
    (
        Field("state_version", 0, 8, "i64", "State machine version"),
        Field("timestamp", 8, 8, "i64", "Time of the last change, ms"),
        Field("counter", 16, 8, "i64", "Changes"),
    ),
    RocksDBDataVersion,
)


class RocksDBTimerValue(NamedTuple):
    """Value of a RocksDB timer row."""

    size: int
    physical_offset: int


ROCKSDB_TIMER_VALUE = Layout(
    "RocksDBTimerValue",
    "Value of a RocksDB timer row",
    (
        Field("size", 0, 4, "i32", "Total size of the timer message"),
        Field("physical_offset", 4, 8, "i64", "Its place in the commit log"),
    ),
    RocksDBTimerValue,
)


class RocksDBTransValue(NamedTuple):
    """Value of a RocksDB transaction row."""

    check_times: int
    size: int


ROCKSDB_TRANS_VALUE = Layout(
    "RocksDBTransValue",
    "Value of a RocksDB transaction row",
    (
        Field("check_times", 0, 4, "i32", "Checks so far"),
        Field("size", 4, 4, "i32", "Total size of the half message"),
    ),
    RocksDBTransValue,
)


class Long(NamedTuple):
    """A single 64-bit number."""

    value: int


LONG = Layout(
    "Long",
    "A single 64-bit number",
    (
        Field("value", 0, 8, "i64", "One number"),
    ),
    Long,
)


class Int(NamedTuple):
    """A single 32-bit number."""

    value: int


INT = Layout(
    "Int",
    "A single 32-bit number",
    (
        Field("value", 0, 4, "i32", "One number"),
    ),
    Int,
)


class Short(NamedTuple):
    """A single 16-bit number."""

    value: int


SHORT = Layout(
    "Short",
    "A single 16-bit number",
    (
        Field("value", 0, 2, "i16", "One number"),
    ),
    Short,
)


class Byte(NamedTuple):
    """A single 8-bit number."""

    value: int


BYTE = Layout(
    "Byte",
    "A single 8-bit number",
    (
        Field("value", 0, 1, "i8", "One number"),
    ),
    Byte,
)


class TieredIndexHeader(NamedTuple):
    """Head of a tiered index file."""

    magic: int
    begin_timestamp: int
    end_timestamp: int
    hash_slot_count: int
    index_item_count: int


TIERED_INDEX_HEADER = Layout(
    "TieredIndexHeader",
    "Head of a tiered index file",
    (
        Field("magic", 0, 4, "i32", "Which state the file is in"),
        Field("begin_timestamp", 4, 8, "i64", "Creation of the file, ms"),
        Field("end_timestamp", 12, 8, "i64", "Newest message, ms"),
        Field("hash_slot_count", 20, 4, "i32", "Slots in use"),
        Field("index_item_count", 24, 4, "i32", "Items"),
    ),
    TieredIndexHeader,
)


class TieredIndexSlot(NamedTuple):
    """Slot of a tiered index file."""

    position: int
    length: int


TIERED_INDEX_SLOT = Layout(
    "TieredIndexSlot",
    "Slot of a tiered index file",
    (
        Field("position", 0, 4, "i32", "Sealed: file offset of its items. Before: number of the newest item, 0 without one"),
        Field("length", 4, 4, "i32", "Sealed: bytes of its items. Before: 0"),
    ),
    TieredIndexSlot,
)


class TieredIndexItem(NamedTuple):
    """Item of a tiered index file that is not sealed."""

    hash_code: int
    topic_id: int
    queue_id: int
    offset: int
    size: int
    time_diff: int
    item_index: int


TIERED_INDEX_ITEM = Layout(
    "TieredIndexItem",
    "Item of a tiered index file that is not sealed",
    (
        Field("hash_code", 0, 4, "i32", "Hash of the key"),
        Field("topic_id", 4, 4, "i32", "Topic's number in the metadata"),
        Field("queue_id", 8, 4, "i32", "Queue"),
        Field("offset", 12, 8, "i64", "Place in the tiered commit log"),
        Field("size", 20, 4, "i32", "Size of the message"),
        Field("time_diff", 24, 4, "i32", "Seconds after the begin"),
        Field("item_index", 28, 4, "i32", "Item before this one in the slot"),
    ),
    TieredIndexItem,
)


class TieredSealedItem(NamedTuple):
    """Item of a sealed tiered index file."""

    hash_code: int
    topic_id: int
    queue_id: int
    offset: int
    size: int
    time_diff: int


TIERED_SEALED_ITEM = Layout(
    "TieredSealedItem",
    "Item of a sealed tiered index file",
    (
        Field("hash_code", 0, 4, "i32", "Hash of the key"),
        Field("topic_id", 4, 4, "i32", "Topic's number in the metadata"),
        Field("queue_id", 8, 4, "i32", "Queue"),
        Field("offset", 12, 8, "i64", "Place in the tiered commit log"),
        Field("size", 20, 4, "i32", "Size of the message"),
        Field("time_diff", 24, 4, "i32", "Seconds after the begin"),
    ),
    TieredSealedItem,
)


class TieredCoda(NamedTuple):
    """End of an uploaded commit log segment."""

    size: int
    magic: int
    max_store_timestamp: int


TIERED_CODA = Layout(
    "TieredCoda",
    "End of an uploaded commit log segment",
    (
        Field("size", 0, 4, "i32", "16"),
        Field("magic", 4, 4, "u32", "0xCBD43194"),
        Field("max_store_timestamp", 8, 8, "i64", "Newest message of the segment, ms"),
    ),
    TieredCoda,
)


class BatchItemPrefix(NamedTuple):
    """Message of a client batch up to the body."""

    total_size: int
    magic: int
    body_crc: int
    flag: int
    body_length: int


BATCH_ITEM_PREFIX = Layout(
    "BatchItemPrefix",
    "Message of a client batch up to the body",
    (
        Field("total_size", 0, 4, "i32", "Bytes of this message within the batch"),
        Field("magic", 4, 4, "i32", "0"),
        Field("body_crc", 8, 4, "i32", "0"),
        Field("flag", 12, 4, "i32", "The producer's own value"),
        Field("body_length", 16, 4, "i32", "Bytes of the body"),
    ),
    BatchItemPrefix,
)
