"""C2.1 to C2.16, and the rest of what a put may come to: every status, every rewriting, every place."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from rmqtool import kernel
from rmqtool.config import BrokerRole, Version
from rmqtool.engine.message import NewMessage, PutStatus, compressed
from rmqtool.engine.put import Intake
from rmqtool.engine.store import MessageStore
from rmqtool.formats.batches import BatchItem, encode_batch
from rmqtool.formats.codes import BLANK_MAGIC, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, BodyCodec
from rmqtool.formats.commit_log import Message
from rmqtool.formats.compression import Inflated, inflate_body
from rmqtool.formats.ids import decode_offset_msg_id
from tests.support.engine_stores import (
    SEGMENT,
    a_message,
    clock_of,
    during_next,
    iter_records,
    read_bytes,
    small_setup,
    small_store,
    units,
)
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

V4_9, V5_3, V5_4 = Version
every_version = pytest.mark.parametrize("version", list(Version))
since_5 = pytest.mark.parametrize("version", [V5_3, V5_4])

# A record of topic T with IPv4 hosts and no properties is this much larger than its body.
OVERHEAD = 92
IPV4 = (bytes((10, 0, 0, 7)), 4711)
IPV6 = (bytes(15) + b"\x01", 4711)


def stored(store: MessageStore) -> list[Message]:
    return list(iter_records(store.setup.files))


def sized(size: int) -> NewMessage:
    """Return a message whose record has ``size`` bytes."""
    return NewMessage("T", b"x" * (size - OVERHEAD))


@every_version
def test_a_record_that_does_not_fit_goes_to_the_next_segment(version: Version) -> None:
    """C2.1."""
    with small_store(version) as store:
        first, second = store.put(sized(SEGMENT // 2)), store.put(sized(SEGMENT // 2))
        assert (first.physical_offset, second.physical_offset) == (0, SEGMENT)
        data = read_bytes(store.setup.files, f"commitlog/{0:020d}")
        blank = SEGMENT // 2
        assert data[blank : blank + 8] == blank.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
        assert data[blank + 8 :] == bytes(SEGMENT - blank - 8)


@every_version
@pytest.mark.parametrize(("left", "where"), [(9, 2000), (8, 2000), (7, SEGMENT), (1, SEGMENT), (0, SEGMENT)])
def test_room_for_the_blank_must_be_left(version: Version, left: int, where: int) -> None:
    """C2.2."""
    with small_store(version) as store:
        store.put(sized(2000))
        put = store.put(sized(SEGMENT - 2000 - left))
        assert put.is_ok
        assert put.physical_offset == where


@every_version
def test_messages_of_a_queue_are_numbered(version: Version) -> None:
    """C2.3."""
    with small_store(version) as store:
        puts = [store.put(a_message(number)) for number in range(3)]
        assert [put.queue_offset for put in puts] == [0, 1, 2]
        assert puts[1].physical_offset == puts[0].end_offset
        assert puts[2].physical_offset == puts[1].end_offset
        for put in puts:
            assert put.offset_msg_id.endswith(f"{put.physical_offset:016X}")
            found = decode_offset_msg_id(put.offset_msg_id)
            assert found is not None
            assert found.host == "127.0.0.1:10911"
        assert [(one.queue_offset, one.physical_offset) for one in stored(store)] == [
            (put.queue_offset, put.physical_offset) for put in puts
        ]


@every_version
def test_a_body_above_the_limit_is_refused(version: Version) -> None:
    """C2.4."""
    with small_store(version, maxMessageSize=1000) as store:
        assert store.put(NewMessage("T", b"x" * 1001)).status is PutStatus.MESSAGE_ILLEGAL
        assert stored(store) == []
        assert store.put(NewMessage("T", b"x" * 1000)).is_ok


@pytest.mark.parametrize(
    ("version", "text", "status"),
    [
        (V4_9, "x" * 32766, PutStatus.MESSAGE_ILLEGAL),
        (V4_9, "\u00e9" * 16383, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (V5_3, "x" * 32765, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (V5_4, "\u00e9" * 16383, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (V4_9, "x" * 32765, PutStatus.PUT_OK),
        (V5_3, "x" * 32764, PutStatus.PUT_OK),
    ],
)
def test_properties_above_the_limit_are_refused(version: Version, text: str, status: PutStatus) -> None:
    """C2.5: 4.9 writes one byte less than 5.x for the same properties."""
    with small_store(version, mappedFileSizeCommitLog=1 << 16) as store:
        assert store.put(a_message(properties={"a": text})).status is status


@every_version
@pytest.mark.parametrize("refused", [{"body": bytes(5000)}, {"properties": {"DELAY": "x"}}, {"queue_id": -1}])
def test_a_refused_message_takes_no_number(version: Version, refused: dict[str, object]) -> None:
    """C2.6."""
    with small_store(version) as store:
        assert store.put(a_message(**refused)).status is PutStatus.MESSAGE_ILLEGAL
        put = store.put(a_message())
        assert (put.queue_offset, put.physical_offset) == (0, 0)


@pytest.mark.parametrize(
    ("version", "topic", "magic"),
    [
        (V4_9, "t" * 128, None),
        (V5_3, "t" * 128, None),
        (V4_9, "%RETRY%" + "t" * 121, None),
        (V5_3, "%RETRY%" + "t" * 121, MESSAGE_MAGIC_V2),
        (V5_4, "%RETRY%" + "t" * 248, MESSAGE_MAGIC_V2),
        (V5_4, "%RETRY%" + "t" * 249, None),
        (V4_9, "t" * 127, MESSAGE_MAGIC_V1),
        (V5_3, "%RETRY%" + "t" * 120, MESSAGE_MAGIC_V1),
        (V5_3, "../../T", None),
        (V5_3, "..", None),
        (V5_3, "", None),
    ],
)
def test_which_topics_are_taken(version: Version, topic: str, magic: int | None) -> None:
    """C2.7, and that no name leads out of the store."""
    with small_store(version) as store:
        put = store.put(a_message(topic=topic))
        assert put.status is (PutStatus.MESSAGE_ILLEGAL if magic is None else PutStatus.PUT_OK)
        store.dispatch_now()
        assert [(one.topic, one.magic) for one in stored(store)] == ([] if magic is None else [(topic, magic)])
        if magic is not None:
            assert store.find_queue(topic, 0) is not None


@every_version
@pytest.mark.parametrize(("level", "kept", "queue"), [("3", "3", 2), ("99", "18", 17), ("1", "1", 0)])
def test_a_delayed_message_goes_to_the_schedule_topic(version: Version, level: str, kept: str, queue: int) -> None:
    """C2.8, C2.9."""
    with small_store(version) as store:
        put = store.put(a_message(queue_id=2, properties={"DELAY": level, "KEYS": "k"}))
        assert put.is_ok
        assert (put.topic, put.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue)
        (record,) = stored(store)
        assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue)
        assert record.properties == {"DELAY": kept, "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "2"}


@every_version
@pytest.mark.parametrize("properties", [{"DELAY": "0"}, {"DELAY": "-1"}, {}])
def test_no_level_is_no_delay(version: Version, properties: dict[str, str]) -> None:
    with small_store(version) as store:
        assert store.put(a_message(properties=properties)).topic == "T"


@every_version
def test_prepared_and_rolled_back_records_are_not_delayed_and_not_numbered(version: Version) -> None:
    with small_store(version) as store:
        assert store.put(a_message()).queue_offset == 0
        for sys_flag in (0x4, 0xC):
            put = store.put(a_message(sys_flag=sys_flag, properties={"DELAY": "3"}))
            assert (put.topic, put.queue_offset) == ("T", 0)
        committed = store.put(a_message(sys_flag=0x8, prepared_transaction_offset=77))
        assert committed.queue_offset == 1
        assert stored(store)[-1].prepared_transaction_offset == 77


@since_5
def test_a_timer_message_goes_to_the_wheel(version: Version) -> None:
    """C2.10."""
    with small_store(version) as store:
        clock_of(store).wall = 1_700_000_000_123
        put = store.put(a_message(queue_id=3, properties={"TIMER_DELAY_SEC": "10"}))
        assert (put.topic, put.queue_id) == ("rmq_sys_wheel_timer", 0)
        (record,) = stored(store)
        assert record.properties == {
            "TIMER_DELAY_SEC": "10",
            "TIMER_OUT_MS": "1700000010000",
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
        }


@since_5
@pytest.mark.parametrize(
    ("properties", "outcome"),
    [
        ({"TIMER_DELIVER_MS": "1700000000000"}, "T"),
        ({"TIMER_DELIVER_MS": "1700000000000", "TIMER_DEL_UNIQKEY": "u"}, PutStatus.WHEEL_TIMER_MSG_ILLEGAL),
        ({"TIMER_DELIVER_MS": "soon"}, PutStatus.WHEEL_TIMER_MSG_ILLEGAL),
        ({"TIMER_DELAY_SEC": "259201"}, PutStatus.WHEEL_TIMER_MSG_ILLEGAL),
        ({"TIMER_DELAY_SEC": "259200"}, "rmq_sys_wheel_timer"),
        ({"TIMER_DELAY_MS": "2000", "TIMER_DELIVER_MS": "1"}, "rmq_sys_wheel_timer"),
        ({"TIMER_DELAY_MS": "2000", "TIMER_OUT_MS": "1700000009000"}, "T"),
        ({"DELAY": "1", "TIMER_DELAY_SEC": "10"}, "SCHEDULE_TOPIC_XXXX"),
    ],
)
def test_what_a_timer_comes_to(version: Version, properties: dict[str, str], outcome: str | PutStatus) -> None:
    """C2.11 is the first."""
    with small_store(version) as store:
        put = store.put(a_message(properties=properties))
        assert (put.topic if put.is_ok else put.status) == outcome
        if outcome == "SCHEDULE_TOPIC_XXXX":
            assert "TIMER_DELAY_SEC" not in stored(store)[0].properties


@pytest.mark.parametrize(("deliver", "rounded"), [(5000, 4000), (5001, 5000), (5999, 5000)])
def test_a_slot_is_served_when_the_clock_has_passed_it(deliver: int, rounded: int) -> None:
    with small_store() as store:
        clock_of(store).wall = 1000
        store.put(a_message(properties={"TIMER_DELIVER_MS": str(deliver)}))
        assert stored(store)[0].properties["TIMER_OUT_MS"] == str(rounded)


def test_without_the_wheel_there_are_no_timers() -> None:
    with small_store(timerWheelEnable=False) as store:
        put = store.put(a_message(properties={"TIMER_DELAY_SEC": "10"}))
        assert put.status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    with small_store(V4_9) as store:
        assert store.put(a_message(properties={"TIMER_DELAY_SEC": "10"})).topic == "T"


def a_batch(bodies: list[bytes], **changes: object) -> NewMessage:
    items = [BatchItem(number, body, b"KEYS\x01b%d" % number) for number, body in enumerate(bodies)]
    return a_message(**{"body": encode_batch(items), "properties": {}, **changes})


@every_version
def test_a_batch_goes_to_the_next_segment_as_a_whole(version: Version) -> None:
    """C2.12."""
    with small_store(version) as store:
        store.put(sized(3000))
        put = store.put_batch(a_batch([b"x" * 400] * 3))
        assert put.is_ok
        assert put.physical_offset == SEGMENT
        assert put.queue_offset == 1
        records = stored(store)[1:]
        assert [one.queue_offset for one in records] == [1, 2, 3]
        assert [one.flag for one in records] == [0, 1, 2]
        assert len({one.store_timestamp for one in records}) == 1
        assert put.offset_msg_id.count(",") == 2
        assert [decode_offset_msg_id(text) for text in put.offset_msg_id.split(",")] == [
            decode_offset_msg_id(f"7F00000100002A9F{one.physical_offset:016X}") for one in records
        ]
        data = read_bytes(store.setup.files, f"commitlog/{0:020d}")
        assert data[3000:3008] == (SEGMENT - 3000).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
        assert store.put(a_message()).queue_offset == 4


@every_version
@pytest.mark.parametrize(
    "changes",
    [
        {"properties": {"DELAY": "1"}},
        {"sys_flag": 4},
        {"body": b""},
        {"body": b"\0\0\0\x10too short"},
        {"body": encode_batch([BatchItem(0, b"x" * 3000, b"")] * 2)},
    ],
)
def test_batches_that_are_refused(version: Version, changes: dict[str, object]) -> None:
    """C2.13 is the first; the last one fits into no segment."""
    with small_store(version) as store:
        assert store.put_batch(a_batch([b"x"], **changes)).status is PutStatus.MESSAGE_ILLEGAL
        assert stored(store) == []


def test_batch_properties_are_joined_up_to_5_3() -> None:
    texts = {}
    for version in Version:
        with small_store(version) as store:
            store.put_batch(a_batch([b"x"], properties={"CLUSTER": "c", "WAIT": "true"}))
            texts[version] = stored(store)[0].raw_properties
    assert texts == {
        V4_9: b"KEYS\x01b0\x02CLUSTER\x01c\x02WAIT\x01true",
        V5_3: b"KEYS\x01b0\x02CLUSTER\x01c\x02WAIT\x01true\x02",
        V5_4: b"KEYS\x01b0",
    }


@every_version
def test_the_checksum_of_a_body_has_31_bits(version: Version) -> None:
    """C2.14."""
    body = next(body for number in range(100) if zlib.crc32(body := b"%d" % number) >= 1 << 31)
    with small_store(version) as store:
        store.put(NewMessage("T", body))
        store.put(NewMessage("T", b""))
        assert [one.body_crc for one in stored(store)] == [zlib.crc32(body) & 0x7FFFFFFF, 0]


@every_version
@pytest.mark.parametrize(("held", "is_busy"), [(1001, True), (1000, False), (10_000_000, False)])
def test_a_put_does_not_wait_behind_one_that_hangs(
    version: Version, held: int, is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2.15: another thread holds the writer; beyond ten million milliseconds it is the clock that is wrong."""
    with small_store(version) as store:
        store.put(a_message())
        statuses = []

        def meanwhile() -> None:
            clock_of(store).advance(held)
            # The check comes before the writer's lock: this put is not to wait for it.
            statuses.append(store.put_async(a_message(7)).status)

        during_next(monkeypatch, "pwrite", meanwhile)
        assert store.put(a_message(1)).is_ok
        assert statuses == [PutStatus.OS_PAGE_CACHE_BUSY if is_busy else None]


