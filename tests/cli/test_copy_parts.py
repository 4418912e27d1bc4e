"""``copy`` of a part, of several stores, and with changes: what is there, what is not, and that groups go on."""

from __future__ import annotations

import csv
import gc
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.topics import TopicKind, topic_kind
from tests.cli.test_copy import Asking
from tests.support.recovered import unserved, valid_records
from tests.support.stores import STORES, left_alone, unpack


@pytest.fixture
def ask(capsysbinary: pytest.CaptureFixture[bytes]) -> Asking:
    return Asking(capsysbinary)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole broker's life: groups, delays, transactions, retries, POP."""
    return unpack("53-broker", tmp_path_factory.mktemp("source") / "store")


def keys_of(messages: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(m["topic"], m["queueId"], m["queueOffset"], m["bodyCRC"], m["storeTimestamp"]) for m in messages]


def offsets_of(root: Path) -> dict[str, dict[int, int]]:
    decoded = decode_config("consumerOffset.json", (root / "config/consumerOffset.json").read_bytes())
    assert not isinstance(decoded, Flaw)
    table: dict[str, dict[int, int]] = decoded.value["offsetTable"]
    return table


def cat(ask: Asking, root: Path, *words: str) -> list[dict[str, Any]]:
    return ask.lines("cat", root, "--jsonl", "-j", "1", *words)


def assert_sound(ask: Asking, root: Path) -> None:
    assert ask.findings(root) == []
    assert unserved(root, valid_records(root)) == []


def busiest(messages: list[dict[str, Any]]) -> str:
    plain = [m["topic"] for m in messages if topic_kind(m["topic"]) is TopicKind.NORMAL]
    return max(set(plain), key=plain.count)


