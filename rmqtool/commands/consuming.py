"""What ``consume`` does once its words are understood: open the store, go round, show."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Any

from rmqtool.commands.interrupting import Stop, stopping
from rmqtool.commands.registration import refuse_reading, register_group
from rmqtool.errors import Exit, Interrupted, StoreError
from rmqtool.times import now_ms, parse_span, parse_time, parse_zone

if TYPE_CHECKING:
    from rmqtool.broker.consumer.group import Asked, Delivered, GroupConsumer, Known, SendBack
    from rmqtool.broker.consumer.programs import Ended, Extent
    from rmqtool.broker.consumer.progress import LocalOffsets, Progress, ReachedProgress, Start
    from rmqtool.broker.consumer.rebalance import Change
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.commands.backing import Backing
    from rmqtool.commands.consume import Place, Program, Way
    from rmqtool.commands.options import AsBroker, Scope, Show
    from rmqtool.files.filesystem import Closable, Status
    from rmqtool.formats.message_queues import MessageQueue
    from rmqtool.log.ranges import Effort
    from rmqtool.log.read import Damage
    from rmqtool.log.select import Selection
    from rmqtool.look.stored_queues import StoredQueues
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store

# So often a store that is followed is looked at, in seconds.
_PAUSE = 0.2
# Where programs write while stdout holds rows for other programs.
_STDERR = 2


@dataclass
class Opened:
    """An open group."""

    asked: Asked
    stored: StoredQueues
    known: Known
    progress: Progress
    consumer: GroupConsumer
    # What a failing program's messages are sent back to, and what lets things happen while the store is followed.
    backing: Backing | None = None
    # The file of topics at the last look.
    topics_file: Status | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        """All queues of the group."""
        topics = self.consumer.how.subscriptions
        return [queue for topic in topics for queue in self.known.queues_of(topic, self.asked.queue_id)]


def run(
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
    """Consume; return how it went."""
    from rmqtool.broker.consumer.programs import Extent
    from rmqtool.commands.options import Work

    start = parse_start(place.start, group, show.tz, keeps=way.commit)
    asked = _asked(scope, group, filters, start, way)
    timeout = parse_span(program.timeout)
    serves = way.commit and not way.broadcast and (program.exec is not None or place.follow)
    with (
        show.output() as output,
        stopping() as stop,
        _open(path, asked, broker, serves=serves, follows=place.follow) as opened,
    ):
        extent = Extent(limit, place.follow, stop)
        with _members(output, opened):
            if program.exec is not None:
                most = jobs or max(len(os.sched_getaffinity(0)), way.members)
                return _execute(output, opened, extent, program.exec, most, timeout, stop)
            if _is_made_of_columns(output, opened, extent):
                return _show_lines(output, opened, Work(jobs=jobs).effort(output), stop)
            return _show(output, opened, extent, stop)


def parse_start(text: str | None, group: str, zone: str, *, keeps: bool) -> Start:
    """Return where to begin; somebody without a group looks from the first message on."""
    from rmqtool.broker.consumer.progress import Start
    from rmqtool.broker.consumer.subscription import ConsumeFromWhere

    if text is None and group:
        return Start()
    chosen: dict[str, Any] = {"is_asked": True, "goes_first": not keeps}
    if text in (None, "first"):
        return Start(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **chosen)
    if text == "last":
        return Start(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, **chosen)
    assert text is not None
    # Epoch milliseconds have 13 digits.
    if text.isdecimal() and len(text) < 12:
        return Start(offset=int(text), **chosen)
    moment = parse_time(text, now=now_ms(), zone=parse_zone(zone))
    return Start(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, timestamp=moment, **chosen)


def _asked(scope: Scope, group: str, filters: tuple[str | None, str | None], start: Start, way: Way) -> Asked:
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.subscription import Subscription
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.filters.sql92 import parse_selector
    from rmqtool.filters.tags import parse_tags

    tag, where = filters
    return Asked(
        group=group,
        topics=parse_patterns(scope.topic or ()),
        wanted=Subscription(parse_tags(tag), parse_selector(where, whole=True) if where is not None else None),
        start=start,
        queue_id=scope.queue,
        members=way.members,
        orderly=way.orderly,
        broadcasting=way.broadcast,
        keeps=way.commit,
    )


@contextmanager
def _open(path: str, asked: Asked, broker: AsBroker, *, serves: bool, follows: bool) -> Iterator[Opened]:
    """Open the store, under its lock where the broker's file is to be written, and the group."""
    from functools import partial

    from rmqtool.broker.consumer.group import Known, group_progress, open_group
    from rmqtool.engine.clock import SystemClock
    from rmqtool.look.stored_queues import StoredQueues
    from rmqtool.store.config_files import read_configs
    from rmqtool.store.open import open_store

    again = partial(open_store, path, version=broker.as_version, assignments=tuple(broker.conf or ()))
    with ExitStack() as stack:
        held = _hold(again, stack) if asked.keeps and not asked.broadcasting else None
        stored = StoredQueues(again)
        stack.callback(stored.close)
        configs = read_configs(stored.store)
        offsets = _offsets(asked, stored, configs.offsets, stack)
        backing = _back(asked, stored, offsets, held, stack) if serves and held is not None else None
        if backing is not None:
            configs.topics.setdefault(*backing.retry_topic)
        known = Known(configs.topics, stored.queues(), [*configs.offsets], stored.store.config)
        refuse_reading(asked.group, stored.store.config, configs.groups)
        progress = group_progress(asked, known, stored, offsets)
        consumer = open_group(asked, known, stored, progress, SystemClock(), *_send_back(backing, follows=follows))
        _register(asked, stored.store, held, backing)
        yield Opened(asked, stored, known, progress, consumer, backing)