@every_version
def test_a_record_that_fits_into_no_segment_is_refused(version: Version) -> None:
    """C2.16. upstream: PUT_OK, nothing stored, two segments burnt."""
    with small_store(version) as store:
        assert store.put(sized(SEGMENT - 7)).status is PutStatus.MESSAGE_ILLEGAL
        assert stored(store) == []
        put = store.put(sized(SEGMENT - 8))
        assert (put.status, put.physical_offset) == (PutStatus.PUT_OK, 0)


@every_version
def test_hosts_of_either_kind(version: Version) -> None:
    with small_store(version) as store:
        plain = store.put(NewMessage("T", b"x"))
        for changes, more in (
            ({"born_host": IPV6}, 12),
            ({"born_host": IPV4, "store_host": IPV6}, 12),
            ({"born_host": IPV6, "store_host": IPV6}, 24),
        ):
            put = store.put(NewMessage("T", b"x", **changes))
            assert put.size == plain.size + more
            assert len(put.offset_msg_id) == (56 if "store_host" in changes else 32)
        assert [hex(one.sys_flag) for one in stored(store)] == ["0x0", "0x10", "0x20", "0x30"]


def test_the_order_and_the_end_of_properties_are_the_versions() -> None:
    properties = {"KEYS": "k", "UNIQ_KEY": "u", "CLUSTER": "c", "TAGS": "t"}
    texts = {}
    for version in Version:
        with small_store(version) as store:
            store.put(a_message(properties=properties))
            store.put(a_message(properties=properties, property_bins=16))
            texts[version] = [one.raw_properties for one in stored(store)]
    built = b"KEYS\x01k\x02UNIQ_KEY\x01u\x02CLUSTER\x01c\x02TAGS\x01t"
    decoded = b"UNIQ_KEY\x01u\x02CLUSTER\x01c\x02TAGS\x01t\x02KEYS\x01k\x02"
    assert texts == {V4_9: [built, built], V5_3: [decoded, built + b"\x02"], V5_4: [decoded, built + b"\x02"]}


