"""The objects in a broker's JSON files: each declared once, its fields in the order in which they are written.

The default of a field is its value in a new object; a field without a default is left out until it has a value.
``bins`` are the initial sizes of upstream's hash maps, which decide the order of keys in a file.

Upstream: the managers of ``broker`` (topic, subscription, offset, filter, schedule, loadbalance), ``TimerMetrics``,
``TransactionMetrics``, ``CompactionPositionMgr``, ``PopConsumerRecord``, and the beans they hold.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqtool.formats import paths
from rmqtool.formats.fastjson import BOOLEAN, INT, LONG, STRING, Bean, BeanField, JavaType, Kind, Sequence, Style, Table

# As a default: a new object gets a new, empty value of the field's shape.
FRESH: Final = object()

STRING_MAP = Table(STRING, concurrent=False)

DATA_VERSION = Bean(
    {
        "counter": BeanField(LONG, 0),
        "stateVersion": BeanField(LONG, 0, "5.0.0"),
        "timestamp": BeanField(LONG, 0),
    }
)
_DATA_VERSION = BeanField(DATA_VERSION, FRESH)
_DATA_VERSION_5 = BeanField(DATA_VERSION, FRESH, "5.0.0")

TOPIC_CONFIG = Bean(
    {
        "attributes": BeanField(STRING_MAP, FRESH, "5.0.0"),
        "order": BeanField(BOOLEAN, False),
        "perm": BeanField(INT, 6),
        "readQueueNums": BeanField(INT, 16),
        "topicFilterType": BeanField(STRING, "SINGLE_TAG"),
        "topicName": BeanField(STRING),
        "topicSysFlag": BeanField(INT, 0),
        "writeQueueNums": BeanField(INT, 16),
    }
)
TOPICS = Bean({"dataVersion": _DATA_VERSION, "topicConfigTable": BeanField(Table(TOPIC_CONFIG, 2048), FRESH)})

GROUP_RETRY_POLICY = Bean(
    {
        "customizedRetryPolicy": BeanField(Bean({"next": BeanField(Sequence(LONG, Kind.ARRAY))})),
        "exponentialRetryPolicy": BeanField(
            Bean(
                {
                    "initial": BeanField(LONG, 5000),
                    "max": BeanField(LONG, 7_200_000),
                    "multiplier": BeanField(LONG, 2),
                }
            )
        ),
        "type": BeanField(STRING, "CUSTOMIZED"),
    }
)
SUBSCRIPTION_DATA = Bean(
    {
        "expression": BeanField(STRING),
        "expressionType": BeanField(STRING),
        "topic": BeanField(STRING),
        "version": BeanField(LONG, 0),
    }
)
SUBSCRIPTION_GROUP_CONFIG = Bean(
    {
        "attributes": BeanField(STRING_MAP, FRESH, "5.1.3"),
        "brokerId": BeanField(LONG, 0),
        "consumeBroadcastEnable": BeanField(BOOLEAN, True),
        "consumeEnable": BeanField(BOOLEAN, True),
        "consumeFromMinEnable": BeanField(BOOLEAN, True),
        "consumeMessageOrderly": BeanField(BOOLEAN, False, "5.0.0"),
        "consumeTimeoutMinute": BeanField(INT, 15, "5.0.0"),
        "groupName": BeanField(STRING),
        "groupRetryPolicy": BeanField(GROUP_RETRY_POLICY, FRESH, "5.0.0"),
        "groupSysFlag": BeanField(INT, 0, "5.0.0"),
        "notifyConsumerIdsChangedEnable": BeanField(BOOLEAN, True),
        "retryMaxTimes": BeanField(INT, 16),
        "retryQueueNums": BeanField(INT, 1),
        "subscriptionDataSet": BeanField(Sequence(SUBSCRIPTION_DATA, Kind.SET), None, "5.1.1"),
        "whichBrokerWhenConsumeSlowly": BeanField(LONG, 1),
    }
)
# From topic to the permissions, as bits, that a group does not have there.
FORBIDDEN = Table(INT, 8)
SUBSCRIPTION_GROUPS = Bean(
    {
        "dataVersion": _DATA_VERSION,
        "forbiddenTable": BeanField(Table(FORBIDDEN, 8), FRESH, "5.0.0"),
        "subscriptionGroupTable": BeanField(Table(SUBSCRIPTION_GROUP_CONFIG, 2048), FRESH),
    }
)

# Groups that every broker has, and the version that introduced each.
OWN_GROUPS = {
    "TOOLS_CONSUMER": "4.0.0",
    "FILTERSRV_CONSUMER": "4.0.0",
    "SELF_TEST_C_GROUP": "4.0.0",
    "CID_ONS-HTTP-PROXY": "4.0.0",
    "CID_ONSAPI_PULL": "4.0.0",
    "CID_ONSAPI_PERMISSION": "4.0.0",
    "CID_ONSAPI_OWNER": "4.0.0",
    "CID_RMQ_SYS_TRANS": "5.0.0",
}

# Groups with this prefix are a 5.x broker's own. upstream: MixAll.CID_RMQ_SYS_PREFIX
OWN_GROUPS_BEGIN = "CID_RMQ_SYS_"


def is_own_group(group: str) -> bool:
    """Return whether a group is the broker's own; its lag is of no interest to a user."""
    return group in OWN_GROUPS or group.startswith(OWN_GROUPS_BEGIN)


