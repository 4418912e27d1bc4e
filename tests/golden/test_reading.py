"""The engine answers as the real classes did: every get, offset by time and query by key that was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from rmqtool.config import Version
from rmqtool.engine.get import TagFilter
from rmqtool.engine.message import NewMessage
from rmqtool.engine.reader import StoreReader, StoreView
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.filters.tags import parse_tags
from rmqtool.store.open import open_store
from rmqtool.store.time_search import Boundary
from tests.support.recovered import setup_for
from tests.support.stores import STORES, truth

READ_BY = {"4.9.8": Version.V4_9, "5.3.3": Version.V5_3, "5.4.0": Version.V5_4}
# What only its own broker may write is read through a view.
VIEWED = ("49-dledger", "53-rocksdb", "54-combine", "54-rocksone")
# Its recorded answers are those of ghosts: units that a recovery left, and the next start took for its own.
HAUNTED = "49-ghost"
READABLE = [name for name in STORES if name != HAUNTED and truth(name).get("getMessage")]


@contextmanager
def reader_of(name: str, writable_store: Any) -> Iterator[StoreReader]:
    """Open a copy of a store as the version that answered, the one with the ghosts after our recovery."""
    root = writable_store(name)
    levels = truth(name)["config"].get("messageDelayLevel")
    settings = () if levels is None else (f"messageDelayLevel={levels}",)
    version = READ_BY[truth(name)["read_by"]]
    if name in VIEWED:
        with open_store(str(root), version=version, assignments=settings) as files, StoreView(files) as view:
            yield view.reader
    else:
        if name == HAUNTED:
            recover(setup_for(root, version))
        with MessageStore.open(setup_for(root, version, settings)) as store:
            yield store.reader


class Answer(NamedTuple):
    """What a get answers."""

    status: str
    next_begin_offset: int
    min_offset: int
    max_offset: int
    places: list[int]


def recorded(row: dict[str, Any]) -> Answer:
    """Return what the real classes answered."""
    return Answer(row["status"], row["nextBeginOffset"], row["minOffset"], row["maxOffset"], row["phyOffsets"])


def answered(reader: StoreReader, row: dict[str, Any]) -> Answer:
    """Ask the engine what a row asks."""
    tags = row["subscription"]
    only = None if tags is None else TagFilter(parse_tags(tags))
    got = reader.get(row["topic"], row["queueId"], row["offset"], row["maxMsgNums"], only)
    places = [message.physical_offset for message in got.messages]
    return Answer(got.status.name, got.next_begin_offset, got.min_offset, got.max_offset, places)


def at_time(reader: StoreReader, row: dict[str, Any]) -> int:
    """Ask the engine for a time."""
    boundary = Boundary(row.get("boundary", "LOWER").lower())
    return reader.offset_by_time(row["topic"], row["queueId"], row["timestamp"], boundary)


def by_key(reader: StoreReader, row: dict[str, Any]) -> list[int]:
    """Ask the engine for a key."""
    messages = reader.query(row["topic"], row["key"], row["maxNum"], row["begin"], row["end"])
    return [message.physical_offset for message in messages]


@pytest.mark.parametrize("name", READABLE)
def test_every_recorded_answer_is_the_engines(name, writable_store):
    if "rocks" in name:
        pytest.importorskip("rocksdict")
    told = truth(name)
    with reader_of(name, writable_store) as reader:
        for row in told["getMessage"]:
            assert answered(reader, row) == recorded(row), row
        for row in told["offsetByTime"]:
            assert at_time(reader, row) == row["offset"], row
        for row in told["queryMessage"]:
            assert by_key(reader, row) == row["phyOffsets"], row


def test_of_the_ghosts_only_what_is_a_ghost_is_answered_otherwise(writable_store):
    """Behind the last record of four queues stand units that lead nowhere. Recovered, these queues end where they do.

    Everything else is as it was recorded: what is answered from a queue changes in its maximum, and where it reached
    into the ghosts.
    """
    told = truth(HAUNTED)
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for message in told["messages"]:
        last[message["topic"], message["queueId"]] = message
    ends = {queue: message["queueOffset"] + 1 for queue, message in last.items()}
    haunted = {("KillT", 1): 105, ("KillT", 2): 105, ("KillT2", 1): 35, ("KillT2", 2): 35}
    differing = [0, 0]
    with reader_of(HAUNTED, writable_store) as reader:
        for row in told["getMessage"]:
            queue, due = (row["topic"], row["queueId"]), recorded(row)
            if queue in haunted:
                assert due.max_offset == haunted[queue] > ends[queue]
                due = without_ghosts(due, row["offset"], ends[queue])
                differing[0] += 1
            assert answered(reader, row) == due, row
        for row in told["offsetByTime"]:
            queue, due_offset = (row["topic"], row["queueId"]), row["offset"]
            if queue in haunted and row["timestamp"] > last[queue]["storeTimestamp"]:
                # Nothing is that late: the last message answers. A ghost answered by what stood in its place.
                assert due_offset in (0, haunted[queue] - 1, haunted[queue] - 2)
                due_offset = ends[queue] - 1
                differing[1] += row["offset"] != due_offset
            assert at_time(reader, row) == due_offset, row
        for row in told["queryMessage"]:
            assert by_key(reader, row) == row["phyOffsets"], row
    assert differing == [92, 18]


def without_ghosts(due: Answer, offset: int, end: int) -> Answer:
    """Return what is due where a queue ends before its ghosts."""
    if offset > end:
        return Answer("OFFSET_OVERFLOW_BADLY", end, due.min_offset, end, [])
    if offset == end:
        return Answer("OFFSET_OVERFLOW_ONE", end, due.min_offset, end, [])
    return due._replace(max_offset=end, next_begin_offset=min(due.next_begin_offset, end))


def test_what_is_new_in_a_compacted_topic_is_read_behind_what_is_compacted(writable_store):
    with MessageStore.open(setup_for(writable_store("53-compaction"), Version.V5_3)) as store:
        assert store.put(NewMessage("CompactT", b"new", 0)).queue_offset == 225
        store.dispatch_now()
        got = store.reader.get("CompactT", 0, 225)
        assert (got.status.name, got.next_begin_offset, got.max_offset) == ("FOUND", 226, 226)
        assert [one.queue_offset for one in store.reader.get("CompactT", 0, 224).messages] == [224]
