"""``consume`` with ``pop``: messages come back unless they are acked in time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rmqtool.api.wanted import Json, wanted_of
from rmqtool.errors import Exit, Interrupted, NotFound, Refused, UsageError
from rmqtool.times import parse_span

if TYPE_CHECKING:
    from rmqtool.api.consume import Consuming, Event, How, Topics
    from rmqtool.api.store import Store
    from rmqtool.broker.consumer.programs import Programs
    from rmqtool.broker.consumer.windows import Delivered
    from rmqtool.broker.services.pop import Popped
    from rmqtool.broker.services.tick import Services
    from rmqtool.engine.get import MessageFilter
    from rmqtool.engine.interrupts import Stop
    from rmqtool.filters.wanted import Wanted

# Seconds between two looks at a store that is followed, and how many messages one pop takes.
_PAUSE, _AT_ONCE = 0.2, 32
# The most empty looks in a row while messages are left: other clients may have those.
_MOST_IDLE = 10
_STDERR = 2
_INVISIBLE = "60s"


class Popping(Protocol):
    """A place to pop from, which takes the results."""

    def iter_once(self, most: int) -> Iterator[tuple[str, list[Popped]]]:
        """Yield up to ``most`` messages that are there now, by topic."""

    def left(self) -> int:
        """Return how many messages the last look left, wanted or not."""

    def settle(self, topic: str, one: Popped, *, is_ok: bool) -> str | None:
        """Take the result of a message; return why it could not be taken, in words."""

    def save(self) -> None:
        """Make it durable."""


@contextmanager
def popping(store: Store, group: str, how: How, which: Topics, stop: Stop) -> Iterator[Consuming]:
    """Open the store under its lock, and pop messages for a group; consumed messages are acked."""
    from rmqtool.broker.groups import register_group
    from rmqtool.broker.services.tick import serving

    refuse_others(how)
    invisible = hidden_for(how)
    wanted = wanted_of(which)
    with store.use() as listed:
        root, config = listed.root, listed.config
    with serving(root, config) as services:
        queues = _queues(services, wanted)
        setup = services.store.setup
        register_group(setup.config.root_dir, setup.config, group)
        yield run_pops(_InFiles(services, group, queues, wanted, invisible), group, how, stop)


def run_pops(pops: Popping, group: str, how: How, stop: Stop) -> Consuming:
    """Return a group that consumes what it pops."""
    from rmqtool.api.consume import Consuming

    found = Consuming(iter(()))
    found.events = _Run(found, pops, group, how, stop, parse_span(how.get("timeout", "15m"))).iter_events()
    return found


def hidden_for(how: How) -> int:
    """Return for how long (ms) a popped message is hidden."""
    return parse_span(how.get("invisible") or _INVISIBLE)


def refuse_others(how: How) -> None:
    """Raise UsageError for options that have no meaning where queues are not shared out."""
    others = {"--members": how.get("members", 1) > 1, "--orderly": how.get("orderly", False)}
    others |= {"--commit": how.get("commit", False)}
    others |= {"--broadcast": how.get("broadcast", False), "--from": how.get("start") is not None}
    for name, is_given in others.items():
        if is_given:
            hint = "pop always commits" if name == "--commit" else "pop keeps one shared offset per queue"
            raise UsageError(f"--pop takes no {name}", hint=hint)


def _queues(services: Services, wanted: Wanted) -> dict[str, list[int]]:
    """Return the queues of the wanted topics."""
    from rmqtool.config import Version

    config = services.store.setup.config
    if config.version is Version.V4_9:
        raise Refused("4.9 brokers do not have pop", hint="--as 5.3")
    if not services.timers.is_enabled or config.pop_consumer_kv_service_enable:
        raise Refused(
            "only a broker can pop here: checkpoints are in RocksDB, or timers are off",
            hint="without --pop you can still read messages",
        )
    known = {*services.topics.table, *(queue.key[0] for queue in services.store.queues())}
    names = wanted.topics.select(sorted(known)) if wanted.topics.patterns else []
    if not names:
        raise NotFound("missing topic for --pop", hint="name one with -t; rmqtool topic STORE list")
    found: dict[str, list[int]] = {}
    for name in names:
        count = int(services.topics.table.get(name, {}).get("readQueueNums") or 0)
        numbers = {*range(count), *(queue.key[1] for queue in services.store.queues() if queue.key[0] == name)}
        found[name] = sorted(number for number in numbers if wanted.queue_id in (None, number))
    return found


def _filter(wanted: Wanted) -> MessageFilter | None:
    from rmqtool.engine.get import SqlFilter, TagFilter

    if wanted.where is not None:
        return SqlFilter(wanted.where)
    return None if wanted.tags is None else TagFilter(wanted.tags)


@dataclass
class _InFiles:
    """The pops of a group in the files of a store."""

    services: Services
    group: str
    queues: dict[str, list[int]]
    wanted: Wanted
    invisible: int

    def iter_once(self, most: int) -> Iterator[tuple[str, list[Popped]]]:
        """Deliver due messages, then yield the messages that each topic has."""
        self.services.tick()
        self.services.store.dispatch_now()
        wanted = _filter(self.wanted)
        for topic, numbers in self.queues.items():
            if most <= 0:
                return
            popped = self.services.pops.pop(self.group, topic, numbers, most, self.invisible, wanted)
            popped = [one for one in popped if self._is_wanted(topic, one)]
            if popped:
                most -= len(popped)
                yield topic, popped

    def _is_wanted(self, topic: str, one: Popped) -> bool:
        """Return whether the tag of a message is wanted; else ack it: a broker's filter compares hashes."""
        tags = self.wanted.tags
        if self.wanted.where is not None or tags is None or tags.matches(one.record.tags):
            return True
        self.services.pops.ack(self.group, topic, one.receipt)
        return False

    def left(self) -> int:
        """Return how many messages are after the group's offsets."""
        services, bounds = self.services, self.services.store.reader.bounds
        return sum(
            max(bounds(topic, number).max_offset - max(services.offsets.query_offset(self.group, topic, number), 0), 0)
            for topic, numbers in self.queues.items()
            for number in numbers
        )

    def settle(self, topic: str, one: Popped, *, is_ok: bool) -> str | None:
        """Ack a consumed message. One that failed too often becomes a dead letter and is acked; others come back."""
        from rmqtool.broker.services.pop import Fate, fate_of

        services = self.services
        fate = fate_of(one.record, services.retry.most_retries(self.group), is_ok=is_ok)
        if fate is Fate.AGAIN:
            return None
        if fate is Fate.DEAD:
            ticket = services.retry.send_back(self.group, one.record, -1)
            if ticket is None or not ticket.is_ok:
                return None
        services.pops.ack(self.group, topic, one.receipt)
        return None

    def save(self) -> None:
        """Write the offsets."""
        self.services.save()