# From queue id, or delay level, to offset.
QUEUE_OFFSETS = Table(LONG, 64, JavaType.INT)
OFFSET_TABLE = Table(QUEUE_OFFSETS, 1024)
GROUP_TOPIC_MAP = Table(Sequence(STRING, Kind.SET), 128, concurrent=False)
# Initial bins of the set of topics of a group, which decide their order.
GROUP_TOPIC_SET_BINS = 8

CONSUMER_OFFSETS = Bean(
    {
        "dataVersion": _DATA_VERSION_5,
        "groupTopicMap": BeanField(GROUP_TOPIC_MAP, FRESH, "5.0.0", ignored=True),
        "offsetTable": BeanField(OFFSET_TABLE, FRESH),
    }
)
LMQ_CONSUMER_OFFSETS = Bean(
    {
        "dataVersion": _DATA_VERSION_5,
        "groupTopicMap": BeanField(GROUP_TOPIC_MAP, FRESH, "5.0.0", ignored=True),
        "lmqOffsetTable": BeanField(Table(LONG, 1024), FRESH),
        "offsetTable": BeanField(OFFSET_TABLE, FRESH),
    }
)
DELAY_OFFSETS = Bean({"dataVersion": _DATA_VERSION_5, "offsetTable": BeanField(QUEUE_OFFSETS, FRESH)})

BLOOM_FILTER_DATA = Bean(
    {"bitNum": BeanField(INT, 0), "bitPos": BeanField(Sequence(INT, Kind.ARRAY))},
)
CONSUMER_FILTER_DATA = Bean(
    {
        "bloomFilterData": BeanField(BLOOM_FILTER_DATA),
        "bornTime": BeanField(LONG, 0),
        "clientVersion": BeanField(LONG, 0),
        "consumerGroup": BeanField(STRING),
        "dead": BeanField(BOOLEAN, ignored=True),
        "deadTime": BeanField(LONG, 0),
        "expression": BeanField(STRING),
        "expressionType": BeanField(STRING),
        "topic": BeanField(STRING),
    }
)
FILTERS_OF_TOPIC = Bean(
    {"groupFilterData": BeanField(Table(CONSUMER_FILTER_DATA), FRESH), "topic": BeanField(STRING)},
)
CONSUMER_FILTERS = Bean({"filterDataByTopic": BeanField(Table(FILTERS_OF_TOPIC, 512), FRESH)})

# The messages that an orderly POP consumer has, by upstream's short names: a is the id of the attempt, i the invisible
# time, l the time of the last pop, o the queue offsets, cm a bit for each that is acknowledged, ot when each is visible
# again, oc how often each was consumed.
ORDER_INFO = Bean(
    {
        "a": BeanField(STRING),
        "cm": BeanField(LONG, 0),
        "i": BeanField(LONG),
        "l": BeanField(LONG, 0),
        "o": BeanField(Sequence(LONG)),
        "oc": BeanField(Table(INT, 16, JavaType.LONG, concurrent=False)),
        "ot": BeanField(Table(LONG, 16, JavaType.LONG, concurrent=False)),
        "popTime": BeanField(LONG, 0),
    }
)
CONSUMER_ORDER_INFO = Bean(
    {
        "orderedConsumptionLevel": BeanField(STRING, "QUEUE", "5.4.0", ignored=True),
        "table": BeanField(Table(Table(ORDER_INFO, 16, JavaType.INT), 256), FRESH),
    }
)

