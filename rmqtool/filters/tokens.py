"""The words of a SQL92 selector, read one at a time.

Reading is lazy because upstream's is: what stands behind the one word after the expression is never looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from rmqtool.filters.syntax import FilterSyntaxError, shown

END = "END"
DECIMAL = "DECIMAL"
FLOAT = "FLOAT"
STRING = "STRING"
IDENTIFIER = "IDENTIFIER"

_KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
SEARCHES = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})


class Dialect(Enum):
    """Which brokers' grammar: 5.x has three keywords more, which are names of properties in 4.x."""

    V4 = "4"
    V5 = "5"

    @property
    def keywords(self) -> frozenset[str]:
        """The words that are no names of properties, in whatever case they are written."""
        return _KEYWORDS if self is Dialect.V4 else _KEYWORDS | SEARCHES


@dataclass(frozen=True, slots=True)
class Token:
    """One word: ``kind`` is its keyword or symbol or one of the names above, ``start`` its place in the text."""

    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == END else f"“{shown(self.text)}”"


# A line comment needs its line end, as upstream's does; without it the two signs are minus, minus.
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*+[\n\r]|/\*(?s:.*?)\*/)*")
_TOKEN = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<DECIMAL>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<IDENTIFIER>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<SYMBOL><>|<=|>=|[=<>(),+-])"
)


class Lexer:
    """Reads ``text`` word by word."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self._keywords = dialect.keywords
        self._at = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """Return the next word and leave it there."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """Return the next word and step over it."""
        token = self.peek()
        self._next = None
        return token

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self.text, self._at)
        start = skipped.end() if skipped else self._at
        if start == len(self.text):
            return Token(END, "", start)
        found = _TOKEN.match(self.text, start)
        if found is None:
            raise self._unreadable(start)
        self._at = found.end()
        text = found[0]
        kind = found.lastgroup or END
        if kind == "SYMBOL":
            kind = text
        elif kind == IDENTIFIER and text.upper() in self._keywords:
            kind = text.upper()
        return Token(kind, text, start)

    def _unreadable(self, start: int) -> FilterSyntaxError:
        hint = None
        if self.text[start] == "'":
            message = "the string that begins here has no closing quote"
        elif self.text.startswith("/*", start):
            message = "the comment that begins here is not closed"
        elif self.text[start] == '"':
            message, hint = "a string stands in single quotes", "write 'text', and a quote inside it twice"
        elif self.text[start] == "!":
            message, hint = "there is no operator “!”", "write <> for different, NOT for the opposite"
        else:
            message = "a character that has no meaning here"
        return FilterSyntaxError(message, text=self.text, position=start, hint=hint)
