"""A repair of a real store, from the question to the answer: plan it; do it under the broker's lock; take it back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from shlex import quote

from rmqtool.errors import Refused, UsageError
from rmqtool.repair.apply import SUFFIX, Places, apply_plan, is_undoable, journal_names, take_back, unfinished
from rmqtool.repair.areas import Areas
from rmqtool.repair.plan import Plan, Request, check_view, plan_repair, require_plan, require_stopped
from rmqtool.repair.steps import Risk
from rmqtool.scan.ranges import Effort
from rmqtool.storage.filesystem import Attributes
from rmqtool.storage.journal_log import read_journal
from rmqtool.storage.posix import PosixReadableFileSystem
from rmqtool.storage.posix_write import PosixWritableFileSystem
from rmqtool.storage.store import Store

Open = Callable[[], Store]
_ALONE = Effort()


def plan_only(open_store: Open, request: Request, effort: Effort = _ALONE) -> Plan:
    """Return the plan of a repair; the store is not touched."""
    with open_store() as store:
        require_stopped(store)
        directory = journals_of(store.root)
        for name in _unfinished(directory):
            raise Refused(
                "a repair of this store was cut short, so part of it is changed and part is not",
                file=store.root,
                hint=f"take it back: rmqtool repair {store.root} --undo {os.path.join(directory, name)}"
                "   or go on: --apply takes it back by itself, and begins anew",
            )
        with Areas(store) as areas:
            return plan_repair(areas, request, effort)


def repair(open_store: Open, request: Request, expected: str | None = None, effort: Effort = _ALONE) -> Plan:
    """Plan a repair and do it; ``expected`` is the plan that a person has seen. What stays wrong is found anew."""
    with open_store() as store:
        root = store.root
        _take_back_unfinished(store)
    with open_store() as store, Areas(store) as areas:
        plan = plan_repair(areas, request, effort, foresee=False)
        require_plan(plan, expected)
        if plan.steps:
            if not plan.allowed:
                raise _needs_leave(plan, root)
            directory = journals_of(root)
            with _opened(areas, directory) as places:
                plan.undo = os.path.join(directory, apply_plan(areas, plan, places))
        plan.applied = True
    with open_store() as store:
        plan.left = check_view(store, effort)
    return plan


def _needs_leave(plan: Plan, root: str) -> Refused:
    risks = ",".join(sorted({step.risk.value for step in plan.steps} - {Risk.DERIVED.value}))
    if risks:
        return Refused(
            f"every step of plan {plan.id} needs leave: nothing was done", hint=f"repeat it with --allow {risks}"
        )
    # All that is left is the marker of an unclean stop, and the log was not named.
    return Refused(
        f"{plan.steps[0].shown} {plan.steps[0].reason}; nothing was done",
        hint=f"rmqtool repair {quote(root)} --apply --allow {Risk.PRIMARY.value}",
    )


def undo_repair(directory: str, root: str | None) -> list[str]:
    """Take back the repair whose journals lie in ``directory``; return the paths that were restored.

    ``root`` is the store that a person has named; it must be the one that was repaired.
    """
    directory = os.path.realpath(directory)
    names = _journals_in(directory)
    if not names:
        raise UsageError(
            f"{directory} is no directory of a repair", hint="they lie beside the store, in STORE-rmqtool-undo"
        )
    roots = []
    for name in names:
        with PosixReadableFileSystem(os.path.join(directory, name)) as journal:
            about = read_journal(journal).about
            if about:
                roots.append(str(about["root"]))
    if root is not None and roots and os.path.realpath(root) != roots[0]:
        hint = f"rmqtool repair {quote(roots[0])} --undo {quote(directory)}"
        raise Refused(
            f"this is the way back of {roots[0]}, not of {root}; nothing was undone", file=directory, hint=hint
        )
    if not roots:
        return []
    name = os.path.basename(directory)
    with _places(roots, os.path.dirname(directory)) as places:
        # Asked before the lock is taken, which may make one where there was none.
        if not is_undoable(places, name):
            return []
        with places.areas[0].lock():
            return take_back(places, name)


def _journals_in(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    with PosixReadableFileSystem(directory) as files:
        return journal_names(files.listdir())


def journals_of(root: str) -> str:
    """Return the directory, beside a store, where the journals of its repairs lie."""
    return os.path.realpath(root) + SUFFIX


def _unfinished(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    with PosixWritableFileSystem(directory) as journals:
        return unfinished(journals, lambda path: PosixWritableFileSystem(os.path.join(directory, path)))


def _take_back_unfinished(store: Store) -> None:
    """Undo what was cut short, so that a repair begins where that one did."""
    directory = journals_of(store.root)
    for name in _unfinished(directory):
        undo_repair(os.path.join(directory, name), store.root)


@contextmanager
def _opened(areas: Areas, directory: str) -> Iterator[Places]:
    """Open the areas for writing, and make the directory of the journals, as private as the store.

    It goes again when nothing came into it.
    """
    parent, name = os.path.split(directory)
    with PosixWritableFileSystem(parent) as beside:
        if not beside.exists(name):
            beside.mkdir(name)
            own = areas.main.base.stat("")
            beside.set_attributes(name, Attributes.of(own)._replace(mtime_ns=None))
            beside.fsync_dir()
        try:
            with _places([area.root for area in areas.all], directory) as places:
                yield places
        finally:
            if not beside.listdir(name):
                beside.rmdir(name)


@contextmanager
def _places(roots: list[str], directory: str) -> Iterator[Places]:
    with ExitStack() as opened:
        files = [opened.enter_context(PosixWritableFileSystem(root)) for root in roots]
        journals = opened.enter_context(PosixWritableFileSystem(directory))
        yield Places(files, journals, lambda path: PosixWritableFileSystem(os.path.join(directory, path)))
