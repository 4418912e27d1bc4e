"""A producer that sends one message after the other: the short way of the put, and dispatch in passes."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.broker.producer.send import ANY_QUEUE, Producer
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.formats.paths import TOPICS
from rmqtool.formats.property_names import UNIQ_KEY
from rmqtool.kernel import NATIVE
from rmqtool.store.config_files import config_text
from tests.support.engine_stores import read_bytes, small_setup
from tests.support.manual_clock import ManualClock

SEGMENT = 4 << 20
WAY: list[dict[str, Any]] = [
    {},
    {"properties": {"KEYS": "k", "TAGS": "TagA"}},
    {"properties": {"TAGS": "ä€😀", "UNIQ": "\ud800"}},
    {"properties": {"KEYS": "x" * 3000}},
    {"properties": {"KEYS": "x" * 40_000}},
    {"properties": {"WAIT": "false"}},
    {"properties": {UNIQ_KEY: "mine", "KEYS": "k"}},
    {"properties": {"__SHARDINGKEY": "order 7"}},
    {"properties": {"DELAY": "3"}},
    {"properties": {"CLUSTER": "another"}},
    {"properties": b"KEYS\x01encoded\x02"},
    {"properties": {"a": "1"}, "property_text": b"b\x012\x02"},
    {"body": b"y" * 5000},
    {"queue_id": 2},
    {"topic": "Other"},
    {"flag": 7, "born_timestamp": 5, "reconsume_times": 2},
    {"flag": 1 << 40},
    {"sys_flag": 1},
]


def a_message(**changes: Any) -> NewMessage:
    return NewMessage(**({"topic": "T", "body": b"body", "queue_id": ANY_QUEUE, "properties": {}} | changes))


def a_producer(store: MessageStore) -> Producer:
    topics = TopicConfigs(config_text(store.setup.files, TOPICS), store.setup.config.version, store.setup.clock)
    return Producer(store, topics, creates=True, turn=5)


def a_setup(version: Version = Version.V5_3) -> Setup:
    return small_setup(version, mappedFileSizeCommitLog=SEGMENT)


def send(store: MessageStore, producer: Producer, *messages: NewMessage) -> list[Any]:
    rows: list[Any] = []
    for message in messages:
        producer.check(message)
        rows += producer.send([message]).rows
    return rows


@pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3, Version.V5_4])
def test_the_short_way_stores_what_the_long_one_stores(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of message, twice, through both: the same bytes and results."""
    found = []
    for is_short in (True, False):
        setup = a_setup(version)
        with MessageStore.create(setup) as store:
            producer = a_producer(store)
            if not is_short:
                monkeypatch.setattr(store, "put_plain", lambda *_: None)
                monkeypatch.setattr(producer, "_send_plain", lambda _: None)
            rows = send(store, producer, *(a_message(**one) for one in WAY for _ in range(2)))
        found.append((rows, read_bytes(setup.files, f"commitlog/{0:020d}")))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    refusals = {"MESSAGE_ILLEGAL"} if version is Version.V4_9 else {"MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED"}
    assert {row[0] for row in found[0][0]} == {"PUT_OK", *refusals}


@pytest.mark.skipif(NATIVE is None, reason="the short way needs the kernel")
def test_plain_messages_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.create(a_setup()) as store:
        producer = a_producer(store)
        send(store, producer, a_message())
        monkeypatch.setattr(store, "put", None)
        assert len(send(store, producer, *(a_message(properties={"KEYS": "k"}) for _ in range(9)))) == 9
        queues = [(row[4], row[5]) for row in send(store, producer, *(a_message() for _ in range(4)))]
        assert [queue for queue, _ in queues] == [3, 0, 1, 2]


def test_what_a_burst_left_undispatched_is_read_all_the_same() -> None:
    with MessageStore.create(a_setup()) as store:
        producer = a_producer(store)
        rows = send(store, producer, *(a_message(queue_id=0) for _ in range(50)))
        condition = store.condition()
        assert condition.dispatched_offset < condition.committed_offset
        assert store.reader.get("T", 0, 49).messages[0].physical_offset == rows[-1][6]
        send(store, producer, a_message(queue_id=0))
        queue = store.find_queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 51
        send(store, producer, a_message(queue_id=0))
        assert [queue.max_offset for queue in store.queues()] == [52]


def test_a_listener_hears_of_each_message_at_once() -> None:
    with MessageStore.create(a_setup()) as store:
        producer, heard = a_producer(store), []
        store.add_listener(lambda queue, offset: heard.append((queue, offset)))
        for number in range(1, 6):
            send(store, producer, a_message(queue_id=0))
            assert heard[-1] == (("T", 0), number)


def test_dispatch_is_at_most_fifty_milliseconds_and_a_mebibyte_late() -> None:
    setup = a_setup()
    assert isinstance(setup.clock, ManualClock)
    with MessageStore.create(setup) as store:
        producer = a_producer(store)

        def behind() -> int:
            condition = store.condition()
            return condition.committed_offset - condition.dispatched_offset

        send(store, producer, a_message())
        assert behind() == 0
        send(store, producer, a_message())
        assert behind() > 0
        setup.clock.advance(49)
        send(store, producer, a_message())
        assert behind() > 0
        setup.clock.advance(1)
        send(store, producer, a_message())
        assert behind() == 0
        most = 0
        for _ in range(400):
            send(store, producer, a_message(body=bytes(4000)))
            most = max(most, behind())
        assert (1 << 20) - 8192 < most < 1 << 20


def test_after_a_kill_the_next_start_dispatches_what_the_burst_left() -> None:
    setup = a_setup()
    store = MessageStore.create(setup)
    rows = send(store, a_producer(store), *(a_message(queue_id=1, properties={"KEYS": "k"}) for _ in range(20)))
    assert store.condition().dispatched_offset <= rows[0][6] + 500
    store.abandon()
    recover(setup)
    with MessageStore.open(setup) as again:
        assert again.reader.bounds("T", 1).max_offset == 20
        assert again.reader.get("T", 1, 19, 1).messages[0].physical_offset == rows[-1][6]
