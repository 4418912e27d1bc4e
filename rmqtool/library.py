"""What the commands do, for programs: ``import rmqtool`` offers these functions by name.

A store is given as STORE of the command line is, or open, as ``open`` returns it. Results are what ``--json`` prints,
as Python's own values; damage is among them, and only what ends a command is raised, as a ``RmqtoolError``. Messages
come lazily, so a store of any size can be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rmqtool.config import StoreConfig, Version
from rmqtool.errors import UsageError
from rmqtool.store.open import Store, open_store

if TYPE_CHECKING:
    import pyarrow

    from rmqtool.checks.check import Check
    from rmqtool.columns.batches import Projection
    from rmqtool.engine.message import NewMessage
    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection
    from rmqtool.log.sources import Source
    from rmqtool.log.stream import Request

Place = str | os.PathLike[str] | Store
# Epoch milliseconds, a datetime with its zone, or a text as --begin takes it: "2026-08-23T15:00", "-2h".
Time = int | datetime | str
Json = dict[str, Any]


class Which(TypedDict, total=False):
    """Which messages: the common options of the commands. Times are store times, half-open."""

    topics: str | Sequence[str]
    queue: int
    begin: Time
    end: Time
    tags: str
    key: str
    where: str


_WHICH = tuple(Which.__annotations__)
# What other tools and our own command line call them.
_MEANT = {
    "topic": "topics",
    "tag": "tags",
    "keys": "key",
    "since": "begin",
    "start": "begin",
    "until": "end",
    "queue_id": "queue",
    "queueId": "queue",
    "n": "limit",
    "body_encoding": "bodyEncoding",
    "delay": "delayLevel",
    "deliver_at": "deliverAt",
    "sharding_key": "shardingKey",
}


def open(path: str | os.PathLike[str], *, version: str | None = None, conf: Mapping[str, str] | None = None) -> Store:  # noqa: A001
    """Open a store for reading, once for several questions. A context manager closes it.

    ``version`` is the broker whose rules answer ("4.9", "5.3", "5.4"; default: guessed), ``conf`` has settings as in
    broker.conf.
    """
    settings = tuple(f"{name}={value}" for name, value in (conf or {}).items())
    return open_store(os.fspath(path), version=_version(version), assignments=settings)


def info(store: Place) -> Json:
    """Return the store at a glance: files, topics, queues, groups with their lag, what is wrong at first sight."""
    from rmqtool.look.overview import read_overview

    with _opened(store) as opened:
        return read_overview(opened).as_json()


def scan(
    store: Place, *, order: str = "log", limit: int | None = None, jobs: int = 1, **which: Unpack[Which]
) -> Iterator[Json]:
    """Yield messages as ``cat --jsonl`` prints them; damage is an object of the single key "damage", in its place.

    ``order`` is "log", "queue" or "time".
    """
    _require_known("scan", which)
    return _iter_rows(store, _request(which, order, limit), _effort(jobs))


def _iter_rows(store: Place, request: Request, effort: Effort) -> Iterator[Json]:
    from rmqtool.log.read import Damage, Part
    from rmqtool.log.stream import iter_messages, iter_rows

    with _source(store) as source:
        for found in iter_messages(source, request, effort):
            if isinstance(found, Damage):
                yield found.as_json()
            elif isinstance(found, Part):
                for row in iter_rows(found):
                    yield row.fields
                    if row.damage is not None:
                        yield row.damage.as_json()


def batches(
    store: Place, *, columns: Sequence[str] | None = None, jobs: int = 1, **which: Unpack[Which]
) -> pyarrow.RecordBatchReader:
    """Return messages as a reader of Arrow batches, with the columns of ``export``.

    It has a ``schema``, and whatever takes Arrow streams takes it. Damage is left out; ``check`` finds it.
    """
    import pyarrow

    from rmqtool.columns.batches import COLUMNS, Projection
    from rmqtool.exports.choice import check_columns

    _require_known("batches", which)
    projection = Projection(columns=COLUMNS if columns is None else check_columns(columns))
    found = _iter_batches(store, projection, _request(which, "log", None), _effort(jobs))
    return pyarrow.RecordBatchReader.from_batches(projection.schema(), found)


def _iter_batches(
    store: Place, projection: Projection, request: Request, effort: Effort
) -> Iterator[pyarrow.RecordBatch]:
    from rmqtool.columns.batches import iter_batches
    from rmqtool.log.read import Part
    from rmqtool.log.stream import iter_messages

    with _source(store) as source:
        for found in iter_messages(source, request, effort):
            if isinstance(found, Part):
                yield from (batch.batch for batch in iter_batches(found.records, projection))


def query(
    store: Place,
    what: str,
    *,
    kind: str | None = None,
    history: bool = False,
    limit: int | None = None,
    **which: Unpack[Which],
) -> Json:
    """Find a message by an id, a key, "TOPIC/QUEUE@OFFSET" or "@OFFSET", and say what proves the answer.

    Of ``which``, topics, queue and times narrow the search. With ``history`` the answer tells the message's story.
    """
    from rmqtool.engine.clock import SystemClock
    from rmqtool.formats.message_json import message_json
    from rmqtool.look.lookup import Lookup, answer_head
    from rmqtool.look.question import Narrowing, NoSuchQuestion, QuestionKind, ask, guess_question
    from rmqtool.store.time_search import Boundary

    _require_known("query", which, ("topics", "queue", "begin", "end"))
    try:
        question = guess_question(what, int) if kind is None else ask(what, QuestionKind(kind), int)
    except (NoSuchQuestion, ValueError) as error:
        raise UsageError(str(error), hint=f"kinds are {', '.join(QuestionKind)}") from error
    narrowed = _selection(which)
    narrowing = Narrowing(
        topics=narrowed.topics, queue_id=narrowed.queue_id, begin=narrowed.begin, end=narrowed.end, limit=limit
    )
    with _opened(store) as opened:
        as_asked = opened.version_reason == "as asked"
        answer = Lookup(opened, narrowing, Boundary.LOWER, as_asked, lambda: _effort(1)).find(question)
        head = answer_head(opened, answer, SystemClock().now(), history=history)
        return {**head, "messages": [message_json(message).fields for message in answer.iter_messages(opened)]}


def stat(store: Place, by: str | Sequence[str] = "topic", *, jobs: int = 1, **which: Unpack[Which]) -> Json:
    """Count messages and bytes by topic, queue, tag, key, producer, group, hour, day, size, kind, or several."""
    from rmqtool.look.statistics import Wish, read_statistics

    _require_known("stat", which)
    names = (by,) if isinstance(by, str) else tuple(by)
    with _opened(store) as opened:
        return read_statistics(opened, _selection(which), [Wish(names)], _effort(jobs))[0].as_json()


def dump(target: str | os.PathLike[str], *, as_declared: bool = False) -> Json:
    """Name every byte of a file, of a part of it ("FILE@START-END"), or of the record at "STORE@OFFSET".

    With ``as_declared`` the layouts of ``rmqtool.formats.declarations`` parse it; what has none is refused.
    """
    from rmqtool.look.dump import open_target, parse_target

    if as_declared:
        from rmqtool.look.as_declared import open_declared

        with open_declared(parse_target(os.fspath(target))) as found:
            return {**found.head, "layouts": [parsed.as_json() for parsed in found.parsed]}
    with open_target(parse_target(os.fspath(target))) as shown:
        head = {"file": shown.dump.file, "size": shown.dump.size, "kind": shown.dump.kind.value}
        rows = {} if shown.rows is None else {"rows": [row.as_json() for row in shown.rows]}
        return {**head, "regions": [region.as_json() for region in shown.dump.regions], **rows}


def check(store: Place, *, only: Sequence[str] = (), deep: bool = False, jobs: int = 1) -> Check:
    """Compare every part of a store with every other. Iterating yields each ``Finding``; ``summary`` is whole then."""
    from rmqtool.checks.case import Depth
    from rmqtool.checks.check import Check, CheckOptions

    options = CheckOptions(depth=Depth.DEEP if deep else Depth.DEFAULT, only=tuple(only))
    return Check(store if isinstance(store, Store) else open(store), options, _effort(jobs))


def diff(a: Place, b: Place, *, by: str = "queue", jobs: int = 1) -> Json:
    """Compare what the queues of two stores serve; by "log" the bytes of their logs, by "message" their messages."""
    from rmqtool.look.diff import By, DiffOptions, compare_stores, diff_head, iter_json_rows

    if by not in list(By):
        raise UsageError(f'"{by}" is nothing to compare by', hint=f"one of {', '.join(By)}")
    with _opened(a) as one, _opened(b) as other:
        found = compare_stores(one, other, DiffOptions(By(by)), _effort(jobs))
        return {**diff_head(found, (one, other), topics=False), "rows": list(iter_json_rows(found, one, other))}


def recover(store: Place) -> Json:
    """Say what the next start of the store's broker would do and destroy. Nothing is changed."""
    from rmqtool.upstream.rehearsal import rehearse

    with _opened(store) as opened, rehearse(opened) as rehearsal:
        return rehearsal.run().as_json()


