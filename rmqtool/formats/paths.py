"""Paths and file names of a store: made and taken apart here only.

Paths are relative to the root of the store, with ``/`` on every platform. The directory of a topic is its raw name,
which may contain ``%``, ``|`` and ``+``::

    commitlog/00000000000000000000            segments, named by the offset of their first byte, 20 digits
    consumequeue/TOPIC/QUEUE/000...           likewise consumequeue_ext, batchconsumequeue
    index/20260823150000120                   index files, named by their time of creation
    config/topics.json, topics.json.bak       configuration, and the previous version of each file
    timerwheel, timerlog/000...               the timer
    compaction/compactionLog/TOPIC/QUEUE/...  logs of compacted topics, compactionCq their queues
    checkpoint, abort, lock                   times on disk; exists while a broker runs; the broker's lock

Tiered storage has its files elsewhere, below ``tieredStoreFilePath``. The hash is the first 8 digits of the MD5 of what
follows it, the cluster or the offset as a decimal number::

    HASH_CLUSTER/BROKER/TOPIC/QUEUE/COMMIT_LOG/HASH000...          the messages of one queue
    HASH_CLUSTER/BROKER/TOPIC/QUEUE/CONSUME_QUEUE/HASH000...       their entries
    HASH_CLUSTER/BROKER/rmq_sys_INDEX/0/INDEX/HASH000...           index files that are sealed

Upstream: ``StorePathConfigHelper``, ``BrokerPathConfigHelper``, ``UtilAll.offset2FileName``, ``MixAll.string2File``;
of tiered storage ``PosixFileSegment``, ``MessageStoreUtil``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import NamedTuple

from rmqtool.formats.java import INT_MAX, LONG_MAX, LONG_MIN

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
INDEX = "index"
CONFIG = "config"
TIMER_LOG = "timerlog"
TIMER_WHEEL = "timerwheel"
COMPACTION = "compaction"
COMPACTION_LOG = "compaction/compactionLog"
COMPACTION_QUEUE = "compaction/compactionCq"
# RocksDB with the checkpoints of pop consumption, 5.x.
KV_STORE = "kvStore"
# RocksDB with index, timers and half messages, if the settings of 5.4 say so.
ROCKSDB_STORE = "rocksdbstore"
TIERED_INDEX = "tiered_index_file"
# Names in a tier: the directories of a queue, and the topic under which the index is.
TIER_LOG = "COMMIT_LOG"
TIER_QUEUE = "CONSUME_QUEUE"
TIER_INDEX = "INDEX"
TIER_INDEX_TOPIC = "rmq_sys_INDEX"
DLEDGER_PREFIX = "dledger-"

CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
EPOCH_FILE = "epochFileCheckpoint"
BROKER_IDENTITY = "brokerIdentity"
BROKER_IDENTITY_TEMP = "brokerIdentity-temp"
POSITION_CHECKPOINT = "position-checkpoint"
TIMER_CHECK = "timercheck"
DLEDGER_STATES = ("checkpoint", "currterm")

TOPICS = "topics.json"
SUBSCRIPTION_GROUP = "subscriptionGroup.json"
CONSUMER_OFFSET = "consumerOffset.json"
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"
DELAY_OFFSET = "delayOffset.json"
CONSUMER_FILTER = "consumerFilter.json"
CONSUMER_ORDER_INFO = "consumerOrderInfo.json"
TOPIC_QUEUE_MAPPING = "topicQueueMapping.json"
MESSAGE_REQUEST_MODE = "messageRequestMode.json"
TIMER_METRICS = "timermetrics"
TRANSACTION_METRICS = "transactionMetrics"
TIERED_METADATA = "tieredStoreMetadata.json"

CONFIG_FILES = (
    TOPICS,
    SUBSCRIPTION_GROUP,
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    DELAY_OFFSET,
    CONSUMER_FILTER,
    CONSUMER_ORDER_INFO,
    TOPIC_QUEUE_MAPPING,
    MESSAGE_REQUEST_MODE,
    TIMER_METRICS,
    TRANSACTION_METRICS,
    TIERED_METADATA,
)

# Databases below config/: three of version 1 of the configuration, one of version 2, 5.4's single one, local
# authentication.
CONFIG_DATABASES = ("topics", "subscriptionGroups", "consumerOffsets", "rdb", "metadata", "users", "acls")
ROCKSDB_DATABASES = (CONSUME_QUEUE, KV_STORE, ROCKSDB_STORE, *(f"{CONFIG}/{name}" for name in CONFIG_DATABASES))


class FileKind(StrEnum):
    """The kinds of files that a store can have, by the names that ``dump`` and findings show."""

    COMMIT_LOG = "commit log"
    CONSUME_QUEUE = "consume queue"
    CONSUME_QUEUE_EXT = "consume queue extension"
    BATCH_CONSUME_QUEUE = "batch consume queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    ABORT = "abort marker"
    LOCK = "lock"
    CONFIG = "configuration"
    TIMER_CHECK = "timer checkpoint"
    TIMER_WHEEL = "timer wheel"
    TIMER_LOG = "timer log"
    COMPACTION_LOG = "compaction log"
    COMPACTION_QUEUE = "compaction queue"
    COMPACTION_POSITION = "compaction position"
    EPOCH = "epochs"
    BROKER_IDENTITY = "broker identity"
    DLEDGER_DATA = "DLedger data"
    DLEDGER_INDEX = "DLedger index"
    DLEDGER_STATE = "DLedger state"
    ROCKSDB = "RocksDB"
    TIERED_INDEX = "tiered storage index"
    TIER_LOG = "tier commit log"
    TIER_QUEUE = "tier consume queue"
    TIER_INDEX = "tier index"
    UNKNOWN = "unknown"


class Copy(StrEnum):
    """Which version of a file this is: the file itself, the previous one (.bak), or one being written (.tmp).

    Upstream has the other two for some files only.
    """

    MAIN = ""
    BAK = ".bak"
    TMP = ".tmp"


class StorePath(NamedTuple):
    """The kind of a file and its coordinates, as its path tells them.

    ``base_offset`` is the offset of a segment's first byte, or the timer log position of a snapshot of the wheel.
    ``owner`` is the directory of a commit log (there can be several), the directory of a database, or the id of a
    DLedger node. ``stage`` is ``compacting`` or ``replicating`` for files of a compaction that is not finished.
    ``name`` is the file name if the other fields do not imply it.
    """

    kind: FileKind
    topic: str | None = None
    queue_id: int | None = None
    base_offset: int | None = None
    owner: str | None = None
    stage: str | None = None
    name: str | None = None
    copy: Copy = Copy.MAIN


# File names as brokers write them: an offset in 20 digits, a time in 17, ...; ``_NUMBER`` is any that they read.
_SEGMENT_NAME = re.compile(r"\d{20}", re.ASCII)
_INDEX_NAME = re.compile(r"\d{17}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_QUEUE_ID = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_SNAPSHOT = re.compile(TIMER_WHEEL + r"\.(0|[1-9]\d{0,18})", re.ASCII)
_ROCKSDB_FILE = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.(sst|log|blob|dbtmp)"
    r"|archive/\d+\.log",
    re.ASCII,
)
# Of the hash in the names of a tier.
_HASH_DIGITS = 8
# The directories of files of a compaction that is not finished.
_STAGES = ("compacting", "replicating")


def segment_name(base_offset: int) -> str:
    """Return the name of the segment whose first byte has this offset."""
    return f"{base_offset:020d}"


def parse_segment_name(name: str) -> int | None:
    """Return the offset in a segment's name, or None if it is not 20 digits or more than a Java ``long`` holds."""
    number = int(name) if _SEGMENT_NAME.fullmatch(name) else LONG_MAX + 1
    return number if number <= LONG_MAX else None


