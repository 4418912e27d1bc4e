"""``rmqtool diff``: compare two stores."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.api.diff import BY, SOURCES
from rmqtool.commands.options import AsBroker, Limit, Show, Topics, Work
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.diff import Compared, How
    from rmqtool.render.output import Output

_SHOWN = 20


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A store.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The store to compare with.")],
    *,
    by: Annotated[
        str, typer.Option("--by", metavar="|".join(BY), help="Match messages by place, offset or key.")
    ] = "queue",
    cq: Annotated[
        str | None,
        typer.Option("--cq", metavar="A[,B]", help=f"Read queues from: {', '.join(SOURCES)}."),
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Show counts per topic, no messages.")] = False,
    topic: Topics = None,
    limit: Limit = None,
    broker: AsBroker,
    work: Work,
    show: Show,
) -> Exit:
    """Compare two stores: messages only in A, only in B, and different.

    By queue: what consumers get at each queue offset, for any file sizes; each queue has a digest. By log:
    bytes at the same physical offset, as on a master and its slave. By message: topic and unique key, as after a move.
    """
    from rmqtool.api.diff import compare

    how: How = {"by": by, "cq": cq, "topics": topic, "summary": summary}
    with show.output() as output, compare(broker.store(a), broker.store(b), work.asked(output), **how) as found:
        for note in found.notes:
            output.note(note)
        _show(output, found, limit)
    return found.status


def _show(output: Output, found: Compared, limit: int | None) -> None:
    from rmqtool.render.diff import DIFFERENCES, diff_lines, diff_words
    from rmqtool.render.output import Mode

    if output.is_human:
        for line in diff_lines(output, found.head, islice(found.rows, _SHOWN if limit is None else limit)):
            output.line(line)
    elif output.look.mode is Mode.JSON:
        output.long_single(found.head, "rows", islice(found.rows, limit))
    else:
        output.rows(found.rows, [column.key for column in DIFFERENCES], lambda _: (), limit)
        output.aside({"summary": found.head}, diff_words(found.head))
