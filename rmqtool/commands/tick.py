"""``rmqtool tick``: deliver and expire what is due."""

from __future__ import annotations

from collections.abc import Mapping
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
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Do what a running broker would have done by now: deliver, check transactions, revive popped messages.

    What a broker would delete now, because it is old or the disk is full, is listed; --expire deletes it. With --jsonl
    there is one line per action, then a summary with counts and what is still waiting.
    """
    from rmqtool.api.tick import ticking

    path = choose_store([store] if store else []).store
    with show.output() as output, ticking(broker.store(path), expire=expire) as found:
        _show(output, found)
        found.require_room()
    return found.status


def _show(output: Output, found: Ticking) -> None:
    from rmqtool.api.tick import FIELDS
    from rmqtool.render.tick import ticked_lines

    removed: list[Mapping[str, Any]] = []

    def keep(row: Mapping[str, Any]) -> tuple[str, ...]:
        if "files" in row:
            removed.append(row)
        return ()

    output.rows(found, FIELDS, keep)
    shown = found.finish()
    if output.is_human:
        for line in ticked_lines(output, shown["summary"], removed):
            output.line(line)
    else:
        happened = sum(count["count"] for count in shown["summary"]["counts"])
        output.aside(shown, f"{happened} happened")
