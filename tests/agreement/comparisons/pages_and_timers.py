"""Checkpoints, epochs, the timer wheel and the timer log."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from rmqtool.formats import checkpoints, control_texts, declarations, layouts, timer
from rmqtool.formats.java import LONG_MAX, string_hash
from rmqtool.formats.layouts import TimerLogBlank, TimerLogUnit, TimerSlot
from tests.agreement.ledger import Subject, comparison
from tests.agreement.logs import messages, read_segments, report_missing
from tests.support.stores import content_digest, data_extents


@comparison("checkpoint", rows="pages")
def store_checkpoint(subject: Subject) -> None:
    """The five times and offsets, what follows from them, and the page written back."""
    page = (subject.root / "checkpoint").read_bytes()
    found = checkpoints.decode_checkpoint(page)
    theirs = subject.truth["checkpoint"]
    names = "physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "masterFlushedOffset", "confirmPhyOffset"
    values = found._asdict().values()
    parsed = declarations.STORE_CHECKPOINT.parse(page)
    # The class of 4.9 knows three of them; the others are zeros then.
    ours = dict(zip(names, values, strict=True)) | {
        "minTimestamp": checkpoints.min_timestamp(found),
        "minTimestampIndex": min(checkpoints.min_timestamp(found), found.index_msg_timestamp),
        "construct": [parsed[name] for name in found._fields],
        "flaw": checkpoints.check_checkpoint(page),
        "back": checkpoints.encode_checkpoint(found),
    }
    expected = dict.fromkeys(names, 0) | theirs | {"construct": list(values), "flaw": None, "back": page}
    subject.compare("checkpoint", ours, expected)


@comparison("timer checkpoint", rows="pages")
def timer_checkpoint(subject: Subject) -> None:
    """The seven numbers of ``timercheck``, and the page written back."""
    theirs = (subject.truth.get("timer") or {}).get("timercheck")
    if theirs is None:
        return
    page = (subject.root / "config" / "timercheck").read_bytes()
    found = checkpoints.decode_timer_checkpoint(page)
    parsed = declarations.TIMER_CHECKPOINT.parse(page)
    ours = {
        "lastReadTimeMs": found.last_read_time_ms,
        "lastTimerLogFlushPos": found.last_timer_log_flush_pos,
        "lastTimerQueueOffset": found.last_timer_queue_offset,
        "masterTimerQueueOffset": found.master_timer_queue_offset,
        "dataVersion": {
            "stateVersion": found.state_version,
            "timestamp": found.timestamp,
            "counter": found.counter,
        },
        "construct": [parsed[name] for name in found._fields],
        "back": checkpoints.encode_timer_checkpoint(found),
    }
    subject.compare("timercheck", ours, theirs | {"construct": list(found), "back": page})


@comparison("epochs", rows="entries")
def epochs(subject: Subject) -> None:
    """Every entry; an epoch ends where the next one begins."""
    theirs = (subject.truth.get("epoch") or {}).get("entries", [])
    if not theirs:
        return
    data = (subject.root / "epochFileCheckpoint").read_bytes()
    found = control_texts.decode_epoch_file(data)
    assert isinstance(found, control_texts.EpochFile)
    ends = [entry.start_offset for entry in found.entries[1:]] + [LONG_MAX]
    for entry, end, real in zip(found.entries, ends, theirs, strict=True):
        ours = {"epoch": entry.epoch, "startOffset": entry.start_offset, "endOffset": end}
        subject.compare(f"epoch {entry.epoch}", ours, real)
    subject.compare("epoch file", {"back": control_texts.encode_epoch_file(found)}, {"back": data})


def log_units(root: Path) -> dict[int, TimerLogUnit]:
    """Every unit of the timer log by its position."""
    found = {}
    for segment in read_segments(root / "timerlog"):
        at = 0
        while isinstance(unit := timer.decode_timer_unit(segment.data, at), TimerLogUnit):
            found[segment.base_offset + at] = unit
            at += timer.UNIT_SIZE
    return found


@comparison("timer log", rows="units")
def timer_log(subject: Subject) -> None:
    """Every unit, by struct and by construct, and written back; the message it stands for."""
    truth = subject.truth.get("timer") or {}
    theirs = {one["pos"]: one for one in truth.get("log", ()) if "delay" in one}
    if not theirs:
        return
    by_offset = {message.physical_offset: message for message in messages(subject.root)}
    window = subject.truth["config"].get("timerRollWindowSlot", 2 * 24 * 3600) * 1000
    for position, unit in log_units(subject.root).items():
        data = layouts.TIMER_LOG_UNIT.encode(unit)
        parsed = declarations.TIMER_LOG_UNIT.parse(data)
        names = "size", "prevPos", "magic", "writeTime", "delay", "offsetPy", "sizePy", "topicHash", "reserved"
        message = by_offset[unit.offset_py]
        wanted = int(message.properties["TIMER_OUT_MS"]) - unit.write_time
        rolled = bool(unit.magic & timer.MAGIC_ROLL)
        shortened = window // 2 if wanted - window < window // 3 else window
        ours = dict(zip(names, unit, strict=True)) | {
            "pos": position,
            "construct": [parsed[name] for name in unit._fields],
            "message size": unit.size_py,
            "message topic": unit.topic_hash,
            "due": unit.delay,
            "cancels": bool(unit.magic & timer.MAGIC_DELETE),
        }
        expected = theirs.pop(position) | {
            "construct": list(unit),
            "message size": message.total_size,
            "message topic": string_hash(message.properties.get("REAL_TOPIC", "")),
            "due": shortened if rolled else wanted,
            "cancels": "TIMER_DEL_UNIQKEY" in message.properties,
        }
        subject.compare(f"unit at {position}", ours, expected)
    report_missing(subject, "timer unit", theirs)


@comparison("timer log files, written back", rows="files")
def timer_files(subject: Subject) -> None:
    """A file is its units, a blank that reaches its end when the next one does not fit, and zeros."""
    for segment in read_segments(subject.root / "timerlog"):
        made = b""
        while isinstance(found := timer.decode_timer_unit(segment.data, len(made)), TimerLogUnit | TimerLogBlank):
            if isinstance(found, TimerLogBlank):
                where = f"blank at {segment.base_offset + len(made)}"
                subject.compare(where, {"end": len(made) + found.size}, {"end": segment.size})
                made += layouts.TIMER_LOG_BLANK.encode(found)
                break
            made += layouts.TIMER_LOG_UNIT.encode(found)
        subject.compare(
            f"timerlog/{segment.base_offset:020d}",
            {"back": made},
            {"back": segment.data.rstrip(b"\0").ljust(len(made), b"\0")},
        )


def read_wheel(path: Path) -> dict[int, TimerSlot]:
    """The slots that were ever written, by number; holes are not read."""
    found = {}
    with path.open("rb") as file:
        for start, length in data_extents(file.fileno(), path.stat().st_size):
            data = os.pread(file.fileno(), length, start)
            first = -start % timer.SLOT_SIZE
            for number, slot in enumerate(
                layouts.TIMER_SLOT.iter_decode(data[first:]), (start + first) // timer.SLOT_SIZE
            ):
                if timer.is_slot_used(slot):
                    found[number] = slot
    return found


@comparison("timer wheel", rows="slots")
def timer_wheel(subject: Subject) -> None:
    """Every slot in use, by struct and by construct; and the whole file made anew from the log."""
    truth = subject.truth.get("timer") or {}
    theirs = {one["index"]: one for one in truth.get("slots", ())}
    path = subject.root / "timerwheel"
    if not path.exists():
        return
    found = read_wheel(path)
    for number, slot in found.items():
        data = layouts.TIMER_SLOT.encode(slot)
        parsed = declarations.TIMER_SLOT.parse(data)
        ours = {
            "index": number,
            "slotIndex": timer.wheel_slot(slot.time * 1000),
            "rawTime": slot.time,
            "timeMs": slot.time * 1000,
            "firstPos": slot.first_pos,
            "lastPos": slot.last_pos,
            "num": slot.num,
            "magic": slot.magic,
            "construct": [parsed[name] for name in slot._fields],
            "built": declarations.TIMER_SLOT.build(parsed),
        }
        subject.compare(f"slot {number}", ours, theirs.pop(number) | {"construct": list(slot), "built": data})
    report_missing(subject, "slot", theirs)
    made: dict[int, TimerSlot] = {}
    unused = layouts.TIMER_SLOT.decode(bytes(timer.SLOT_SIZE))
    for position, unit in log_units(subject.root).items():
        number = timer.wheel_slot(unit.write_time + unit.delay)
        made[number] = timer.apply_to_slot(made.get(number, unused), unit, position)
    with TemporaryDirectory(prefix="rmqtool-wheel-") as directory:
        wheel = Path(directory) / "wheel"
        with wheel.open("wb") as file:
            os.truncate(file.fileno(), timer.WHEEL_SIZE)
            for number, slot in made.items():
                os.pwrite(file.fileno(), layouts.TIMER_SLOT.encode(slot), number * timer.SLOT_SIZE)
        subject.compare("timerwheel", {"digest": content_digest(wheel)}, {"digest": content_digest(path)})
