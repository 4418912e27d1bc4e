"""Writes JSON texts byte for byte as fastjson 1 and 2 do.

Where a library breaks lines depends on the Java type behind a value: a List, a Set and an array look different, and so
do maps with numeric keys. ``Shape`` says what the type was; a value of unknown shape is written as a map or a List.

Pretty text: TAB for each level, LF, nothing behind a colon or a comma, no LF at the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from rmqtool.formats.fastjson import Dialect, Reference


class Style(Enum):
    """How a text looks. The browser-compatible form is one line with every key quoted."""

    PRETTY = "pretty"
    COMPACT = "compact"
    BROWSER = "browser compatible"


class Shape:
    """The Java type behind a value."""


class JavaType(Enum):
    """What a plain value is in Java."""

    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    STRING = "String"
    ANY = "Object"


@dataclass(frozen=True, slots=True)
class Scalar(Shape):
    """A number, a text or a truth value."""

    java: JavaType = JavaType.ANY


INT = Scalar(JavaType.INT)
LONG = Scalar(JavaType.LONG)
BOOLEAN = Scalar(JavaType.BOOLEAN)
STRING = Scalar(JavaType.STRING)
ANY = Scalar()


class BeanField(NamedTuple):
    """A field of a bean: what it is, what a new bean has there, and since which version it is there at all.

    ``ignored`` fields are written because a getter exists, and not looked at when read.
    """

    shape: Shape
    default: Any = None
    since: str = "4.0.0"
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class Bean(Shape):
    """An object with declared fields, in the order in which they are written."""

    fields: Mapping[str, BeanField] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table(Shape):
    """A map. ``bins`` are those of a fresh one in upstream's process; they decide the order of its keys."""

    values: Shape
    bins: int = 16
    numeric_keys: JavaType | None = None
    concurrent: bool = True


class Kind(Enum):
    """What held a sequence."""

    LIST = "List"
    SET = "Set"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Sequence(Shape):
    """A list, a set or an array."""

    items: Shape
    kind: Kind = Kind.LIST


_LIST = Sequence(ANY)

# Beyond these a script would lose digits, so the browser-compatible form quotes the number.
_MAX_SAFE_INTEGER = (1 << 53) - 1

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_ESCAPED_1 = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_ESCAPED_1_BROWSER = re.compile("[^ !#-.0-\\[\\]-~]")
_ESCAPED_2 = re.compile('[\x00-\x1f"\\\\]')


def write(value: Any, shape: Shape, dialect: Dialect, style: Style = Style.PRETTY) -> str:
    """Return the text of ``value`` as ``dialect`` writes it."""
    return _Writer(dialect, style).write(value, shape, "\n")


class _Writer:
    """``line`` is the line break with the indentation of the value's own line."""

    def __init__(self, dialect: Dialect, style: Style) -> None:
        self._first = dialect is Dialect.FASTJSON_1
        self._browser = style is Style.BROWSER
        self._pretty = style is Style.PRETTY
        self._quote = self._quote_1_browser if self._first and self._browser else self._quote_plain

    def write(self, value: Any, shape: Shape, line: str) -> str:
        if isinstance(value, Reference):
            return self._map({"$ref": value.path}, Bean(), line)
        if isinstance(value, Mapping):
            return self._map(value, shape, line)
        if isinstance(value, list | tuple):
            return self._sequence(value, shape if isinstance(shape, Sequence) else _LIST, line)
        if isinstance(value, str):
            return self._quote(value)
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if self._browser and isinstance(value, int) and abs(value) > _MAX_SAFE_INTEGER:
            return f'"{value}"'
        return str(value)

    def _map(self, value: Mapping[Any, Any], shape: Shape, line: str) -> str:
        # Neither library writes a field or an entry whose value is null.
        items = [(name, inner) for name, inner in value.items() if inner is not None]
        deeper = line + "\t"
        if not items and self._pretty and (value or not self._first):
            return "{" + ("" if self._first else deeper) + line + "}"
        if not items:
            return "{}"
        texts = [self._name(name) + ":" + self.write(inner, _shape_of(shape, name), deeper) for name, inner in items]
        if not self._pretty:
            return "{" + ",".join(texts) + "}"
        if self._first and isinstance(items[0][0], int):
            return "{" + ",".join(texts) + line + "}"
        return "{" + deeper + ("," + deeper).join(texts) + line + "}"

    def _name(self, name: int | str) -> str:
        if isinstance(name, str):
            return self._quote(name)
        return f'"{name}"' if self._browser else str(name)

    def _sequence(self, value: list[Any] | tuple[Any, ...], shape: Sequence, line: str) -> str:
        inline = not self._pretty or shape.kind is Kind.ARRAY
        if self._first:
            inline = inline or shape.kind is Kind.SET or not value
        elif shape.kind is Kind.LIST and isinstance(shape.items, Scalar):
            inline = inline or not any(isinstance(inner, Mapping | list | tuple) for inner in value)
        deeper = line if inline else line + "\t"
        texts = [self.write(inner, shape.items, deeper) for inner in value]
        if inline:
            return "[" + ",".join(texts) + "]"
        return "[" + deeper + ("," + deeper).join(texts) + line + "]"

    def _quote_plain(self, text: str) -> str:
        escaped = _ESCAPED_1 if self._first else _ESCAPED_2
        digits = "04X" if self._first else "04x"
        return (
            '"' + escaped.sub(lambda match: _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):{digits}}", text) + '"'
        )

    def _quote_1_browser(self, text: str) -> str:
        def escape(match: re.Match[str]) -> str:
            short = "\\/" if match[0] == "/" else _SHORT_ESCAPES.get(match[0])
            units = match[0].encode("utf-16-be", "surrogatepass").hex().upper()
            return short or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

        return '"' + _ESCAPED_1_BROWSER.sub(escape, text) + '"'


def _shape_of(shape: Shape, name: int | str) -> Shape:
    if isinstance(shape, Table):
        return shape.values
    declared = shape.fields.get(str(name)) if isinstance(shape, Bean) else None
    return ANY if declared is None else declared.shape
