"""Messages that come by columns are stored as they would be one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import Host, NewMessage, PutStatus
from rmqtool.engine.put import PutTicket
from rmqtool.engine.put_columns import MessageColumns
from rmqtool.engine.store import MessageStore
from rmqtool.errors import NoSpace, WriteFailed
from tests.support.engine_stores import SEGMENT, a_message, clock_of, iter_records, small_store
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

IPV6 = (bytes(15) + b"\x01", 4711)


def some_columns(count: int, seed: int, *, host: Host = (b"\x7f\0\0\1", 5)) -> MessageColumns:
    chance = random.Random(seed)
    return MessageColumns(
        topics=[chance.choice(["T", "%RETRY%g", "Longer"]) for _ in range(count)],
        bodies=[chance.randbytes(chance.choice([0, 10, 300, 900])) for _ in range(count)],
        property_texts=[chance.choice([b"", b"KEYS\x01k\x02", b"a\x01b\x02WAIT\x01true"]) for _ in range(count)],
        queue_ids=[chance.randrange(3) for _ in range(count)],
        flags=[chance.randrange(-5, 5) for _ in range(count)],
        sys_flags=[chance.choice([0, 1, 0x301]) for _ in range(count)],
        born_timestamps=[chance.randrange(1 << 40) for _ in range(count)],
        born_host=host,
    )


def log_of(store: MessageStore) -> list[tuple[object, ...]]:
    return [tuple(one) for one in iter_records(store.setup.files)]


@pytest.mark.parametrize("host", [(b"\x7f\0\0\1", 5), IPV6])
@pytest.mark.parametrize("version", list(Version))
def test_the_same_records(version: Version, host: Host) -> None:
    columns = some_columns(300, 7, host=host)
    with small_store(version) as one, small_store(version) as many:
        tickets = [one.put(columns.message(row)) for row in range(len(columns))]
        put = many.put_columns(columns)
        assert log_of(many) == log_of(one)
        assert put.refused == {}
        assert put.stored == 300
        assert put.physical_offsets.tolist() == [ticket.physical_offset for ticket in tickets]
        assert put.queue_offsets.tolist() == [ticket.queue_offset for ticket in tickets]
        assert many.put(a_message(queue_id=1)).queue_offset == one.put(a_message(queue_id=1)).queue_offset


@pytest.mark.parametrize("version", list(Version))
def test_what_is_refused_one_by_one_is_refused(version: Version) -> None:
    columns = MessageColumns(
        topics=["T", "t" * 128, "../T", "T", "T", "T", "T", "T", "T"],
        bodies=[b"x", b"x", b"x", b"x" * 2001, b"x", b"x", b"x", b"x" * 2000, b"x" * 3000],
        property_texts=[b"", b"", b"", b"", b"x" * 32768, b"", b"", b"", b""],
        queue_ids=[0, 0, 0, 0, 0, -1, 0, 0, 0],
        flags=[0, 0, 0, 0, 0, 0, 1 << 31, 0, 0],
    )
    # Three bytes less than the last body needs.
    with small_store(version, maxMessageSize=2000) as one, small_store(version, maxMessageSize=2000) as many:
        tickets = [one.put(columns.message(row)) for row in range(len(columns))]
        put = many.put_columns(columns)
        statuses = {row: ticket.status for row, ticket in enumerate(tickets) if not ticket.is_ok}
        assert put.refused == statuses
        assert put.stored == 2
        assert log_of(many) == log_of(one)


def a_mix(count: int, seed: int) -> list[NewMessage]:
    """Return messages of every plain kind, some of which are refused."""
    chance = random.Random(seed)
    kinds: list[dict[str, str]] = [{}, {"KEYS": "k"}, {"TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "u", "own": "\u00e9"}]
    topics = ["T", "T", "T", "Other", "t" * 128, "../T"]
    sizes = [0, 10, 300, 900, SEGMENT]
    return [
        NewMessage(
            chance.choice(topics),
            chance.randbytes(chance.choice(sizes)),
            chance.randrange(-1, 3),
            chance.choice([*kinds, {"long": "x" * 32768}] if number % 20 == 0 else kinds),
            flag=chance.randrange(-2, 3),
        )
        for number in range(count)
    ]


def outcomes(tickets: Sequence[PutTicket]) -> list[tuple[object, ...]]:
    return [
        (
            ticket.status,
            ticket.queue,
            ticket.physical_offset,
            ticket.queue_offset,
            ticket.size,
            ticket.store_timestamp if ticket.is_ok else 0,
            ticket.offset_msg_id,
        )
        for ticket in tickets
    ]


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("version", list(Version))
def test_many_messages_are_stored_as_one_by_one(
    version: Version, flush: FlushDiskType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtool.engine.store._LEAST_FOR_SLAB", 1)
    monkeypatch.setattr("rmqtool.engine.store._LEAST_TO_LOAD", 1)
    monkeypatch.setattr("rmqtool.engine.store._SLAB", 70)
    messages = a_mix(400, 3)
    with (
        small_store(version, flushDiskType=flush) as one,
        small_store(version, flushDiskType=flush) as many,
    ):
        expected = [one.put(message) for message in messages]
        waiting = many.put_async(messages[0])
        tickets = [waiting, *many.put_many(iter(messages[1:]))]
        assert outcomes(tickets) == outcomes(expected)
        assert log_of(many) == log_of(one)
        stored = sum(ticket.is_ok for ticket in tickets)
        assert 100 < stored < 300
        assert {ticket.status for ticket in tickets} >= {PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL}


@pytest.mark.parametrize(
    "special",
    [
        a_message(properties={"DELAY": "3"}),
        a_message(properties=b"KEYS\x01k"),
        a_message(properties={"KEYS": "k"}, property_bins=128),
        a_message(sys_flag=8),
        a_message(born_host=IPV6),
        a_message(store_host=IPV6),
        a_message(born_timestamp=5),
        a_message(reconsume_times=1),
        a_message(body=None),
        a_message(flag=1 << 40),
    ],
)
def test_one_that_is_not_plain_is_stored_as_it_is(special: NewMessage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.engine.store._LEAST_FOR_SLAB", 1)
    monkeypatch.setattr("rmqtool.engine.store._LEAST_TO_LOAD", 1)
    messages = [a_message(1), special, a_message(2)]
    with small_store() as one, small_store() as many:
        expected = [one.put(message) for message in messages]
        assert outcomes(many.put_many(messages)) == outcomes(expected)
        assert log_of(many) == log_of(one)


def test_a_slab_that_cannot_be_written_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.engine.store._LEAST_FOR_SLAB", 1)
    monkeypatch.setattr("rmqtool.engine.store._LEAST_TO_LOAD", 1)
    disk = FaultyDisk()
    store = small_store(files=FaultyFileSystem(disk))
    store.put(a_message())
    disk.fail(1)
    statuses = [ticket.status for ticket in store.put_many([a_message(number) for number in range(5)])]
    assert statuses == [PutStatus.UNKNOWN_ERROR] * 5
    assert [ticket.status for ticket in store.put_many([a_message()])] == [PutStatus.SERVICE_NOT_AVAILABLE]
    with pytest.raises(WriteFailed):
        store.close()


def test_a_record_that_fits_into_no_segment() -> None:
    with small_store() as store:
        put = store.put_columns(MessageColumns("T", [b"x" * SEGMENT, b"y"], [b"", b""]))
        assert put.refused == {0: PutStatus.MESSAGE_ILLEGAL}
        assert put.physical_offsets.tolist() == [-1, 0]


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("text", [b"DELAY\x012\x02", b"a\x01b\x02INNER_MULTI_DISPATCH\x01%LMQ%a"])
def test_messages_that_need_a_look_get_it(version: Version, text: bytes) -> None:
    settings = {"enableLmq": True, "enableMultiDispatch": True}
    columns = MessageColumns("T", [b"x", b"y"], [b"", text])
    with small_store(version, **settings) as one, small_store(version, **settings) as many:
        for row in range(2):
            one.put(columns.message(row))
        put = many.put_columns(columns)
        assert log_of(many) == log_of(one)
        assert put.queue_offsets.tolist() == [0, 0 if text.startswith(b"DELAY") else 1]


def test_prepared_messages_take_no_number() -> None:
    with small_store() as store:
        put = store.put_columns(MessageColumns("T", [b"x", b"y", b"z"], [b""] * 3, sys_flags=[0, 4, 0]))
        assert put.queue_offsets.tolist() == [0, 0, 1]


def test_with_synchronous_flush_all_is_durable() -> None:
    disk = FaultyDisk()
    store = small_store(files=FaultyFileSystem(disk), flushDiskType=FlushDiskType.SYNC_FLUSH)
    assert store.put_columns(some_columns(50, 3)).refused == {}
    survived = FaultyFileSystem(disk.after_crash(lambda _count: 1))
    assert len(list(iter_records(survived))) == 50
    disk.fail(2)
    put = store.put_columns(some_columns(3, 4))
    assert put.refused == dict.fromkeys(range(3), PutStatus.UNKNOWN_ERROR)
    put = store.put_columns(some_columns(3, 5))
    assert put.refused == dict.fromkeys(range(3), PutStatus.SERVICE_NOT_AVAILABLE)
    with pytest.raises(WriteFailed):
        store.close()


def test_without_room_the_rest_is_refused_and_takes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_store() as store:
        store.put(a_message())

        def full(*_arguments: object) -> None:
            raise NoSpace("no room")

        columns = MessageColumns("T", [b"x" * 1000] * 6, [b""] * 6)
        with monkeypatch.context() as patched:
            patched.setattr(FaultyFileSystem, "create", full)
            put = store.put_columns(columns)
            assert put.refused == dict.fromkeys(range(3, 6), PutStatus.CREATE_MAPPED_FILE_FAILED)
            assert put.queue_offsets.tolist() == [1, 2, 3, -1, -1, -1]
        assert store.put_columns(columns).queue_offsets.tolist() == list(range(4, 10))


def test_store_times_never_go_backwards() -> None:
    with small_store() as store:
        first = store.put(a_message())
        clock_of(store).wall -= 1000
        store.put_columns(MessageColumns("T", [b"x"], [b""]))
        assert list(iter_records(store.setup.files))[1].store_timestamp == first.store_timestamp
