"""What a SQL92 selector says, as a tree.

``IS NOT NULL`` and ``<>`` have no nodes of their own: upstream composes them with NOT, and their answers on missing
properties follow from that. Chains of AND and of OR are one node each, so that long lists do not grow deep.

What an expression says of one message: three-valued logic, and a fourth answer where upstream throws.

Upstream: ``evaluate`` of the classes of ``org.apache.rocketmq.filter.expression``. Columns are judged by the same
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import NamedTuple, TypeAlias

from rmqtool.formats.java import compare_doubles, parse_boolean, parse_double, parse_int, parse_long

Value: TypeAlias = str | int | float | bool | None


class Kind(Enum):
    """The Java class of a value. It is known before any message is seen: a property is a ``String`` or missing."""

    STRING = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()

    @property
    def is_number(self) -> bool:
        """Whether values of this kind may stand beside ``<``."""
        return self in (Kind.INT, Kind.LONG, Kind.DOUBLE)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. TRUE, FALSE and NULL are expressions of truth as well."""

    kind: Kind
    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a message's property."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """The negative of a number; of anything else, null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether the operand has no value."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Equal:
    """Whether two values are the same, after conversion."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Ordered:
    """A comparison by order; ``symbol`` is one of ``< <= > >=``."""

    symbol: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between:
    """``operand >= low AND operand <= high``; when ``negated``, ``operand < low OR operand > high``.

    A node of its own, because an operand that stood in both comparisons would double the work at every nesting.
    """

    operand: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """Whether a property is one of ``texts``, or none of them when ``negated``."""

    operand: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """Whether a string has ``text`` inside, in front or behind (``how``: the keyword), or has not when ``negated``."""

    how: str
    operand: Expression
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class BooleanCast:
    """A bare property where truth is wanted: never TRUE, as a property is a string."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of null, null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All of them, judged from the left until one is FALSE."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of them, judged from the left until one is TRUE."""

    operands: tuple[Expression, ...]


Expression: TypeAlias = (
    Constant | Property | Negate | IsNull | Equal | Ordered | Between | In | Search | BooleanCast | Not | And | Or
)


def kind_of(expression: Expression) -> Kind:
    """Return the kind of the values that ``expression`` has when it has one."""
    match expression:
        case Constant():
            return expression.kind
        case Property():
            return Kind.STRING
        case Negate():
            kind = kind_of(expression.operand)
            return kind if kind.is_number else Kind.NULL
        case _:
            return Kind.BOOLEAN


def is_truth(expression: Expression) -> bool:
    """Tell whether upstream's class of ``expression`` is a ``BooleanExpression``: NULL's is, a property's is not."""
    if isinstance(expression, Constant):
        return expression.kind in (Kind.BOOLEAN, Kind.NULL)
    return not isinstance(expression, Property | Negate)


def property_names(expression: Expression) -> frozenset[str]:
    """Return the names of all properties that the answer depends on."""
    match expression:
        case Constant():
            return frozenset()
        case Property():
            return frozenset({expression.name})
        case Equal() | Ordered():
            return property_names(expression.left) | property_names(expression.right)
        case Between():
            parts = (expression.operand, expression.low, expression.high)
            return frozenset().union(*map(property_names, parts))
        case And() | Or():
            return frozenset().union(*map(property_names, expression.operands))
        case _:
            return property_names(expression.operand)


class Truth(IntEnum):
    """The answer of a condition. FAILED is upstream's exception: a text that is no number, an impossible cast."""

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    FAILED = 3


class Failure(Enum):
    """A value that could not be had, because the condition that gives it FAILED."""

    FAILED = 0


Given: TypeAlias = Value | Failure


class Typed(NamedTuple):
    """A value and the class that decides how it is compared."""

    kind: Kind
    value: Given


_F, _T, _U, _X = Truth

# Row: what was found so far. Column: the next operand. A row that is one answer throughout ends the chain.
AND = ((_F, _F, _F, _F), (_F, _T, _U, _X), (_F, _U, _U, _X), (_X, _X, _X, _X))
OR = ((_F, _T, _U, _X), (_T, _T, _T, _T), (_U, _T, _U, _X), (_X, _X, _X, _X))
NOT = (_T, _F, _U, _X)

# What a condition's answer is to an operator around it.
VALUES: tuple[Given, ...] = (False, True, None, Failure.FAILED)

_PARSERS: dict[Kind, Callable[[str], int | float | None]] = {
    Kind.INT: parse_int,
    Kind.LONG: parse_long,
    Kind.DOUBLE: parse_double,
    Kind.BOOLEAN: parse_boolean,
}


