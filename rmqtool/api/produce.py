"""``produce``: store messages as a broker stores them; ``put`` does it for a program that has them at hand."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.store import Place, Store, is_remote, store_of
from rmqtool.api.wanted import Json, given_message, require_known
from rmqtool.errors import Exit, Interrupted, ReadFailed, StoreError, StoreInUse, UsageError

if TYPE_CHECKING:
    from rmqtool.api.shapes import Stored
    from rmqtool.broker.producer.later import Outcome, Wish
    from rmqtool.broker.producer.lines import Bad, Lines
    from rmqtool.broker.producer.lines import Wanted as Members
    from rmqtool.broker.producer.result import Sent
    from rmqtool.broker.producer.run import Run, Sender
    from rmqtool.broker.producer.send import ColumnWork
    from rmqtool.engine.interrupts import Stop
    from rmqtool.engine.message import NewMessage
    from rmqtool.progress import Progress

STDIN = "-"


class How(TypedDict, total=False):
    """How messages are made and sent.

    Defaults for each message: ``topic``, which also overrides the topic of an object, ``queue``, ``tag``, ``keys``,
    ``shard``, ``properties`` by name or as "name=value". With ``keep_ids`` unique keys stay.

    Sending: ``create`` creates missing topics, ``batch`` is the size of a client's batch in messages, ``rate`` is in
    messages per second, ``flush`` is "sync" or "async". ``on_error`` is "skip" or "stop", for input that is not a
    message.

    Delivery: ``delay`` is a level or a span ("90s"), ``at`` a time. ``tx`` sends each message as a transaction of the
    producer ``group``: commit, rollback or pending. With ``retry_unknown`` a message is sent again whose answer from a
    live cluster was lost; it may then be stored twice.

    With ``replay`` the messages are dead letters of the consumer ``group``: those that are stored, or the lines that
    are given. Each goes back to the topic that it came from.

    With ``obeys`` Ctrl-C ends the run at the next point where nothing is half done.
    """

    topic: str | None
    queue: int | None
    tag: str | None
    keys: Sequence[str] | None
    shard: str | None
    properties: Mapping[str, str] | Iterable[str] | None
    keep_ids: bool
    create: bool
    batch: int
    rate: int | None
    flush: str | None
    on_error: str | None
    delay: str | None
    at: str | None
    tx: str | None
    group: str | None
    replay: bool
    retry_unknown: bool
    zone: str
    obeys: bool


class Given(NamedTuple):
    """Where messages come from: bodies, else files, else standard input.

    As "bodies" a file is one body, and each line of standard input is one; "jsonl" and "csv" are read from both.
    """

    bodies: Sequence[str] = ()
    files: Sequence[str] = ()
    form: Literal["bodies", "jsonl", "csv"] = "bodies"


@dataclass
class Producing:
    """A store open for a producer: iterate over the results; a text is a note for the user."""

    run: Run
    messages: Iterable[NewMessage | Bad]
    moved: Mapping[str, int]
    stop: Stop
    progress: Progress
    notes: list[str] = field(default_factory=list)
    # A note for the end, if messages were stored.
    closing: str | None = None

    def __iter__(self) -> Iterator[Sent | str]:
        from rmqtool.broker.producer.result import Sent

        self.progress.start("storing", None, "messages")
        told: dict[str, str] = {}
        for sent in self.run.iter_sent(self.messages):
            if isinstance(sent, Sent):
                yield sent
                for status, reason in sent.slave_reasons():
                    told.setdefault(status, reason)
                if sent.refused:
                    yield f"refused: {sent.reasons(about_message=True)}"
                self.progress.advance(len(sent))
            else:
                yield f"{sent.error.message}; left out"
        self.progress.finish()
        yield from (f"{status}: {reason}" for status, reason in told.items())
        if self.moved:
            topics = ", ".join(sorted(self.moved))
            yield f"--topic goes first: {sum(self.moved.values())} lines name {topics}"
        if self.closing is not None and self.run.stored and self.run.error is None and not self.stop.is_asked:
            yield self.closing

    def end(self) -> Exit:
        """Return the exit status after everything is closed; or raise what stopped the run, with how to continue."""
        run, many = self.run, self.run.stored
        done = f"{many} {'message is' if many == 1 else 'messages are'} stored"
        if self.stop.is_asked:
            raise Interrupted(f"stopped: {done}, of {run.taken} read", hint=f"continue with: tail -n +{run.taken + 1}")
        if run.error is not None:
            error = run.error
            error.args = (error.message,)
            if run.stored:
                error.message = f"{error.message}; {done}"
            raise error
        return Exit.SKIPPED if run.refused or run.skipped else Exit.DONE


def put(
    store: Place, messages: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, create: bool = False
) -> list[Stored]:
    """Store messages, objects as ``produce --jsonl`` takes them; on return they are on disk, with their queue entries.

    A single message may be given without a list, and bodies may be bytes. If one of them is not a message, nothing is
    stored. With ``create`` missing topics are created, as a broker creates them.
    """
    given = [messages] if isinstance(messages, Mapping) else messages
    checked = [given_message(message, number) for number, message in enumerate(given, 1)]
    with _put_sink(store, creates=create) as producer:
        for message in checked:
            producer.check(message)
        sent = producer.send(checked)
        if sent.error is not None:
            raise sent.error
        return cast("list[Stored]", list(sent.objects()))


@contextmanager
def _put_sink(store: Place, *, creates: bool) -> Iterator[Sender]:
    """Open a store, the server that holds it, or a live cluster for ``put``."""
    from rmqtool.broker.producer.send import open_producer

    place = store
    with ExitStack() as stack:
        if not is_remote(store):
            root, config = store_of(store).located()
            producer = _entered(stack, open_producer(root, config, creates=creates))
            if not isinstance(producer, StoreInUse):
                yield producer
                return
            from rmqtool.api.shared import server_of

            place = server_of(store, "put", {}, producer)
        from rmqtool.api.shared import sink_of

        yield stack.enter_context(sink_of(place, store, creates=creates))


def _entered(stack: ExitStack, producer: AbstractContextManager[Sender]) -> Sender | StoreInUse:
    """Open a store for a producer, or return that another program holds it."""
    try:
        return stack.enter_context(producer)
    except StoreInUse as error:
        return error


def produce(store: Place, given: Given | None = None, **how: Unpack[How]) -> Iterator[Stored]:
    """Store what is read, and yield the result of each message; raise what stopped it."""
    require_known("produce", how, tuple(How.__annotations__))
    return _produced(store, given or Given(), how)


def _produced(store: Place, given: Given, how: How) -> Iterator[Stored]:
    with producing(store, given, **how) as run:
        for event in run:
            if not isinstance(event, str):
                yield from cast("Iterator[Stored]", event.objects())
    run.end()


@contextmanager
def producing(store: Place, given: Given, progress: Progress | None = None, **how: Unpack[How]) -> Iterator[Producing]:
    """Open a store for a producer; on closing everything is on disk, queues and index too."""
    from rmqtool.broker.producer.run import Run
    from rmqtool.engine.clock import SystemClock
    from rmqtool.engine.interrupts import Stop, stopping
    from rmqtool.progress import NoProgress

    when = _when(how)
    messages, lines, moved, closing = _letters(store, given, how) if how.get("replay") else _input(given, _members(how))
    notes: list[str] = []
    with (
        stopping() if how.get("obeys") else nullcontext(Stop()) as stop,
        _sender(store, how, when, notes) as sender,
    ):
        stop.writes = True
        run = Run(
            sender,
            SystemClock(),
            stop,
            time.sleep,
            batch=how.get("batch", 1),
            rate=how.get("rate"),
            skips=how.get("on_error") == "skip",
            refusals_stop=how.get("on_error") == "stop",
            lines=lines,
            columns=_column_work(messages),
        )
        yield Producing(run, messages, moved, stop, progress or NoProgress(), notes, closing)


def _members(how: How) -> Members:
    """Return the defaults for all messages."""
    from rmqtool.broker.producer.lines import Wanted as Members

    keys = how.get("keys")
    members = {
        "queueId": how.get("queue"),
        "tags": how.get("tag"),
        "keys": " ".join(keys) if keys else None,
        "shardingKey": how.get("shard"),
    }
    given = {name: value for name, value in members.items() if value is not None}
    properties = _properties(how.get("properties"))
    return Members(given, properties, how.get("keep_ids", False), how.get("topic"))


def _properties(given: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(given)
    properties = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{text!r} is not NAME=VALUE", hint="--property colour=red")
        properties[name] = value
    return properties


class _When(TypedDict):
    """When messages are delivered, and the outcome of their transactions."""

    wish: Wish
    outcome: Outcome | None
    group: str


def _when(how: How) -> _When:
    from rmqtool.broker.groups import named_group
    from rmqtool.broker.producer.later import DEFAULT_GROUP, Outcome, Wish
    from rmqtool.times import now_ms, parse_span, parse_time, parse_zone

    delay, at, tx = (cast("str | None", how.get(name)) for name in ("delay", "at", "tx"))
    _refuse_batch(delay, at, tx, how.get("batch", 1))
    if delay is not None and at is not None:
        raise UsageError(
            "--delay and --at exclude each other", hint="--delay 90s counts from now, --at takes a point in time"
        )
    if tx is not None and (delay is not None or at is not None):
        raise UsageError(
            "a transaction cannot be delayed: brokers never check delayed half messages",
            hint="leave out --delay and --at",
        )
    if tx is not None and tx not in list(Outcome):
        raise UsageError(f"--tx {tx!r} is not known", hint="one of commit, rollback, pending")
    replays = how.get("replay", False)
    if how.get("group") is not None and tx is None and not replays:
        raise UsageError("-g is the group of a transaction", hint="add --tx commit, rollback or pending")
    wish = Wish()
    if at is not None:
        wish = Wish(at=parse_time(at, now=now_ms(), zone=parse_zone(how.get("zone", "local"))))
    elif delay is not None:
        wish = Wish(level=int(delay)) if delay.isdecimal() else Wish(span=parse_span(delay))
    outcome = None if tx is None else Outcome(tx)
    group = None if replays else how.get("group")
    return {"wish": wish, "outcome": outcome, "group": named_group(group or DEFAULT_GROUP)}


def _refuse_batch(delay: str | None, at: str | None, tx: str | None, batch: int) -> None:
    """Refuse to combine a batch with a delay or a transaction: no client can send that."""
    if batch > 1 and (delay, at, tx) != (None, None, None):
        name = "--tx" if tx is not None else "--at" if at is not None else "--delay"
        raise UsageError(
            f"--batch {batch} and {name} exclude each other",
            hint=f"leave out --batch, or {name}",
        )


def _letters(store: Place, given: Given, how: How) -> _Input:
    """Return the messages of a group's dead letters: of the lines that are given, else of the dead-letter topic."""
    from rmqtool.api.dead_letters import replay_of, stored_letters
    from rmqtool.broker.producer.lines import Lines, Objects

    replay = replay_of(cast("Json", how))
    files = (*given.bodies, *given.files)
    if given.form == "csv" or (files and given.form == "bodies"):
        raise UsageError("--replay takes dead letters as lines of JSON", hint="--replay -g GROUP --jsonl FILE")
    closing = f"they stay in {replay.dead_letter_topic} too; a second run sends them again"
    if files:
        lines = Lines(_streams(files))
        return _Input(Objects(lines, replay), lines, closing=closing)
    return _Input(stored_letters(store, replay), closing=closing)


