"""What ``produce`` does once its words are understood: read, send, show."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from rmqtool.commands.interrupting import Stop, stopping
from rmqtool.commands.opening import named_group
from rmqtool.commands.produce import OnError
from rmqtool.errors import Exit, Interrupted, ReadFailed, StoreError, UsageError
from rmqtool.times import now_ms, parse_span, parse_time, parse_zone

if TYPE_CHECKING:
    from rmqtool.broker.producer.lines import Bad, Lines, Wanted
    from rmqtool.broker.producer.result import Sent
    from rmqtool.broker.producer.run import Run
    from rmqtool.broker.producer.send import ColumnWork, Producer
    from rmqtool.commands.options import AsBroker, Show, When
    from rmqtool.commands.produce import Later, Marks, Sending
    from rmqtool.engine.message import NewMessage
    from rmqtool.progress import Progress
    from rmqtool.render.output import Output


_STDIN = "-"


def wanted_of(topic: str | None, queue: int | None, marks: Marks, *, keeps_ids: bool) -> Wanted:
    """Return what holds for all messages."""
    from rmqtool.broker.producer.lines import Wanted

    keys = " ".join(marks.key) if marks.key else None
    members = {"queueId": queue, "tags": marks.tag, "keys": keys, "shardingKey": marks.shard}
    properties = {}
    for text in marks.prop or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{text!r} is no NAME=VALUE", hint="--property colour=red")
        properties[name] = value
    given = {name: value for name, value in members.items() if value is not None}
    return Wanted(given, properties, keeps_ids, topic)


def later_of(later: Later, group: str | None, zone: str, batch: int) -> dict[str, Any]:
    """Return when messages are to be delivered, and what becomes of them as transactions."""
    from rmqtool.broker.producer.later import DEFAULT_GROUP, Outcome, Wish

    _refuse_batch(later, batch)
    if later.delay is not None and later.at is not None:
        raise UsageError("--delay and --at both say when", hint="--delay 90s counts from now, --at is a moment")
    if later.tx is not None and (later.delay is not None or later.at is not None):
        raise UsageError(
            "a transaction is not delayed: its check would never find it", hint="leave out --delay and --at"
        )
    if later.tx is not None and later.tx not in list(Outcome):
        raise UsageError(f"--tx {later.tx!r} is not known", hint="one of commit, rollback, pending")
    if group is not None and later.tx is None:
        raise UsageError("-g is the group of a transaction", hint="add --tx commit, rollback or pending")
    wish = Wish()
    if later.at is not None:
        wish = Wish(at=parse_time(later.at, now=now_ms(), zone=parse_zone(zone)))
    elif later.delay is not None:
        wish = Wish(level=int(later.delay)) if later.delay.isdecimal() else Wish(span=parse_span(later.delay))
    return {
        "wish": wish,
        "outcome": None if later.tx is None else Outcome(later.tx),
        "group": named_group(group or DEFAULT_GROUP),
    }


def _refuse_batch(later: Later, batch: int) -> None:
    """Refuse a batch that is to be delivered later, or a transaction: a client has no such thing."""
    if batch > 1 and (later.delay, later.at, later.tx) != (None, None, None):
        name = "--tx" if later.tx is not None else "--at" if later.at is not None else "--delay"
        raise UsageError(
            f"a client's batch is neither delayed nor a transaction: --batch {batch} and {name} exclude each other",
            hint=f"leave out --batch, or {name}",
        )


class Input(NamedTuple):
    """Messages, and what their lines are read from."""

    messages: Iterable[NewMessage | Bad]
    lines: Lines | None = None
    # Lines that named another topic than --topic, by that topic.
    moved: Mapping[str, int] = {}


def open_input(words: Sequence[str], files: Sequence[str], wanted: Wanted, show: Show) -> Input:
    """Return the messages of the command line, of files, or of standard input."""
    from rmqtool.broker.producer.lines import Lines, Objects, iter_bodies, iter_table

    if _STDIN in words:
        if len(words) > 1:
            raise UsageError(
                "- is standard input, and stands alone", hint="bodies as words, or - with the lines of a pipe"
            )
        words = ()
    if words:
        return Input(iter_bodies((word.encode("utf-8", "surrogateescape") for word in words), wanted))
    if files and not (show.jsonl or show.csv):
        return Input(iter_bodies(map(_read, files), wanted))
    lines = Lines(_streams(files))
    if show.jsonl:
        return Input(Objects(lines, wanted), lines, wanted.moved)
    if show.csv:
        return Input(iter_table(lines, wanted), lines, wanted.moved)
    return Input(iter_bodies((line.rstrip(b"\r\n") for line in lines), wanted), lines)


def _read(path: str) -> bytes:
    with _opened(path) as file:
        return file.read()


def _streams(files: Sequence[str]) -> Iterator[IO[bytes]]:
    """Yield files, standard input if there are none."""
    if not files:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a file, or give the lines: < FILE")
        yield sys.stdin.buffer
    for path in files:
        with _opened(path) as file:
            yield file


def _opened(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == _STDIN:
        return nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise ReadFailed(
            f"{path} cannot be read: {error.strerror}", file=path, hint="nothing of it was stored"
        ) from error


def run(
    path: str,
    source: Input,
    sending: Sending,
    later: dict[str, Any],
    on_error: OnError | None,
    progress: When,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Store the messages; return how it went."""
    from rmqtool.broker.producer.run import Run
    from rmqtool.commands.options import Work
    from rmqtool.engine.clock import SystemClock

    with show.output() as output, stopping() as stop, _producing(output, path, sending, later, broker) as producer:
        stop.writes = True
        run = Run(
            producer,
            SystemClock(),
            stop,
            time.sleep,
            batch=sending.batch,
            rate=sending.rate,
            skips=on_error is OnError.SKIP,
            refusals_stop=on_error is OnError.STOP,
            lines=source.lines,
            columns=_column_work(source.messages),
        )
        _show_all(output, run, source.messages, Work(progress=progress).bar(output))
        if source.moved:
            topics = ", ".join(sorted(source.moved))
            output.note(f"--topic goes first: {sum(source.moved.values())} lines name {topics}")
    return _end(run, stop)