def parse_numeric_name(name: str) -> int | None:
    """Return the number that a broker's loader reads from any name among segments, or None where it throws."""
    number = int(name) if _NUMBER.fullmatch(name) else LONG_MAX + 1
    return number if LONG_MIN <= number <= LONG_MAX else None


def index_name(time: int, zone: tzinfo) -> str:
    """Return the name of an index file that a broker of time zone ``zone`` creates at ``time`` (ms)."""
    local = (_EPOCH + timedelta(milliseconds=time)).astimezone(zone)
    return f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}"


def tier_segment_name(base_offset: int) -> str:
    """Return the name of the segment of a tier whose first byte has this offset in its queue's log, queue or index."""
    return f"{_tier_hash(str(base_offset))}{segment_name(base_offset)}"


def parse_tier_segment_name(name: str) -> int | None:
    """Return the offset in the name of a tier's segment; None if the name is not the one that this offset has."""
    base_offset = parse_segment_name(name[_HASH_DIGITS:])
    return base_offset if base_offset is not None and tier_segment_name(base_offset) == name else None


def tier_cluster_name(cluster: str) -> str:
    """Return the name of a tier's directory of a cluster."""
    return f"{_tier_hash(cluster)}_{cluster}"


def parse_tier_cluster(name: str) -> str | None:
    """Return the cluster in the name of a tier's directory of a cluster; None for any other name."""
    cluster = name[_HASH_DIGITS + 1 :]
    return cluster if cluster and tier_cluster_name(cluster) == name else None