LOGIC_QUEUE_MAPPING_ITEM = Bean(
    {
        "bname": BeanField(STRING),
        "endOffset": BeanField(LONG, -1),
        "gen": BeanField(INT, 0),
        "logicOffset": BeanField(LONG, 0),
        "queueId": BeanField(INT, 0),
        "startOffset": BeanField(LONG, 0),
        "timeOfEnd": BeanField(LONG, -1),
        "timeOfStart": BeanField(LONG, -1),
    }
)
TOPIC_QUEUE_MAPPING_DETAIL = Bean(
    {
        "bname": BeanField(STRING),
        "currIdMap": BeanField(Table(INT, 16, JavaType.INT), FRESH),
        "dirty": BeanField(BOOLEAN, False),
        "epoch": BeanField(LONG, 0),
        "hostedQueues": BeanField(Table(Sequence(LOGIC_QUEUE_MAPPING_ITEM), 16, JavaType.INT), FRESH),
        "scope": BeanField(STRING, "__global__"),
        "topic": BeanField(STRING),
        "totalQueues": BeanField(INT, 0),
    }
)
TOPIC_QUEUE_MAPPINGS = Bean(
    {
        "dataVersion": _DATA_VERSION,
        "topicQueueMappingInfoMap": BeanField(Table(TOPIC_QUEUE_MAPPING_DETAIL), FRESH),
    }
)

MESSAGE_REQUEST_MODE = Bean(
    {
        "consumerGroup": BeanField(STRING),
        "mode": BeanField(STRING, "PULL"),
        "popShareQueueNum": BeanField(INT, 0),
        "topic": BeanField(STRING),
    }
)
MESSAGE_REQUEST_MODES = Bean({"messageRequestModeMap": BeanField(Table(Table(MESSAGE_REQUEST_MODE)), FRESH)})

METRIC = Bean({"count": BeanField(LONG, 0), "timeStamp": BeanField(LONG, 0)})
TIMER_METRICS = Bean({"dataVersion": _DATA_VERSION, "timingCount": BeanField(Table(METRIC, 2048), FRESH)})
TRANSACTION_METRICS = Bean({"dataVersion": _DATA_VERSION, "transactionCount": BeanField(Table(METRIC, 2048), FRESH)})

COMPACTION_POSITIONS = Bean(
    {"empty": BeanField(BOOLEAN, True, ignored=True), "queueOffsetMap": BeanField(Table(LONG), FRESH)}
)

# The metadata of a tier has the numbers of topics, which the index uses, the bounds of queues, and the segments of each
# queue by its path BROKER/TOPIC/QUEUE. ``type`` is 0 for logs, 1 for queues, 2 for the index; ``status`` is 0.
TIER_TOPIC = Bean(
    {
        "topicId": BeanField(LONG, 0),
        "topic": BeanField(STRING),
        "status": BeanField(INT, 0),
        "reserveTime": BeanField(LONG, 0),
        "updateTimestamp": BeanField(LONG, 0),
    }
)
TIER_QUEUE = Bean(
    {
        "queue": BeanField(
            Bean({"brokerName": BeanField(STRING), "queueId": BeanField(INT, 0), "topic": BeanField(STRING)})
        ),
        "minOffset": BeanField(LONG, 0),
        "maxOffset": BeanField(LONG, 0),
        "updateTimestamp": BeanField(LONG, 0),
    }
)
TIER_SEGMENT = Bean(
    {
        "path": BeanField(STRING),
        "type": BeanField(INT, 0),
        "baseOffset": BeanField(LONG, 0),
        "status": BeanField(INT, 0),
        "size": BeanField(LONG, 0),
        "createTimestamp": BeanField(LONG, 0),
        "beginTimestamp": BeanField(LONG, 0),
        "endTimestamp": BeanField(LONG, 0),
        "sealTimestamp": BeanField(LONG, 0),
    }
)
_TIER_SEGMENTS = BeanField(Table(Table(TIER_SEGMENT, 16, JavaType.LONG), 1024), FRESH)
TIERED_METADATA = Bean(
    {
        "commitLogFileSegmentTable": _TIER_SEGMENTS,
        "consumeQueueFileSegmentTable": _TIER_SEGMENTS,
        "indexFileSegmentTable": _TIER_SEGMENTS,
        "queueMetadataTable": BeanField(Table(Table(TIER_QUEUE, 16, JavaType.INT), 1024), FRESH),
        "topicMetadataTable": BeanField(Table(TIER_TOPIC, 1024), FRESH),
        "topicSerialNumber": BeanField(LONG, 0),
    }
)


