"""Which rights a request needs: topics, groups and the cluster, by both generations of access control."""

from __future__ import annotations

import pytest

from rmqtool.remoting.access import Need, needs, needs_admin, old_needs
from rmqtool.remoting.body import BodyError
from rmqtool.remoting.declared import CLUSTER, GROUP, TOPIC
from rmqtool.remoting.headers import Right
from rmqtool.remoting.requests import REQUESTS

SUB = frozenset({Right.SUB})
PUB = frozenset({Right.PUB})
SEND = dict.fromkeys("defgh", "0") | {"a": "PG", "b": "T", "c": "TBW102"}
PULL = {"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}  # fmt: skip
HEARTBEAT = b"""{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[
    {"topic":"T","subString":"*"},{"topic":"%RETRY%G","subString":"*"}]}],"producerDataSet":[{"groupName":"P"}]}"""
LOCK = b'{"clientId":"c","consumerGroup":"G","mqSet":[{"topic":"T","queueId":0},{"topic":"T","queueId":1}]}'

NEW = {
    "send": (310, SEND, b"", [Need(TOPIC, "T", PUB)]),
    "batch": (320, SEND, b"", [Need(TOPIC, "T", PUB)]),
    "send to a retry topic": (310, SEND | {"b": "%RETRY%G"}, b"", [Need(GROUP, "G", SUB)]),
    "pull": (11, PULL, b"", [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "lite pull": (361, PULL, b"", [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "pull of a retry topic": (11, PULL | {"topic": "%RETRY%G"}, b"", [Need(GROUP, "G", SUB)]),
    "heartbeat": (34, {}, HEARTBEAT, [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "lock": (41, {}, LOCK, [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "unlock": (42, {}, LOCK, [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "leave": (35, {"clientID": "c", "consumerGroup": "G"}, b"", [Need(GROUP, "G", SUB | PUB)]),
    "leave as a producer": (35, {"clientID": "c", "producerGroup": "P"}, b"", []),
    "bounds": (30, {"topic": "T", "queueId": "0"}, b"", [Need(TOPIC, "T", frozenset({Right.GET}))]),
    "statistics of some topics": (
        208,
        {"consumerGroup": "G", "topicList": "T;U"},
        b"",
        [Need(GROUP, "G", frozenset({Right.GET})), *(Need(TOPIC, t, frozenset({Right.GET})) for t in "TU")],
    ),
    "the cluster": (
        205, {"brokerName": "b"}, b"", [Need(CLUSTER, "", frozenset({Right.UPDATE}))],
    ),
    "a cluster by name": (
        901, {"clusterName": "C", "brokerName": "b"}, b"", [Need(CLUSTER, "C", frozenset({Right.GET}))],
    ),
    "nothing but a signature": (26, {}, b"", []),
}  # fmt: skip


@pytest.mark.parametrize(("code", "ext", "body", "wanted"), NEW.values(), ids=NEW)
def test_rights_of_5(code: int, ext: dict[str, str], body: bytes, wanted: list[Need]) -> None:
    row = REQUESTS[code]
    assert needs(row.decode(ext), body) == wanted


OLD = {
    "send": (310, SEND, b"", [Need(TOPIC, "T", PUB)]),
    "batch: only a signature": (320, SEND, b"", []),
    "send to a retry topic": (310, SEND | {"b": "%RETRY%G"}, b"", [Need(GROUP, "G", SUB)]),
    "pull": (11, PULL, b"", [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "again": (
        36, {"offset": "0", "group": "G", "delayLevel": "0", "originTopic": "T"}, b"", [Need(GROUP, "G", SUB)],
    ),
    "heartbeat": (34, {}, HEARTBEAT, [Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB)]),
    "lock: only a signature": (41, {}, LOCK, []),
    "bounds: only a signature": (30, {"topic": "T", "queueId": "0"}, b"", []),
    "create: an administrator": (200, {}, b"{}", []),
}  # fmt: skip


@pytest.mark.parametrize(("code", "ext", "body", "wanted"), OLD.values(), ids=OLD)
def test_rights_of_4(code: int, ext: dict[str, str], body: bytes, wanted: list[Need]) -> None:
    row = REQUESTS[code]
    assert old_needs(code, row.decode(ext), body) == wanted


def test_administrators_of_4() -> None:
    """upstream: Permission.ADMIN_CODE"""
    found = {row.code for row in REQUESTS.values() if needs_admin(row.request.decode_answer({}))}
    assert found == {17, 25, 200, 207, 215}


def test_a_heartbeat_that_cannot_be_read_gives_no_rights() -> None:
    row = REQUESTS[34]
    with pytest.raises(BodyError):
        needs(row.decode({}), b"{")
    with pytest.raises(BodyError):
        old_needs(34, row.decode({}), b"{")
