"""The texts of the page of the store: which files there are, and what their bytes mean. In the order of the page."""

from __future__ import annotations

from typing import NamedTuple

from tools.manual.roff import Block, Items, Table, Text


class Part(NamedTuple):
    """A part of the page: a text, then the tables of the named layouts, then the text below them."""

    title: str
    says: tuple[Block, ...]
    layouts: tuple[str, ...] = ()
    below: tuple[Block, ...] = ()
    inner: bool = False


def _texts(*texts: str) -> tuple[Block, ...]:
    return tuple(map(Text, texts))


def _items(*items: tuple[str, str]) -> Items:
    return Items(tuple((term, (text,)) for term, text in items))


_TREE = Table(
    ("path", "since", "what it is"),
    (
        ("commitlog/N", "4.0", "the messages; N is the offset of the file's first byte, 20 digits"),
        ("consumequeue/TOPIC/QUEUE/N", "4.0", "for each message of a queue its place in the log"),
        ("consumequeue/CURRENT, ...", "5.2", "a RocksDB with the queues (storeType=defaultRocksDB)"),
        ("consumequeue_ext/TOPIC/QUEUE/N", "4.1", "bit maps of filters (enableConsumeQueueExt)"),
        ("batchconsumequeue/TOPIC/QUEUE/N", "5.0", "queues of batch topics (queue.type=BatchCQ)"),
        ("index/yyyyMMddHHmmssSSS", "4.0", "keys and ids to places in the log"),
        ("checkpoint", "4.0", "how far log, queues and index are flushed"),
        ("abort", "4.0", "there while a broker runs; after it: the stop was not clean"),
        ("lock", "4.0", "locked while a broker runs"),
        ("config/*.json, *.json.bak", "4.0", "topics, groups, offsets, delays; .bak is the content before"),
        ("config/timercheck", "5.0", "how far timers are delivered"),
        ("config/timermetrics", "5.0", "counts of timers, JSON"),
        ("config/transactionMetrics", "5.2", "counts of transactions, JSON"),
        ("config/topics/, ...", "5.1.4", "RocksDB databases in place of the JSON files"),
        ("config/rdb/", "5.3.2", "one RocksDB in their place (configManagerVersion=v2)"),
        ("timerwheel", "5.0", "a slot for each second of two weeks"),
        ("timerlog/N", "5.0", "chains of delayed messages, one for each slot"),
        ("compaction/compactionLog/...", "5.1", "the last message of each key (cleanup.policy=COMPACTION)"),
        ("compaction/compactionCq/...", "5.1", "the queues of that log"),
        ("compaction/position-checkpoint", "5.1", "how far each queue is compacted, JSON"),
        ("kvStore/", "5.3.2", "a RocksDB with the state of pop consumption"),
        ("rocksdbstore/", "5.4", "a RocksDB for index, timers, transactions; made always, mostly empty"),
        ("epochFileCheckpoint", "5.0", "where each master's time began (controller mode)"),
        ("brokerIdentity", "5.1.1", "cluster#broker#id (controller mode)"),
        ("dledger-ID/{data,index}/N", "4.5", "the log of a DLedger group"),
        ("tiered_index_file/...", "5.1", "the newest index of tiered storage"),
    ),
)

_SYS_FLAGS = Table(
    ("mask", "since", "meaning"),
    (
        ("0x001", "4.0", "the body is compressed; bits 0x700 say how"),
        ("0x002", "4.0", "the topic has several tags for each message; changes nothing on disk"),
        ("0x00C", "4.0", "transaction: 0 none, 4 prepared, 8 committed, 0xC rolled back"),
        ("0x010", "4.6", "the born host is IPv6: 20 bytes in place of 8"),
        ("0x020", "4.6", "the store host is IPv6"),
        ("0x040", "5.0", "a client must unwrap the batch in the body"),
        ("0x080", "5.0", "the body is a batch, stored as one record"),
        ("0x700", "4.9.4", "compression: 0x000 zlib, 0x100 LZ4 frame, 0x200 zstd frame, 0x300 zlib"),
    ),
)

