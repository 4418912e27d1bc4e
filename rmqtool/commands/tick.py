"""``rmqtool tick``: deliver due messages, delete expired segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Show, Store
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.tick import Ticking
    from rmqtool.render.output import Output


def tick(
    store: Store = None,
    *,
    expire: Annotated[
        bool, typer.Option("--expire", help="Delete expired segments, and more if the disk is full.")
    ] = False,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Deliver later messages too; Ctrl-C ends it.")] = False,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="CMD", help="Decide open transactions: 0 commits, 1 rolls back."),
    ] = None,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Do what a running broker would have done by now: deliver, check transactions, revive popped messages.

    What a broker would delete now, because it is old or the disk is full, is listed; --expire deletes it. With --jsonl
    there is one line per action, then a summary with counts and what is still waiting. --check runs a command for each
    open transaction. It gets the message as JSON on stdin.
    """
    from rmqtool.api.tick import FIELDS, ticking

    path = choose_store([store] if store else []).store
    with show.output(FIELDS) as output:
        with ticking(broker.store(path), expire=expire, follow=follow, check=check, obeys=True) as found:
            _show(output, found)
        return found.end()


def _show(output: Output, found: Ticking) -> None:
    from rmqtool.api.tick import FIELDS
    from rmqtool.render.tick import event_line, ticked_lines

    removed: list[Mapping[str, Any]] = []

    def line_of(row: Mapping[str, Any]) -> tuple[str, ...]:
        if found.follows:
            return (event_line(row, output),)
        if "files" in row:
            removed.append(row)
        return ()

    output.rows(_iter_flushed(output, found), FIELDS, line_of)
    shown = found.finish()
    if output.is_human:
        for line in ticked_lines(output, shown["summary"], removed):
            output.line(line)
    else:
        happened = sum(count["count"] for count in shown["summary"]["counts"])
        output.aside(shown, f"{happened} happened")


def _iter_flushed(output: Output, found: Ticking) -> Iterator[Mapping[str, Any]]:
    for row in found:
        yield row
        if found.follows:
            output.flush()
