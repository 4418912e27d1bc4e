"""``rmqtool repair``: plan, apply, undo."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.api.repair import PARTS
from rmqtool.commands.options import AsBroker, Group, ProgressWhen, Show, Topics, When, Work, refuse_idle, store_and
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.store import Store
    from rmqtool.render.output import Output

_option = partial(typer.Option, rich_help_panel="Repair")


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """The repair to do, and its parts; or which past repair to list or undo."""

    apply: Annotated[bool, _option("--apply", help="Carry out the plan.")] = False
    allow: Annotated[
        str | None,
        _option("--allow", metavar="state,primary", help="Allow changes to state (configuration), primary (the log)."),
    ] = None
    group: Group = None
    topic: Topics = None
    to: Annotated[
        str | None, _option("--to", metavar="TIME|OFFSET|min|max", help="offsets: set the group to this place.")
    ] = None
    from_bak: Annotated[bool, _option("--from-bak", help="offsets: take them from the copy .bak.")] = False
    bridge: Annotated[
        bool, _option("--bridge", help="Keep everything after damage in the log; the default of --allow primary.")
    ] = False
    truncate: Annotated[bool, _option("--truncate", help="Cut the log at the first damage.")] = False
    plan: Annotated[str | None, _option("--plan", metavar="ID", help="Apply only this plan.")] = None
    undo: Annotated[
        str | None, _option("--undo", metavar="last|DIR", help="Undo the newest repair, by its journal.")
    ] = None
    journal: Annotated[
        str | None,
        _option(
            "--journal",
            metavar="DIR",
            help="Keep the undo journal in this directory; default: STORE-rmqtool-undo.",
        ),
    ] = None
    list_: Annotated[bool, _option("--list", help="List past repairs, newest first.")] = False


def repair(
    words: Annotated[
        list[str] | None, store_and(f"[{'|'.join(PARTS)}]...", "What to repair; default: everything.")
    ] = None,
    *,
    what: What,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show a plan of what to repair, apply it, or undo it.

    Queues, index, checkpoint and the file abort are rebuilt from the log (class derived). Configuration and offsets
    (class state) and the commit log (class primary) are changed only with --allow. All old bytes are first saved to an
    undo journal next to the store; --undo restores them. Damage in the log is overwritten with empty placeholder
    records, which consumers skip; everything after it stays.

    Exits 1 if the plan has steps, or if problems remain after it was applied.
    """
    if what.undo is not None or what.list_:
        return _look_back(words or [], what, broker, show)
    from rmqtool.api.repair import repaired
    from rmqtool.render.repair import repair_lines

    choice = choose_store(words or [], takes_words=PARTS)
    how = {name: value for name, value in asdict(what).items() if name not in ("topic", "undo", "list_")}
    how |= {"parts": choice.words, "topics": what.topic, "zone": show.tz}
    with show.output("Plan") as output:
        done = repaired(broker.store(choice.store), Work(jobs=1, progress=progress).asked(output), **how)
        for note in done.plan.notes:
            output.note(note)
        shown = done.plan.as_json()
        output.single(shown, repair_lines(output, shown, choice.store, done.next_commands(), done.undo_command()))
    return done.status


def _look_back(words: list[str], what: What, broker: AsBroker, show: Show) -> Exit:
    """List the past repairs of a store, or undo one. The store is the named one, or the one next to the journal."""
    from rmqtool.api.repair import store_of_journal

    if sum(bool(value) for value in asdict(what).values()) > 1:
        raise UsageError("--undo and --list cannot be combined with other options", hint="rmqtool repair STORE --list")
    refuse_idle("repair --list", {"--conf": what.undo is None and broker.conf}, "no setting moves the journals")
    choice = choose_store(words, takes_words=PARTS) if words or what.undo in (None, "last") else None
    if choice is not None and choice.words:
        raise UsageError(f'undo a whole repair, not "{choice.words[0]}"', hint="rmqtool repair STORE --undo last")
    store = broker.store(store_of_journal(what.undo or "") if choice is None else choice.store)
    with show.output() as output:
        return _list(output, store) if what.undo is None else _undo(output, store, what.undo)


def _list(output: Output, store: Store) -> Exit:
    from rmqtool.api.repair import past_repairs
    from rmqtool.render.repair import show_past

    past = past_repairs(store)
    return show_past(output, past.rows, past.notes, store.path)


def _undo(output: Output, store: Store, which: str) -> Exit:
    from rmqtool.api.repair import undo
    from rmqtool.render.repair import show_undone

    return show_undone(output, undo(store, which))