def init(path: str | os.PathLike[str], *, version: str = "5.3", conf: Mapping[str, str] | None = None) -> None:
    """Make an empty store with a broker.conf."""
    from rmqtool.engine.load import create_store
    from rmqtool.files.posix_write import PosixWritableFileSystem

    root = os.path.abspath(path)
    settings = {"storePathRootDir": root, **(conf or {})}
    config = StoreConfig.default(_version(version) or Version.V5_3).with_assignments(
        [f"{name}={value}" for name, value in settings.items()], takes_unused=True
    )
    os.makedirs(root, exist_ok=True)
    with PosixWritableFileSystem(root) as filesystem:
        create_store(filesystem, config)


def put(store: Place, messages: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, create: bool = False) -> list[Json]:
    """Store messages, objects as ``produce --jsonl`` takes them; on return they are on the disk, with their queues.

    One message may come alone, and bodies may be bytes. What is no message is refused before anything is stored. With
    ``create`` topics that are not there are made, as a broker makes them.
    """
    from rmqtool.broker.producer.send import open_producer

    given = [messages] if isinstance(messages, Mapping) else messages
    checked = [_message_of(message, number) for number, message in enumerate(given, 1)]
    with _opened(store) as opened:
        root, config = opened.root, opened.config
    with open_producer(root, config, creates=create) as producer:
        for message in checked:
            producer.check(message)
        return list(producer.send(checked).objects())


