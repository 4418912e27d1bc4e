"""Repairs a store on disk: plan, apply under the broker's lock, undo."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from shlex import quote

from rmqtool.errors import Refused, StoreError, WriteFailed
from rmqtool.files.journal_log import Undone
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.log.ranges import Effort
from rmqtool.repairs.apply import Places, apply_plan, is_undoable, private_attributes, take_back
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.journals import LINK, Journals, PastRepair, iter_repairs, store_beside
from rmqtool.repairs.plan import Plan, Request, check_view, plan_repair, require_stopped
from rmqtool.repairs.staging import require_outside
from rmqtool.repairs.steps import Risk
from rmqtool.store.open import Store

Open = Callable[[], Store]
_ALONE = Effort()


def plan_only(open_store: Open, request: Request, effort: Effort = _ALONE) -> Plan:
    """Return the plan of a repair; the store is not changed."""
    with open_store() as store, Areas(store) as areas:
        require_stopped(store)
        for past in _journals(areas).unfinished():
            raise Refused(
                "a repair of this store was interrupted, so only part of it is changed",
                file=store.root,
                hint=f"undo it: rmqtool repair {quote(store.root)} --undo {quote(past.directory)}"
                "   or repair again: --apply undoes it first",
            )
        return plan_repair(areas, request, effort)


def repair(
    open_store: Open,
    request: Request,
    expected: str | None = None,
    effort: Effort = _ALONE,
    journal: str | None = None,
) -> Plan:
    """Plan a repair and apply it, if it is the plan ``expected`` by the user; then check the store again.

    ``journal`` is the directory for the journal; by default it is beside the store, with the earlier ones.
    """
    with open_store() as store, Areas(store) as areas:
        root = store.root
        for past in _journals(areas).unfinished():
            _take_back(past)  # so that the new repair begins where that one did
    with open_store() as store, Areas(store) as areas:
        plan = plan_repair(areas, request, effort, foresee=False)
        if expected is not None and plan.id != expected:
            raise _other_plan(open_store, request, plan, expected)
        if plan.steps:
            if not plan.allowed:
                raise _needs_leave(plan, root)
            plan.undo = _apply(areas, plan, journal)
        plan.applied = True
        # Queues, index and the changed part of the log are read again; the rest of the log is unchanged.
        with open_store() as repaired:
            plan.left = check_view(repaired, areas.extract, effort)
    return plan


def _apply(areas: Areas, plan: Plan, journal: str | None) -> str:
    """Apply a plan; return the directory of its journals."""
    journals = _journals(areas)
    place = journals.place() if journal is None else os.path.realpath(journal)
    require_outside(place, journals.roots)
    about = {"number": journals.next_number(), "time": time.time_ns() // 1_000_000}
    with _opened(areas, place) as places, _noted(journals, place):
        return os.path.join(place, apply_plan(areas, plan, places, about))


def _other_plan(open_store: Open, request: Request, plan: Plan, expected: str) -> Refused:
    """Return why the plan is not the expected one: steps are not allowed, or the store has changed."""
    with open_store() as store, Areas(store) as areas:
        whole = plan_repair(areas, replace(request, risks=frozenset(Risk)), foresee=False)
    if whole.id == expected:
        risks = ",".join(whole.risks)
        return Refused(
            f"plan {expected} has steps that are not allowed; nothing was changed",
            hint=f"run it again with --allow {risks}",
        )
    return Refused(
        f"{expected} is not the current plan of this store, which is {plan.id}; nothing was changed",
        hint="read the new plan: rmqtool repair STORE",
    )


def _needs_leave(plan: Plan, root: str) -> Refused:
    risks = ",".join(sorted({step.risk.value for step in plan.steps} - {Risk.DERIVED.value}))
    if risks:
        return Refused(
            f"every step of plan {plan.id} needs --allow; nothing was changed",
            hint=f"run it again with --allow {risks}",
        )
    # Only the abort marker is left, and the log was not requested.
    return Refused(
        f"{plan.steps[0].shown} {plan.steps[0].reason}; nothing was changed",
        hint=f"rmqtool repair {quote(root)} --apply --allow {Risk.PRIMARY.value}",
    )


def past_repairs(open_store: Open) -> list[tuple[PastRepair, Refused | None]]:
    """Return the repairs of a store, newest first, each with the reason if its journals are not trusted."""
    with open_store() as store, Areas(store) as areas:
        return _journals(areas).judged()


def undo_repair(open_store: Open, wanted: str) -> tuple[str, Undone]:
    """Undo one repair of a store, by its directory or the ``last``; return its directory and the restored files."""
    try:
        opened = open_store()
    except StoreError as error:
        other = store_beside(wanted)
        if other is None:
            raise
        raise Refused(
            f"this undo journal belongs to {other}, not to the store you named; nothing was undone",
            file=wanted,
            hint=f"rmqtool repair {quote(other)} --undo {quote(wanted)}",
        ) from error
    with opened as store, Areas(store) as areas:
        past = _journals(areas).find(wanted)
        return past.directory, _take_back(past)


def _take_back(past: PastRepair) -> Undone:
    if not past.roots:
        return Undone()
    name = os.path.basename(past.directory)
    with _places(past.roots, os.path.dirname(past.directory)) as places:
        # Check before the lock is taken, because that may create the lock file.
        if not is_undoable(places, name):
            return Undone()
        with places.areas[0].lock():
            return take_back(places, name)


def _journals(areas: Areas) -> Journals:
    return Journals(areas.main.root, [area.root for area in areas.all])


@contextmanager
def _opened(areas: Areas, directory: str) -> Iterator[Places]:
    """Open the areas for writing and create the directory of the journals; remove that if it stays empty."""
    parent, name = os.path.split(directory)
    if not os.path.isdir(parent):
        raise Refused(f"{parent} is not a directory", file=parent, hint=f"mkdir -p {quote(parent)}")
    with PosixWritableFileSystem(parent) as beside:
        is_new = not beside.exists(name)
        if is_new:
            beside.mkdir(name)
            beside.set_attributes(name, private_attributes(areas.main.base.stat("")))
            beside.fsync_dir()
        try:
            with _places([area.root for area in areas.all], directory) as places:
                yield places
        finally:
            if is_new and not beside.listdir(name):
                beside.rmdir(name)


@contextmanager
def _noted(journals: Journals, place: str) -> Iterator[None]:
    """Create a link beside the store to a journal directory elsewhere, so that later commands find it.

    A link needs no space on the disk of the store, which may be full. It is removed if no journal was written.
    """
    if place in journals.places():
        yield
        return
    link = journals.beside if not os.path.lexists(journals.beside) else _free_link(journals.place())
    try:
        os.symlink(place, link)
        _sync(os.path.dirname(link))
    except OSError as error:
        raise WriteFailed(
            f"{link} cannot be made: {error.strerror}; nothing was changed",
            file=link,
            hint="later commands find the journal by this link: make the directory writable for you",
        ) from error
    try:
        yield
    except BaseException:
        if not any(True for _ in iter_repairs(place)):
            os.unlink(link)
        raise


def _free_link(place: str) -> str:
    number = 1
    while os.path.lexists(os.path.join(place, f"{LINK}-{number}")):
        number += 1
    return os.path.join(place, f"{LINK}-{number}")


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _places(roots: list[str], directory: str) -> Iterator[Places]:
    with ExitStack() as opened:
        files = [opened.enter_context(PosixWritableFileSystem(root)) for root in roots]
        journals = opened.enter_context(PosixWritableFileSystem(directory))
        yield Places(files, journals, lambda path: PosixWritableFileSystem(os.path.join(directory, path)))
