"""Queue units: against the truth, against the log they are made from, file by file."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.formats import commit_log, consume_queue, declarations, dispatch, layouts
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from rmqtool.formats.topics import DEFAULT_DELAY_LEVELS, parse_delay_levels
from tests.agreement.ledger import Subject, comparison
from tests.agreement.logs import (
    KILLED,
    QueueFiles,
    Segment,
    commit_log_segments,
    messages,
    queue_files,
    read_segment,
    report_missing,
    walk_segment,
)

SIMPLE = "consumequeue"
BATCH = "batchconsumequeue"
EXT = "consumequeue_ext"
UNIT = layouts.CONSUME_QUEUE_UNIT
BATCH_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT

# Files that the log gives only up to the end of the queue. Behind it stand units of records that a recovery cut off.
STALE = {
    ("49-ghost", "KillT/1/00000000000000001800"),
    ("49-ghost", "KillT/2/00000000000000001800"),
    ("49-ghost", "KillT2/0/00000000000000000600"),
    ("49-ghost", "KillT2/1/00000000000000000600"),
    ("49-ghost", "KillT2/2/00000000000000000600"),
    ("49-recovered", "KillT/0/00000000000000001800"),
    ("49-recovered", "KillT/1/00000000000000001800"),
    ("49-recovered", "KillT/2/00000000000000001800"),
    ("49-recovered", "KillT2/0/00000000000000000600"),
    ("49-recovered", "KillT2/1/00000000000000000600"),
    ("49-recovered", "KillT2/2/00000000000000000600"),
}


def rules_of(subject: Subject) -> dispatch.DispatchRules:
    """The rules of the broker that wrote the store."""
    config = subject.truth["config"]
    delays = parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))
    multi, light = (bool(config.get(name, False)) for name in ("enableMultiDispatch", "enableLmq"))
    return dispatch.rules_of(subject.truth["broker_version"], delays, multi_dispatch=multi, lmq=light)


Queue = tuple[str, int]


def batch_queues(root: Path) -> set[Queue]:
    """The queues of 46-byte units."""
    return {(files.topic, files.queue_id) for files in queue_files(root, BATCH)}


@cache
def _derived(name: str, root: Path, rules: dispatch.DispatchRules) -> dict[Queue, dict[int, ConsumeQueueUnit]]:
    queues: dict[Queue, dict[int, ConsumeQueueUnit]] = defaultdict(dict)
    without = batch_queues(root)
    for message in messages(root):
        for entry in dispatch.queue_entries(message, rules):
            if (entry.topic, entry.queue_id) not in without:
                queues[entry.topic, entry.queue_id][entry.queue_offset] = entry.unit
    return queues


def derived_units(subject: Subject) -> dict[Queue, dict[int, ConsumeQueueUnit]]:
    """The units of every simple queue by queue offset, as the log gives them."""
    return _derived(subject.name, subject.root, rules_of(subject))


def units_on_disk(files: QueueFiles) -> Iterator[tuple[int, ConsumeQueueUnit]]:
    """Every unit of a simple queue that was written, with its queue offset; a filler's or a stale one too."""
    for segment in files.segments:
        first = segment.base_offset // UNIT.size
        for number, unit in enumerate(UNIT.iter_decode(segment.data)):
            if consume_queue.is_written(unit):
                yield first + number, unit


