"""``rmqtool repair``: plan, apply, undo."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rmqtool.commands.opening import StoreChoice, choose_store, whole_store
from rmqtool.commands.options import AsBroker, Group, ProgressWhen, Show, Topics, When, Work, store_and
from rmqtool.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqtool.commands.repair_offsets import OffsetsWanted
    from rmqtool.findings import Finding
    from rmqtool.repairs.plan import Damaged, Plan, Request
    from rmqtool.store.open import Store

_PANEL = "Repair"
_PARTS = "queues|index|checkpoint|abort|offsets|config|timers|log"


def repair(
    words: Annotated[
        list[str] | None, store_and(f"[{_PARTS}]...", "What to repair; without it everything that can be.")
    ] = None,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Do what the plan says.", rich_help_panel=_PANEL)] = False,
    allow: Annotated[
        str | None,
        typer.Option(
            "--allow",
            metavar="state,primary",
            help="Change offsets and configuration; change the commit log.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    group: Group = None,
    topic: Topics = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME|OFFSET|min|max", help="offsets: where the group goes on.", rich_help_panel=_PANEL
        ),
    ] = None,
    from_bak: Annotated[
        bool, typer.Option("--from-bak", help="offsets: as the copy .bak has them.", rich_help_panel=_PANEL)
    ] = False,
    bridge: Annotated[
        bool,
        typer.Option(
            "--bridge",
            help="Keep all behind damage of the log, as --allow primary does anyway.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut the log at its first damage instead.", rich_help_panel=_PANEL)
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="ID", help="Only if this is still the plan.", rich_help_panel=_PANEL),
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option(
            "--undo", metavar="last|DIR", help="Take back the newest repair, by its journal.", rich_help_panel=_PANEL
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="DIR",
            help="Keep the journal in this directory, on another disk; default STORE-rmqtool-undo.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the repairs that were done, the newest first.", rich_help_panel=_PANEL)
    ] = False,
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
    if undo is not None or list_:
        is_mixed = bool(apply or allow or group or topic or to or from_bak or bridge or truncate or plan or journal)
        return _look_back(_Past(words or [], undo, list_, is_mixed), broker, show)
    if not apply and (plan is not None or journal is not None):
        raise UsageError(f"{'--plan' if plan is not None else '--journal'} goes with --apply", hint="add --apply")
    choice = _choose(words or [])
    damaged = _damaged(bridge, truncate, allow) if apply else _damaged(bridge, truncate, "primary")
    whole_store(choice.store, "repair", "a repair puts a whole store right")
    edit = _edit(choice.words, group, topic, to, from_bak, show.tz)
    request = replace(_request(choice.words, allow, damaged), edit=edit)
    wanted = _Wanted(choice.store, request, broker, apply, plan, journal)
    return _repair(wanted, Work(jobs=1, progress=progress), show)


class _Wanted(NamedTuple):
    """What was typed: STORE, what is to be repaired, as which broker, whether it is done, which plan, which journal."""

    store: str
    request: Request
    broker: AsBroker
    apply: bool
    plan: str | None
    journal: str | None

    def open(self) -> Store:
        """Open the store."""
        return opened(self.store, self.broker)


class _Past(NamedTuple):
    """What was typed about repairs of the past; ``is_mixed`` with options that are about a new one."""

    words: list[str]
    undo: str | None
    is_list: bool
    is_mixed: bool


def opened(path: str, broker: AsBroker) -> Store:
    """Open a store as a broker has it."""
    from rmqtool.store.open import open_store

    return open_store(path, version=broker.as_version, assignments=tuple(broker.conf or ()))


def _choose(words: list[str]) -> StoreChoice:
    """Tell STORE from the parts; a word that stands alone and is no part is a store, if one that is not there."""
    from rmqtool.repairs.steps import Part

    return choose_store(words, takes_words=list(Part))


def _edit(
    parts: tuple[str, ...], group: str | None, topics: list[str] | None, to: str | None, from_bak: bool, zone: str
) -> OffsetsWanted | None:
    """Return what is to be done to offsets, when that is asked for."""
    if group is None and not topics and to is None and not from_bak:
        return None
    from rmqtool.commands.repair_offsets import OffsetsWanted

    if group is None or parts != ("offsets",):
        raise UsageError("offsets are set for one group", hint="rmqtool repair STORE offsets -g GROUP --to TIME")
    return OffsetsWanted(group, tuple(topics or ()), to, from_bak, zone)


def _damaged(bridge: bool, truncate: bool, allow: str | None) -> Damaged | None:
    from rmqtool.repairs.plan import Damaged

    if bridge and truncate:
        raise UsageError("--bridge and --truncate exclude each other", hint="--bridge keeps what --truncate cuts off")
    if (bridge or truncate) and "primary" not in (allow or "").split(","):
        raise Refused("this would change the commit log; nothing was done", hint="repeat it with --allow primary")
    return Damaged.BRIDGE if bridge else Damaged.TRUNCATE if truncate else None


def _request(words: tuple[str, ...], allow: str | None, damaged: Damaged | None) -> Request:
    from rmqtool.repairs.plan import Request
    from rmqtool.repairs.steps import Part, Risk

    unknown = [word for word in words if word not in list(Part)]
    if unknown:
        raise UsageError(f'"{unknown[0]}" is no part of a store', hint=_PARTS.replace("|", ", "))
    risks = {Risk.DERIVED.value, *(allow.split(",") if allow else ())}
    odd = sorted(risks - set(Risk))
    if odd:
        raise UsageError(f'--allow takes state and primary, not "{odd[0]}"', hint="--allow state,primary")
    return Request(frozenset(map(Part, words)), frozenset(map(Risk, risks)), damaged)


def _repair(wanted: _Wanted, work: Work, show: Show) -> Exit:
    from rmqtool.render.repair import repair_lines
    from rmqtool.repairs.run import plan_only, repair

    path, request = wanted.store, wanted.request
    with show.output() as output:
        effort = work.effort(output)
        if wanted.apply:
            plan = repair(wanted.open, request, wanted.plan, effort, wanted.journal)
        else:
            plan = plan_only(wanted.open, request, effort)
        for note in plan.notes:
            output.note(note)
        shown = plan.as_json()
        undo = None
        if plan.undo is not None:
            undo = f"rmqtool repair {quote(path)}{_broker_words(wanted.broker)} --undo {quote(plan.undo)}"
        output.single(shown, repair_lines(output, shown, path, _next_commands(plan, wanted), undo))
    return Exit.NO if plan.left or (plan.steps and not plan.applied) else Exit.DONE


def _next_commands(plan: Plan, wanted: _Wanted) -> list[str]:
    """Return what to type: to do exactly what the plan says; to see what is left to do; to see what stays wrong."""
    request, store = wanted.request, quote(wanted.store)
    if len(plan.allowed) == len(plan.steps) and (plan.applied or not plan.steps):
        return _beyond_repair(plan.left, store, request)
    words = "".join(f" {part}" for part in sorted(request.parts))
    if request.damaged is not None:
        words += f" --{request.damaged}"
    if request.edit is not None:
        words += f" {request.edit}"
    command = f"rmqtool repair {store}{words}{_broker_words(wanted.broker, plan.assumed)}"
    if plan.applied:
        return [command]
    allow = f" --allow {','.join(plan.risks)}" if plan.risks else ""
    return [f"{command} --apply{allow} --plan {plan.id}"]


def _broker_words(broker: AsBroker, assumed: Mapping[str, object] | None = None) -> str:
    """Return the options that say which broker's rules and settings were taken, assumed ones too."""
    version = "" if broker.as_version is None else f" --as {broker.as_version}"
    stated = [*(broker.conf or ()), *(f"{name}={value}" for name, value in (assumed or {}).items())]
    return version + "".join(f" --conf {quote(one)}" for one in stated)


