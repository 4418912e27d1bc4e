"""Reading: the checks of sections 7 and 10 that the recorded answers of real stores do not reach."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from rmqtool import kernel
from rmqtool.config import Version
from rmqtool.engine import get, reader
from rmqtool.engine.get import GetMessageResult, GetMessageStatus, Got, SqlFilter, TagFilter
from rmqtool.engine.store import MessageStore
from rmqtool.filters.sql92 import parse_selector
from rmqtool.filters.tags import parse_tags
from rmqtool.formats.commit_log import decode_record_in_python
from rmqtool.formats.flaws import Flaw
from rmqtool.store.time_search import Boundary
from tests.support.engine_stores import SEGMENT, a_message, clock_of, small_store, units

LARGE = {"mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 60_000}


def filled(count: int, version: Version = Version.V5_3, **message: Any) -> MessageStore:
    """Return an open store with so many messages in one queue."""
    store = small_store(version, **LARGE)
    store.put_many([a_message(number, **message) for number in range(count)])
    store.dispatch_now()
    return store


@pytest.mark.parametrize("version", Version)
def test_c7_1_and_c7_2_a_get_and_what_lies_beyond(version):
    reader = filled(10, version).reader
    got = reader.get("T", 0, 0, 32)
    assert (got.status, len(got.messages), got.next_begin_offset) == (GetMessageStatus.FOUND, 10, 10)
    assert (got.min_offset, got.max_offset) == (0, 10)
    for offset, status in ((10, "ONE"), (11, "BADLY"), (99, "BADLY")):
        got = reader.get("T", 0, offset)
        assert (got.status.name, got.next_begin_offset) == (f"OFFSET_OVERFLOW_{status}", 10)


def test_c7_3_a_queue_that_is_not_there():
    reader = filled(1).reader
    for offset in (0, 5):
        got = reader.get("Nothing", 0, offset)
        assert (got.status, got.next_begin_offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.parametrize("version", Version)
def test_c7_4_at_most_32_from_memory(version):
    assert len(filled(100, version).reader.get("T", 0, 0, 64).messages) == 32


@pytest.mark.parametrize("version", Version)
def test_c7_5_at_most_256_kib_from_memory(version):
    assert len(filled(5, version, body=b"x" * 100_000).reader.get("T", 0, 0, 32).messages) == 2


@pytest.mark.parametrize("version", Version)
def test_c7_6_one_message_always(version):
    assert len(filled(2, version, body=b"x" * (1 << 20)).reader.get("T", 0, 0, 32).messages) == 1


@pytest.mark.parametrize("version", Version)
def test_c7_7_a_filter_that_nothing_passes_moves_on(version):
    got = filled(2000, version).reader.get("T", 0, 0, 32, TagFilter(parse_tags("Other")))
    assert (got.status, got.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 800)


def test_c7_8_tags_with_one_hash_are_told_apart_by_the_client():
    store = small_store()
    for tag in ("Aa", "BB", "Cc"):
        store.put(a_message(0, properties={"TAGS": tag}))
    store.dispatch_now()
    expression = parse_tags("Aa")
    got = store.reader.get("T", 0, 0, 32, TagFilter(expression))
    messages = [store.reader.message_at(one.physical_offset) for one in got.messages]
    assert [message.tags for message in messages if message] == ["Aa", "BB"]
    assert [message.tags for message in messages if message and expression.matches(message.tags)] == ["Aa"]


@pytest.mark.parametrize("version", Version)
def test_c7_9_a_queue_begins_behind_a_removed_segment_at_once(version):
    """upstream: until the queue is corrected, its units of the removed segment are read, and stepped over."""
    store = small_store(version, mappedFileSizeConsumeQueue=60_000)
    while len(store.commit_log.segments) < 3:
        store.put(a_message())
    store.flush_now()
    store.dispatch_now()
    found = units(store.setup.files, "T", 0)
    first = next(number for number, unit in enumerate(found) if unit.physical_offset >= SEGMENT)
    assert store.commit_log.remove_first()
    got = store.reader.get("T", 0, 0)
    assert (got.status, got.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, first)
    got = store.reader.get("T", 0, first)
    assert (got.status, got.messages[0].physical_offset) == (GetMessageStatus.FOUND, found[first].physical_offset)


@pytest.mark.parametrize("version", Version)
def test_c7_9_units_of_a_lost_segment_are_stepped_over_800_at_most(version):
    size = 1 << 18
    store = small_store(version, mappedFileSizeCommitLog=size, mappedFileSizeConsumeQueue=200_000)
    store.put_many([a_message(properties={}) for _ in range(7000)])
    store.dispatch_now()
    store.close()
    places = [unit.physical_offset // size for unit in units(store.setup.files, "T", 0)]
    start, end = places.index(1), places.index(2)
    assert end - start > 1600
    store.setup.files.unlink(f"commitlog/{size:020d}")
    with MessageStore.open(store.setup) as again:
        answers = [again.reader.get("T", 0, offset) for offset in (start, end - 1600, end - 800, end - 1)]
    assert [answer.status.name for answer in answers] == ["MESSAGE_WAS_REMOVING"] * 3 + ["FOUND"]
    assert [answer.next_begin_offset for answer in answers[:3]] == [start + 800, end - 800, end]
    assert answers[3].messages[0].queue_offset == end


@pytest.mark.parametrize("version", Version)
def test_c7_10_and_c7_11_keys_in_a_window_and_the_newest_of_many(version):
    store = filled(40, version, properties={"KEYS": "same"})
    reader, now = store.reader, clock_of(store).now()
    assert reader.query("T", "same", 32, now + 10_000, now + 20_000) == []
    found = [message.queue_offset for message in reader.query("T", "same", 32, 0, now + 1000)]
    assert found == list(range(8, 40))


def test_c7_12_keys_with_one_hash_are_told_apart_by_the_client():
    store = small_store()
    for key in ("Aa", "BB"):
        store.put(a_message(0, properties={"KEYS": key}))
    store.dispatch_now()
    assert [message.keys for message in store.reader.query("T", "Aa", 32, 0, 2**62)] == ["Aa", "BB"]


def at_times(version: Version, *times: int) -> MessageStore:
    store = small_store(version)
    start = clock_of(store).now()
    for time in times:
        clock_of(store).wall = start + time
        store.put(a_message())
    store.dispatch_now()
    return store


def by_time(store: MessageStore, start: int, time: int, boundary: Boundary = Boundary.LOWER) -> int:
    return store.reader.offset_by_time("T", 0, start + time, boundary)


@pytest.mark.parametrize("version", Version)
def test_c7_13_to_c7_15_offsets_by_time(version):
    store = at_times(version, *range(0, 1000, 100))
    start = clock_of(store).now() - 900
    equal = at_times(version, 5, 5, 5)
    gap = at_times(version, 1, 1, 3, 3)
    if version is Version.V4_9:
        assert by_time(store, start, 5000) == 9
        assert by_time(gap, clock_of(gap).now() - 3, 2) == 1
        assert by_time(equal, clock_of(equal).now() - 5, 5) in (0, 1, 2)
        return
    assert by_time(store, start, 5000) == 10
    assert by_time(store, start, 5000, Boundary.UPPER) == 9
    assert by_time(gap, clock_of(gap).now() - 3, 2) == 2
    assert by_time(gap, clock_of(gap).now() - 3, 2, Boundary.UPPER) == 1
    assert by_time(equal, clock_of(equal).now() - 5, 5) == 0
    assert by_time(equal, clock_of(equal).now() - 5, 5, Boundary.UPPER) == 2


def test_c7_18_a_queue_that_was_never_used_has_no_messages():
    low, high = filled(1).reader.bounds("T", 7)
    assert high - low == 0


def test_a_sql_filter_looks_into_the_record():
    store = small_store()
    for number in range(6):
        store.put(a_message(number, properties={"a": str(number)}))
    store.dispatch_now()
    got = store.reader.get("T", 0, 0, 32, SqlFilter(parse_selector("a > 3")))
    assert [one.queue_offset for one in got.messages] == [4, 5]
    assert got.next_begin_offset == 6
    nothing = store.reader.get("T", 0, 0, 32, SqlFilter(parse_selector("a > 9")))
    assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 6)


def test_what_is_put_while_the_store_is_open_is_read():
    store = filled(3)
    assert store.reader.get("T", 0, 0).max_offset == 3
    store.put_many([a_message(number) for number in range(4000)])
    store.dispatch_now()
    assert store.reader.get("T", 0, 3500).messages[0].queue_offset == 3500
    record = store.reader.get("T", 0, 4002).messages[0]
    assert store.reader.message_at(record.physical_offset) is not None
    assert store.reader.message_at(record.physical_offset + 1) is None
    assert len(store.reader.query("T", "k2", 32, 0, 2**62)) == 2


@pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])
@pytest.mark.parametrize(
    ("settings", "most_found"),
    [
        ({}, 10),
        ({"maxTransferCountOnMessageInMemory": 3}, 3),
        ({"maxTransferBytesOnMessageInMemory": 1500}, 4),
        ({"accessMessageInMemoryMaxRatio": 0}, 8),
    ],
    ids=["usual", "few", "small", "on disk"],
)
def test_together_or_one_by_one_is_the_same_answer(
    version: Version, settings: dict[str, Any], most_found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small_store(version, **settings)
    for number in range(90):
        body = b"b" * (number * 37 % 900)
        store.put(a_message(number, "T" if number % 3 else "Other", number % 2, body=body))
    store.dispatch_now()
    asked = [
        (topic, queue_id, offset, most)
        for topic in ("T", "Other")
        for queue_id in (0, 1)
        for offset in range(-1, 33)
        for most in (-1, 0, 1, 2, 7, 32, 64)
    ]
    together = [all_of(store.reader.get(*words)) for words in asked]
    monkeypatch.setattr(reader, "get_together", lambda *_, **_named: False)
    assert together == [all_of(store.reader.get(*words)) for words in asked]
    assert max(len(answer[0]) for answer in together) == most_found
    store.close()


NAMES = ("queue_offset", "tags", "keys", "uniq_key", "topic", "raw_body")


def all_of(answer: GetMessageResult) -> tuple[list[Got], object]:
    """Everything that an answer says; what is decoded in place is what each record by itself decodes to."""
    decoded, fields = answer.decoded(), answer.fields(*NAMES)
    assert decoded == [decode_record_in_python(one.data) for one in answer.messages]
    assert fields == [tuple(getattr(message, name) for name in NAMES) for message in decoded]
    numbers = (answer.next_begin_offset, answer.min_offset, answer.max_offset, answer.size, answer.count)
    return answer.messages, (answer.status, answer.suggest_pulling_from_slave, numbers)


@pytest.mark.parametrize("is_together", [True, False])
def test_a_damaged_record_is_named_among_the_others(is_together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers do not check what they return: the caller gets the flaw in its place."""
    store = small_store(Version.V4_9)
    for number in range(3):
        store.put(a_message(number, "T", 0))
    store.dispatch_now()
    offset = store.reader.get("T", 0, 1, 1).messages[0].physical_offset
    file = store.setup.files.open_write(f"commitlog/{0:020d}")
    file.pwrite(b"\xff\xff\xff\xff", offset + 4)
    if not is_together:
        monkeypatch.setattr(reader, "get_together", lambda *_, **_named: False)
    answer = store.reader.get("T", 0, 0)
    flaw = answer.decoded()[1]
    assert isinstance(flaw, Flaw)
    assert (flaw.code, flaw.at) == ("CL-MAGIC", 0)
    assert answer.fields("queue_offset") == [(0,), None, (2,)]
    store.abandon()