class ConfigFile(NamedTuple):
    """A JSON file of a store: its root object, the first version that has it, and how it is written."""

    root: Bean
    since: str = "4.0.0"
    style: Style = Style.PRETTY


CONFIG_FILES: dict[str, ConfigFile] = {
    paths.TOPICS: ConfigFile(TOPICS),
    paths.SUBSCRIPTION_GROUP: ConfigFile(SUBSCRIPTION_GROUPS),
    paths.CONSUMER_OFFSET: ConfigFile(CONSUMER_OFFSETS),
    paths.LMQ_CONSUMER_OFFSET: ConfigFile(LMQ_CONSUMER_OFFSETS, "4.9.3"),
    paths.DELAY_OFFSET: ConfigFile(DELAY_OFFSETS),
    paths.CONSUMER_FILTER: ConfigFile(CONSUMER_FILTERS, "4.1.0"),
    paths.CONSUMER_ORDER_INFO: ConfigFile(CONSUMER_ORDER_INFO, "5.0.0"),
    paths.TOPIC_QUEUE_MAPPING: ConfigFile(TOPIC_QUEUE_MAPPINGS, "5.0.0"),
    paths.MESSAGE_REQUEST_MODE: ConfigFile(MESSAGE_REQUEST_MODES, "5.0.0"),
    paths.TIMER_METRICS: ConfigFile(TIMER_METRICS, "5.0.0", Style.BROWSER),
    paths.TRANSACTION_METRICS: ConfigFile(TRANSACTION_METRICS, "5.2.0", Style.BROWSER),
    paths.POSITION_CHECKPOINT: ConfigFile(COMPACTION_POSITIONS, "5.1.0"),
    paths.TIERED_METADATA: ConfigFile(TIERED_METADATA, "5.1.0"),
}

# Values in RocksDB. Version 1 of the configuration and 5.4's single database write them browser compatible, version 2
# and POP's state compact.
ROCKSDB_OFFSETS = Bean({"offsetTable": BeanField(QUEUE_OFFSETS, FRESH)})
POP_CONSUMER_RECORD = Bean(
    {
        "popTime": BeanField(LONG, 0),
        "groupId": BeanField(STRING),
        "topicId": BeanField(STRING),
        "queueId": BeanField(INT, 0),
        "retryFlag": BeanField(INT, 0),
        "invisibleTime": BeanField(LONG, 0),
        "offset": BeanField(LONG, 0),
        "attemptTimes": BeanField(INT, 0),
        "attemptId": BeanField(STRING),
    }
)

# Bodies of the records of the revive topic, by upstream's short names: c is the group, t the topic, q the queue id, bn
# the broker, so the start offset, pt the pop time. A check point also has n messages, bm acked bits, d distances from
# the start offset, it the invisible time, ro the revive offset, rp how often it was put again. An ack has ao, the acked
# offset; a batch ack has aol, the list of them.
POP_CHECK_POINT = Bean(
    {
        "bm": BeanField(INT, 0),
        "bn": BeanField(STRING),
        "c": BeanField(STRING),
        "d": BeanField(Sequence(INT)),
        "it": BeanField(LONG, 0),
        "n": BeanField(INT, 0),
        "pt": BeanField(LONG, 0),
        "q": BeanField(INT, 0),
        "reviveTime": BeanField(LONG, ignored=True),
        "ro": BeanField(LONG, 0),
        "rp": BeanField(STRING, None, "5.3.1"),
        "so": BeanField(LONG, 0),
        "t": BeanField(STRING),
    }
)
POP_ACK = Bean(
    {
        "ao": BeanField(LONG, 0),
        "bn": BeanField(STRING),
        "c": BeanField(STRING),
        "pt": BeanField(LONG, 0),
        "q": BeanField(INT, 0),
        "so": BeanField(LONG, 0),
        "t": BeanField(STRING),
    }
)
POP_BATCH_ACK = Bean(
    {
        "ao": BeanField(LONG, 0),
        "aol": BeanField(Sequence(LONG)),
        "bn": BeanField(STRING),
        "c": BeanField(STRING),
        "pt": BeanField(LONG, 0),
        "q": BeanField(INT, 0),
        "so": BeanField(LONG, 0),
        "t": BeanField(STRING),
    }
)
