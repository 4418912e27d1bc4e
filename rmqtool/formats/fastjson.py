"""JSON as fastjson reads and writes it, which is more than JSON.

Brokers up to 5.3 use fastjson 1, from 5.4.0 on fastjson 2. Both write maps with numeric keys as ``{0:5,1:6}``. Both
read much more than they write, and not the same (``ODDITIES``).

*Reading.* Without a dialect the parser accepts what either library accepts and reports the oddities it met; with a
dialect it refuses what that one refuses. Nesting and the length of numbers are limited, and each character is looked at
a limited number of times: any text ends in a value or in a ``FastjsonError``. Conversions that depend on the type of a
field (a number where a map is declared) are those of ``config_files``.

*Writing* is byte for byte that of the library. Line breaks depend on the Java type of a value: a List, a Set and an
array look different, and so do maps with numeric keys. ``Shape`` says what the type was; a value of unknown shape is
written as a map or a List. Pretty text has one TAB for each level, LF, nothing after a colon or a comma, and no LF at
the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple, NoReturn

from rmqtool.formats.java import decode_text


class Dialect(StrEnum):
    """Which library: fastjson 1 in brokers up to 5.3, fastjson 2 from 5.4.0 on."""

    FASTJSON_1 = "fastjson 1"
    FASTJSON_2 = "fastjson 2"


class OddityKind(StrEnum):
    """Things that a library may accept and no broker writes."""

    BYTE_ORDER_MARK = "byte order mark"
    NUL = "NUL or 0x1A between tokens"
    BLOCK_COMMENT = "/* comment */"
    BLOCK_COMMENT_AT_START = "/* comment */ before the value"
    LINE_COMMENT = "// comment"
    LINE_COMMENT_NEAR_VALUE = "// comment before a plain value, or after one and its comma"
    COMMENT_BEFORE_COLON = "comment between a name and its colon"
    SINGLE_QUOTES = "single quotes"
    UNQUOTED_NAME = "unquoted name"
    TRAILING_COMMA = "comma before a closing bracket"
    DOUBLE_COMMA = "doubled comma after a bracket"
    DOUBLE_COMMA_NEAR_VALUE = "doubled comma after a plain value"
    DOUBLE_COMMA_OF_NUMBERS = "doubled comma in a map with numeric keys"
    STRAY_COMMA = "comma without a value in a list, or first in an object"
    NO_COMMA = "no comma between pairs"
    NO_COMMA_OF_NUMBERS = "no comma in a map with numeric keys"
    NO_COMMA_IN_LIST = "no comma in a list"
    REFERENCE = "reference to another value"
    DUPLICATE_NAME = "name twice; the last value counts"


_BOTH = frozenset(Dialect)
_ONLY_1 = frozenset({Dialect.FASTJSON_1})
_ONLY_2 = frozenset({Dialect.FASTJSON_2})

# Which library accepts each. Where that depends on the type of a field, this is for the types in a broker's files.
ODDITIES: dict[OddityKind, frozenset[Dialect]] = {
    OddityKind.BYTE_ORDER_MARK: _BOTH,
    OddityKind.NUL: _BOTH,
    OddityKind.BLOCK_COMMENT: _ONLY_1,
    OddityKind.BLOCK_COMMENT_AT_START: _BOTH,
    OddityKind.LINE_COMMENT: _BOTH,
    OddityKind.LINE_COMMENT_NEAR_VALUE: _ONLY_1,
    OddityKind.COMMENT_BEFORE_COLON: frozenset(),
    OddityKind.SINGLE_QUOTES: _BOTH,
    OddityKind.UNQUOTED_NAME: _ONLY_1,
    OddityKind.TRAILING_COMMA: _BOTH,
    OddityKind.DOUBLE_COMMA: _BOTH,
    OddityKind.DOUBLE_COMMA_NEAR_VALUE: _ONLY_1,
    OddityKind.DOUBLE_COMMA_OF_NUMBERS: frozenset(),
    OddityKind.STRAY_COMMA: _ONLY_1,
    OddityKind.NO_COMMA: _ONLY_2,
    OddityKind.NO_COMMA_OF_NUMBERS: _BOTH,
    OddityKind.NO_COMMA_IN_LIST: _ONLY_1,
    OddityKind.REFERENCE: _ONLY_1,
    OddityKind.DUPLICATE_NAME: _BOTH,
}


class Oddity(NamedTuple):
    """An oddity, and the index of the character in the text where it is."""

    kind: OddityKind
    position: int


class Reference(NamedTuple):
    """A reference to another value of the same text, written as ``{"$ref":"..."}``."""

    path: str


class Parsed(NamedTuple):
    """The value of a text, and its oddities.

    Objects are dicts in the order of the text. A name that is a bare integer becomes an int, every other name a str.
    """

    value: Any
    oddities: tuple[Oddity, ...]


class FastjsonError(ValueError):
    """The text is not what fastjson reads; ``position`` is the index of the character at which reading failed."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at character {position}")
        self.message = message
        self.position = position


