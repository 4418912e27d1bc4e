"""Progress of groups: the checks of §8, and files of real brokers read, continued and written byte for byte.

The continued files were written by the real ``ConsumerOffsetManager`` and ``LmqConsumerOffsetManager``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.offsets import NOT_FOUND, VERSION_STEP, ConsumerOffsets, progress_file
from rmqtool.config import Version
from rmqtool.errors import StoreError
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.store.config_files import config_text
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.manual_clock import START, ManualClock

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "groups"
VERSIONS = {"49": Version.V4_9, "53": Version.V5_3, "54": Version.V5_4}
MAIN, BAK = "config/consumerOffset.json", "config/consumerOffset.json.bak"


class Broker:
    """A broker's progress on a disk in memory."""

    def __init__(self, version: Version = Version.V4_9, contents: dict[str, bytes] | None = None) -> None:
        self.version = version
        self.files = FaultyFileSystem(FaultyDisk())
        self.files.mkdir("config")
        self.clock = ManualClock()
        for path, data in (contents or {}).items():
            with self.files.create(path) as file:
                file.pwrite(data, 0)

    def start(self, *, enable_lmq: bool = False) -> ConsumerOffsets:
        text = config_text(self.files, progress_file(enable_lmq=enable_lmq))
        return ConsumerOffsets(text, self.version, self.clock, enable_lmq=enable_lmq)

    def read(self, path: str = MAIN) -> bytes | None:
        if not self.files.exists(path):
            return None
        with self.files.open_read(path) as file:
            return file.pread(file.size(), 0)


def test_c8_1_the_last_commit_counts_a_smaller_one_too() -> None:
    offsets = Broker().start()
    offsets.commit_offset("g", "T", 0, 10)
    offsets.commit_offset("g", "T", 0, 5)
    assert offsets.query_offset("g", "T", 0) == 5
    assert offsets.query_offset("g", "T", 1) == NOT_FOUND
    assert offsets.query_offset("other", "T", 0) == NOT_FOUND


def test_c8_2_progress_is_saved_after_ten_seconds_and_every_five() -> None:
    broker = Broker()
    offsets = broker.start()
    offsets.commit_offset("g", "T", 0, 10)
    broker.clock.advance(9_999)
    assert (offsets.tick(), broker.read()) == (False, None)
    broker.clock.advance(1)
    assert offsets.tick()
    first = broker.read()
    assert first == b'{\n\t"offsetTable":{\n\t\t"T@g":{0:10\n\t\t}\n\t}\n}'
    broker.clock.advance(6_000)
    offsets.commit_offset("g", "T", 0, 11)
    assert offsets.tick()
    assert broker.read() == first.replace(b"10", b"11")
    assert broker.read(BAK) == first
    broker.clock.advance(3_999)
    offsets.commit_offset("g", "T", 0, 12)
    assert not offsets.tick(), "the rate is fixed: a late save does not move the next one"
    broker.clock.advance(1)
    assert offsets.tick()


def test_nothing_is_written_that_did_not_change() -> None:
    broker = Broker()
    offsets = broker.start()
    offsets.commit_offset("g", "T", 0, 10)
    assert offsets.save()
    calls = len(broker.files.disk.calls)
    assert not offsets.save()
    broker.clock.advance(60_000)
    assert not offsets.tick()
    assert len(broker.files.disk.calls) == calls


def test_c8_3_the_copy_is_used_when_the_file_is_damaged() -> None:
    good = b'{"offsetTable":{"T@g":{0:7}}}'
    broker = Broker(contents={MAIN: b'{"offsetTable":{"T@g":{0:', BAK: good})
    offsets = broker.start()
    assert offsets.query_offset("g", "T", 0) == 7
    offsets.commit_offset("g", "T", 0, 8)
    offsets.save()
    assert broker.start().query_offset("g", "T", 0) == 8
    assert broker.read(BAK) == good, "a damaged file is not copied over the good copy"


@pytest.mark.parametrize("contents", [{MAIN: b"{"}, {MAIN: b"{", BAK: b"["}, {BAK: b'{"offsetTable":{"T@g":{0:"x"}}}'}])
def test_progress_that_cannot_be_read_is_not_overwritten(contents: dict[str, bytes]) -> None:
    broker = Broker(contents=contents)
    with pytest.raises(StoreError, match="this file cannot be read") as raised:
        broker.start()
    assert raised.value.file == next(iter(contents))
    assert {path: broker.read(path) for path in contents} == contents


@pytest.mark.parametrize("contents", [{}, {MAIN: b""}, {MAIN: b"", BAK: b""}])
def test_no_file_is_no_progress(contents: dict[str, bytes]) -> None:
    assert list(Broker(contents=contents).start().iter_subscriptions()) == []


