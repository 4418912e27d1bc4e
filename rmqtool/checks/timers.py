"""Checks the timers of 5.x: the timer log, the wheel against it, and both against the commit log."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.checks.case import Case, Depth
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.formats import checkpoints, layouts, paths, timer
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import TimerLogUnit, TimerSlot
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import read_record
from rmqtool.store.listing import FoundFile

# Units of the timer log that are compared with their records without --deep.
_FOLLOWED = 20_000
_NAMED = 100
_PIECE = 1 << 20
# A broker may run long without a message, but not for this long.
_MOST_AHEAD_MS = 20 * 365 * 86_400_000
_NO_SLOT = TimerSlot(0, 0, 0, 0, 0)


def check_timers(case: Case) -> Iterator[Finding]:
    """Yield the findings about timers."""
    files = sorted(case.files(FileKind.TIMER_LOG), key=lambda file: file.what.base_offset or 0)
    slots: dict[int, TimerSlot] = {}
    judge = _TimerLog(case, slots)
    yield from _check_begin(case, files)
    for file in files:
        yield from judge.check(file, is_last=file is files[-1])
    if case.live:
        return
    for file in case.files(FileKind.TIMER_WHEEL):
        if file.what.base_offset is None:
            yield from _check_wheel(case, file, slots, judge)
    yield from _check_timer_checkpoint(case, judge.end)


def _check_begin(case: Case, files: list[FoundFile]) -> Iterator[Finding]:
    """Yield a finding if the timer log has lost its beginning.

    A broker deletes a file of the timer log only when it has deleted its messages.
    """
    begin = (files[0].what.base_offset or 0) if files else 0
    if begin > 0 and len(case.log) and case.log.min_offset == 0:
        text = (
            f"the timer log begins at {begin}, but nothing was deleted from the commit log: {begin} bytes are missing"
        )
        yield new_finding("TM-WRONG", text, Place(files[0].path, 0))


class _TimerLog:
    """Reads the units in order; ``slots`` becomes the due content of the wheel, ``end`` the end of the log."""

    def __init__(self, case: Case, slots: dict[int, TimerSlot]) -> None:
        self.case = case
        self.slots = slots
        self.precision = case.store.config.timer_precision_ms
        self.start = -1
        self.end = 0
        self.units = 0
        self._named = 0

    def check(self, file: FoundFile, *, is_last: bool) -> Iterator[Finding]:
        base = file.what.base_offset or 0
        self.start = base if self.start < 0 else self.start
        with self.case.store.filesystem.open_read(file.path) as opened:
            at, data, start = 0, b"", 0
            while at < file.size:
                if at + timer.UNIT_SIZE > start + len(data):
                    start, data = at, opened.pread(min(_PIECE, file.size - at), at)
                found = timer.decode_timer_unit(data, at - start)
                if not isinstance(found, TimerLogUnit):
                    if isinstance(found, Flaw) and not (is_last and self.case.live):
                        yield new_finding(found.code, found.message, Place(file.path, at, file.size - at))
                    break
                yield from self._unit(file, at, base + at, found)
                at += timer.UNIT_SIZE
                self.end = base + at

    def _unit(self, file: FoundFile, at: int, position: int, unit: TimerLogUnit) -> Iterator[Finding]:
        self.units += 1
        place = Place(file.path, at, timer.UNIT_SIZE)
        number = (unit.write_time + unit.delay) // self.precision % timer.WHEEL_SLOTS
        before = self.slots.get(number, _NO_SLOT)
        after = timer.apply_to_slot(before, unit, position, self.precision)
        due = before.last_pos if before.time == after.time and before != _NO_SLOT else -1
        if unit.prev_pos != due and not (unit.prev_pos < self.start and self.start > 0) and self._may_name():
            yield new_finding(
                "TM-LOG", f"prevPos is {unit.prev_pos}, but the entry before it in this second is at {due}", place
            )
        self.slots[number] = after
        if self.case.depth is not Depth.DEEP and self.units > _FOLLOWED:
            return
        if self.case.log.min_offset <= unit.offset_py < self.case.end.physical_offset:
            record = read_record(self.case.log, unit.offset_py)
            known = self.case.explains(unit.offset_py) is not None
            if (record is None or record.total_size != unit.size_py) and not known and self._may_name():
                size = "no record begins" if record is None else f"there is a record of {record.total_size} bytes"
                text = f"the timer entry points to {unit.offset_py} ({unit.size_py} bytes), where {size}"
                yield new_finding("TM-WRONG", text, place)
        elif unit.offset_py >= self.case.end.physical_offset and not self.case.live and self._may_name():
            severity = Severity.NOTICE if self.case.abort else None
            text = f"the timer entry points to {unit.offset_py}, past the end of the log"
            why = "the timer message was lost with the end of the log"
            yield new_finding("TM-WRONG", text, place, severity=severity, consequence=why if self.case.abort else None)

    def _may_name(self) -> bool:
        self._named += 1
        return self._named <= _NAMED


def _check_wheel(case: Case, file: FoundFile, slots: dict[int, TimerSlot], judge: _TimerLog) -> Iterator[Finding]:
    """Yield slots that differ from the timer log. After a crash the wheel may lack the newest units."""
    if file.size != timer.WHEEL_SIZE:
        text = f"{file.size} bytes, a wheel has {timer.WHEEL_SIZE}"
        yield new_finding("TM-WRONG", text, Place(file.path, 0, file.size))
    named = 0
    seen: set[int] = set()
    for number, found in _used_slots(case, file):
        seen.add(number)
        due = slots.get(number)
        if named < _NAMED and not case.abort and not _agrees(found, due, judge):
            named += 1
            text = f"slot {number} says {_words(found)}, the timer log says {_words(due)}"
            yield new_finding("TM-WRONG", text, Place(file.path, number * timer.SLOT_SIZE, timer.SLOT_SIZE))
    for number in sorted(slots.keys() - seen)[: _NAMED if not case.abort else 0]:
        text = f"slot {number} is empty, the timer log says {_words(slots[number])}"
        yield new_finding("TM-WRONG", text, Place(file.path, number * timer.SLOT_SIZE, timer.SLOT_SIZE))


def _used_slots(case: Case, file: FoundFile) -> Iterator[tuple[int, TimerSlot]]:
    size = timer.SLOT_SIZE
    with case.store.filesystem.open_read(file.path) as opened:
        done = 0
        for extent in opened.iter_data(0, file.size - file.size % size):
            at = max(done, extent.file_offset - extent.file_offset % size)
            while at < extent.end:
                data = opened.pread(min(_PIECE - _PIECE % size, file.size - at), at)
                if data.strip(b"\0"):
                    for number, slot in enumerate(layouts.TIMER_SLOT.iter_decode(data), at // size):
                        if timer.is_slot_used(slot):
                            yield number, slot
                at += len(data) - len(data) % size
                if len(data) < size:
                    break
            done = at


def _agrees(found: TimerSlot, due: TimerSlot | None, judge: _TimerLog) -> bool:
    if due is None:  # its timers may have been deleted with old files of the timer log
        return found.last_pos < judge.start or (judge.start > 0 and found.last_pos < judge.end)
    if judge.start > 0:
        return (found.time, found.last_pos) == (due.time, due.last_pos)
    return found == due


def _words(slot: TimerSlot | None) -> str:
    return "nothing" if slot is None else f"{slot.num} timers at {slot.time}, from {slot.first_pos} to {slot.last_pos}"


def _check_timer_checkpoint(case: Case, end: int) -> Iterator[Finding]:
    path = f"{paths.CONFIG}/{paths.TIMER_CHECK}"
    data = case.store.read_file(path, 1 << 16)
    if data is None:
        return
    if len(data) != checkpoints.PAGE_SIZE:
        text = f"{len(data)} bytes, a timer checkpoint has {checkpoints.PAGE_SIZE}"
        yield new_finding("CP-BAD", text, Place(path, 0, len(data)))
    found = checkpoints.decode_timer_checkpoint(data)
    told, stored = found.last_read_time_ms, case.end.last
    newest = stored.store_timestamp if stored is not None else 0
    if told < 0 or (newest and told > newest + _MOST_AHEAD_MS):
        field = layouts.TIMER_CHECKPOINT.field("last_read_time_ms")
        text = f"lastReadTimeMs is {told}: all timer messages up to then would count as delivered"
        yield new_finding("CP-AHEAD", text, Place(path, field.offset, field.size))
    if found.last_timer_log_flush_pos > end:
        field = layouts.TIMER_CHECKPOINT.field("last_timer_log_flush_pos")
        text = f"lastTimerLogFlushPos is {found.last_timer_log_flush_pos}, but the timer log ends at {end}"
        yield new_finding("CP-AHEAD", text, Place(path, field.offset, field.size))