# No broker writes deeper texts or longer numbers. The limits keep damaged files from using up stack and time.
MAX_DEPTH = 100
MAX_DIGITS = 400

# Between tokens both libraries skip blanks and comments, which begin with a slash, and also NUL and 0x1A, which no
# broker writes.
_BETWEEN_TOKENS = frozenset(" \t\n\r\f\x08\0\x1a/")
_BLANK = re.compile(r"[ \t\n\r\f\x08]*")
_NOTHING = re.compile(r"[\0\x1a]*")
_STRING = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+{quote}", re.DOTALL) for quote in "\"'"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-7btnvfr\"'/\\])|)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_NUMBER = re.compile(r"[+-]?\d++(\.\d*+)?([eE][+-]?\d++)?(?![A-Za-z0-9_.+-])", re.ASCII)
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"} | {str(n): chr(n) for n in range(8)}
_WORDS = {"true": True, "false": False, "null": None}
_REFERENCE_NAME = "$ref"


def parse(text: str | bytes, dialect: Dialect | None = None) -> Parsed:
    """Return the value of a text as ``dialect`` reads it; without a dialect, as either reads it.

    Bytes are decoded by Java's rules first. Raises FastjsonError, and nothing else.
    """
    return _Parser(text if isinstance(text, str) else decode_text(text), dialect).parse()


class Whole(NamedTuple):
    """The sound part of a text that does not parse, and where it ends in the original.

    ``text`` is that part with its open brackets closed, so that it parses.
    """

    text: str
    position: int
    # The value itself is complete, and only something after it is wrong.
    is_complete: bool


def whole_part(text: str, most_open: int) -> Whole | None:
    """Return the sound part of a text before the place where it does not parse; None if it parses or has no such part.

    The text is cut after a value, the last one that is at most ``most_open`` brackets deep and that a comma or a
    closing bracket follows. Without one the value may be incomplete: a number at the end may have lost digits. The
    brackets that are open at the cut are closed.
    """
    parser = _CutParser(text, most_open)
    try:
        parser.parse()
    except FastjsonError:
        return parser.whole
    return None


