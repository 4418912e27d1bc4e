"""Reads messages to send: JSON objects, CSV, lines, whole files; from standard input and from files.

``Lines`` gives lines one by one, or pieces of many lines to look at before they are taken. ``Wanted`` turns an object
into a message.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
import select
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import IO, Any, NamedTuple

from rmqtool.engine.message import NewMessage
from rmqtool.errors import RmqtoolError, UsageError
from rmqtool.formats.java import INT_MAX, INT_MIN
from rmqtool.formats.property_names import (
    CLUSTER,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEYS,
    MAX_RECONSUME_TIMES,
    MSG_REGION,
    ORIGIN_MESSAGE_ID,
    PROPERTY_CRC32,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_LABEL,
    TIMER_ROLL_TIMES,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)
from rmqtool.formats.topics import DLQ_PREFIX, RETRY_PREFIX

# Bytes that are read at once for lines that are taken one by one.
_CHUNK = 1 << 18
# Seconds to wait for more lines while there are some to send.
PATIENCE = 0.2


class Lines:
    """The lines of several streams. The end of a stream ends a line."""

    def __init__(self, streams: Iterable[IO[bytes]]) -> None:
        self._streams = iter(streams)
        self._stream: Any = io.BytesIO()
        # The piece whose lines are taken now, and its size.
        self._current, self._size = io.BytesIO(), 0
        # Pieces that were read; the first ``_looked_at`` of them were looked at.
        self._pieces: deque[bytes | bytearray] = deque()
        self._looked_at = 0
        # The beginning of a line whose end was not read yet.
        self._begun = b""

    def __iter__(self) -> Iterator[bytes]:
        while line := self.take():
            yield line

    def take(self) -> bytes:
        """Return the next line, empty at the end. Pieces that were looked at and not taken can be looked at again."""
        while not (line := self._current.readline()):
            self._looked_at = 0
            piece = self._pieces.popleft() if self._pieces else self._read(_CHUNK)
            if not piece:
                return b""
            self._current, self._size = io.BytesIO(piece), len(piece)
        return line

    def look_ahead(self, most: int) -> bytes | bytearray:
        """Return the lines after those that were looked at, about ``most`` bytes; empty at the end."""
        if left := self._current.read():
            self._pieces.appendleft(left)
        if self._looked_at == len(self._pieces):
            piece = self._read(most)
            if not piece:
                return piece
            self._pieces.append(piece)
        self._looked_at += 1
        return self._pieces[self._looked_at - 1]

    def pass_over(self) -> None:
        """Take the first of the pieces that were looked at."""
        self._pieces.popleft()
        self._looked_at -= 1

    def is_late(self, since: float) -> bool:
        """Return whether a caller that has waited for lines since ``since`` should continue without more."""
        if self._current.tell() < self._size or len(self._pieces) > self._looked_at:
            return False
        return not self._is_ready(since)

    def _is_ready(self, since: float) -> bool:
        try:
            number = self._stream.fileno()
        except (OSError, AttributeError):
            return True
        left = max(since + PATIENCE - time.monotonic(), 0)
        return bool(select.select([number], [], [], left)[0])

    def _read(self, most: int) -> bytearray:
        """Return whole lines, at least one; empty at the end of the last stream."""
        begun, since, end = self._begun, time.monotonic(), 0
        size = len(begun)
        data = bytearray(max(most, 2 * size))
        data[:size] = begun
        try:
            while not end or (size < most and self._is_ready(since)):
                if size == len(data):
                    data += bytes(size)
                with memoryview(data) as whole, whole[size:] as room:
                    count = self._stream.readinto(room)
                if count:
                    end = data.rfind(b"\n", size, size + count) + 1 or end
                    size += count
                elif size > end:
                    data[size : size + 1] = b"\n"
                    size = end = size + 1
                elif not self._next_stream():
                    break
        except KeyboardInterrupt:
            # After Ctrl-C nothing more is read, and half a line is dropped.
            self._streams, self._stream, self._begun = iter(()), io.BytesIO(), b""
            self._pieces.append(data[:end])
            raise
        self._begun = bytes(data[end:size])
        del data[end:]
        return data

    def _next_stream(self) -> bool:
        following = next(self._streams, None)
        self._stream = io.BytesIO() if following is None else getattr(following, "raw", following)
        return following is not None


# Properties of earlier deliveries, which the new one sets again.
GIVEN_BY_BROKERS = frozenset({UNIQ_KEY, MSG_REGION, TRACE_ON, CLUSTER, PROPERTY_CRC32})
# A stored message is sent as it is now: its earlier delay or transaction is over.
OVER = frozenset(
    {
        WAIT,
        *(DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ENQUEUE_MS),
        *(TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_DEL_UNIQKEY, TIMER_ROLL_LABEL, TRAN_MSG),
        *(INNER_NUM, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET),
    }
)
# The origin of a retry or a dead letter means nothing in another topic.
OF_RETRIES = frozenset(
    {
        *(RETRY_TOPIC, ORIGIN_MESSAGE_ID, REAL_TOPIC, REAL_QID, RECONSUME_TIME, MAX_RECONSUME_TIMES),
        *(DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID),
    }
)
OWN = {
    "tags": TAGS,
    "keys": KEYS,
    "shardingKey": SHARDING_KEY,
    "delayLevel": DELAY,
    "deliverAt": TIMER_DELIVER_MS,
}
_OWN_ITEMS = tuple(OWN.items())
# The members of an object that describes a message.
MEMBERS = ("topic", "body", "bodyEncoding", "queueId", "flag", "properties", *OWN)
_SEPARATORS = ("\x01", "\x02")
_NUMBERS = ("queueId", "flag", "delayLevel", "deliverAt")
# Only the Message object of a stored message has this member.
_STORED = "commitLogOffset"
_LINE_ENDS = ("\n", "", "\r\n")
_LARGEST_FIELD = 64 << 20
_LEFT_OUT = "write it without quotes, or leave it out"
_SKIP = "fix the line; --on-error skip leaves it out and continues"


class Bad(NamedTuple):
    """Input that is not a message: its number, and why."""

    number: int
    error: RmqtoolError


@dataclass(frozen=True, slots=True)
class Wanted:
    """Defaults for all messages: members that objects lack, properties, and whether unique keys are kept.

    A ``topic`` replaces that of an object; ``moved`` counts the objects that had another one.
    """

    members: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    keeps_ids: bool = False
    topic: str | None = None
    moved: Counter[str] = field(default_factory=Counter)

    def message_of(self, value: object) -> NewMessage:
        """Return the message that an object describes; without a queue its queue id is -1.

        Raises ``UsageError`` if the object is not a message.
        """
        if not isinstance(value, dict):
            raise UsageError("a message must be a JSON object", hint='as in {"topic": "T", "body": "text"}')
        for name, member in self.members.items():
            if value.get(name) is None:
                value[name] = member
        if self.topic is not None:
            self._move(value, self.topic)
        get = value.get
        topic, queue, flag, body = get("topic"), get("queueId"), get("flag"), get("body")
        queue, flag = -1 if queue is None else queue, 0 if flag is None else flag
        if topic.__class__ is not str or not topic:
            raise UsageError('"topic" is missing', hint="name one with -t")
        if queue.__class__ is not int or flag.__class__ is not int or not _are_ints(queue, flag):
            raise UsageError('"queueId" and "flag" must be whole numbers', hint=_LEFT_OUT)
        encoding = get("bodyEncoding")
        if encoding == "utf8" and body.__class__ is str:
            data = body.encode("utf-8", "surrogateescape")
        else:
            data = _body(body, encoding)
        return NewMessage(topic, data, queue, self._properties(value), flag)

    def _move(self, value: dict[str, Any], topic: str) -> None:
        """Set the topic of an object. A stored message's queue id does not apply to another topic."""
        named = value.get("topic")
        if named is not None and named != topic:
            self.moved[str(named)] += 1
            if value.get(_STORED) is not None:
                value["queueId"] = self.members.get("queueId")
        value["topic"] = topic

    def _properties(self, value: dict[str, Any]) -> dict[str, str]:
        given = value.get("properties") or {}
        if not isinstance(given, dict):
            raise UsageError('"properties" must be an object', hint='as in {"name": "value"}')
        is_stored = value.get(_STORED) is not None
        is_retry = str(value.get("topic")).startswith((RETRY_PREFIX, DLQ_PREFIX))
        kept, values = _kept(tuple(given), is_stored=is_stored, is_retry=is_retry)
        properties: dict[str, Any] = dict(zip(kept, values(given), strict=True))
        if None in properties.values():
            properties = {name: one for name, one in properties.items() if one is not None}
        for key, name in _OWN_ITEMS:
            one = value.get(key)
            if one is not None:
                properties[name] = one
        if self.properties:
            properties = {**self.properties, **properties}
        if self.keeps_ids and given.get(UNIQ_KEY):
            properties[UNIQ_KEY] = given[UNIQ_KEY]
        try:
            joined = "".join(properties.values())
        except TypeError:
            joined = _SEPARATORS[0]
        if _SEPARATORS[0] in joined or _SEPARATORS[1] in joined:
            return {name: _text(name, one) for name, one in properties.items()}
        return properties