def _register(asked: Asked, store: Store, held: Closable | None, backing: Backing | None) -> None:
    """Make known who consumes, now that nothing is refused any more."""
    if held is not None:
        register_group(store.root, store.config, asked.group)
    if backing is not None:
        backing.save_retry_topic()


def _send_back(backing: Backing | None, *, follows: bool) -> tuple[SendBack | None, int]:
    """Return who takes messages that failed, and how often an ordered consumer tries them."""
    if backing is None:
        return None, -1
    return None if backing.waits_in_place and not follows else backing.send_back, backing.most_tries


def _back(
    asked: Asked,
    stored: StoredQueues,
    offsets: ConsumerOffsets | dict[str, LocalOffsets],
    held: Closable,
    stack: ExitStack,
) -> Backing:
    """Return the broker behind the group."""
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.commands.backing import Backing

    assert isinstance(offsets, ConsumerOffsets), "progress that is stored is in the broker's table"
    backing = Backing(stored.store.root, stored.store.config, held, offsets, asked)
    stack.callback(backing.close)
    return backing


def _hold(open_store: Callable[[], Store], stack: ExitStack) -> Closable:
    """Take the lock until the stack is closed, and return it."""
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.store.listing import lock_store

    with open_store() as opened:
        root = opened.root
    files = stack.enter_context(PosixWritableFileSystem(root))
    return stack.enter_context(lock_store(files))


def _offsets(
    asked: Asked, stored: StoredQueues, table: Mapping[tuple[str, str], Mapping[int, int]], stack: ExitStack
) -> ConsumerOffsets | dict[str, LocalOffsets]:
    """Return the table of the broker, or the files of broadcasting members; what is only looked at is a copy."""
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.engine.clock import SystemClock

    if asked.broadcasting:
        return _local_offsets(asked, stored, stack)
    if asked.keeps:
        return _kept_offsets(stored, stack)
    offsets = ConsumerOffsets(None, stored.store.version, SystemClock())
    for (topic, group), queues in table.items():
        for queue_id, offset in queues.items():
            if group == asked.group:
                offsets.commit_offset(group, topic, queue_id, offset)
    return offsets