class _Parser:
    """One pass through a text; ``_at`` is the next character.

    What a library makes of a comma or a comment depends on the token before it: nothing, ``{``, ``[``, ``name``, ``:``,
    ``value`` (a plain one), ``}`` (any closing bracket), or one of these with a comma after it.
    """

    def __init__(self, text: str, dialect: Dialect | None) -> None:
        self._text = text
        self._end = len(text)
        self._dialect = dialect
        self._oddities: list[Oddity] = []
        self._at = 0
        self._depth = 0
        self._in_list = False
        # Where the value of the whole text ends; None until it was read.
        self._value_end: int | None = None

    def parse(self) -> Parsed:
        """Read the whole text: one value, which only blanks and comments may surround."""
        if self._text.startswith("\ufeff"):
            self._odd(OddityKind.BYTE_ORDER_MARK)
            self._at = 1
        self._skip("")
        if self._at == self._end:
            self._fail("there is no value")
        value = self._value()
        self._value_end = self._at
        self._skip("}")
        if self._at < self._end:
            self._fail("there is text after the value")
        return Parsed(value, tuple(self._oddities))

    def _fail(self, message: str) -> NoReturn:
        raise FastjsonError(message, self._at)

    def _odd(self, kind: OddityKind, position: int | None = None) -> None:
        """Note an oddity at ``position``, by default here; fail if the dialect does not accept it."""
        if self._dialect is not None and self._dialect not in ODDITIES[kind]:
            self._fail(f"{self._dialect} refuses: {kind}")
        self._oddities.append(Oddity(kind, self._at if position is None else position))

    def _skip(self, before: str) -> None:
        """Go to the next token; ``before`` is the token before it, in the words of ``_Parser``."""
        while self._text[self._at : self._at + 1] in _BETWEEN_TOKENS:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
            start = self._text[self._at : self._at + 2]
            if start[:1] in ("\0", "\x1a"):
                self._odd(OddityKind.NUL)
                nothing = _NOTHING.match(self._text, self._at)
                self._at = nothing.end() if nothing else self._at
            elif start in ("//", "/*"):
                self._odd(self._comment_kind(start, before))
                self._at += 2
                self._to_after("\n" if start == "//" else "*/")
            else:
                return

    def _comment_kind(self, start: str, before: str) -> OddityKind:
        """Return which oddity a comment is; it depends on the token before it whether a library skips it."""
        if before == "name":
            return OddityKind.COMMENT_BEFORE_COLON
        if start == "/*":
            return OddityKind.BLOCK_COMMENT if before else OddityKind.BLOCK_COMMENT_AT_START
        near_value = before in (":", "value", "value,") or (self._in_list and before == "},")
        return OddityKind.LINE_COMMENT_NEAR_VALUE if near_value else OddityKind.LINE_COMMENT

    def _to_after(self, mark: str) -> None:
        """Go to the character after the next ``mark``, or to the end of the text if there is no other."""
        found = self._text.find(mark, self._at)
        self._at = self._end if found < 0 else found + len(mark)

    def _value(self) -> Any:
        """Read the value of any kind that begins at ``_at``."""
        first = self._text[self._at : self._at + 1]
        if first == "{":
            return self._nested(self._object)
        if first == "[":
            return self._nested(self._list)
        if first in ('"', "'"):
            return self._string(first)
        word = _NAME.match(self._text, self._at)
        if word and word[0] in _WORDS:
            self._at = word.end()
            return _WORDS[word[0]]
        number = _NUMBER.match(self._text, self._at)
        if not number:
            self._fail("a value is expected" if first else "the text ends where a value is expected")
        return self._number(number)

    def _nested(self, read: Callable[[], Any]) -> Any:
        """Read an object or a list with ``read``; texts that nest deeper than ``MAX_DEPTH`` fail."""
        if self._depth == MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH}")
        self._depth += 1
        in_list, self._in_list = self._in_list, read == self._list
        self._at += 1
        value = read()
        self._at += 1
        self._in_list = in_list
        self._depth -= 1
        return value

    def _number(self, match: re.Match[str]) -> int | float:
        """Return the number that was matched: a float if it has a fraction or an exponent."""
        if match.end() - match.start() > MAX_DIGITS:
            self._fail(f"number of more than {MAX_DIGITS} digits")
        number = float(match[0]) if match[1] or match[2] else int(match[0])
        if isinstance(number, float) and not math.isfinite(number):
            self._fail("number out of range")
        self._at = match.end()
        return number

    def _string(self, quote: str) -> str:
        """Read a string that begins with ``quote``, and replace its escapes."""
        if quote == "'":
            self._odd(OddityKind.SINGLE_QUOTES)
        match = _STRING[quote].match(self._text, self._at + 1)
        if match is None:
            self._fail("string without an end")
        raw = match[0][:-1]
        text = self._unescape(raw) if "\\" in raw else raw
        self._at = match.end()
        return text

    def _unescape(self, raw: str) -> str:
        """Return the text of a string with its escapes replaced; an unknown escape fails."""

        def replace(match: re.Match[str]) -> str:
            digits, letter = match[1] or match[2], match[3]
            if digits:
                return chr(int(digits, 16))
            if letter is None:
                self._at += 1 + match.start()
                self._fail("unknown escape")
            return _ESCAPED.get(letter, letter)

        text = _ESCAPE.sub(replace, raw)
        # An escape is a UTF-16 unit: two that form a pair are one character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def _object(self) -> dict[int | str, Any] | Reference:
        """Read an object.

        Missing or superfluous commas become oddities. An object whose only name is ``$ref`` is a Reference.
        """
        found: dict[int | str, Any] = {}
        before = "{"
        self._skip(before)
        while self._text[self._at : self._at + 1] != "}":
            if self._text[self._at : self._at + 1] == ",":
                self._odd(_comma_kind(found, before))
                before = self._after_comma(before)
                continue
            if self._at == self._end:
                self._fail("the text ends inside an object")
            if before in ("value", "}"):
                self._odd(OddityKind.NO_COMMA_OF_NUMBERS if _has_numbers(found) else OddityKind.NO_COMMA)
            self._pair(found)
            before = self._separator()
        if before.endswith(","):
            self._odd(OddityKind.TRAILING_COMMA)
        if found.keys() == {_REFERENCE_NAME} and isinstance(found[_REFERENCE_NAME], str):
            self._odd(OddityKind.REFERENCE)
            return Reference(found[_REFERENCE_NAME])
        return found

    def _separator(self) -> str:
        """Go to the token after a value, past at most one comma; return the token before it in ``_Parser``'s words."""
        before = "}" if self._text[self._at - 1] in "}]" else "value"
        self._skip(before)
        return self._after_comma(before) if self._text[self._at : self._at + 1] == "," else before

    def _after_comma(self, before: str) -> str:
        """Go to the token after a comma; return what comes before that token, in the words of ``_Parser``."""
        self._at += 1
        before = before if before.endswith(",") else before + ","
        self._skip(before)
        return before

    def _pair(self, found: dict[int | str, Any]) -> None:
        """Read a name and its value into ``found``."""
        position = self._at
        name = self._name()
        self._skip("name")
        if self._text[self._at : self._at + 1] != ":":
            self._fail("a colon is expected" if self._at < self._end else "the text ends inside an object")
        self._at += 1
        self._skip(":")
        value = self._value()
        if name in found:
            self._odd(OddityKind.DUPLICATE_NAME, position)
        found[name] = value

    def _name(self) -> int | str:
        """Read a name: a string, a number, or a word without quotes."""
        first = self._text[self._at : self._at + 1]
        if first in ('"', "'"):
            return self._string(first)
        number = _NUMBER.match(self._text, self._at)
        if number:
            # Only integers are keys of numeric maps; a fraction is the text that it was written as.
            value = self._number(number)
            return value if isinstance(value, int) else number[0]
        word = _NAME.match(self._text, self._at)
        if word is None:
            self._fail("a name is expected")
        self._odd(OddityKind.UNQUOTED_NAME)
        self._at = word.end()
        return word[0]

    def _list(self) -> list[Any]:
        """Read a list. Missing or superfluous commas become oddities."""
        found: list[Any] = []
        before = "["
        self._skip(before)
        while self._text[self._at : self._at + 1] != "]":
            if self._text[self._at : self._at + 1] == ",":
                self._odd(OddityKind.STRAY_COMMA)
                before = self._after_comma(before)
                continue
            if self._at == self._end:
                self._fail("the text ends inside a list")
            if before in ("value", "}"):
                self._odd(OddityKind.NO_COMMA_IN_LIST)
            found.append(self._value())
            before = self._separator()
        if before.endswith(","):
            self._odd(OddityKind.TRAILING_COMMA)
        return found


