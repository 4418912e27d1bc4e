"""``consume --pop``: messages that come back unless they are acked in time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmqtool.commands.interrupting import Stop, stopping
from rmqtool.commands.registration import register_group
from rmqtool.errors import Exit, Interrupted, NotFound, Refused, UsageError
from rmqtool.times import parse_span

if TYPE_CHECKING:
    from rmqtool.broker.consumer.group import Delivered
    from rmqtool.broker.consumer.programs import Programs
    from rmqtool.broker.services.pop import Popped
    from rmqtool.broker.services.tick import Services
    from rmqtool.commands.consume import Place, Program, Way
    from rmqtool.commands.options import AsBroker, Scope, Show
    from rmqtool.engine.get import MessageFilter
    from rmqtool.render.output import Output

# So often a store that is followed is looked at, in seconds; and so many messages are popped at once.
_PAUSE, _AT_ONCE = 0.2, 32
_STDERR = 2


def run_pop(
    path: str,
    scope: Scope,
    group: str,
    place: Place,
    filters: tuple[str | None, str | None],
    limit: int | None,
    way: Way,
    program: Program,
    jobs: int | None,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Pop messages and ack what is consumed; what fails comes back, and is a dead letter in the end."""
    from rmqtool.commands.serving import serving

    _refuse_others(place, way)
    invisible, timeout = parse_span(way.invisible or "60s"), parse_span(program.timeout)
    consumed = failed = 0
    with show.output() as output, stopping() as stop, serving(path, broker) as services:
        queues = _queues(services, scope)
        setup = services.store.setup
        register_group(setup.config.root_dir, setup.config, group)
        popping = _iter_popped(services, group, queues, (_filter(filters), invisible, limit), place.follow, stop)
        for topic, popped in popping:
            ended = _consume(output, group, popped, program.exec, (jobs, timeout))
            for one, is_ok in zip(popped, ended, strict=True):
                consumed += is_ok
                failed += not is_ok
                _settle(services, group, topic, one, is_ok)
        services.save()
        if program.exec is not None:
            output.note(f"{consumed} messages consumed, {failed} failed" if failed else f"{consumed} messages consumed")
    if stop.is_asked:
        raise Interrupted(f"stopped after {consumed} messages", hint="what was not acked comes back")
    return Exit.NO if failed else Exit.DONE


def _refuse_others(place: Place, way: Way) -> None:
    others = {"--members": way.members > 1, "--orderly": way.orderly, "--broadcast": way.broadcast}
    others["--from"] = place.start is not None
    for name, is_given in others.items():
        if is_given:
            raise UsageError(f"--pop takes no {name}", hint="a popped queue belongs to nobody, and has one progress")


def _queues(services: Services, scope: Scope) -> dict[str, list[int]]:
    """Return the queues of the topics that are wanted."""
    from rmqtool.config import Version
    from rmqtool.filters.patterns import parse_patterns

    config = services.store.setup.config
    if config.version is Version.V4_9:
        raise Refused("a broker of 4.9 has no pop", hint="--as 5.3")
    if not services.timers.is_enabled or config.pop_consumer_kv_service_enable:
        raise Refused(
            "check points are kept in RocksDB, or timers are off: only a broker can pop here",
            hint="without --pop messages can be read all the same",
        )
    known = {*services.topics.table, *(queue.key[0] for queue in services.store.queues())}
    wanted = parse_patterns(scope.topic or ())
    names = wanted.select(sorted(known)) if wanted.patterns else []
    if not names:
        raise NotFound("which topic is to be popped?", hint="name one with -t; rmqtool topic STORE list")
    found: dict[str, list[int]] = {}
    for name in names:
        count = int(services.topics.table.get(name, {}).get("readQueueNums") or 0)
        numbers = {*range(count), *(queue.key[1] for queue in services.store.queues() if queue.key[0] == name)}
        found[name] = sorted(number for number in numbers if scope.queue in (None, number))
    return found


def _filter(filters: tuple[str | None, str | None]) -> MessageFilter | None:
    from rmqtool.engine.get import SqlFilter, TagFilter
    from rmqtool.filters.sql92 import parse_selector
    from rmqtool.filters.tags import parse_tags

    tag, where = filters
    if where is not None:
        return SqlFilter(parse_selector(where, whole=True))
    return None if tag is None else TagFilter(parse_tags(tag))