@lru_cache(maxsize=4096)
def _kept(names: tuple[str, ...], *, is_stored: bool, is_retry: bool) -> tuple[tuple[str, ...], Callable[[Any], Any]]:
    """Return the names of the properties that a message keeps, and a function that returns their values."""
    dropped = GIVEN_BY_BROKERS | OVER if is_stored else GIVEN_BY_BROKERS
    if is_stored and not is_retry:
        dropped |= OF_RETRIES
    kept = tuple(name for name in names if name not in dropped)
    for name in kept:
        _text(name, "")
    if not kept:
        return (), lambda _given: ()
    return kept, itemgetter(*kept) if len(kept) > 1 else lambda given: (given[kept[0]],)


def _are_ints(queue: int, flag: int) -> bool:
    return INT_MIN <= queue <= INT_MAX and INT_MIN <= flag <= INT_MAX


def _body(text: object, encoding: object) -> bytes:
    if encoding == "none" or (text is None and encoding is None):
        return b""
    if isinstance(text, bytes | bytearray | memoryview) and encoding is None:
        return bytes(text)
    if not isinstance(text, str):
        raise UsageError('"body" must be a string', hint='bytes are base64, with "bodyEncoding": "base64"')
    if encoding in ("utf8", None):
        return text.encode("utf-8", "surrogateescape")
    if encoding != "base64":
        raise UsageError(f'"bodyEncoding" {encoding!r} is not known', hint="one of utf8, base64, none")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise UsageError(
            '"body" is not base64, as "bodyEncoding" says', hint='leave out "bodyEncoding" for plain text'
        ) from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UsageError(
            f"the property {name} is not a string", hint="put it in quotes; put structured values into the body"
        )
    text = str(value)
    if any(separator in name or separator in text for separator in _SEPARATORS):
        raise UsageError(
            f"the property {name!r} contains a byte 1 or 2, which separate properties",
            hint="remove it; put binary data into the body",
        )
    return text


