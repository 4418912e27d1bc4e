"""``rmqtool diff``: what two stores do not have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Limit, Show, Topics, Work
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.look.diff import Differences, DiffOptions, QueueSource
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store

_BY = ("log", "queue", "message")
_SOURCES = ("auto", "file", "rocksdb")
_SHOWN = 20


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A store.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The store it is compared with.")],
    *,
    by: Annotated[
        str, typer.Option("--by", metavar="|".join(_BY), help="What counts as the same: place, offset or key.")
    ] = "queue",
    cq: Annotated[
        str | None,
        typer.Option("--cq", metavar="A[,B]", help=f"Where queues are taken from: {', '.join(_SOURCES)}."),
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Counts for each topic, no messages.")] = False,
    topic: Topics = None,
    limit: Limit = None,
    broker: AsBroker,
    work: Work,
    show: Show,
) -> Exit:
    """Compare two stores: only in A, only in B, different.

    By queue: what consumers get at each queue offset, whatever the sizes of the files; each queue has a digest. By
    log: the bytes at the same place, as of master and slave. By message: topic and unique key, as after a move.
    """
    from rmqtool.look.diff import compare_stores
    from rmqtool.store.open import open_store

    options = _options(by, cq, topic)
    stores = (open_store(path, version=broker.as_version, assignments=tuple(broker.conf or ())) for path in (a, b))
    with show.output() as output, next(stores) as first, next(stores) as second:
        found = compare_stores(first, second, options, work.effort(output))
        for note in found.notes:
            output.note(note)
        _show(output, found, (first, second), limit, summary=summary)
    return worst(Exit.DONE if found.same else Exit.NO, Exit.DONE if found.complete else Exit.SKIPPED)


def _options(by: str, cq: str | None, topic: list[str] | None) -> DiffOptions:
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.look.diff import By, DiffOptions

    if by not in _BY:
        raise UsageError(f'"{by}" is nothing to compare by', hint=f"one of {', '.join(_BY)}")
    if cq is not None and by != "queue":
        raise UsageError("--cq is for comparing by queue", hint="leave out --by")
    return DiffOptions(By(by), parse_patterns(topic or ()), _sources(cq or "auto"))


def _sources(text: str) -> tuple[QueueSource, QueueSource]:
    from rmqtool.look.diff import QueueSource

    words = text.split(",")
    if len(words) > 2 or not set(words) <= set(_SOURCES):
        raise UsageError(f'"{text}" is no place to take queues from', hint="for example: --cq file,rocksdb")
    return QueueSource(words[0]), QueueSource(words[-1])


def _show(output: Output, found: Differences, stores: tuple[Store, Store], limit: int | None, *, summary: bool) -> None:
    from itertools import islice

    from rmqtool.look.diff import diff_head, iter_json_rows
    from rmqtool.render.diff import DIFFERENCES, diff_lines, diff_words
    from rmqtool.render.output import Mode

    rows: Any = iter(()) if summary else iter_json_rows(found, *stores)
    head = diff_head(found, stores, topics=summary)
    if output.is_human:
        for line in diff_lines(output, head, islice(rows, _SHOWN if limit is None else limit)):
            output.line(line)
    elif output.look.mode is Mode.JSON:
        output.long_single(head, "rows", islice(rows, limit))
    else:
        output.rows(rows, [column.key for column in DIFFERENCES], lambda _: (), limit)
        output.aside({"summary": head}, diff_words(head))