def _kept_offsets(stored: StoredQueues, stack: ExitStack) -> ConsumerOffsets:
    """Return the broker's table, to be written; refuse where that would not be safe or of no use."""
    from rmqtool.broker.offsets import ConsumerOffsets, progress_file
    from rmqtool.engine.clock import SystemClock
    from rmqtool.engine.load import refuse_unsupported, refuse_without_log, require_closed
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.store.config_files import config_text

    store = stored.store
    refuse_unsupported(store.listing, store.config)
    refuse_without_log(store.listing)
    require_closed(store.listing)
    if any(directory.startswith("config/") for directory in store.listing.databases()):
        raise StoreError(
            "progress is kept in RocksDB here; only a broker can write it",
            file=store.root,
            hint="without --commit messages can be read all the same",
        )
    files = stack.enter_context(PosixWritableFileSystem(store.root))
    lmq = store.config.enable_lmq
    return ConsumerOffsets(
        config_text(files, progress_file(enable_lmq=lmq)), store.version, SystemClock(), enable_lmq=lmq
    )


def _local_offsets(asked: Asked, stored: StoredQueues, stack: ExitStack) -> dict[str, LocalOffsets]:
    """Return the files of broadcasting members, below the home directory."""
    from rmqtool.broker.consumer.progress import LOCAL_OFFSETS, LocalOffsets, local_offsets_path
    from rmqtool.engine.clock import SystemClock
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.flaws import Flaw
    from rmqtool.formats.message_queues import decode_local_offsets
    from rmqtool.store.config_files import ConfigText

    files = stack.enter_context(PosixWritableFileSystem(os.path.expanduser("~")))
    return {
        client: LocalOffsets(
            ConfigText(
                files,
                f"{LOCAL_OFFSETS}/{local_offsets_path(client, asked.group)}",
                lambda data: not isinstance(decode_local_offsets(data), Flaw),
            ),
            stored.store.version,
            SystemClock(),
        )
        for client in asked.client_ids
    }


@contextmanager
def _members(output: Output, opened: Opened) -> Iterator[None]:
    """Let the members come, and go at the end; each gets what is its share, and gives it back."""
    consumer, clients = opened.consumer, opened.asked.client_ids
    for number, client in enumerate(clients, 1):
        _tell_changes(output, opened, f"member {number} joined", consumer.join(client))
    try:
        yield
    finally:
        for number, client in enumerate(clients if len(clients) > 1 else (), 1):
            _tell_changes(output, opened, f"member {number} left", consumer.leave(client))


def _tell_changes(output: Output, opened: Opened, what: str | None, changes: list[Change]) -> None:
    """Say what a member did, and who has which queues now, unless there is only one."""
    clients = opened.asked.client_ids
    if len(clients) == 1:
        return
    shown = [] if what is None else [what]
    ordered = sorted((change for change in changes if change.is_taken), key=lambda change: (change[0], change[1]))
    for taker, taken in groupby(ordered, lambda change: change.client_id):
        queues = " ".join(f"{change.queue.topic}/{change.queue.queue_id}" for change in taken)
        shown.append(f"{clients.index(taker) + 1} takes {queues}")
    output.note("; ".join(shown))


def _is_made_of_columns(output: Output, opened: Opened, extent: Extent) -> bool:
    """Return whether messages come as lines of JSON, all there are, all chosen alike: that is made many at a time."""
    asked, how = opened.asked, opened.consumer.how
    alike = asked.wanted.is_everything or all(wanted is asked.wanted for wanted in how.subscriptions.values())
    whole = asked.members == 1 and extent.limit is None and not extent.follows
    return whole and alike and output.look.mode in ("json", "jsonl")