def truth_of(expression: Expression, properties: Mapping[str, str]) -> Truth:
    """Return what ``expression`` says of a message with ``properties``."""
    match expression:
        case And():
            return _chain(AND, _T, expression.operands, properties)
        case Or():
            return _chain(OR, _F, expression.operands, properties)
        case Not():
            return NOT[truth_of(expression.operand, properties)]
        case Equal():
            return equal(_typed(expression.left, properties), _typed(expression.right, properties))
        case Ordered():
            left, right = _typed(expression.left, properties), _typed(expression.right, properties)
            return ordered(expression.symbol, left, right)
        case Between():
            value = _typed(expression.operand, properties)
            table, lower, upper = between_rule(expression)
            found = ordered(lower, value, _typed(expression.low, properties))
            return table[found][ordered(upper, value, _typed(expression.high, properties))]
        case IsNull() | In() | Search() | BooleanCast():
            return judged(expression, _value_of(expression.operand, properties))
        case _:
            return literal_truth(_value_of(expression, properties))


def _chain(
    table: tuple[tuple[Truth, ...], ...], found: Truth, operands: tuple[Expression, ...], properties: Mapping[str, str]
) -> Truth:
    for operand in operands:
        found = table[found][truth_of(operand, properties)]
        if table[found] == (found,) * len(Truth):
            break
    return found


def _typed(expression: Expression, properties: Mapping[str, str]) -> Typed:
    return Typed(kind_of(expression), _value_of(expression, properties))


def _value_of(expression: Expression, properties: Mapping[str, str]) -> Given:
    match expression:
        case Constant():
            return expression.value
        case Property():
            return properties.get(expression.name)
        case Negate():
            return negative(_value_of(expression.operand, properties))
        case _:
            return VALUES[truth_of(expression, properties)]


def literal_truth(value: Given) -> Truth:
    """Return what TRUE, FALSE or NULL says as a condition."""
    return _U if value is None else _truth(value is True)


def negative(value: Given) -> Given:
    """Return ``-value``: null unless it is a number."""
    if isinstance(value, Failure):
        return value
    return None if value is None or isinstance(value, str | bool) else -value


def judged(expression: IsNull | In | Search | BooleanCast, value: Given) -> Truth:
    """Return what ``expression`` says when its operand has ``value``."""
    if isinstance(expression, Search) and not expression.text:
        return _F
    if isinstance(value, Failure):
        return _X
    match expression:
        case IsNull():
            return _T if value is None else _F
        case In():
            return _U if value is None else _truth((value in expression.texts) is not expression.negated)
        case BooleanCast():
            return _U if value is None else _F
        case Search():
            return _truth(isinstance(value, str) and _found(expression, value) is not expression.negated)


def _found(search: Search, value: str) -> bool:
    match search.how:
        case "CONTAINS":
            return search.text in value
        case "STARTSWITH":
            return value.startswith(search.text)
        case _:
            return value.endswith(search.text)


def equal(left: Typed, right: Typed) -> Truth:
    """Return ``left = right``. A missing left side is null, but a missing right side is FALSE."""
    if isinstance(left.value, Failure) or isinstance(right.value, Failure):
        return _X
    if left.value is None or right.value is None:
        return _T if left.value is right.value else _U if left.value is None else _F
    if left.kind is right.kind is Kind.STRING:
        return _truth(left.value == right.value)
    sign = compare(left, right)
    return _X if sign is None else _truth(sign == 0)


def ordered(symbol: str, left: Typed, right: Typed) -> Truth:
    """Return ``left symbol right``. When the left is null, the right is not looked at, not even if it FAILED."""
    for side in (left, right):
        if side.value is None or isinstance(side.value, Failure):
            return _U if side.value is None else _X
    sign = compare(left, right)
    if sign is None:
        return _X
    return _truth({"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[symbol])


def between_rule(expression: Between) -> tuple[tuple[tuple[Truth, ...], ...], str, str]:
    """Return how the comparisons with the two bounds are joined, and their symbols."""
    return (OR, "<", ">") if expression.negated else (AND, ">=", "<=")


def compare(left: Typed, right: Typed) -> int | None:
    """Return the sign of comparing two values by order, or None where the conversion throws.

    Two strings are compared as doubles. A string beside another class is read as that class, but right of a truth it
    throws. What cannot be compared is "less".
    """
    kind, other = left.kind, right.kind
    if kind is other is Kind.STRING:
        kind = other = Kind.DOUBLE
    if Kind.BOOLEAN in (kind, other) and kind is not other and Kind.STRING not in (kind, other):
        return -1
    if kind is Kind.BOOLEAN and other is Kind.STRING:
        return None
    low, high = _read(left.value, other), _read(right.value, kind)
    if low is None or high is None:
        return None
    if Kind.DOUBLE in (kind, other):
        return compare_doubles(float(low), float(high))
    return (low > high) - (low < high)


def _read(value: Given, kind: Kind) -> int | float | None:
    """Return a string as a value of ``kind``; None where that throws. Any other value stays what it is."""
    if isinstance(value, str):
        return _PARSERS[kind](value)
    return None if isinstance(value, Failure) else value


def _truth(value: bool) -> Truth:
    return _T if value else _F
