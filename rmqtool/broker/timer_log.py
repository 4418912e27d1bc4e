"""The timer log and the wheel of 5.x, being written.

Upstream: ``TimerLog``, ``TimerWheel``, ``TimerMessageStore.recover``. The log chains the units of each slot, newest
first; a slot of the wheel holds the place of the newest. Slots that changed are kept in memory until ``flush`` has
forced the log: on the disk the wheel never leads to a unit that is not there, and lags the log at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.engine.derived_files import DerivedFiles, DerivedQueue
from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC
from rmqtool.formats.layouts import TimerLogBlank, TimerLogUnit, TimerSlot
from rmqtool.formats.paths import TIMER_LOG, TIMER_WHEEL
from rmqtool.formats.timer import (
    BLANK_SIZE,
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_SIZE,
    WHEEL_SLOTS,
    apply_to_slot,
    decode_timer_unit,
    wheel_slot,
)

_CHUNK = 8192
_EMPTY = TimerSlot(0, 0, 0, 0, 0)


class TimerLog:
    """Units one behind the other; a file ends with a blank."""

    def __init__(self, files: DerivedFiles, file_size: int, start: int = 0) -> None:
        # Where the next unit comes to.
        self.end = start
        self._queue = DerivedQueue(files, TIMER_LOG, file_size)
        self._file_size = file_size

    def append(self, unit: TimerLogUnit) -> int:
        """Write a unit; return its place."""
        room = self._file_size - self.end % self._file_size
        if room < UNIT_SIZE + BLANK_SIZE:
            self._queue.write(self.end, layouts.TIMER_LOG_BLANK.encode(TimerLogBlank(room, 0, BLANK_MAGIC)))
            self.end += room
        position = self.end
        self._queue.write(position, layouts.TIMER_LOG_UNIT.encode(unit))
        self.end += UNIT_SIZE
        return position

    def read(self, position: int) -> TimerLogUnit | None:
        """Return the unit at a place, None when none stands there."""
        if not 0 <= position < self.end:
            return None
        found = decode_timer_unit(self._queue.read(position, UNIT_SIZE))
        return found if isinstance(found, TimerLogUnit) else None

    def remove_file(self, start: int, lost_before: int) -> bool:
        """Remove a full file if the message of its last unit, and so all of them, lay before a place in the log."""
        last = (self._file_size - BLANK_SIZE) // UNIT_SIZE - 1
        unit = self.read(start + last * UNIT_SIZE)
        if unit is None or unit.offset_py >= lost_before:
            return False
        self._queue.remove(start)
        return True

    def iter_chain(self, position: int) -> Iterator[TimerLogUnit]:
        """Yield the units of a slot, the newest first. Each lies before the one behind it, or the chain ends."""
        while (unit := self.read(position)) is not None:
            yield unit
            if unit.prev_pos >= position:
                return
            position = unit.prev_pos

    def iter_on(self) -> Iterator[tuple[int, TimerLogUnit]]:
        """Yield the units that stand behind the end, with their places; each one moves the end behind it."""
        while True:
            data = self._queue.read(self.end, UNIT_SIZE * _CHUNK)
            at = 0
            while isinstance(unit := decode_timer_unit(data, at), TimerLogUnit):
                position = self.end
                self.end += UNIT_SIZE
                at += UNIT_SIZE
                yield position, unit
            if isinstance(unit, TimerLogBlank) and unit.size > 0:
                self.end += unit.size
            elif not at or self.end % self._file_size == 0:
                return


class TimerWheel:
    """The slots of two laps of seven days. ``changed`` holds those that the file does not have yet."""

    def __init__(self, files: DerivedFiles, precision: int) -> None:
        self.changed: dict[int, TimerSlot] = {}
        self.exists = files.exists(TIMER_WHEEL)
        self._files = files
        self._precision = precision

    def find(self, time: int) -> TimerSlot | None:
        """Return the slot of a delivery time, None when it is empty, or left from an earlier lap."""
        index = wheel_slot(time, self._precision)
        slot = self.changed.get(index) or self._read(index)
        return slot if slot.time == time // self._precision else None

    def add(self, unit: TimerLogUnit, position: int) -> None:
        """Let a slot lead to a unit of its; one that it knows changes nothing."""
        index = wheel_slot(unit.write_time + unit.delay, self._precision)
        slot = self.changed.get(index) or self._read(index)
        if slot.time == (unit.write_time + unit.delay) // self._precision and slot.last_pos >= position:
            return
        self.changed[index] = apply_to_slot(slot, unit, position, self._precision)

    def iter_slots(self, time: int, end: int) -> Iterator[TimerSlot]:
        """Yield the slots in use of delivery times from ``time`` to before ``end``, in their order; one lap at most."""
        first, last = time // self._precision, end // self._precision
        last = min(last, first + WHEEL_SLOTS)
        while first < last:
            index = first % WHEEL_SLOTS
            count = min(_CHUNK, last - first, WHEEL_SLOTS - index)
            data = self._files.read(TIMER_WHEEL, count * SLOT_SIZE, index * SLOT_SIZE) if self.exists else b""
            changed = self._changed_among(index, count)
            if changed or data.count(0) != len(data):
                for at in range(count):
                    slot = changed.get(index + at)
                    if slot is None:
                        slot = layouts.TIMER_SLOT.decode(data, at * SLOT_SIZE) if data else _EMPTY
                    if slot.time == first + at and slot.time:
                        yield slot
            first += count

    def flush(self) -> None:
        """Write and force the slots that changed; the log must be forced before."""
        if not self.changed:
            return
        if not self.exists:
            self._files.create(TIMER_WHEEL, WHEEL_SIZE)
            self.exists = True
        for index in sorted(self.changed):
            self._files.write(TIMER_WHEEL, layouts.TIMER_SLOT.encode(self.changed[index]), index * SLOT_SIZE)
        self._files.flush()
        self.changed.clear()

    def _changed_among(self, index: int, count: int) -> dict[int, TimerSlot]:
        if len(self.changed) < count:
            return {at: slot for at, slot in self.changed.items() if index <= at < index + count}
        return {at: self.changed[at] for at in range(index, index + count) if at in self.changed}

    def _read(self, index: int) -> TimerSlot:
        if not self.exists:
            return _EMPTY
        return layouts.TIMER_SLOT.decode(self._files.read(TIMER_WHEEL, SLOT_SIZE, index * SLOT_SIZE))
