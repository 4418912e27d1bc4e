"""What is exported or read: which messages, which columns, what becomes of damage, how large the pieces are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, get_args

from rmqtool.bulk.batches import COLUMNS, Projection
from rmqtool.errors import UsageError
from rmqtool.filters.patterns import parse_patterns
from rmqtool.scan.selection import Selection

SPLIT_SIZE = 128 << 20
LEAST_SPLIT_SIZE = 4 << 10

Body = Literal["inflated", "raw", "none"]
TimeUnit = Literal["ms", "us"]


class OnCorrupt(StrEnum):
    """What becomes of damage: it ends the work, it is left out, or it is left out and told of."""

    FAIL = "fail"
    SKIP = "skip"
    EMIT = "emit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plain value: it goes to other processes. Offsets are queue offsets; times are store times; both half-open.

    ``physical_begin`` and ``physical_end`` bound where in the log a message may lie.
    """

    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    begin: int | None = None
    end: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    physical_begin: int = 0
    physical_end: int | None = None
    columns: tuple[str, ...] = COLUMNS
    body: Body = "inflated"
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    split_size: int = SPLIT_SIZE

    def selection(self) -> Selection:
        """Return the question that scan asks of every record."""
        return Selection(
            topics=parse_patterns(self.topics),
            queue_id=self.queue_id,
            least_offset=self.start_offset,
            begin=self.begin,
            end=self.end,
            physical_from=self.physical_begin,
        )

    def projection(self, broker: str | None, time_unit: TimeUnit) -> Projection:
        """Return how the batches of one broker's messages look."""
        return Projection(columns=self.columns, body=self.body, time_unit=time_unit, broker=broker)

    def as_json(self) -> dict[str, Any]:
        """Return which messages and columns these are; how damage is met and the work is cut is no part of it."""
        return {
            "topics": list(self.topics),
            "queueId": self.queue_id,
            "begin": self.begin,
            "end": self.end,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "columns": list(self.columns),
            "body": self.body,
        }


DEFAULT = Choice()


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the named columns in the order of the schema; raise UsageError for one that is not there."""
    wanted = set(names)
    for name in sorted(wanted - set(COLUMNS)):
        near = get_close_matches(name, COLUMNS, n=1)
        hint = f"did you mean {near[0]}?" if near else "the columns are " + ", ".join(COLUMNS)
        raise UsageError(f"there is no column {name!r}", hint=hint)
    if not wanted:
        raise UsageError("no column is named", hint="the columns are " + ", ".join(COLUMNS))
    return tuple(name for name in COLUMNS if name in wanted)


def check_body(text: str) -> Body:
    """Return how bodies are shown; raise UsageError for another word."""
    for word in get_args(Body):
        if word == text:
            found: Body = word
            return found
    raise UsageError(f'"{text}" is not a way to show bodies', hint="one of " + ", ".join(get_args(Body)))


def check_split_size(size: int) -> int:
    """Return the size; raise UsageError for one with which planning would be most of the work."""
    if size < LEAST_SPLIT_SIZE:
        raise UsageError(f"a split of {size} bytes is too small", hint=f"{LEAST_SPLIT_SIZE} bytes are the least")
    return size
