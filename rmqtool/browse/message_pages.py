"""Messages: those of a queue, the records of a log in their order, and one message with its story."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from shlex import quote
from typing import TYPE_CHECKING, Any, Protocol

from rmqtool.browse.file_pages import FileAt
from rmqtool.browse.page import Column, GrowingPage, Link, Page, Row, Scope, line, remark, step_back
from rmqtool.formats.codes import sys_flag_words
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.message_json import message_json, read_body
from rmqtool.formats.paths import FileKind
from rmqtool.log.walk import Place
from rmqtool.look.dump import iter_dledger_places_from, iter_places_from
from rmqtool.render.text import count, counted, hex_lines, neutral, size, timestamp

if TYPE_CHECKING:
    from rmqtool.browse.explorer import Explorer

# Characters of a body that a table shows, and lines that the page of a message has.
_PREVIEW = 120
_BODY_LINES = 400
# Bytes before a row that are looked at for earlier ones.
_REACH = 1 << 12
MESSAGES = (
    Column("offset", 9, is_number=True),
    Column("stored", 14),
    Column("tags", 8),
    Column("keys", 14),
    Column("body"),
)
PLACES = (
    Column("offset", 11, is_number=True),
    Column("topic/queue@offset", 22),
    Column("stored", 14),
    Column("keys", 12),
    Column("body"),
)
_FIELDS = (Column("field", 14), Column("value"))
_EVENTS = {
    "half": "half message, hidden from consumers",
    "delayed": "delayed: waits in the broker's own topic",
    "timer": "waits in the timer",
}


class Viewer(Protocol):
    """The owner of pages of messages: a store, or a cluster."""

    zone: tzinfo | None

    def to_queue(self, fields: Mapping[str, Any]) -> Link:
        """Return a link to the place of a message in its queue."""


def moment(time_ms: int | None, explorer: Viewer) -> str:
    """Return a time as a table shows it, in the zone of the screen and without the year; nothing for none."""
    return "" if not time_ms else timestamp(time_ms, explorer.zone)[5:19]


def preview(fields: Mapping[str, Any]) -> str:
    """Return the beginning of a body on one line."""
    if fields["bodyLength"] is None:
        return f"{fields['storedBodyLength']} bytes that do not decompress"
    if fields["bodyEncoding"] == "utf8":
        return neutral(fields["body"][:_PREVIEW])
    return read_body(dict(fields))[: _PREVIEW // 4].hex(" ")


def summary_of(fields: Mapping[str, Any], explorer: Viewer) -> tuple[str, ...]:
    """Return the lines for a message under the cursor."""
    place = f"{neutral(fields['topic'])}/{fields['queueId']}@{fields['queueOffset']}"
    stored = f"stored {timestamp(fields['storeTimestamp'], explorer.zone)}, log offset {fields['commitLogOffset']}"
    named = "  ".join(f"{name} {neutral(fields[name])}" for name in ("tags", "keys") if fields[name])
    return (f"{place}  {size(fields['storeSize'])}  {named}", stored, preview(fields))


def row_of(fields: Mapping[str, Any], explorer: Viewer, link: Link, *, offset: int | None = None) -> Row:
    """Return the row of a message for ``MESSAGES`` where ``offset`` is given, else for ``PLACES``."""
    when, keys = moment(fields["storeTimestamp"], explorer), neutral(fields["keys"] or "")
    if offset is not None:
        cells: tuple[str, ...] = (str(offset), when, neutral(fields["tags"] or ""), keys, preview(fields))
    else:
        place = f"{neutral(fields['topic'])}/{fields['queueId']}@{fields['queueOffset']}"
        cells = (str(fields["commitLogOffset"]), place, when, keys, preview(fields))
    return Row(offset or 0, cells, link, "", summary_of(fields, explorer))


class LogPage(Page):
    """The records of one segment in the order of the log, with the damage between them; positions are file offsets."""

    columns = PLACES

    def __init__(self, explorer: Explorer, file: FileAt, at: int | None = None) -> None:
        self.explorer, self.file = explorer, file
        self.title, self.base = file.path, file.what.base_offset or 0
        self.command = f"rmqtool cat {quote(file.filesystem.shown(file.path))}"
        self.refresh()
        self.first_position = at or 0

    def refresh(self) -> None:
        status = self.file.filesystem.find_stat(self.file.path)
        self.end = 0 if status is None else status.size

    def note(self) -> str:
        return f"records of the log from {self.base}; the file ends at {self.base + self.end}"

    def rows(self, position: int, count: int) -> list[Row]:
        found: list[Row] = []
        if position >= self.end:
            return found
        for place in self._places(max(position, 0)):
            found.append(self._told_of(place, self._row(place)))
            if len(found) >= count:
                break
        return found

    def back(self, position: int, count: int) -> int:
        return step_back(self._offsets, min(position, self.end), count, max(_REACH, count * _REACH // 8))

    def _offsets(self, start: int, end: int) -> list[int]:
        found = []
        for place in self._places(start):
            if place.file_offset >= end:
                break
            found.append(place.file_offset)
        return found

    def _places(self, at: int) -> Iterator[Place]:
        with self.file.filesystem.open_read(self.file.path) as file:
            if self.file.what.kind is FileKind.DLEDGER_DATA:
                yield from iter_dledger_places_from(file, self.base, at)
            else:
                yield from iter_places_from(file, self.file.what, at)

    def _told_of(self, place: Place, row: Row) -> Row:
        """Return a row that tells which byte of it was asked for."""
        at, sought = place.file_offset, self.sought
        if sought is None or not at <= sought.position < at + place.length:
            return row
        name = row.cells[1] if isinstance(place.what, Message) else "what is shown here"
        return row._replace(details=(sought.told(name, at, place.length, "", at), *row.details))

    def _row(self, place: Place) -> Row:
        at, what = place.file_offset, place.what
        physical = self.base + at
        link = self.explorer.to_file(self.file, at)
        if isinstance(what, Message):
            target = link if self.file.what.kind is FileKind.COMPACTION_LOG else self.explorer.to_message(physical)
            fields = message_json(what).fields
            return row_of(fields, self.explorer, target)._replace(position=at)
        if isinstance(what, Flaw):
            text = f"{what.code}: {what.message}"
            details = (
                text,
                f"{count(place.length)} bytes from {physical} on",
                "Enter shows the bytes, d what it means",
            )
            return Row(at, (str(physical), "damage", "", "", text), link, "error", details)
        blank = isinstance(what, Blank)
        text = "blank record: the next one is in the next file" if blank else "nothing written"
        assert isinstance(what, Blank | Nothing)
        return Row(at, (str(physical), "", "", "", f"{text}, {size(place.length)}"), link, "dim")


class MessagePage(GrowingPage):
    """One message: its fields, its body, and, when they were looked up, its story and what points at it."""

    columns = _FIELDS

    def __init__(
        self,
        explorer: Viewer,
        fields: Mapping[str, Any],
        more: Callable[[], Iterator[Row]],
        command: str,
        to_file: Link | None = None,
    ) -> None:
        self.fields = fields
        place = f"{neutral(fields['topic'])}/{fields['queueId']}@{fields['queueOffset']}"
        super().__init__(f"message {place}", _FIELDS, more, command)
        self.scope = Scope(fields["topic"], fields["queueId"])
        self.add(message_rows(fields, explorer, to_file))

    def note(self) -> str:
        return f"log offset {self.fields['commitLogOffset']}" + ("; reading its story …" if self.is_growing() else "")


def message_rows(fields: Mapping[str, Any], explorer: Viewer, to_file: Link | None = None) -> Iterator[Row]:
    """Yield where a message is, and its body."""
    place = f"{neutral(fields['topic'])}/{fields['queueId']}@{fields['queueOffset']}"
    yield line("place", place, link=explorer.to_queue(fields), style="title", details=(place, "Enter shows the queue"))
    for name in ("tags", "keys"):
        if fields[name]:
            yield line(name, neutral(fields[name]))
    yield line("stored", timestamp(fields["storeTimestamp"], explorer.zone))
    offset = f"{fields['commitLogOffset']}, {size(fields['storeSize'])}"
    details = (f"log offset {offset}", "Enter shows its bytes" if to_file else "")
    yield line("log offset", offset, link=to_file, details=details)
    yield from _body_rows(fields)


def further_rows(fields: Mapping[str, Any], explorer: Viewer) -> Iterator[Row]:
    """Yield the other fields of a message, and its properties."""
    yield line("message id", fields["offsetMsgId"], style="title")
    yield line("unique key", neutral(fields["uniqKey"] or "-"))
    yield line("born", f"{timestamp(fields['bornTimestamp'], explorer.zone)} at {fields['bornHost']}")
    yield line("stored by", fields["storeHost"])
    flags = sys_flag_words(fields["sysFlag"])
    yield line("flags", f"{flags}; flag {fields['flag']}, reconsumed {fields['reconsumeTimes']} times")
    for name, value in fields["properties"].items():
        yield line("property", f"{neutral(name)} = {neutral(value)}")


def _body_rows(fields: Mapping[str, Any]) -> Iterator[Row]:
    length = fields["bodyLength"]
    codec = f" {fields['bodyCodec']}" if fields["bodyCodec"] else ""
    broken = f"{fields['storedBodyLength']} bytes that do not decompress"
    yield line("body", broken if length is None else f"{count(length)} bytes{codec}", style="title")
    for number, text in enumerate(body_lines(fields)):
        if number == _BODY_LINES:
            yield line("", "… the rest is longer than this page; y copies the command that prints all", style="dim")
            return
        yield line("", text)


def body_lines(fields: Mapping[str, Any]) -> Sequence[str]:
    """Return a body as lines: JSON indented, text as it is, anything else in hex."""
    if fields["bodyEncoding"] == "none":
        return []
    if fields["bodyEncoding"] != "utf8" or fields["bodyLength"] is None:
        return list(hex_lines(read_body(dict(fields))[: _BODY_LINES * 16]))
    body = fields["body"]
    if body.startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            body = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    return [neutral(text, keep="\t").expandtabs(4) for text in body.split("\n")[: _BODY_LINES + 1]]


def story_rows(answer: Mapping[str, Any], explorer: Explorer) -> Iterator[Row]:
    """Yield the story in an answer of ``query --history``: each event leads to its record."""
    for story in answer.get("stories", ()):
        yield line("story", f"{counted(story['events'], 'event')}, now {neutral(story['state'])}", style="title")
    for event in answer.get("history", ()):
        yield _event_row(event, explorer)
    for story in answer.get("stories", ()):
        for place in story["positions"]:
            state = "consumed it" if place["passed"] else f"has not consumed it, is at {place['committed']}"
            where = f"{neutral(place['topic'])}/{place['queueId']}@{place['queueOffset']}"
            yield line(
                "group", f"{neutral(place['group'])} {state} ({where})", style="" if place["passed"] else "warning"
            )
    for finding in answer.get("findings", ()):
        yield line("finding", f"{finding['code']}: {neutral(finding['message'])}", style="error")


def _event_row(event: Mapping[str, Any], explorer: Explorer) -> Row:
    place = f"{neutral(event['topic'])}/{event['queueId']}@{event['queueOffset']}"
    known = ("event", "timestamp", "topic", "queueId", "queueOffset", "commitLogOffset")
    about = []
    for name, value in event.items():
        if name not in known and value is not None:
            about.append(f"{name} {moment(value, explorer) if name.endswith('Timestamp') else neutral(str(value))}")
    words = "  ".join((moment(event["timestamp"], explorer), place, *about))
    details = (
        _EVENTS.get(event["event"], event["event"]),
        words,
        f"Enter shows the record at {event['commitLogOffset']}",
    )
    return line(event["event"], words, link=explorer.to_message(event["commitLogOffset"]), details=details)


def iter_found(events: Iterator[Any], explorer: Viewer, link_of: Callable[[Mapping[str, Any]], Link]) -> Iterator[Row]:
    """Yield rows of ``PLACES`` for what ``scan`` gives: messages, and damage among them."""
    for event in events:
        if "damage" in event:
            damage = event["damage"]
            text = f"{damage['code']}: {neutral(damage['message'])}"
            yield remark(str(damage["offset"]), neutral(damage["file"]), "", "", text, style="error", details=(text,))
        else:
            yield row_of(event, explorer, link_of(event))