class _Input(NamedTuple):
    """Messages, and the lines they are read from."""

    messages: Iterable[NewMessage | Bad]
    lines: Lines | None = None
    # How many lines named another topic than --topic, by that topic.
    moved: Mapping[str, int] = {}
    # A note for the end, if messages were stored.
    closing: str | None = None


def _input(given: Given, members: Members) -> _Input:
    """Return the messages from words, files, or standard input."""
    from rmqtool.broker.producer.lines import Lines, Objects, iter_bodies, iter_table
    from rmqtool.formats.property_names import UNIQ_KEY

    words, files = given.bodies, given.files
    if members.keeps_ids and given.form == "bodies" and UNIQ_KEY not in members.properties:
        raise UsageError(
            "--keep-ids has no effect on bodies: they have no unique keys", hint="give messages with --jsonl or --csv"
        )
    if words and files:
        raise UsageError("give bodies as words or as files, not both", hint="run the command twice")
    if STDIN in words:
        if len(words) > 1:
            raise UsageError(
                "- (standard input) cannot be combined with other bodies",
                hint="give bodies as words, or - to read lines from a pipe",
            )
        words = ()
    if words:
        return _Input(iter_bodies((word.encode("utf-8", "surrogateescape") for word in words), members))
    if files and given.form == "bodies":
        return _Input(iter_bodies(map(_read, files), members))
    lines = Lines(_streams(files))
    if given.form == "jsonl":
        return _Input(Objects(lines, members), lines, members.moved)
    if given.form == "csv":
        return _Input(iter_table(lines, members), lines, members.moved)
    return _Input(iter_bodies((line.rstrip(b"\r\n") for line in lines), members), lines)


