"""Stores as lazy frames of polars: ``rmqtool.polars.scan("store").filter(...).select(...).collect()``.

polars says which columns, rows and conditions a query needs. Only these columns are decoded, and conditions about the
topic and the store time bound what is read of the log. All conditions are applied to each batch as well.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from rmqtool.api.cat import batches
from rmqtool.errors import OptionalMissing

if TYPE_CHECKING:
    import polars

    from rmqtool.api.store import Place
    from rmqtool.api.wanted import Which

# Units of a literal of time, as a share of a millisecond.
_PER_MILLISECOND = {"Nanoseconds": 1_000_000, "Microseconds": 1000, "Milliseconds": 1}
_TURNED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}


def scan(stores: Place | Sequence[Place], *, jobs: int = 1, **which: Unpack[Which]) -> polars.LazyFrame:
    """Return the messages of one or more stores, or of a live cluster, as a lazy frame with the columns of ``export``.

    ``which`` selects messages as for ``rmqtool.batches``. Damage is left out; ``check`` finds it.
    """
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError:
        raise OptionalMissing("rmqtool.polars needs polars", hint="pip install polars") from None
    schema = polars.DataFrame(batches([], jobs=1).schema.empty_table()).schema

    def read(
        columns: list[str] | None, predicate: polars.Expr | None, rows: int | None, size: int | None
    ) -> Iterator[polars.DataFrame]:
        del size  # batches have a size of their own
        shown = list(schema) if columns is None else columns
        needed = shown if predicate is None else {*shown, *predicate.meta.root_names()}
        bounds: dict[str, Any] = {**_bounds_of(predicate), **which}
        for batch in batches(stores, columns=[name for name in schema if name in needed], jobs=jobs, **bounds):
            frame = polars.DataFrame(batch)
            frame = frame if predicate is None else frame.filter(predicate)
            frame = frame.select(shown) if rows is None else frame.select(shown).head(rows)
            yield frame
            rows = None if rows is None else rows - frame.height
            if rows == 0:
                return

    return register_io_source(read, schema=schema)


def _bounds_of(predicate: polars.Expr | None) -> dict[str, Any]:
    """Return the conditions of a predicate that bound what is read, as keywords of ``rmqtool.batches``.

    A condition in an unknown form bounds nothing. It may only leave out rows that certainly do not match.
    """
    found: dict[str, Any] = {}
    if predicate is None:
        return found
    for name, operator, literal in _comparisons(json.loads(predicate.meta.serialize(format="json"))):
        if name == "topic" and operator == "Eq" and isinstance(literal.get("String"), str):
            found["topics"] = [glob.escape(literal["String"])]
        elif name == "store_timestamp" and isinstance(literal.get("Datetime"), list):
            value, unit, _ = literal["Datetime"]
            per = _PER_MILLISECOND[unit]
            if operator in ("Gt", "GtEq", "Eq"):
                found["begin"] = max(value // per, found.get("begin", 0))
            if operator in ("Lt", "LtEq", "Eq"):
                found["end"] = min(value // per + 1, found.get("end", value // per + 1))
    return found


def _comparisons(node: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the comparisons of a column with a literal that all rows must meet: column, operator, literal."""
    binary = node.get("BinaryExpr") if isinstance(node, dict) else None
    if binary is None:
        return
    left, operator, right = binary["left"], binary["op"], binary["right"]
    if operator in ("And", "LogicalAnd"):
        yield from _comparisons(left)
        yield from _comparisons(right)
        return
    if operator not in _TURNED:
        return
    if "Literal" in left:
        left, operator, right = right, _TURNED[operator], left
    scalar = right["Literal"].get("Scalar") if "Literal" in right else None
    if isinstance(left.get("Column"), str) and isinstance(scalar, dict):
        yield left["Column"], operator, scalar