@dataclass
class _Run:
    """One run of a group that pops."""

    found: Consuming
    pops: Popping
    group: str
    how: How
    stop: Stop
    timeout: int

    def iter_events(self) -> Iterator[Event]:
        """Yield the popped messages. A failed one comes back later, and after too many attempts is a dead letter."""
        consumed = failed = 0
        for topic, popped in self._iter_popped():
            ended = [True] * len(popped)
            if self.how.get("exec") is None:
                yield from (_row(one, {}) for one in popped)
                yield None
            else:
                yield from self._execute(popped, ended)
            for one, is_ok in zip(popped, ended, strict=True):
                refusal = self.pops.settle(topic, one, is_ok=is_ok)
                if refusal is not None:
                    yield f"{_place_of(one)}: {refusal}; the message will be delivered again"
                consumed += is_ok and refusal is None
                failed += not is_ok or refusal is not None
        self.pops.save()
        if self.how.get("exec") is not None:
            yield f"{consumed} messages consumed" + (f", {failed} failed" if failed else "")
        self.found.status = Exit.NO if failed else Exit.DONE
        if self.stop.is_asked:
            raise Interrupted(
                f"stopped after {consumed} messages", hint="messages that were not acked are delivered again"
            )

    def _iter_popped(self) -> Iterator[tuple[str, list[Popped]]]:
        """Yield the popped messages topic by topic until there are no more."""
        left, follows = self.how.get("limit"), self.how.get("follow", False)
        least, idle = None, 0
        while not self.stop.is_asked and left != 0:
            found = False
            for topic, popped in self.pops.iter_once(_AT_ONCE if left is None else min(left, _AT_ONCE)):
                found = True
                left = None if left is None else left - len(popped)
                yield topic, popped
            if found:
                least, idle = None, 0
                continue
            if not follows:
                # A look is empty after many messages that its filter does not match, and while another client pops.
                unseen = self.pops.left()
                is_nearer = least is None or unseen < least
                least, idle = unseen, 0 if is_nearer else idle + 1
                if not unseen or idle == _MOST_IDLE:
                    return
            if follows or idle:
                time.sleep(_PAUSE)

    def _execute(self, popped: list[Popped], ended: list[bool]) -> Iterator[Event]:
        """Run the program for popped messages; ``ended`` says which of them are consumed."""
        from rmqtool.broker.consumer.programs import Programs
        from rmqtool.engine.clock import SystemClock

        most = self.how.get("programs") or len(os.sched_getaffinity(0))
        stdout = _STDERR if self.how.get("shows") else None
        programs = Programs(self.how.get("exec") or "", self.group, most, self.timeout, SystemClock(), stdout)
        try:
            yield from self._run_programs(programs, popped, ended)
        finally:
            programs.kill_all()

    def _run_programs(self, programs: Programs, popped: list[Popped], ended: list[bool]) -> Iterator[Event]:
        """Run a program for each message."""
        waiting = [_delivered(one) for one in popped]
        places = {delivered.cached.queue_offset: number for number, delivered in enumerate(waiting)}
        while waiting or not programs.is_idle:
            while waiting and programs.free:
                programs.start(waiting.pop(0))
            for done in programs.wait():
                number = places[done.delivered.cached.queue_offset]
                ended[number] = done.is_ok
                if self.how.get("shows"):
                    yield _row(popped[number], {"exitStatus": done.status, "isConsumed": done.is_ok})
                if not done.is_ok:
                    yield f"{_place_of(popped[number])}: the program {done.words}; the message will be delivered again"


def _place_of(one: Popped) -> str:
    return f"{one.record.topic}/{one.record.queue_id}@{one.record.queue_offset}"


def _delivered(one: Popped) -> Delivered:
    from rmqtool.broker.consumer.process_queue import CachedMessage
    from rmqtool.broker.consumer.windows import Delivered
    from rmqtool.formats.message_queue import MessageQueue

    record = one.record
    queue = MessageQueue(record.topic, one.receipt.broker_name, record.queue_id)
    # Identified by its place in the log: one pop takes from several queues.
    cached = CachedMessage(record.physical_offset, len(record.raw_body), record, record.reconsume_times)
    return Delivered("", queue, cached)


def _row(one: Popped, more: Json) -> Json:
    from rmqtool.formats.ids import encode_pop_receipt
    from rmqtool.formats.message_json import message_json

    fields, _ = message_json(one.record)
    return {**fields, "popReceipt": encode_pop_receipt(one.receipt), **more}