def test_a_text_is_stored_as_it_is() -> None:
    text = b"a\x01b\x02nothing\x02a\x01c"
    with small_store() as store:
        store.put(a_message(properties=text))
        store.put(a_message(properties={"KEYS": "k"}, property_text=b"DELAY\x013\x02"))
        assert [(one.raw_properties, one.topic) for one in stored(store)] == [(text, "T"), (b"DELAY\x013\x02", "T")]


@every_version
def test_a_body_of_none(version: Version) -> None:
    with small_store(version) as store:
        put = store.put(NewMessage("T", None))
        assert put.status is (PutStatus.PUT_OK if version is V4_9 else PutStatus.MESSAGE_ILLEGAL)


@since_5
def test_the_property_checksum(version: Version) -> None:
    with small_store(version, enabledAppendPropCRC=True) as store:
        store.put(a_message(properties={"a": "b", "__CRC32#": "0123456789"}))
        store.put(a_message(properties=b"a\x01b"))
        store.put(a_message(properties={}))
        store.put_batch(a_batch([b"x", b"y"]))
        records = stored(store)
    data = read_bytes(store.setup.files, f"commitlog/{0:020d}")
    texts = [one.raw_properties[:-20] for one in records]
    assert texts == [b"a\x01b\x02", b"a\x01b\x02", b"", b"KEYS\x01b0\x02", b"KEYS\x01b1\x02"]
    for one in records:
        covered = data[one.physical_offset : one.physical_offset + one.total_size - 20]
        digits = f"{zlib.crc32(covered) & 0x7FFFFFFF:010d}"[::-1].encode()
        assert one.raw_properties[-20:] == b"__CRC32#\x01" + digits + b"\x02"


