"""A consumer's own offsets: what it keeps in memory, and the file of a broadcasting one (§8.5, §8.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.broker.consumer.progress import ClientOffsets, LocalOffsets, client_id, local_offsets_path
from rmqtool.config import Version
from rmqtool.errors import StoreError
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.message_queue import MessageQueue, decode_local_offsets
from rmqtool.store.config_files import ConfigText
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.manual_clock import ManualClock

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "groups"
ONE, TWO = MessageQueue("TopicTest", "broker-a", 0), MessageQueue("TopicTest", "broker-a", 1)
PATH = local_offsets_path(client_id("10.0.0.1"), "g")


def text(files: FaultyFileSystem) -> ConfigText:
    return ConfigText(files, PATH, lambda data: not isinstance(decode_local_offsets(data), Flaw))


def read(files: FaultyFileSystem, path: str = PATH) -> bytes:
    with files.open_read(path) as file:
        return file.pread(file.size(), 0)


def golden(version: str, name: str) -> bytes:
    return (GOLDEN / f"offsets-{version}-{name}.json").read_bytes()


def test_names() -> None:
    assert PATH == "10.0.0.1@DEFAULT/g/offsets.json"
    assert client_id("10.0.0.1", "4711#9", "unit") == "10.0.0.1@4711#9@unit"


@pytest.mark.parametrize(
    ("release", "version"), [("4.9.8", Version.V4_9), ("5.3.3", Version.V5_3), ("5.4.0", Version.V5_4)]
)
def test_a_life_of_a_broadcasting_consumer(release: str, version: Version) -> None:
    files, clock = FaultyFileSystem(FaultyDisk()), ManualClock()
    local = LocalOffsets(text(files), version, clock)
    assert local.read_offset(ONE) == -1
    local.offsets.update(ONE, 5, increase_only=True)
    assert local.read_offset(ONE) == 5
    clock.advance(9_999)
    assert not local.tick()
    clock.advance(1)
    assert local.tick()
    first = golden(release, "one").replace(b"1470", b"5")
    assert read(files) == first
    # It starts anew, and is given another queue: the first one's entry stays.
    local = LocalOffsets(text(files), version, clock)
    assert local.read_offset(ONE) == 5
    local.offsets.update(TWO, 7, increase_only=True)
    assert local.save()
    assert not local.save()
    assert read(files) == golden(release, "merge")
    assert read(files, PATH + ".bak") == first


def test_a_damaged_file_goes_to_its_copy_and_both_stop() -> None:
    files, clock = FaultyFileSystem(FaultyDisk()), ManualClock()
    text(files).write(golden("5.3.3", "one"))
    text(files).write(golden("5.3.3", "merge"))
    with files.open_write(PATH) as file:
        file.truncate(50)
    assert LocalOffsets(text(files), Version.V5_3, clock).read_offset(ONE) == 1470
    with files.open_write(PATH + ".bak") as file:
        file.truncate(50)
    with pytest.raises(StoreError, match="this file cannot be read"):
        LocalOffsets(text(files), Version.V5_3, clock)


def test_offsets_in_memory() -> None:
    offsets = ClientOffsets()
    offsets.update(ONE, 10, increase_only=True)
    offsets.update(ONE, 9, increase_only=True)
    assert offsets.table == {ONE: 10}
    offsets.update(ONE, 4, increase_only=False)
    assert offsets.table == {ONE: 4}
    offsets.update_and_freeze(ONE, 2)
    offsets.update(ONE, 20, increase_only=True)
    offsets.update(ONE, 1, increase_only=False)
    assert offsets.table == {ONE: 2}
    offsets.forget(ONE)
    offsets.update(ONE, 3, increase_only=True)
    assert offsets.table == {ONE: 3}


def test_persisting_tells_the_broker_and_forgets_queues_of_others() -> None:
    offsets = ClientOffsets()
    offsets.update(ONE, 1, increase_only=True)
    offsets.update(TWO, 2, increase_only=True)
    told: list[tuple[MessageQueue, int]] = []
    offsets.persist([TWO], lambda queue, offset: told.append((queue, offset)))
    assert told == [(TWO, 2)]
    assert offsets.table == {TWO: 2}