def _tier_hash(text: str) -> str:
    from hashlib import md5  # its import would cost every command a millisecond

    return md5(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Directories that contain segments, and directories whose segments are two levels further down, in TOPIC/QUEUE. The
# commit log is in neither table: a setting says where it is.
_SEGMENTS = {TIMER_LOG: FileKind.TIMER_LOG}
_QUEUES = {
    CONSUME_QUEUE: FileKind.CONSUME_QUEUE,
    CONSUME_QUEUE_EXT: FileKind.CONSUME_QUEUE_EXT,
    BATCH_CONSUME_QUEUE: FileKind.BATCH_CONSUME_QUEUE,
    COMPACTION_LOG: FileKind.COMPACTION_LOG,
    COMPACTION_QUEUE: FileKind.COMPACTION_QUEUE,
}
_DIRECTORY_OF = {kind: directory for table in (_SEGMENTS, _QUEUES) for directory, kind in table.items()}
_TIERED = {TIER_LOG: FileKind.TIER_LOG, TIER_QUEUE: FileKind.TIER_QUEUE, TIER_INDEX: FileKind.TIER_INDEX}
# The directories that the path of a tier's segment has below the broker: topic, queue, kind; then its name.
_TIER_DEPTH = 4
_DLEDGER_SEGMENTS = {"data": FileKind.DLEDGER_DATA, "index": FileKind.DLEDGER_INDEX}

# Files with one place and one name, and the copies of them that upstream makes.
_FIXED = {
    CHECKPOINT: (FileKind.CHECKPOINT, ()),
    ABORT: (FileKind.ABORT, (Copy.BAK, Copy.TMP)),
    LOCK: (FileKind.LOCK, ()),
    TIMER_WHEEL: (FileKind.TIMER_WHEEL, ()),
    EPOCH_FILE: (FileKind.EPOCH, (Copy.BAK, Copy.TMP)),
    f"{CONFIG}/{TIMER_CHECK}": (FileKind.TIMER_CHECK, ()),
    f"{COMPACTION}/{POSITION_CHECKPOINT}": (FileKind.COMPACTION_POSITION, (Copy.BAK, Copy.TMP)),
}


def split_copy(name: str) -> tuple[str, Copy]:
    """Return a file name without ``.bak`` or ``.tmp``, and which of them it had; MAIN for neither."""
    for copy in (Copy.BAK, Copy.TMP):
        if name.endswith(copy.value):
            return name[: -len(copy.value)], copy
    return name, Copy.MAIN


def classify(path: str, commit_log_directories: Iterable[str] = (COMMIT_LOG,)) -> StorePath:
    """Return what the file at ``path`` is, by its path only. Directories and foreign files are UNKNOWN.

    ``commit_log_directories`` are the directories of ``storePathCommitLog`` below the root.
    """
    for directory in commit_log_directories:
        if path.startswith(directory + "/"):
            base_offset = parse_segment_name(path[len(directory) + 1 :])
            if base_offset is not None:
                return StorePath(FileKind.COMMIT_LOG, base_offset=base_offset, owner=directory)
    parts = path.split("/")
    found = _classify_fixed(path) or _classify_segment(parts) or _classify_named(path) or _classify_tiered(parts)
    return found or StorePath(FileKind.UNKNOWN, name=path)


def _classify_fixed(path: str) -> StorePath | None:
    """Classify files with one place and one name, and snapshots of the timer wheel; None for others."""
    bare, copy = split_copy(path)
    kind, copies = _FIXED.get(bare, (None, ()))
    if kind is not None and (copy is Copy.MAIN or copy in copies):
        return StorePath(kind, copy=copy)
    if path in (BROKER_IDENTITY, BROKER_IDENTITY_TEMP):
        return StorePath(FileKind.BROKER_IDENTITY, name=path)
    # The snapshots are numbered, so a broker keeps no .bak of one.
    snapshot = _SNAPSHOT.fullmatch(bare)
    if snapshot and copy is not Copy.BAK and int(snapshot[1]) <= LONG_MAX:
        return StorePath(FileKind.TIMER_WHEEL, base_offset=int(snapshot[1]), copy=copy)
    return None


def _classify_segment(parts: Sequence[str]) -> StorePath | None:
    """Classify the segments of queues, the timer log, compaction and DLedger; None for others."""
    base_offset = parse_segment_name(parts[-1])
    if base_offset is None:
        return None
    if len(parts) == 2 and parts[0] in _SEGMENTS:
        return StorePath(_SEGMENTS[parts[0]], base_offset=base_offset)
    if len(parts) == 3 and parts[0].startswith(DLEDGER_PREFIX) and parts[1] in _DLEDGER_SEGMENTS:
        owner = parts[0].removeprefix(DLEDGER_PREFIX)
        return StorePath(_DLEDGER_SEGMENTS[parts[1]], base_offset=base_offset, owner=owner)
    depth = 2 if parts[0] == COMPACTION else 1
    kind = _QUEUES.get("/".join(parts[:depth]))
    stage = parts[-2] if depth == 2 and parts[-2] in _STAGES else None
    queue = parts[depth : -2 if stage else -1]
    if kind is None or len(queue) != 2 or not queue[0]:
        return None
    queue_id = int(queue[1]) if _QUEUE_ID.fullmatch(queue[1]) else INT_MAX + 1
    if queue_id > INT_MAX:
        return None
    return StorePath(kind, queue[0], queue_id, base_offset, stage=stage)


def _classify_named(path: str) -> StorePath | None:
    """Classify index and configuration files, DLedger's state, databases and tiered storage; None for others."""
    directory, _, name = path.rpartition("/")
    bare, copy = split_copy(name)
    if directory == INDEX and _INDEX_NAME.fullmatch(name):
        return StorePath(FileKind.INDEX, name=name)
    if directory == CONFIG and bare in CONFIG_FILES:
        return StorePath(FileKind.CONFIG, name=bare, copy=copy)
    if directory.startswith(DLEDGER_PREFIX) and "/" not in directory and bare in DLEDGER_STATES:
        owner = directory.removeprefix(DLEDGER_PREFIX)
        return StorePath(FileKind.DLEDGER_STATE, owner=owner, name=bare, copy=copy)
    for database in ROCKSDB_DATABASES:
        inside = path.removeprefix(database + "/")
        if inside != path and _ROCKSDB_FILE.fullmatch(inside):
            return StorePath(FileKind.ROCKSDB, owner=database, name=inside)
    if path.startswith(TIERED_INDEX + "/"):
        return StorePath(FileKind.TIERED_INDEX, name=path.removeprefix(TIERED_INDEX + "/"))
    return None


def _classify_tiered(parts: Sequence[str]) -> StorePath | None:
    """Classify the segments of a tier, wherever it is; None for others."""
    base_offset = parse_tier_segment_name(parts[-1])
    if base_offset is None or len(parts) < _TIER_DEPTH:
        return None
    topic, queue, directory, _ = parts[-_TIER_DEPTH:]
    kind = _TIERED.get(directory)
    if kind is None or not topic or not _QUEUE_ID.fullmatch(queue) or int(queue) > INT_MAX:
        return None
    return StorePath(kind, topic, int(queue), base_offset, owner="/".join(parts[:-_TIER_DEPTH]))


def segment_directory(kind: FileKind, topic: str | None = None, queue_id: int | None = None) -> str:
    """Return the directory with the segments of a queue or of a compacted queue.

    Without a topic it is the directory of all queues of that kind, or of the timer log. Raises KeyError for other
    kinds: a setting says where the commit log is.
    """
    directory = _DIRECTORY_OF[kind]
    return directory if topic is None else f"{directory}/{topic}/{queue_id}"


def config_path(name: str, copy: Copy = Copy.MAIN) -> str:
    return f"{CONFIG}/{name}{copy}"