def _beyond_repair(left: Sequence[Finding], store: str, request: Request) -> list[str]:
    """Return what to type about what this repair did not mend: the repair of timers, which is done only by name.

    Else the fix of the first finding that has another one than a repair, or a closer look.
    """
    from rmqtool.repairs.steps import Part

    timers = f"rmqtool repair {store} {Part.TIMERS}"
    if Part.TIMERS not in request.parts and any(finding.fix == timers for finding in left):
        return [timers]
    others = [finding.fix for finding in left if finding.fix and not finding.fix.startswith("rmqtool repair")]
    return (others or [f"rmqtool check {store}"])[:1] if left else []


def _look_back(past: _Past, broker: AsBroker, show: Show) -> Exit:
    """List the repairs of a store, or take back one."""
    if past.is_mixed or (past.is_list and past.undo is not None):
        raise UsageError("--undo and --list go alone", hint="rmqtool repair STORE --list")
    path = _store_of(past)
    return _list(path, broker, show) if past.undo is None else _undo(past.undo, path, broker, show)


def _store_of(past: _Past) -> str:
    """Return the store that is meant: as named, or the one that the journal lies beside. A journal never names it."""
    from rmqtool.repairs.journals import store_beside

    if past.words or past.undo in (None, "last"):
        choice = _choose(past.words)
        if choice.words:
            raise UsageError(
                f'a whole repair is taken back, not "{choice.words[0]}" of it', hint="rmqtool repair STORE --undo last"
            )
        return choice.store
    assert past.undo is not None
    found = store_beside(past.undo)
    if found is None:
        raise UsageError(
            f"{past.undo} is no directory of a repair that lies beside its store",
            hint=f"name the store: rmqtool repair STORE --undo {quote(past.undo)}",
        )
    return found


def _list(path: str, broker: AsBroker, show: Show) -> Exit:
    from rmqtool.render.repair import PAST_FIELDS, past_end_lines, past_lines
    from rmqtool.repairs.run import past_repairs

    with show.output() as output:
        rows = []
        for past, flaw in past_repairs(lambda: opened(path, broker)):
            if flaw is None:
                rows.append(past.as_json())
            else:
                output.note(f"{flaw.message}; it is not listed")
        output.rows(rows, PAST_FIELDS, lambda row: past_lines(output, row))
        if output.is_human:
            for line in past_end_lines(output, rows, path):
                output.line(line)
    return Exit.DONE


def _undo(wanted: str, path: str, broker: AsBroker, show: Show) -> Exit:
    from rmqtool.render.repair import undone_lines
    from rmqtool.repairs.run import undo_repair

    with show.output() as output:
        directory, undone = undo_repair(lambda: opened(path, broker), wanted)
        shown = {"undone": directory, "files": undone.restored, "deleted": undone.deleted}
        output.single(shown, undone_lines(output, undone.restored, undone.deleted))
    return Exit.DONE
