"""Filters on columns: one answer for each row, equal to the answer for the message alone.

Most of the work is done on whole columns. Rare cases (a condition used as a value, a string compared with a condition,
a number with a suffix, bytes that are not UTF-8) use the functions for one message, once for each pair of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rmqtool.filters.expressions import (
    AND,
    NOT,
    OR,
    VALUES,
    And,
    Between,
    BooleanCast,
    Constant,
    Equal,
    Expression,
    Given,
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
    between_rule,
    equal,
    judged,
    kind_of,
    literal_truth,
    negative,
    ordered,
)
from rmqtool.formats.java import INT_MAX, INT_MIN, decode_text, parse_double, parse_int, parse_long
from rmqtool.formats.property_names import TAGS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rmqtool.filters.sql92 import Selector
    from rmqtool.filters.tags import TagExpression

    Mask: TypeAlias = npt.NDArray[np.bool_]
    Keys: TypeAlias = npt.NDArray[np.int64]
    States: TypeAlias = npt.NDArray[np.uint8]
    Places: TypeAlias = npt.NDArray[np.integer[Any]]

# Texts that Arrow converts to the same numbers as Java; all other texts are converted one by one.
_PLAIN_INTEGER = r"^-?[0-9]{1,18}$"
_PLAIN_DOUBLE = r"^-?[0-9]+(?:\.[0-9]+)?$"
# Flipping all bits but the sign gives negative doubles the order of integers.
_LOW_BITS = 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Numbers:
    """Texts as numbers. ``keys`` have the order of the numbers in Java; ``failed`` marks texts that do not convert."""

    keys: Keys
    failed: Mask


class TextColumn:
    """A column of texts: an Arrow array of large binaries in UTF-8."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.missing = _mask(array.is_null())
        self._numbers: dict[Kind, Numbers] = {}

    def is_in(self, texts: frozenset[str]) -> Mask:
        """Return where the text is one of ``texts``."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return _mask(pc.is_in(self._array, value_set=pa.array(map(_bytes, texts), pa.large_binary())))

    def has(self, how: str, text: str) -> Mask:
        """Return where the texts contain, start with or end with ``text``; ``how`` is the keyword."""
        import pyarrow.compute as pc

        find = {"CONTAINS": pc.match_substring, "STARTSWITH": pc.starts_with, "ENDSWITH": pc.ends_with}[how]
        return _mask(find(self._array, pattern=_bytes(text)).fill_null(False))

    def equals(self, other: TextColumn) -> Mask:
        """Return where both columns have the same text."""
        import pyarrow.compute as pc

        return _mask(pc.equal(self._array, other._array).fill_null(False))

    def distinct(self) -> tuple[list[str | None], npt.NDArray[np.integer[Any]]]:
        """Return the distinct values, and for each row the index of its value."""
        encoded = self._array.dictionary_encode()
        values: list[str | None] = [_text(value) for value in encoded.dictionary.to_pylist()]
        places = encoded.indices
        if places.null_count:
            places = places.fill_null(len(values))
            values.append(None)
        return values, places.to_numpy()

    def numbers(self, kind: Kind) -> Numbers:
        """Return the texts as numbers of ``kind``."""
        if kind not in self._numbers:
            self._numbers[kind] = self._read_doubles() if kind is Kind.DOUBLE else self._read_integers(kind)
        return self._numbers[kind]

    def _read_integers(self, kind: Kind) -> Numbers:
        values, odd = self._plain(_PLAIN_INTEGER, "int64")
        failed = (values < INT_MIN) | (values > INT_MAX) if kind is Kind.INT else odd & False
        self._read_odd(odd, parse_int if kind is Kind.INT else parse_long, values, failed)
        return Numbers(values, failed)

    def _read_doubles(self) -> Numbers:
        values, odd = self._plain(_PLAIN_DOUBLE, "float64")
        failed = odd & False
        self._read_odd(odd, parse_double, values, failed)
        return Numbers(double_keys(values), failed)

    def _plain(self, pattern: str, type_name: str) -> tuple[npt.NDArray[Any], Mask]:
        """Return the numbers of texts that match ``pattern``, and where there is another text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        plain = pc.match_substring_regex(self._array, pattern=pattern).fill_null(False)
        texts = pc.if_else(plain, self._array, pa.scalar(None, pa.large_binary())).cast(pa.large_string())
        values = texts.cast(type_name).fill_null(0).to_numpy(zero_copy_only=False).copy()
        return values, ~_mask(plain) & ~self.missing

    def _read_odd(
        self, odd: Mask, parse: Callable[[str], float | None], values: npt.NDArray[Any], failed: Mask
    ) -> None:
        rows = odd.nonzero()[0]
        for row, text in zip(rows.tolist(), self._array.take(rows).to_pylist(), strict=True):
            value = parse(_text(text))
            if value is None:
                failed[row] = True
            else:
                values[row] = value


