"""The lives of real stores, lived again: what clients did is done again, and the rest must follow by itself.

Every record of a real broker's log is brought about by the part of ours that is there for it: a send back for what was
sent back, the next delivery of a level for what was delivered, the next step of the check for what was checked. Each
must come to the old place, so that the two logs are the same, record for record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmqtool.broker.services.events import Happened
from rmqtool.broker.services.pop import Pop
from rmqtool.broker.services.tick import Services
from rmqtool.broker.services.timers import DueTimer, Timers
from rmqtool.broker.services.transactions import EndStatus
from rmqtool.config import Origin, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats import topics
from rmqtool.formats.codes import SysFlag, TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopReceipt, PopTag, decode_offset_msg_id
from rmqtool.formats.layouts import TimerLogUnit
from rmqtool.formats.system_bodies import decode_op_body, decode_pop_body
from rmqtool.formats.timer import decode_timer_unit
from rmqtool.store.open import open_store
from tests.support.manual_clock import ManualClock
from tests.support.replay import Step, config_of, iter_places, iter_steps

# What the broker was started with, where its store does not say.
_STARTED_WITH: dict[str, dict[str, object]] = {"49-broker": {"transactionTimeOut": 1000, "transactionCheckMax": 3}}

# When a broker passed by is its own affair.
_TIMES = frozenset({"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"})


class _Timers(Timers):
    """Puts the messages of one slot one at a time, in the order in which a real broker's threads happened to do it."""

    def __init__(self, store: MessageStore, records: Sequence[Message]) -> None:
        super().__init__(store)
        self.reordered: list[int] = []
        self._order = {
            (record.uniq_key, record.topic == topics.TIMER_TOPIC): number
            for number, record in enumerate(records)
            if "TIMER_DEQUEUE_MS" in record.properties
        }

    def _put(self, due: Sequence[DueTimer], time: int) -> Iterator[Happened]:
        ordered = sorted(due, key=lambda one: self._order.get((one.record.uniq_key, one.rolls), len(self._order)))
        if ordered != list(due):
            self.reordered.append(time)
        for one in ordered:
            yield from super()._put([one], time)


