"""Stores that the engine wrote, opened by the real classes: the same messages, queues and answers, and no complaint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.config import FlushDiskType, Origin, StoreConfig, Version
from rmqtool.engine.message import NewMessage, compressed
from rmqtool.engine.parts import Setup
from rmqtool.engine.put_columns import MessageColumns
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.batches import BatchItem, encode_batch
from rmqtool.formats.codes import BodyCodec
from rmqtool.formats.ids import encode_offset_msg_id
from tests.conformance.oracle.runs import read_json, start, truth
from tests.support.engine_stores import iter_records, units
from tests.support.manual_clock import ManualClock
from tests.support.stores import content_digest, left_alone

RealClasses = Callable[[str], None]
pytestmark = pytest.mark.conformance

V4_9, V5_3, V5_4 = Version
READERS = {V4_9: "4.9.8", V5_3: "5.3.3", V5_4: "5.4.0"}
IPV6 = (bytes.fromhex("20010db8000000000000000000000006"), 4006)
SIZES: dict[str, object] = {
    "mappedFileSizeCommitLog": 32768,
    "mappedFileSizeConsumeQueue": 800,
    "maxHashSlotNum": 50,
    "maxIndexNum": 150,
}
OPTIONS: dict[str, tuple[tuple[Version, ...], dict[str, object]]] = {
    "plain": (tuple(Version), {}),
    "sync": (tuple(Version), {"flushDiskType": FlushDiskType.SYNC_FLUSH}),
    "pool": (tuple(Version), {"transientStorePoolEnable": True}),
    "light": (tuple(Version), {"enableLmq": True, "enableMultiDispatch": True}),
    "ext": ((V4_9,), {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 700}),
    "crc": ((V5_3, V5_4), {"enabledAppendPropCRC": True}),
    "batch queues": ((V5_3, V5_4), {"mapperFileSizeBatchConsumeQueue": 920}),
    "several directories": (tuple(Version), {"storePathCommitLog": "$ROOT/b,$ROOT/a"}),
}
CASES = [(name, version) for name, (versions, _) in OPTIONS.items() for version in versions]


def messages(name: str, version: Version) -> list[NewMessage]:
    """Return a bit of everything that the options allow."""
    found = []
    for number in range(150):
        properties = {"KEYS": f"k{number} shared", "TAGS": f"Tag{number % 3}", "UNIQ_KEY": f"{number:032X}"}
        if number % 10 == 3:
            properties["DELAY"] = str(number % 20)
        if name == "light" and number % 4 == 1:
            properties["INNER_MULTI_DISPATCH"] = "%LMQ%a,%LMQ%b"
        message = NewMessage("Orders", b"body %d " % number * (number % 40), number % 3, properties, number)
        if number % 7 == 2:
            message = replace(message, born_host=IPV6)
        if number % 11 == 5:
            message = replace(message, store_host=IPV6, reconsume_times=3)
        if number % 13 == 4:
            codecs = (BodyCodec.ZLIB, BodyCodec.LZ4, BodyCodec.ZSTD)
            message = compressed(replace(message, body=b"rocket" * 900), codecs[number % 3])
        if number % 17 == 6:
            message = replace(message, sys_flag=(0x4, 0x8, 0xC)[number % 3], prepared_transaction_offset=number)
        if version is not V4_9 and number % 19 == 7:
            message = replace(message, topic="%RETRY%" + "g" * 140)
        found.append(message)
    return found


def write_store(root: Path, name: str, version: Version) -> StoreConfig:
    """Write a store with the options ``name`` over three sessions."""
    given = {
        key: str(value).replace("$ROOT", str(root)) if key == "storePathCommitLog" else value
        for key, value in OPTIONS[name][1].items()
    }
    values = {**SIZES, **given, "storePathRootDir": str(root)}
    config = StoreConfig.default(version).with_values(values, Origin.COMMAND_LINE)
    clock = ManualClock()
    batch_topics = frozenset({"Batches"}) if name == "batch queues" else frozenset[str]()
    setup = Setup(PosixWritableFileSystem(str(root)), config, clock, batch_topics=batch_topics)
    todo = messages(name, version)
    if name == "batch queues":
        write_topics(root)
    with MessageStore.create(setup) as store:
        for message in todo[:60]:
            clock.advance(1700)
            assert store.put(message).is_ok
    with MessageStore.open(setup) as store:
        items = [BatchItem(number, b"of a batch %d" % number, b"KEYS\x01batch") for number in range(20)]
        batch = NewMessage("Orders", encode_batch(items), 1)
        assert store.put_batch(batch).is_ok
        assert all(ticket.is_ok for ticket in store.put_many(todo[60:120]))
        store.tick()
        if name == "batch queues":
            inner = {"INNER_NUM": "20", "UNIQ_KEY": "u"}
            for _ in range(30):
                assert store.put(NewMessage("Batches", encode_batch(items), 0, inner, sys_flag=0xC0)).is_ok
                assert store.put(NewMessage("Batches", b"alone", 0, {"TAGS": "t"})).is_ok
    with MessageStore.open(setup) as store:
        texts = [b"KEYS\x01column%d" % number for number in range(100)]
        columns = MessageColumns(
            "Columns", [b"x" * number for number in range(100)], texts, [n % 2 for n in range(100)]
        )
        assert store.put_columns(columns).refused == {}
        assert all(ticket.is_ok for ticket in store.put_many(todo[120:]))
    return config


def write_topics(root: Path) -> None:
    """Say which topic has batch queues, as the real classes want to know it."""
    topic = {"topicName": "Batches", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    text = json.dumps({"topicConfigTable": {"Batches": topic | {"attributes": {"queue.type": "BatchCQ"}}}})
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(text)


def settings_of(config: StoreConfig, root: Path) -> dict[str, str]:
    """Return the settings as a properties file spells them."""
    names = [name for name in config.origins if name != "storePathRootDir"]
    return {name: config.text(name).replace(str(root), "$ROOT") for name in names}


def ours(root: Path, config: StoreConfig) -> list[dict[str, Any]]:
    """Return what we read of the messages, by the names of a truth file."""
    files = PosixWritableFileSystem(str(root))
    directories = [Path(one).name for one in config.commit_log_dirs]
    records = sorted(
        (one for name in directories for one in iter_records(files, name)), key=lambda one: one.physical_offset
    )
    return [
        {
            "commitLogOffset": one.physical_offset,
            "storeSize": one.total_size,
            "topic": one.topic,
            "queueId": one.queue_id,
            "queueOffset": one.queue_offset,
            "flag": one.flag,
            "sysFlag": one.sys_flag,
            "storeTimestamp": one.store_timestamp,
            "reconsumeTimes": one.reconsume_times,
            "preparedTransactionOffset": one.prepared_transaction_offset,
            "bodyCRC": one.body_crc,
            "storedBodySha256": hashlib.sha256(one.raw_body).hexdigest(),
            "properties": one.properties,
            "offsetMsgId": encode_offset_msg_id(one.store_host_ip, one.store_host_port, one.physical_offset),
        }
        for one in records
    ]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_the_real_classes_read_what_we_wrote(
    name: str, version: Version, real_classes: RealClasses, tmp_path: Path
) -> None:
    real_classes(READERS[version])
    root = tmp_path / "store"
    root.mkdir()
    config = write_store(root, name, version)
    given, out = tmp_path / "config.json", tmp_path / "out.json"
    given.write_text(json.dumps(settings_of(config, root)))
    with left_alone(root):
        status = truth(READERS[version], root, out, config=given, put=True)
    answer = read_json(out)
    assert status == 0, answer.get("error")
    expected = ours(root, config)
    assert len(answer["messages"]) == len(expected) >= 270
    for theirs, own in zip(answer["messages"], expected, strict=True):
        assert {key: theirs[key] for key in own} == own
        assert theirs.get("recordCheck") is None
    assert_queues(answer, root)
    assert answer["index_files"][-1]["indexCount"] > 1
    probed = answer["putProbe"]
    assert len(probed) >= 5
    for put in probed:
        assert (put["status"], put["queueOffset"], put["readBack"]) == ("PUT_OK", put["expectedQueueOffset"], True), put


def assert_queues(answer: dict[str, Any], root: Path) -> None:
    """Compare every unit that the real classes saw with ours."""
    files = PosixWritableFileSystem(str(root))
    seen = 0
    for topic, queues in answer["queues"].items():
        for queue_id, queue in queues.items():
            if queue.get("type") == "BatchCQ":
                assert queue["maxOffset"] == 30 * 21
                continue
            found = units(files, topic, int(queue_id))
            assert queue["maxOffset"] == len(found), (topic, queue_id)
            if not queue.get("ext"):
                assert queue["units"] == [list(unit) for unit in found]
            seen += len(found)
    assert seen > 200


@pytest.mark.parametrize(("name", "version"), [case for case in CASES if case[0] in ("plain", "sync", "light")])
def test_a_start_of_the_real_store_leaves_everything_as_it_was(
    name: str, version: Version, real_classes: RealClasses, tmp_path: Path
) -> None:
    """It loads, serves every message of every queue, recovers nothing and complains about nothing."""
    reader = READERS[version]
    real_classes(reader)
    root, out, kept = tmp_path / "store", tmp_path / "out.json", tmp_path / "kept"
    root.mkdir()
    config = write_store(root, name, version)
    assert start(reader, root, out, keep=kept, settings=settings_of(config, root)) == 0
    answer = read_json(out)
    assert answer["load"]["result"] is True
    assert answer["load"]["max_phy"] == ours(root, config)[-1]["commitLogOffset"] + ours(root, config)[-1]["storeSize"]
    files = PosixWritableFileSystem(str(root))
    served = 0
    for topic, queues in answer["running"]["queues"].items():
        for queue_id, queue in queues.items():
            places = [unit.physical_offset for unit in units(files, topic, int(queue_id))]
            digest = hashlib.sha256("".join(f"{place}," for place in places).encode()).hexdigest()
            assert (queue["served"], queue["servedPhySha256"]) == (len(places), digest), (topic, queue_id)
            served += len(places)
    assert served > 200
    assert not (kept / "abort").exists()
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and relative.parts[0] in ("commitlog", "consumequeue", "batchconsumequeue", "index"):
            assert content_digest(path) == content_digest(kept / relative), relative
