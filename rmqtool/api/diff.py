"""``diff``: compare two stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.store import Place, opened
from rmqtool.api.wanted import Json, Said, Working, effort_of, require_known, unknown_places, wanted_of
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.api import shapes
    from rmqtool.look.diff import DiffOptions

BY = ("log", "queue", "message")
SOURCES = ("auto", "file", "rocksdb")


class How(TypedDict, total=False):
    """The identity of a message (place, queue offset or key), and what is compared.

    ``cq`` says where queues are read from: auto, file or rocksdb, or one for each store: "file,rocksdb". With
    ``summary`` there are counts for each topic, and no rows.
    """

    by: str
    cq: str | None
    topics: str | Sequence[str] | None
    summary: bool


class Compared(NamedTuple):
    """Two stores compared: the object of the contract without its rows, and the rows, read lazily."""

    head: Json
    rows: Iterator[Json]
    notes: list[str]
    unknown: Said | None = None

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        skipped = Exit.DONE if self.head["complete"] else Exit.SKIPPED
        unknown = Exit.DONE if self.unknown is None else self.unknown.status
        return worst(Exit.DONE if self.head["same"] else Exit.NO, skipped, unknown)


def diff(a: Place, b: Place, *, jobs: int = 1, **how: Unpack[How]) -> shapes.Differences:
    """Compare the messages in the queues of two stores; by "log" the bytes of their logs, by "message" all messages."""
    require_known("diff", how, tuple(How.__annotations__))
    with compare(a, b, {"jobs": jobs}, **how) as found:
        return cast("shapes.Differences", {**found.head, "rows": list(found.rows)})


@contextmanager
def compare(a: Place, b: Place, work: Working | None = None, **how: Unpack[How]) -> Iterator[Compared]:
    """Compare two stores, and keep them open while the rows are read."""
    from rmqtool.look.diff import compare_stores, diff_head, iter_json_rows

    options = _options(how)
    with opened(a) as one, opened(b) as other:
        found = compare_stores(one, other, options, effort_of(**(work or {})))
        summary = how.get("summary", False)
        rows = iter(()) if summary else iter_json_rows(found, one, other)
        unknown = unknown_places([one, other], wanted_of({"topics": how.get("topics")}))
        notes = found.notes if unknown is None else [*found.notes, unknown.whole]
        yield Compared(diff_head(found, (one, other), topics=summary), rows, notes, unknown)


def _options(how: How) -> DiffOptions:
    from rmqtool.filters.wanted import want
    from rmqtool.look.diff import By, DiffOptions, QueueSource

    by, cq = how.get("by", "queue"), how.get("cq")
    if by not in BY:
        raise UsageError(f'cannot compare by "{by}"', hint=f"one of {', '.join(BY)}")
    if cq is not None and by != "queue":
        raise UsageError("--cq and --by exclude each other", hint="leave out --by")
    words = (cq or "auto").split(",")
    if len(words) > 2 or not set(words) <= set(SOURCES):
        raise UsageError(f'"{cq}" is not a source of queues', hint="for example: --cq file,rocksdb")
    topics = want(topics=how.get("topics")).topics
    return DiffOptions(By(by), topics, (QueueSource(words[0]), QueueSource(words[-1])))