class Life:
    """One store, lived again in ``target``. ``differing`` names the records that came out otherwise."""

    def __init__(self, name: str, real: Path, target: Path) -> None:
        self.config = config_of(name, target).with_values(_STARTED_WITH.get(name, {}), Origin.STORE)
        target.mkdir()
        self.files = PosixWritableFileSystem(str(target))
        self.real = open_store(str(real), version=self.config.version)
        self._records = [place for place in iter_places(self.real) if isinstance(place, Message)]
        self.clock = ManualClock(self._records[0].store_timestamp)
        self.store = MessageStore.create(Setup(self.files, self.config, self.clock))
        self.services = Services(self.store)
        self.timers = self.services.timers = _Timers(self.store, self._records)
        self.kinds: Counter[str] = Counter()
        self.differing: list[tuple[str, Message, Message | None]] = []
        self._check: Iterator[Happened] | None = None
        self._timers: Iterator[Happened] | None = None
        self._revivals: dict[int, Iterator[Happened]] = {}
        self._revive_queues: dict[tuple[str, str | None], int] = {}
        self._receipts: dict[tuple[str, str, int, int], PopReceipt] = {}
        self._acked_by_change: tuple[str, str, int, int] | None = None
        self._units = list(iter_timer_units(real))

    def live(self) -> None:
        """Live it to its end."""
        of_offset = {record.physical_offset: record for record in self._records}
        for step in iter_steps(self.real, self.config):
            real = of_offset[step.physical_offset]
            self._set_clock(real.store_timestamp)
            self.store.dispatch_now()
            self._take_in()
            kind, ticket = self._bring_about(real, step)
            self.kinds[kind] += 1
            self.store.dispatch_now()
            ours = self.store.reader.message_at(step.physical_offset)
            assert ticket is not None, f"{kind}: nothing came of {real.topic} at {real.physical_offset}"
            assert ticket.physical_offset == real.physical_offset, f"{kind}: came to {ticket.physical_offset}, {real}"
            if ours is None or shown(ours) != shown(real):
                self.differing.append((kind, real, ours))
        self.store.dispatch_now()
        self._set_clock(self.clock.wall + 2000)
        self._take_in()
        # What was begun goes on to its end, and nothing more comes of it.
        assert list(self._check or ()) == []
        assert list(self._timers or ()) == []
        assert [told for revival in self._revivals.values() for told in revival] == []
        self.services.save()

    def close(self) -> None:
        self.store.close()
        self.real.close()
        self.files.close()

    def _set_clock(self, now: int) -> None:
        self.clock.advance(now - self.clock.wall)

    def _bring_about(self, real: Message, step: Step) -> tuple[str, PutTicket | None]:
        properties, topic = real.properties, real.topic
        if topic in (topics.HALF_TOPIC, topics.CHECK_MAX_TIME_TOPIC) and "TRANSACTION_CHECK_TIMES" in properties:
            return "checked", self._next_check()
        if topic == topics.HALF_TOPIC:
            return "half", self._prepare(step.message)
        if topic == topics.OP_HALF_TOPIC:
            return "op", self._decide(real)
        if transaction_type(real.sys_flag) == TransactionType.COMMIT and real.prepared_transaction_offset:
            half = self._ours(real.prepared_transaction_offset)
            return "committed", self.services.transactions.commit(half)
        if topic.startswith(topics.DLQ_PREFIX) and "MAX_RECONSUME_TIMES" in properties:
            return "given up", self._give_up(real)
        if "RETRY_TOPIC" in properties and (topic == topics.SCHEDULE_TOPIC or topic.startswith(topics.DLQ_PREFIX)):
            return "sent back", self._send_back(real)
        if topic == topics.TIMER_TOPIC and properties["REAL_TOPIC"].startswith(topics.REVIVE_PREFIX):
            return self._pop_or_ack(real)
        if topic.startswith(topics.RETRY_PREFIX) and "1ST_POP_TIME" in properties:
            return "revived", self._next_revived(real)
        if "TIMER_DEQUEUE_MS" in properties:
            return ("rolled" if topic == topics.TIMER_TOPIC else "timer"), self._next_timer()
        if properties.get("REAL_TOPIC") == topic and int(properties.get("DELAY", 0)) > 0:
            return "delivered", self._deliver(int(properties["DELAY"]))
        put = self.store.put_batch if step.is_batch else self.store.put
        return "sent", put(step.message)

    def _ours(self, physical_offset: int) -> Message:
        found = self.store.reader.message_at(physical_offset)
        assert found is not None
        return found

    def _deliver(self, level: int) -> PutTicket | None:
        """Let the next message of a level be delivered; it must be due."""
        told = next(self.services.delay.iter_level(level, at_once=1), None)
        return None if told is None else told.ticket

    def _next_timer(self) -> PutTicket | None:
        """Let the wheel do its next step; where it passes by what is cancelled, it goes on."""
        for _ in range(2):
            if self._timers is None:
                self._timers = self.services.timers.iter_dequeue()
            for told in self._timers:
                if told.ticket is not None:
                    return told.ticket
                self.kinds[told.event] += 1
            self._timers = None
        return None

    def _take_in(self) -> None:
        """Take timers into the wheel when the broker did: its log says at which second."""
        now = self.clock.wall
        while self._units and self._units[0].write_time <= now:
            (physical_offset, write_time) = self._units[0].offset_py, self._units[0].write_time
            if physical_offset >= self.store.condition().wrote_offset:
                return
            self.clock.wall = write_time + 999
            self.store.dispatch_now()
            assert list(self.services.timers.iter_enqueue(1)) == []
            self.clock.wall = now
            del self._units[0]

    def _pop_or_ack(self, real: Message) -> tuple[str, PutTicket | None]:
        """Pop, ack or ask for more time, as the record says that a client did."""
        tag = PopTag(real.tags or "")
        decoded = decode_pop_body(tag, real.raw_body)
        assert not isinstance(decoded, Flaw)
        body, pops = decoded.value, self.services.pops
        queue = body["c"], body["t"], body["q"]
        self._set_clock(body["pt"])
        if tag is PopTag.ACK:
            receipt = self._receipts.pop((*queue, body["ao"]))
            if self._acked_by_change == (*queue, body["ao"]):
                self._acked_by_change = None
                return "acked by a change", self._stored_at_end()
            return "acked", pops.ack(queue[0], queue[1], receipt)
        held = self._receipts.get((*queue, body["so"]))
        if held is not None:
            changed = pops.change_invisible(queue[0], queue[1], held, body["it"])
            assert changed is not None
            self._acked_by_change = (*queue, body["so"])
            found = self.store.condition().wrote_offset
            return "changed", self._stored_at(real.physical_offset if found > real.physical_offset else -1)
        place = body["t"], body["q"], int(real.properties["REAL_QID"])
        pop = Pop(body["c"], place[2], self.store.setup.clock.now(), body["it"])
        for popped in pops.popped(pop, pops.take_queue(pop, place[0], place[1], body["n"])):
            self._receipts[*queue, popped.record.queue_offset] = popped.receipt
            back = topics.pop_retry_topic(body["c"], body["t"])
            self._revive_queues[back, popped.record.uniq_key] = place[2]
        return "popped", self._stored_at(real.physical_offset)

    def _stored_at(self, physical_offset: int) -> PutTicket:
        ticket = PutTicket(("", 0), (), 1, (b"", 0))
        ticket.physical_offset = physical_offset
        return ticket

    def _stored_at_end(self) -> PutTicket:
        last = list(
            self.store.reader.get(
                topics.TIMER_TOPIC, 0, self.store.reader.bounds(topics.TIMER_TOPIC, 0)[1] - 1, 1
            ).messages
        )
        return self._stored_at(last[0].physical_offset)

    def _next_revived(self, real: Message) -> PutTicket | None:
        """Let the next message of a revive queue come back; it must be due. Each queue has a thread of its own."""
        queue_id = self._revive_queues[real.topic, real.uniq_key]
        for _ in range(2):
            told = next(self._revivals.setdefault(queue_id, self.services.revival.iter_queue(queue_id)), None)
            if told is not None:
                return told.ticket
            del self._revivals[queue_id]
        return None

    def _prepare(self, sent: NewMessage) -> PutTicket:
        properties = dict(sent.property_map())
        topic, queue_id = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID"))
        properties.pop("__transactionId__", None)
        sent.topic, sent.queue_id, sent.properties, sent.property_text = topic, queue_id, properties, None
        sent.sys_flag |= TransactionType.PREPARED
        ticket = self.services.transactions.prepare(sent)
        assert not isinstance(ticket, EndStatus)
        return ticket

    def _decide(self, op: Message) -> PutTicket | None:
        named = decode_op_body(op.raw_body)
        assert not isinstance(named, Flaw)
        before = len(self._log_of(topics.OP_HALF_TOPIC))
        # What is decided now is written an interval later.
        self.clock.advance(-self.config.transaction_op_batch_interval)
        for offset in named:
            (got,) = self.store.reader.get(topics.HALF_TOPIC, op.queue_id, offset, 1).messages
            self.services.transactions.decide(self._ours(got.physical_offset))
        self.store.dispatch_now()
        self.clock.advance(self.config.transaction_op_batch_interval)
        if self.config.version is Version.V4_9:
            (got,) = self.store.reader.get(topics.OP_HALF_TOPIC, op.queue_id, before, 1).messages
            ticket = PutTicket((op.topic, op.queue_id), (), 1, (b"", 0))
            ticket.physical_offset = got.physical_offset
            return ticket
        assert before == len(self._log_of(topics.OP_HALF_TOPIC)), "an op record was not gathered"
        (told,) = self.services.transactions.write_ops()
        return told.ticket

    def _log_of(self, topic: str) -> range:
        return range(*self.store.reader.bounds(topic, 0))

    def _next_check(self) -> PutTicket | None:
        """Let the check do its next step; when a run is over the next one begins."""
        for _ in range(2):
            if self._check is None:
                self._check = self.services.check.iter_check()
            told = next(self._check, None)
            if told is not None:
                return told.ticket
            self._check = None
        return None

    def _send_back(self, real: Message) -> PutTicket | None:
        """Send back what the record came of: its own last delivery."""
        group = real.topic.removeprefix(topics.DLQ_PREFIX)
        most = real.reconsume_times - 1
        if real.topic == topics.SCHEDULE_TOPIC:
            group, most = real.properties["REAL_TOPIC"].removeprefix(topics.RETRY_PREFIX), real.reconsume_times
        level = int(real.properties["DELAY"])
        wanted = 0 if level == real.reconsume_times + 2 else level
        return self.services.retry.send_back(group, self._ours(self._origin(real)), wanted, most)

    def _origin(self, real: Message) -> int:
        if real.reconsume_times == 1:
            found = decode_offset_msg_id(real.properties["ORIGIN_MESSAGE_ID"])
            assert found is not None
            return found.physical_offset
        return max(
            record.physical_offset
            for record in self._records
            if record.uniq_key == real.uniq_key
            and record.topic.startswith(topics.RETRY_PREFIX)
            and record.physical_offset < real.physical_offset
        )

    def _give_up(self, real: Message) -> PutTicket | None:
        group, most = real.topic.removeprefix(topics.DLQ_PREFIX), int(real.properties["MAX_RECONSUME_TIMES"])
        first = next(record for record in self._records if record.uniq_key == real.uniq_key)
        pulled = int(real.properties["MIN_OFFSET"]), int(real.properties["MAX_OFFSET"])
        return self.services.retry.give_up(group, self._ours(first.physical_offset), real.reconsume_times, most, pulled)


def iter_timer_units(root: Path) -> Iterator[TimerLogUnit]:
    """Yield the units of a timer log."""
    for path in sorted((root / "timerlog").glob("*")):
        data, at = path.read_bytes(), 0
        while isinstance(unit := decode_timer_unit(data, at), TimerLogUnit):
            yield unit
            at += unit.size


def shown(record: Message) -> dict[str, object]:
    """Return what must be the same about two records: all but hosts and times."""
    host_bits = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    properties = {name: "" if name in _TIMES else value for name, value in record.properties.items()}
    return {
        "topic": record.topic,
        "queue": (record.queue_id, record.queue_offset),
        "flag": record.flag,
        "sys_flag": record.sys_flag & ~host_bits,
        "reconsume_times": record.reconsume_times,
        "prepared": record.prepared_transaction_offset,
        "body": record.raw_body,
        "properties": list(properties.items()),
        "size": record.total_size,
    }
