"""An independent reader of stores: written from the specification with ``struct`` alone, it imports nothing of rmqtool.

It takes a store as a mapping of paths to bytes, or a directory, and answers what the campaigns ask: which records of
the log are whole, and which messages a queue leads to. Where it and rmqtool differ, one of them is wrong.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_V1, _V2, _BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_MAGICS = (struct.pack(">I", _V1), struct.pack(">I", _V2))
_SMALLEST = 91
_ENTRY = struct.Struct(">qiq")
_UNIT = _ENTRY.size
# A multiple of a unit.
_ZEROS = bytes(1024 * _UNIT)
# A property checksum: its name, 0x01, ten digits with the last first, 0x02.
_CRC_NAME, _CRC_LENGTH = b"__CRC32#\x01", 20

Tree = Mapping[str, bytes]


class Record(NamedTuple):
    """A whole record: where it is, where it belongs, and what it carries."""

    physical_offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    body: bytes
    properties: bytes

    @property
    def identity(self) -> tuple[int, bytes, int, int, int]:
        """What stays the same of a message as long as it is in this store."""
        return self.physical_offset, self.topic, self.queue_id, self.queue_offset, zlib.crc32(self.body)

    @property
    def is_placeholder(self) -> bool:
        """Whether a repair wrote it over damage: it is no message."""
        return self.topic == b"RMQTOOL_QUARANTINE" and self.sys_flag & 0xC == 0xC


def tree_of(root: Path, *parts: str) -> dict[str, bytes]:
    """Return the regular files below some directories of a store; links are not followed."""
    found: dict[str, bytes] = {}
    for part in parts or ("commitlog", "consumequeue", "config"):
        if (root / part).is_dir():
            _read_below(str(root / part), part, found)
    return found


def _read_below(directory: str, shown: str, found: dict[str, bytes]) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _read_below(entry.path, f"{shown}/{entry.name}", found)
            elif entry.is_file(follow_symlinks=False):
                with open(entry.path, "rb", buffering=0) as file:
                    found[f"{shown}/{entry.name}"] = file.read()


def record_at(data: bytes, at: int, base: int) -> Record | None:
    """Return the whole record at ``at`` of a segment that begins at ``base``, or None."""
    if at + _SMALLEST > len(data):
        return None
    size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag = struct.unpack_from(">iIIiiqqi", data, at)
    if magic not in (_V1, _V2) or size < _SMALLEST or at + size > len(data) or physical_offset != base + at:
        return None
    end, position = at + size, at + 48 + (20 if sys_flag & 0x10 else 8)
    (store_timestamp,) = struct.unpack_from(">q", data, position)
    position += 8 + (20 if sys_flag & 0x20 else 8) + 12
    body, position = _part(data, position, end, ">i")
    topic, position = _part(data, position, end, ">b" if magic == _V1 else ">h")
    properties, position = _part(data, position, end, ">h")
    if body is None or topic is None or properties is None or position != end or store_timestamp <= 0:
        return None
    if body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    if not _has_right_crc(properties, data[at:end]):
        return None
    return Record(physical_offset, size, topic, queue_id, queue_offset, sys_flag, store_timestamp, body, properties)


def _part(data: bytes, position: int, end: int, form: str) -> tuple[bytes | None, int]:
    """Return the bytes after a length field, and the position after them; None where the length leads out."""
    width = struct.calcsize(form)
    if position < 0 or position + width > end:
        return None, end + 1
    (length,) = struct.unpack_from(form, data, position)
    start = position + width
    if length < 0 or start + length > end:
        return None, end + 1
    return data[start : start + length], start + length


def _has_right_crc(properties: bytes, record: bytes) -> bool:
    block = properties[-_CRC_LENGTH:]
    if not (block.startswith(_CRC_NAME) and block.endswith(b"\x02") and len(block) == _CRC_LENGTH):
        return True
    digits = block[len(_CRC_NAME) : -1][::-1]
    return digits.isdigit() and int(digits) == zlib.crc32(record[:-_CRC_LENGTH]) & 0x7FFFFFFF


def iter_segment(data: bytes, base: int) -> Iterator[Record]:
    """Yield the whole records of a segment in their order, also those after damage; none begins inside another."""
    yield from _records_of(data, base)


@lru_cache(maxsize=64)
def _records_of(data: bytes, base: int) -> tuple[Record, ...]:
    """Return the records of a segment; the same one is looked at again and again."""
    return tuple(_iter_read(data, base))


def _iter_read(data: bytes, base: int) -> Iterator[Record]:
    at = 0
    while at < len(data):
        found = record_at(data, at, base)
        if found is not None:
            yield found
            at += found.size
            continue
        places = [data.find(magic, at + 5) - 4 for magic in _MAGICS]
        later = [place for place in places if place > at]
        if not later:
            return
        at = min(later)


def segments(tree: Tree, directory: str = "commitlog") -> dict[int, bytes]:
    """Return the segments of a log, by the offset of their first byte."""
    found = {}
    for path, data in tree.items():
        parent, _, name = path.rpartition("/")
        if parent == directory and len(name) == 20 and name.isascii() and name.isdigit():
            found[int(name)] = data
    return dict(sorted(found.items()))


def iter_records(tree: Tree, directory: str = "commitlog") -> Iterator[Record]:
    """Yield the whole records of a log, placeholders of repairs left out."""
    return (record for record in _iter_all(tree, directory) if not record.is_placeholder)


def _iter_all(tree: Tree, directory: str = "commitlog") -> Iterator[Record]:
    for base, data in segments(tree, directory).items():
        yield from iter_segment(data, base)


def iter_queue(tree: Tree, topic: str, queue_id: int) -> Iterator[tuple[int, int, int]]:
    """Yield queue offset, physical offset and size of each written entry of a queue; fillers are left out."""
    for base, data in segments(tree, f"consumequeue/{topic}/{queue_id}").items():
        units = memoryview(data)[: _written(data) // _UNIT * _UNIT]
        for number, (physical_offset, size, _) in enumerate(_ENTRY.iter_unpack(units)):
            if size > 0 and size != 0x7FFFFFFF:
                yield base // _UNIT + number, physical_offset, size


def _written(data: bytes) -> int:
    """Return where the zeros begin that fill the rest of a file, rounded up: most of a queue file was never written."""
    end = len(data)
    while data.endswith(_ZEROS, 0, end):
        end -= len(_ZEROS)
    return end


def queues(tree: Tree) -> set[tuple[str, int]]:
    """Return topic and number of each queue that has a file."""
    found = set()
    for path in tree:
        parts = path.split("/")
        if parts[0] == "consumequeue" and len(parts) == 4 and parts[2].isdigit():
            found.add((parts[1], int(parts[2])))
    return found


def misplaced(tree: Tree, damaged: Sequence[range] = ()) -> list[str]:
    """Return, in words, every queue entry that leads to another message than the one of its place.

    Entries that lead before the first segment are left out: retention deleted their messages, and brokers skip them. So
    are those into ``damaged`` spans, which rmqtool named, and to placeholders of repairs: a queue keeps the place of a
    damaged record, so that the others keep theirs.
    """
    records = {record.physical_offset: record for record in iter_records(tree)}
    placeholders = {record.physical_offset for record in _iter_all(tree) if record.is_placeholder}
    first = next(iter(segments(tree)), 0)
    wrong = []
    for topic, queue_id in sorted(queues(tree)):
        for queue_offset, physical_offset, size in iter_queue(tree, topic, queue_id):
            if physical_offset < first or physical_offset in placeholders:
                continue
            record = records.get(physical_offset)
            if record is None and any(physical_offset in span for span in damaged):
                continue
            if record is None:
                wrong.append(f"{topic}/{queue_id}@{queue_offset} leads to {physical_offset}, where no record is")
            elif record.size != size:
                wrong.append(f"{topic}/{queue_id}@{queue_offset}: {size} bytes, the record has {record.size}")
            elif record.topic == topic.encode() and (record.queue_id, record.queue_offset) != (queue_id, queue_offset):
                named = f"{record.queue_id}@{record.queue_offset}"
                wrong.append(f"{topic}/{queue_id}@{queue_offset} leads to the message {topic}/{named}")
    return wrong


def unreached(tree: Tree) -> list[Record]:
    """Return the messages of the log that their own queue does not lead to; half-done transactions have none."""
    reached = {
        (topic.encode(), queue_id, queue_offset, physical_offset)
        for topic, queue_id in queues(tree)
        for queue_offset, physical_offset, _ in iter_queue(tree, topic, queue_id)
    }
    return [
        record
        for record in iter_records(tree)
        if record.sys_flag & 0xC in (0, 8)
        and (record.topic, record.queue_id, record.queue_offset, record.physical_offset) not in reached
    ]


def torn(tree: Tree) -> list[str]:
    """Return where bytes follow the last whole record that are neither zeros nor a blank record to the end."""
    last = max(segments(tree), default=None)
    if last is None:
        return []
    data = segments(tree)[last]
    at = max((one.physical_offset + one.size - last for one in iter_segment(data, last)), default=0)
    (magic,) = struct.unpack_from(">4xI", data[at : at + 8].ljust(8, b"\0"))
    rest = data[at:].strip(b"\0")
    return [f"{len(rest)} bytes of a torn record are left at {last + at}"] if rest and magic != _BLANK else []


def breaks(tree: Tree) -> list[range]:
    """Return the spans of the log that are not whole and have whole records after them: a broker cuts there."""
    found: list[range] = []
    start: int | None = None
    end: int | None = None
    for base, data in segments(tree).items():
        if start is None and end not in (None, base):
            start = end
        at = base
        for record in iter_segment(data, base):
            if start is None and record.physical_offset != at:
                start = at
            if start is not None:
                found.append(range(start, record.physical_offset))
                start = None
            at = record.physical_offset + record.size
        end = base + len(data)
        if start is None and not is_ended(data, base):
            start = at
    return found


def is_ended(data: bytes, base: int) -> bool:
    """Return whether a segment has no room after its last record, or a blank record to its end."""
    at = max((one.physical_offset + one.size - base for one in iter_segment(data, base)), default=0)
    return at == len(data) or data[at + 4 : at + 8] == struct.pack(">I", _BLANK)


def checkpoint_times(tree: Tree) -> tuple[int, int, int]:
    """Return the times of log, queues and index in the checkpoint, 0 where the file does not have them."""
    log, queue, index = struct.unpack_from(">3q", tree.get("checkpoint", b"").ljust(24, b"\0"))
    return log, queue, index


def begin_of_recovery(tree: Tree) -> int:
    """Return where a broker begins to read the log after a crash: what queues have of messages before is believed.

    That is the newest segment whose first message is three seconds older than what the checkpoint says of log and
    queues.
    """
    log, queue, _ = checkpoint_times(tree)
    found = segments(tree)
    for base, data in reversed(found.items()):
        first = record_at(data, 0, base)
        if first is not None and first.store_timestamp <= min(log, queue) - 3000:
            return base
    return next(iter(found), 0)


def java_hash(text: str) -> int:
    """Return ``String.hashCode`` of an ASCII text, as index files use it: not negative."""
    hashed = 0
    for unit in text.encode("ascii"):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    hashed = abs(hashed - (1 << 32) if hashed & 0x80000000 else hashed)
    return hashed if hashed < 1 << 31 else 0


def index_places(tree: Tree, slots: int) -> list[int]:
    """Return the physical offsets of all entries of the index files."""
    found = []
    for path in sorted(path for path in tree if path.startswith("index/")):
        (count,) = struct.unpack_from(">i", tree[path], 36)
        at = [40 + 4 * slots + 20 * number for number in range(1, count)]
        found += [struct.unpack_from(">q", tree[path], one + 4)[0] for one in at]
    return found


def index_hits(tree: Tree, text: str, slots: int) -> list[int]:
    """Return the physical offsets that the index files have for a text ``topic#key``, newest first, chain by chain."""
    found, hashed = [], java_hash(text)
    for path in sorted((path for path in tree if path.startswith("index/")), reverse=True):
        data = tree[path]
        (number,) = struct.unpack_from(">i", data, 40 + 4 * (hashed % slots))
        seen = set()
        while number > 0 and number not in seen:
            seen.add(number)
            one, place, _, number = struct.unpack_from(">iqii", data, 40 + 4 * slots + 20 * number)
            if one == hashed:
                found.append(place)
    return found
