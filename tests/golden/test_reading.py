"""The engine answers as the real classes did: every get, offset by time and query by key that was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.message_filter import TagFilter
from rmqtool.engine.store import MessageStore
from rmqtool.filters.tags import parse_tags
from rmqtool.storage.time_search import Boundary
from tests.recovered import setup_for
from tests.stores import STORES, truth

READ_BY = {"4.9.8": Version.V4_9, "5.3.3": Version.V5_3, "5.4.0": Version.V5_4}
# What only its own broker may write; and the store whose recorded answers are ghosts.
LEFT_OUT = ("49-dledger", "53-rocksdb", "54-combine", "54-rocksone", "49-ghost")
READABLE = [name for name in STORES if name not in LEFT_OUT and truth(name).get("getMessage")]


@contextmanager
def opened(name: str, writable_store: Any) -> Iterator[MessageStore]:
    """Open a copy of a store as the version that answered."""
    root = writable_store(name)
    settings = [f"{key}={value}" for key, value in truth(name)["config"].items() if "$" not in str(value)]
    keep = [setting for setting in settings if setting.split("=")[0] in ("messageDelayLevel",)]
    with MessageStore.open(setup_for(root, READ_BY[truth(name)["read_by"]], keep)) as store:
        yield store


@pytest.mark.parametrize("name", READABLE)
def test_every_recorded_answer_is_the_engines(name, writable_store):
    with opened(name, writable_store) as store:
        reader = store.reader
        wrong = []
        for row in truth(name)["getMessage"]:
            tags = row["subscription"]
            only = None if tags is None else TagFilter(parse_tags(tags))
            got = reader.get(row["topic"], row["queueId"], row["offset"], row["maxMsgNums"], only)
            ours = (
                got.status.name,
                got.next_begin_offset,
                got.min_offset,
                got.max_offset,
                [message.physical_offset for message in got.messages],
            )
            theirs = (row["status"], row["nextBeginOffset"], row["minOffset"], row["maxOffset"], row["phyOffsets"])
            if ours != theirs:
                wrong.append((row["topic"], row["queueId"], row["offset"], tags, ours, theirs))
        assert wrong == []
        for row in truth(name)["offsetByTime"]:
            boundary = Boundary(row.get("boundary", "LOWER").lower())
            found = reader.offset_by_time(row["topic"], row["queueId"], row["timestamp"], boundary)
            if found != row["offset"]:
                wrong.append((row, found))
        assert wrong == []
        for row in truth(name)["queryMessage"]:
            messages = reader.query(row["topic"], row["key"], row["maxNum"], row["begin"], row["end"])
            if [message.physical_offset for message in messages] != row["phyOffsets"]:
                wrong.append((row, [message.physical_offset for message in messages]))
        assert wrong == []


def test_what_is_new_in_a_compacted_topic_is_read_behind_what_is_compacted(writable_store):
    with opened("53-compaction", writable_store) as store:
        assert store.put(NewMessage("CompactT", b"new", 0)).queue_offset == 225
        store.dispatch_now()
        got = store.reader.get("CompactT", 0, 225)
        assert (got.status.name, got.next_begin_offset, got.max_offset) == ("FOUND", 226, 226)
        assert [one.queue_offset for one in store.reader.get("CompactT", 0, 224).messages] == [224]