@pytest.mark.parametrize("codec", [BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD])
def test_large_bodies_are_compressed_as_clients_do(codec: BodyCodec) -> None:
    body = b"rocket" * 1000
    with small_store() as store:
        assert compressed(NewMessage("T", b"x" * 4095), codec).sys_flag == 0
        assert store.put(compressed(NewMessage("T", body), codec)).is_ok
        (record,) = stored(store)
        assert len(record.raw_body) < 1000
        assert record.sys_flag == 1 | codec << 8
        assert isinstance(found := inflate_body(record.sys_flag, record.raw_body), Inflated)
        assert found.body == body


@every_version
def test_store_times_never_go_backwards(version: Version) -> None:
    with small_store(version) as store:
        first = store.put(a_message())
        clock_of(store).wall -= 5000
        second = store.put(a_message())
        clock_of(store).wall += 5001
        third = store.put(a_message())
        assert second.store_timestamp == first.store_timestamp
        assert third.store_timestamp == first.store_timestamp + 1


def test_a_slave_takes_no_puts() -> None:
    with small_store(brokerRole=BrokerRole.SLAVE) as store:
        assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    "changes",
    [{"flag": 1 << 31}, {"reconsume_times": -(1 << 31) - 1}, {"born_timestamp": 1 << 63}, {"queue_id": 1 << 31}],
)
def test_numbers_that_fit_no_field_are_refused(changes: dict[str, int]) -> None:
    with small_store() as store:
        assert store.put(a_message(**changes)).status is PutStatus.MESSAGE_ILLEGAL