def test_progress_is_found_by_topic_and_by_group() -> None:
    table = {key: {"0": 1} for key in ("T@G", "AT@G", "T@GB", "T@H", "U@G@", "T@", "@G", "T", "T@G@x")}
    offsets = Broker(contents={MAIN: json.dumps({"offsetTable": table}).encode()}).start()
    # A broker ignores what is not a topic and a group; an empty third part does not count.
    assert sorted(offsets.groups_of("T")) == ["G", "GB", "H"]
    assert sorted(offsets.topics_of("G")) == ["", "AT", "T", "U"]
    assert offsets.groups_of("") == ["G"]
    assert offsets.topics_of("@") == []


BROKERS = {"49-broker": MAIN, "53-broker": MAIN, "54-broker": MAIN, "53-lmq": "config/lmqConsumerOffset.json"}


def copy_of(name: str, store: Callable[[str], Path], *, enable_lmq: bool) -> tuple[Broker, ConsumerOffsets, bytes]:
    data = (store(name) / BROKERS[name]).read_bytes()
    broker = Broker(VERSIONS[name[:2]], {BROKERS[name]: data})
    return broker, broker.start(enable_lmq=enable_lmq), data


@pytest.mark.parametrize("name", BROKERS)
def test_what_brokers_wrote_is_written_as_it_was(name: str, store: Callable[[str], Path]) -> None:
    _, offsets, data = copy_of(name, store, enable_lmq="lmq" in name)
    assert offsets.encode() == data


@pytest.mark.parametrize("name", BROKERS)
def test_one_offset_that_moved_changes_one_number(name: str, store: Callable[[str], Path]) -> None:
    _, offsets, data = copy_of(name, store, enable_lmq="lmq" in name)
    moved = 0
    for topic, group in offsets.iter_subscriptions():
        for queue_id, offset in offsets.offsets_of(group, topic).items():
            offsets.commit_offset(group, topic, queue_id, offset + 100_000)
            at = data.index(f'"{topic}@{group}":'.encode())
            number = f"{offset}" if group.startswith(LMQ_PREFIX) else f"{queue_id}:{offset}"
            changed = number.removesuffix(str(offset)) + str(offset + 100_000)
            expected = data[:at] + re.sub(rf"(?<=[\{{,:\t]){number}\b", changed, data[at:].decode(), count=1).encode()
            assert offsets.encode() == expected, (topic, group, queue_id)
            offsets.commit_offset(group, topic, queue_id, offset)
            moved += 1
    assert moved == {"49-broker": 32, "53-broker": 28, "54-broker": 31, "53-lmq": 3}[name]


MORE = [("NewTopic", 0, 5), ("NewTopic", 1, 6)]


@pytest.mark.parametrize("name", BROKERS)
def test_new_topics_and_groups_go_where_a_broker_puts_them(name: str, store: Callable[[str], Path]) -> None:
    _, offsets, data = copy_of(name, store, enable_lmq="lmq" in name)
    topic, group = next(offsets.iter_subscriptions())
    offsets.commit_offset(group, topic, 0, offsets.query_offset(group, topic, 0) + 1)
    for new, queue_id, offset in MORE:
        offsets.commit_offset(group, new, queue_id, offset)
    offsets.commit_offset("new_group", "Another", 2, 1)
    offsets.commit_offset("new_group", "Another", 0, 3)
    offsets.commit_offset("g-second", topic, 7, 9)
    if "lmq" in name:
        offsets.commit_offset("%LMQ%group-1", "%LMQ%dev9", 0, 4)
        offsets.commit_offset("%LMQ%y", "%LMQ%x", 0, 1)
    expected = (GOLDEN / f"continued-{name}.json").read_bytes()
    if name[:2] != "49":
        # The real classes that continued the file had counted no commits, at another time.
        for field in (b"counter", b"timestamp"):
            number = re.compile(rb'(?<="' + field + rb'":)\d+')
            found = number.search(data)
            assert found
            expected = number.sub(found[0], expected)
    assert offsets.encode() == expected
    assert offsets.encode() == expected, "writing twice is writing the same"


@pytest.mark.parametrize("name", ["49-lmq", "53-lmq", "54-lmq"])
def test_a_new_file_of_light_queues(name: str) -> None:
    broker = Broker(VERSIONS[name[:2]])
    broker.clock.wall = 1_700_000_000_000
    offsets = broker.start(enable_lmq=True)
    for group, topic, queue_id, offset in [
        ("G_lmq", "LmqT", 0, 3),
        ("%LMQ%group-5327", "%LMQ%all", 0, 3),
        ("%LMQ%group-5327", "%LMQ%dev0", 0, 3),
        ("G_lmq", "NewTopic", 0, 5),
        ("G_lmq", "NewTopic", 1, 6),
        ("new_group", "Another", 2, 1),
        ("new_group", "Another", 0, 3),
        ("g-second", "LmqT", 7, 9),
        ("%LMQ%group-1", "%LMQ%dev9", 0, 4),
        ("%LMQ%y", "%LMQ%x", 0, 1),
    ]:
        offsets.commit_offset(group, topic, queue_id, offset)
    assert offsets.encode() == (GOLDEN / f"continued-{name}.json").read_bytes()
    assert offsets.query_offset("%LMQ%y", "%LMQ%x", 0) == 1
    assert offsets.offsets_of("%LMQ%y", "%LMQ%x") == {0: 1}


