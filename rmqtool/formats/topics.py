"""Topic names: the kinds of topics, the topics that a broker creates itself, the names that it accepts.

The kind of a topic follows from its name, with one exception: a broker has topics named after itself and its cluster
(``own_names``). The delay levels are here too: each has a queue of the topic of delayed messages.

Upstream: ``TopicValidator``, ``MixAll``, ``KeyBuilder``, ``NamespaceUtil``, ``PopAckConstants``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from rmqtool.formats.codes import is_since
from rmqtool.formats.java import int64, parse_long

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
REPLY_SUFFIX = "_REPLY_TOPIC"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
# New topics inherit the settings of this one, if autoCreateTopicEnable is on.
AUTO_CREATE_TOPIC = "TBW102"
TIMER_TOPIC = SYSTEM_PREFIX + "wheel_timer"
REVIVE_PREFIX = SYSTEM_PREFIX + "REVIVE_LOG_"
SYNC_MEMBER_PREFIX = SYSTEM_PREFIX + "SYNC_BROKER_MEMBER_"

# The groups by which a broker itself consumes the half topics, and the revive topic of POP.
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

# Limits of names, in characters; which one applies depends on the broker's version.
MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_LENGTH = 255
MAX_GROUP_LENGTH = 120
MAX_GROUP_LENGTH_BEFORE_5_4 = 255

# The characters that brokers accept in names of topics and groups.
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")

# Topics with a meaning that upstream fixed, and the first version that reserves the name.
SYSTEM_TOPICS: dict[str, str] = {
    AUTO_CREATE_TOPIC: "4.0.0",
    "BenchmarkTest": "4.0.0",
    OFFSET_MOVED_EVENT: "4.0.0",
    "SELF_TEST_TOPIC": "4.0.0",
    SCHEDULE_TOPIC: "4.0.0",
    HALF_TOPIC: "4.3.0",
    OP_HALF_TOPIC: "4.3.0",
    CHECK_MAX_TIME_TOPIC: "4.3.0",
    "RMQ_SYS_TRACE_TOPIC": "4.4.0",
    "CHECKPOINT_TOPIC": "5.2.0",
    ROCKSDB_HALF_TOPIC: "5.4.0",
    ROCKSDB_OP_HALF_TOPIC: "5.4.0",
}

# System topics to which a client may not send.
NOT_ALLOWED_TO_SEND = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        OFFSET_MOVED_EVENT,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    }
)


class TopicKind(StrEnum):
    """The kind of a topic, as its name shows."""

    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"
    LMQ = "lmq"


def topic_kind(topic: str, own_names: Collection[str] = ()) -> TopicKind:
    """Return the kind of a topic; ``own_names`` are the names of its cluster and broker."""
    for prefix, kind in (
        (RETRY_PREFIX, TopicKind.RETRY),
        (DLQ_PREFIX, TopicKind.DLQ),
        (LMQ_PREFIX, TopicKind.LMQ),
        (SYSTEM_PREFIX, TopicKind.SYSTEM),
    ):
        if topic.startswith(prefix):
            return kind
    if topic in SYSTEM_TOPICS or topic in own_names or topic.endswith(REPLY_SUFFIX):
        return TopicKind.SYSTEM
    return TopicKind.NORMAL


def find_own_names(topic_config_table: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of cluster and broker that ``topics.json`` reveals.

    They are parts of the names of the reply, revive and member topics. 4.9 has no such topic for the broker, but its
    own topic shows by its permission: new topics may inherit from it, as from the cluster's topic and TBW102, and from
    no other.
    """
    found = set()
    for topic, config in topic_config_table.items():
        for name in (
            topic.removesuffix(REPLY_SUFFIX),
            topic.removeprefix(REVIVE_PREFIX),
            topic.removeprefix(SYNC_MEMBER_PREFIX),
        ):
            if name != topic and name in topic_config_table:
                found.add(name)
        if config.get("perm") == PERM_READ | PERM_WRITE | PERM_INHERIT and topic != AUTO_CREATE_TOPIC:
            found.add(topic)
    return frozenset(found)


def is_allowed_to_send(topic: str, version: str) -> bool:
    """Return whether a broker of ``version`` accepts messages of clients to ``topic``."""
    return topic not in NOT_ALLOWED_TO_SEND or not is_since(version, SYSTEM_TOPICS[topic])


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def pop_retry_topic(group: str, topic: str, *, v2: bool = False) -> str:
    """Return POP's retry topic. The second naming, from 5.2 on and off by default, has a plus."""
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def original_topic(topic: str, group: str) -> str:
    """Return the topic whose retry topic of ``group`` this is; ``topic`` itself if it is not one."""
    for separator in "+_":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retried_group(topic: str) -> str | None:
    """Return the group of a retry or dead-letter topic, or None.

    For POP's first naming the result is ``group_topic``: a group name can contain underscores, so the two cannot be
    separated.
    """
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :].partition("+")[0]
    return None


def split_namespace(name: str) -> tuple[str, str]:
    """Return the namespace and the rest of a name that a client with a namespace changed; else an empty namespace.

    The rest is without ``%RETRY%`` and ``%DLQ%``.
    """
    bare = name
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        bare = bare.removeprefix(prefix)
    namespace, percent, rest = bare.partition("%")
    return (namespace, rest) if namespace and percent else ("", bare)


# Bytes of a file name; file systems do not allow longer ones.
_NAME_LIMIT = 255
# A topic of such a name would have the directory of all topics, or the one above that, as its own.
_NO_NAMES = frozenset({"", ".", ".."})


