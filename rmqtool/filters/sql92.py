"""SQL92 selectors: the lexer, the parser, and the error that shows where an expression is wrong.

A selector sees every stored property, ``TAGS`` and ``KEYS`` included, and nothing else of a message. Words are read one
at a time, because upstream does: it never looks past the first word after the expression.

Upstream: ``SelectorParser``, ``ComparisonExpression.create...``, ``ConstantExpression.create...``.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from rmqtool.errors import UsageError
from rmqtool.filters.expressions import (
    And,
    Between,
    BooleanCast,
    Constant,
    Equal,
    Expression,
    In,
    IsNull,
    Kind,
    Negate,
    Not,
    Or,
    Ordered,
    Property,
    Search,
    Truth,
    Typed,
    compare,
    is_truth,
    property_names,
    truth_of,
)
from rmqtool.formats.java import INT_MAX, parse_long


class FilterSyntaxError(UsageError):
    """An expression was refused. ``position`` is the index in ``text`` of the first wrong character."""

    code = "filter-syntax"

    def __init__(self, message: str, *, text: str, position: int, hint: str | None = None) -> None:
        super().__init__(f"{message} (character {position + 1} of the expression)", hint=hint)
        self.text = text
        self.position = position

    def as_json(self) -> dict[str, object]:
        """Return the ``error`` object of docs/contract.md, with expression and position."""
        return {**super().as_json(), "expression": self.text, "position": self.position}

    def caret(self, width: int = 72) -> str:
        """Return two lines: the expression, or ``width`` columns around the wrong place, and a caret below it.

        Line ends and control characters are shown as symbols of one column, so that an error cannot move the cursor.
        """
        cells = [_cell(character) for character in self.text]
        first, last = self.position, self.position
        used = 1
        while used < width and (first > 0 or last < len(cells)):
            if first > 0:
                first -= 1
                used += _columns(cells[first])
            if last < len(cells):
                used += _columns(cells[last])
                last += 1
        before = ("…" if first > 0 else "") + "".join(cells[first : self.position])
        after = "".join(cells[self.position : last]) + ("…" if last < len(cells) else "")
        return f"{before}{after}\n{' ' * sum(map(_columns, before))}^"


def shown(text: str, width: int = 40) -> str:
    """Return ``text`` for a sentence: printable, and cut to ``width`` characters."""
    cells = "".join(_cell(character) for character in text[: width + 1])
    return cells if len(cells) <= width else cells[: width - 1] + "…"


def _cell(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return character if character.isprintable() else "\ufffd"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


END = "END"
DECIMAL = "DECIMAL"
FLOAT = "FLOAT"
STRING = "STRING"
IDENTIFIER = "IDENTIFIER"

_KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
SEARCHES = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})


class Dialect(Enum):
    """The grammar. 5.x has three more keywords, which are names of properties in 4.x."""

    V4 = "4"
    V5 = "5"

    @property
    def keywords(self) -> frozenset[str]:
        """The words that cannot be names of properties, in upper case; upstream ignores case."""
        return _KEYWORDS if self is Dialect.V4 else _KEYWORDS | SEARCHES


@dataclass(frozen=True, slots=True)
class Token:
    """One word: ``kind`` is its keyword or symbol or one of the names above, ``start`` its index in the text."""

    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == END else f"“{shown(self.text)}”"


# A line comment needs its line end, as in upstream; without it the two signs are minus, minus.
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*+[\n\r]|/\*(?s:.*?)\*/)*")
_TOKEN = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<DECIMAL>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<IDENTIFIER>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<SYMBOL><>|<=|>=|[=<>(),+-])"
)


class Lexer:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self._keywords = dialect.keywords
        self._at = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """Return the next word without taking it."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """Take the next word."""
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
            message, hint = "strings are written in single quotes", "write 'text', and a quote inside it twice"
        elif self.text[start] == "!":
            message, hint = "there is no operator “!”", "write <> for different, NOT for the opposite"
        else:
            message = "unexpected character"
        return FilterSyntaxError(message, text=self.text, position=start, hint=hint)


# Limit of nesting. Upstream ends where its thread's stack does, at some hundred parentheses.
MAX_DEPTH = 100

# How tightly operators bind, from OR to the comparisons. NOT here is that of NOT IN, NOT BETWEEN and the like.
_OR, _AND, _EQUALITY, _COMPARISON = 1, 2, 3, 4
_LEVELS = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys(("<", "<=", ">", ">=", "NOT", "BETWEEN", "IN", *SEARCHES), _COMPARISON),
}


@dataclass(frozen=True)
class Selector:
    """A parsed selector.

    ``ignored_at`` is where the text begins that upstream ignores: it parses the longest complete expression and says
    nothing about the rest. None if there is no rest.
    """

    text: str
    expression: Expression
    ignored_at: int | None

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all properties in the expression."""
        return property_names(self.expression)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a broker would deliver the message: only for TRUE, not for null or a failed conversion."""
        return truth_of(self.expression, properties) is Truth.TRUE


def parse_selector(text: str, *, dialect: Dialect = Dialect.V5, whole: bool = False) -> Selector:
    """Parse ``text`` or raise :class:`FilterSyntaxError`.

    With ``whole``, text after a complete expression is an error; a broker accepts and ignores it, and a typing error
    would silently change the question. Without it, exactly those texts are refused that upstream refuses.
    """
    parser = _Parser(text, dialect)
    expression = parser.selector()
    rest = parser.lexer.peek()
    if whole and rest.kind != END:
        message = f"the expression is complete before {rest}"
        raise FilterSyntaxError(message, text=text, position=rest.start, hint="join conditions with AND or OR")
    return Selector(text, expression, None if rest.kind == END else rest.start)


class _Parser:
    """Precedence climbing; all operators group from the left."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self.lexer = Lexer(text, dialect)
        self._nested = 0
        self._stacked = 0

    def selector(self) -> Expression:
        start = self.lexer.peek().start
        return self._truth(self._expression(_OR), start)

    def _expression(self, level: int) -> Expression:
        """Parse the operators that bind at least as tightly as ``level``, with their operands."""
        start = self.lexer.peek().start
        self._enter(start)
        expression = self._unary()
        ceiling = _COMPARISON
        while level <= _LEVELS.get(self.lexer.peek().kind, 0) <= ceiling:
            # After `a IS NULL` no comparison can follow: upstream has left that rule of its grammar.
            found = _LEVELS[self.lexer.peek().kind]
            if found == _OR:
                expression = Or(self._chain("OR", expression, start))
            elif found == _AND:
                expression = And(self._chain("AND", expression, start))
            else:
                if is_truth(expression):
                    self._stacked += 1
                    self._check_depth(self.lexer.peek().start)
                expression = self._infix(self.lexer.take(), expression, start)
            ceiling = found
        self._nested -= 1
        return expression

    def _chain(self, word: str, first: Expression, start: int) -> tuple[Expression, ...]:
        operands = [self._truth(first, start)]
        while self.lexer.peek().kind == word:
            self.lexer.take()
            start = self.lexer.peek().start
            operands.append(self._truth(self._expression(_LEVELS[word] + 1), start))
        return tuple(operands)

    def _infix(self, token: Token, left: Expression, start: int) -> Expression:
        """Parse an operator and its right side; ``left`` was parsed before."""
        match token.kind:
            case "=":
                return self._equal(left, start)
            case "<>":
                return Not(self._equal(left, start))
            case "IS":
                negated = self._taken("NOT")
                self._expect("NULL", "IS is followed by NULL or NOT NULL")
                return Not(IsNull(left)) if negated else IsNull(left)
            case "NOT":
                return self._condition(self.lexer.take(), left, start, negated=True)
            case "<" | "<=" | ">" | ">=":
                right, right_start = self._operand()
                self._check_ordered(left, start, right, right_start)
                return Ordered(token.kind, left, right)
            case _:
                return self._condition(token, left, start, negated=False)

    def _condition(self, token: Token, left: Expression, start: int, *, negated: bool) -> Expression:
        """Parse what follows ``BETWEEN``, ``IN`` or a search, the words that can come after NOT."""
        if token.kind == "BETWEEN":
            return self._between(left, start, negated=negated)
        if token.kind == "IN":
            texts = self._texts()
            if not isinstance(left, Property):
                raise self._error("only a property can be left of IN", start, _hint_about(left))
            return In(left, texts, negated)
        if token.kind in SEARCHES:
            return Search(token.kind, left, self._string(f"{token.kind} is followed by a string"), negated)
        raise self._error(f"NOT between two values is followed by IN, BETWEEN or a search, not by {token}", token.start)

    def _between(self, value: Expression, start: int, *, negated: bool) -> Expression:
        low, low_start = self._operand()
        self._expect("AND", "BETWEEN needs two values with AND between them")
        high, high_start = self._operand()
        for bound, at in ((low, low_start), (high, high_start)):
            self._check_ordered(value, start, bound, at)
        if not negated and isinstance(low, Constant) and isinstance(high, Constant):
            sign = compare(Typed(low.kind, low.value), Typed(high.kind, high.value))
            if sign is None or sign > 0:
                message = "the values of BETWEEN are in the wrong order: the lower one comes first"
                raise self._error(message, low_start)
        return Between(value, low, high, negated)

    def _check_ordered(self, left: Expression, start: int, right: Expression, right_start: int) -> None:
        for operand, at in ((left, start), (right, right_start)):
            if isinstance(operand, Constant) and not operand.kind.is_number:
                raise self._error(f"only numbers and properties have an order; {_name_of(operand)} does not", at)
            if is_truth(operand):
                message = "a condition has no order; only numbers and properties do"
                raise self._error(message, at, _hint_about(operand))

    def _equal(self, left: Expression, start: int) -> Expression:
        right_start = self.lexer.peek().start
        right = self._expression(_COMPARISON)
        for operand, at in ((left, start), (right, right_start)):
            if isinstance(operand, Constant) and operand.kind is Kind.NULL:
                raise self._error("nothing can be equal to NULL; ask IS NULL or IS NOT NULL", at)
        if isinstance(left, Constant) and isinstance(right, Constant) and is_truth(left) and not is_truth(right):
            raise self._error(f"{_name_of(left)} cannot be compared with {_name_of(right)}", right_start)
        return Equal(left, right)

    def _operand(self) -> tuple[Expression, int]:
        start = self.lexer.peek().start
        return self._unary(), start

    def _unary(self) -> Expression:
        """Parse an operand: a literal, a property, one with a sign or NOT, or an expression in parentheses."""
        token = self.lexer.take()
        match token.kind:
            case "+":
                return self._inner(token)
            case "-":
                return Negate(self._inner(token))
            case "NOT":
                start = self.lexer.peek().start
                return Not(self._truth(self._inner(token), start))
            case "(":
                expression = self._expression(_OR)
                self._expect(")", "a parenthesis is not closed")
                return expression
            case "IDENTIFIER":
                return Property(token.text)
            case _:
                return self._literal(token)

    def _inner(self, sign: Token) -> Expression:
        self._enter(sign.start)
        expression = self._unary()
        self._nested -= 1
        return expression

    def _literal(self, token: Token) -> Constant:
        match token.kind:
            case "STRING":
                return Constant(Kind.STRING, _unquoted(token))
            case "DECIMAL":
                return self._decimal(token)
            case "FLOAT":
                return self._float(token)
            case "TRUE" | "FALSE":
                return Constant(Kind.BOOLEAN, token.kind == "TRUE")
            case "NULL":
                return Constant(Kind.NULL, None)
        raise self._error(f"a value or a property is expected, not {token}", token.start)

    def _decimal(self, token: Token) -> Constant:
        value = parse_long(token.text.rstrip("lL"))
        if value is None:
            raise self._error("the number is greater than 9223372036854775807", token.start)
        # The suffix does not make a long, only the size does.
        return Constant(Kind.INT if value <= INT_MAX else Kind.LONG, value)

    def _float(self, token: Token) -> Constant:
        value = float(token.text)
        if value == 0.0:
            raise self._error("the smallest fraction is 4.9E-324; for zero write 0", token.start)
        if value == math.inf:
            raise self._error("the number is greater than 1.7976931348623157E308", token.start)
        return Constant(Kind.DOUBLE, value)

    def _texts(self) -> frozenset[str]:
        self._expect("(", "IN is followed by strings in parentheses")
        texts = {self._string("IN takes strings only")}
        while self._taken(","):
            texts.add(self._string("IN takes strings only"))
        self._expect(")", "the strings of IN are separated by commas and end with a parenthesis")
        return frozenset(texts)

    def _string(self, rule: str) -> str:
        return _unquoted(self._expect(STRING, rule))

    def _truth(self, expression: Expression, start: int) -> Expression:
        if isinstance(expression, Property):
            return BooleanCast(expression)
        if not is_truth(expression):
            what = _name_of(expression) if isinstance(expression, Constant) else "a number"
            raise self._error(f"a condition is expected, not {what}", start)
        return expression

    def _taken(self, kind: str) -> bool:
        if self.lexer.peek().kind != kind:
            return False
        self.lexer.take()
        return True

    def _expect(self, kind: str, rule: str) -> Token:
        token = self.lexer.take()
        if token.kind != kind:
            raise self._error(f"{rule}; here is {token}", token.start)
        return token

    def _enter(self, at: int) -> None:
        self._nested += 1
        self._check_depth(at)

    def _check_depth(self, at: int) -> None:
        if self._nested + self._stacked > MAX_DEPTH:
            raise self._error(f"the expression nests deeper than {MAX_DEPTH} levels", at)

    def _error(self, message: str, position: int, hint: str | None = None) -> FilterSyntaxError:
        return FilterSyntaxError(message, text=self.text, position=position, hint=hint)


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _hint_about(operand: Expression) -> str | None:
    return "NOT applies only to the next word: write NOT (…)" if isinstance(operand, Not) else None


def _name_of(constant: Constant) -> str:
    match constant.kind:
        case Kind.STRING:
            return "a string"
        case Kind.BOOLEAN | Kind.NULL:
            return str(constant.value).upper() if constant.value is not None else "NULL"
        case _:
            return "a number"