def double_keys(values: npt.NDArray[np.float64]) -> Keys:
    """Return integers in the order of ``Double.compareTo``: −0.0 below 0.0, NaN above all."""
    import numpy as np

    bits = values.view(np.int64)  # parse_double returns one NaN only, and its bits are positive
    keys: Keys = bits ^ ((bits >> 63) & np.int64(_LOW_BITS))
    return keys


def text_column(column: Any, rows: int) -> TextColumn:
    """Return ``column`` (see :class:`PropertyColumns`) as the texts that Java decodes from it."""
    import numpy as np
    import pyarrow as pa

    if column is None:
        return TextColumn(pa.nulls(rows, pa.large_binary()))
    if isinstance(column, np.ndarray):
        values = [_bytes(value) if isinstance(value, str) else _repaired(value) for value in column.tolist()]
        return TextColumn(pa.array(values, pa.large_binary()))
    array = column.cast(pa.large_binary())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        try:
            array.cast(pa.large_string())
        except pa.ArrowInvalid:
            array = pa.array(map(_repaired, array.to_pylist()), pa.large_binary())
    return TextColumn(array)


def _repaired(data: bytes | None) -> bytes | None:
    return None if data is None else _bytes(decode_text(data))


def _bytes(text: str) -> bytes:
    # A text from a command line can have lone surrogates. It equals no text from bytes, and must not raise an error.
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _mask(found: Any) -> Mask:
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


Judge: TypeAlias = Callable[[Typed, Typed], Truth]


class PropertyColumns(Protocol):
    """The properties of some messages: a column for each name."""

    @property
    def rows(self) -> int:
        """The number of messages."""

    def column(self, name: str) -> Any:
        """Return the values of property ``name``, null where a message does not have it; None if no message has it.

        An Arrow array of strings or binaries, or a numpy array of bytes or of objects (``str``, ``bytes``, None).
        """


def match_columns(selector: Selector, columns: PropertyColumns) -> Mask:
    """Return a mask of the rows that ``selector`` accepts: only TRUE, as for one message."""
    matched: Mask = truths_of_columns(selector, columns) == Truth.TRUE
    return matched


def truths_of_columns(selector: Selector, columns: PropertyColumns) -> States:
    """Return the answer of ``selector`` for each row, as numbers of :class:`Truth`."""
    return _Batch(columns).truths(selector.expression)


def match_tags(tags: TagExpression, columns: PropertyColumns) -> Mask:
    """Return a mask of the rows that ``tags`` accepts."""
    import numpy as np

    if tags.everything:
        return np.ones(columns.rows, np.bool_)
    return text_column(columns.column(TAGS), columns.rows).is_in(tags.names)


@dataclass(frozen=True, slots=True)
class _Side:
    """The values of one operand: row ``i`` has ``values[places[i]]``."""

    kind: Kind
    values: Sequence[Given]
    places: Places


# A property is read as text or as number, depending on the other side of its comparison.
_Operand: TypeAlias = Property | _Side


class _Batch:
    """Evaluates an expression over columns; each column is read once."""

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
        """Compare two operands, as columns of numbers if upstream converts every text to a number there."""
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
    """Return the answers of ``judge`` for values whose comparison gave ``signs``, and for missing values."""
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
