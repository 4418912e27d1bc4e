"""``consume``: read messages as a consumer group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from rmqtool.api.cat import Form, Lines
from rmqtool.api.cluster import Cluster
from rmqtool.api.shared import place_of
from rmqtool.api.store import Place, is_remote, store_of
from rmqtool.api.store_group import Opened, change_words, open_group_of, parse_start, selection_of
from rmqtool.api.wanted import Json, Working, effort_of, require_known, wanted_of
from rmqtool.errors import Exit, Interrupted, UnknownTopic, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.api.remote_group import Joined
    from rmqtool.api.shapes import Message
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.programs import Ended, Extent
    from rmqtool.broker.consumer.progress import ReachedProgress
    from rmqtool.broker.consumer.windows import Delivered
    from rmqtool.engine.interrupts import Stop
    from rmqtool.store.open import Store as OpenStore

# The descriptor that programs write to while stdout holds rows for other programs.
_STDERR = 2
Event = Lines | Json | str | tuple[str, str] | None


class Topics(TypedDict, total=False):
    """Which messages a group gets: of topics, of one queue, by tags or by SQL."""

    topics: str | list[str] | None
    queue: int | None
    tags: str | None
    where: str | None


class How(TypedDict, total=False):
    """How a group consumes.

    ``start`` is "first", "last", an offset or a time; ``follow`` waits for more. With ``commit`` offsets are committed,
    under the store's lock. ``members`` share the queues, ``orderly`` takes each queue strictly in order, ``broadcast``
    gives all messages to each member. With ``pop`` messages are hidden for ``invisible`` ("60s") and come back unless
    they are consumed. ``exec`` is a program that consumes each message; it is killed after ``timeout``. ``programs`` is
    how many run at once, and ``shows`` yields the result for each message. With ``obeys`` Ctrl-C ends the run between
    two messages. ``dlq`` shows the dead letters of the group, and nothing else.
    """

    start: str | None
    follow: bool
    commit: bool
    members: int
    orderly: bool
    broadcast: bool
    pop: bool
    dlq: bool
    invisible: str | None
    exec: str | None
    timeout: str
    programs: int | None
    shows: bool
    limit: int | None
    form: Form
    zone: str
    obeys: bool


@dataclass
class Consuming:
    """A group that consumes: iterate over its events. A message is consumed when the next event is asked for.

    Events are those of ``cat``; None means that the events so far should be flushed to the reader now, and a pair is a
    note with the command to type next.
    """

    events: Iterator[Event]
    status: Exit = Exit.DONE

    def __iter__(self) -> Iterator[Event]:
        return self.events


def consume(store: Place, group: str = "", *, limit: int | None = None, **which: Unpack[Topics]) -> Iterator[Message]:
    """Yield the next messages of a group; each is committed as consumed when the next one is asked for.

    Without a group nothing is stored, and messages start with the first one.
    """
    require_known("consume", which, tuple(Topics.__annotations__))
    how: How = {"commit": bool(group), "limit": limit}
    return cast("Iterator[Message]", _iter_messages(store, group, how, which))


def _iter_messages(store: Place, group: str, how: How, which: Topics) -> Iterator[Json]:
    with consuming(store, group, how, **which) as found:
        for event in found:
            if isinstance(event, dict) and "damage" not in event:
                yield event


# How long a program may run for one message.
_TIMEOUT = "15m"


@contextmanager
def consuming(
    store: Place, group: str, how: How, work: Working | None = None, **which: Unpack[Topics]
) -> Iterator[Consuming]:
    """Open a group. With ``commit`` the store is locked until the group is closed."""
    from rmqtool.broker.consumer.programs import check_program
    from rmqtool.broker.groups import named_group
    from rmqtool.engine.interrupts import Stop, stopping
    from rmqtool.times import parse_span

    if how.get("commit") or how.get("broadcast") or how.get("pop"):
        group = named_group(group)
    if which.get("tags") is not None and which.get("where") is not None:
        raise UsageError("a group subscribes by tag or by SQL, not by both", hint="in SQL a tag is TAGS = 'A'")
    if how.get("invisible") is not None and not how.get("pop"):
        raise UsageError("--invisible needs --pop", hint="add --pop")
    program = how.get("exec")
    if program is not None:
        check_program(program)
    timeout = how.get("timeout", _TIMEOUT)
    parse_span(timeout)
    if timeout != _TIMEOUT and program is None:
        raise UsageError("--timeout is for the program of --exec", hint="add --exec CMD")
    if program is None and how.get("programs") is not None and not _shares_work(store, how):
        raise UsageError(
            "-j has no effect on messages taken one by one", hint="it is for --exec, and for --jsonl from files"
        )
    with stopping() if how.get("obeys") else nullcontext(Stop()) as stop:
        opened = _showing_letters if how.get("dlq") else _popping if how.get("pop") else _consuming
        with opened(store, group, how, work or {}, which, stop) as found, closing(cast("Any", found.events)):
            yield found


def _shares_work(store: Place, how: How) -> bool:
    """Return whether threads make lines of messages: of files, and of many at a time."""
    return how.get("form") is Form.LINES and not how.get("pop") and not is_remote(store)


@contextmanager
def _popping(store: Place, group: str, how: How, _work: Working, which: Topics, stop: Stop) -> Iterator[Consuming]:
    from rmqtool.api.pop import popping
    from rmqtool.api.remote_pop import popping_at

    place = place_of(store, "consume")
    if is_remote(place):
        with popping_at(place, _asked(group, how, which), how, stop) as found:
            yield found
        return
    with popping(store_of(store), group, how, which, stop) as found:
        yield found


@contextmanager
def _showing_letters(
    store: Place, group: str, how: How, work: Working, which: Topics, stop: Stop
) -> Iterator[Consuming]:
    """Read the dead letters of a group as no group does, from the first one on."""
    from rmqtool.api.dead_letters import no_letters, shown_letters
    from rmqtool.broker.consumer.programs import Extent

    asked = _asked("", how, shown_letters(group, how, which))
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(_opened(store, asked, how, follows=False))
        except UnknownTopic:
            raise no_letters(group) from None
        found = Consuming(iter(()))
        run = _Run(found, opened, Extent(how.get("limit"), False, stop), stop, how, work, letters_of=group)
        found.events = run.iter_events()
        yield found


@contextmanager
def _consuming(store: Place, group: str, how: How, work: Working, which: Topics, stop: Stop) -> Iterator[Consuming]:
    from rmqtool.broker.consumer.programs import Extent

    follows = how.get("follow", False)
    asked = _asked(group, how, which)
    with _opened(store, asked, how, follows=follows) as opened:
        found = Consuming(iter(()))
        run = _Run(found, opened, Extent(how.get("limit"), follows, stop), stop, how, work)
        found.events = run.iter_events()
        yield found


@contextmanager
def _opened(store: Place, asked: Asked, how: How, *, follows: bool) -> Iterator[Opened | Joined]:
    """Open the group in the files of a store, or at live brokers. Without ``commit`` files are read beside a server."""
    serves = asked.keeps and not asked.broadcasting and (how.get("exec") is not None or follows)
    place = place_of(store, "consume") if asked.keeps and not asked.broadcasting else store
    if not is_remote(place):
        with open_group_of(store_of(store), asked, serves=serves, follows=follows) as opened:
            yield opened
        return
    from rmqtool.api.remote_group import join_group, refuse_files_only

    refuse_files_only(asked)
    where = str(store) if isinstance(store, Cluster) else store_of(store).path
    with join_group(place, where, asked, follows=follows) as joined:
        yield joined


def _asked(group: str, how: How, which: Topics) -> Asked:
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.subscription import Subscription
    from rmqtool.filters.tags import parse_tags

    wanted = wanted_of(which)
    commits = how.get("commit", False)
    return Asked(
        group=group,
        topics=wanted.topics,
        wanted=Subscription(parse_tags(None) if wanted.tags is None else wanted.tags, wanted.where),
        start=parse_start(how.get("start"), group, how.get("zone", "local"), keeps=commits),
        queue_id=wanted.queue_id,
        members=how.get("members", 1),
        orderly=how.get("orderly", False),
        broadcasting=how.get("broadcast", False),
        keeps=commits,
    )


@dataclass
class _Run:
    """One run of a group, from the start of its members to their end."""

    found: Consuming
    opened: Opened | Joined
    extent: Extent
    stop: Stop
    how: How
    work: Working
    # The group whose dead letters are shown.
    letters_of: str = ""

    def iter_events(self) -> Iterator[Event]:
        """Start the members, share the queues among them, yield the events, and end the members."""
        consumer, clients = self.opened.consumer, self.opened.client_ids
        yield from (f"{error.message}: this queue is not consumed" for error in self.opened.unread)
        for queue in self.opened.absent:
            name = f"{queue.topic}/{queue.queue_id}"
            yield f"queue {name} is missing: its messages are in the log, but are not consumed"
        for number, client in enumerate(clients, 1):
            yield from change_words(clients, f"member {number} joined", consumer.join(client))
        ended: Interrupted | None = None
        left: list[str] = []
        try:
            yield from self._iter_taken()
        except Interrupted as error:
            ended = error
        finally:
            for number, client in enumerate(clients if len(clients) > 1 else (), 1):
                left += change_words(clients, f"member {number} left", consumer.leave(client))
        yield from left
        if self.opened.unread or self.opened.absent:
            self.found.status = worst(self.found.status, Exit.SKIPPED)
        if ended is not None:
            raise ended

    def _iter_taken(self) -> Iterator[Event]:
        if self.how.get("exec") is not None:
            return self._iter_executed()
        return self._iter_lines() if self._is_made_of_columns() else self._iter_shown()

    def _is_made_of_columns(self) -> bool:
        """Return whether lines of JSON can be made for many messages at a time, because all are treated alike."""
        asked, consumer = self.opened.asked, self.opened.consumer.how
        if not isinstance(self.opened, Opened):
            return False
        alike = asked.wanted.is_everything or all(one is asked.wanted for one in consumer.subscriptions.values())
        whole = asked.members == 1 and not asked.orderly and self.extent.limit is None and not self.extent.follows
        return whole and alike and self.how.get("form") is Form.LINES

    def _iter_lines(self) -> Iterator[Event]:
        """Yield lines in the order of the log; they count as consumed once the reader has them."""
        from rmqtool.broker.consumer.progress import ReachedProgress
        from rmqtool.log.ranges import Answered
        from rmqtool.log.read import Note
        from rmqtool.log.sources import source_of
        from rmqtool.log.stream import Request, iter_lines

        opened = self.opened
        assert isinstance(opened, Opened), "only files are read in the order of the log"
        (client_id,) = opened.asked.client_ids
        reached = ReachedProgress(client_id, opened.queues, opened.stored, opened.progress)
        consumed = damages = 0
        request, effort = Request(selection_of(opened, reached)), effort_of(**self.work)
        for event in () if reached.is_at_end else iter_lines(source_of(opened.stored.store), request, effort):
            if isinstance(event, Answered):
                yield Lines(event.data)
                consumed, damages = consumed + event.found.messages, damages + len(event.found.damages)
                yield from self._reach(reached, event.found.end)
            elif not isinstance(event, Note):
                yield event.as_json()
                damages += 1
            if self.stop.is_asked:
                self._end(consumed)
                return
        yield None
        reached.finish()
        yield from self._closing_words(consumed)
        self.found.status = Exit.SKIPPED if damages else Exit.DONE

    def _reach(self, reached: ReachedProgress, end: int) -> Iterator[None]:
        """Store the offset that the reader has reached."""
        if self.opened.asked.keeps and end:
            yield None
            reached.reach(end)

    def _iter_shown(self) -> Iterator[Event]:
        """Yield messages one by one; each counts as consumed once the reader has it."""
        from rmqtool.broker.consumer.programs import iter_shown

        consumed = damages = 0
        for taken in iter_shown(self.opened.consumer, self.extent):
            if taken is None:
                yield from self._wait()
                continue
            for delivered in taken:
                for row in self._rows(delivered):
                    yield row
                    damages += "damage" in row
            consumed += len(taken)
            yield None
        lost = list(_lost_words(self.opened))
        yield from lost
        yield from self._closing_words(consumed)
        self.found.status = Exit.SKIPPED if damages or lost else Exit.DONE
        self._end(consumed)

    def _closing_words(self, consumed: int) -> Iterator[str | tuple[str, str]]:
        """Yield for whom the messages were and whether they are committed; with some words the command to type next."""
        from rmqtool.api.dead_letters import no_letters

        asked, store = self.opened.asked, quote(self.opened.where)
        if self.letters_of:
            if not consumed:
                raise no_letters(self.letters_of)
            if not self.how.get("shows"):
                letters = f"{consumed} dead letter{'' if consumed == 1 else 's'} of {self.letters_of}"
                again = f"rmqtool produce {store} --replay -g {quote(self.letters_of)}"
                yield f"{letters}; to send {'it' if consumed == 1 else 'them'} again:", again
            return
        if consumed and not self.how.get("shows"):
            messages = f"{consumed} message{'' if consumed == 1 else 's'}"
            whose = f"for {asked.group}{self._newness()}" if asked.group else "for no group (-g names one)"
            words = f"{messages} {whose}; " + ("committed" if asked.keeps else "nothing is committed without --commit")
            skips = bool(self.opened.absent or self.opened.consumer.lost) and "://" not in self.opened.where
            yield (words, f"rmqtool check {store}") if skips else words
        elif not consumed and asked.group:
            words = f"no new messages for {asked.group}{self._newness()}"
            yield words, f"rmqtool check {store}" if self.opened.absent else f"rmqtool info {store} groups"
        elif not consumed:
            yield ("no messages", f"rmqtool check {store}") if self.opened.absent else "no messages"

    def _newness(self) -> str:
        """Return words for a group that has never consumed: its name may be mistyped."""
        if not isinstance(self.opened, Opened) or self.opened.asked.broadcasting:
            return ""
        names = {group for _, group in self.opened.known.progressed}
        return "" if self.opened.asked.group in names else ", a group without offsets so far"

    def _rows(self, delivered: Delivered, more: Json | None = None) -> Iterator[Json]:
        """Yield a message, and the damage of its body."""
        from rmqtool.formats.message_json import message_json

        fields, flaw = message_json(delivered.message)
        member = {"member": delivered.client_id} if self.opened.asked.members > 1 else {}
        yield {**fields, **member, **(more or {})}
        if flaw is not None:
            place = {"file": "commitlog", "offset": delivered.message.physical_offset, "length": flaw.length}
            yield {"damage": {"code": flaw.code, **place, "message": flaw.message}}

    def _wait(self) -> Iterator[Event]:
        """Wait for new messages."""
        yield None
        changes = self.opened.wait()
        if changes:
            yield from change_words(self.opened.client_ids, None, changes)

    def _end(self, consumed: int) -> None:
        """After Ctrl-C raise the error that says what was done."""
        if self.stop.is_asked:
            kept = "; offsets are committed" if self.opened.asked.keeps else ""
            raise Interrupted(
                f"stopped after {consumed} messages{kept}", hint="run the same command to continue from here"
            )

    def _iter_executed(self) -> Iterator[Event]:
        """Run the program for each message."""
        from rmqtool.broker.consumer.programs import Programs, iter_executed
        from rmqtool.engine.clock import SystemClock
        from rmqtool.times import parse_span

        opened, how = self.opened, self.how
        most = how.get("programs") or max(len(os.sched_getaffinity(0)), opened.asked.members)
        stdout = _STDERR if how.get("shows") else None
        timeout = parse_span(how.get("timeout", _TIMEOUT))
        programs = Programs(how.get("exec") or "", opened.asked.group, most, timeout, SystemClock(), stdout)
        consumed = failed = 0
        try:
            for ended in iter_executed(opened.consumer, programs, self.extent):
                if ended is None:
                    yield from self._wait()
                    continue
                yield from self._ended(ended)
                failed += not ended.is_ok
                consumed += 1
        finally:
            programs.kill_all()
        lost = list(_lost_words(opened))
        yield from lost
        yield _counted(consumed - failed) + (f", {failed} failed" if failed else "")
        self.found.status = Exit.SKIPPED if lost else Exit.NO if failed else Exit.DONE
        self._end(consumed)

    def _ended(self, ended: Ended) -> Iterator[Json | str]:
        """Yield the result of a program for its message."""
        delivered = ended.delivered
        if self.how.get("shows"):
            yield from self._rows(delivered, {"exitStatus": ended.status, "isConsumed": ended.is_ok})
        if not ended.is_ok:
            queue = delivered.queue
            place = f"{queue.topic}/{queue.queue_id}@{delivered.cached.queue_offset}"
            yield f"{place}: the program {ended.words}; {self.opened.outcome(delivered)}"


def _lost_words(opened: Opened | Joined) -> Iterator[str]:
    """Yield the queue entries whose message could not be read: a group goes past them."""
    for queue, offset, place in opened.consumer.lost:
        state = "damaged or gone"
        if isinstance(opened, Opened):
            state = _state_at(opened.stored.store, place)
        record = f"its record, at {place} in the log, is {state}"
        yield f"{queue.topic}/{queue.queue_id}@{offset} is left out: {record}"


def _state_at(store: OpenStore, place: int) -> str:
    """Return what is known of the record that a queue entry points to. Where no record is, the entry may be wrong."""
    from rmqtool.look.place_search import find_damaged

    if store.commit_log.find(place) is None:
        return "gone"
    return "damaged or gone" if find_damaged(store, place) is None else "damaged"


def _counted(messages: int) -> str:
    return f"{messages} {'message' if messages == 1 else 'messages'} consumed"