class _CutParser(_Parser):
    """A parser that keeps in ``whole`` the sound part of the text that it has read so far."""

    def __init__(self, text: str, most_open: int) -> None:
        super().__init__(text, None)
        self.whole: Whole | None = None
        self._most_open = most_open
        self._closing: list[str] = []

    def parse(self) -> Parsed:
        """Read the whole text; if it fails after its value, the value is the sound part."""
        try:
            return super().parse()
        except FastjsonError:
            # The value is complete; only what follows it is not JSON.
            if self._value_end is not None:
                self.whole = Whole(self._text[: self._value_end], self._value_end, is_complete=True)
            raise

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._closing.append("]" if read == self._list else "}")
        value = super()._nested(read)
        self._closing.pop()
        return value

    def _separator(self) -> str:
        """Do what the parser does, and note the sound part if the value before this place is whole.

        A comma or a closing bracket after it shows that it is; without one the text may end within the value, and a
        number may have lost digits.
        """
        at = self._at
        before = super()._separator()
        is_followed = before.endswith(",") or self._text[self._at : self._at + 1] in ("}", "]")
        if is_followed and len(self._closing) <= self._most_open:
            self.whole = Whole(self._text[:at] + "".join(reversed(self._closing)), at, is_complete=False)
        return before


def _has_numbers(found: dict[int | str, Any]) -> bool:
    """Return whether an object is a map with numeric keys; its first name decides."""
    return isinstance(next(iter(found), None), int)


def _comma_kind(found: dict[int | str, Any], before: str) -> OddityKind:
    """Return the oddity of a comma where a name is expected; ``found`` is the object so far."""
    if _has_numbers(found):
        return OddityKind.DOUBLE_COMMA_OF_NUMBERS
    if not before.endswith(","):
        return OddityKind.STRAY_COMMA
    return OddityKind.DOUBLE_COMMA if before == "}," else OddityKind.DOUBLE_COMMA_NEAR_VALUE


