"""Timers of 5.x: messages with a time of delivery, kept in the timer topic, the timer log and the timer wheel.

A new message of the timer topic gets a unit in the timer log and is linked to the slot of its time in the wheel. A slot
is served when the clock has left it. A message further away than the window of the wheel *rolls*: it is put into the
timer topic again. A message that cancels another one is in the same slot. The read time moves when a whole slot is
done, and is saved after the delivered messages: they may be delivered twice, but not lost. upstream: TimerMessageStore.

The timer log chains the units of each slot, newest first; the slot points to the newest. Changed slots stay in memory
until ``flush`` has forced the log. So on disk a slot never points to a unit that does not exist. upstream: TimerLog,
TimerWheel, TimerMessageStore.recover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqtool.broker.services.events import Happened, Service
from rmqtool.broker.services.retry import find_number, stored_again, stored_properties
from rmqtool.config import Version
from rmqtool.engine.consume_queue import ConsumeQueue, DerivedFiles, DerivedQueue
from rmqtool.engine.message import NewMessage, PutStatus
from rmqtool.engine.store import MessageStore
from rmqtool.formats import layouts
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_timer_checkpoint, encode_timer_checkpoint
from rmqtool.formats.codes import BLANK_MAGIC
from rmqtool.formats.commit_log import Message
from rmqtool.formats.java import LONG_MAX, parse_long, string_hash
from rmqtool.formats.layouts import TimerCheckpoint, TimerLogBlank, TimerLogUnit, TimerSlot
from rmqtool.formats.paths import CONFIG, TIMER_CHECK, TIMER_LOG, TIMER_WHEEL, parse_segment_name
from rmqtool.formats.property_names import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)
from rmqtool.formats.timer import (
    BLANK_SIZE,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_SIZE,
    WHEEL_SLOTS,
    apply_to_slot,
    decode_timer_unit,
    wheel_slot,
)
from rmqtool.formats.topics import TIMER_TOPIC

_CHUNK = 8192
_EMPTY = TimerSlot(0, 0, 0, 0, 0)


class TimerLog:
    """The units, back to back; a file ends with a blank unit."""

    def __init__(self, files: DerivedFiles, file_size: int, start: int = 0) -> None:
        # The place of the next unit.
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
        """Return the unit at a place, None if there is no valid one."""
        if not 0 <= position < self.end:
            return None
        found = decode_timer_unit(self._queue.read(position, UNIT_SIZE))
        return found if isinstance(found, TimerLogUnit) else None

    def remove_file(self, start: int, lost_before: int) -> bool:
        """Remove a full file if its last message, and so all of them, was before an offset of the log."""
        last = (self._file_size - BLANK_SIZE) // UNIT_SIZE - 1
        unit = self.read(start + last * UNIT_SIZE)
        if unit is None or unit.offset_py >= lost_before:
            return False
        self._queue.remove(start)
        return True

    def iter_chain(self, position: int) -> Iterator[TimerLogUnit]:
        """Yield the units of a slot, newest first. A chain ends where it does not go back, because it would loop."""
        while (unit := self.read(position)) is not None:
            yield unit
            if unit.prev_pos >= position:
                return
            position = unit.prev_pos

    def iter_on(self) -> Iterator[tuple[int, TimerLogUnit]]:
        """Yield the units after the end with their places; the end moves with them."""
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
    """The slots of two laps of seven days. ``changed`` has the slots that are not in the file yet."""

    def __init__(self, files: DerivedFiles, precision: int) -> None:
        self.changed: dict[int, TimerSlot] = {}
        # A kill can leave the file without its size. upstream: TimerWheel takes an empty file for a new one.
        self.exists = files.exists(TIMER_WHEEL) and bool(files.read(TIMER_WHEEL, 1, 0))
        self._files = files
        self._precision = precision

    def find(self, time: int) -> TimerSlot | None:
        """Return the slot of a delivery time; None if it is empty or belongs to an earlier lap."""
        index = wheel_slot(time, self._precision)
        slot = self.changed.get(index) or self._read(index)
        return slot if slot.time == time // self._precision else None

    def add(self, unit: TimerLogUnit, position: int) -> None:
        """Link a unit to its slot, unless the slot has it already."""
        index = wheel_slot(unit.write_time + unit.delay, self._precision)
        slot = self.changed.get(index) or self._read(index)
        if slot.time == (unit.write_time + unit.delay) // self._precision and slot.last_pos >= position:
            return
        self.changed[index] = apply_to_slot(slot, unit, position, self._precision)

    def iter_slots(self, time: int, end: int) -> Iterator[TimerSlot]:
        """Yield the used slots of delivery times from ``time`` to before ``end``, in order; at most one lap."""
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

    def empty_slots_past(self, position: int, time: int) -> bool:
        """Empty the slots of one lap that point to ``position`` or past it; return whether there are any.

        The wheel of a broker reaches the disk by itself: after a power cut it may be ahead of the log.
        """
        end = time + WHEEL_SLOTS * self._precision
        past = [slot.time % WHEEL_SLOTS for slot in self.iter_slots(time, end) if slot.last_pos >= position]
        self.changed.update(dict.fromkeys(past, _EMPTY))
        return bool(past)

    def flush(self) -> None:
        """Write and force the changed slots. The log must be forced before."""
        if not self.changed:
            return
        if not self.exists:
            if self._files.exists(TIMER_WHEEL):
                self._files.unlink(TIMER_WHEEL)
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


_CHECK_PATH = f"{CONFIG}/{TIMER_CHECK}"
# Messages of the timer topic that are read at once.
_AT_ONCE = 4096
# The enqueue time of a message that was due already and never entered the wheel.
_NEVER_ENQUEUED = LONG_MAX


class DueTimer(NamedTuple):
    """A message whose time has come, when it was enqueued, and whether it rolls."""

    record: Message
    enqueued: int
    rolls: bool


class Timers:
    """Wheel, log and progress of one store. Without a wheel, or with timers in RocksDB, it does nothing."""

    def __init__(self, store: MessageStore) -> None:
        config = store.setup.config
        self._store = store
        self._config = config
        self._precision = config.timer_precision_ms
        self.is_enabled = (
            config.version is not Version.V4_9 and config.timer_wheel_enable and not config.timer_rocksdb_enable
        )
        self.read_time = self.queue_offset = 0
        self._saved = TimerCheckpoint(0, 0, 0, 0, 0, 0, 0)
        self._files = DerivedFiles(store.setup.files)
        self.log = TimerLog(self._files, config.mapped_file_size_timer_log)
        self.wheel = TimerWheel(self._files, self._precision)
        if self.is_enabled:
            self._recover()

    def _recover(self) -> None:
        """Continue from the checkpoint, with the units that the log has after it.

        upstream begins a whole file before the checkpoint. Here the wheel is forced before the checkpoint is written.
        """
        has_check = self._files.exists(_CHECK_PATH)
        if has_check:
            self._saved = decode_timer_checkpoint(self._files.read(_CHECK_PATH, PAGE_SIZE, 0))
        starts = self._log_starts()
        whole = has_check and self.wheel.exists and not self._config.timer_wheel_snapshot_flush
        self.log.end = self._saved.last_timer_log_flush_pos if whole else (starts[0] if starts else 0)
        self.read_time = self._within_lap(self._saved.last_read_time_ms) if has_check or starts else self._rounded_now()
        last = self._link()
        if starts and self.wheel.empty_slots_past(self.log.end, self.read_time):
            self.log.end = starts[0]
            last = self._link()
        low, high = self._store.reader.bounds(TIMER_TOPIC, 0)
        offset = self._saved.last_timer_queue_offset
        record = None if last is None else self._store.reader.message_at(last.offset_py)
        if record is not None and record.topic == TIMER_TOPIC:
            offset = max(offset, record.queue_offset + 1)
        self.queue_offset = min(max(offset, low), high)

    def _link(self) -> TimerLogUnit | None:
        """Add the units from the end of the log on to the wheel; return the last one."""
        last = None
        for position, unit in self.log.iter_on():
            self.wheel.add(unit, position)
            last = unit
        return last

    def _log_starts(self) -> list[int]:
        files = self._store.setup.files
        names = [entry.name for entry in files.listdir(TIMER_LOG)] if files.exists(TIMER_LOG) else []
        return sorted(start for name in names if (start := parse_segment_name(name)) is not None)

    def _rounded_now(self) -> int:
        now = self._store.setup.clock.now()
        return now - now % self._precision

    def _within_lap(self, time: int) -> int:
        """Return ``time``, or the oldest time whose slots no later lap can have used again."""
        return max(time, self._rounded_now() - (WHEEL_SLOTS - self._config.timer_roll_window_slot) * self._precision)

    def iter_due(self) -> Iterator[Happened]:
        """Deliver due messages, take new ones, and deliver those that are due already."""
        if not self.is_enabled:
            return
        yield from self.iter_dequeue()
        yield from self.iter_enqueue()
        yield from self.iter_dequeue()

    def iter_enqueue(self, most: int | None = None) -> Iterator[Happened]:
        """Take up to ``most`` messages of the timer topic into the wheel; deliver those that are due already."""
        taken = 0
        while most is None or taken < most:
            queue = self._store.find_queue(TIMER_TOPIC, 0)
            units = queue.read_units(self.queue_offset, _AT_ONCE) if isinstance(queue, ConsumeQueue) else []
            for unit in units[: None if most is None else most - taken]:
                taken += 1
                record = self._store.reader.message_at(unit.physical_offset)
                deliver = None if record is None else _deliver_time(record)
                if record is None or deliver is None:
                    yield Happened(Service.TIMER, "skipped", record, None, {"reason": "unreadable"})
                elif deliver < self._rounded_now():
                    (told,) = self._put([DueTimer(record, _NEVER_ENQUEUED, False)], deliver)
                    yield told
                    if told.event == "stuck":
                        return
                else:
                    self._enqueue(record, deliver)
                self.queue_offset += 1
            if not units:
                return

    def _enqueue(self, record: Message, deliver: int) -> None:
        """Add a message to log and wheel. One that is further away than the window rolls later."""
        write_time = self._rounded_now()
        delay, magic = deliver - write_time, MAGIC_DEFAULT
        window = self._config.timer_roll_window_slot * self._precision
        if delay >= window:
            magic |= MAGIC_ROLL
            delay = window // 2 if delay - window < window // 3 else window
        if TIMER_DEL_UNIQKEY in record.properties:
            magic |= MAGIC_DELETE
        slot = self.wheel.find(write_time + delay)
        unit = TimerLogUnit(
            UNIT_SIZE,
            -1 if slot is None else slot.last_pos,
            magic,
            write_time,
            delay,
            record.physical_offset,
            record.total_size,
            string_hash(record.properties.get(REAL_TOPIC, "")),
            0,
        )
        self.wheel.add(unit, self.log.append(unit))

    def iter_dequeue(self) -> Iterator[Happened]:
        """Serve the slots that the clock has left."""
        now = self._rounded_now()
        self.read_time = self._within_lap(self.read_time)
        for slot in self.wheel.iter_slots(self.read_time, now):
            time = slot.time * self._precision
            self.read_time = time
            for told in self._serve(slot, time):
                yield told
                if told.event == "stuck":
                    return
        self.read_time = max(self.read_time, now)

    def _serve(self, slot: TimerSlot, time: int) -> Iterator[Happened]:
        cancelled: set[str] = set()
        units: list[TimerLogUnit] = []
        for unit in self.log.iter_chain(slot.last_pos):
            if unit.magic & (MAGIC_DELETE | MAGIC_ROLL) == MAGIC_DELETE:
                record = self._store.reader.message_at(unit.offset_py)
                if record is not None:
                    cancelled.add(record.properties.get(TIMER_DEL_UNIQKEY, ""))
            else:
                units.append(unit)
        due: list[DueTimer] = []
        for unit in reversed(units):
            record = self._store.reader.message_at(unit.offset_py)
            if record is None or record.topic != TIMER_TOPIC:
                yield Happened(Service.TIMER, "skipped", None, None, {"dueTimestamp": time, "reason": "unreadable"})
            elif self._is_cancelled(record, cancelled):
                yield Happened(Service.TIMER, "cancelled", record, None, {"dueTimestamp": time})
            else:
                due.append(DueTimer(record, unit.write_time, bool(unit.magic & MAGIC_ROLL)))
        yield from self._put(due, time)

    def _is_cancelled(self, record: Message, cancelled: set[str]) -> bool:
        key = record.uniq_key
        if not key or not cancelled:
            return False
        # 5.4 uses the key alone, but accepts the key with its topic too.
        return f"{record.properties.get(REAL_TOPIC)}+{key}" in cancelled or (
            self._config.version is Version.V5_4 and key in cancelled
        )

    def _put(self, due: Sequence[DueTimer], time: int) -> Iterator[Happened]:
        """Put messages into their own topics, or into the timer topic again."""
        ready = [(one, message) for one in due if (message := self._made(one)) is not None]
        for one in due:
            if TIMER_DEL_UNIQKEY in one.record.properties and not one.rolls:
                yield Happened(Service.TIMER, "cancel", one.record, None, {"dueTimestamp": time, "reason": "too late"})
        tickets = self._store.put_many([message for _, message in ready])
        for (one, _), ticket in zip(ready, tickets, strict=True):
            about: dict[str, object] = {"dueTimestamp": time}
            if ticket.is_ok:
                yield Happened(Service.TIMER, "rolled" if one.rolls else "delivered", one.record, ticket, about)
            elif ticket.status is not None and ticket.status.is_about_message:
                about["status"] = ticket.status.value
                yield Happened(Service.TIMER, "dropped", one.record, None, about)
            else:
                # upstream: dropped after three tries.
                about["status"] = (ticket.status or PutStatus.UNKNOWN_ERROR).value
                yield Happened(Service.TIMER, "stuck", one.record, None, about)
                return

    def _made(self, one: DueTimer) -> NewMessage | None:
        """Return the message to put, or None for one that only cancels another."""
        properties = stored_properties(one.record)
        properties[TIMER_ENQUEUE_MS] = str(one.enqueued)
        properties[TIMER_DEQUEUE_MS] = str(self._store.setup.clock.now())
        if one.rolls:
            times = find_number(properties.get(TIMER_ROLL_TIMES)) or 0
            properties[TIMER_ROLL_TIMES] = str(times + 1)
            return stored_again(one.record, TIMER_TOPIC, one.record.queue_id, properties)
        queue_id = find_number(properties.get(REAL_QID))
        if TIMER_DEL_UNIQKEY in properties or queue_id is None:
            return None
        return stored_again(one.record, properties.get(REAL_TOPIC, ""), queue_id, properties)

    def waiting(self) -> int:
        """Return the number of waiting messages, in the wheel and not yet in it."""
        if not self.is_enabled:
            return 0
        end = self.read_time + WHEEL_SLOTS * self._precision
        in_wheel = sum(max(slot.num, 0) for slot in self.wheel.iter_slots(self.read_time, end))
        return in_wheel + max(self._store.reader.bounds(TIMER_TOPIC, 0).max_offset - self.queue_offset, 0)

    def next_due(self) -> int | None:
        """Return when the next used slot is served; None if all are empty."""
        if not self.is_enabled:
            return None
        end = self.read_time + WHEEL_SLOTS * self._precision
        first = next((slot for slot in self.wheel.iter_slots(self.read_time, end) if slot.num > 0), None)
        return None if first is None else (first.time + 1) * self._precision

    def reached(self) -> TimerCheckpoint:
        """Return the progress as a checkpoint has it."""
        return self._saved._replace(
            last_read_time_ms=self.read_time,
            last_timer_log_flush_pos=self.log.end,
            last_timer_queue_offset=self.queue_offset,
            master_timer_queue_offset=self.queue_offset,
        )

    def save(self) -> None:
        """Force log and wheel, then save their progress. Delivered messages must be durable before."""
        reached = self.reached()
        is_used = bool(self.log.end or self.queue_offset)
        if not self.is_enabled or not is_used or reached == self._saved:
            return
        self._files.flush()
        self.wheel.flush()
        now = self._store.setup.clock.now()
        reached = reached._replace(timestamp=now, counter=self._saved.counter + 1)
        if not self._files.exists(_CHECK_PATH):
            self._files.create(_CHECK_PATH, PAGE_SIZE)
        self._files.write(_CHECK_PATH, encode_timer_checkpoint(reached), 0)
        self._files.flush()
        self._saved = reached

    def iter_clean(self) -> Iterator[Happened]:
        """Remove files of the timer log whose messages are not in the commit log any more.

        Yield one event with their number.

        upstream removes up to the last file. Here the checkpoint must have passed a file, so that no recovery begins in
        it.
        """
        if not self.is_enabled:
            return
        lost_before, removed = self._store.condition().min_offset, 0
        for start in self._log_starts():
            whole = start + self._config.mapped_file_size_timer_log <= self._saved.last_timer_log_flush_pos
            if not whole or not self.log.remove_file(start, lost_before):
                break
            removed += 1
        if removed:
            yield Happened(Service.TIMER, "expired", about={"segments": removed})

    def close(self) -> None:
        """Close the files without forcing them."""
        self._files.close()


def _deliver_time(record: Message) -> int | None:
    return parse_long(record.properties.get(TIMER_OUT_MS, ""))
