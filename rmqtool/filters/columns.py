"""Filters on columns: one answer per row, equal to the answer on each message.

Most of the work is done on whole columns. What is rare (a condition as a value, a string beside a truth) goes through
the functions that judge one message, once for each pair of values that occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rmqtool.filters.column_values import TextColumn, double_keys, text_column
from rmqtool.filters.evaluation import (
    AND,
    NOT,
    OR,
    VALUES,
    Given,
    Truth,
    Typed,
    between_rule,
    equal,
    judged,
    literal_truth,
    negative,
    ordered,
)
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
    kind_of,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rmqtool.filters.sql92 import Selector
    from rmqtool.filters.tags import TagExpression

    Mask: TypeAlias = npt.NDArray[np.bool_]
    States: TypeAlias = npt.NDArray[np.uint8]
    Places: TypeAlias = npt.NDArray[np.integer[Any]]

Judge: TypeAlias = Callable[[Typed, Typed], Truth]


class PropertyColumns(Protocol):
    """The properties of some messages: a column for each name."""

    @property
    def rows(self) -> int:
        """How many messages there are."""

    def column(self, name: str) -> Any:
        """Return the values of property ``name``, null where a message has none; None when no message has it.

        An Arrow array of strings or binaries, or a numpy array of bytes or of objects (``str``, ``bytes``, None).
        """


def match_columns(selector: Selector, columns: PropertyColumns) -> Mask:
    """Return a mask of the rows that ``selector`` matches: TRUE only, as for one message."""
    matched: Mask = truths_of_columns(selector, columns) == Truth.TRUE
    return matched


def truths_of_columns(selector: Selector, columns: PropertyColumns) -> States:
    """Return what ``selector`` says of each row, as the numbers of :class:`Truth`."""
    return _Batch(columns).truths(selector.expression)


def match_tags(tags: TagExpression, columns: PropertyColumns) -> Mask:
    """Return a mask of the rows whose tag ``tags`` names: what reaches a consumer."""
    import numpy as np

    if tags.everything:
        return np.ones(columns.rows, np.bool_)
    return text_column(columns.column("TAGS"), columns.rows).is_in(tags.names)


def match_tag_codes(tags: TagExpression, codes: npt.NDArray[np.int64]) -> Mask:
    """Return a mask of the queue units that a broker lets pass: hashes collide, so more rows than tags match."""
    import numpy as np

    if tags.everything:
        return np.ones(len(codes), np.bool_)
    return np.isin(codes.astype(np.int32), np.array(sorted(tags.codes), np.int32))


@dataclass(frozen=True, slots=True)
class _Side:
    """The values of one operand: row ``i`` has ``values[places[i]]``."""

    kind: Kind
    values: Sequence[Given]
    places: Places


# A column is read as what the other side of a comparison makes of it.
_Operand: TypeAlias = Property | _Side


class _Batch:
    """Columns that are read once, however often an expression names them."""

    def __init__(self, columns: PropertyColumns) -> None:
        self._columns = columns
        self._texts: dict[str, TextColumn] = {}

    def truths(self, expression: Expression) -> States:
        """Return a Truth for each row."""
        import numpy as np

        match expression:
            case And():
                return self._chain(AND, Truth.TRUE, expression.operands)
            case Or():
                return self._chain(OR, Truth.FALSE, expression.operands)
            case Not():
                return _look_up(NOT, self.truths(expression.operand))
            case Equal(Property() as left, Property() as right):
                return self._equal_texts(left, right)
            case Equal(Property() as left, Constant(Kind.STRING, str() as text)):
                return self._searched(In(left, frozenset({text}), negated=False), left)
            case Equal():
                return self._compared(equal, self._operand(expression.left), self._operand(expression.right))
            case Ordered():
                judge = partial(ordered, expression.symbol)
                return self._compared(judge, self._operand(expression.left), self._operand(expression.right))
            case Between():
                table, lower, upper = between_rule(expression)
                value = self._operand(expression.operand)
                found = self._compared(partial(ordered, lower), value, self._operand(expression.low))
                other = self._compared(partial(ordered, upper), value, self._operand(expression.high))
                states: States = np.array(table, np.uint8)[found, other]
                return states
            case IsNull(Property() as name) | In(name) | Search(_, Property() as name) | BooleanCast(name):
                return self._searched(expression, name)
            case IsNull() | Search():
                side = self._side(expression.operand)
                return _look_up([judged(expression, value) for value in side.values], side.places)
            case _:
                side = self._side(expression)
                return _look_up([literal_truth(value) for value in side.values], side.places)

    def _chain(self, table: tuple[tuple[Truth, ...], ...], first: Truth, operands: tuple[Expression, ...]) -> States:
        import numpy as np

        found = np.full(self._columns.rows, first, np.uint8)
        for operand in operands:
            found = np.array(table, np.uint8)[found, self.truths(operand)]
        return found

    def _searched(self, expression: IsNull | In | Search | BooleanCast, operand: Property) -> States:
        import numpy as np

        column = self._text(operand.name)
        match expression:
            case In():
                found = column.is_in(expression.texts) != expression.negated
            case Search() if expression.text:
                found = column.has(expression.how, expression.text) != expression.negated
            case _:
                found = column.missing & False
        return np.where(column.missing, np.uint8(judged(expression, None)), found.astype(np.uint8))

    def _equal_texts(self, left: Property, right: Property) -> States:
        one, other = self._text(left.name), self._text(right.name)
        return _of_signs(equal, (~one.equals(other)).astype("int64"), one.missing, other.missing)

    def _compared(self, judge: Judge, left: _Operand, right: _Operand) -> States:
        """Compare two operands; columns as numbers where that is what upstream does with every text."""
        columns = [operand for operand in (left, right) if isinstance(operand, Property)]
        numbers = [operand.kind for operand in (left, right) if isinstance(operand, _Side) and operand.kind.is_number]
        if not columns or len(columns) + len(numbers) < 2:
            return _each_pair(judge, self._as_side(left), self._as_side(right))
        kind = numbers[0] if numbers else Kind.DOUBLE
        low, low_missing, low_failed = self._as_numbers(left, kind)
        high, high_missing, high_failed = self._as_numbers(right, kind)
        signs = (low > high).astype("int64") - (low < high)
        found = _of_signs(judge, signs, low_missing, high_missing)
        found[(low_failed | high_failed) & ~low_missing & ~high_missing] = Truth.FAILED
        return found

    def _as_numbers(self, operand: _Operand, kind: Kind) -> tuple[npt.NDArray[np.int64], Mask, Mask]:
        """Return keys to compare, where the value is missing, and where the conversion fails."""
        import numpy as np

        if isinstance(operand, Property):
            column = self._text(operand.name)
            numbers = column.numbers(kind)
            return numbers.keys, column.missing, numbers.failed
        (value,) = operand.values  # numbers are constants
        no: Mask = np.zeros(1, np.bool_)
        if kind is Kind.DOUBLE:
            return double_keys(np.array([value], np.float64)), no, no
        return np.array([value], np.int64), no, no

    def _operand(self, expression: Expression) -> _Operand:
        return expression if isinstance(expression, Property) else self._side(expression)

    def _as_side(self, operand: _Operand) -> _Side:
        return self._side(operand) if isinstance(operand, Property) else operand

    def _side(self, expression: Expression) -> _Side:
        import numpy as np

        kind = kind_of(expression)
        match expression:
            case Constant():
                return _Side(kind, [expression.value], np.broadcast_to(np.int64(0), self._columns.rows))
            case Property():
                return _Side(kind, *self._text(expression.name).distinct())
            case Negate():
                side = self._side(expression.operand)
                return _Side(kind, [negative(value) for value in side.values], side.places)
            case _:
                return _Side(kind, VALUES, self.truths(expression))

    def _text(self, name: str) -> TextColumn:
        if name not in self._texts:
            column = text_column(self._columns.column(name), self._columns.rows)
            if len(column.missing) != self._columns.rows:
                raise ValueError(f"column {name} has {len(column.missing)} rows, not {self._columns.rows}")
            self._texts[name] = column
        return self._texts[name]


def _look_up(answers: Sequence[Truth], places: Places) -> States:
    import numpy as np

    states: States = np.array(answers, np.uint8)[places]
    return states


def _of_signs(judge: Judge, signs: npt.NDArray[np.int64], left_missing: Mask, right_missing: Mask) -> States:
    """Return what ``judge`` says of values that compare like ``signs``, and of those that are missing."""
    import numpy as np

    nothing, something = Typed(Kind.INT, None), Typed(Kind.INT, 0)
    found = _look_up([judge(Typed(Kind.INT, sign), something) for sign in (-1, 0, 1)], signs + 1)
    found = np.where(right_missing, np.uint8(judge(something, nothing)), found)
    found = np.where(left_missing, np.uint8(judge(nothing, something)), found)
    return np.where(left_missing & right_missing, np.uint8(judge(nothing, nothing)), found)


def _each_pair(judge: Judge, left: _Side, right: _Side) -> States:
    """Ask ``judge`` once for each pair of values that occurs."""
    import numpy as np

    width = len(right.values)
    pairs, places = np.unique(left.places.astype(np.int64) * width + right.places, return_inverse=True)
    answers = [
        judge(Typed(left.kind, left.values[pair // width]), Typed(right.kind, right.values[pair % width]))
        for pair in pairs.tolist()
    ]
    return _look_up(answers, places)