class Style(Enum):
    """How a text is laid out: PRETTY has line breaks, the others are one line.

    BROWSER (upstream's "browser compatible") also has every key, and each number of more than 53 bits, in quotes.
    """

    PRETTY = "pretty"
    COMPACT = "compact"
    BROWSER = "browser compatible"


class Shape:
    """The Java type of a value, as far as it decides how the value is read and written."""


class JavaType(Enum):
    """The Java type of a number, text or truth value; it decides which values a field accepts."""

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
    """A field of a bean: its type, its value in a new bean, and the first version that has it.

    An ``ignored`` field is written because the class has a getter, and ignored when read.
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
    """A map. ``bins`` is the size of a new one in upstream, which decides the order of its keys.

    ``numeric_keys`` is the type of keys that are numbers; None for keys that are texts. A ``concurrent`` map is a
    ConcurrentHashMap: it grows earlier than a HashMap, and holds no null.
    """

    values: Shape
    bins: int = 16
    numeric_keys: JavaType | None = None
    concurrent: bool = True


class Kind(Enum):
    """The Java type of a sequence; each is laid out in another way."""

    LIST = "List"
    SET = "Set"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Sequence(Shape):
    """Values without names, in brackets. Its ``kind`` decides only where the writer breaks lines."""

    items: Shape
    kind: Kind = Kind.LIST


_LIST = Sequence(ANY)

# JavaScript loses digits of larger numbers, so the browser compatible style puts them in quotes.
_MAX_SAFE_INTEGER = (1 << 53) - 1

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
# The characters that are escaped: by fastjson 1, by fastjson 1 in the browser compatible style, by fastjson 2.
_ESCAPED_1 = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_ESCAPED_1_BROWSER = re.compile("[^ !#-.0-\\[\\]-~]")
_ESCAPED_2 = re.compile('[\x00-\x1f"\\\\]')


def write(value: Any, shape: Shape, dialect: Dialect, style: Style = Style.PRETTY) -> str:
    """Return ``value`` as the library writes an object of ``shape``; null fields and entries are left out."""
    return _Writer(dialect, style).write(value, shape, "\n")


class _Writer:
    """Writes one value; ``line`` is a line break and the indentation of the value's line."""

    def __init__(self, dialect: Dialect, style: Style) -> None:
        self._first = dialect is Dialect.FASTJSON_1
        self._browser = style is Style.BROWSER
        self._pretty = style is Style.PRETTY
        self._quote = self._quote_1_browser if self._first and self._browser else self._quote_plain

    def write(self, value: Any, shape: Shape, line: str) -> str:
        """Return ``value`` as a text; ``line`` begins the lines after the first."""
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
        """Return an object; ``shape`` tells the shapes of its values."""
        # Neither library writes a field or an entry that is null.
        items = [(name, inner) for name, inner in value.items() if inner is not None]
        deeper = line + "\t"
        # fastjson 2 breaks the lines of an empty map too, fastjson 1 only those of one whose entries are all null.
        if not items and self._pretty and (value or not self._first):
            return "{" + ("" if self._first else deeper) + line + "}"
        if not items:
            return "{}"
        texts = [self._name(name) + ":" + self.write(inner, _shape_of(shape, name), deeper) for name, inner in items]
        if not self._pretty:
            return "{" + ",".join(texts) + "}"
        # fastjson 1 writes a map with numeric keys on one line, and a line break before its last bracket.
        if self._first and isinstance(items[0][0], int):
            return "{" + ",".join(texts) + line + "}"
        return "{" + deeper + ("," + deeper).join(texts) + line + "}"

    def _name(self, name: int | str) -> str:
        if isinstance(name, str):
            return self._quote(name)
        return f'"{name}"' if self._browser else str(name)

    def _sequence(self, value: list[Any] | tuple[Any, ...], shape: Sequence, line: str) -> str:
        """Return a list, a set or an array; the library decides which of them are on one line."""
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
        """Return a string in quotes, with the escapes of the dialect; fastjson 2 has the same in all styles."""
        escaped = _ESCAPED_1 if self._first else _ESCAPED_2
        # fastjson 1 writes hexadecimal digits in upper case, fastjson 2 in lower case.
        digits = "04X" if self._first else "04x"
        return (
            '"' + escaped.sub(lambda match: _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):{digits}}", text) + '"'
        )

    def _quote_1_browser(self, text: str) -> str:
        """Return a string as fastjson 1 writes it browser compatible: all but plain ASCII is escaped, and ``/``."""

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
