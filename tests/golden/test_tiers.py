"""Tiers that the real 5.3.3 tiered store wrote, read as it read them: alone, and as one with their stores."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool import batches, check, copy, dump, info, query, recover_until, repair, scan, stat
from rmqtool.api.cat import reading
from rmqtool.api.copy import copied
from rmqtool.api.export import export, write
from rmqtool.api.query import find
from rmqtool.errors import ReadFailed, Refused, StoreError
from rmqtool.exports.choice import DEFAULT
from rmqtool.exports.splits import BatchReader, plan_sources
from rmqtool.formats.message_json import read_body
from tests.support.stores import left_alone, truth

# One was stopped, of the other the broker was killed: its newest index file and its metadata are older than the rest.
TIERS = ("tiers/53-tier", "tiers/53-tier-killed")
COMPARED = (
    "commitLogOffset", "storeSize", "magic", "topic", "queueId", "queueOffset", "flag", "sysFlag", "bornTimestamp",
    "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "bodyCRC", "offsetMsgId",
    "uniqKey", "tags", "keys", "properties", "bodyLength", "storedBodyLength",
)  # fmt: skip
every_tier = pytest.mark.parametrize("name", TIERS)

Message = dict[str, Any]


def place(message: Message) -> tuple[str, int, int]:
    return message["topic"], message["queueId"], message["queueOffset"]


def messages_of(path: Path, **how: Any) -> list[Message]:
    """Return the messages at a path; there must be no damage."""
    found: list[Any] = list(scan(str(path), **how))
    assert [one for one in found if "damage" in one] == []
    return found


def digest(message: Message) -> str:
    return hashlib.sha256(read_body(message)).hexdigest()


@every_tier
def test_every_message_of_a_tier_is_what_the_real_classes_read(name: str, store: Callable[[str], Path]) -> None:
    tier = store(name) / "tier"
    with left_alone(tier):
        found = messages_of(tier)
    told = truth(name)["messages"]
    assert len(told) > 500
    assert [place(message) for message in found] == [place(message) for message in told]
    for message, wanted in zip(found, told, strict=True):
        assert {key: message[key] for key in COMPARED} == {key: wanted[key] for key in COMPARED}
        assert digest(message) == wanted["bodySha256"]


def asked(name: str) -> dict[tuple[str, int, int], list[str]]:
    """Return what the real store and its tier gave together: unique keys and digests of bodies."""
    queues = truth(name)["asOne"]
    return {
        (topic, int(queue_id), offset): [key, body]
        for topic, of_topic in queues.items()
        for queue_id, queue in of_topic.items()
        for offset, key, body in queue["messages"]
    }


@pytest.mark.parametrize("order", ["log", "queue", "time"])
@every_tier
def test_a_store_and_its_tier_read_as_one(name: str, order: str, store: Callable[[str], Path]) -> None:
    found = [message for message in messages_of(store(name), order=order) if message["topic"] in truth(name)["asOne"]]
    wanted = asked(name)
    assert {place(message): [message["uniqKey"], digest(message)] for message in found} == wanted
    assert len(found) == len(wanted)
    if order == "queue":
        assert [place(message) for message in found] == sorted(wanted)
    elif order == "time":
        times = [message["storeTimestamp"] for message in found]
        assert times == sorted(times)


def test_the_tier_is_read_before_the_log(store: Callable[[str], Path]) -> None:
    found = messages_of(store("tiers/53-tier"), topics="Orders", queue=0)
    assert [message["queueOffset"] for message in found] == list(range(280))
    # The log has them from 246 on; a record of the tier names its place in the queue's own log there.
    assert truth("tiers/53-tier")["asOne"]["Orders"]["0"]["localMin"] == 246
    units = truth("tiers/53-tier")["queues"]["Orders"]["0"]["units"]
    assert [message["commitLogOffset"] for message in found[:246]] == [unit[0] for unit in units[:246]]
    assert found[246]["commitLogOffset"] >= 196608


@pytest.mark.parametrize(("offset", "first"), [(200, 200), (250, 250), (-3, 277)])
def test_a_queue_is_read_from_an_offset_on(offset: int, first: int, store: Callable[[str], Path]) -> None:
    how: Any = {"offset": offset}
    with reading(str(store("tiers/53-tier")), how, topics="Orders", queue=0) as found:
        offsets = [one["queueOffset"] for one in found if isinstance(one, dict)]
    assert offsets == list(range(first, 280))


def test_the_last_messages_of_all(store: Callable[[str], Path]) -> None:
    how: Any = {"offset": -60}
    with reading(str(store("tiers/53-tier")), how) as found:
        places = [place(one) for one in found if isinstance(one, dict)]
    everything = [place(message) for message in messages_of(store("tiers/53-tier"))]
    assert len(everything) == 541
    assert places == everything[-60:]


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("", 538),
        ("212d6b50_DefaultCluster", 538),
        ("212d6b50_DefaultCluster/broker-a", 538),
        ("212d6b50_DefaultCluster/broker-a/Orders", 460),
        ("212d6b50_DefaultCluster/broker-a/Orders/1", 180),
        ("212d6b50_DefaultCluster/broker-a/Orders/1/COMMIT_LOG", 180),
        ("212d6b50_DefaultCluster/broker-a/Orders/1/COMMIT_LOG/3b92d6c100000000000000059918", 6),
    ],
)
def test_a_part_of_a_tier_is_read(path: str, count: int, store: Callable[[str], Path]) -> None:
    assert len(messages_of(store("tiers/53-tier") / "tier" / path)) == count


def test_without_its_tier_the_rest_is_read_and_a_note_says_so(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    shutil.rmtree(root / "tier")
    with reading(str(root), {}) as found:
        events = list(found)
    notes = [event for event in events if isinstance(event, str)]
    assert notes[0] == (f"{root}/tier, which tieredStoreFilePath names, does not exist: older messages are not read")
    assert len([event for event in events if isinstance(event, dict)]) == 47


@pytest.mark.parametrize(("place", "count"), [("", 541), ("tier", 538)])
def test_a_tier_is_exported(place: str, count: int, store: Callable[[str], Path], tmp_path: Path) -> None:
    import pyarrow.parquet

    target = tmp_path / "messages"
    export(str(store("tiers/53-tier") / place), target)
    table = pyarrow.parquet.read_table(target, columns=["topic", "queue_id", "queue_offset", "msg_id"])
    rows = {(row["topic"], row["queue_id"], row["queue_offset"]): row["msg_id"] for row in table.to_pylist()}
    assert table.num_rows == len(rows) == count
    told = asked("tiers/53-tier")
    assert rows == {at: told[at][0] for at in rows}


def with_more_topics(root: Path) -> None:
    """Copy a topic of a tier twice: then the tier is larger than what comes before the log, and begins before 0."""
    topics = root / "tier/212d6b50_DefaultCluster/broker-a"
    for name in ("Orders2", "Orders3"):
        for above in (topics, root / "consumequeue"):
            shutil.copytree(above / "Orders", above / name)


@pytest.mark.parametrize("begin", [None, 1], ids=["all", "period"])
def test_a_tier_that_is_larger_than_the_deleted_log_is_exported(
    begin: int | None, writable_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = writable_store("tiers/53-tier")
    with_more_topics(root)
    count = len(messages_of(root))
    assert count > 541
    outcome = write(str(root), tmp_path / "messages", {"engine": "local"}, begin=begin)
    assert outcome.shown["rows"] == count
    manifest = json.loads((tmp_path / "messages_manifest/000001.json").read_text())
    assert {read["startCommitLogOffset"] for read in manifest["read"].values()} == {0}


def test_bounds_of_a_column_leave_out_no_row_of_a_tier(store: Callable[[str], Path]) -> None:
    """Records of a tier name offsets in the log of their queue."""
    choice = replace(DEFAULT, physical_begin=100, physical_end=5000)
    (source,) = plan_sources([str(store("tiers/53-tier"))], choice)
    places: list[int] = []
    for asked in source.ranges:
        reader = BatchReader(asked, source.choice, source.choice.projection("b", "ms"), source.plan.queues)
        for found in reader.pieces():
            places += found.batch["commitlog_offset"].to_pylist()  # type: ignore[union-attr]
    every = [message["commitLogOffset"] for message in messages_of(store("tiers/53-tier"))]
    named = sorted(place for place in every if 100 <= place < 5000)
    assert len(named) > 50
    assert sorted(place for place in places if 100 <= place < 5000) == named


def test_an_export_and_a_copy_without_the_tier_say_so(writable_store: Callable[[str], Path], tmp_path: Path) -> None:
    root = writable_store("tiers/53-tier")
    shutil.rmtree(root / "tier")
    note = f"{root}/tier, which tieredStoreFilePath names, does not exist: older messages are not read"
    outcome = write(str(root), tmp_path / "messages", {"engine": "local"})
    assert (outcome.shown["rows"], outcome.notes) == (47, [note])
    assert note in copied([str(root)], tmp_path / "copy", {}).notes
    with pytest.warns(UserWarning, match="tieredStoreFilePath names, does not exist: older messages are not read"):
        assert len(list(scan(str(root)))) == 47
    with pytest.warns(UserWarning, match="older messages are not read"):
        assert batches(str(root)).read_all().num_rows == 47


def test_a_gap_and_a_wrong_byte_in_a_tier_are_damage(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier") / "tier"
    log = root / "212d6b50_DefaultCluster/broker-a/Orders/0/COMMIT_LOG"
    (log / "8e670b3100000000000000059748").unlink()
    data = bytearray((log / "880245e800000000000000029990").read_bytes())
    data[90] ^= 1  # in the body of its first message
    (log / "880245e800000000000000029990").write_bytes(data)
    damages = [one["damage"] for one in scan(str(root)) if "damage" in one]
    size = next(unit[1] for unit in truth("tiers/53-tier")["queues"]["Orders"]["0"]["units"] if unit[0] == 29990)
    assert [(one["code"], one["file"], one["offset"], one["length"]) for one in damages] == [
        ("CL-CRC", "Orders/0/COMMIT_LOG/880245e800000000000000029990", 0, size),
        ("CL-GAP", "Orders/0/COMMIT_LOG/880245e800000000000000029990", 29758, 29880),
    ]


@every_tier
def test_keys_are_found_in_a_tier(name: str, store: Callable[[str], Path]) -> None:
    tier = str(store(name) / "tier")
    by: set[str] = set()
    asked_keys = truth(name)["queryMessage"][::3]
    assert len(asked_keys) > 40
    for asked_key in asked_keys:
        found = query(tier, asked_key["key"], kind="key", topics=asked_key["topic"])
        places = [f"{message['queueId']}@{message['queueOffset']}" for message in found["messages"]]
        assert (sorted(places), found["complete"]) == (sorted(asked_key["places"]), True)
        by |= set(found["answeredBy"])
    # The newest index entries of the killed broker are not in its tier.
    assert by == ({"index", "scan"} if name.endswith("killed") else {"index"})


@every_tier
def test_times_are_found_in_a_tier(name: str, store: Callable[[str], Path]) -> None:
    tier, boundaries = str(store(name) / "tier"), {"LOWER": "lower", "UPPER": "upper"}
    times = truth(name)["offsetByTime"]
    assert len(times) == 70
    for asked_time in times:
        how: Any = {"kind": "time", "boundary": boundaries[asked_time["boundary"]]}
        which: Any = {"topics": asked_time["topic"], "queue": asked_time["queueId"]}
        with find(tier, str(asked_time["timestamp"]), how, **which) as found:
            assert found.head["queueOffset"] == asked_time["offset"]


@every_tier
def test_bounds_are_those_of_the_real_classes(name: str, store: Callable[[str], Path]) -> None:
    told = truth(name)
    alone, one = (info(str(store(name) / part))["topics"] for part in ("tier", ""))
    for topic, queues in told["queues"].items():
        for queue, bounds in queues.items():
            found = alone[topic]["queues"][queue]
            assert (found["minOffset"], found["maxOffset"]) == (bounds["minOffset"], bounds["maxOffset"])
    for topic, queues in told["asOne"].items():
        for queue, bounds in queues.items():
            found = one[topic]["queues"][queue]
            assert (found["minOffset"], found["maxOffset"]) == (bounds["minOffset"], bounds["maxOffset"])


@pytest.mark.parametrize(
    ("what", "places"),
    [
        ("Orders/0@12", [("Orders", 0, 12)]),
        ("Orders/0@250", [("Orders", 0, 250)]),
        ("key-1-7", [("Orders", 0, 3)]),
        # The same message again after a delay: in the retry topic.
        ("key-3-1", [("%RETRY%slow", 0, 0), ("Payments", 1, 0)]),
        # The offset in an id is that in the log of a queue: of several queues, one has a message there.
        ("7F000001000072BD000000000000018A", [("%RETRY%slow", 0, 1)]),
        ("Orders/0@900", []),
    ],
)
def test_a_store_and_its_tier_answer_together(
    what: str, places: list[tuple[str, int, int]], store: Callable[[str], Path]
) -> None:
    found = query(str(store("tiers/53-tier")), what)
    assert [place(message) for message in found["messages"]] == places
    assert found["complete"]
    if not places:
        assert "the tier was searched too" in found["reasons"]


def test_a_repair_is_planned_beside_a_tier(store: Callable[[str], Path]) -> None:
    with left_alone(store("tiers/53-tier")):
        plan = repair(str(store("tiers/53-tier")))
    assert (plan["steps"], plan["left"]) == ([], [])


BROKER = "tier/212d6b50_DefaultCluster/broker-a"


def test_a_tier_does_not_hide_an_unmounted_log(writable_store: Callable[[str], Path], tmp_path: Path) -> None:
    root = writable_store("tiers/53-tier")
    for file in (root / "commitlog").iterdir():
        file.unlink()
    with reading(str(root), {}) as found:
        events = list(found)
    assert events[0] == f"{BROKER} is not read: the commit log is empty. Name the tier to read it"
    assert [one["damage"]["code"] for one in events if isinstance(one, dict)] == ["ST-MOUNT"]
    with pytest.raises(StoreError, match="ST-MOUNT"):
        write(str(root), tmp_path / "messages", {"on_corrupt": "fail", "engine": "local"})
    with pytest.raises(Refused, match="is its volume mounted"):
        copy(str(root), tmp_path / "copy")


def test_without_queues_no_message_comes_twice(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    with reading(str(root), {}) as found:
        events = list(found)
    notes = [event for event in events if isinstance(event, str)]
    assert notes[0] == (
        f"OnlyLocal/0, OnlyLocal/1, Orders/0 and 1 more of {BROKER} are not read: the queues of the store do not say "
        "which of the messages the log has too. Name the tier to read it"
    )
    messages = [one for one in events if isinstance(one, dict)]
    assert [one for one in messages if "damage" in one] == []
    places = [place(one) for one in messages]
    assert len(places) == len(set(places))
    # The tier has all messages of this topic, and the log none; of the others the log is read.
    assert {one for one in places if one[0] == "Payments"} == {one for one in asked(TIERS[0]) if one[0] == "Payments"}
    assert sorted(one[2] for one in places if one[:2] == ("Orders", 0)) == list(range(246, 280))


def test_beside_a_log_without_a_message_the_whole_tier_is_read(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    shutil.rmtree(root / "consumequeue")
    (log,) = (root / "commitlog").iterdir()
    log.write_bytes(bytes(log.stat().st_size))
    with reading(str(root), {}) as found:
        events = list(found)
    assert [event for event in events if isinstance(event, str)] == []
    assert found.messages == 538


def test_a_queue_of_a_store_is_followed_with_its_own_older_messages(store: Callable[[str], Path]) -> None:
    root = store("tiers/53-tier")
    how: Any = {"follow": True, "limit": 280}
    with reading(str(root / "consumequeue/Orders/0"), how) as found:
        places = [place(one) for one in found if isinstance(one, dict)]
    assert places == [("Orders", 0, offset) for offset in range(280)]


def test_tiers_of_several_brokers_need_a_name(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    shutil.copytree(root / BROKER, (root / BROKER).with_name("broker-b"))
    settings = root / "broker.conf"
    settings.write_text(settings.read_text().replace("brokerName=broker-a\n", ""))
    why = f"{root}/tier has the tiers of broker-a and broker-b, and brokerName (--conf) is not set"
    with reading(str(root), {}) as found:
        events = list(found)
    assert events[0] == f"{why}: older messages are not read"
    assert found.messages == 47
    codes = [(one["code"], one["message"]) for one in info(str(root))["findings"]]
    assert ("TI-MOUNT", why) in codes


def test_a_tier_that_cannot_be_listed_does_not_keep_its_store_from_being_read(
    store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(root: str) -> None:
        raise ReadFailed(f"{root} cannot be listed", file=root)

    monkeypatch.setattr("rmqtool.store.tiers.open_tier", refuse)
    with reading(str(store("tiers/53-tier")), {}) as found:
        events = list(found)
    assert str(events[0]).endswith("/broker-a cannot be listed: older messages are not read")
    assert found.messages == 47


def test_an_earlier_time_is_looked_up_in_the_log_alone(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    lone = root.with_name("lone")
    shutil.copytree(root / "commitlog", lone)
    found = messages_of(lone)
    until = found[40]["storeTimestamp"]
    late = [one for one in found if one["storeTimestamp"] >= until]
    cut = recover_until(str(root), until)["cut"]
    assert (cut["offset"], cut["messages"]) == (late[0]["commitLogOffset"], len(late))


def test_damage_in_a_tier_is_not_counted_by_entries_of_the_store(
    writable_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = writable_store("tiers/53-tier")
    path = root / BROKER / "Orders/0/COMMIT_LOG/880245e800000000000000029990"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    done = write(str(root), tmp_path / "messages", {"on_corrupt": "skip", "engine": "local"}).shown
    assert (done["rows"], done["damaged"]["ranges"], done["damaged"]["messages"]) == (540, 1, None)


@every_tier
def test_a_copy_of_a_store_has_the_messages_of_its_tier_in_order_of_time(
    name: str, store: Callable[[str], Path], tmp_path: Path
) -> None:
    done = copied([str(store(name))], tmp_path / "copy", {}).shown
    every = messages_of(store(name))
    assert (done["messages"], done["moved"]) == (len(every), 0)
    found = messages_of(tmp_path / "copy")
    assert sorted(map(place, found)) == sorted(map(place, every))
    older = [message["storeTimestamp"] for message in found][: -len(messages_of(store(name) / "commitlog"))]
    assert older == sorted(older)
    assert [finding.code for finding in check(str(tmp_path / "copy")) if finding.severity != "notice"] == []


def test_a_copy_keeps_the_queues_of_a_tier_whose_clock_was_set_back(
    writable_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = writable_store("tiers/53-tier")
    path = root / BROKER / "Orders/0/COMMIT_LOG/880245e800000000000000029990"
    data = bytearray(path.read_bytes())
    at = struct.unpack_from(">i", data)[0]
    (time,) = struct.unpack_from(">q", data, at + 56)
    struct.pack_into(">q", data, at + 56, time + 3000)  # later than several messages after it
    path.write_bytes(data)
    done = copied([str(root)], tmp_path / "copy", {}).shown
    assert (done["messages"], done["moved"]) == (541, 0)
    found = messages_of(tmp_path / "copy", topics="Orders", queue=0)
    assert [message["queueOffset"] for message in found] == list(range(280))
    assert [message["uniqKey"] for message in found] == [asked(TIERS[0])["Orders", 0, at][0] for at in range(280)]


def test_a_quick_check_says_that_it_did_not_read_the_tier(store: Callable[[str], Path]) -> None:
    checked = check(str(store("tiers/53-tier")), quick=True)
    list(checked)
    assert "the tier (run it without --quick)" in checked.summary.not_proven


def test_what_needs_a_store_says_so(store: Callable[[str], Path]) -> None:
    with pytest.raises(StoreError) as error:
        stat(str(store("tiers/53-tier") / "tier"))
    assert error.value.hint == "it is tiered storage: info, cat, query, export and check take it"


def test_the_bytes_of_a_tier_are_shown(store: Callable[[str], Path]) -> None:
    broker = store("tiers/53-tier") / "tier/212d6b50_DefaultCluster/broker-a/Orders/0"
    log = dump(str(broker / "COMMIT_LOG/880245e800000000000000029990"))
    units = [unit for unit in truth("tiers/53-tier")["queues"]["Orders"]["0"]["units"] if 29990 <= unit[0] < 59748]
    assert [(region["offset"] + 29990, region["length"]) for region in log["regions"]] == [
        tuple(one[:2]) for one in units
    ]
    queue = dump(str(broker / "CONSUME_QUEUE/a9b7ba7000000000000000001000"))
    assert len(queue["regions"]) == 50


def test_queues_in_a_database_do_not_say_where_the_log_begins(
    writable_store: Callable[[str], Path], store: Callable[[str], Path]
) -> None:
    """Without the queues it is not known which messages of the tier the log has too: none may come twice."""
    root = writable_store("53-rocksdb")
    shutil.copytree(store("tiers/53-tier") / "tier", root / "tier")
    settings = f"tieredStoreFilePath={root}/tier\nbrokerName=broker-a\n"
    (root / "broker.conf").write_text(f"storePathRootDir={root}\n{settings}")
    with reading(str(root), {}) as found:
        events = list(found)
    notes = [event for event in events if isinstance(event, str)]
    assert notes[0] == "tier/212d6b50_DefaultCluster/broker-a is not read beside queues in RocksDB: name it to read it"
    assert found.messages == len(truth("53-rocksdb")["messages"])
