"""``rmqtool copy``: messages of stores into a new one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Filters, Group, Period, ProgressWhen, Scope, Show, When, Work
from rmqtool.commands.store_word import keep_private
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.copy import Done
    from rmqtool.render.output import Output

_option = partial(typer.Option, rich_help_panel="What the copy is like")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How the copy differs from its sources."""

    salvage: Annotated[
        bool, _option("--salvage", help="Copy every valid message of a damaged log; save what is none.")
    ] = False
    purge: Annotated[
        list[str] | None,
        _option(
            "--purge", metavar="TOPIC", help="Without this topic: no byte of it is left; * and ? match; repeatable."
        ),
    ] = None
    renumber: Annotated[bool, _option("--renumber", help="Queue offsets from 0, without gaps; groups move along.")] = (
        False
    )
    rehost: Annotated[str | None, _option("--rehost", metavar="IP:PORT", help="As if this broker had stored it.")] = (
        None
    )
    redact: Annotated[
        list[str] | None, _option("--redact", metavar="WHAT", help="Leave out: body, or a property's name; repeatable.")
    ] = None
    ids: Annotated[
        str | None, _option("--ids", metavar="FILE", help="Write old and new ids of every message, .jsonl or .csv.")
    ] = None


def copy(
    stores: Annotated[
        list[str], typer.Argument(metavar="SRC... DST", help="Stores to read, and the new one.", show_default=False)
    ],
    *,
    scope: Scope,
    group: Group = None,
    unread: Annotated[bool, typer.Option("--unread", help="Only what the group of -g has not consumed.")] = False,
    period: Period,
    filters: Filters,
    changes: Changes,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Copy messages into a new store: salvage a damaged one, split, purge, merge or move stores.

    SRC is only read, also while a broker runs on it. DST appears whole or not at all. Records stay as they are, queue
    offsets and the progress of groups too; places in the log change, and with them offset message ids. With -t,
    messages that still wait for the topic (delayed, timed, half) come along; with --purge they go as well.

    Several SRC are merged by store time; each queue keeps its order, and a topic that several of them have is numbered
    anew. Groups go on where they were, of a shared queue at the first message that one of them has not read.

    A damaged log is refused without --salvage. With it the bytes that were skipped lie in DST.lost-and-found, with a
    list; the exit status is 6 then.
    """
    from rmqtool.api.copy import copied

    keep_private(stores[:-1])
    if len(stores) < 2:
        raise UsageError("where to? copy takes the stores to read and the new one", hint="rmqtool copy SRC DST")
    if unread != (group is not None):
        raise UsageError(
            "--unread and -g belong together", hint="-g GROUP --unread copies what the group has not consumed"
        )
    asked = {**scope.asked(), **period.asked(show.tz), **filters.asked()}
    with show.output() as output:
        how: Any = {**asdict(changes), "unread_by": group}
        work = Work(jobs=1, progress=progress).asked(output)
        done = copied([broker.store(path) for path in stores[:-1]], stores[-1], how, work, **asked)
        _show(output, done)
    return done.status


def _show(output: Output, done: Done) -> None:
    from rmqtool.render.copy import copied_lines
    from rmqtool.render.text import neutral

    for text in [*(neutral(said.text) for said in done.said), *done.notes]:
        output.note(text)
    output.single(done.shown, copied_lines(output, done.shown, done.skipped))