def test_further_queues_of_4_9() -> None:
    with small_store(V4_9, enableMultiDispatch=True, enableLmq=True) as store:
        named = {"INNER_MULTI_DISPATCH": "%LMQ%a,plain,%LMQ%a", "WAIT": "true"}
        for _ in range(2):
            store.put(a_message(queue_id=2, properties=named))
        assert [one.properties["INNER_MULTI_QUEUE_OFFSET"] for one in stored(store)] == ["0,0,0", "1,1,1"]
        assert "WAIT" not in stored(store)[0].properties
        store.dispatch_now()
        assert {(queue.key, queue.max_offset) for queue in store.queues()} == {
            (("T", 2), 2),
            (("%LMQ%a", 0), 2),
            (("plain", 2), 2),
        }


@since_5
def test_further_queues_of_5_x(version: Version) -> None:
    with small_store(version, enableMultiDispatch=True, enableLmq=True) as store:
        named = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "WAIT": "true"}
        store.put(a_message(queue_id=2, properties=named))
        store.put(a_message(topic="%RETRY%g", properties=named))
        store.put(a_message(properties={"INNER_MULTI_DISPATCH": "%LMQ%b,plain"}))
        offsets = [one.properties.get("INNER_MULTI_QUEUE_OFFSET") for one in stored(store)]
        assert offsets == ["0,0", None, "1,"]
        assert stored(store)[0].properties["WAIT"] == "true"
        store.dispatch_now()
        assert {(queue.key, queue.max_offset) for queue in store.queues()} == {
            (("T", 2), 1),
            (("T", 0), 1),
            (("%RETRY%g", 0), 1),
            (("%LMQ%a", 0), 1),
            (("%LMQ%b", 0), 1),
        }


