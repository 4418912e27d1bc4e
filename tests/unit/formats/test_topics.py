"""Topic names. The sets and limits are what ``TopicValidator`` of 4.9.7, 5.3.3 and 5.4.0 answered."""

from __future__ import annotations

import pytest

from rmqtool.formats import topics
from rmqtool.formats.dispatch import topic_allows_lmq
from rmqtool.formats.topics import TopicKind

OLD = {
    "BenchmarkTest", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC", "TBW102", "TRANS_CHECK_MAX_TIME_TOPIC",
}  # fmt: skip
NOT_TO_SEND = {
    "OFFSET_MOVED_EVENT", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX",
    "SELF_TEST_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
}  # fmt: skip
ROCKSDB = {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}


@pytest.mark.parametrize(
    ("version", "reserved", "closed"),
    [
        ("4.9", OLD, NOT_TO_SEND),
        ("5.3", OLD | {"CHECKPOINT_TOPIC"}, NOT_TO_SEND),
        ("5.4", OLD | {"CHECKPOINT_TOPIC"} | ROCKSDB, NOT_TO_SEND | ROCKSDB),
    ],
)
def test_system_topics_of_a_version(version: str, reserved: set[str], closed: set[str]) -> None:
    since = {name for name, came in topics.SYSTEM_TOPICS.items() if topics.is_since(version, came)}
    assert since == reserved
    assert {name for name in topics.SYSTEM_TOPICS if not topics.is_allowed_to_send(name, version)} == closed
    assert topics.is_allowed_to_send("Orders", version)


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", TopicKind.NORMAL),
        ("%weird|name_1", TopicKind.NORMAL),
        ("", TopicKind.NORMAL),
        ("%RETRY%g", TopicKind.RETRY),
        ("%RETRY%g+T", TopicKind.RETRY),
        ("%DLQ%g", TopicKind.DLQ),
        ("%LMQ%q", TopicKind.LMQ),
        ("rmq_sys_wheel_timer", TopicKind.SYSTEM),
        ("rmq_sys_", TopicKind.SYSTEM),
        ("SCHEDULE_TOPIC_XXXX", TopicKind.SYSTEM),
        ("BenchmarkTest", TopicKind.SYSTEM),
        ("DefaultCluster_REPLY_TOPIC", TopicKind.SYSTEM),
        ("broker-a", TopicKind.SYSTEM),
        ("broker-b", TopicKind.NORMAL),
    ],
)
def test_kinds(topic: str, kind: TopicKind) -> None:
    assert topics.topic_kind(topic, {"DefaultCluster", "broker-a"}) is kind


def test_own_names_of_a_4_9_broker_show_in_their_permission() -> None:
    table = {"TBW102": {"perm": 7}, "C": {"perm": 7}, "b": {"perm": 7}, "T": {"perm": 6}, "C_REPLY_TOPIC": {"perm": 6}}
    assert topics.find_own_names(table) == {"C", "b"}


def test_own_names_of_a_5_x_broker_show_in_other_names() -> None:
    table = {
        "C": {},
        "b": {},
        "T": {},
        "rmq_sys_REVIVE_LOG_C": {},
        "rmq_sys_SYNC_BROKER_MEMBER_b": {},
        "X_REPLY_TOPIC": {},
    }
    assert topics.find_own_names(table) == {"C", "b"}


def test_retry_names() -> None:
    assert topics.retry_topic("g") == "%RETRY%g"
    assert topics.dlq_topic("g") == "%DLQ%g"
    assert topics.pop_retry_topic("g", "T") == "%RETRY%g_T"
    assert topics.pop_retry_topic("g", "T", v2=True) == "%RETRY%g+T"
    assert topics.original_topic("%RETRY%g_T", "g") == "T"
    assert topics.original_topic("%RETRY%g+T", "g") == "T"
    assert topics.original_topic("%RETRY%other_T", "g") == "%RETRY%other_T"
    assert topics.original_topic("T", "g") == "T"
    assert topics.retried_group("%RETRY%g+T") == "g"
    assert topics.retried_group("%RETRY%g_T") == "g_T"
    assert topics.retried_group("%DLQ%g") == "g"
    assert topics.retried_group("T") is None


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("NS%T", ("NS", "T")),
        ("%RETRY%NS%g", ("NS", "g")),
        ("T", ("", "T")),
        ("%RETRY%g", ("", "g")),
        ("%odd", ("", "%odd")),
    ],
)
def test_namespaces(name: str, split: tuple[str, str]) -> None:
    assert topics.split_namespace(name) == split


@pytest.mark.parametrize(
    ("topic", "version", "refusal"),
    [
        ("%weird|name_1-x", "4.9", None),
        ("", "4.9", "needs a name"),
        ("   ", "4.9", "needs a name"),
        ("a/b", "5.3", "characters other than"),
        ("a+b", "5.3", "characters other than"),
        ("中", "5.3", "characters other than"),
        ("T\n", "5.3", "characters other than"),
        ("x" * 127, "4.9", None),
        ("x" * 128, "4.9", "at most 127"),
        ("%RETRY%" + "x" * 121, "5.3", "at most 127"),
        ("%RETRY%" + "x" * 248, "5.4", None),
        ("%RETRY%" + "x" * 249, "5.4", "at most 255"),
        ("%DLQ%" + "x" * 200, "5.4", None),
        ("x" * 128, "5.4", "at most 127"),
    ],
)
def test_topic_names_that_brokers_take(topic: str, version: str, refusal: str | None) -> None:
    found = topics.check_topic_name(topic, version)
    assert (found is None) is (refusal is None)
    assert refusal is None or refusal in (found or "")


@pytest.mark.parametrize(
    ("group", "version", "refusal"),
    [
        ("g", "4.9", None),
        ("", "4.9", "needs a name"),
        ("a b", "5.3", "characters other than"),
        ("x" * 255, "5.3", None),
        ("x" * 256, "5.3", "at most 255"),
        ("x" * 120, "5.4", None),
        ("x" * 121, "5.4", "at most 120"),
    ],
)
def test_group_names(group: str, version: str, refusal: str | None) -> None:
    found = topics.check_group_name(group, version)
    assert (found is None) is (refusal is None)
    assert refusal is None or refusal in (found or "")


@pytest.mark.parametrize(
    ("topic", "allowed"),
    [("T", True), ("%LMQ%x", True), ("%RETRY%g", False), ("rmq_sys_x", False), ("SCHEDULE_TOPIC_XXXX", False)],
)
def test_light_queues(topic: str, allowed: bool) -> None:
    assert topic_allows_lmq(topic) is allowed
