"""Delay levels: messages that wait in a queue of their level until they are due.

The levels are parsed in ``formats.dispatch``. All messages of a level wait equally long. So their queue is in the order
of delivery, and one offset for each level is the progress. It is saved after the delivered messages: a message can be
delivered twice, but not lost. upstream: ScheduleMessageService.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from rmqtool.broker.services.events import Happened, Service
from rmqtool.broker.services.retry import find_number, stored_again, stored_properties, text_of
from rmqtool.config import Version
from rmqtool.engine.consume_queue import ConsumeQueue
from rmqtool.engine.message import NewMessage
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config, new_bean
from rmqtool.formats.config_shapes import DATA_VERSION
from rmqtool.formats.consume_queue import is_ext_address
from rmqtool.formats.dispatch import tags_code
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import DELAY_OFFSET
from rmqtool.formats.property_names import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    WAIT,
)
from rmqtool.formats.topics import HALF_TOPIC, SCHEDULE_TOPIC, parse_delay_levels
from rmqtool.store.config_files import ConfigText

# Messages delivered with one put: at first enough to make columns worth their import, then fewer, to keep the number of
# objects that Python's garbage collector visits small.
AT_ONCE, _THEN_AT_ONCE = 4096, 512
# Properties that a delivered message does not need: the delay, and waiting for the disk.
_DROPPED = (DELAY, WAIT)
_DROPPED_BY_5 = (*_DROPPED, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)


class _Due(NamedTuple):
    """A message that is due, as it will be put, and the offset after it; or the reason why it is not delivered."""

    record: Message | None
    message: NewMessage | None
    next_offset: int
    due: int
    reason: str = ""


class DelayService:
    """The levels of one store. ``offsets`` has the next offset of each level."""

    def __init__(self, store: MessageStore, text: ConfigText) -> None:
        config = store.setup.config
        self.delays = parse_delay_levels(config.message_delay_level)
        self._store = store
        self._text = text
        self._version = config.version
        self._dropped = _DROPPED if config.version is Version.V4_9 else _DROPPED_BY_5
        self._version_step = config.delay_offset_update_version_step
        self._updates = 0
        self._changed = False
        found: dict[str, Any] = text.load(_decode) or {}
        fresh = new_bean(DATA_VERSION, self._version.value, timestamp=store.setup.clock.now())
        known = {name: value for name, value in (found.get("dataVersion") or {}).items() if name in fresh}
        self._data_version = fresh | known
        self.offsets: dict[int, int] = {}
        for level, offset in (found.get("offsetTable") or {}).items():
            low, high = store.reader.bounds(SCHEDULE_TOPIC, level - 1)
            self.offsets[level] = min(max(offset, low), high)

    def iter_due(self, at_once: int = AT_ONCE) -> Iterator[Happened]:
        """Deliver due messages, level by level, with one put for ``at_once`` messages; yield one event for each."""
        for level in range(1, len(self.delays) + 1):
            yield from self.iter_level(level, at_once)

    def iter_level(self, level: int, at_once: int = AT_ONCE) -> Iterator[Happened]:
        """Deliver the due messages of one level, until nothing is left or a message cannot be put."""
        most = at_once
        while found := self._find_due(level, most):
            most, done = min(at_once, _THEN_AT_ONCE), 0
            # Messages that are not delivered separate the others into runs.
            while done < len(found):
                if found[done].message is None:
                    yield from self._skip(level, found[done])
                    done += 1
                    continue
                run = found[done : _end_of_run(found, done)]
                if not (yield from self._deliver(level, run)):
                    return
                done += len(run)
            if found[-1].reason == "stuck":
                return

    def next_due(self) -> int | None:
        """Return when the next message is due; None if none waits."""
        firsts = [self._unit_due(level) for level in range(1, len(self.delays) + 1)]
        return min((due for due in firsts if due is not None), default=None)

    @property
    def data_version(self) -> dict[str, Any]:
        """Which state of the offsets this is."""
        return dict(self._data_version)

    def waiting(self) -> int:
        """Return the number of waiting messages."""
        found = 0
        for level in range(1, len(self.delays) + 1):
            low, high = self._store.reader.bounds(SCHEDULE_TOPIC, level - 1)
            found += high - min(max(self.offsets.get(level, 0), low), high)
        return found

    def _unit_due(self, level: int) -> int | None:
        units = self._units(level, 1)
        return self._due_time(level, units[0], None) if units else None

    def _units(self, level: int, most: int) -> list[ConsumeQueueUnit]:
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        if not isinstance(queue, ConsumeQueue):
            return []
        low, high = self._store.reader.bounds(SCHEDULE_TOPIC, level - 1)
        offset = self.offsets.get(level, 0)
        if not low <= offset <= high:
            self._set(level, min(max(offset, low), high))
        return queue.read_units(self.offsets.get(level, 0), most)

    def _due_time(self, level: int, unit: ConsumeQueueUnit, now: int | None) -> int:
        """Return when a message is due; not later than one delay from ``now``, because clocks and levels change."""
        due = unit.tags_code
        if is_ext_address(due):
            record = self._store.reader.message_at(unit.physical_offset)
            due = 0 if record is None else tags_code(record, self.delays)
        return now if now is not None and due > now + self.delays[level - 1] else due

    def _find_due(self, level: int, most: int) -> list[_Due]:
        """Return the messages of a level that are due now, in order."""
        now = self._store.setup.clock.now()
        units = self._units(level, most)
        times = list(takewhile(lambda due: due <= now, (self._due_time(level, unit, now) for unit in units)))
        if units and not times and self._version is not Version.V4_9 and level not in self.offsets:
            # upstream: 5.x saves the offset of a level that it looks at, even if nothing is due.
            self._set(level, 0)
        offset = self.offsets.get(level, 0)
        records = self._store.reader.messages_of(units[: len(times)])
        found: list[_Due] = []
        for next_offset, (record, due) in enumerate(zip(records, times, strict=True), offset + 1):
            found.append(self._prepare(record, next_offset, due))
            if found[-1].reason == "stuck":
                break
        return found

    def _prepare(self, record: Message | None, next_offset: int, due: int) -> _Due:
        """Return how a message is delivered: to its own topic, with the text that still asks for the delay."""
        if record is None:
            return _Due(None, None, next_offset, due, "unreadable")
        stored = stored_properties(record)
        topic, queue_id = stored.get(REAL_TOPIC), find_number(stored.get(REAL_QID))
        if topic == HALF_TOPIC:
            return _Due(record, None, next_offset, due, "half message")
        if topic is None or queue_id is None:
            # upstream: an exception; 4.9 then tries this message again and again, 5.x continues with the next one.
            return _Due(record, None, next_offset, due, "stuck" if self._version is Version.V4_9 else "no place")
        text = text_of(stored, self._version)
        for name in self._dropped:
            stored.pop(name, None)
        message = stored_again(record, topic, queue_id, stored)
        message.property_text = text
        return _Due(record, message, next_offset, due)

    def _deliver(self, level: int, run: Sequence[_Due]) -> Generator[Happened, None, bool]:
        """Put messages, with one event for each; return whether all could be put."""
        tickets = self._store.put_many([one.message for one in run if one.message is not None])
        for one, ticket in zip(run, tickets, strict=True):
            about = {"level": level, "dueTimestamp": one.due}
            if not ticket.is_ok:
                yield Happened(Service.DELAY, "stuck", one.record, None, {**about, "status": str(ticket.status)})
                return False
            self._set(level, one.next_offset)
            yield Happened(Service.DELAY, "delivered", one.record, ticket, about)
        return True

    def _skip(self, level: int, one: _Due) -> Iterator[Happened]:
        about = {"level": level, "dueTimestamp": one.due, "reason": one.reason}
        if one.reason == "stuck":
            yield Happened(Service.DELAY, "stuck", one.record, None, about | {"reason": "no place"})
            return
        self._set(level, one.next_offset)
        yield Happened(Service.DELAY, "skipped", one.record, None, about)

    def _set(self, level: int, offset: int) -> None:
        self.offsets[level] = offset
        self._changed = True
        self._updates += 1
        if self._version is not Version.V4_9 and self._updates % self._version_step == 0:
            self._data_version["counter"] += 1
            self._data_version["timestamp"] = self._store.setup.clock.now()

    def encode(self) -> bytes:
        """Return the file as a broker of the version writes it."""
        value = {"dataVersion": self._data_version, "offsetTable": dict(sorted(self.offsets.items()))}
        if self._version is Version.V4_9:
            del value["dataVersion"]
        return encode_config(DELAY_OFFSET, value, dialect_of(self._version.value))

    def save(self) -> bool:
        """Write the file if anything changed since; what was delivered must be durable before."""
        unsaved = self.unsaved()
        if unsaved is not None:
            unsaved()
        return unsaved is not None

    def unsaved(self) -> Callable[[], None] | None:
        """Return what writes the file as it is to be now; None where nothing changed since."""
        changed, self._changed = self._changed, False
        return partial(self._text.write, self.encode()) if changed else None


def _end_of_run(found: Sequence[_Due], start: int) -> int:
    return next((index for index in range(start, len(found)) if found[index].message is None), len(found))


def _decode(data: bytes) -> dict[str, Any] | Flaw:
    decoded = decode_config(DELAY_OFFSET, data)
    return decoded if isinstance(decoded, Flaw) else decoded.value
