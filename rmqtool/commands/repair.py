"""``rmqtool repair``: plan, apply, undo."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.api.repair import PARTS
from rmqtool.commands.options import AsBroker, Group, ProgressWhen, Show, Topics, When, Work, store_and
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.store import Store
    from rmqtool.render.output import Output

_option = partial(typer.Option, rich_help_panel="Repair")


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """What is done, and to what; or what of the past."""

    apply: Annotated[bool, _option("--apply", help="Do what the plan says.")] = False
    allow: Annotated[
        str | None,
        _option("--allow", metavar="state,primary", help="Change offsets and configuration; change the commit log."),
    ] = None
    group: Group = None
    topic: Topics = None
    to: Annotated[
        str | None, _option("--to", metavar="TIME|OFFSET|min|max", help="offsets: where the group goes on.")
    ] = None
    from_bak: Annotated[bool, _option("--from-bak", help="offsets: as the copy .bak has them.")] = False
    bridge: Annotated[
        bool, _option("--bridge", help="Keep all behind damage of the log, as --allow primary does anyway.")
    ] = False
    truncate: Annotated[bool, _option("--truncate", help="Cut the log at its first damage instead.")] = False
    plan: Annotated[str | None, _option("--plan", metavar="ID", help="Only if this is still the plan.")] = None
    undo: Annotated[
        str | None, _option("--undo", metavar="last|DIR", help="Take back the newest repair, by its journal.")
    ] = None
    journal: Annotated[
        str | None,
        _option(
            "--journal",
            metavar="DIR",
            help="Keep the journal in this directory, on another disk; default STORE-rmqtool-undo.",
        ),
    ] = None
    list_: Annotated[bool, _option("--list", help="List the repairs that were done, the newest first.")] = False


def repair(
    words: Annotated[
        list[str] | None, store_and(f"[{'|'.join(PARTS)}]...", "What to repair; without it everything that can be.")
    ] = None,
    *,
    what: What,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show what is to be done to put a store right, do it, or take it back.

    Queues, index, checkpoint and abort marker are made anew from the log: class derived. Configuration and offsets
    (class state) and the commit log (class primary) are changed only with --allow. Every old byte goes first into a
    journal beside the store, and --undo brings it back. Damage of the log is bridged: records that readers step over
    are laid over it, and all behind it stays.

    Exits 1 when the plan has steps, or when something stays wrong after it was done.
    """
    if what.undo is not None or what.list_:
        return _look_back(words or [], what, broker, show)
    from rmqtool.api.repair import repaired
    from rmqtool.render.repair import repair_lines

    choice = choose_store(words or [], takes_words=PARTS)
    how = {name: value for name, value in asdict(what).items() if name not in ("topic", "undo", "list_")}
    how |= {"parts": choice.words, "topics": what.topic, "zone": show.tz}
    with show.output() as output:
        done = repaired(broker.store(choice.store), Work(jobs=1, progress=progress).asked(output), **how)
        for note in done.plan.notes:
            output.note(note)
        shown = done.plan.as_json()
        output.single(shown, repair_lines(output, shown, choice.store, done.next_commands(), done.undo_command()))
    return done.status


def _look_back(words: list[str], what: What, broker: AsBroker, show: Show) -> Exit:
    """List the repairs of a store, or take back one. The store is as named, or the one that the journal is beside."""
    from rmqtool.api.repair import store_of_journal

    if sum(bool(value) for value in asdict(what).values()) > 1:
        raise UsageError("--undo and --list go alone", hint="rmqtool repair STORE --list")
    choice = choose_store(words, takes_words=PARTS) if words or what.undo in (None, "last") else None
    if choice is not None and choice.words:
        hint = "rmqtool repair STORE --undo last"
        raise UsageError(f'a whole repair is taken back, not "{choice.words[0]}" of it', hint=hint)
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