_PROPERTIES = Table(
    ("name", "since", "meaning"),
    (
        ("KEYS", "4.0", "keys, a space between them; each is in the index"),
        ("TAGS", "4.0", "the tag; its hash is the tags code of the queue entry"),
        ("UNIQ_KEY", "4.0", "the unique key a client gave; in the index"),
        ("WAIT", "4.0", "wait for the flush; 4.9.1 to 4.9.8 leave it out of plain messages"),
        ("DELAY", "4.0", "delay level, from 1"),
        ("REAL_TOPIC, REAL_QID", "4.0", "where a delayed or half message belongs"),
        ("RETRY_TOPIC, ORIGIN_MESSAGE_ID", "4.0", "where a retried message came from"),
        ("RECONSUME_TIME", "4.0", "a client's count of retries"),
        ("MAX_RECONSUME_TIMES", "4.0", "and its limit"),
        ("TRAN_MSG, PGROUP", "4.0", "a transaction, and who is asked about it"),
        ("TRAN_PREPARED_QUEUE_OFFSET", "4.3", "the half message that this one replaces"),
        ("TRANSACTION_CHECK_TIMES", "4.3", "how often the producer was asked"),
        ("__transactionId__", "5.0", "the id of the transaction"),
        ("CLUSTER, MSG_TYPE, ...", "4.6", "request and reply; the broker adds its cluster"),
        ("INNER_MULTI_DISPATCH", "4.9.3", "further queues the message is in (LMQ), commas between"),
        ("INNER_MULTI_QUEUE_OFFSET", "4.9.3", "and its offsets there"),
        ("INNER_NUM, INNER_BASE", "5.0", "messages in a batch stored as one record, and the first's offset"),
        ("POP_CK, 1ST_POP_TIME", "5.0", "pop consumption"),
        ("__SHARDINGKEY", "5.0", "messages of one such key are consumed in order"),
        ("TIMER_DELAY_SEC, _MS, _DELIVER_MS", "5.0", "an arbitrary delay that was asked for"),
        ("TIMER_OUT_MS, TIMER_ROLL_TIMES, ...", "5.0", "what the timer notes on its own copy"),
        ("TIMER_DEL_UNIQKEY", "5.0", "the timer that this message cancels"),
        ("DLQ_ORIGIN_TOPIC, ..._MESSAGE_ID", "5.1", "where a dead letter came from"),
        ("__CRC32#", "5.2", "checksum over the record; see below"),
        ("_SYS_MSG_PRIORITY_", "5.4", "priority; the queue follows from it"),
        ("ORIGIN_GROUP", "5.4", "the group of a message that pop retries"),
        ("TRANS_OFFSET, TIMER_ROLL_LABEL", "5.4", "transactions and timers in RocksDB"),
    ),
)

