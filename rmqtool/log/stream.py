"""The stream of wanted messages: what a request asks of a source, answered as parts, lines of JSON, rows, or counts.

Damage and notes are in their places among the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from rmqtool.columns.bodies import Bounds
from rmqtool.columns.jsonl import Lines, iter_json_lines
from rmqtool.errors import UsageError
from rmqtool.filters.wanted import parse_patterns
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.layout import Buffer
from rmqtool.formats.message_json import encode_line, message_json
from rmqtool.log.by_queues import CoveredReader, bound_by_queues, reader_of
from rmqtool.log.follow import Follower
from rmqtool.log.order import Arrangement, Order, find_last_place, iter_arranged
from rmqtool.log.queue_entries import QueueFiles
from rmqtool.log.ranges import (
    RANGE,
    Answered,
    Counted,
    Effort,
    Plan,
    Write,
    iter_answers,
    nominal_ranges,
    read_plan,
    run_ranges,
)
from rmqtool.log.read import Damage, Note, Part, Range, RangeReader
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, LogKind, Source

# A count keeps only a number of each range until its turn, so its ranges are larger.
_COUNTED_RANGE = 8 * RANGE


def iter_parts(plan: Plan, selection: Selection, effort: Effort) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages of a log in its order, damage and notes in their places; the calling thread reads."""
    ranges = nominal_ranges(plan, selection.physical_from)

    def read(asked: Range) -> RangeReader | CoveredReader:
        return reader_of(asked, selection, plan.queues)

    for answer in iter_answers(plan, ranges, read, None, effort.progress):
        if isinstance(answer, Damage | Note):
            yield answer
        else:
            yield from answer.parts()


