"""``repair``: plan a repair, apply it, undo it, list past repairs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.store import Place, Store, require_whole, store_of
from rmqtool.api.wanted import Working, effort_of, require_known
from rmqtool.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from rmqtool.api import shapes
    from rmqtool.repairs.offsets import GroupOffsets
    from rmqtool.repairs.plan import Damaged, Plan, Request

PARTS = ("queues", "index", "checkpoint", "abort", "offsets", "config", "timers", "log")


class How(TypedDict, total=False):
    """The parts to repair, and how.

    ``parts`` are of ``PARTS``; without them everything that can be repaired is. ``allow`` takes "state" (offsets and
    configuration) and "primary" (the commit log). ``bridge`` keeps all messages after damage of the log, ``truncate``
    cuts the log there. Offsets of a ``group`` are set ``to`` a time, an offset, "min" or "max", or as in the backup
    (``from_bak``).

    With ``apply`` the plan is done, provided its id is still ``plan`` if one is given. Old bytes go to an undo journal,
    in the directory ``journal``, before they are changed.
    """

    parts: Sequence[str]
    apply: bool
    allow: str | Iterable[str] | None
    bridge: bool
    truncate: bool
    group: str | None
    topics: Sequence[str] | None
    to: str | None
    from_bak: bool
    plan: str | None
    journal: str | None
    zone: str


class Repaired(NamedTuple):
    """A plan, done or not; ``words`` are the command-line words that ask for it."""

    store: Store
    plan: Plan
    words: str
    timers_too: bool

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        return Exit.NO if self.plan.left or (self.plan.steps and not self.plan.applied) else Exit.DONE

    def next_commands(self) -> list[str]:
        """Return the commands to type next: to apply this plan, to see what remains, to see what stays wrong."""
        plan, store = self.plan, quote(self.store.path)
        if len(plan.allowed) == len(plan.steps) and (plan.applied or not plan.steps):
            return self._beyond(store)
        command = f"rmqtool repair {store}{self.words}{self.store.options(plan.assumed)}"
        if plan.applied:
            return [command]
        allow = f" --allow {','.join(plan.risks)}" if plan.risks else ""
        return [f"{command} --apply{allow} --plan {plan.id}"]

    def undo_command(self) -> str | None:
        """Return the command that undoes this repair, if it was applied."""
        if self.plan.undo is None:
            return None
        return f"rmqtool repair {quote(self.store.path)}{self.store.options()} --undo {quote(self.plan.undo)}"

    def _beyond(self, store: str) -> list[str]:
        """Return the command for what this repair did not fix.

        The repair of timers comes first: it is done only by name. Then the fix of the first finding that is not fixed
        by a repair. If something was repaired, a closer check; if only parts were repaired, a repair of everything. If
        nothing remains, there is no command.
        """
        from rmqtool.findings import is_command

        left = self.plan.left
        timers = f"rmqtool repair {store} timers"
        if not self.timers_too and any(finding.fix == timers for finding in left):
            return [timers]
        others = [finding.fix for finding in left if finding.fix and not finding.fix.startswith("rmqtool repair")]
        if others or not left:
            return sorted(others, key=is_command, reverse=True)[:1]
        if self.plan.applied and self.plan.steps:
            return [f"rmqtool check {store}"]
        return [f"rmqtool repair {store}"] if self.words else []


class Past(NamedTuple):
    """The repairs of a store, the newest first, and notes about journals that cannot be used."""

    rows: list[shapes.PastRepair]
    notes: list[str]


def repair(store: Place, *, jobs: int = 1, **how: Unpack[How]) -> shapes.Plan:
    """Plan a repair; with ``apply`` do it. Every old byte goes into an undo journal beside the store first."""
    require_known("repair", how, tuple(How.__annotations__))
    return cast("shapes.Plan", repaired(store, {"jobs": jobs}, **how).plan.as_json())


def repaired(store: Place, work: Working | None = None, **how: Unpack[How]) -> Repaired:
    """Plan a repair, and apply it if that was asked for."""
    from dataclasses import replace

    from rmqtool.repairs import run
    from rmqtool.repairs.steps import Part
    from rmqtool.store.open import require_disk

    named, applies = store_of(store), how.get("apply", False)
    require_disk(named.path)
    if not applies and (how.get("plan") is not None or how.get("journal") is not None):
        option = "--plan" if how.get("plan") is not None else "--journal"
        raise UsageError(f"{option} needs --apply", hint="add --apply")
    risks = _risks(how.get("allow"))
    damaged = _damaged(how, risks if applies else ["primary"])
    require_whole(named, "repair", "a repair needs a whole store")
    edit = _edit(how)
    request = replace(_request(how, risks, damaged), edit=edit)
    effort = effort_of(**(work or {}))
    if applies:
        plan = run.repair(named.reopen, request, how.get("plan"), effort, how.get("journal"))
    else:
        plan = run.plan_only(named.reopen, request, effort)
    return Repaired(named, plan, _words(request, edit), Part.TIMERS in request.parts)


def undo(store: Place, which: str | os.PathLike[str] = "last") -> shapes.Undone:
    """Undo one repair of a store: the last one that can be undone, or that of a journal."""
    from rmqtool.repairs.run import undo_repair

    directory, undone = undo_repair(store_of(store).reopen, os.fspath(which))
    return {"undone": directory, "files": undone.restored, "deleted": undone.deleted}


def store_of_journal(which: str) -> str:
    """Return the store that a journal belongs to, from the directory it is in: a journal never names its store."""
    from rmqtool.repairs.journals import store_beside

    found = store_beside(which)
    if found is None:
        raise UsageError(
            f"{which} is not an undo journal next to its store",
            hint=f"name the store: rmqtool repair STORE --undo {quote(which)}",
        )
    return found


def past_repairs(store: Place) -> Past:
    """Return the repairs that were done to a store."""
    from rmqtool.repairs import run

    rows, notes = [], []
    for past, flaw in run.past_repairs(store_of(store).reopen):
        if flaw is None:
            rows.append(cast("shapes.PastRepair", past.as_json()))
        else:
            notes.append(f"{flaw.message}; it is not listed")
    return Past(rows, notes)


def _risks(allow: str | Iterable[str] | None) -> list[str]:
    return (allow.split(",") if allow else []) if allow is None or isinstance(allow, str) else list(allow)


def _edit(how: How) -> GroupOffsets | None:
    """Return the change of offsets that was asked for."""
    group, topics, to, from_bak = how.get("group"), how.get("topics"), how.get("to"), how.get("from_bak", False)
    if group is None and not topics and to is None and not from_bak:
        return None
    from rmqtool.repairs.offsets import GroupOffsets

    if group is None or tuple(how.get("parts", ())) != ("offsets",):
        raise UsageError(
            "missing group: offsets are set for one group", hint="rmqtool repair STORE offsets -g GROUP --to TIME"
        )
    return GroupOffsets(group, tuple(topics or ()), to, from_bak, how.get("zone", "local"))


def _damaged(how: How, allowed: Sequence[str]) -> Damaged | None:
    from rmqtool.repairs.plan import Damaged

    bridge, truncate = how.get("bridge", False), how.get("truncate", False)
    if bridge and truncate:
        raise UsageError("--bridge and --truncate exclude each other", hint="--bridge keeps what --truncate cuts off")
    parts = how.get("parts") or ("log",)
    if (bridge or truncate) and "log" not in parts:
        raise UsageError("--bridge and --truncate are about the log", hint="leave out the parts, or add log")
    if (bridge or truncate) and "primary" not in allowed:
        raise Refused("this would change the commit log; nothing was changed", hint="run it again with --allow primary")
    return Damaged.BRIDGE if bridge else Damaged.TRUNCATE if truncate else None


def _request(how: How, allowed: Sequence[str], damaged: Damaged | None) -> Request:
    from rmqtool.repairs.plan import Request
    from rmqtool.repairs.steps import Part, Risk

    parts = how.get("parts", ())
    unknown = [part for part in parts if part not in list(Part)]
    if unknown:
        raise UsageError(f'unknown part "{unknown[0]}"', hint=", ".join(PARTS))
    risks = {Risk.DERIVED.value, *allowed}
    odd = sorted(risks - set(Risk))
    if odd:
        raise UsageError(f'--allow takes state and primary, not "{odd[0]}"', hint="--allow state,primary")
    return Request(frozenset(map(Part, parts)), frozenset(map(Risk, risks)), damaged)


def _words(request: Request, edit: GroupOffsets | None) -> str:
    """Return the command-line words that ask for the same."""
    words = "".join(f" {part}" for part in sorted(request.parts))
    words += f" --{request.damaged}" if request.damaged is not None else ""
    return words + (f" {edit}" if edit is not None else "")