def _column_work(messages: Iterable[NewMessage | Bad]) -> Callable[[], ColumnWork] | None:
    """Return what makes columns of lines; its libraries are loaded when there are many."""
    from rmqtool.broker.producer.lines import GIVEN_BY_BROKERS, OF_RETRIES, OVER, OWN, Objects

    if not isinstance(messages, Objects):
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
def _producing(
    output: Output, path: str, sending: Sending, later: dict[str, Any], broker: AsBroker
) -> Iterator[Producer]:
    """Open the store for a producer."""
    from rmqtool.broker.producer.later import open_later_producer
    from rmqtool.store.open import open_store

    if not os.path.lexists(path):
        raise StoreError(f"{path} does not exist", file=path, hint="rmqtool init STORE makes a new store")
    flush = [f"flushDiskType={sending.flush.value.upper()}_FLUSH"] if sending.flush else []
    assignments = (*flush, *(broker.conf or ()))
    with open_store(path, version=broker.as_version, assignments=assignments) as opened:
        root, config = opened.root, opened.config
    _note_level(output, later["wish"].level, config.message_delay_level)
    with open_later_producer(root, config, creates=sending.create, **later) as producer:
        yield producer


def _note_level(output: Output, level: int | None, levels: str) -> None:
    """Say how long a level is; one above the last is taken for the last one, as brokers do."""
    delays = levels.split()
    if level is None or not delays:
        return
    if level > len(delays):
        output.note(
            f"there is no delay level {level}: as a broker does, the last is taken, {len(delays)} ({delays[-1]}); "
            f"--delay {level}s is a span"
        )
    elif level:
        output.note(f"delay level {level} is {delays[level - 1]}; --delay {level}s is a span")


def _show_all(output: Output, run: Run, messages: Iterable[NewMessage | Bad], bar: Progress) -> None:
    """Show what becomes of the messages."""
    from rmqtool.broker.producer.result import Sent

    bar.start("storing", None, "messages")
    told: dict[str, str] = {}
    for sent in run.iter_sent(messages):
        if isinstance(sent, Sent):
            _show(output, sent)
            output.flush()
            for status, reason in sent.slave_reasons():
                told.setdefault(status, reason)
            if sent.refused:
                output.note(f"refused: {sent.reasons(about_message=True)}")
            bar.advance(len(sent))
        else:
            output.note(f"{sent.error.message}; left out")
    bar.finish()
    for status, reason in told.items():
        output.note(f"{status}: {reason}")


def _show(output: Output, sent: Sent) -> None:
    from rmqtool.broker.producer.result import FIELDS

    if output.look.mode in ("json", "jsonl"):
        output.json_lines([sent.json_lines()])
    else:
        output.rows(sent.objects(), FIELDS, partial(_screen, output))


def _screen(output: Output, row: Any) -> tuple[str]:
    if row["commitLogOffset"] < 0:
        return (f"{row['topic']}: {row['status']}",)
    if "realTopic" in row:
        due = output.time(row["deliverTimestamp"])
        place = f"{row['topic']}/{row['queueId']}@{row['queueOffset']}"
        return (f"{row['realTopic']} at {due}  {row['msgId']}  waits in {place}",)
    return (f"{row['topic']}/{row['queueId']}@{row['queueOffset']}  {row['msgId']}",)


def _end(run: Run, stop: Stop) -> Exit:
    """Return the status, or say how far it came and how to go on."""
    done = f"{run.stored} messages are stored"
    if stop.is_asked:
        raise Interrupted(f"stopped: {done}, of {run.taken} read", hint=f"go on with: tail -n +{run.taken + 1}")
    if run.error is not None:
        error = run.error
        error.args = (error.message,)
        if run.stored:
            error.message = f"{error.message}; {done}"
        raise error
    return Exit.SKIPPED if run.refused or run.skipped else Exit.DONE