def _show_lines(output: Output, opened: Opened, effort: Effort, stop: Stop) -> Exit:
    """Show what the group gets, in the order of the log; it is consumed when it was handed to the reader."""
    from rmqtool.broker.consumer.progress import ReachedProgress
    from rmqtool.log.ranges import Answered
    from rmqtool.log.read import Note
    from rmqtool.log.sources import source_of
    from rmqtool.log.stream import Request, iter_lines

    (client_id,) = opened.asked.client_ids
    reached = ReachedProgress(client_id, opened.queues, opened.stored, opened.progress)
    consumed = damages = 0
    request = Request(_selection(opened, reached))
    for event in () if reached.is_at_end else iter_lines(source_of(opened.stored.store), request, effort):
        if isinstance(event, Answered):
            output.json_lines(event.data)
            consumed, damages = consumed + event.found.messages, damages + len(event.found.damages)
            _reach(output, opened, reached, event.found.end)
        elif not isinstance(event, Note):
            damages += _show_damage(output, event)
        if stop.is_asked:
            return _end(opened, consumed, stop, Exit.DONE)
    output.flush()
    reached.finish()
    _tell_nothing(output, opened, consumed)
    return Exit.SKIPPED if damages else Exit.DONE


def _selection(opened: Opened, reached: ReachedProgress) -> Selection:
    """Return what is asked of the log for a group."""
    from glob import escape

    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.log.select import Selection

    wanted = opened.asked.wanted
    return Selection(
        topics=parse_patterns(map(escape, opened.consumer.how.subscriptions)),
        queue_id=opened.asked.queue_id,
        least_offsets={(queue.topic, queue.queue_id): begin for queue, begin in reached.begins.items()},
        tags=None if wanted.is_everything or wanted.selector is not None else wanted.tags,
        where=wanted.selector,
    )


def _reach(output: Output, opened: Opened, reached: ReachedProgress, end: int) -> None:
    """Store how far the reader is."""
    if opened.asked.keeps and end:
        output.flush()
        reached.reach(end)


def _show_damage(output: Output, damage: Damage) -> int:
    from rmqtool.render.messages import damage_line

    output.aside(damage.as_json(), damage_line(output, damage._asdict()))
    return 1


def _show(output: Output, opened: Opened, extent: Extent, stop: Stop) -> Exit:
    """Show what the group gets; it is consumed when it was handed to the reader."""
    from rmqtool.broker.consumer.programs import iter_shown

    consumed = damages = 0
    for taken in iter_shown(opened.consumer, extent):
        if taken is None:
            _wait(output, opened)
            continue
        for delivered in taken:
            damages += _show_message(output, opened, delivered, {})
        consumed += len(taken)
        output.flush()
    damages += _tell_lost(output, opened.consumer)
    _tell_nothing(output, opened, consumed)
    return _end(opened, consumed, stop, Exit.SKIPPED if damages else Exit.DONE)


def _tell_nothing(output: Output, opened: Opened, consumed: int) -> None:
    """Say that there was nothing to show, and where the group is."""
    group, store = opened.asked.group, quote(opened.stored.store.root)
    if not consumed and group:
        output.note(f"nothing is new for {group}; where it is: rmqtool info {store} groups -g {quote(group)}")
    elif not consumed:
        output.note("there is no message")


def _show_message(output: Output, opened: Opened, delivered: Delivered, more: dict[str, object]) -> bool:
    """Show a message; tell whether its body is damaged."""
    from rmqtool.formats.codes import sys_flag_words
    from rmqtool.formats.message_json import FIELDS, message_json
    from rmqtool.render.messages import message_lines

    fields, flaw = message_json(delivered.message)
    flags = sys_flag_words(delivered.message.sys_flag)
    if opened.asked.members > 1:
        more = {"member": delivered.client_id, **more}
    output.rows([{**fields, **more}], (*FIELDS, *more), lambda row: message_lines(output, row, flags, "text"))
    if flaw is not None:
        place = {"file": "commitlog", "offset": delivered.message.physical_offset, "length": flaw.length}
        damage = {"code": flaw.code, **place, "message": flaw.message}
        output.aside({"damage": damage}, f"damage  {flaw.code}  the body does not inflate: {flaw.message}")
    return flaw is not None


