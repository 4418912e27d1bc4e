"""The table of settings: upstream's name, our attribute, type, default by version, what it does.

Upstream: ``MessageStoreConfig``, ``BrokerConfig``, ``BrokerIdentity`` of 4.9.8, 5.3.3 and 5.4.0. Settings of threads,
sockets, replication and metrics are left out: they are kept as unknown keys and change nothing here.
"""

# ruff: noqa: RUF009  (each call declares one field of the table; nothing mutable is shared)
from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from rmqtool.formats.topics import DEFAULT_DELAY_LEVELS

# Java's two widths of whole number: a broker ignores a line whose number does not fit.
Long = Annotated[int, "long"]


class Version(StrEnum):
    """The broker whose behaviour and defaults are meant."""

    V4_9 = "4.9"
    V5_3 = "5.3"
    V5_4 = "5.4"


class Origin(StrEnum):
    """Where a value came from."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    BROKER_CONF = "broker.conf"
    STORE = "found in the store"
    COMMAND_LINE = "command line"


class FlushDiskType(StrEnum):
    """When a put is acknowledged: after the flush, or before it."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(StrEnum):
    """The broker's place in replication."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


_SAME = object()
_INDEX_ENTRIES = 20_000_000


def _setting(
    name: str,
    default: object,
    about: str,
    *,
    since: Version = Version.V4_9,
    before: object = _SAME,
    v49: object = _SAME,
) -> Any:
    """Declare a field. ``before`` is how a broker older than ``since`` behaves, ``v49`` a default that differed."""
    if before is _SAME:
        before = default
    old = {version: before for version in Version if version < since}
    defaults = dict.fromkeys(Version, default) | old
    if v49 is not _SAME:
        defaults[Version.V4_9] = v49
    return field(default=defaults[Version.V5_3], metadata={"name": name, "about": about, "since": since} | defaults)


_V53 = Version.V5_3
_V54 = Version.V5_4


# Only StoreConfig is ever made: what this class would generate for itself cost every command milliseconds.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class Settings:
    """One attribute for each setting; the attribute's default is that of 5.3."""

    # identity
    broker_cluster_name: str = _setting("brokerClusterName", "DefaultCluster", "name of the cluster, stored as CLUSTER")
    broker_name: str = _setting("brokerName", "DEFAULT_BROKER", "name of the broker; upstream: the host's name")
    broker_id: Long = _setting("brokerId", 0, "0 is a master")
    broker_ip1: str = _setting("brokerIP1", "127.0.0.1", "store host of new messages; upstream: the first address")
    listen_port: int = _setting("listenPort", 10911, "port of the store host")
    broker_role: BrokerRole = _setting("brokerRole", BrokerRole.ASYNC_MASTER, "place in replication")
    in_sync_replicas: int = _setting(
        "inSyncReplicas", 1, "brokers that a SYNC_MASTER wants a message to be on", since=_V53
    )
    region_id: str = _setting("regionId", "DefaultRegion", "stored as MSG_REGION")
    trace_on: bool = _setting("traceOn", True, "stored as TRACE_ON")

    # paths
    store_path_root_dir: str = _setting("storePathRootDir", "${user.home}/store", "the store's root directory")
    store_path_commit_log: str | None = _setting(
        "storePathCommitLog", None, "directories of the commit log, split at commas; none: commitlog in the root"
    )
    read_only_commit_log_store_paths: str | None = _setting(
        "readOnlyCommitLogStorePaths", None, "directories of the commit log without new files"
    )
    store_path_dledger_commit_log: str | None = _setting(
        "storePathDLedgerCommitLog", None, "directory of DLedger logs; none: the root"
    )
    store_path_epoch_file: str | None = _setting(
        "storePathEpochFile", None, "the epoch file; none: epochFileCheckpoint in the root", since=_V53
    )

    # tiered storage
    tiered_store_file_path: str | None = _setting(
        "tieredStoreFilePath", None, "directory of the tier, with older messages of each queue", since=_V53
    )

    # geometry
    mapped_file_size_commit_log: int = _setting("mappedFileSizeCommitLog", 1 << 30, "bytes of a commit log file")
    mapped_file_size_consume_queue: int = _setting("mappedFileSizeConsumeQueue", 6_000_000, "bytes of a queue file")
    mapped_file_size_consume_queue_ext: int = _setting(
        "mappedFileSizeConsumeQueueExt", 48 << 20, "bytes of an ext file"
    )
    mapper_file_size_batch_consume_queue: int = _setting(
        "mapperFileSizeBatchConsumeQueue", 13_800_000, "bytes of a batch queue file", since=_V53
    )
    max_hash_slot_num: int = _setting("maxHashSlotNum", _INDEX_ENTRIES // 4, "slots of an index file")
    max_index_num: int = _setting("maxIndexNum", _INDEX_ENTRIES, "entries of an index file")
    mapped_file_size_timer_log: int = _setting(
        "mappedFileSizeTimerLog", 100 << 20, "bytes of a timer log file", since=_V53
    )
    compaction_mapped_file_size: int = _setting(
        "compactionMappedFileSize", 100 << 20, "bytes of a compacted log file", since=_V53
    )
    compaction_cq_mapped_file_size: int = _setting(
        "compactionCqMappedFileSize", 10 << 20, "bytes of a compacted queue file", since=_V53
    )

    # messages
    max_message_size: int = _setting("maxMessageSize", 4 << 20, "bytes a body may have")
    auto_message_version_on_topic_len: bool = _setting(
        "autoMessageVersionOnTopicLen", True, "records of version 2 for topics over 127 bytes", since=_V53, before=False
    )
    enabled_append_prop_crc: bool = _setting(
        "enabledAppendPropCRC", False, "append a CRC of the properties", since=_V53
    )
    force_verify_prop_crc: bool = _setting(
        "forceVerifyPropCRC", False, "a missing property CRC is an error", since=_V53
    )
    os_page_cache_busy_time_out_mills: Long = _setting(
        "osPageCacheBusyTimeOutMills", 1000, "refuse puts while one has held the lock this long (ms)"
    )
    default_topic_queue_nums: int = _setting("defaultTopicQueueNums", 8, "queues of a topic created by a put")
    auto_create_topic_enable: bool = _setting("autoCreateTopicEnable", True, "a put may create its topic")
    cluster_topic_enable: bool = _setting("clusterTopicEnable", True, "keep a topic named like the cluster")
    broker_topic_enable: bool = _setting("brokerTopicEnable", True, "keep a topic named like the broker")
    broker_permission: int = _setting("brokerPermission", 6, "4 reads, 2 writes, 6 both")
    enable_mixed_message_type: bool = _setting(
        "enableMixedMessageType", False, "topics may have message.type=MIXED", since=_V53
    )
    transient_store_pool_enable: bool = _setting(
        "transientStorePoolEnable", False, "put to off-heap buffers, commit to the file later"
    )
    transient_store_pool_size: int = _setting("transientStorePoolSize", 5, "buffers of that pool")
    fast_fail_if_no_buffer_in_store_pool: bool = _setting(
        "fastFailIfNoBufferInStorePool", False, "refuse puts when no buffer is free"
    )
    write_without_mmap: bool = _setting("writeWithoutMmap", False, "write through the channel", since=_V54)

    # flush
    flush_disk_type: FlushDiskType = _setting("flushDiskType", FlushDiskType.ASYNC_FLUSH, "when a put is acknowledged")
    sync_flush_timeout: int = _setting("syncFlushTimeout", 5000, "wait for a synchronous flush (ms)")
    flush_interval_commit_log: int = _setting("flushIntervalCommitLog", 500, "between flushes of the log (ms)")
    flush_commit_log_timed: bool = _setting("flushCommitLogTimed", True, "sleep that long; false: woken by puts")
    flush_commit_log_least_pages: int = _setting("flushCommitLogLeastPages", 4, "dirty pages that make a flush")
    flush_commit_log_thorough_interval: int = _setting(
        "flushCommitLogThoroughInterval", 10_000, "between flushes of any dirty pages (ms)"
    )
    commit_interval_commit_log: int = _setting("commitIntervalCommitLog", 200, "between commits of the pool (ms)")
    commit_commit_log_least_pages: int = _setting("commitCommitLogLeastPages", 4, "pages that make a commit")
    commit_commit_log_thorough_interval: int = _setting(
        "commitCommitLogThoroughInterval", 200, "between commits of any pages (ms)"
    )
    flush_interval_consume_queue: int = _setting("flushIntervalConsumeQueue", 1000, "between flushes of queues (ms)")
    flush_consume_queue_least_pages: int = _setting("flushConsumeQueueLeastPages", 2, "dirty pages that make a flush")
    flush_consume_queue_thorough_interval: int = _setting(
        "flushConsumeQueueThoroughInterval", 60_000, "between flushes of any dirty queue pages (ms)"
    )
    flush_consumer_offset_interval: int = _setting(
        "flushConsumerOffsetInterval", 5000, "between writes of consumerOffset.json (ms)"
    )
    flush_delay_offset_interval: Long = _setting(
        "flushDelayOffsetInterval", 10_000, "between writes of delayOffset.json (ms)"
    )

    # recovery and dispatch
    check_crc_on_recover: bool = _setting("checkCRCOnRecover", True, "recovery checks the CRC of bodies")
    message_index_safe: bool = _setting("messageIndexSafe", False, "recovery starts no later than the index's end")
    duplication_enable: bool = _setting("duplicationEnable", False, "dispatch only up to the confirmed offset")
    commit_log_recover_max_num: int | None = _setting(
        "commitLogRecoverMaxNum", 10, "files that recovery looks back at most", since=_V54, before=None
    )
    recover_concurrently: bool = _setting("recoverConcurrently", False, "recover queues in parallel", since=_V53)
    enable_accelerated_recovery: bool = _setting(
        "enableAcceleratedRecovery", False, "scan from the dispatch position (RocksDB queues)", since=_V54
    )
    recheck_reput_offset_from_cq: bool = _setting(
        "recheckReputOffsetFromCq", False, "start dispatch at the queues' maximum", since=_V53, before=True
    )
    read_uncommitted: bool = _setting("readUnCommitted", False, "dispatch what is not flushed", since=_V53)
    enable_controller_mode: bool = _setting("enableControllerMode", False, "a controller elects the master", since=_V53)

    # index
    message_index_enable: bool = _setting("messageIndexEnable", True, "build the index")
    index_file_write_enable: bool = _setting("indexFileWriteEnable", True, "build index files", since=_V54)
    index_file_read_enable: bool = _setting("indexFileReadEnable", True, "answer from index files", since=_V54)
    index_rocksdb_enable: bool = _setting("indexRocksDBEnable", False, "build the index in RocksDB", since=_V54)
    max_rocksdb_index_query_days: int = _setting(
        "maxRocksDBIndexQueryDays", 7, "longest span of a query of the RocksDB index", since=_V54
    )
    max_msgs_num_batch: int = _setting("maxMsgsNumBatch", 64, "messages a query by key answers at most")
    default_query_max_num: int = _setting("defaultQueryMaxNum", 32, "messages a query answers when not told")

    # queues
    store_type: str = _setting("storeType", "default", "default (files) or defaultRocksDB", since=_V53)
    enable_consume_queue_ext: bool = _setting("enableConsumeQueueExt", False, "keep ext files with filter bit maps")
    bit_map_length_consume_queue_ext: int = _setting("bitMapLengthConsumeQueueExt", 64, "bits of such a bit map")
    enable_multi_dispatch: bool = _setting("enableMultiDispatch", False, "dispatch to the queues a message names")
    enable_lmq: bool = _setting("enableLmq", False, "light queues")
    max_lmq_consume_queue_num: int = _setting("maxLmqConsumeQueueNum", 20_000, "light queues at most")
    enable_compaction: bool = _setting(
        "enableCompaction", True, "compact topics that ask for it", since=_V53, before=False
    )
    compaction_schedule_internal: int = _setting(
        "compactionScheduleInternal", 900_000, "between compactions (ms)", since=_V53
    )
    rocksdb_cq_double_write_enable: bool = _setting(
        "rocksdbCQDoubleWriteEnable", False, "write queues to files and to RocksDB", since=_V53
    )
    combine_cq_loading_cq_types: str = _setting(
        "combineCQLoadingCQTypes", "default;defaultRocksDB", "stores of a combined queue store", since=_V54
    )
    combine_cq_prefer_cq_type: str = _setting("combineCQPreferCQType", "default", "which of them answers", since=_V54)
    combine_assign_offset_cq_type: str = _setting(
        "combineAssignOffsetCQType", "default", "which of them numbers messages", since=_V54
    )

    # retention
    file_reserved_time: int = _setting("fileReservedTime", 72, "age at which files expire (h)")
    delete_when: str = _setting("deleteWhen", "04", "hours of the day for deletion, split at semicolons")
    disk_max_used_space_ratio: int = _setting("diskMaxUsedSpaceRatio", 75, "expired files go at once above this (%)")
    disk_space_clean_forcibly_ratio: int = _setting(
        "diskSpaceCleanForciblyRatio", 85, "files of any age go above this (%)", since=_V53
    )
    disk_space_warning_level_ratio: int = _setting(
        "diskSpaceWarningLevelRatio", 90, "puts are refused above this (%)", since=_V53
    )
    logical_disk_space_clean_forcibly_threshold: float = _setting(
        "logicalDiskSpaceCleanForciblyThreshold", 0.8, "share of a disk with several replicas", since=_V53
    )
    replicas_per_disk_partition: int = _setting("replicasPerDiskPartition", 1, "brokers on one disk", since=_V53)
    clean_file_forcibly_enable: bool = _setting("cleanFileForciblyEnable", True, "may files go before they expire")
    clean_resource_interval: int = _setting("cleanResourceInterval", 10_000, "between looks at the disk (ms)")
    delete_commit_log_files_interval: int = _setting(
        "deleteCommitLogFilesInterval", 100, "between two deletions of log files (ms)"
    )
    delete_consume_queue_files_interval: int = _setting(
        "deleteConsumeQueueFilesInterval", 100, "between two deletions of queue files (ms)"
    )
    delete_file_batch_max: int = _setting("deleteFileBatchMax", 10, "files deleted in one go", since=_V53)
    destroy_mapped_file_interval_forcibly: int = _setting(
        "destroyMapedFileIntervalForcibly", 120_000, "a file in use goes after this (ms)"
    )
    redelete_hanged_file_interval: int = _setting(
        "redeleteHangedFileInterval", 120_000, "between tries at a file in use (ms)"
    )

    # reading
    max_transfer_bytes_on_message_in_memory: int = _setting(
        "maxTransferBytesOnMessageInMemory", 256 << 10, "bytes of one answer from memory"
    )
    max_transfer_count_on_message_in_memory: int = _setting(
        "maxTransferCountOnMessageInMemory", 32, "messages of one answer from memory"
    )
    max_transfer_bytes_on_message_in_disk: int = _setting(
        "maxTransferBytesOnMessageInDisk", 64 << 10, "bytes of one answer from disk"
    )
    max_transfer_count_on_message_in_disk: int = _setting(
        "maxTransferCountOnMessageInDisk", 8, "messages of one answer from disk"
    )
    access_message_in_memory_max_ratio: int = _setting(
        "accessMessageInMemoryMaxRatio", 40, "share of memory for the end of the log (%)"
    )
    max_filter_message_size: int = _setting(
        "maxFilterMessageSize", 16_000, "queue entries that one get reads", since=_V53
    )
    travel_cq_file_num_when_get_message: int = _setting(
        "travelCqFileNumWhenGetMessage", 1, "queue files one get looks at", since=_V53
    )
    long_polling_enable: bool = _setting("longPollingEnable", True, "hold a pull until a message arrives")
    short_polling_time_mills: Long = _setting("shortPollingTimeMills", 1000, "hold it this long otherwise (ms)")

    # filters
    enable_property_filter: bool = _setting("enablePropertyFilter", False, "allow SQL92 filters")
    enable_calc_filter_bit_map: bool = _setting("enableCalcFilterBitMap", False, "compute bit maps at dispatch")
    filter_support_retry: bool = _setting("filterSupportRetry", False, "filter retry topics too")
    expect_consumer_num_use_filter: int = _setting("expectConsumerNumUseFilter", 32, "groups the bloom filter expects")
    max_error_rate_of_bloom_filter: int = _setting("maxErrorRateOfBloomFilter", 20, "its error rate (%)")
    filter_data_clean_time_span: Long = _setting(
        "filterDataCleanTimeSpan", 86_400_000, "age at which filter data of a dead group goes (ms)"
    )

    # groups, retry, pop
    auto_create_subscription_group: bool = _setting("autoCreateSubscriptionGroup", True, "a pull may create its group")
    use_server_side_reset_offset: bool = _setting(
        "useServerSideResetOffset", True, "the broker keeps reset offsets", since=_V53, before=False
    )
    consumer_offset_update_version_step: Long = _setting(
        "consumerOffsetUpdateVersionStep", 500, "commits that raise the data version", since=_V53
    )
    delay_offset_update_version_step: Long = _setting(
        "delayOffsetUpdateVersionStep", 200, "updates that raise the data version", since=_V53
    )
    enable_retry_topic_v2: bool = _setting("enableRetryTopicV2", False, "retry topics named with +", since=_V53)
    retrieve_message_from_pop_retry_topic_v1: bool = _setting(
        "retrieveMessageFromPopRetryTopicV1", True, "read the old retry topics too", since=_V53
    )
    revive_queue_num: int = _setting("reviveQueueNum", 8, "queues of the revive topic", since=_V53)
    revive_interval: Long = _setting("reviveInterval", 1000, "between looks for what to revive (ms)", since=_V53)
    revive_scan_time: Long = _setting("reviveScanTime", 10_000, "longest look (ms)", since=_V53)
    pop_revive_max_attempt_times: int = _setting("popReviveMaxAttemptTimes", 16, "attempts to revive", since=_V53)
    pop_from_retry_probability: int = _setting(
        "popFromRetryProbability", 20, "pops that look at retries first (%)", since=_V53
    )
    init_pop_offset_by_check_msg_in_mem: bool = _setting(
        "initPopOffsetByCheckMsgInMem", True, "a new pop group starts at the first message in memory", since=_V53
    )
    pop_consumer_kv_service_init: bool = _setting("popConsumerKVServiceInit", False, "open kvStore", since=_V53)
    pop_consumer_kv_service_enable: bool = _setting("popConsumerKVServiceEnable", False, "use kvStore", since=_V53)
    use_separate_retry_queue: bool = _setting(
        "useSeparateRetryQueue", False, "a retry topic has as many queues as its topic", since=_V54
    )
    config_manager_version: str = _setting("configManagerVersion", "v1", "v2: config/rdb", since=_V53)
    use_single_rocksdb_for_all_configs: bool = _setting(
        "useSingleRocksDBForAllConfigs", False, "config/metadata instead of three databases", since=_V54
    )

    # delay and timers
    message_delay_level: str = _setting("messageDelayLevel", DEFAULT_DELAY_LEVELS, "the delays by level, from 1")
    timer_wheel_enable: bool = _setting("timerWheelEnable", True, "arbitrary timers", since=_V53, before=False)
    timer_precision_ms: int = _setting("timerPrecisionMs", 1000, "time of a wheel slot (ms)", since=_V53)
    timer_roll_window_slot: int = _setting("timerRollWindowSlot", 172_800, "slots before a timer rolls", since=_V53)
    timer_max_delay_sec: int = _setting("timerMaxDelaySec", 259_200, "longest timer (s)", since=_V53)
    timer_flush_interval_ms: int = _setting("timerFlushIntervalMs", 1000, "between flushes (ms)", since=_V53)
    timer_intercept_delay_level: bool = _setting(
        "timerInterceptDelayLevel", False, "timers do the delay levels too", since=_V53
    )
    timer_congest_num_each_slot: int = _setting(
        "timerCongestNumEachSlot", (1 << 31) - 1, "timers of a slot before new ones are refused", since=_V53
    )
    timer_enable_retry_until_success: bool = _setting(
        "timerEnableRetryUntilSuccess", False, "retry a delivery until it succeeds", since=_V53
    )
    timer_skip_unknown_error: bool = _setting("timerSkipUnknownError", False, "skip what fails oddly", since=_V53)
    append_topic_for_timer_delete_key: bool = _setting(
        "appendTopicForTimerDeleteKey", False, "a cancel names topic+id, not id", since=_V54, before=True
    )
    timer_wheel_snapshot_flush: bool = _setting(
        "timerWheelSnapshotFlush", False, "save the wheel as timerwheel.N", since=_V54
    )
    timer_rocksdb_enable: bool = _setting("timerRocksDBEnable", False, "timers in RocksDB", since=_V54)

    # transactions
    reject_transaction_message: bool = _setting("rejectTransactionMessage", False, "refuse half messages")
    transaction_time_out: Long = _setting("transactionTimeOut", 6000, "age of a half message before a check (ms)")
    transaction_check_max: int = _setting("transactionCheckMax", 15, "checks before a half message is given up")
    transaction_check_interval: Long = _setting("transactionCheckInterval", 30_000, "between checks (ms)", v49=60_000)
    transaction_op_msg_max_size: int = _setting("transactionOpMsgMaxSize", 4096, "bytes of an op message", since=_V53)
    transaction_op_batch_interval: int = _setting(
        "transactionOpBatchInterval", 3000, "between op messages (ms)", since=_V53
    )
    trans_rocksdb_enable: bool = _setting("transRocksDBEnable", False, "half messages in RocksDB", since=_V54)
    trans_write_origin_trans_half_enable: bool = _setting(
        "transWriteOriginTransHalfEnable", True, "keep the old half topic", since=_V54
    )

    # DLedger
    enable_dledger_commit_log: bool = _setting("enableDLegerCommitLog", False, "the commit log is a DLedger log")
    dledger_group: str | None = _setting("dLegerGroup", None, "name of its group")
    dledger_peers: str | None = _setting("dLegerPeers", None, "its peers")
    dledger_self_id: str | None = _setting("dLegerSelfId", None, "which of them this is")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    attribute: str
    kind: type
    is_long: bool
    about: str
    since: Version
    defaults: dict[Version, object]


def _row(declared: Field[Any], annotation: Any) -> Setting:
    is_long = get_origin(annotation) is Annotated
    bare = annotation.__origin__ if is_long else annotation
    kind = next((part for part in get_args(bare) if part is not type(None)), bare)
    about = declared.metadata
    defaults = {version: about[version] for version in Version}
    return Setting(about["name"], declared.name, kind, is_long, about["about"], about["since"], defaults)


def _rows() -> dict[str, Setting]:
    # Few types for many fields: each is read once.
    kinds = {str(declared.type): declared.type for declared in fields(Settings)}
    hints = get_type_hints(type("Kinds", (), {"__annotations__": kinds, "__module__": __name__}), include_extras=True)
    rows = [_row(declared, hints[str(declared.type)]) for declared in fields(Settings)]
    return {row.name: row for row in rows}


# By upstream's name, in the order of the table.
SETTINGS = _rows()

# Settings that no code of rmqtool reads. A value of one in broker.conf is shown as not used; on the command line it is
# an error.
UNUSED = frozenset(
    {
        "brokerId",
        "storePathDLedgerCommitLog",
        "storePathEpochFile",
        "compactionMappedFileSize",
        "compactionCqMappedFileSize",
        "enableMixedMessageType",
        "transientStorePoolSize",
        "fastFailIfNoBufferInStorePool",
        "writeWithoutMmap",
        "flushConsumerOffsetInterval",
        "flushDelayOffsetInterval",
        "recoverConcurrently",
        "enableAcceleratedRecovery",
        "recheckReputOffsetFromCq",
        "readUnCommitted",
        "enableControllerMode",
        "indexFileReadEnable",
        "indexRocksDBEnable",
        "maxRocksDBIndexQueryDays",
        "bitMapLengthConsumeQueueExt",
        "maxLmqConsumeQueueNum",
        "compactionScheduleInternal",
        "combineCQLoadingCQTypes",
        "combineCQPreferCQType",
        "combineAssignOffsetCQType",
        "logicalDiskSpaceCleanForciblyThreshold",
        "replicasPerDiskPartition",
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        "deleteFileBatchMax",
        "destroyMapedFileIntervalForcibly",
        "redeleteHangedFileInterval",
        "travelCqFileNumWhenGetMessage",
        "expectConsumerNumUseFilter",
        "maxErrorRateOfBloomFilter",
        "filterDataCleanTimeSpan",
        "useServerSideResetOffset",
        "consumerOffsetUpdateVersionStep",
        "retrieveMessageFromPopRetryTopicV1",
        "reviveInterval",
        "reviveScanTime",
        "popReviveMaxAttemptTimes",
        "popConsumerKVServiceInit",
        "useSeparateRetryQueue",
        "configManagerVersion",
        "useSingleRocksDBForAllConfigs",
        "timerFlushIntervalMs",
        "timerInterceptDelayLevel",
        "timerCongestNumEachSlot",
        "timerEnableRetryUntilSuccess",
        "timerSkipUnknownError",
        "appendTopicForTimerDeleteKey",
        "transRocksDBEnable",
        "transWriteOriginTransHalfEnable",
        "dLegerGroup",
        "dLegerPeers",
        "dLegerSelfId",
    }
)