def message_of(value: object) -> NewMessage:
    """Return the message that an object describes."""
    return Wanted().message_of(value)


class Objects:
    """The messages of JSON lines; empty lines are skipped. Lines can be looked at before they are taken."""

    def __init__(self, lines: Lines, wanted: Wanted) -> None:
        self.lines = lines
        self.wanted = wanted
        # The number of lines that were taken.
        self.taken = 0
        self._messages = self._iter_messages()

    def __iter__(self) -> Iterator[NewMessage | Bad]:
        return self._messages

    def __next__(self) -> NewMessage | Bad:
        return next(self._messages)

    def pass_over(self, count: int) -> None:
        """Take the first piece that was looked at, whose lines became ``count`` messages."""
        self.taken += count
        self.lines.pass_over()

    def _iter_messages(self) -> Iterator[NewMessage | Bad]:
        # The part of ``json.loads`` that does the work, called directly because it is faster.
        decoder: Any = json.JSONDecoder()
        scan, message_of = decoder.scan_once, self.wanted.message_of
        while line := self.lines.take():
            self.taken += 1
            try:
                text = line.decode()
                value, end = scan(text, 0)
                if text[end:] not in _LINE_ENDS:
                    value = json.loads(text)
                yield message_of(value)
            except UsageError as error:
                yield Bad(self.taken, _at_line(self.taken, error))
            except (ValueError, StopIteration, RecursionError):
                yield from _look_again(self.taken, line, self.wanted)