def _tell_lost(output: Output, consumer: GroupConsumer) -> int:
    """Say which units led to no message."""
    for queue, offset, place in consumer.lost:
        output.note(f"{queue.topic}/{queue.queue_id}@{offset}: no message stands at {place} of the log")
    return len(consumer.lost)


def _wait(output: Output, opened: Opened) -> None:
    """Wait for more."""
    output.flush()
    if opened.backing is not None:
        opened.backing.tick()
    time.sleep(_PAUSE)
    opened.stored.refresh()
    _look_for_queues(output, opened)


def _look_for_queues(output: Output, opened: Opened) -> None:
    """Take queues, and topics that a pattern wants, that there are since the last look."""
    from rmqtool.broker.consumer.group import subscribe
    from rmqtool.formats.paths import TOPICS, config_path
    from rmqtool.store.config_files import read_configs

    store, known = opened.stored.store, opened.known
    found = store.filesystem.find_stat(config_path(TOPICS))
    topics = known.topics
    if found != opened.topics_file:
        opened.topics_file = found
        topics = {**known.topics, **read_configs(store).topics}
    opened.known = replace(known, topics=topics, queues=opened.stored.queues())
    opened.consumer.how.subscriptions.update(subscribe(opened.asked, opened.known))
    opened.consumer.set_queues(opened.queues)
    changes = opened.consumer.rebalance()
    if changes:
        _tell_changes(output, opened, None, changes)


def _end(opened: Opened, consumed: int, stop: Stop, status: Exit) -> Exit:
    """Return the status, or say what was done when somebody pressed Ctrl-C."""
    if not stop.is_asked:
        return status
    kept = "; the progress is stored" if opened.asked.keeps else ""
    raise Interrupted(f"stopped after {consumed} messages{kept}", hint="the same command goes on from here")


def _execute(output: Output, opened: Opened, extent: Extent, command: str, most: int, timeout: int, stop: Stop) -> Exit:
    """Have a program consume the messages."""
    from rmqtool.broker.consumer.programs import Programs, iter_executed
    from rmqtool.engine.clock import SystemClock

    stdout = None if output.is_human else _STDERR
    programs = Programs(command, opened.asked.group, most, timeout, SystemClock(), stdout)
    consumed = failed = 0
    try:
        for ended in iter_executed(opened.consumer, programs, extent):
            if ended is None:
                _wait(output, opened)
                continue
            failed += not _show_ended(output, opened, ended)
            consumed += 1
    finally:
        programs.kill_all()
    lost = _tell_lost(output, opened.consumer)
    output.note(_counted(consumed - failed) + (f", {failed} failed" if failed else ""))
    return _end(opened, consumed, stop, Exit.SKIPPED if lost else Exit.NO if failed else Exit.DONE)


def _counted(messages: int) -> str:
    return f"{messages} {'message' if messages == 1 else 'messages'} consumed"


def _show_ended(output: Output, opened: Opened, ended: Ended) -> bool:
    """Show what came of a message; return whether it is consumed."""
    delivered = ended.delivered
    if not output.is_human:
        more: dict[str, object] = {"exitStatus": ended.status, "isConsumed": ended.is_ok}
        _show_message(output, opened, delivered, more)
    if not ended.is_ok:
        queue = delivered.queue
        place = f"{queue.topic}/{queue.queue_id}@{delivered.cached.queue_offset}"
        backing = opened.backing
        comes = "the message is not consumed" if backing is None else backing.outcome(delivered)
        output.note(f"{place}: the program {ended.words}; {comes}")
    return ended.is_ok