@comparison("queue units, by struct and numpy", rows="units")
def units_of_truth(subject: Subject) -> None:
    """What the real class reads between minimum and maximum."""
    truth = subject.truth["queues"]
    for files in queue_files(subject.root, SIMPLE):
        theirs = truth.get(files.topic, {}).get(str(files.queue_id))
        if theirs is None or theirs.get("type", "SimpleCQ") != "SimpleCQ":
            continue
        where = f"{files.topic}/{files.queue_id}"
        ours = dict(units_on_disk(files))
        start = theirs.get("unitsFrom", theirs["minOffset"])
        for number, unit in enumerate(theirs["units"], start):
            found = ours.get(number)
            subject.compare(f"{where} at {number}", {"unit": found and list(found)}, {"unit": unit})
        for segment in files.segments:
            whole = segment.data[: len(segment.data) // UNIT.size * UNIT.size]
            rows = np.frombuffer(whole, np.dtype(UNIT.dtype())).tolist()
            by_numpy = [tuple(row) for row in rows]
            by_struct = [tuple(unit) for unit in UNIT.iter_decode(whole)]
            back = b"".join(map(UNIT.encode, UNIT.iter_decode(whole)))
            subject.compare(
                f"{where}/{segment.base_offset}", {"numpy": by_numpy, "back": back}, {"numpy": by_struct, "back": whole}
            )


@comparison("queue units, by construct", rows="units")
def units_by_construct(subject: Subject) -> None:
    """The declaration reads the same and writes it back."""
    for files in queue_files(subject.root, SIMPLE):
        for segment in files.segments:
            for at in range(0, len(segment.data) - UNIT.size + 1, UNIT.size):
                data = segment.data[at : at + UNIT.size]
                unit = UNIT.decode(data)
                if not consume_queue.is_written(unit):
                    continue
                parsed = declarations.CONSUME_QUEUE_UNIT.parse(data)
                ours = {name: parsed[name] for name in ConsumeQueueUnit._fields}
                back = declarations.CONSUME_QUEUE_UNIT.build(parsed)
                where = f"{files.topic}/{files.queue_id} at {segment.base_offset + at}"
                subject.compare(where, ours | {"back": back}, unit._asdict() | {"back": data})


@comparison("queue units, from the log", rows="units")
def units_from_the_log(subject: Subject) -> None:
    """Each record's unit stands in its queue, and each unit in force comes from a record.

    A killed store lacks the units of its last records; behind the end of a queue there may be stale ones.
    """
    derived = derived_units(subject)
    least = commit_log_segments(subject.root)[0].base_offset
    with_ext = bool(subject.truth["config"].get("enableConsumeQueueExt"))
    seen = set()
    for files in queue_files(subject.root, SIMPLE):
        queue = files.topic, files.queue_id
        seen.add(queue)
        wanted = derived.get(queue, {})
        disk = dict(units_on_disk(files))
        for number, unit in sorted(disk.items()):
            if number in wanted and not (with_ext and consume_queue.is_ext_address(unit.tags_code)):
                subject.compare(f"{queue} at {number}", unit._asdict(), wanted[number]._asdict())
            elif number in wanted:
                found = unit._replace(tags_code=0)._asdict()
                subject.compare(f"{queue} at {number}", found, wanted[number]._replace(tags_code=0)._asdict())
            elif number < min(wanted, default=1 << 62):
                # Of records that retention took; or of none, as filler.
                gone = unit.physical_offset < least
                subject.compare(f"{queue} at {number}", {"gone": gone}, {"gone": True})
        if subject.name not in KILLED:
            report_missing(subject, f"unit of {queue}", sorted(wanted.keys() - disk.keys()))
    if subject.name not in KILLED and derived and not is_rocksdb_only(subject):
        report_missing(subject, "queue", sorted(derived.keys() - seen))


def is_rocksdb_only(subject: Subject) -> bool:
    """Whether the queues stand in a database, not in files."""
    return bool(subject.truth["config"].get("storeType") == "defaultRocksDB")


@comparison("queue files, rebuilt from the log", rows="files")
def rebuilt_files(subject: Subject) -> None:
    """Each file of a store that was stopped, every byte of it, comes from the log."""
    if subject.name in KILLED:
        return
    derived = derived_units(subject)
    addresses = ext_addresses(subject)
    for files in queue_files(subject.root, SIMPLE):
        queue = files.topic, files.queue_id
        wanted = derived.get(queue, {})
        disk = dict(units_on_disk(files))
        for segment in files.segments:
            first = segment.base_offset // UNIT.size
            data = bytearray(len(segment.data))
            for number in range(first, first + len(data) // UNIT.size):
                unit = wanted.get(number)
                if unit is None and number < min(wanted, default=1 << 62):
                    unit = disk.get(number)  # of a record that retention took: nothing gives it but the file
                if unit is not None:
                    code = addresses.get((queue, number), unit.tags_code)
                    at = (number - first) * UNIT.size
                    data[at : at + UNIT.size] = UNIT.encode(unit._replace(tags_code=code))
            end = (max(wanted, default=first - 1) + 1 - first) * UNIT.size
            path = f"{files.topic}/{files.queue_id}/{segment.base_offset:020d}"
            if (subject.name, path) in STALE:
                behind = list(UNIT.iter_decode(segment.data[end:]))
                stale = bool(behind) and consume_queue.is_written(behind[0])
                subject.compare(
                    path, {"units": data[:end], "stale": stale}, {"units": segment.data[:end], "stale": True}
                )
            else:
                compare_file(subject, path, bytes(data), segment)


def compare_file(subject: Subject, path: str, data: bytes, segment: Segment) -> None:
    """A file made anew against the one on disk."""
    ours, theirs = ({"digest": hashlib.sha256(one).hexdigest()} for one in (data, segment.data))
    subject.compare(path, ours, theirs)


def ext_addresses(subject: Subject) -> dict[tuple[Queue, int], int]:
    """The tags codes of units that point into the extension: where the n-th unit of a queue begins."""
    found: dict[tuple[Queue, int], int] = {}
    for files in queue_files(subject.root, EXT):
        for number, (place, _) in enumerate(ext_units(files)):
            found[(files.topic, files.queue_id), number] = consume_queue.ext_address(place)
    return found


def ext_units(files: QueueFiles) -> Iterator[tuple[int, consume_queue.ConsumeQueueExtUnit]]:
    """Every unit of a queue's extension, with its place."""
    for segment in files.segments:
        at = 0
        while isinstance(unit := consume_queue.decode_ext_unit(segment.data, at), consume_queue.ConsumeQueueExtUnit):
            yield segment.base_offset + at, unit
            at += unit.size


@comparison("ext units", rows="ext units")
def ext_of_truth(subject: Subject) -> None:
    """What the real class finds behind each unit's address, what the log says, and the files made anew."""
    times = {message.physical_offset: message.store_timestamp for message in messages(subject.root)}
    for files in queue_files(subject.root, EXT):
        queue = f"{files.topic}/{files.queue_id}"
        theirs = subject.truth["queues"][files.topic][str(files.queue_id)]["ext"]
        by_place = dict(ext_units(files))
        units = dict(units_on_disk(next(q for q in queue_files(subject.root, SIMPLE) if q[:2] == files[:2])))
        for one in theirs:
            number = one["queueOffset"]
            unit = by_place.pop(consume_queue.ext_offset(units[number].tags_code))
            ours = {
                "size": unit.size,
                "tagsCode": unit.tags_code,
                "msgStoreTime": unit.msg_store_time,
                "filterBitMap": unit.bit_map.hex() or None,
                "queueOffset": number,
                "found": True,
                "of the log": [unit.tags_code, unit.msg_store_time],
            }
            of_log = derived_units(subject)[files.topic, files.queue_id][number]
            expected = {name: value.lower() if isinstance(value, str) else value for name, value in one.items()}
            expected["of the log"] = [of_log.tags_code, times[of_log.physical_offset]]
            subject.compare(f"{queue} at {number}", ours, expected)
        report_missing(subject, f"a unit for the extension entry of {queue}", by_place)
        for segment in files.segments:
            path = f"{EXT}/{queue}/{segment.base_offset:020d}"
            compare_file(subject, path, rebuilt_ext(files, segment), segment)


def rebuilt_ext(files: QueueFiles, segment: Segment) -> bytes:
    """A file of the extension from its units: back to back, a mark when the next one does not fit, zeros."""
    end = segment.base_offset + segment.size
    data = b"".join(
        consume_queue.encode_ext_unit(unit) for place, unit in ext_units(files) if segment.base_offset <= place < end
    )
    later = [unit for place, unit in ext_units(files) if place >= end]
    if later:
        assert later[0].size + consume_queue.EXT_END_ROOM > segment.size - len(data)
        data += consume_queue.EXT_END_MARK
    return data.ljust(len(segment.data), b"\0")


@comparison("batch queue units", rows="units")
def batch_units(subject: Subject) -> None:
    """What the real class reads, and the files made anew from the log."""
    delays = rules_of(subject).delays
    for files in queue_files(subject.root, BATCH):
        queue = f"{files.topic}/{files.queue_id}"
        units = [
            unit
            for segment in files.segments
            for unit in BATCH_UNIT.iter_decode(segment.data)
            if consume_queue.is_batch_written(unit)
        ]
        theirs = subject.truth["queues"][files.topic][str(files.queue_id)]["units"]
        for number, (unit, real) in enumerate(zip(units, theirs, strict=True)):
            ours = [unit.physical_offset, unit.size, unit.tags_code, unit.msg_base_offset, unit.batch_size]
            parsed = declarations.BATCH_CONSUME_QUEUE_UNIT.parse(BATCH_UNIT.encode(unit))
            construct = [parsed[name] for name in BatchConsumeQueueUnit._fields]
            expected = {"struct": real, "construct": list(unit)}
            subject.compare(f"{queue}, unit {number}", {"struct": ours, "construct": construct}, expected)
        made = b"".join(
            BATCH_UNIT.encode(dispatch.batch_unit(message, delays))
            for message in messages(subject.root)
            if (message.topic, message.queue_id) == files[:2] and dispatch.has_queue_unit(message.sys_flag)
        )
        for segment in files.segments:
            part = made[segment.base_offset : segment.base_offset + segment.size].ljust(len(segment.data), b"\0")
            compare_file(subject, f"{BATCH}/{queue}/{segment.base_offset}", part, segment)


@comparison("compacted queues and logs", rows="units")
def compaction(subject: Subject) -> None:
    """Units and records of the compacted files; a record differs from its original in nothing but its place."""
    truth = subject.truth.get("compaction") or {}
    originals = {(one.topic, one.queue_id, one.queue_offset): one for one in messages(subject.root)}
    for path, theirs in truth.items():
        if "compactionCq" in path:
            segment = read_segment(subject.root / path)
            units = [unit for unit in BATCH_UNIT.iter_decode(segment.data) if consume_queue.is_batch_written(unit)]
            for number, (unit, real) in enumerate(zip(units, theirs["units"], strict=True)):
                subject.compare(f"{path}, unit {number}", {"unit": list(unit)}, {"unit": real})
            made = b"".join(map(BATCH_UNIT.encode, units)).ljust(len(segment.data), b"\0")
            compare_file(subject, path, made, segment)
        elif "compactionLog" in path:
            compare_compacted_log(subject, path, theirs["messages"], originals)


def compare_compacted_log(subject: Subject, path: str, theirs: list[dict[str, Any]], originals: dict[Any, Any]) -> None:
    """The records of one compacted file, as the truth has them and as the commit log has them."""
    segment = read_segment(subject.root / path)
    found = [one for one in walk_segment(segment) if isinstance(one.found, commit_log.Message)]
    end = 0
    for one, real in zip(found, theirs, strict=True):
        message = one.found
        assert isinstance(message, commit_log.Message)
        original = originals[message.topic, message.queue_id, message.queue_offset]
        subject.compare(
            f"{path} at {one.physical_offset}",
            {
                "place": one.physical_offset,
                "says": message.physical_offset,
                "queueOffset": message.queue_offset,
                "else": message._replace(physical_offset=0),
            },
            {
                "place": real["commitLogOffset"],
                "says": one.physical_offset,
                "queueOffset": real["queueOffset"],
                "else": original._replace(physical_offset=0),
            },
        )
        end = one.file_offset + message.total_size
    subject.compare(f"{path}, its end", {"rest": segment.data[end:].strip(b"\0")}, {"rest": b""})
