"""Small stores for tests of the engine, on a disk in memory, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqtool.config import Origin, StoreConfig, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.filesystem import ReadableFileSystem, WritableFileSystem
from rmqtool.formats import index, layouts
from rmqtool.formats.commit_log import Message
from rmqtool.formats.layouts import ConsumeQueueUnit, IndexEntry, IndexHeader
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.segments import Segment
from tests.support.faulty import FaultyFileSystem, FaultyWritableFile
from tests.support.faulty_disk import FaultyDisk
from tests.support.manual_clock import ManualClock

SEGMENT = 4096
UNITS_PER_FILE = 10
SLOTS, ENTRIES = 8, 16

SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": UNITS_PER_FILE * 20,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": ENTRIES,
}


def small_config(version: Version, **settings: object) -> StoreConfig:
    """Return settings by upstream's names, with small files."""
    if version is not Version.V4_9:
        settings.setdefault("mapperFileSizeBatchConsumeQueue", 460)
    return StoreConfig.default(version).with_values({**SMALL, **settings}, Origin.COMMAND_LINE)


def small_setup(version: Version = Version.V5_3, files: WritableFileSystem | None = None, **settings: Any) -> Setup:
    """Return what a small store is opened with; the clock is a ``ManualClock``."""
    files = files or FaultyFileSystem(FaultyDisk())
    return Setup(files, small_config(version, **settings), ManualClock())


def small_store(
    version: Version = Version.V5_3, files: WritableFileSystem | None = None, **settings: Any
) -> MessageStore:
    """Return a new, open store."""
    return MessageStore.create(small_setup(version, files, **settings))


def a_message(number: int = 0, topic: str = "T", queue_id: int = 0, **changes: Any) -> NewMessage:
    """Return a message that tells its number."""
    given = {"body": b"body %d" % number, "properties": {"KEYS": f"k{number}", "TAGS": "TagA"}}
    return NewMessage(topic, queue_id=queue_id, **(given | changes))


def clock_of(store: MessageStore) -> ManualClock:
    """Return the clock of a small store."""
    clock = store.setup.clock
    assert isinstance(clock, ManualClock)
    return clock


def iter_records(files: ReadableFileSystem, directory: str = "commitlog") -> Iterator[Message]:
    """Walk over the valid records that stand in the files of a log."""
    for entry in files.listdir(directory) if files.exists(directory) else ():
        path = f"{directory}/{entry.name}"
        segment = Segment(int(entry.name), files.stat(path).size, path, files)
        with files.open_read(path) as file:
            for place in SegmentWalk(file, segment.base_offset).places():
                if isinstance(place.what, Message):
                    yield place.what


def read_bytes(files: ReadableFileSystem, path: str) -> bytes:
    """Return the bytes of a file."""
    with files.open_read(path) as file:
        return file.pread(file.size(), 0)


def units(files: ReadableFileSystem, topic: str, queue_id: int) -> list[ConsumeQueueUnit]:
    """Return the written units of a queue's files, one after the other."""
    directory = f"consumequeue/{topic}/{queue_id}"
    names = [entry.name for entry in files.listdir(directory)] if files.exists(directory) else []
    data = b"".join(read_bytes(files, f"{directory}/{name}") for name in names)
    return [unit for unit in layouts.CONSUME_QUEUE_UNIT.iter_decode(data) if unit.size]


def index_files(files: ReadableFileSystem) -> list[tuple[IndexHeader, list[IndexEntry]]]:
    """Return header and entries of every index file."""
    found = []
    for entry in files.listdir("index") if files.exists("index") else ():
        data = read_bytes(files, f"index/{entry.name}")
        header = layouts.INDEX_HEADER.decode(data)
        entries = data[index.entry_offset(SLOTS, 1) : index.entry_offset(SLOTS, max(header.index_count, 1))]
        found.append((header, list(layouts.INDEX_ENTRY.iter_decode(entries))))
    return found


def index_offsets(files: ReadableFileSystem, topic: str, key: str) -> list[int]:
    """Return the physical offsets that the index holds for a key."""
    hashed = index.key_hash(index.key_text(topic, key))
    return [entry.phy_offset for _, entries in index_files(files) for entry in entries if entry.key_hash == hashed]


def during_next(monkeypatch: pytest.MonkeyPatch, operation: str, meanwhile: Callable[[], None]) -> None:
    """Let ``meanwhile`` happen inside the next ``operation`` on a file of a disk in memory, before it is done."""
    real = getattr(FaultyWritableFile, operation)

    def slow(file: FaultyWritableFile, *arguments: Any) -> None:
        monkeypatch.setattr(FaultyWritableFile, operation, real)
        meanwhile()
        real(file, *arguments)

    monkeypatch.setattr(FaultyWritableFile, operation, slow)
