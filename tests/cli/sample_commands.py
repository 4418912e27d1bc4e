"""Commands for tests of the shell around commands; they stand in no table but the tests' own."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqtool import errors
from rmqtool.commands.options import AsBroker, Filters, Limit, Period, Scope, Show, Store, Work, store_and
from rmqtool.commands.table import Entry, Panel
from rmqtool.errors import Exit, RmqtoolError


def fail(kind: str, show: Show, place: bool = False) -> None:
    """Raise an error of the tree by its class name."""
    error: type[RmqtoolError] = getattr(errors, kind)
    if place:
        raise error("what happened\nwhy it matters", file="commitlog/0\x1b[31m", offset=4096, hint="rmqtool check /s")
    raise error("what happened")


def raise_(kind: Annotated[str, typer.Argument()]) -> None:
    """Raise an exception that is no error of ours."""
    raise {"key": KeyError("x"), "stop": KeyboardInterrupt(), "abort": typer.Abort(), "os": OSError(5, "bad")}[kind]


def answer(status: int) -> int:
    """Return a status."""
    return status


def rows(show: Show, count: int = 3, limit: Limit = None) -> Exit:
    """Show rows.

    Each row has a number and its square.
    """
    with show.output() as out:
        found = ({"number": n, "square": n * n} for n in range(count))
        out.rows(found, ("number", "square"), lambda row: [f"{row['number']} {row['square']}"], limit)
        if count < 0:
            raise errors.StoreError("the store went away")
    return Exit.DONE


def everything(
    scope: Scope,
    period: Period,
    filters: Filters,
    broker: AsBroker,
    work: Work,
    show: Show,
    words: Annotated[list[str] | None, store_and("WHAT", "An id, a key, an offset or a time.")] = None,
    own: Annotated[bool, typer.Option("--own", help="An option of its own.")] = False,
) -> Exit:
    """Take every group of options and show what came of it."""
    with show.output() as out:
        bounds = period.bounds(show.tz, now=1_000_000_000_000)
        out.line(f"{scope} {bounds} {filters} {broker} {work.jobs} {words} {own} {show.verbose}")
    return Exit.DONE


def one_store(store: Store = None) -> Exit:
    """Take STORE."""
    typer.echo(store)
    return Exit.DONE


HERE = "tests.cli.sample_commands"
TABLE = (
    Entry("produce", f"{HERE}:one_store", Panel.USE, "messages"),
    Entry("check", f"{HERE}:one_store", Panel.JUDGE, "every byte and cross-reference"),
    Entry("info", f"{HERE}:one_store", Panel.LOOK, "health at a glance"),
    Entry("rows", f"{HERE}:rows", Panel.LOOK, "some rows"),
    Entry("query", f"{HERE}:everything", Panel.LOOK, "any id, key, offset or time"),
    Entry("fail", f"{HERE}:fail", Panel.FIX, "an error"),
    Entry("raise", f"{HERE}:raise_", Panel.FIX, "a bug"),
    Entry("answer", f"{HERE}:answer", Panel.FIX, "a status"),
    Entry("absent", "tests.cli.no_such_module:command", Panel.USE, "a module that must not be imported"),
)
