"""Bodies: JSON as Java's clients and brokers write and read it, and the few that are not JSON.

The JSON written here can be read by all of them: one line without blanks (the Go client cuts routes by string
operations), names in alphabetical order as fastjson writes them, ids in quotes. A map whose keys are message queues is
written with the objects themselves as keys. That is not JSON, but it is the only form that fastjson 2 (5.4 on) reads,
and the one that fastjson 1 writes. When reading, keys may also be bare numbers, and enumerations may be numbers, as the
C++ client writes them.

A value keeps the members it was given; only these are written. Unknown members are ignored. A member that is declared
without a default is required, so that a reader of the value need not check for it.

Upstream: ``RemotingSerializable``.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable
from enum import Enum, StrEnum
from json.encoder import encode_basestring
from typing import Any, ClassVar, Final, NamedTuple, Self

from rmqtool.formats.java import decode_text, encode_text, parse_long
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting import limits
from rmqtool.remoting.command import FrameError
from rmqtool.remoting.declared import Declared


class Content(Enum):
    """The content of a body that is not a JSON object."""

    MESSAGE = "the message, or a batch of them"
    RECORDS = "records as they are stored, one after the other"
    PROPERTIES = "lines of Java properties"
    BYTES = "bytes of their own layout"
    JSON = "JSON"


class BodyError(ValueError):
    """A body that cannot be read: answered with code 1."""


Read = Callable[[Any], Any]
Write = Callable[[Any], str]


class _Plan(NamedTuple):
    """How the members of a body are read and written: by name on the wire, and in the order of these names."""

    readers: dict[str, tuple[str, Read]]
    writers: list[tuple[str, str, Write]]
    needed: list[tuple[str, str]]


# A string, or an object without objects in it that is followed by a colon, or a bare number that is.
_KEY = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'
    r'|(\{(?:[^{}"]|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+\})(?=\s*+:)'
    r"|(?<=[{,])(\s*+-?\d++)(?=\s*+:)",
    re.DOTALL,
)
_VALUES: Final = 1 << 18


def read_json(data: bytes) -> Any:
    """Return the value of a JSON body; keys that are objects become their texts. Raises BodyError."""
    text = decode_text(data)
    try:
        limits.check_json(text, _VALUES)
    except FrameError as error:
        raise BodyError(str(error)) from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_KEY.sub(_quoted_key, text))
    except (ValueError, RecursionError):
        raise BodyError(f"the body is not JSON: {text[:60]}") from None


def _quoted_key(match: re.Match[str]) -> str:
    key: str | None = match[1] or match[2]
    return match[0] if key is None else encode_basestring(key.strip())


class Body(Declared):
    """A JSON object with declared members."""

    _plan: ClassVar[_Plan | None] = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the value of a body. Raises BodyError."""
        return cls.read(read_json(data))

    @classmethod
    def read(cls, members: Any) -> Self:
        """Return the value of a JSON object that is parsed already. Raises BodyError."""
        if not isinstance(members, dict):
            raise BodyError(f"{cls.__name__} is not a JSON object")
        readers, _, needed = cls._codecs()
        value = cls.__new__(cls)
        for wire, member in members.items():
            if member is not None and wire in readers:
                name, read = readers[wire]
                try:
                    value.__dict__[name] = read(member)
                except BodyError as error:
                    raise BodyError(f"{wire}: {error}") from None
        for name, wire in needed:
            if name not in value.__dict__:
                raise BodyError(f"{wire} is missing")
        return value

    def encode(self) -> bytes:
        """Return the body: compact JSON, members by name."""
        return encode_text(self.text())

    def text(self) -> str:
        """Return the JSON text."""
        given = self.__dict__
        parts = [f'"{wire}":{write(given[name])}' for wire, name, write in self._codecs().writers if name in given]
        return "{" + ",".join(parts) + "}"

    @classmethod
    def _codecs(cls) -> _Plan:
        """Return how members are read and written; it is derived at the first body of the class."""
        plan = cls.__dict__.get("_plan")
        if plan is None:
            hints = typing.get_type_hints(cls)
            codecs = {name: _codec(hints[name]) for name in cls.fields}
            plan = cls._plan = _Plan(
                {field.wire: (name, codecs[name][0]) for name, field in cls.fields.items()},
                sorted((field.wire, name, codecs[name][1]) for name, field in cls.fields.items()),
                [(name, field.wire) for name, field in cls.fields.items() if field.insisted_on],
            )
        return plan


