"""``cat``: read messages in any order, with damage in its place: as objects, as lines of JSON, as columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.cluster import opened_cluster
from rmqtool.api.store import Place, is_remote, source_at, store_of
from rmqtool.api.wanted import (
    Json,
    Said,
    Which,
    Working,
    count_there,
    effort_of,
    require_known,
    unknown_places,
    unread_by,
    wanted_of,
)
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    import pyarrow

    from rmqtool.api.shapes import Damage as DamageJson
    from rmqtool.api.shapes import Message
    from rmqtool.columns.batches import Projection
    from rmqtool.formats.layout import Buffer
    from rmqtool.log.body_program import BodyProgram
    from rmqtool.log.ranges import Effort
    from rmqtool.log.read import Damage, Note, Part
    from rmqtool.log.sources import Source
    from rmqtool.log.stream import Request
    from rmqtool.progress import Progress

# Seconds between two looks at a log that is followed.
_PAUSE = 0.1


class OrderBy(StrEnum):
    """The order in which messages come."""

    LOG = "log"
    QUEUE = "queue"
    TIME = "time"


class BodyStyle(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"
    NONE = "none"


class Form(StrEnum):
    """The form of the events: messages as objects, whole lines of JSON, or only their number."""

    OBJECTS = "objects"
    LINES = "lines"
    COUNT = "count"


class How(TypedDict, total=False):
    """Which messages, in addition to ``Which``, and how they come.

    ``offset`` is the first queue offset; -N takes the last N. ``limit`` ends the stream; ``sample`` is the size of a
    random sample. ``unread_by`` names a group: only messages that it has not consumed. ``body_re`` is a pattern that
    bodies must contain. ``follow`` waits for more; ``carve`` reads the records that are in any file. ``decode`` is a
    program for bodies ("cmd:PROGRAM").
    """

    order: str
    offset: int | None
    limit: int | None
    sample: int | None
    unread_by: str | None
    body_re: str | None
    follow: bool
    carve: bool
    body: BodyStyle
    decode: str | None
    form: Form


class Lines(NamedTuple):
    """Whole lines of JSON, lines of damage among them."""

    data: Sequence[Buffer]


@dataclass
class Reading:
    """A log open for reading: iterate over its events. ``damages`` and ``messages`` grow as they come.

    An event is ``Lines``, a message (an object), damage (an object with the single key "damage"), a text for the user,
    or None when there is no more for now.
    """

    events: Iterator[Lines | Json | str | None]
    unknown: Said | None = None
    messages: int = 0
    damages: list[Damage] = field(default_factory=list)
    there: int | None = None
    is_unmatched: bool = False

    def __iter__(self) -> Iterator[Lines | Json | str | None]:
        return self.events

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        known = Exit.DONE if self.unknown is None else self.unknown.status
        return worst(known, Exit.SKIPPED if self.damages else Exit.DONE)

    def count(self, event: Any) -> None:
        """Add what was found in a range to the counts."""
        self.messages += event.found.messages
        self.damages += event.found.damages


def scan(
    store: Place, *, order: str = "log", limit: int | None = None, jobs: int = 1, **which: Unpack[Which]
) -> Iterator[Message | DamageJson]:
    """Yield messages as ``cat --jsonl`` prints them, and damage in its place: an object with the single key "damage".

    ``order`` is "log", "queue" or "time".
    """
    require_known("scan", which)
    how: How = {"order": order, "limit": limit}
    request = request_of(how, which)
    return cast("Iterator[Message | DamageJson]", _iter_objects(store, how, request, effort_of(jobs)))


def _iter_objects(store: Place, how: How, request: Request, effort: Effort) -> Iterator[Json]:
    if is_remote(store):
        with _remote_reading(store, how, request, effort.progress) as found:
            yield from (one for one in found if isinstance(one, dict))
        return
    with source_at(store) as source:
        _warn(source)
        yield from (one for one in _reading(source, how, request, effort) if isinstance(one, dict))


def _warn(source: Source) -> None:
    """Warn a program about messages that are not read, as ``cat`` tells a person."""
    import warnings

    if source.note is not None:
        warnings.warn(source.note, stacklevel=3)


def batches(
    store: Place | Sequence[Place], *, columns: Sequence[str] | None = None, jobs: int = 1, **which: Unpack[Which]
) -> pyarrow.RecordBatchReader:
    """Return messages as a reader of Arrow batches, with the columns of ``export``.

    Several stores are read one after the other, and ``broker`` tells them apart. The reader has a ``schema``, and every
    library that reads Arrow streams can read it. Damage is left out; ``check`` finds it.
    """
    import pyarrow

    from rmqtool.columns.batches import COLUMNS, Projection
    from rmqtool.exports.choice import check_columns

    require_known("batches", which)
    projection = Projection(columns=COLUMNS if columns is None else check_columns(columns))
    stores = [store] if isinstance(store, str) or not isinstance(store, Sequence) else store
    found = _iter_batches(stores, projection, request_of({}, which), effort_of(jobs))
    return pyarrow.RecordBatchReader.from_batches(projection.schema(), found)


def _iter_batches(
    stores: Sequence[Place], projection: Projection, request: Request, effort: Effort
) -> Iterator[pyarrow.RecordBatch]:
    from dataclasses import replace

    from rmqtool.columns.batches import iter_batches
    from rmqtool.log.read import Part
    from rmqtool.log.sources import broker_names, read_store_directories

    names: list[str | None] = [None] * len(stores)
    if len(stores) > 1 and "broker" in projection.columns and not any(map(is_remote, stores)):
        names = [*broker_names([read_store_directories(store_of(place).path) for place in stores])]
    for place, name in zip(stores, names, strict=True):
        named = replace(projection, broker=name)
        with _parts_at(place, request, effort) as found:
            for part in found:
                if isinstance(part, Part):
                    yield from (batch.batch for batch in iter_batches(part.records, named))


@contextmanager
def _parts_at(store: Place, request: Request, effort: Effort) -> Iterator[Iterator[Part | Damage | Note]]:
    """Give the messages of a store, or of a live cluster."""
    from rmqtool.api.remote import parts_of, plan_of
    from rmqtool.log.stream import iter_messages

    if not is_remote(store):
        with source_at(store) as source:
            _warn(source)
            yield iter_messages(source, request, effort)
        return
    with opened_cluster(store) as cluster:
        plan, request, _ = cluster.run(plan_of(cluster.connections, request, None, follows=False))
        yield cluster.face.iterate(parts_of(cluster.connections, plan, request, follows=False))


@contextmanager
def reading(store: Place, how: How, work: Working | None = None, **which: Unpack[Which]) -> Iterator[Reading]:
    """Open the store, queue or file at a path, and read its messages."""
    require_known("reading", which)
    _refuse_clashes(how)
    request = request_of(how, which)
    if how.get("carve"):
        yield _carving(store_of(store).path, how, request)
        return
    if is_remote(store):
        with _remote_reading(store, how, request, effort_of(**(work or {})).progress) as remote:
            yield remote
        return
    with source_at(store) as source:
        group = how.get("unread_by")
        if group is not None:
            request = _unread(source, group, request)
        unknown = unknown_places([source.store], request.selection)
        found = _reading(source, how, request, effort_of(**(work or {})))
        found.unknown = unknown
        found.events = _to_the_end(found, found.events, source, request)
        yield found


@contextmanager
def _remote_reading(place: Place, how: How, request: Request, progress: Progress) -> Iterator[Reading]:
    """Open a live cluster, and read the messages that are there now, or as they come."""
    from rmqtool.api.remote import parts_of, plan_of
    from rmqtool.log.order import Order
    from rmqtool.log.stream import iter_limited

    if request.sample is not None:
        raise UsageError("--sample needs the files of a store", hint="give the storePathRootDir of a broker")
    follows = bool(how.get("follow"))
    with opened_cluster(place) as cluster:
        plan, request, unknown = cluster.run(
            plan_of(cluster.connections, request, how.get("unread_by"), follows=follows)
        )
        if not follows:
            progress.start("reading", plan.messages, "messages")
            plan.advance = progress.advance
        parts: Iterator[Part | Damage | Note] = cluster.face.iterate(
            parts_of(cluster.connections, plan, request, follows=follows)
        )
        if request.last is not None and request.order is not Order.QUEUE:
            parts = _last_of(parts, request.last)
        if request.limit is not None:
            parts = iter_limited(parts, request.limit)
        found = Reading(iter(()), unknown)
        found.events = _counted(found, parts) if how.get("form") is Form.COUNT else _iter_parts(found, parts, how)
        found.events = _unmatched(found, found.events, request)
        try:
            yield found
        finally:
            progress.finish()


def _last_of(parts: Iterator[Part | Damage | Note], count: int) -> Iterator[Part | Damage | Note]:
    """Yield the last messages of a stream; each queue gave its own last ones."""
    from collections import deque

    from rmqtool.log.read import Part

    kept: deque[Part] = deque()
    size = 0
    for part in parts:
        if not isinstance(part, Part):
            yield part
            continue
        kept.append(part)
        size += len(part.records)
        while size - len(kept[0].records) >= count:
            size -= len(kept.popleft().records)
    for part in kept:
        first = max(size - count, 0)
        size -= len(part.records)
        yield part._replace(records=part.records.select(slice(first, None)))
        count -= len(part.records) - first


def _unmatched(
    found: Reading, events: Iterator[Lines | Json | str | None], request: Request
) -> Iterator[Lines | Json | str | None]:
    """Yield what comes; at the end say whether no message matched."""
    yield from events
    found.is_unmatched = not found.messages and found.unknown is None and request.limit != 0


def _to_the_end(
    found: Reading, events: Iterator[Lines | Json | str | None], source: Source, request: Request
) -> Iterator[Lines | Json | str | None]:
    """Yield the events; at the end note whether no message matched."""
    yield from events
    if not found.messages and found.unknown is None and request.limit != 0:
        found.is_unmatched, found.there = True, count_there(source.store, request.selection)


_LEAVE = "leave out one of the two"
_WHENCE = ("--unread and --offset exclude each other", "leave out one of the two")
_AS_WRITTEN = ("-f cannot be combined with --order, --sample or --count", _LEAVE)
_CARVE = ("--carve cannot be combined with options that need a store", _LEAVE)
_ALL = ("--count cannot be combined with --order, --sample, --limit or --decode", _LEAVE)


def _refuse_clashes(how: How) -> None:
    """Raise UsageError for options that exclude each other."""
    arranged = how.get("order", "log") != "log" or how.get("sample") is not None
    counts, follows = how.get("form") is Form.COUNT, how.get("follow", False)
    unread, has_offset = how.get("unread_by") is not None, how.get("offset") is not None
    clashes = (
        (unread and has_offset, _WHENCE),
        (follows and (arranged or counts), _AS_WRITTEN),
        (how.get("carve", False) and (follows or arranged or unread or has_offset), _CARVE),
        (counts and (arranged or how.get("limit") is not None or how.get("decode") is not None), _ALL),
    )
    for clash, (why, hint) in clashes:
        if clash:
            raise UsageError(why, hint=hint)


def request_of(how: How, which: Which) -> Request:
    """Return what is asked of a log. Raises UsageError."""
    from rmqtool.log.order import Order
    from rmqtool.log.select import Selection
    from rmqtool.log.stream import Request

    order, offset = how.get("order", "log"), how.get("offset")
    if order not in list(Order):
        raise UsageError(f'unknown order "{order}"', hint=f"one of {', '.join(Order)}")
    wanted = wanted_of(which, body=how.get("body_re"), limit=how.get("limit"))
    least = offset if offset is not None and offset >= 0 else None
    last = -offset if offset is not None and offset < 0 else None
    return Request(Selection.of(wanted, least_offset=least), Order(order), last, how.get("sample"))


def _unread(source: Source, group: str, request: Request) -> Request:
    from dataclasses import replace

    if source.store is None:
        raise UsageError("-g needs a whole store", hint="give the storePathRootDir of a broker")
    return replace(request, selection=unread_by(source.store, group, request.selection))


def _carving(path: str, how: How, request: Request) -> Reading:
    from rmqtool.log.read import iter_carved
    from rmqtool.log.sources import LogFile
    from rmqtool.log.stream import iter_limited
    from rmqtool.store.open import absolute, is_file, size_of

    if not is_file(path):
        raise UsageError(f"{path} is not a file", hint="rmqtool cat --carve FILE")
    directory, name = os.path.split(absolute(path))
    found = iter_carved(LogFile(0, size_of(path), directory, name, name), request.selection)
    limited = found if request.limit is None else iter_limited(found, request.limit)
    made = Reading(iter(()))
    made.events = _counted(made, found) if how.get("form") is Form.COUNT else _iter_parts(made, limited, how)
    return made


def _reading(source: Source, how: How, request: Request, effort: Effort) -> Reading:
    import time
    from functools import partial

    from rmqtool.log.stream import iter_followed, iter_lines, iter_messages, iter_numbers

    found, form = Reading(iter(())), how.get("form", Form.OBJECTS)
    if form is Form.COUNT:
        found.events = _counted(found, iter_numbers(source, request, effort))
    elif how.get("follow"):
        pause = partial(time.sleep, _PAUSE)
        found.events = _iter_parts(found, iter_followed(source, request, effort, pause), how)
    elif form is Form.LINES and request.is_plain:
        found.events = _iter_lines(found, iter_lines(source, request, effort))
    else:
        found.events = _iter_parts(found, iter_messages(source, request, effort), how)
    if source.note is not None:
        found.events = chain([source.note], found.events)
    return found


def _counted(found: Reading, events: Iterator[Any]) -> Iterator[str]:
    from rmqtool.log.ranges import Answered
    from rmqtool.log.read import Note, Part

    for event in events:
        if isinstance(event, Part):
            found.messages += len(event.records)
        elif isinstance(event, Answered):
            found.count(event)
        elif isinstance(event, Note):
            yield event.text
        else:
            found.damages.append(event)


def _iter_lines(found: Reading, events: Iterator[Any]) -> Iterator[Lines | Json | str]:
    from rmqtool.log.ranges import Answered
    from rmqtool.log.read import Note

    for event in events:
        if isinstance(event, Answered):
            yield Lines(event.data)
            found.count(event)
        elif isinstance(event, Note):
            yield event.text
        else:
            yield event.as_json()
            found.damages.append(event)


def _iter_parts(
    found: Reading, events: Iterator[Part | Damage | Note | None], how: How
) -> Iterator[Lines | Json | str | None]:
    from rmqtool.log.body_program import BodyProgram
    from rmqtool.log.read import Note, Part
    from rmqtool.log.stream import iter_texts

    command = how.get("decode")
    with nullcontext() if command is None else BodyProgram(command) as program:
        for event in events:
            if isinstance(event, Part) and how.get("form") is Form.LINES:
                found.messages += len(event.records)
                for text in iter_texts(event):
                    yield Lines([text.data])
                    found.damages += text.damages
            elif isinstance(event, Part):
                found.messages += len(event.records)
                yield from _iter_rows(found, event, how.get("body", BodyStyle.TEXT), program)
            elif isinstance(event, Note):
                yield event.text
            elif event is None:
                yield None
            else:
                yield event.as_json()
                found.damages.append(event)


def _iter_rows(found: Reading, part: Part, style: BodyStyle, program: BodyProgram | None) -> Iterator[Json]:
    from rmqtool.log.stream import iter_rows

    for row in iter_rows(part):
        yield _shaped(row.fields, style, program)
        if row.damage is not None:
            yield row.damage.as_json()
            found.damages.append(row.damage)


def _shaped(fields: Json, style: BodyStyle, program: BodyProgram | None) -> Json:
    """Return a message with its body in the given style."""
    from rmqtool.formats.message_json import NONE, UTF8, read_body, spell_body

    if program is not None and fields["bodyLength"] is not None:
        decoded = program.decode(read_body(fields))
        if decoded is not None:
            fields["body"], fields["bodyEncoding"] = decoded, UTF8
    if style is BodyStyle.NONE:
        fields["body"], fields["bodyEncoding"] = None, NONE
    elif style is BodyStyle.BASE64:
        fields["body"], fields["bodyEncoding"] = spell_body(read_body(fields), as_text=False)
    elif style is BodyStyle.HEX:
        fields["body"], fields["bodyEncoding"] = read_body(fields).hex(), "hex"
    return fields


def raw_body(message: Json) -> bytes:
    """Return the body of a message as bytes."""
    from rmqtool.formats.message_json import read_body

    return read_body(message)


def flag_words(message: Mapping[str, Any]) -> str:
    """Return the system flags of a message in words."""
    from rmqtool.formats.codes import sys_flag_words

    return sys_flag_words(message["sysFlag"])