def iter_line_answers(plan: Plan, selection: Selection, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the wanted messages as lines of JSON, range by range in the order of the log; ``found`` is a ``Lined``."""
    return run_ranges(plan, nominal_ranges(plan, selection.physical_from), LineWork(selection, plan.queues), effort)


def iter_counts(plan: Plan, selection: Selection, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the number of wanted messages, range by range; ``found`` is a ``Counted``.

    Bodies are read only if a question is about them.
    """
    ranges = nominal_ranges(plan, selection.physical_from, _COUNTED_RANGE)
    return run_ranges(plan, ranges, CountWork(selection, plan.queues), effort)


@dataclass(frozen=True)
class CountWork:
    """Counts the wanted messages of a range; see ``ranges.RangeWork``. ``found`` is a ``Counted``."""

    selection: Selection
    queues: Sequence[QueueFiles]

    def __call__(self, asked: Range, write: Write) -> Answered:  # noqa: ARG002  (nothing is written)
        reader = reader_of(asked, self.selection, self.queues, checksums=False, skims=True)
        messages, damages = 0, []
        for found in reader.parts():
            if isinstance(found, Part):
                messages += len(found.records)
            else:
                damages.append(found)
        if isinstance(reader, RangeReader):
            messages += reader.skimmed
        return Answered(reader.began, reader.reached, reader.left_over, Counted(messages, damages))


# Limits of one piece of lines. Lines of small messages are three times as large as the messages.
_BOUNDS = Bounds(most_rows=8192, most_bytes=3 << 20)


class Text(NamedTuple):
    """Whole lines, the number of messages among them, and the damage among them."""

    data: Buffer
    messages: int
    damages: list[Damage]


def damage_text(damage: Damage) -> Text:
    return Text(_line_of(damage), 0, [damage])


def end_of(part: Part) -> int:
    """Return the physical offset at which the last message of a part ends."""
    records = part.records
    return int((records.column("physical_offset") + records.column("total_size")).max(initial=0))


def iter_texts(part: Part) -> Iterator[Text]:
    """Yield the lines of the messages of a part. After a message whose body does not decompress comes its damage."""
    for lines in iter_json_lines(part.records, _BOUNDS):
        damages = [part.body_damage(lines.first_row + row, flaw) for row, flaw in lines.flaws]
        messages = len(lines.offsets) - 1
        if not damages:
            yield Text(lines.text.data, messages, [])
        else:
            yield Text(b"".join(_spliced(lines, damages)), messages, damages)


def _spliced(lines: Lines, damages: list[Damage]) -> Iterator[bytes]:
    """Yield the lines with each damage after the line of its message."""
    at = 0
    for (row, _), damage in zip(lines.flaws, damages, strict=True):
        row_end = int(lines.offsets[row + 1])
        yield lines.text[at:row_end].tobytes()
        yield _line_of(damage)
        at = row_end
    yield lines.text[at:].tobytes()


def _line_of(damage: Damage) -> bytes:
    """Return damage as a line of JSON; a file name with bytes that are not UTF-8 is escaped."""
    return encode_line(damage.as_json()).encode("utf-8", "backslashreplace") + b"\n"


class Lined(NamedTuple):
    """The output of one range: messages, damage, and the physical offset at which the last message ends."""

    messages: int
    damages: list[Damage]
    end: int


@dataclass(frozen=True)
class LineWork:
    """Makes lines of JSON of the wanted messages of a range; see ``ranges.RangeWork``. ``found`` is a ``Lined``."""

    selection: Selection
    queues: Sequence[QueueFiles]

    def __call__(self, asked: Range, write: Write) -> Answered:
        reader = reader_of(asked, self.selection, self.queues)
        messages, damages, end = 0, [], 0
        for found in reader.parts():
            if isinstance(found, Part):
                end = max(end, end_of(found))
            for text in iter_texts(found) if isinstance(found, Part) else [damage_text(found)]:
                write(text.data)
                messages += text.messages
                damages += text.damages
        return Answered(reader.began, reader.reached, reader.left_over, Lined(messages, damages, end))


class Row(NamedTuple):
    """A Message object, and the damage if its body does not decompress."""

    fields: dict[str, Any]
    damage: Damage | None


def iter_rows(part: Part) -> Iterator[Row]:
    """Yield the messages of a part one by one, as objects of docs/contract.md."""
    for row, at in enumerate(part.records.file_offsets.tolist()):
        message = decode_record(part.records.data.data, at)
        assert isinstance(message, Message), f"columns hold whole messages only, not {message}"
        fields, flaw = message_json(message)
        yield Row(fields, None if flaw is None else part.body_damage(row, flaw))


@dataclass(frozen=True)
class Request:
    """Which messages, and in which order.

    ``last`` takes only this number of messages from the end: of all, or of each queue if ordered by queue. ``sample``
    takes this number of all wanted messages at random.
    """

    selection: Selection
    order: Order = Order.LOG
    last: int | None = None
    sample: int | None = None

    @property
    def limit(self) -> int | None:
        return self.selection.limit

    @property
    def is_plain(self) -> bool:
        """Whether all wanted messages come, in the order of the log."""
        return self.order is Order.LOG and self.sample is None and self.limit is None


def plan_request(source: Source, request: Request, effort: Effort) -> tuple[Plan, Selection]:
    """Return the plan for a source, and the selection with all bounds that are known."""
    selection = request.selection
    if source.store is not None:
        selection = replace(selection, version=source.store.version.value)
    if source.topic is not None:
        selection = replace(selection, topics=parse_patterns([source.topic]), queue_id=source.queue_id)
    selection = bound_by_queues(source.files, source.queues, within_files(source.files, selection))
    plan = read_plan(source.files, selection, source.queues, live=source.live)
    if not source.directories:
        plan = replace(plan, witnesses=())  # one file was named, so what comes after it is not missing
    if request.last is not None and request.order is not Order.QUEUE:
        place = find_last_place(plan, selection.scope(), request.last, effort)
        selection = replace(selection, physical_from=max(place, selection.physical_from))
        plan = replace(plan, wanted=[file for file in plan.wanted if file.end_offset > selection.physical_from])
    return plan, selection


def within_files(files: Sequence[LogFile], selection: Selection) -> Selection:
    """Return the selection with the beginning of the first file as its bound if that is before 0, as a tier can be."""
    begin = files[0].base_offset if files else 0
    return replace(selection, physical_from=begin) if begin < 0 and not selection.physical_from else selection


def iter_messages(source: Source, request: Request, effort: Effort) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages in the order of the request."""
    plan, selection = plan_request(source, request, effort)
    if request.order is Order.LOG and request.sample is None:
        found = iter_parts(plan, selection, effort)
    else:
        last = request.last if request.order is Order.QUEUE else None
        found = iter_arranged(plan, selection, Arrangement(request.order, last, request.sample), effort)
    return found if request.limit is None else iter_limited(found, request.limit)


def iter_lines(source: Source, request: Request, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the wanted messages as lines of JSON, range by range; ``found`` is a ``Lined``.

    The order, sample and limit of the request are not applied: see ``Request.is_plain``.
    """
    plan, selection = plan_request(source, request, effort)
    return iter_line_answers(plan, selection, effort)


def iter_numbers(source: Source, request: Request, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the number of wanted messages, range by range; ``found`` is a ``Counted``.

    Order, sample and limit of the request are not applied.
    """
    plan, selection = plan_request(source, request, effort)
    return iter_counts(plan, selection, effort)


def iter_limited(found: Iterator[Part | Damage | Note], limit: int) -> Iterator[Part | Damage | Note]:
    """Yield at most ``limit`` messages. Nothing more is read to find out whether there are more."""
    left = limit
    for event in found if limit else ():
        if not isinstance(event, Part):
            yield event
            continue
        yield event._replace(records=event.records.select(slice(left)))
        if len(event.records) > left:
            yield Note(f"stopped after {limit} (--limit); there is more")
        left -= len(event.records)
        if left <= 0:
            return


def iter_followed(
    source: Source, request: Request, effort: Effort, pause: Callable[[], None]
) -> Iterator[Part | Damage | Note | None]:
    """Yield the wanted messages, and go on as more are written. None means that there are no more for now.

    After each None comes a ``pause``. This ends only at the limit of the request.
    """
    earlier = [file for file in source.files if file.tier is not None]
    if earlier:
        source = replace(source, files=[file for file in source.files if file.tier is None])
        if not source.files:
            raise UsageError("a tier is not followed: it is written in parts", hint="follow its store: cat -f STORE")
    plan, selection = plan_request(source, request, effort)
    start = min((file.base_offset for file in plan.wanted), default=0)
    for file in plan.wanted:
        if file.base_offset <= selection.physical_from < file.end_offset and file.kind is not LogKind.DLEDGER:
            start = selection.physical_from
    follower = Follower(source.list_files, selection, start)
    left = request.limit
    found: Iterator[Part | Damage | Note] = iter(())
    if request.last is None:
        found = iter_messages(replace(source, files=earlier, queues=[], directories=[]), request, effort)
    while True:
        for event in chain(found, follower.poll()):
            if left is None or not isinstance(event, Part):
                yield event
                continue
            yield event._replace(records=event.records.select(slice(left)))
            left -= len(event.records)
            if left <= 0:
                return
        found = iter(())
        yield None
        pause()