def _codec(hint: Any) -> tuple[Read, Write]:
    """Return how values of an annotated type are read and written."""
    if isinstance(hint, types.UnionType):
        return _codec(next(part for part in hint.__args__ if part is not type(None)))
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin = typing.get_origin(hint)
    if origin is list:
        return _list_codec(*_codec(hint.__args__[0]))
    if origin is dict:
        return _map_codec(hint.__args__[0], *_codec(hint.__args__[1]))
    if isinstance(hint, type) and issubclass(hint, Body):
        return hint.read, hint.text
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum_reader(hint), _write_text
    raise TypeError(f"no body has members of type {hint}")


def _list_codec(read: Read, write: Write) -> tuple[Read, Write]:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise BodyError("not a JSON array")
        return [read(item) for item in value if item is not None]

    return read_list, lambda value: "[" + ",".join(map(write, value)) + "]"


def _map_codec(key: Any, read: Read, write: Write) -> tuple[Read, Write]:
    read_key = {str: _read_text, int: _read_int, MessageQueue: _read_queue_key}[key]
    write_key = {str: encode_basestring, int: lambda number: f'"{number}"', MessageQueue: _write_queue}[key]

    def read_map(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise BodyError("not a JSON object")
        return {read_key(name): read(item) for name, item in value.items() if item is not None}

    def write_map(value: dict[Any, Any]) -> str:
        return "{" + ",".join(f"{write_key(name)}:{write(item)}" for name, item in value.items()) + "}"

    return read_map, write_map


def _enum_reader(kind: type[StrEnum]) -> Read:
    members = list(kind)

    def read(value: Any) -> StrEnum:
        if type(value) is int and 0 <= value < len(members):
            return members[value]
        try:
            return kind(value)
        except ValueError:
            raise BodyError(f"{str(value)[:60]!r} is not a {kind.__name__}") from None

    return read


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read_int(value: Any) -> int:
    if type(value) is int:
        return value
    found = parse_long(value) if isinstance(value, str) else None
    if found is None:
        raise BodyError(f"{str(value)[:60]!r} is not a number")
    return found


def _read_float(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    raise BodyError(f"{str(value)[:60]!r} is not a number")


def _read_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise BodyError(f"{str(value)[:60]!r} is neither true nor false")


def _read_queue(value: Any) -> MessageQueue:
    if not isinstance(value, dict):
        raise BodyError("not a message queue")
    return MessageQueue(
        _read_text(value.get("topic", "")), _read_text(value.get("brokerName", "")), _read_int(value.get("queueId", 0))
    )


def _read_queue_key(text: str) -> MessageQueue:
    try:
        return _read_queue(json.loads(text))
    except (ValueError, RecursionError):
        raise BodyError(f"the key {text[:60]!r} does not name a message queue") from None


def _write_queue(queue: MessageQueue) -> str:
    broker, topic = encode_basestring(queue.broker_name), encode_basestring(queue.topic)
    return f'{{"brokerName":{broker},"queueId":{queue.queue_id},"topic":{topic}}}'


def _write_text(value: str) -> str:
    return encode_basestring(str(value))


_PLAIN: Final[dict[Any, tuple[Read, Write]]] = {
    str: (_read_text, encode_basestring),
    int: (_read_int, str),
    bool: (_read_bool, lambda value: "true" if value else "false"),
    float: (_read_float, repr),
    MessageQueue: (_read_queue, _write_queue),
    Any: (lambda value: value, lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
}
