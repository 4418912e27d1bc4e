"""``rmqtool cat``: messages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Filters, Group, Limit, Offset, Period, Scope, Show, Store, Work
from rmqtool.commands.selecting import (
    note_nothing_matched,
    note_unknown_topics,
    parse_body_pattern,
    select_messages,
    unread_by,
)
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.log.body_program import BodyProgram
    from rmqtool.log.ranges import Answered, Effort
    from rmqtool.log.read import Damage, Note, Part
    from rmqtool.log.sources import Source
    from rmqtool.log.stream import Request
    from rmqtool.render.output import Output

# So often a followed log is looked at, in seconds.
_PAUSE = 0.1


class OrderBy(StrEnum):
    """In which order messages come."""

    LOG = "log"
    QUEUE = "queue"
    TIME = "time"


class BodyStyle(StrEnum):
    """How bodies are shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"
    NONE = "none"


_ORDERS, _STYLES = "|".join(OrderBy), "|".join(BodyStyle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which messages, beside the common options."""

    body_re: Annotated[
        str | None, typer.Option("--body-re", metavar="REGEX", help="Only bodies in which this is found.")
    ] = None
    unread: Annotated[bool, typer.Option("--unread", help="Only what the group of -g has not consumed.")] = False
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", min=1, help="N of them at random.")] = None
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for more, while a broker writes.")] = False
    carve: Annotated[bool, typer.Option("--carve", help="STORE is any file: the records that are in it.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How messages are shown."""

    order: Annotated[OrderBy, typer.Option("--order", metavar=_ORDERS, help="In which order.")] = OrderBy.LOG
    count: Annotated[bool, typer.Option("--count", help="Only how many; bodies are not checked.")] = False
    body: Annotated[BodyStyle, typer.Option("--body", metavar=_STYLES, help="How bodies look.")] = BodyStyle.TEXT
    decode: Annotated[
        str | None,
        typer.Option("--decode", metavar="cmd:PROGRAM", help="What turns bodies (base 64 lines) into lines of text."),
    ] = None


class Seen(NamedTuple):
    """What was shown: how many messages, and how many places that are damaged."""

    messages: int
    damages: int

    @property
    def status(self) -> Exit:
        """What that makes of the command."""
        return Exit.SKIPPED if self.damages else Exit.DONE


def cat(
    store: Store = None,
    *,
    scope: Scope,
    offset: Offset = None,
    group: Group = None,
    period: Period,
    filters: Filters,
    which: Which,
    limit: Limit = None,
    look: Look,
    work: Work,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show messages in the order of the log. Damage is part of the stream; the status tells of it.

    -o -100 shows the last hundred, with --order queue those of each queue. STORE may also be the directory of one
    queue, of a compacted queue's log, or one file of a log; with --carve any file.
    """
    from rmqtool.log.sources import open_source
    from rmqtool.store.open import open_store

    _check(which, look, offset, group, limit, show)
    request = _request(scope, period.bounds(show.tz), filters, which, look, offset, limit)
    path = choose_store([store] if store is not None else []).store
    with show.output() as output:
        if which.carve:
            return _carve(output, path, request, look).status
        opened = partial(open_store, version=broker.as_version, assignments=tuple(broker.conf or ()))
        with open_source(path, opened) as source:
            if group is not None:
                request = _unread(source, group, request)
            wanted = request.selection
            known = note_unknown_topics(output, [source.store], wanted.topics, wanted.queue_id)
            seen = _show(output, source, request, which, look, work.effort(output))
            if not seen.messages and known is Exit.DONE and request.limit != 0:
                note_nothing_matched(output, source.store, wanted)
            return worst(known, seen.status)


def _check(which: Which, look: Look, offset: int | None, group: str | None, limit: int | None, show: Show) -> None:
    """Refuse words that contradict each other."""
    arranged = look.order is not OrderBy.LOG or which.sample is not None
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    clashes = (
        (which.unread and group is None, _WHOSE),
        (group is not None and not which.unread, _NOTHING),
        (which.unread and offset is not None, _WHENCE),
        (which.follow and (arranged or look.count), _AS_WRITTEN),
        (which.carve and (which.follow or arranged or which.unread or offset is not None), _CARVE),
        (look.count and (arranged or limit is not None or look.decode is not None), _ALL),
        (look.body is BodyStyle.RAW and not show.is_for_people, _NO_ROWS),
        (look.body is BodyStyle.RAW and is_terminal, _NO_TERMINAL),
        (look.body is BodyStyle.HEX and (show.json or show.jsonl), _NO_HEX),
    )
    for clash, (why, hint) in clashes:
        if clash:
            raise UsageError(why, hint=hint)


_LEAVE = "leave out one of the two"
_WHOSE = ("--unread of which group?", "-g GROUP --unread")
_NOTHING = ("-g GROUP selects nothing by itself", "-g GROUP --unread shows what it has not consumed")
_WHENCE = ("--unread says itself from which offset on", "leave out one of --unread and --offset")
_AS_WRITTEN = ("-f shows messages as they are written: no order, sample or count", _LEAVE)
_CARVE = ("--carve looks into any file: there is no queue, order, offset or end to go by", _LEAVE)
_ALL = ("--count counts all there are", _LEAVE)
_NO_ROWS = ("raw bodies are no rows", "--body base64")
_NO_TERMINAL = ("raw bodies are not for a terminal", "> FILE, or --body hex")
_NO_HEX = ("JSON holds bodies as text or as base 64", "--body base64, or leave out --json")


def _request(
    scope: Scope,
    bounds: tuple[int | None, int | None],
    filters: Filters,
    which: Which,
    look: Look,
    offset: int | None,
    limit: int | None,
) -> Request:
    from rmqtool.log.order import Order
    from rmqtool.log.stream import Request

    selection = replace(
        select_messages(scope, bounds, filters),
        least_offset=offset if offset is not None and offset >= 0 else None,
        body=parse_body_pattern(which.body_re) if which.body_re is not None else None,
    )
    last = -offset if offset is not None and offset < 0 else None
    return Request(selection, Order(look.order.value), last, which.sample, limit)


def _unread(source: Source, group: str, request: Request) -> Request:
    if source.store is None:
        raise UsageError("groups and their offsets belong to a store", hint="give the storePathRootDir of a broker")
    return replace(request, selection=unread_by(source.store, group, request.selection))


def _carve(output: Output, path: str, request: Request, look: Look) -> Seen:
    from rmqtool.log.files import LogFile
    from rmqtool.log.read import iter_carved
    from rmqtool.log.stream import iter_limited

    if not os.path.isfile(path):
        raise UsageError(f"{path} is no file", hint="rmqtool cat --carve FILE")
    directory, name = os.path.split(os.path.abspath(path))
    found = iter_carved(LogFile(0, os.path.getsize(path), directory, name, name), request.selection)
    if look.count:
        return _show_count(output, found)
    return _show_events(output, found if request.limit is None else iter_limited(found, request.limit), look)


def _show(output: Output, source: Source, request: Request, which: Which, look: Look, effort: Effort) -> Seen:
    from rmqtool.log.stream import iter_followed, iter_messages, iter_numbers

    if look.count:
        return _show_count(output, iter_numbers(source, request, effort))
    if which.follow:
        return _show_events(output, iter_followed(source, request, effort, partial(time.sleep, _PAUSE)), look)
    if request.is_plain and _is_made_of_columns(output, look):
        return _show_lines(output, source, request, effort)
    return _show_events(output, iter_messages(source, request, effort), look)


def _is_made_of_columns(output: Output, look: Look) -> bool:
    """Return whether messages are shown as lines of JSON with their bodies as they are."""
    as_they_are = look.decode is None and look.body in (BodyStyle.TEXT, BodyStyle.JSON)
    return as_they_are and output.look.mode in ("json", "jsonl")


def _show_count(output: Output, events: Iterator[Answered | Part | Damage | Note]) -> Seen:
    from rmqtool.log.ranges import Answered
    from rmqtool.log.read import Note, Part

    messages, damages = 0, []
    for event in events:
        if isinstance(event, Part):
            messages += len(event.records)
        elif isinstance(event, Answered):
            messages += event.found.messages
            damages += event.found.damages
        elif isinstance(event, Note):
            output.note(event.text)
        else:
            damages.append(event)
    shown = [damage.as_json()["damage"] for damage in damages]
    output.single({"messages": messages, "damaged": shown}, [str(messages)])
    for damage in damages if output.is_human else ():
        output.note(_damage_text(output, damage, is_note=True))
    return Seen(messages, len(damages))


def _show_lines(output: Output, source: Source, request: Request, effort: Effort) -> Seen:
    from rmqtool.log.ranges import Answered
    from rmqtool.log.read import Note
    from rmqtool.log.stream import iter_lines

    messages = damages = 0
    for event in iter_lines(source, request, effort):
        if isinstance(event, Answered):
            output.json_lines(event.data)
            damages += len(event.found.damages)
            messages += event.found.messages
        elif isinstance(event, Note):
            output.note(event.text)
        else:
            damages += _show_damage(output, event)
    return Seen(messages, damages)


def _show_events(output: Output, events: Iterator[Part | Damage | Note | None], look: Look) -> Seen:
    from rmqtool.log.read import Note, Part

    messages = damages = 0
    with _program(look) as program:
        for event in events:
            if event is None:
                output.flush()
            elif isinstance(event, Note):
                output.note(event.text)
            elif isinstance(event, Part):
                messages += len(event.records)
                damages += _show_part(output, event, look, program)
            else:
                damages += _show_damage(output, event)
    return Seen(messages, damages)


def _program(look: Look) -> AbstractContextManager[BodyProgram | None]:
    from rmqtool.log.body_program import BodyProgram

    return nullcontext() if look.decode is None else BodyProgram(look.decode)


def _show_damage(output: Output, damage: Damage) -> int:
    output.aside(damage.as_json(), _damage_text(output, damage))
    return 1


def _damage_text(output: Output, damage: Damage, *, is_note: bool = False) -> str:
    from rmqtool.render.messages import damage_line

    return damage_line(output, damage._asdict(), is_note=is_note)


def _show_part(output: Output, part: Part, look: Look, program: BodyProgram | None) -> int:
    """Show the messages of a part; return how many of their bodies are damaged."""
    from rmqtool.log.stream import iter_rows, iter_texts

    damages = 0
    if _is_made_of_columns(output, look):
        for text in iter_texts(part):
            output.json_lines([text.data])
            damages += len(text.damages)
        return damages

    def fields() -> Iterator[dict[str, Any]]:
        nonlocal damages
        for row in iter_rows(part):
            yield _shaped(row.fields, output, look, program)
            # The message was shown when the next one is asked for.
            damages += 0 if row.damage is None else _show_damage(output, row.damage)

    _show_rows(output, fields(), look)
    return damages


def _show_rows(output: Output, messages: Iterator[dict[str, Any]], look: Look) -> None:
    from rmqtool.formats.codes import sys_flag_words
    from rmqtool.formats.message_json import FIELDS, read_body
    from rmqtool.render.messages import message_lines

    if look.body is BodyStyle.RAW:
        for fields in messages:
            output.raw(read_body(fields))
        return

    def screen(row: Mapping[str, Any]) -> Iterable[str]:
        return message_lines(output, row, sys_flag_words(row["sysFlag"]), look.body)

    output.rows(messages, FIELDS, screen)


def _shaped(fields: dict[str, Any], output: Output, look: Look, program: BodyProgram | None) -> dict[str, Any]:
    """Return a message with its body as it is wanted; people's eyes get their shapes from the screen."""
    from rmqtool.formats.message_json import NONE, UTF8, read_body, spell_body

    if program is not None and fields["bodyLength"] is not None:
        decoded = program.decode(read_body(fields))
        if decoded is not None:
            fields["body"], fields["bodyEncoding"] = decoded, UTF8
    if output.is_human:
        return fields
    if look.body is BodyStyle.NONE:
        fields["body"], fields["bodyEncoding"] = None, NONE
    elif look.body is BodyStyle.BASE64:
        fields["body"], fields["bodyEncoding"] = spell_body(read_body(fields), as_text=False)
    elif look.body is BodyStyle.HEX:
        fields["body"], fields["bodyEncoding"] = read_body(fields).hex(), "hex"
    return fields