def iter_table(lines: Iterable[bytes], wanted: Wanted) -> Iterator[NewMessage | Bad]:
    """Yield the messages of a CSV. Its first line names the members; an empty cell is a missing member."""
    csv.field_size_limit(_LARGEST_FIELD)
    reader = csv.reader((line.decode("utf-8", "surrogateescape") for line in lines), strict=True)
    header: list[str] | None = None
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
            if cells is None:
                return
            if header is None:
                header = _checked_header(cells)
            elif cells:
                yield wanted.message_of(_object_of(header, cells))
        except csv.Error as error:
            yield Bad(number, UsageError(f"line {number} is not CSV: {error}", hint=_SKIP))
        except UsageError as error:
            yield Bad(number, _at_line(number, error))
            if header is None:
                return


def _look_again(number: int, line: bytes, wanted: Wanted) -> Iterator[NewMessage | Bad]:
    """Yield the message or the error of a line that is not exactly one object."""
    try:
        if line.strip():
            yield wanted.message_of(json.loads(line))
    except (ValueError, RecursionError) as error:
        yield Bad(number, UsageError(f"line {number} is not JSON: {error}", hint=_SKIP))
    except UsageError as error:
        yield Bad(number, _at_line(number, error))


def _checked_header(names: list[str]) -> list[str]:
    if "body" not in names:
        raise UsageError('the first line must name the columns, "body" among them', hint="topic,keys,body")
    return names


def _object_of(header: list[str], cells: list[str]) -> dict[str, Any]:
    """Return the object of a row. ``properties`` is JSON. Empty cells are missing members, except for the body."""
    if len(cells) != len(header):
        raise UsageError(
            f"{len(cells)} cells, the first line has {len(header)}", hint="put cells that contain a comma in quotes"
        )
    value: dict[str, Any] = {name: cell for name, cell in zip(header, cells, strict=True) if cell or name == "body"}
    for name in _NUMBERS:
        if name in value:
            try:
                value[name] = int(value[name])
            except ValueError:
                raise UsageError(f'"{name}" must be a whole number, not {value[name]!r}', hint=_LEFT_OUT) from None
    if "properties" in value:
        try:
            value["properties"] = json.loads(value["properties"])
        except ValueError as error:
            raise UsageError(f'"properties" is not JSON: {error}', hint='as in {"name": "value"}') from None
    return value


def iter_bodies(bodies: Iterable[bytes], wanted: Wanted) -> Iterator[NewMessage | Bad]:
    """Yield a message for each body."""
    for number, body in enumerate(bodies, 1):
        try:
            message = wanted.message_of({})
            message.body = body
            yield message
        except UsageError as error:
            yield Bad(number, error)


def _at_line(number: int, error: UsageError) -> UsageError:
    return UsageError(f"line {number}: {error.message}", hint=error.hint)