def is_directory_name(topic: str) -> bool:
    """Return whether a topic can be the directory of its queues. Names like ``..`` must not reach other directories."""
    try:
        raw = topic.encode()
    except UnicodeEncodeError:
        return False
    return topic not in _NO_NAMES and "/" not in topic and "\0" not in topic and len(raw) <= _NAME_LIMIT


def check_topic_name(topic: str, version: str) -> str | None:
    """Return why a broker of ``version`` refuses to create ``topic``, or None."""
    if not topic or topic.isspace():
        return "a topic needs a name"
    if not _LEGAL.fullmatch(topic):
        return f"topic {topic!r} has characters other than % | a-z A-Z 0-9 _ -"
    long_name = topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) and is_since(version, "5.4.0")
    limit = MAX_RETRY_TOPIC_LENGTH if long_name else MAX_TOPIC_LENGTH
    if len(topic) > limit:
        return f"topic of {len(topic)} characters, at most {limit} are allowed"
    return None


def check_group_name(group: str, version: str) -> str | None:
    """Return why a broker of ``version`` refuses a group of this name, or None."""
    if not group or group.isspace():
        return "a group needs a name"
    if not _LEGAL.fullmatch(group):
        return f"group {group!r} has characters other than % | a-z A-Z 0-9 _ -"
    limit = MAX_GROUP_LENGTH if is_since(version, "5.4.0") else MAX_GROUP_LENGTH_BEFORE_5_4
    if len(group) > limit:
        return f"group of {len(group)} characters, at most {limit} are allowed"
    return None


# Bits of ``perm`` in the configuration of a topic.
PERM_PRIORITY = 0x8
PERM_READ = 0x4
PERM_WRITE = 0x2
PERM_INHERIT = 0x1

# How long messages of each level are delayed. The topic of delayed messages has a queue for each default level.
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SCHEDULE_QUEUES = len(DEFAULT_DELAY_LEVELS.split())
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of ``messageDelayLevel`` in ms, level 1 first; a broker with any other text does not start.

    Such a text raises ValueError. Words have a single space between them; a text of spaces has no levels. upstream:
    ``parseDelayLevel`` takes ``Long.parseLong`` of a number, so a delay can be negative, and the product overflows.
    """
    words = text.split(" ")
    while len(words) > 1 and not words[-1]:
        words.pop()
    if text and words == [""]:
        return ()
    return tuple(map(_delay, words))


def _delay(word: str) -> int:
    number = parse_long(word[:-1])
    if number is None or word[-1] not in _UNIT_MS:
        raise ValueError(f"{word!r} is not a delay: write a number and one of s, m, h, d")
    return int64(number * _UNIT_MS[word[-1]])


class OwnTopic(NamedTuple):
    """A topic that a broker creates at its first start."""

    name: str
    queues: int
    perm: int
    since: str
    needs: str | None = None  # the setting that must be on


_READ_WRITE = PERM_READ | PERM_WRITE
_ALL = _READ_WRITE | PERM_INHERIT

# {cluster} and {broker} are names from the settings.
_OWN_TOPICS = (
    OwnTopic("SELF_TEST_TOPIC", 1, _READ_WRITE, "4.0.0"),
    OwnTopic(AUTO_CREATE_TOPIC, 8, _ALL, "4.0.0", "autoCreateTopicEnable"),
    OwnTopic("BenchmarkTest", 1024, _READ_WRITE, "4.0.0"),
    OwnTopic("{cluster}", 16, _ALL, "4.0.0"),
    OwnTopic("{broker}", 1, _ALL, "4.0.0"),
    OwnTopic(OFFSET_MOVED_EVENT, 1, _READ_WRITE, "4.0.0"),
    OwnTopic(SCHEDULE_TOPIC, SCHEDULE_QUEUES, _READ_WRITE, "4.0.0"),
    OwnTopic("RMQ_SYS_TRACE_TOPIC", 1, _READ_WRITE, "4.4.0", "traceTopicEnable"),
    OwnTopic("{cluster}" + REPLY_SUFFIX, 1, _READ_WRITE, "4.6.0"),
    OwnTopic(REVIVE_PREFIX + "{cluster}", 8, _READ_WRITE, "5.0.0"),
    OwnTopic(SYNC_MEMBER_PREFIX + "{broker}", 1, PERM_INHERIT, "5.0.0"),
    OwnTopic(HALF_TOPIC, 1, _READ_WRITE, "5.0.0"),
    OwnTopic(OP_HALF_TOPIC, 1, _READ_WRITE, "5.0.0"),
    OwnTopic(ROCKSDB_HALF_TOPIC, 1, _READ_WRITE, "5.4.0"),
    OwnTopic(ROCKSDB_OP_HALF_TOPIC, 1, _READ_WRITE, "5.4.0"),
    OwnTopic(TIMER_TOPIC, 1, _READ_WRITE, "5.0.0", "timerWheelEnable"),
)


def iter_own_topics(version: str, cluster: str, broker: str) -> Iterator[OwnTopic]:
    """Yield the topics that a broker of ``version`` can have in ``topics.json`` after its first start.

    A topic with ``needs`` is there only if that setting is on. The settings ``defaultTopicQueueNums`` and
    ``reviveQueueNum`` (8 each) replace the numbers of TBW102 and the revive topic.
    """
    for topic in _OWN_TOPICS:
        if is_since(version, topic.since):
            yield topic._replace(name=topic.name.format(cluster=cluster, broker=broker))