def _read(path: str) -> bytes:
    with _opened(path) as file:
        return file.read()


def _streams(files: Sequence[str]) -> Iterator[IO[bytes]]:
    """Yield the files; without files standard input."""
    if not files:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a file, or redirect one: < FILE")
        yield sys.stdin.buffer
    for path in files:
        with _opened(path) as file:
            yield file


def _opened(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == STDIN:
        return nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise ReadFailed(
            f"{path} cannot be read: {error.strerror}", file=path, hint="nothing was stored from it"
        ) from error


def _column_work(messages: Iterable[NewMessage | Bad]) -> Callable[[], ColumnWork] | None:
    """Return the function that turns lines into columns; it loads the large libraries when it is first called."""
    from rmqtool.broker.producer.lines import GIVEN_BY_BROKERS, OF_RETRIES, OVER, OWN, Objects, Wanted

    if not isinstance(messages, Objects) or type(messages.wanted) is not Wanted:
        return None
    wanted = messages.wanted

    def made() -> ColumnWork:
        from rmqtool.columns.incoming import Defaults, IncomingLines

        members = wanted.members if wanted.topic is None else {**wanted.members, "topic": wanted.topic}
        dropped = GIVEN_BY_BROKERS
        kept = wanted.keeps_ids, OF_RETRIES, wanted.topic
        return IncomingLines(Defaults(members, wanted.properties, OWN, dropped, dropped | OVER, *kept))

    return made


@contextmanager
def _sender(store: Place, how: How, when: _When, notes: list[str]) -> Iterator[Sender]:
    """Open a store, the server that holds it, or a live cluster for a producer."""
    creates = how.get("create", False)
    with ExitStack() as stack:
        place = store
        if not is_remote(store):
            sender = _entered(stack, _producer(store_of(store), how, when, notes))
            if not isinstance(sender, StoreInUse):
                yield sender
                return
            from rmqtool.api.shared import server_of

            place = server_of(store, "produce", {"--flush": how.get("flush")}, sender)
            notes += _level_notes(when["wish"].level, store_of(store).located()[1].message_delay_level)
        elif how.get("flush"):
            raise UsageError("--flush is decided by the brokers of a live cluster", hint="leave it out")
        from rmqtool.api.shared import sink_of

        settings = {"group": when["group"], "retry_unknown": how.get("retry_unknown", False)}
        sink = stack.enter_context(sink_of(place, store, creates=creates, **settings))
        sink.deliver(when["wish"], when["outcome"])
        yield sink


@contextmanager
def _producer(store: Store, how: How, when: _When, notes: list[str]) -> Iterator[Sender]:
    """Open the store for a producer."""
    from rmqtool.broker.producer.later import open_later_producer
    from rmqtool.store.open import require_disk

    if how.get("retry_unknown"):
        raise UsageError("--retry-unknown is for a live cluster: a store always answers", hint="leave it out")

    require_disk(store.path)
    if not os.path.lexists(store.path):
        raise StoreError(f"{store.path} does not exist", file=store.path, hint="rmqtool init STORE")
    flush = how.get("flush")
    flushes = [f"flushDiskType={flush.upper()}_FLUSH"] if flush else []
    root, config = Store(store.path, version=store.as_version, conf=[*flushes, *store.assignments]).located()
    notes += _level_notes(when["wish"].level, config.message_delay_level)
    with open_later_producer(root, config, creates=how.get("create", False), **when) as producer:
        yield producer


def _level_notes(level: int | None, levels: str) -> list[str]:
    """Return a note about how long a delay level is; brokers use the last level for numbers above it."""
    delays = levels.split()
    if level is None or not delays:
        return []
    if level > len(delays):
        return [
            f"there is no delay level {level}: brokers use the last one, {len(delays)} ({delays[-1]}); "
            f"for seconds write --delay {level}s"
        ]
    return [f"delay level {level} is {delays[level - 1]}; for seconds write --delay {level}s"] if level else []
