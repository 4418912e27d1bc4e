"""Arbitrary timers of 5.x: from the timer topic into the wheel, and from the wheel to where they belong.

Upstream: ``TimerMessageStore``. A slot is served once the clock has passed it. What is further away than the window
rolls: it is put into the timer topic again. A message that cancels another one falls into the same slot. The read time
moves on when a whole slot is done, and is saved after what was delivered: at least once, whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqtool.broker.happened import Happened, Service
from rmqtool.broker.stored_again import find_number, stored_again, stored_properties
from rmqtool.broker.timer_log import TimerLog, TimerWheel
from rmqtool.config import Version
from rmqtool.engine.consume_queues import ConsumeQueue
from rmqtool.engine.derived_files import DerivedFiles
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.store import MessageStore
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_timer_checkpoint, encode_timer_checkpoint
from rmqtool.formats.commit_log import Message
from rmqtool.formats.java import LONG_MAX, parse_long, string_hash
from rmqtool.formats.layouts import TimerCheckpoint, TimerLogUnit, TimerSlot
from rmqtool.formats.paths import CONFIG, TIMER_CHECK, TIMER_LOG, parse_segment_name
from rmqtool.formats.timer import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, UNIT_SIZE, WHEEL_SLOTS
from rmqtool.formats.topics import TIMER_TOPIC

_CHECK_PATH = f"{CONFIG}/{TIMER_CHECK}"
# So many messages of the timer topic are looked at before anything else happens.
_AT_ONCE = 4096
# What nobody ever put into the wheel, since it was due already, says so.
_NEVER_ENQUEUED = LONG_MAX


class DueTimer(NamedTuple):
    """A message whose time has come: its record, when it was enqueued, and whether it rolls."""

    record: Message
    enqueued: int
    rolls: bool


class Timers:
    """Wheel, log and progress of one store. Without a wheel, or with timers in RocksDB, nothing ever happens."""

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
        """Go on where the checkpoint says, with what the log has behind it.

        upstream: begins a whole file before the checkpoint; here the wheel is forced before the checkpoint is written.
        """
        has_check = self._files.exists(_CHECK_PATH)
        if has_check:
            self._saved = decode_timer_checkpoint(self._files.read(_CHECK_PATH, PAGE_SIZE, 0))
        starts = self._log_starts()
        whole = has_check and self.wheel.exists and not self._config.timer_wheel_snapshot_flush
        self.log.end = self._saved.last_timer_log_flush_pos if whole else (starts[0] if starts else 0)
        last = None
        for position, unit in self.log.iter_on():
            self.wheel.add(unit, position)
            last = unit
        low, high = self._store.reader.bounds(TIMER_TOPIC, 0)
        offset = self._saved.last_timer_queue_offset
        record = None if last is None else self._store.reader.message_at(last.offset_py)
        if record is not None and record.topic == TIMER_TOPIC:
            offset = max(offset, record.queue_offset + 1)
        self.queue_offset = min(max(offset, low), high)
        self.read_time = self._within_lap(self._saved.last_read_time_ms) if has_check or starts else self._rounded_now()

    def _log_starts(self) -> list[int]:
        files = self._store.setup.files
        names = [entry.name for entry in files.listdir(TIMER_LOG)] if files.exists(TIMER_LOG) else []
        return sorted(start for name in names if (start := parse_segment_name(name)) is not None)

    def _rounded_now(self) -> int:
        now = self._store.setup.clock.now()
        return now - now % self._precision

    def _within_lap(self, time: int) -> int:
        """Return ``time``, or what lies a lap back without what is still to come: nobody can tell older slots apart."""
        return max(time, self._rounded_now() - (WHEEL_SLOTS - self._config.timer_roll_window_slot) * self._precision)

    def iter_due(self) -> Iterator[Happened]:
        """Deliver what is due, take in what is new, and deliver what of that is due."""
        if not self.is_enabled:
            return
        yield from self.iter_dequeue()
        yield from self.iter_enqueue()
        yield from self.iter_dequeue()

    def iter_enqueue(self, most: int | None = None) -> Iterator[Happened]:
        """Take messages of the timer topic into the wheel, ``most`` of them; what is due already is delivered."""
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
        """Note a message in log and wheel; one that is further away than the window rolls on the way."""
        write_time = self._rounded_now()
        delay, magic = deliver - write_time, MAGIC_DEFAULT
        window = self._config.timer_roll_window_slot * self._precision
        if delay >= window:
            magic |= MAGIC_ROLL
            delay = window // 2 if delay - window < window // 3 else window
        if "TIMER_DEL_UNIQKEY" in record.properties:
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
            string_hash(record.properties.get("REAL_TOPIC", "")),
            0,
        )
        self.wheel.add(unit, self.log.append(unit))

    def iter_dequeue(self) -> Iterator[Happened]:
        """Serve the slots that the clock has passed."""
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
                    cancelled.add(record.properties.get("TIMER_DEL_UNIQKEY", ""))
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
        # 5.4 takes the key alone; one with its topic before it is honoured all the same.
        return f"{record.properties.get('REAL_TOPIC')}+{key}" in cancelled or (
            self._config.version is Version.V5_4 and key in cancelled
        )

    def _put(self, due: Sequence[DueTimer], time: int) -> Iterator[Happened]:
        """Put messages where they belong, or into the timer topic again."""
        ready = [(one, message) for one in due if (message := self._made(one)) is not None]
        for one in due:
            if "TIMER_DEL_UNIQKEY" in one.record.properties and not one.rolls:
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
        """Return what is put of a message whose time has come; None of one that only cancels."""
        properties = stored_properties(one.record)
        properties["TIMER_ENQUEUE_MS"] = str(one.enqueued)
        properties["TIMER_DEQUEUE_MS"] = str(self._store.setup.clock.now())
        if one.rolls:
            times = find_number(properties.get("TIMER_ROLL_TIMES")) or 0
            properties["TIMER_ROLL_TIMES"] = str(times + 1)
            return stored_again(one.record, TIMER_TOPIC, one.record.queue_id, properties)
        queue_id = find_number(properties.get("REAL_QID"))
        if "TIMER_DEL_UNIQKEY" in properties or queue_id is None:
            return None
        return stored_again(one.record, properties.get("REAL_TOPIC", ""), queue_id, properties)

    def waiting(self) -> int:
        """Return how many messages wait, in the wheel and before it."""
        if not self.is_enabled:
            return 0
        end = self.read_time + WHEEL_SLOTS * self._precision
        in_wheel = sum(max(slot.num, 0) for slot in self.wheel.iter_slots(self.read_time, end))
        return in_wheel + max(self._store.reader.bounds(TIMER_TOPIC, 0).max_offset - self.queue_offset, 0)

    def next_due(self) -> int | None:
        """Return when the next slot in use is served, None when there is none."""
        if not self.is_enabled:
            return None
        end = self.read_time + WHEEL_SLOTS * self._precision
        first = next((slot for slot in self.wheel.iter_slots(self.read_time, end) if slot.num > 0), None)
        return None if first is None else (first.time + 1) * self._precision

    def save(self) -> None:
        """Force log and wheel, then write down how far they are; what was delivered must be durable before."""
        reached = self._saved._replace(
            last_read_time_ms=self.read_time,
            last_timer_log_flush_pos=self.log.end,
            last_timer_queue_offset=self.queue_offset,
            master_timer_queue_offset=self.queue_offset,
        )
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
        """Remove the files of the timer log whose messages the log has lost, and tell how many.

        upstream: up to the last file; here only what the checkpoint has passed, so that recovery never begins in one.
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
        """Close the files; nothing is forced."""
        self._files.close()


def _deliver_time(record: Message) -> int | None:
    return parse_long(record.properties.get("TIMER_OUT_MS", ""))
