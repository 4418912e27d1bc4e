"""What a SQL92 selector says, as a tree.

``IS NOT NULL`` and ``<>`` have no nodes of their own: upstream composes them with NOT, and their answers on missing
properties follow from that. Chains of AND and of OR are one node each, so that long lists do not grow deep.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

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
