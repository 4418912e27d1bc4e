"""A placeholder over damage is a record, but not a message: every command counts the same number of messages.

Eight commands are asked, because each counts in its own way; who names the topic of placeholders gets them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtool.formats.bridges import is_bridge
from rmqtool.formats.commit_log import Message
from rmqtool.store.open import open_store
from tests.guards.typed import json_of, type_words

TOPIC = "RMQTOOL_QUARANTINE"
# The record whose header is damaged: where it begins, its size, and its place in its queue.
AT, SIZE, PLACE = 32_866, 232, "TopicA/0"


@pytest.fixture
def mended(writable_store) -> Path:
    """A store with one placeholder, over a record of ``SIZE`` bytes at ``AT``."""
    root: Path = writable_store("recovery-5.3.3/base-A")
    log = root / "commitlog/00000000000000000000"
    data = bytearray(log.read_bytes())
    data[AT + 4] ^= 1  # the magic
    log.write_bytes(data)
    assert type_words(["repair", str(root), "--apply", "--allow", "primary"]).status == 0
    return root


def test_every_command_counts_the_same_messages(mended: Path, store, tmp_path: Path) -> None:
    whole = int(type_words(["cat", str(store("recovery-5.3.3/base-A")), "--count"]).out)
    expected = whole - 1
    root = str(mended)
    summary = json.loads(type_words(["check", root, "--jsonl"]).out.splitlines()[-1])["summary"]
    assert (summary["messages"], summary["placeholders"]) == (expected, 1)
    assert f"{expected:,} messages" in (screen := type_words(["check", root]).out)
    assert ", 1 placeholder, " in screen
    total = json_of(type_words(["stat", root, "--json"]))["total"]
    assert (total["messages"], total["bytes"]) == (expected, summary["bytes"])
    assert int(type_words(["cat", root, "--count"]).out) == expected
    lines = type_words(["cat", root, "--jsonl"]).out.splitlines()
    assert len(lines) == expected
    assert not any(TOPIC in line for line in lines)
    assert len(type_words(["cat", root, "--jsonl", "--order", "queue"]).out.splitlines()) == expected
    assert json_of(type_words(["recover", root, "--apply", "--json"]))["messages"] == expected
    out = tmp_path / "out"
    assert json_of(type_words(["export", root, "--to", str(out), "--engine", "local", "--json"]))["rows"] == expected
    assert pq.read_table(out).num_rows == expected
    copied = tmp_path / "copied"
    assert json_of(type_words(["copy", root, str(copied), "--json"]))["messages"] == expected


def test_who_names_the_topic_gets_the_placeholder(mended: Path) -> None:
    asked = type_words(["cat", str(mended), "-t", TOPIC, "--jsonl"])
    assert "no topic matches" not in asked.err
    (line,) = map(json.loads, asked.out.splitlines())
    assert (line["commitLogOffset"], line["storeSize"], line["topic"]) == (AT, SIZE, TOPIC)
    assert int(type_words(["cat", str(mended), "-t", TOPIC, "-t", "TopicA", "--count"]).out) > 1
    # A pattern that matches every name does not name it.
    everything = int(type_words(["cat", str(mended), "--count"]).out)
    assert int(type_words(["cat", str(mended), "-t", "*", "--count"]).out) == everything


@pytest.mark.parametrize("what", [f"@{AT}", "queue"])
def test_a_lost_message_is_not_found_and_the_reason_is_told(what: str, mended: Path, store) -> None:
    if what == "queue":
        first = type_words(["query", str(store("recovery-5.3.3/base-A")), f"@{AT}", "--json"])
        (message,) = json.loads(first.out)["messages"]
        what = f"{message['topic']}/{message['queueId']}@{message['queueOffset']}"
        assert what.startswith(PLACE)
    asked = type_words(["query", str(mended), what])
    assert asked.status == 1
    assert "The message there was damaged: a repair wrote a placeholder over it, and it is lost." in asked.out
    # `check` finds no wrong entry there, so `query` does not send anybody to a repair either.
    assert "CQ-WRONG" not in asked.out
    assert json_of(type_words(["query", str(mended), f"@{AT}", "-t", TOPIC, "--json"]))["messages"][0]["topic"] == TOPIC


@pytest.mark.parametrize("kind", ["uniqKey", "key"])
@pytest.mark.parametrize("lost", [1, 2])
def test_an_entry_of_a_lost_message_is_not_wrong_for_query_as_for_check(
    kind: str, lost: int, writable_store, store
) -> None:
    """The keys of the lost messages are asked for: the placeholder begins at the first, and covers the second too."""
    whole = store("recovery-5.3.3/base-A")
    lines = map(json.loads, type_words(["cat", str(whole), "--jsonl"]).out.splitlines())
    messages = [line for line in lines if line["commitLogOffset"] >= AT][:lost]
    root = writable_store("recovery-5.3.3/base-A")
    log = root / "commitlog/00000000000000000000"
    data = bytearray(log.read_bytes())
    for message in messages:
        data[message["commitLogOffset"] + 4] ^= 1  # the magic
    log.write_bytes(data)
    assert type_words(["repair", str(root), "--apply", "--allow", "primary"]).status == 0
    checked = type_words(["check", str(root)])
    assert (checked.status, "IX-" in checked.out) == (0, False)
    for message in messages:
        key = message["uniqKey"]
        (found,) = json_of(type_words(["query", str(whole), key, "--kind", kind, "--json"]))["messages"]
        assert found["commitLogOffset"] == message["commitLogOffset"]
        asked = type_words(["query", str(root), key, "--kind", kind])
        assert (asked.status, "IX-" in asked.out) == (1, False)
        told = f"The index has this key at {message['commitLogOffset']}; the message there was damaged: a repair wrote"
        assert told in " ".join(asked.out.split())


def test_columns_and_records_agree_on_what_is_a_placeholder(mended: Path) -> None:
    from rmqtool.columns.records import are_bridges, decode_records
    from rmqtool.columns.starts import record_starts
    from rmqtool.formats.commit_log import decode_record

    with open_store(str(mended)) as opened:
        segment = opened.commit_log.segments[0]
        with opened.commit_log.open(segment) as file:
            data = file.pread_exactly(segment.size, 0)
    records, _ = decode_records(data, record_starts(data).file_offsets)
    found = [decode_record(data, int(at)) for at in records.file_offsets]
    assert all(isinstance(one, Message) for one in found)
    told = [is_bridge(one) for one in found if isinstance(one, Message)]
    assert are_bridges(records).tolist() == told
    assert sum(told) == 1
