"""Consumption by POP, frame by frame: what is popped is invisible until it is acked or comes back."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.engine.reader import StoreReader
from rmqtool.errors import ReadFailed
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from tests.support import wire
from tests.support.manual_clock import SetForward
from tests.support.waiting import PATIENCE, wait_for
from tests.support.wire_client import WireClient, heartbeat, send_fields, served

ONE_QUEUE = {"queueId": 0, "maxMsgNums": 32, "invisibleTime": 60_000, "bornTime": 0, "initMode": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with served() as found:
        yield found


@pytest.fixture
def client(server: Any) -> Iterator[WireClient]:
    with WireClient(server.broker) as found:
        yield found


def pop_fields(topic: str, wait: int = 0, **more: Any) -> dict[str, Any]:
    fields = {"consumerGroup": "G", "topic": topic, "pollTime": wait, "expType": "TAG", "exp": "*", "order": False}
    return {**ONE_QUEUE, **fields, **more}


def put(client: WireClient, topic: str, *bodies: bytes, **more: Any) -> None:
    for body in bodies:
        assert client.ask(310, send_fields(topic, **more), body).code == 0
    client.ask(30, {"topic": topic, "queueId": 0})


def records_of(body: bytes) -> list[Message]:
    found, at = [], 0
    while at < len(body):
        record = decode_record(body, at)
        assert isinstance(record, Message)
        found.append(record)
        at += record.total_size
    return found


def bodies(answer: Any) -> list[bytes]:
    return [record.raw_body for record in records_of(answer.body)]


def receipt(answer: Any, queue_id: int, offset: int, flag: str = "0") -> str:
    """Return the handle of one message as a client makes it of the answer."""
    told = answer.ext
    starts = dict(one.rsplit(" ", 1) for one in told["startOffsetInfo"].split(";"))
    times = f"{told['popTime']} {told['invisibleTime']} {told['reviveQid']}"
    return f"{starts[f'{flag} {queue_id}']} {times} {flag} DEFAULT_BROKER {queue_id} {offset}"


def ack_fields(answer: Any, topic: str, offset: int, queue_id: int = 0, flag: str = "0") -> dict[str, Any]:
    fields = {"consumerGroup": "G", "topic": topic, "queueId": queue_id, "offset": offset}
    return {**fields, "extraInfo": receipt(answer, queue_id, offset, flag)}


def test_an_answer_has_the_fields_of_the_recorded_one(client: WireClient) -> None:
    recorded = next(
        frame
        for frame, row in wire.with_rows(wire.decoded_frames())
        if row is not None and row.code == 200050 and not frame.from_client and frame.code == 0
    )
    put(client, "Shape", b"a", b"b")
    found = client.ask(200050, pop_fields("Shape", queueId=-1))
    assert (found.code, found.remark) == (0, "FOUND")
    assert sorted(found.ext) == sorted(recorded.ext)
    assert recorded.ext["startOffsetInfo"].startswith("0 ")
    assert found.ext["startOffsetInfo"] == "0 0 0"
    assert found.ext["msgOffsetInfo"] == "0 0 0,1"
    assert found.ext["restNum"] == "0"
    assert bodies(found) == [b"a", b"b"]


def test_what_is_popped_is_invisible_and_what_is_acked_does_not_come_back(client: WireClient) -> None:
    put(client, "Back", b"0", b"1", b"2", b"3")
    begun = time.monotonic()
    found = client.ask(200050, pop_fields("Back", invisibleTime=1000))
    assert bodies(found) == [b"0", b"1", b"2", b"3"]
    assert client.ask(200053, ack_fields(found, "Back", 3) | {"invisibleTime": 30_000}).code == 0
    assert client.ask(200050, pop_fields("Back")).code == ResponseCode.POLLING_TIMEOUT
    assert client.ask(200051, ack_fields(found, "Back", 1)).code == 0
    again: list[Message] = []
    answer = found
    while len(again) < 2:
        answer = client.ask(200050, pop_fields("Back", 200))
        assert time.monotonic() - begun < PATIENCE
        again += records_of(answer.body)
    assert [one.raw_body for one in again] == [b"0", b"2"]
    # A real broker: 1 s after they are visible its service looks, and then the records must be 2 s old.
    assert time.monotonic() - begun > 2
    assert {one.topic for one in again} == {"Back"}
    assert {one.reconsume_times for one in again} == {1}
    assert again[1].properties["POP_CK"] == receipt(answer, 0, again[1].queue_offset, "1")
    retry = "%RETRY%G_Back"
    for offset in (0, 1):
        assert client.ask(200051, ack_fields(answer, retry, offset, flag="1")).code in (0, ResponseCode.NO_MESSAGE)


def test_a_pop_waits_for_a_message_and_the_first_one_gets_it(server: Any, client: WireClient) -> None:
    put(client, "Wait", b"before")
    assert bodies(client.ask(200050, pop_fields("Wait"))) == [b"before"]
    with WireClient(server.broker) as one, WireClient(server.broker) as two, WireClient(server.broker) as three:
        first = one.send(200050, pop_fields("Wait", 60_000))
        asked = {"consumerGroup": "G", "topic": "Wait", "queueId": 0}
        wait_for(lambda: client.ask(200055, asked).ext["pollingNum"] == "1")
        second = two.send(200050, pop_fields("Wait", 300))
        assert bodies(client.ask(200050, pop_fields("Wait", consumerGroup="Told"))) == [b"before"]
        told = three.send(200054, pop_fields("Wait", 60_000, consumerGroup="Told"))
        put(client, "Wait", b"one")
        assert bodies(one.answer_to(first)) == [b"one"]
        assert three.answer_to(told).ext["hasMsg"] == "true"
        assert two.answer_to(second).code == ResponseCode.POLLING_TIMEOUT
    assert client.ask(200054, {**pop_fields("Wait", 0), "consumerGroup": "G"}).ext["hasMsg"] == "false"


def test_tags_select_what_is_popped(client: WireClient) -> None:
    put(client, "Tags", b"a", i="TAGS\x01A\x02")
    put(client, "Tags", b"b", i="TAGS\x01B\x02")
    assert bodies(client.ask(200050, pop_fields("Tags", exp="B"))) == [b"b"]
    assert client.ask(200050, pop_fields("Tags", exp="A")).code == ResponseCode.POLLING_TIMEOUT


def test_the_answer_to_another_time_has_the_new_handle(client: WireClient) -> None:
    put(client, "Longer", b"x")
    found = client.ask(200050, pop_fields("Longer", invisibleTime=1000))
    fields = ack_fields(found, "Longer", 0) | {"invisibleTime": 30_000}
    changed = client.ask(200053, fields)
    assert changed.code == 0
    assert changed.ext.keys() == {"popTime", "invisibleTime", "reviveQid"}
    assert (changed.ext["invisibleTime"], changed.ext["reviveQid"]) == ("30000", found.ext["reviveQid"])
    assert int(changed.ext["popTime"]) >= int(found.ext["popTime"])


def test_a_proxy_acks_many_at_once(tmp_path: Path) -> None:
    rmqtool.init(tmp_path / "store", conf={"mappedFileSizeCommitLog": "1048576"})
    with rmqtool.serve(tmp_path / "store") as server, WireClient(server.broker) as client:
        put(client, "Many", b"0", b"1", b"2")
        found = client.ask(200050, pop_fields("Many"))
        one = {"c": "G", "t": "Many", "r": "0", "so": 0, "q": 0, "rq": int(found.ext["reviveQid"])}
        one |= {"pt": int(found.ext["popTime"]), "it": 60_000, "b": base64.b64encode(b"\x05").decode()}
        body = json.dumps({"acks": [one], "brokerName": "DEFAULT_BROKER"}).encode()
        assert client.ask(200151, {}, body).code == 0
        assert client.ask(200151, {}, b'{"acks":[],"brokerName":"b"}').code == ResponseCode.NO_MESSAGE
    waiting = [one for one in rmqtool.scan(tmp_path / "store") if one.get("tags") == "bAck"]
    assert [json.loads(one["body"])["aol"] for one in waiting] == [[0, 2]]
    assert waiting[0]["properties"]["REAL_TOPIC"] == "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER, "pop message's num is greater than 32"),
        ({"topic": "PopNo"}, ResponseCode.TOPIC_NOT_EXIST, "topic[PopNo] not exist, apply first please!"),
        ({"queueId": 77}, ResponseCode.INVALID_PARAMETER, "queueId[77] is illegal"),
        (
            {"expType": "SQL92", "exp": "a >"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription",
        ),
        ({"bornTime": 1}, ResponseCode.POLLING_TIMEOUT, "pop message is timeout too much"),
    ],
)
def test_a_pop_is_refused_as_a_broker_refuses_it(
    client: WireClient, fields: dict[str, Any], code: int, remark: str
) -> None:
    put(client, "Refused", b"x")
    found = client.ask(200050, pop_fields("Refused") | fields)
    assert found.code == code
    assert remark in (found.remark or "")


def test_an_ack_of_nothing_is_refused(client: WireClient) -> None:
    put(client, "Acks", b"x")
    found = client.ask(200050, pop_fields("Acks"))
    fields = ack_fields(found, "Acks", 0)
    assert client.ask(200051, fields | {"offset": 9}).code == ResponseCode.NO_MESSAGE
    assert client.ask(200051, fields | {"queueId": 99}).code == ResponseCode.MESSAGE_ILLEGAL
    assert client.ask(200051, fields | {"topic": "AcksNo"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(200051, fields | {"extraInfo": "nonsense"}).code == ResponseCode.SYSTEM_ERROR
    assert client.ask(200053, fields | {"invisibleTime": 1, "offset": 1}).code == ResponseCode.NO_MESSAGE
    # A proxy adds the physical offset to the handle.
    assert client.ask(200051, fields | {"extraInfo": fields["extraInfo"] + " 1394667472"}).code == 0


def test_in_order_the_next_message_waits_for_the_ack_of_the_one_before(server: Any, client: WireClient) -> None:
    put(client, "Order", b"0", b"1", b"2")
    first = client.ask(200050, pop_fields("Order", order=True, maxMsgNums=2, attemptId="one"))
    assert bodies(first) == [b"0", b"1"]
    assert first.ext["reviveQid"] == "999"
    assert first.ext["orderCountInfo"] == "0 0 0"
    # The answer may have been lost: the same attempt gets the same, another one nothing.
    same = client.ask(200050, pop_fields("Order", order=True, maxMsgNums=2, attemptId="one"))
    assert bodies(same) == [b"0", b"1"]
    assert client.ask(200050, pop_fields("Order", order=True, attemptId="two")).code == ResponseCode.POLLING_TIMEOUT
    with WireClient(server.broker) as other:
        waiting = other.send(200050, pop_fields("Order", 10_000, order=True, attemptId="two"))
        assert client.ask(200051, ack_fields(same, "Order", 0)).code == 0
        assert client.ask(14, {"consumerGroup": "G", "topic": "Order", "queueId": 0}).ext["offset"] == "1"
        assert client.ask(200051, ack_fields(same, "Order", 1)).code == 0
        last = other.answer_to(waiting)
    assert bodies(last) == [b"2"]
    assert client.ask(200051, ack_fields(last, "Order", 2)).code == 0
    assert client.ask(14, {"consumerGroup": "G", "topic": "Order", "queueId": 0}).ext["offset"] == "3"
    illegal = client.ask(200051, ack_fields(last, "Order", 2) | {"offset": 3})
    assert illegal.code == ResponseCode.MESSAGE_ILLEGAL


def test_in_order_what_is_not_acked_comes_again_in_its_place(client: WireClient) -> None:
    put(client, "Again", b"0", b"1")
    first = client.ask(200050, pop_fields("Again", order=True, maxMsgNums=1, invisibleTime=400, attemptId="one"))
    assert bodies(first) == [b"0"]
    born = int(time.time() * 1000)
    again = client.ask(200050, pop_fields("Again", 10_000, order=True, bornTime=born, attemptId="two"))
    assert bodies(again) == [b"0", b"1"]
    assert again.ext["orderCountInfo"] == "0 qo0%0 1;0 0 0"
    longer = client.ask(200053, ack_fields(again, "Again", 0) | {"invisibleTime": 90_000})
    assert int(longer.ext["invisibleTime"]) >= 90_000
    assert longer.ext["reviveQid"] == "999"


def test_what_is_in_flight_in_order_survives_a_restart(tmp_path: Path) -> None:
    rmqtool.init(tmp_path / "store", conf={"mappedFileSizeCommitLog": "1048576"})
    fields = pop_fields("Kept", order=True, attemptId="one")
    with rmqtool.serve(tmp_path / "store") as server, WireClient(server.broker) as client:
        put(client, "Kept", b"0", b"1")
        first = client.ask(200050, fields)
        assert client.ask(200051, ack_fields(first, "Kept", 0)).code == 0
    text = (tmp_path / "store/config/consumerOrderInfo.json").read_text()
    # Keys that are numbers are not in quotes, as upstream writes them.
    kept = json.loads(re.sub(r"(?<=\{)0:", '"0":', text))
    assert kept["table"]["Kept@G"]["0"] | {"l": 0} == {
        "a": "one",
        "cm": 1,
        "i": 60_000,
        "l": 0,
        "o": [0, 1],
        "popTime": int(first.ext["popTime"]),
    }
    with rmqtool.serve(tmp_path / "store") as server, WireClient(server.broker) as client:
        assert client.ask(200050, fields | {"attemptId": "two"}).code == ResponseCode.POLLING_TIMEOUT
        again = client.ask(200050, fields)
        assert bodies(again) == [b"1"]


def test_an_administrator_says_which_groups_pop(client: WireClient) -> None:
    put(client, "Mode", b"x")
    client.ask(34, {}, heartbeat("c1", "Poppers", {"Mode": "*"}))
    asked = {"clientId": "c1", "consumerGroup": "Poppers", "messageModel": "CLUSTERING", "strategyName": "AVG"}

    def assigned(topic: str) -> list[tuple[int, str]]:
        body = json.loads(client.ask(400, {}, json.dumps(asked | {"topic": topic}).encode()).body)
        return [(one["messageQueue"]["queueId"], one["mode"]) for one in body["messageQueueAssignments"]]

    assert sorted(assigned("Mode")) == [(number, "PULL") for number in range(4)]
    mode = {"consumerGroup": "Poppers", "topic": "Mode", "mode": "POP", "popShareQueueNum": 8}
    assert client.ask(401, {}, json.dumps(mode).encode()).code == 0
    assert assigned("Mode") == [(-1, "POP")]
    assert assigned("%RETRY%Poppers") == [(0, "PULL")]
    kept = json.loads(client.ask(402).body)["messageRequestModeMap"]
    assert kept["Mode"]["Poppers"] == mode
    assert client.ask(401, {}, json.dumps(mode | {"topic": "ModeNo"}).encode()).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(400, {}, json.dumps(asked | {"topic": "ModeNo"}).encode()).body == b"{}"


def test_a_broker_of_4_9_does_not_know_pop() -> None:
    with served(version="4.9") as server, WireClient(server.broker) as client:
        for code in (200050, 200051, 200151, 200053, 200054, 200055, 400, 401, 370):
            assert client.ask(code, pop_fields("T")).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_timer_message_is_recalled_by_its_handle(client: WireClient) -> None:
    key = "7F0000011DA14E0E2F2A5E8CAFEF0009"
    later = f"TIMER_DELAY_MS\x012500\x02UNIQ_KEY\x01{key}\x02"
    sent = client.ask(310, send_fields("Recall", later), b"no")
    handle = base64.urlsafe_b64decode(sent.ext["recallHandle"]).decode().split(" ")
    assert [handle[0], handle[1], handle[2], handle[4]] == ["v1", "Recall", "DEFAULT_BROKER", key]
    fields = {"producerGroup": "PG", "topic": "Recall", "recallHandle": sent.ext["recallHandle"]}
    assert client.ask(370, fields | {"topic": "RecallNo"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(370, fields | {"recallHandle": "xyz"}).code == ResponseCode.ILLEGAL_OPERATION
    recalled = client.ask(370, fields)
    assert (recalled.code, recalled.ext["msgId"]) == (0, key)
    kept = client.ask(310, send_fields("Recall", "TIMER_DELAY_MS\x012500\x02"), b"yes")
    assert kept.code == 0
    born = int(time.time() * 1000)
    answer = client.ask(200050, pop_fields("Recall", 15_000, bornTime=born))
    assert bodies(answer) == [b"yes"]


def test_a_look_takes_nothing(client: WireClient) -> None:
    put(client, "Peeked", b"one", b"two", b"three")
    fields = {"topic": "Peeked", "queueId": 0, "maxMsgNums": 2, "consumerGroup": "G"}
    for _ in range(2):
        found = client.ask(200052, fields)
        assert (found.code, bodies(found), found.ext["restNum"]) == (0, [b"one", b"two"], "3")
    assert bodies(client.ask(200050, pop_fields("Peeked"))) == [b"one", b"two", b"three"]
    assert client.ask(200052, fields).code == ResponseCode.PULL_NOT_FOUND
    assert client.ask(200052, fields | {"topic": "PeekedNo"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_pop_takes_no_more_than_its_answer_has_room_for() -> None:
    """Eight queues with a message of 2.5 MB each: a frame has 16 MiB."""
    large = b"x" * 2_500_000
    with served() as found, WireClient(found.broker) as client:
        settings = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        settings |= {"topic": "Large", "defaultTopic": "TBW102", "topicSysFlag": 0, "order": False}
        assert client.ask(17, settings).code == 0
        for queue_id in range(8):
            assert client.ask(310, send_fields("Large", e=queue_id), large).code == 0
        taken = [client.ask(200050, pop_fields("Large", queueId=-1)) for _ in range(2)]
        assert [one.code for one in taken] == [0, 0]
        assert [len(bodies(one)) for one in taken] == [4, 4]


def test_what_a_pop_took_is_answered_where_a_later_queue_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    real = StoreReader.get

    def get(self: StoreReader, topic: str, queue_id: int, *more: Any, **how: Any) -> Any:
        if (topic, queue_id) == ("Unread", 3):
            raise ReadFailed("cannot read", file="commitlog")
        return real(self, topic, queue_id, *more, **how)

    with served() as found, WireClient(found.broker) as client:
        for queue_id in range(4):
            put(client, "Unread", b"%d" % queue_id, e=queue_id)
        monkeypatch.setattr(StoreReader, "get", get)
        taken = [client.ask(200050, pop_fields("Unread", queueId=-1)) for _ in range(20)]
    assert sorted(body for one in taken if one.code == 0 for body in bodies(one)) == [b"0", b"1", b"2"]


def test_a_pop_that_waits_when_its_topic_is_deleted_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetForward(monkeypatch)
    with served() as found, WireClient(found.broker) as client, WireClient(found.broker) as other:
        put(client, "Gone", b"one")
        assert bodies(client.ask(200050, pop_fields("Gone"))) == [b"one"]
        held = client.send(200050, pop_fields("Gone", 600_000, queueId=-1))
        # When the next request of a connection is answered, the pop before it waits.
        assert client.ask(30, {"topic": "Gone", "queueId": 0}).code == 0
        assert other.ask(215, {"topic": "Gone"}).code == 0
        clock.advance(600_000)
        assert client.answer_to(held).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("v2", "retry", "wakes"), [("false", "%RETRY%G_Woken", False), ("true", "%RETRY%G+Woken", True)]
)
def test_what_comes_back_wakes_a_waiting_pop_as_at_a_broker_of_5_3(
    v2: str, retry: str, wakes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with Java members: at a real 5.3.3 an unacked message comes with the next pop, 15 seconds later at most."""
    clock = SetForward(monkeypatch)
    with served(conf={"enableRetryTopicV2": v2}) as found, WireClient(found.broker) as client:
        put(client, "Woken", b"one")
        assert bodies(client.ask(200050, pop_fields("Woken", invisibleTime=10))) == [b"one"]
        with WireClient(found.broker) as waits:
            held = waits.send(200050, pop_fields("Woken", 600_000))
            wait_for(lambda: (client.ask(30, {"topic": retry, "queueId": 0}).ext or {}).get("offset") == "1")
            if not wakes:
                # Several rounds of what answers pops later.
                time.sleep(0.5)
                asked = {"consumerGroup": "G", "topic": "Woken", "queueId": 0}
                assert client.ask(200055, asked).ext["pollingNum"] == "1"
                clock.advance(600_000)
            assert bodies(waits.answer_to(held)) == [b"one"]
