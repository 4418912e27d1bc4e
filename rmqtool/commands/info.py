"""``rmqtool info``: show a store at a glance."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from rmqtool.api.info import View
from rmqtool.commands.options import BrokerOrCluster, Group, Scope, Show, refuse_idle, store_and
from rmqtool.commands.store_word import choose_store, tell
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.info import Glance
    from rmqtool.render.output import Output

VIEWS = "|".join(View)


def info(
    words: Annotated[list[str] | None, store_and(f"[{VIEWS}]", "The store, and what to list.")] = None,
    *,
    scope: Scope,
    group: Group = None,
    broker: BrokerOrCluster,
    show: Show,
) -> Exit:
    """Show what a store contains and its health: files, topics, queues, groups, lag, and problems at first sight.

    Only names, sizes, headers and the first and last records are read, so it is fast on any store and does not disturb
    a running broker. Exits 0 also if there are problems; `check` reads everything and judges.
    """
    from rmqtool.api.info import glance

    choice = choose_store(words or [], takes_words=list(View))
    view = _view(choice.words)
    _refuse_idle(view, scope, group)
    with show.output() as output:
        if show.verbose:
            output.detail(kernel_tier())
        found = glance(broker.place(choice.store), view, group=group, **scope.asked())
        output.store = choice.store if os.path.isdir(choice.store) else found.root
        if view is None:
            _show_all(output, found, choice.store)
        else:
            _show_rows(output, found, view, choice.store)
        if found.missing is not None:
            raise found.missing
    return found.status


def kernel_tier() -> str:
    """Return which kernel reads the records here. The import is late because most commands do not need it."""
    from rmqtool import kernel

    return kernel.tier()


def _view(words: tuple[str, ...]) -> View | None:
    if not words:
        return None
    if len(words) > 1 or words[0] not in list(View):
        raise UsageError(f'"{" ".join(words)}" is not a view of a store', hint=f"one of {VIEWS}")
    return View(words[0])


# The options that narrow the rows of each view.
_NARROWING = {
    View.TOPICS: ("-t",),
    View.QUEUES: ("-t", "-q"),
    View.GROUPS: ("-t", "-q", "-g"),
    View.FILES: (),
    View.CONFIG: (),
}


def _refuse_idle(view: View | None, scope: Scope, group: str | None) -> None:
    given = {"-t": scope.topic, "-q": scope.queue, "-g": group}
    idle = {option: value for option, value in given.items() if view is None or option not in _NARROWING[view]}
    typed = {option for option, value in idle.items() if value is not None}
    lists = ", ".join(f"info STORE {other}" for other, taken in _NARROWING.items() if typed <= set(taken))
    what = "info without a view" if view is None else f"info {view}"
    refuse_idle(what, idle, f"it narrows the rows of {lists}")


def _show_all(output: Output, found: Glance, store: str) -> None:
    from rmqtool.render.overview import cluster_lines, overview_lines

    if "cluster" in found.shown:
        output.single(found.shown, cluster_lines(output, found.shown, set(found.own_groups), quote(store)))
        return
    lines = overview_lines(output, found.shown, found.findings, set(found.own_groups), quote(store))
    output.single(found.shown, lines)


def _show_rows(output: Output, found: Glance, view: View, store: str) -> None:
    from rmqtool.render import overview as screens

    for said in found.said:
        tell(output, said)
    columns = f"CLUSTER_{view.name}" if "cluster" in found.shown else view.name
    output.table(found.rows, getattr(screens, columns), empty="nothing to list")
    if view is View.GROUPS and output.is_human:
        command = f"rmqtool cat {quote(store)} -g {{}} --unread"
        for line in screens.behind_lines(output, found.rows, set(found.own_groups), command):
            output.line(line)
