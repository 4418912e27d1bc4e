"""SQL92 selectors as trees, and their answer for one message.

``IS NOT NULL`` and ``<>`` have no nodes: upstream composes them with NOT, and their answers for missing properties
follow from that. A chain of ANDs or ORs is one node, so that long lists do not make deep trees.

Logic has three values, and a fourth answer where upstream throws. Columns are evaluated with the same functions.

Upstream: ``evaluate`` of the classes of ``org.apache.rocketmq.filter.expression``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import NamedTuple, TypeAlias

from rmqtool.formats.java import compare_doubles, parse_boolean, parse_double, parse_int, parse_long

Value: TypeAlias = str | int | float | bool | None


class Kind(Enum):
    """The Java class of a value, known before any message is read: a property is a ``String`` or missing."""

    STRING = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()

    @property
    def is_number(self) -> bool:
        """Whether values of this kind can be compared with ``<``."""
        return self in (Kind.INT, Kind.LONG, Kind.DOUBLE)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. TRUE, FALSE and NULL are conditions as well."""

    kind: Kind
    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a message's property."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """The negative of a number; null for anything else."""

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

    It is a node of its own because an operand in two comparisons would double the work at each level of nesting.
    """

    operand: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """Whether a property is one of ``texts``, or none of them if ``negated``."""

    operand: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """Whether a string contains, starts with or ends with ``text`` (see ``how``), or does not if ``negated``."""

    how: str
    operand: Expression
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class BooleanCast:
    """A bare property where a condition is expected: never TRUE, because a property is a string."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null for null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All of them, evaluated from the left until one is FALSE."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of them, evaluated from the left until one is TRUE."""

    operands: tuple[Expression, ...]


Expression: TypeAlias = (
    Constant | Property | Negate | IsNull | Equal | Ordered | Between | In | Search | BooleanCast | Not | And | Or
)


def kind_of(expression: Expression) -> Kind:
    """Return the kind of the value of ``expression``."""
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
    """Return whether upstream's class of ``expression`` is a ``BooleanExpression``; NULL's is, a property's is not."""
    if isinstance(expression, Constant):
        return expression.kind in (Kind.BOOLEAN, Kind.NULL)
    return not isinstance(expression, Property | Negate)


def property_names(expression: Expression) -> frozenset[str]:
    """Return the names of all properties in ``expression``."""
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
    """The answer of a condition. FAILED is upstream's exception: a text that is not a number, an impossible cast."""

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    FAILED = 3


class Failure(Enum):
    """The value of a condition that FAILED."""

    FAILED = 0


Given: TypeAlias = Value | Failure


class Typed(NamedTuple):
    """A value, and the class that decides how it is compared."""

    kind: Kind
    value: Given


_F, _T, _U, _X = Truth

# Row: the answer so far. Column: the next operand. A row with one answer throughout ends the chain.
AND = ((_F, _F, _F, _F), (_F, _T, _U, _X), (_F, _U, _U, _X), (_X, _X, _X, _X))
OR = ((_F, _T, _U, _X), (_T, _T, _T, _T), (_U, _T, _U, _X), (_X, _X, _X, _X))
NOT = (_T, _F, _U, _X)

# The value of a condition when an operator takes it as an operand.
VALUES: tuple[Given, ...] = (False, True, None, Failure.FAILED)

_PARSERS: dict[Kind, Callable[[str], int | float | None]] = {
    Kind.INT: parse_int,
    Kind.LONG: parse_long,
    Kind.DOUBLE: parse_double,
    Kind.BOOLEAN: parse_boolean,
}


def truth_of(expression: Expression, properties: Mapping[str, str]) -> Truth:
    """Return the answer of ``expression`` for a message with ``properties``."""
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
    """Return the answer of TRUE, FALSE or NULL as a condition."""
    return _U if value is None else _truth(value is True)


def negative(value: Given) -> Given:
    """Return ``-value``: null unless it is a number."""
    if isinstance(value, Failure):
        return value
    return None if value is None or isinstance(value, str | bool) else -value


def judged(expression: IsNull | In | Search | BooleanCast, value: Given) -> Truth:
    """Return the answer of ``expression`` when its operand has ``value``."""
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
    """Return ``left = right``. If the left side is missing the answer is null; if only the right side is, FALSE."""
    if isinstance(left.value, Failure) or isinstance(right.value, Failure):
        return _X
    if left.value is None or right.value is None:
        return _T if left.value is right.value else _U if left.value is None else _F
    if left.kind is right.kind is Kind.STRING:
        return _truth(left.value == right.value)
    sign = compare(left, right)
    return _X if sign is None else _truth(sign == 0)


def ordered(symbol: str, left: Typed, right: Typed) -> Truth:
    """Return ``left symbol right``. If the left side is null, the right side is ignored, even if it FAILED."""
    for side in (left, right):
        if side.value is None or isinstance(side.value, Failure):
            return _U if side.value is None else _X
    sign = compare(left, right)
    if sign is None:
        return _X
    return _truth({"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[symbol])


def between_rule(expression: Between) -> tuple[tuple[tuple[Truth, ...], ...], str, str]:
    """Return how the comparisons with the two bounds are combined, and their symbols."""
    return (OR, "<", ">") if expression.negated else (AND, ">=", "<=")


def compare(left: Typed, right: Typed) -> int | None:
    """Return the sign of comparing two values by order, or None where the conversion throws.

    Two strings are compared as doubles. A string next to another class is read as that class, but to the right of a
    condition it throws. Values that cannot be compared are "less".
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
    """Return a string as a value of ``kind``, or None where that throws. Other values are returned as they are."""
    if isinstance(value, str):
        return _PARSERS[kind](value)
    return None if isinstance(value, Failure) else value


def _truth(value: bool) -> Truth:
    return _T if value else _F