@since_5
def test_the_whole_record_of_a_light_message_is_limited(version: Version) -> None:
    with small_store(version, enableLmq=True, maxMessageSize=300) as store:
        named = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
        assert store.put(a_message(body=b"x" * 280, properties=named)).status is PutStatus.MESSAGE_ILLEGAL
        put = store.put(a_message(body=b"x" * 100, properties=named))
        assert (put.status, put.queue_offset) == (PutStatus.PUT_OK, 0)


@since_5
def test_inner_batches(version: Version) -> None:
    setup = replace(small_setup(version), batch_topics=frozenset({"B"}))
    with MessageStore.create(setup) as store:
        inner = {"INNER_NUM": "5", "UNIQ_KEY": "u"}
        assert store.put(a_message(topic="B")).queue_offset == 0
        assert store.put(a_message(topic="B", sys_flag=0xC0, properties=inner)).queue_offset == 1
        assert store.put(a_message(topic="B", sys_flag=0xC0, properties={})).queue_offset == 6
        assert store.put(a_message(topic="B")).queue_offset == 7
        assert stored(store)[1].properties == inner | {"INNER_BASE": "1"}
        for changes in (
            {"topic": "B", "properties": inner},
            {"topic": "T", "properties": inner, "sys_flag": 0xC0},
            {"topic": "T", "properties": {}, "sys_flag": 0xC0},
            {"topic": "B", "properties": {"INNER_NUM": "0"}, "sys_flag": 0xC0},
            {"topic": "B", "properties": {"INNER_NUM": "many"}, "sys_flag": 0xC0},
        ):
            assert store.put(a_message(**changes)).status is PutStatus.MESSAGE_ILLEGAL