def _iter_popped(
    services: Services,
    group: str,
    queues: dict[str, list[int]],
    how: tuple[MessageFilter | None, int, int | None],
    follow: bool,
    stop: Stop,
) -> Iterator[tuple[str, list[Popped]]]:
    """Yield what is popped, topic after topic, until there is no more; what is due happens in between."""
    wanted, invisible, left = how
    while not stop.is_asked and left != 0:
        services.tick()
        services.store.dispatch_now()
        found = False
        for topic, numbers in queues.items():
            most = _AT_ONCE if left is None else min(left, _AT_ONCE)
            popped = services.pops.pop(group, topic, numbers, most, invisible, wanted) if most else []
            if popped:
                found = True
                left = None if left is None else left - len(popped)
                yield topic, popped
        if not found and not follow:
            return
        if not found:
            time.sleep(_PAUSE)


def _consume(
    output: Output, group: str, popped: list[Popped], command: str | None, how: tuple[int | None, int]
) -> list[bool]:
    """Show messages, or have a program consume them; return which are consumed."""
    if command is None:
        for one in popped:
            _show(output, one, {})
        output.flush()
        return [True] * len(popped)
    from rmqtool.broker.consumer.programs import Programs
    from rmqtool.engine.clock import SystemClock

    jobs, timeout = how
    stdout = None if output.is_human else _STDERR
    programs = Programs(command, group, jobs or len(os.sched_getaffinity(0)), timeout, SystemClock(), stdout)
    try:
        return _run_programs(output, programs, popped)
    finally:
        programs.kill_all()


def _run_programs(output: Output, programs: Programs, popped: list[Popped]) -> list[bool]:
    """Run a program for each message; return which are consumed."""
    waiting = [_delivered(one) for one in popped]
    places = {delivered.cached.queue_offset: number for number, delivered in enumerate(waiting)}
    is_consumed = [False] * len(popped)
    while waiting or not programs.is_idle:
        while waiting and programs.free:
            programs.start(waiting.pop(0))
        for done in programs.wait():
            number = places[done.delivered.cached.queue_offset]
            is_consumed[number] = done.is_ok
            if not output.is_human:
                _show(output, popped[number], {"exitStatus": done.status, "isConsumed": done.is_ok})
            if not done.is_ok:
                output.note(f"{_place_of(popped[number])}: the program {done.words}; the message comes back")
    return is_consumed


def _place_of(one: Popped) -> str:
    return f"{one.record.topic}/{one.record.queue_id}@{one.record.queue_offset}"


def _delivered(one: Popped) -> Delivered:
    from rmqtool.broker.consumer.group import Delivered
    from rmqtool.broker.consumer.process_queue import CachedMessage
    from rmqtool.formats.message_queues import MessageQueue

    record = one.record
    queue = MessageQueue(record.topic, one.receipt.broker_name, record.queue_id)
    # By its place in the log: a pop takes from several queues.
    cached = CachedMessage(record.physical_offset, len(record.raw_body), record, record.reconsume_times)
    return Delivered("", queue, cached)


def _show(output: Output, one: Popped, more: dict[str, Any]) -> None:
    from rmqtool.formats.codes import sys_flag_words
    from rmqtool.formats.ids import encode_pop_receipt
    from rmqtool.formats.message_json import FIELDS, message_json
    from rmqtool.render.messages import message_lines

    fields, _ = message_json(one.record)
    flags = sys_flag_words(one.record.sys_flag)
    row = {**fields, "popReceipt": encode_pop_receipt(one.receipt), **more}
    output.rows([row], (*FIELDS, "popReceipt", *more), lambda shown: message_lines(output, shown, flags, "text"))


def _settle(services: Services, group: str, topic: str, one: Popped, is_ok: bool) -> None:
    """Ack what is consumed; what failed too often becomes a dead letter, and is acked then; the rest comes back."""
    if not is_ok:
        if one.record.reconsume_times < services.retry.most_retries(group):
            return
        ticket = services.retry.send_back(group, one.record, -1)
        if ticket is None or not ticket.is_ok:
            return
    services.pops.ack(group, topic, one.receipt)