PARTS: tuple[Part, ...] = (
    Part(
        "Description",
        _texts(
            "The files of a broker below its storePathRootDir, byte by byte, from 4.0 to 5.4. The commit log has "
            "every message of every topic in the order of arrival. Most other files can be rebuilt from it: a queue "
            "has the physical offset of each of its messages, the index maps keys to physical offsets. Only config "
            "cannot be rebuilt: topics, groups, and the committed offsets of each group.",
            "`rmqtool dump` shows any of these files with the names used here.",
        ),
    ),
    Part("Files", (*_texts("Paths are below storePathRootDir. `since` is the first version that writes it."), _TREE)),
    Part(
        "Conventions",
        _texts(
            "Numbers are big-endian and signed: i8, i16, i32, i64; u32 is a magic number. There is no alignment and no "
            "padding. Times are milliseconds since 1970, UTC. Text is UTF-8.",
            "A hash of a text is that of Java's String.hashCode: over UTF-16 code units, h = 31 h + c, 32 bits, "
            "signed. Of TagA it is 2598919. A checksum is CRC-32 (IEEE 802.3, as of zlib) with its top bit cleared.",
            "Logs and queues are directories of files of one size. The name of a file is the offset of its first byte, "
            "20 digits: in a queue too it is bytes, not messages. The first file need not be 0, because old files are "
            "deleted from the front. The last file is as large as the others; where it ends is stored nowhere. After "
            "the end there are zeros or, after a recovery, older bytes that look valid.",
            "In the layouts below, offsets count from the first byte of the record or entry. A single value (a row of "
            "a RocksDB) has one of these sizes:",
        ),
        ("Long", "Int", "Short", "Byte"),
    ),
    Part(
        "Commit log",
        _texts(
            "Files of 1 GiB (mappedFileSizeCommitLog), no header. Records follow one another and never span "
            "files. When the next one does not fit, with 8 bytes to spare, a blank record fills the file. Since 4.9.2 "
            "storePathCommitLog may name several directories; the files of one log are spread over them.",
            "Every record begins with its size and a magic number:",
        ),
        ("RecordStart", "BlankRecord"),
    ),
    Part(
        "Message record",
        _texts(
            "Offsets are those of two IPv4 hosts. A host is its address, 4 or 16 bytes, and a port of 4 bytes; bits "
            "0x10 and 0x20 of the system flag say which.",
        ),
        ("MessagePrefix",),
        (
            *_texts(
                "The smallest record has 91 bytes. Version 2 is written since 5.1, for topics of more than 127 "
                "characters (names of retry topics); older brokers take it for the end of the log.",
                "bodyCRC is of the body as stored, so of the compressed bytes. queueOffset is 0 for prepared and "
                "rolled-back records. physicalOffset is the name of the file plus the place in it; a broker never "
                "compares it. storeTimestamp does not go back, unless the broker's clock does.",
            ),
        ),
        inner=True,
    ),
    Part("System flag", (_SYS_FLAGS,), inner=True),
    Part(
        "Properties",
        (
            *_texts(
                "name 0x01 value 0x02 name 0x01 value 0x02, at most 32767 bytes. Whether 0x02 follows the last "
                "value depends on the writer: yes up to 4.9.0 and from 5.2.0, no from 4.9.1 to 5.1.4; both occur in "
                "one store. A reader takes the first 0x01 for the separator, drops pairs with an empty name or value, "
                "and of a name that comes twice the last value. The order is that of a hash map and means nothing.",
                "With enabledAppendPropCRC (5.2) the last 20 bytes of a record are the property __CRC32#: the name, "
                "0x01, ten decimal digits of the checksum with the least significant digit first, 0x02. The checksum "
                "covers the record up to these 20 bytes.",
                "Names a broker or client gives a meaning; every other one is the user's:",
            ),
            _PROPERTIES,
        ),
        inner=True,
    ),
    Part(
        "Batches",
        _texts(
            "Since 4.1 a client can send many messages as one. The broker makes a record of each. Since 5.0, in topics "
            "with queue.type=BatchCQ, the batch stays one record (flags 0x0C0) whose body is what the client sent, "
            "messages one after the other:",
        ),
        ("BatchItemPrefix",),
        inner=True,
    ),
    Part(
        "Consume queue",
        _texts(
            "Files of 300000 entries (mappedFileSizeConsumeQueue). The number of an entry is the queue offset of its "
            "message: (name of the file + place in it) / 20. Prepared and rolled-back records have no entry.",
        ),
        ("ConsumeQueueUnit",),
        (
            Text("tagsCode is the first of these that applies:"),
            _items(
                ("extension", "With enableConsumeQueueExt: an address in the extension, -2147483649 or less."),
                ("delay", "In SCHEDULE_TOPIC_XXXX: the time of delivery."),
                ("tag", "The hash of TAGS, extended to 64 bits."),
                ("none", "0."),
            ),
            Text(
                "An entry is valid if its offset is not negative and its size is above 0. If a queue begins in the "
                "middle of a file (old messages had expired), filler entries with offset 0 and size 2147483647 come "
                "first. The smallest offset of a queue is not stored: it is that of the first entry that points to a "
                "place the log still has."
            ),
        ),
    ),
    Part(
        "Extension of a consume queue",
        _texts(
            "Entries of 20 bytes and a bit map. The tags code of the queue entry is this offset less 2^63. A file "
            "ends with a size of -1. Without it, brokers filter by what they read from the log.",
        ),
        ("ConsumeQueueExtHead",),
        inner=True,
    ),
    Part(
        "Batch and sparse consume queue",
        _texts(
            "Entries of 46 bytes. The queue offset is in the entry, and readers search for it. Batch topics have them "
            "since 5.0; compacted topics since 5.1, where an entry with the offset -1 ends a file early.",
        ),
        ("BatchConsumeQueueUnit",),
        inner=True,
    ),
    Part(
        "Index",
        _texts(
            "Files named by the time they were made, in the zone of the broker. A header, S slots, I entries: "
            "40 + 4 S + 20 I bytes, 420000040 by default (maxHashSlotNum 5000000, maxIndexNum 20000000). S and I are "
            "not stored. Entry 0 is never used.",
        ),
        ("IndexHeader", "IndexSlot", "IndexEntry"),
        _texts(
            "The key of an entry is the hash of TOPIC#KEY, without its sign (0 where that cannot be); its slot is the "
            "hash modulo S. A slot holds the number of its newest entry, each entry that of the one before. There is "
            "an entry for UNIQ_KEY and one for each of KEYS; from 5.4 also one for the tag, with TOPIC#T#TAG for its "
            "key. Different keys meet in one chain, so the message itself must be compared.",
            "In the first entry of a file timeDiff may be above 0: it was computed against the file before.",
        ),
    ),
    Part(
        "Checkpoint",
        _texts(
            "4096 bytes. After a crash the log is scanned from the file of the smaller of the first two times, less "
            "three seconds; index files that end later than the third are deleted. A missing file counts as zeros.",
        ),
        ("StoreCheckpoint",),
    ),
    Part(
        "Abort and lock",
        _texts(
            "`abort` is made when a broker has started and removed when it stopped cleanly. Up to 4.9 it is empty, "
            "from 5.0 it has the process id in digits, which brokers do not read. abort.bak, from 5.0, has no meaning.",
            "`lock` has the four bytes lock. A running broker has an exclusive fcntl lock on its first byte.",
        ),
    ),
    Part(
        "Timers",
        _texts(
            "Messages with an arbitrary delay (5.0) are stored in the topic rmq_sys_wheel_timer. The wheel has 1209600 "
            "slots of 32 bytes, one for each second of two weeks; slot = (time / 1000) modulo 1209600. A slot counts "
            "only if its time is the one looked for. Its last entry in the timer log points to the ones before.",
        ),
        ("TimerSlot", "TimerLogUnit", "TimerLogBlank"),
        _texts("config/timercheck has 4096 bytes:"),
    ),
    Part("", (), ("TimerCheckpoint",)),
    Part(
        "Compaction",
        _texts(
            "compactionLog holds records as the commit log does, with physicalOffset rewritten to their place here; "
            "queueOffset stays, a __CRC32# does not verify any more. compactionCq holds sparse queues with a file for "
            "each file of the log, of the same name. Directories compacting and replicating are not in force yet.",
        ),
    ),
    Part(
        "DLedger",
        _texts(
            "With enableDLegerCommitLog (4.5) the log is in dledger-ID/data: a record as above after each head of "
            "48 bytes. physicalOffset is that of the record, not of the head, and queue entries point to the record. "
            "The file ends with a magic of -1 and the bytes left. checkpoint and currterm are properties in text.",
        ),
        ("DLedgerEntryHead", "DLedgerIndexUnit"),
    ),
    Part(
        "RocksDB",
        _texts(
            "Queues (5.2, storeType=defaultRocksDB) are rows of the database in consumequeue. A key is the length of "
            "the topic (i32), 0x01, the topic, and:",
        ),
        ("RocksDBQueueKeyTail", "RocksDBQueueValue"),
        _texts(
            "The column family offset holds the bounds: length of the topic, 0x01, topic, 0x01, max or min, 0x01, "
            "queue (i32). The row of CHECKPOINT_TOPIC has one number: the end of the last record dispatched.",
        ),
    ),
    Part("", (), ("RocksDBOffsetValue",)),
    Part(
        "RocksDB of the configuration",
        _texts(
            "5.1.4: config/topics, config/subscriptionGroups and config/consumerOffsets; keys are names (topic@group "
            "for offsets), values the JSON of the classic files. 5.3.2, configManagerVersion=v2: config/rdb; keys "
            "begin with 0x01 and the number of a table (i16), offsets are single numbers of 64 bits, and each table "
            "has a version:",
        ),
        ("RocksDBDataVersion",),
        inner=True,
    ),
    Part(
        "Rocksdbstore",
        _texts(
            "From 5.4. The families timer and trans, where they are switched on, have these values; the family default "
            "holds the index.",
        ),
        ("RocksDBTimerValue", "RocksDBTransValue"),
        inner=True,
    ),
    Part(
        "Tiered storage",
        _texts(
            "A tier (tieredStoreFilePath, PosixFileSegment) has a log and a queue for each queue: "
            "HASH_CLUSTER/BROKER/TOPIC/QUEUE/COMMIT_LOG/HASHN and CONSUME_QUEUE/HASHN. HASH is the first 8 digits of "
            "the MD5 of what follows, N the offset of the first byte in 20 digits. Records are those of the commit "
            "log; physicalOffset is the offset in the log of the queue, and the checksum __CRC32# is the one from the "
            "store. Entries are those of consume queues and point into the log of the queue. A segment has no "
            "reserved room and ends anywhere; up to 5.1 segments of the log end with a coda.",
            "The index is in BROKER/rmq_sys_INDEX/0/INDEX/HASHN: files that are sealed. The newest one is in the store "
            "and is not sealed: tiered_index_file/MS, named by its time of creation. A header of 28 bytes, slots of "
            "8, items: of 32 bytes, the first one unused, in chains by their last field; once sealed of 28 bytes, "
            "those of a slot together. A key's slot is its hash modulo the number of slots, which follows from the "
            "size of a sealed file. The magic is 0xBCC50289, 0xBCC50285 once sealed or full.",
        ),
        ("TieredIndexHeader", "TieredIndexSlot", "TieredIndexItem", "TieredSealedItem", "TieredCoda"),
    ),
    Part(
        "Configuration",
        _texts(
            "Files of JSON as fastjson writes it: keys that are numbers have no quotes. Before a file is written "
            "the old content goes to .bak; up to 5.0 the new one is written to .tmp first, later in place, from 5.4 "
            "through a rename with fsync. A file that does not parse is replaced by .bak at the next start, "
            "and where that does not parse either the table is empty.",
        ),
        (),
        (
            _items(
                ("topics.json", "Topics, their queues and permissions."),
                ("subscriptionGroup.json", "Consumer groups and their settings."),
                ("consumerOffset.json", "For TOPIC@GROUP and queue the next offset to consume."),
                ("lmqConsumerOffset.json", "The same of LMQ (4.9.3); with enableLmq it replaces the one above."),
                ("delayOffset.json", "For each delay level how far it is delivered."),
                ("consumerFilter.json", "SQL filters of groups (4.1)."),
                ("consumerOrderInfo.json", "Messages in flight of ordered pop consumption (5.0)."),
                ("topicQueueMapping.json", "Static topics (5.0)."),
                ("messageRequestMode.json", "Groups that pop in place of pulling (5.0)."),
                ("tieredStoreMetadata.json", "Topics, queues and segments of tiered storage."),
            ),
        ),
    ),
    Part(
        "Topics of the broker itself",
        (),
        (),
        (
            _items(
                ("SCHEDULE_TOPIC_XXXX", "Messages that wait for their delay level; queue = level - 1."),
                ("rmq_sys_wheel_timer", "Messages that wait for a time (5.0)."),
                ("RMQ_SYS_TRANS_HALF_TOPIC", "Half messages (4.3); before, they were in their own topic."),
                (
                    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                    "Decisions: up to 5.0 one queue offset of a half message in digits, from 5.1 several, each "
                    "followed by a comma.",
                ),
                ("TRANS_CHECK_MAX_TIME_TOPIC", "Half messages that were given up."),
                ("%RETRY%GROUP, %DLQ%GROUP", "Messages to consume again, and those given up."),
                ("%RETRY%GROUP_TOPIC", "The same of pop consumption (5.0); from 5.2 also with a + between."),
                ("rmq_sys_REVIVE_LOG_CLUSTER", "Check points and acks of pop consumption (5.0)."),
            ),
        ),
    ),
)

# Layouts that have changed since 4.0; all others are the same in every version.
CHANGES: tuple[tuple[str, str], ...] = (
    ("4.1", "client batches; the extension of queues"),
    ("4.3", "half and op topics in place of prepared records in the topic itself"),
    ("4.5", "DLedger"),
    ("4.6", "IPv6 hosts"),
    ("4.7.1", "hashSlotCount of an index counts slots, not entries"),
    ("4.9.1", "no separator after the last property"),
    ("4.9.2", "several directories for the commit log"),
    ("4.9.3", "LMQ"),
    ("4.9.4", "LZ4 and zstd"),
    ("5.0", "batch queues, timers, pop; masterFlushedOffset; the process id in abort; stateVersion in JSON"),
    ("5.1", "version 2 of a record; compaction; several offsets in an op record"),
    ("5.1.1", "confirmPhyOffset"),
    ("5.1.4", "configuration in RocksDB"),
    ("5.2", "the separator after the last property again; __CRC32#; queues in RocksDB"),
    ("5.3.2", "configuration v2 in RocksDB; kvStore"),
    ("5.4", "index entries for tags; rocksdbstore; priorities; other white space in JSON"),
)
