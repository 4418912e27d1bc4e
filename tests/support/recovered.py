"""What a recovery owes: which records are valid, found by a scan of its own, and whether they are served.

The scan knows nothing of walks and ends: it looks at every magic number in every file of the log, as the one that
recorded the outcomes of real starts did.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqtool.config import Version
from rmqtool.engine.commit_log import LogDirectory
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.report import RecoveryReport
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.store.open import open_store

_MAGICS = {b"\xda\xa3\x20\xa7": 1, b"\xda\xa3\x20\xab": 2}
_HEAD = struct.Struct(">iiIiiqqi")
_UNIT = struct.Struct(">qiq")
_NOT_DISPATCHED = (4, 12)


class Valid(NamedTuple):
    """A valid record: its place and size, and the place in a queue that it names; no queue for a prepared one."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    dispatched: bool


def valid_records(root: Path, directories: Iterable[str] = ("commitlog",)) -> list[Valid]:
    """Return every valid record in the files of a log, whatever lies between them."""
    found = []
    for directory in directories:
        for path in sorted((root / directory).iterdir() if (root / directory).is_dir() else ()):
            if path.is_file() and path.name.isdecimal() and len(path.name) == 20:
                found += _scan(path.read_bytes(), int(path.name))
    return sorted(set(found))


def _scan(data: bytes, base: int) -> Iterator[Valid]:
    for magic, length_size in _MAGICS.items():
        at = data.find(magic)
        while at >= 0:
            record = _record_at(data, at - 4, length_size, base)
            if record is not None:
                yield record
            at = data.find(magic, at + 1)


def _record_at(data: bytes, at: int, topic_length_size: int, base: int) -> Valid | None:
    if at < 0 or at + _HEAD.size > len(data):
        return None
    size, _, crc, queue_id, _, queue_offset, physical_offset, sys_flag = _HEAD.unpack_from(data, at)
    if physical_offset != base + at or size <= 0 or at + size > len(data):
        return None
    try:
        times_at = at + 40 + 8 + (20 if sys_flag & 16 else 8)
        (store_timestamp,) = struct.unpack_from(">q", data, times_at)
        body_at = times_at + 8 + (20 if sys_flag & 32 else 8) + 4 + 8
        (body_length,) = struct.unpack_from(">i", data, body_at)
        topic_at = body_at + 4 + body_length
        if body_length < 0 or topic_at + topic_length_size > at + size:
            return None
        topic_length = int.from_bytes(data[topic_at : topic_at + topic_length_size], "big", signed=True)
        topic = data[topic_at + topic_length_size : topic_at + topic_length_size + topic_length]
        properties_at = topic_at + topic_length_size + topic_length
        (properties_length,) = struct.unpack_from(">h", data, properties_at)
    except struct.error:
        return None
    body = data[body_at + 4 : topic_at]
    if topic_length < 0 or properties_length < 0 or properties_at + 2 + properties_length != at + size:
        return None
    if zlib.crc32(body) & 0x7FFFFFFF != crc & 0x7FFFFFFF or store_timestamp == 0:
        return None
    dispatched = sys_flag & 12 not in _NOT_DISPATCHED
    return Valid(physical_offset, size, topic.decode("utf-8", "replace"), queue_id, queue_offset, dispatched)


def unserved(root: Path, records: Iterable[Valid]) -> list[Valid]:
    """Return the records that do not stand in the queue, and at the offset, that they name."""
    queues: dict[tuple[str, int], dict[int, bytes]] = {}
    found = []
    for record in records:
        if record.dispatched:
            key = (record.topic, record.queue_id)
            if key not in queues:
                queues[key] = _read_queue(root / "consumequeue" / record.topic / str(record.queue_id))
            if not _stands(queues[key], record):
                found.append(record)
    return found


def _read_queue(directory: Path) -> dict[int, bytes]:
    """Return the files of a queue by the place where they begin."""
    return {int(path.name): path.read_bytes() for path in (directory.iterdir() if directory.is_dir() else ())}


def _stands(files: dict[int, bytes], record: Valid) -> bool:
    for begin, data in files.items():
        at = record.queue_offset * _UNIT.size - begin
        if 0 <= at < len(data):
            offset, size, _ = _UNIT.unpack_from(data, at)
            return bool((offset, size) == (record.physical_offset, record.size))
    return False


def setup_for(root: Path, version: Version | None = None, settings: Iterable[str] = ()) -> Setup:
    """Return what the engine is opened with for a store on the disk, its log where it was found."""
    store = open_store(str(root), version=version, assignments=tuple(settings))
    files = PosixWritableFileSystem(str(root))
    directories = [LogDirectory(files, directory) for directory in store.listing.log_directories]
    config = store.config
    store.close()
    return Setup(files, config, directories=directories if len(directories) > 1 else ())


def named(report: RecoveryReport) -> set[int]:
    """Return the places of the records that a recovery says cannot be restored."""
    return {misfit.physical_offset for misfit in report.misfits}