@pytest.mark.parametrize("queues", [1, 3])
def test_the_answer_to_a_client_has_the_records_back_to_back(queues: int) -> None:
    """Neighbours in the log are taken as they are; others are cut out of what lies between them."""
    with small_store(mappedFileSizeCommitLog=1 << 16) as store:
        for number in range(30):
            assert store.put(a_message(number, queue_id=number % queues)).is_ok
        store.dispatch_now()
        for count in (1, 2, 10):
            got = store.reader.get("T", 0, 0, count)
            records = [store.commit_log.read(one.physical_offset, 1000)[: len(one.data)] for one in got.messages]
            assert got.joined() == b"".join(records)
            assert store.reader.get("T", 0, 0, count).joined() == b"".join(records)
            assert len(records) == count


@pytest.mark.parametrize("find", [get.find_span, *([] if kernel.NATIVE is None else [kernel.NATIVE.span])])
@pytest.mark.parametrize(
    ("records", "has_gaps"),
    [
        ([(100, 50)], 0),
        ([(100, 50), (150, 60), (210, 40)], 0),
        ([(100, 50), (150, 60), (211, 40)], 1),
        ([(100, 50), (150, 60), (209, 41)], 1),
        ([(100, 50), (200, 50), (150, 50), (250, 50)], 1),
    ],
)
def test_records_that_follow_each_other_have_no_gaps(
    find: Callable[..., Any], records: list[tuple[int, int]], has_gaps: int
) -> None:
    starts = array("q", bytes(8 * len(records)))
    units = b"".join(struct.pack(">qiq", offset, size, 0) for offset, size in records)
    assert find(units, starts) == (100, sum(records[-1]), sum(size for _, size in records), has_gaps)
    assert [*starts] == [offset - 100 for offset, _ in records]