def test_light_groups_are_groups_like_others_where_light_queues_are_off() -> None:
    offsets = Broker().start()
    offsets.commit_offset("%LMQ%y", "%LMQ%x", 0, 1)
    assert offsets.encode() == b'{\n\t"offsetTable":{\n\t\t"%LMQ%x@%LMQ%y":{0:1\n\t\t}\n\t}\n}'


def test_a_broker_of_another_version_writes_its_own_fields(store: Callable[[str], Path]) -> None:
    data = (store("53-broker") / MAIN).read_bytes()
    older = Broker(Version.V4_9, {MAIN: data}).start()
    assert older.encode().startswith(b'{\n\t"offsetTable":{\n\t\t"T_retry@G_retry":{0:6,1:6\n\t\t},')
    data = (store("49-broker") / MAIN).read_bytes()
    newer = Broker(Version.V5_3, {MAIN: data}).start().encode()
    data_version = f'"dataVersion":{{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":{START}\n\t}}'
    assert newer.startswith(f'{{\n\t{data_version},\n\t"groupTopicMap"'.encode())
    assert newer.endswith(data[2:])


def test_what_stands_in_the_ignored_map_may_be_anything() -> None:
    for odd in (b"[1]", b'{"g":7,"h":["x"]}', b"null"):
        data = b'{"groupTopicMap":' + odd + b',"offsetTable":{"T@g":{0:1}}}'
        written = Broker(Version.V5_3, {MAIN: data}).start().encode()
        assert b'"groupTopicMap":{\n\t\t"g":["T"]\n\t},' in written


def test_the_data_version_moves_every_500_commits() -> None:
    for version, moved in ((Version.V5_3, 1), (Version.V4_9, 0)):
        broker = Broker(version, {MAIN: b'{"dataVersion":{"counter":4,"timestamp":1},"offsetTable":{}}'})
        offsets = broker.start()
        for number in range(VERSION_STEP - 1):
            offsets.commit_offset("g", "T", 0, number)
        assert (b'"counter":4' in offsets.encode()) == bool(moved)
        broker.clock.advance(5)
        offsets.commit_offset("g", "T", 0, 7)
        found = re.search(rb'"counter":(\d+),\n\t\t"stateVersion":0,\n\t\t"timestamp":(\d+)', offsets.encode())
        assert (found and found.groups()) == ((b"5", str(START + 5).encode()) if moved else None)


def test_keys_that_name_no_topic_and_group_are_kept_but_not_read() -> None:
    data = b'{"offsetTable":{"a@b@c":{0:1},"lonely":{0:2},"T@g":{0:3},"U@g@":{0:4}}}'
    offsets = Broker(contents={MAIN: data}).start()
    assert list(offsets.iter_subscriptions()) == [("T", "g"), ("U", "g")]
    assert b'"a@b@c":{0:1' in offsets.encode()


def min_offset(_topic: str, queue_id: int) -> int:
    return {0: 10, 1: 0}[queue_id]


def test_groups_that_nobody_uses_are_forgotten_once_all_they_have_not_consumed_is_gone() -> None:
    offsets = Broker().start()
    for group, first in (("gone", 10), ("behind", 11), ("used", 3)):
        offsets.commit_offset(group, "T", 0, first)
        offsets.commit_offset(group, "T", 1, 0)
    removed = offsets.remove_unsubscribed(lambda _topic, group: group == "used", min_offset)
    assert removed == [("T", "gone")]
    assert offsets.query_offset("gone", "T", 0) == NOT_FOUND
    assert offsets.query_offset("behind", "T", 0) == 11
    assert offsets.save()


def test_the_smallest_offset_of_all_groups_leaves_groups_out_without_deleting_them() -> None:
    offsets = Broker().start()
    for group, first, second in (("a", 30, 5), ("b", 20, 7), ("expired", 9, 3)):
        offsets.commit_offset(group, "T", 0, first)
        offsets.commit_offset(group, "T", 1, second)
    offsets.commit_offset("a", "U", 0, 12)
    assert offsets.min_offset_of_groups("T", min_offset) == {0: 20, 1: 3}
    assert offsets.min_offset_of_groups("T", min_offset, without=["b", "expired"]) == {0: 30, 1: 5}
    assert offsets.query_offset("b", "T", 0) == 20
