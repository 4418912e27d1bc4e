"""A copy of a real store in another geometry: the same messages in files of other sizes, at other places.

Made from what the real classes said of the store, by hand: records are laid one behind the other with their new place
written into them, blanks close the segments, and the units of the queues lead to the new places.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.builders import FILLER_UNIT, blank, queue_unit, record_with_property_crc
from tests.support.stores import truth

_PLACE = slice(28, 36)
_BLANK = 8
_BATCH_UNIT = 46
_CHECKSUM = 20
_FAR = 1 << 40
# The number of the first segment: places differ from the first record on.
_FIRST = 10
# How long a record's head is up to its body, by the bits that say which host is of IPv6.
_PREFIXES = {0x00: 88, 0x10: 100, 0x20: 100, 0x30: 112}


def recast(name: str, root: Path, target: Path, *, segment_size: int, units_per_file: int) -> Path:
    """Write the messages and queues of the fixture ``name``, unpacked at ``root``, to ``target``."""
    told = truth(name)
    moved = _write_log(told, _segments(root), target / "commitlog", segment_size)
    for topic, queues in told["queues"].items():
        for queue_id, queue in queues.items():
            batches = root / "batchconsumequeue" / topic / queue_id
            if batches.is_dir():
                _copy_batches(batches, target / "batchconsumequeue" / topic / queue_id, moved)
            elif queue["units"]:
                _write_queue(queue, target / "consumequeue" / topic / queue_id, moved, units_per_file)
    return target


def _segments(root: Path) -> dict[int, Path]:
    files = (path for path in root.rglob("[0-9]" * 20) if path.is_file())
    of_log = (path for path in files if path.parent.name.startswith("commitlog") or path.parent.name == "data")
    return {int(path.name): path for path in of_log}


def _write_log(told: dict[str, Any], segments: dict[int, Path], target: Path, size: int) -> dict[int, int]:
    """Write the log and return where each record went."""
    target.mkdir(parents=True)
    moved: dict[int, int] = {}
    base, data = _FIRST * size, b""
    for message in told["messages"]:
        record = _record(message, segments)
        if len(data) + len(record) + _BLANK > size:
            (target / f"{base:020d}").write_bytes(data + blank(size - len(data)).ljust(size - len(data), b"\0"))
            base, data = base + size, b""
        place = base + len(data)
        moved[message["commitLogOffset"]] = place
        data += _at(record, place)
    (target / f"{base:020d}").write_bytes(data.ljust(size, b"\0"))
    return moved


def _record(message: dict[str, Any], segments: dict[int, Path]) -> bytes:
    place, size = message["commitLogOffset"], message["storeSize"]
    base = max(start for start in segments if start <= place)
    with segments[base].open("rb") as file:
        file.seek(place - base)
        return file.read(size)


def _at(record: bytes, place: int) -> bytes:
    moved = record[: _PLACE.start] + place.to_bytes(8, "big") + record[_PLACE.stop :]
    if not moved[-_CHECKSUM:].startswith(b"__CRC32#\x01"):
        return moved
    # The checksum over the record covers its place: the block goes, and comes back anew.
    prefix = _PREFIXES[int.from_bytes(moved[36:40], "big") & 0x30]
    topic_at = prefix + int.from_bytes(moved[prefix - 4 : prefix], "big")
    length_at = topic_at + 1 + moved[topic_at]
    length = int.from_bytes(moved[length_at : length_at + 2], "big") - _CHECKSUM
    shorter = (len(moved) - _CHECKSUM).to_bytes(4, "big") + moved[4:length_at] + length.to_bytes(2, "big")
    return record_with_property_crc(shorter + moved[length_at + 2 : -_CHECKSUM], prefix)


def _write_queue(queue: dict[str, Any], target: Path, moved: dict[int, int], units_per_file: int) -> None:
    target.mkdir(parents=True)
    first = queue["maxOffset"] - len(queue["units"])
    size = 20 * units_per_file
    data = bytearray(FILLER_UNIT * first)
    codes = {found["queueOffset"]: found["tagsCode"] for found in queue.get("ext", ()) if found["found"]}
    for number, (place, length, tags_code) in enumerate(queue["units"], first):
        place_now = moved.get(place, _nowhere(place, moved))
        data += queue_unit(place_now, length, codes.get(number, tags_code))
    for at in range(first * 20 // size * size, len(data), size):
        (target / f"{at:020d}").write_bytes(bytes(data[at : at + size]).ljust(size, b"\0"))


def _nowhere(place: int, moved: dict[int, int]) -> int:
    """Return where a unit leads that leads nowhere: before or behind the log, or to where no record begins."""
    if place < min(moved):
        return 0
    return _FAR if place > max(moved) else min(moved.values()) + 1


def _copy_batches(source: Path, target: Path, moved: dict[int, int]) -> None:
    target.mkdir(parents=True)
    for path in source.iterdir():
        data = bytearray(path.read_bytes())
        for at in range(0, len(data) - _BATCH_UNIT + 1, _BATCH_UNIT):
            place = int.from_bytes(data[at : at + 8], "big")
            if any(data[at : at + _BATCH_UNIT]):
                data[at : at + 8] = moved[place].to_bytes(8, "big")
        (target / path.name).write_bytes(data)