def test_a_topic_and_what_waits_for_it(broker: Path, tmp_path: Path, ask: Asking) -> None:
    every = cat(ask, broker)
    waiting = {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"}
    topic = next(m["properties"]["REAL_TOPIC"] for m in every if m["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC")
    with left_alone(broker):
        shown = ask.copied(broker, tmp_path / "one", "-t", topic)
    expected = [
        m
        for m in every
        if m["topic"] in (topic, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
        or (m["topic"] in waiting and m["properties"].get("REAL_TOPIC") == topic)
    ]
    assert any(m["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC" for m in expected)
    assert (shown["messages"], shown["beside"]) == (len(expected), sum(m["topic"] != topic for m in expected))
    assert keys_of(cat(ask, tmp_path / "one")) == keys_of(expected)
    assert_sound(ask, tmp_path / "one")


# In the others POP has read it: its group's retry topic has its name, and what is in flight waits as timers.
@pytest.mark.parametrize(("name", "topic"), [("53-broker", ""), ("53-rocksdbv2", "RocksB"), ("54-combine", "RocksB")])
def test_a_purge_leaves_no_byte(name: str, topic: str, tmp_path: Path, ask: Asking) -> None:
    source = unpack(name, tmp_path / "store")
    every = cat(ask, source)
    topic = topic or busiest(every)
    target = tmp_path / "purged"
    shown = ask.copied(source, target, "--purge", topic)
    for path in target.rglob("*"):
        assert topic not in path.name
        assert not path.is_file() or topic.encode() not in path.read_bytes(), path
    assert 0 < shown["messages"] < len(every)
    kept = keys_of(cat(ask, target))
    assert set(kept) < set(keys_of(every))
    left_out = [m for m in every if keys_of([m])[0] not in set(kept)]
    assert all(topic in json.dumps(m) for m in left_out)
    assert_sound(ask, target)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_purge_of_any_topic_leaves_no_byte(name: str, tmp_path: Path, ask: Asking) -> None:
    source = unpack(name, tmp_path / "store")
    every = [line for line in cat(ask, source) if "damage" not in line]
    topics = {m["topic"] for m in every} | {m["properties"].get("REAL_TOPIC", "") for m in every}
    # A name within another one stays with that.
    alone = [one for one in sorted(topics) if one and not any(one in other for other in topics - {one})]
    plain = [one for one in alone if topic_kind(one) is TopicKind.NORMAL]
    assert plain
    for topic in {plain[0], plain[-1]}:
        target = tmp_path / f"without-{plain.index(topic)}"
        ask.copied(source, target, "--salvage", "--purge", topic)
        left = [path for path in target.rglob("*") if path.is_file() and topic.encode() in path.read_bytes()]
        assert (topic, left) == (topic, [])
        assert [path for path in target.rglob("*") if topic in path.name] == []
        assert ask.findings(target) == []


def test_what_is_older_goes_and_numbers_stay(broker: Path, tmp_path: Path, ask: Asking) -> None:
    every = cat(ask, broker)
    middle = sorted(m["storeTimestamp"] for m in every)[len(every) // 2]
    target = tmp_path / "newer"
    ask.copied(broker, target, "-b", str(middle))
    assert keys_of(cat(ask, target)) == keys_of(m for m in every if m["storeTimestamp"] >= middle)
    assert_sound(ask, target)
    assert offsets_of(target) == offsets_of(broker)
    before, after = (ask.lines("info", root, "--json")[0]["topics"] for root in (broker, target))
    assert {topic: {n: q["maxOffset"] for n, q in told["queues"].items()} for topic, told in after.items()} == {
        topic: {n: q["maxOffset"] for n, q in told["queues"].items()} for topic, told in before.items()
    }


def test_what_is_newer_goes_and_groups_stand_at_the_end(broker: Path, tmp_path: Path, ask: Asking) -> None:
    every = cat(ask, broker)
    middle = sorted(m["storeTimestamp"] for m in every)[len(every) // 2]
    target = tmp_path / "older"
    ask.copied(broker, target, "-e", str(middle))
    queues = ask.lines("info", target, "--json")[0]["topics"]
    was = offsets_of(broker)
    moved = 0
    for key, offsets in offsets_of(target).items():
        for queue, offset in offsets.items():
            told = queues.get(key.split("@")[0], {"queues": {}})["queues"].get(str(queue))
            if told is not None:
                assert offset == min(was[key][queue], told["maxOffset"]), key
                moved += offset != was[key][queue]
    assert moved
    assert_sound(ask, target)


def test_what_a_group_has_not_read(broker: Path, tmp_path: Path, ask: Asking) -> None:
    groups = sorted({key.split("@")[1] for key in offsets_of(broker)})
    group, wanted = next((one, found) for one in groups if (found := cat(ask, broker, "-g", one, "--unread")))
    shown = ask.copied(broker, tmp_path / "unread", "-g", group, "--unread")
    assert shown["messages"] == len(wanted)
    assert keys_of(cat(ask, tmp_path / "unread")) == keys_of(wanted)
    assert_sound(ask, tmp_path / "unread")
    assert ask.status("copy", broker, tmp_path / "other", "-g", group) == Exit.USAGE


def test_a_copy_of_nothing_is_an_empty_store(broker: Path, tmp_path: Path, ask: Asking) -> None:
    assert ask.copied(broker, tmp_path / "empty", "-b", "2200-01-01")["messages"] == 0
    assert ask.findings(tmp_path / "empty") == []
    assert cat(ask, tmp_path / "empty") == []


def test_renumbered_queues_have_no_gaps_and_groups_move_along(broker: Path, tmp_path: Path, ask: Asking) -> None:
    every = cat(ask, broker)
    topic = busiest(every)
    target = tmp_path / "renumbered"
    middle = sorted(m["storeTimestamp"] for m in every if m["topic"] == topic)[2]
    ask.copied(broker, target, "-b", str(middle), "--renumber")
    queues: dict[int, list[int]] = {}
    for message in cat(ask, target, "-t", topic):
        queues.setdefault(message["queueId"], []).append(message["queueOffset"])
    assert queues
    assert all(found == list(range(len(found))) for found in queues.values())
    kept: dict[tuple[str, int], list[int]] = {}
    for message in every:
        if message["storeTimestamp"] >= middle:
            kept.setdefault((message["topic"], message["queueId"]), []).append(message["queueOffset"])
    for key, offsets in offsets_of(target).items():
        if key.startswith(topic + "@"):
            for queue, offset in offsets.items():
                before = offsets_of(broker)[key][queue]
                assert offset == sum(one < before for one in kept.get((topic, queue), []))
    assert_sound(ask, target)


def test_a_merge_is_in_the_order_of_time_and_of_each_queue(tmp_path: Path, ask: Asking) -> None:
    a, b = unpack("53-basic", tmp_path / "a"), unpack("53-killed", tmp_path / "b")
    target = tmp_path / "merged"
    with left_alone(a), left_alone(b):
        shown = ask.copied(a, b, target)
    sources = [cat(ask, a), cat(ask, b)]
    merged = cat(ask, target)
    assert shown["messages"] == len(merged) == len(sources[0]) + len(sources[1])
    times = [m["storeTimestamp"] for m in merged]
    assert times == sorted(times)
    for source in sources:
        order = {(m["uniqKey"], m["bodyCRC"], m["storeTimestamp"], m["queueId"], m["topic"]) for m in source}
        own = [
            m for m in merged if (m["uniqKey"], m["bodyCRC"], m["storeTimestamp"], m["queueId"], m["topic"]) in order
        ]
        assert [m["bodyCRC"] for m in own] == [m["bodyCRC"] for m in source]
    assert_sound(ask, target)


def test_another_broker_and_less_in_each_message(broker: Path, tmp_path: Path, ask: Asking) -> None:
    every = cat(ask, broker)
    for host in ("10.1.2.3:10911", "[2001:db8::1]:10911"):
        target = tmp_path / host[1:4]
        ask.copied(broker, target, "--rehost", host, "--redact", "body", "--redact", "KEYS")
        messages = cat(ask, target)
        assert {m["storeHost"] for m in messages} == {host}
        own = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_REVIVE_LOG")
        plain = [m for m in messages if not m["topic"].startswith(own)]
        assert {(m["body"], m["keys"], m["bodyCRC"]) for m in plain} == {("", None, 0)}
        assert [m["queueOffset"] for m in messages] == [m["queueOffset"] for m in every]
        assert [m["uniqKey"] for m in messages] == [m["uniqKey"] for m in every]
        assert_sound(ask, target)
    assert ask.status("copy", broker, tmp_path / "x", "--redact", "REAL_TOPIC") == Exit.USAGE
    assert ask.status("copy", broker, tmp_path / "x", "--rehost", "nowhere") == Exit.USAGE


def test_old_ids_lead_to_new_ones(broker: Path, tmp_path: Path, ask: Asking) -> None:
    every = cat(ask, broker)
    ask.copied(broker, tmp_path / "a", "--ids", tmp_path / "ids.jsonl")
    ask.copied(broker, tmp_path / "b", "--ids", tmp_path / "ids.csv")
    lines = [json.loads(line) for line in (tmp_path / "ids.jsonl").read_text().splitlines()]
    rows = list(csv.DictReader((tmp_path / "ids.csv").read_text().splitlines()))
    assert [line["oldOffsetMsgId"] for line in lines] == [m["offsetMsgId"] for m in every]
    assert [line["offsetMsgId"] for line in lines] == [m["offsetMsgId"] for m in cat(ask, tmp_path / "a")]
    assert [row["offsetMsgId"] for row in rows] == [line["offsetMsgId"] for line in lines]
    assert ask.status("copy", broker, tmp_path / "c", "--ids", tmp_path / "ids.csv") == Exit.REFUSED
    assert not (tmp_path / "c").exists()


def test_a_copy_that_is_refused_leaves_no_ids_and_no_open_file(tmp_path: Path, ask: Asking) -> None:
    source = unpack("53-basic", tmp_path / "source")
    with (source / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(4)
        file.write(b"?")
    before = sorted(tmp_path.iterdir())
    open_files = len(os.listdir("/proc/self/fd"))
    assert ask.status("copy", source, tmp_path / "target", "--ids", tmp_path / "ids.csv") == Exit.REFUSED
    gc.collect()  # a file that nobody closed is a warning, and warnings are errors
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("name", "version"), [("49-basic", "4.9"), ("53-basic", "5.3"), ("53-basic", "5.4")])
def test_a_broker_finds_messages_between_those_left_out(name: str, version: str, tmp_path: Path, ask: Asking) -> None:
    """The first file of a queue is searched by halves for what is in the log: places without messages may mislead."""
    source = unpack(name, tmp_path / "source")
    target = tmp_path / "target"
    assert ask.status("copy", source, target, "--tag", "AaAa || TagB") == Exit.DONE
    assert ask.findings(target) == []
    first: dict[tuple[str, str], int] = {}
    for message in cat(ask, target):
        queue = (message["topic"], str(message["queueId"]))
        if not message["sysFlag"] & 4:
            first[queue] = min(message["queueOffset"], first.get(queue, message["queueOffset"]))
    (told,) = ask.lines("recover", target, "--as", version, "--json")
    begins = {
        (topic, number): of["minOffset"] for topic, queues in told["queues"].items() for number, of in queues.items()
    }
    assert max(first.values()) > 0
    assert {queue: begin for queue, begin in first.items() if begins[queue] > begin} == {}
    assert (told["messagesLost"], told["messagesUnreachable"]) == (0, 0)


def test_queues_are_copied_to_rocksdb_and_back(tmp_path: Path) -> None:
    """Gaps of messages that were left out have rows; a broker takes tables from files only if they were counted."""
    pytest.importorskip("rocksdict", reason="needs the extra rocksdb")
    rows, files = tmp_path / "rows", tmp_path / "files"
    root = unpack("53-broker", tmp_path / "source")
    words = ["--tag", "TagA", "--quiet"]
    assert main(["copy", str(root), str(rows), "--conf", "storeType=defaultRocksDB", *words]) == 0
    assert (rows / "consumequeue/CURRENT").exists()
    assert not list((rows / "consumequeue").glob("T_*"))
    for name in ("consumerOffset.json", "topics.json", "subscriptionGroup.json"):
        decoded = decode_config(name, (rows / "config" / name).read_bytes())
        assert not isinstance(decoded, Flaw)
        assert decoded.value["dataVersion"]["counter"] > 0, name
    assert main(["copy", str(rows), str(files), "--conf", "storeType=default", "--quiet"]) == 0
    assert not (files / "consumequeue/CURRENT").exists()
    assert main(["check", str(rows), "--quiet"]) == main(["check", str(files), "--quiet"]) == 0
    assert main(["diff", str(rows), str(files), "--quiet"]) == 0