def test_puts_in_a_row_are_written_in_one_go() -> None:
    disk = FaultyDisk()
    with small_store(files=FaultyFileSystem(disk), mappedFileSizeCommitLog=1 << 20) as store:
        store.put(a_message())
        before = len(disk.calls)
        tickets = [store.put_async(a_message(number)) for number in range(1, 100)]
        assert len(disk.calls) == before
        assert {ticket.status for ticket in tickets} == {None}
        assert store.wait(tickets[-1]) is PutStatus.PUT_OK
        assert [call.operation for call in disk.calls[before:]] == ["pwrite"]
        assert [store.wait(ticket) for ticket in tickets] == [PutStatus.PUT_OK] * 99
        assert [ticket.queue_offset for ticket in tickets] == list(range(1, 100))


def test_many_messages_over_many_segments() -> None:
    with small_store() as store:
        tickets = store.put_many([a_message(number, queue_id=number % 3) for number in range(500)])
        assert all(ticket.is_ok for ticket in tickets)
        records = stored(store)
        assert [one.raw_body for one in records] == [b"body %d" % number for number in range(500)]
        assert [one.physical_offset for one in records] == [ticket.physical_offset for ticket in tickets]


@every_version
@pytest.mark.parametrize("wait", ["true", "TRUE", "false", "yes"])
def test_what_every_client_sets_keeps_a_message_on_the_plain_way(
    version: Version, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WAIT decides who waits for the disk, and nothing about where and how a message is stored."""
    monkeypatch.delattr(Intake, "_accept_special")
    with small_store(version) as store:
        ticket = store.put(a_message(properties={"KEYS": "k", "WAIT": wait}))
        assert ticket.is_ok
        assert ticket.waits is (wait.lower() == "true")
        assert stored(store)[0].properties == {"KEYS": "k", "WAIT": wait}


@pytest.mark.skipif(kernel.NATIVE is None, reason=f"there is no compiled kernel: {kernel.WHY_NOT}")
@pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3, Version.V5_4])
def test_a_batch_is_stored_alike_with_and_without_the_kernel(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes, places, counts and refusals, also at the end of a segment and for what the kernel declines."""
    items = [
        [BatchItem(3, b"a", b"KEYS\1k\2"), BatchItem(-1, b"", b""), BatchItem(0, b"c" * 50, b"a\1b")],
        [BatchItem(0, b"alone", b"UNIQ_KEY\1u")],
        [BatchItem(0, b"x" * 700, b"")] * 4,
        [BatchItem(0, b"x" * 3000, b"KEYS\1k")],
        [BatchItem(0, b"x" * 5000, b"")],
        [BatchItem(0, b"x", b"a\1" + b"v" * 3000)],
    ]
    bodies = [encode_batch(some) for some in items]
    bodies += [b"", bodies[0][:-1], bodies[0] + b"\0", bodies[1] * 40]
    found = []
    for native in (kernel.NATIVE, None):
        monkeypatch.setattr(kernel, "NATIVE", native)
        with small_store(version) as store:
            rows = []
            for body in bodies:
                ticket = store.put_batch(NewMessage("T", body, 2, {"CLUSTER": "c", "WAIT": "true"}, born_timestamp=5))
                place = ticket.queue_offset, ticket.physical_offset, ticket.size, list(ticket.record_offsets)
                rows.append((ticket.status, ticket.offset_msg_id, *place))
            store.dispatch_now()
            found.append((rows, list(iter_records(store.setup.files)), units(store.setup.files, "T", 2)))
    assert found[0] == found[1]
    statuses = [row[0] for row in found[0][0]]
    assert statuses.count(PutStatus.PUT_OK) == 5
    assert len(found[0][1]) == 3 + 1 + 4 + 1 + 1