def export(
    stores: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    to: str | os.PathLike[str],
    *,
    since_last: bool = False,
    jobs: int = 1,
    **which: Unpack[Which],
) -> Json:
    """Write messages as Parquet without Spark, and return what ``export --json`` prints."""
    from rmqtool.exports.choice import Choice, OnCorrupt
    from rmqtool.exports.run import Request, local_engine, run_export

    _require_known("export", which, ("topics", "queue", "begin", "end"))
    wanted = _selection(which)
    choice = Choice(
        topics=wanted.topics.patterns,
        queue_id=wanted.queue_id,
        begin=wanted.begin,
        end=wanted.end,
        on_corrupt=OnCorrupt.EMIT,
    )
    paths = [stores] if isinstance(stores, str | os.PathLike) else stores
    request = Request(
        paths=tuple(os.fspath(path) for path in paths), directory=os.fspath(to), choice=choice, since_last=since_last
    )
    return run_export(request, local_engine(_effort(jobs))).as_json(request.directory)


@contextmanager
def _opened(place: Place) -> Iterator[Store]:
    """Open a store; one that is open already is left so."""
    if isinstance(place, Store):
        yield place
        return
    with open(place) as store:
        yield store


@contextmanager
def _source(place: Place) -> Iterator[Source]:
    from rmqtool.log.sources import open_source, source_of

    if isinstance(place, Store):
        yield source_of(place)
        return
    with open_source(os.fspath(place), open_store) as source:
        yield source


def _request(which: Which, order: str, limit: int | None) -> Request:
    from rmqtool.log.order import Order
    from rmqtool.log.stream import Request

    if order not in list(Order):
        raise UsageError(f'"{order}" is no order', hint=f"one of {', '.join(Order)}")
    return Request(_selection(which), Order(order), limit=limit)


def _selection(which: Which) -> Selection:
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.filters.sql92 import parse_selector
    from rmqtool.filters.tags import parse_tags
    from rmqtool.log.select import Selection

    topics = which.get("topics", ())
    tags, where = which.get("tags"), which.get("where")
    return Selection(
        topics=parse_patterns([topics] if isinstance(topics, str) else topics),
        queue_id=which.get("queue"),
        begin=_milliseconds(which.get("begin")),
        end=_milliseconds(which.get("end")),
        tags=None if tags is None else parse_tags(tags),
        key=which.get("key"),
        where=None if where is None else parse_selector(where, whole=True),
    )


def _milliseconds(time: Time | None) -> int | None:
    from rmqtool.times import now_ms, parse_time

    if isinstance(time, str):
        return parse_time(time, now=now_ms())
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise UsageError(f"{time} has no zone", hint="datetime(..., tzinfo=UTC)")
        return round(time.timestamp() * 1000)
    if time is None or (isinstance(time, int) and not isinstance(time, bool)):
        return time
    raise TypeError(f"a time is epoch milliseconds, a datetime or a text, not {time!r}")


def _require_known(function: str, which: Mapping[str, Any], known: Sequence[str] = _WHICH) -> None:
    """Raise TypeError for a keyword that would have no effect, and say which one is meant."""
    for name in which:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{_meant(name, known)}")


def _meant(name: str, known: Sequence[str]) -> str:
    meant = _MEANT.get(name) or next(iter(get_close_matches(name, known, n=1)), None)
    return f"; did you mean {meant!r}?" if meant in known else f"; it takes {', '.join(known)}"


def _message_of(message: Mapping[str, Any], number: int) -> NewMessage:
    """Return the message that a dictionary describes; raise UsageError for what would be passed over, too."""
    from rmqtool.broker.producer.lines import MEMBERS, message_of
    from rmqtool.formats.message_json import FIELDS

    if not isinstance(message, Mapping):
        raise TypeError(f"message {number} is {message!r:.60}: a message is a dictionary")
    for name in message:
        if name not in MEMBERS and name not in FIELDS:
            hint = _meant(str(name), MEMBERS).removeprefix("; ")
            raise UsageError(f'message {number} has an unknown member "{name}"', hint=hint)
    if message.get("body") is None and message.get("bodyEncoding") != "none":
        raise UsageError(f'message {number} has no "body"', hint='"body" is a text or bytes')
    try:
        return message_of(dict(message))
    except UsageError as error:
        raise UsageError(f"message {number}: {error.message}", hint=error.hint) from None


def _version(text: str | None) -> Version | None:
    if text is None:
        return None
    if text not in list(Version):
        raise UsageError(f'"{text}" is no version', hint=f"one of {', '.join(Version)}")
    return Version(text)


def _effort(jobs: int) -> Effort:
    from rmqtool.log.ranges import Effort

    return Effort(jobs)
