"""Repairs a store on disk: plan, check of free space, apply under the broker's lock, undo.

Applying a plan saves old bytes to the journal, changes the files, and undoes everything if that fails. The journal is
beside the store: a directory for each repair, with one journal for each area. An interrupted repair is undone before
another one begins, so at most one is unfinished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from shlex import quote

from rmqtool.errors import Refused, RmqtoolError, StoreError, WriteFailed
from rmqtool.files.filesystem import Attributes, Status, WritableFileSystem, join
from rmqtool.files.free_space import require_free_space
from rmqtool.files.journal import JournalledFileSystem, Undone, require_undoable, undo
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.files.publish import require_outside, sync
from rmqtool.log.ranges import Effort
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.journals import LINK, Journals, PastRepair, iter_repairs, store_beside
from rmqtool.repairs.plan import Plan, Request, check_view, plan_repair, require_stopped
from rmqtool.repairs.steps import Risk, Step, transfer
from rmqtool.store.open import Store

# Undo trusts the journal. So it belongs to the user who made it, and only that user can write it.
_OTHERS_WRITE, _OWN = 0o022, 0o700
# Space for the lines of a journal, in addition to the old bytes.
_LINES = 1 << 20


@dataclass(frozen=True)
class Places:
    """The places that a repair writes to: the areas of the store, and the directory of all its journals.

    ``open_journals`` opens a directory below that of the journals.
    """

    areas: Sequence[WritableFileSystem]
    journals: WritableFileSystem
    open_journals: Callable[[str], WritableFileSystem]


def apply_plan(areas: Areas, plan: Plan, places: Places, about: Mapping[str, object] | None = None) -> str:
    """Apply the allowed steps of a plan, under the store's lock; return the directory of its journals.

    Refused if the store has changed since the plan was made. ``about`` is recorded in the journals.
    """
    _require_free_space(plan, places)
    name = _free_name(places.journals, plan.id)
    with ExitStack() as opened:
        try:
            _make_directory(places, name)
            said = {**(about or {}), "plan": plan.id, "steps": [step.as_json(n) for n, step in _numbered(plan)]}
            targets = list(_open_targets(areas, said, places, name, opened))
            opened.enter_context(targets[0].lock())
            _require_unchanged(areas, plan)
            for step in plan.allowed:
                transfer(step, areas.all[step.area].overlay, targets[step.area])
            for target in targets:
                target.finish()
        except (RmqtoolError, KeyboardInterrupt) as error:
            _give_up(areas, places, name, error)
            raise
    return name


def _numbered(plan: Plan) -> list[tuple[int, Step]]:
    return [(number, step) for number, step in enumerate(plan.steps, 1) if step.allowed]


def _open_targets(
    areas: Areas, said: Mapping[str, object], places: Places, name: str, opened: ExitStack
) -> Iterator[JournalledFileSystem]:
    for number, files in enumerate(places.areas):
        journal = opened.enter_context(places.open_journals(join(name, str(number))))
        about = {**said, "root": areas.all[number].root, "store": areas.main.root}
        target = JournalledFileSystem(files, journal, about)
        opened.callback(target.close)
        yield target


def _give_up(areas: Areas, places: Places, name: str, cause: BaseException) -> None:
    """Undo a failed repair at once. If that fails too, the error tells how to undo it later."""
    try:
        if all(places.journals.exists(join(name, str(number))) for number in range(len(places.areas))):
            take_back(places, name)
        _forget(places, name)
    except RmqtoolError as error:
        said = cause.message if isinstance(cause, RmqtoolError) else "interrupted"
        raise WriteFailed(
            f"{said}; earlier changes could not be undone: {error.message}",
            file=error.file,
            hint="when the cause is fixed: rmqtool repair "
            f"{quote(areas.store.root)} --undo {quote(places.journals.shown(name))}",
        ) from cause
    if isinstance(cause, WriteFailed):
        cause.message += "; earlier changes were undone"


def _require_unchanged(areas: Areas, plan: Plan) -> None:
    if areas.state() != plan.state:
        raise Refused(
            "the store changed while the repair was planned; nothing was changed",
            file=areas.store.root,
            hint="stop the process that writes to it, then run the command again",
        )


def _require_free_space(plan: Plan, places: Places) -> None:
    """Refuse a plan for which there is not enough space, before anything is written."""
    saved = sum(step.saved for step in plan.allowed) + _LINES
    hint = "free some space there, or keep the journal on another disk: --journal DIR"
    require_free_space(places.journals, saved, "the journal needs", hint)
    for number, files in enumerate(places.areas):
        grown = sum(_growth(files, step) for step in plan.allowed if step.area == number)
        shared = _on_one_disk(files, places.journals)
        if shared:
            require_free_space(files, grown + saved, "the repair needs", hint)
        else:
            require_free_space(files, grown, "the repair needs")


def _on_one_disk(one: WritableFileSystem, other: WritableFileSystem) -> bool:
    return one.stat("").device == other.stat("").device


def _growth(files: WritableFileSystem, step: Step) -> int:
    """Return the bytes of a step that need new space. Overwritten bytes do not."""
    if step.action in ("delete", "create") or not step.extents:
        return 0 if step.action == "delete" else step.bytes
    with files.open_read(step.source or step.path) as file:
        size = file.size()
        inside = [extent for extent in step.extents if extent.file_offset < size]
        return step.bytes - sum(
            data.length for extent in inside for data in file.iter_data(extent.file_offset, min(extent.end, size))
        )


def _free_name(journals: WritableFileSystem, name: str) -> str:
    """Return the name of a new directory; a number is added if it exists."""
    number, found = 1, name
    while journals.exists(found):
        number += 1
        found = f"{name}-{number}"
    return found


def _make_directory(places: Places, name: str) -> None:
    """Create the directories of the journals of one repair, durably."""
    journals = places.journals
    own = private_attributes(places.areas[0].stat(""))
    for path in (name, *(join(name, str(area)) for area in range(len(places.areas)))):
        journals.mkdir(path)
        journals.set_attributes(path, own)
    journals.fsync_dir(name)
    journals.fsync_dir()


def private_attributes(store: Status) -> Attributes:
    """Return the attributes of a journal directory: as readable as the store, writable for its owner only."""
    user = os.geteuid()
    return Attributes(store.mode & ~_OTHERS_WRITE | _OWN, user, store.group if user == 0 else os.getegid())


def _forget(places: Places, name: str) -> None:
    """Remove the journals of a repair that has not changed anything."""
    journals = places.journals
    for area in journals.listdir(name) if journals.exists(name) else ():
        directory = join(name, area.name)
        for entry in journals.listdir(directory):
            journals.unlink(join(directory, entry.name))
        journals.rmdir(directory)
    if journals.exists(name):
        journals.rmdir(name)


def is_undoable(places: Places, name: str) -> bool:
    """Return whether something can be undone; refuse if the store was changed after the repair."""
    found = False
    for number, files in enumerate(places.areas):
        with places.open_journals(join(name, str(number))) as journal:
            found |= require_undoable(files, journal)
    return found


def take_back(places: Places, name: str) -> Undone:
    """Undo one repair; return the restored and deleted paths. The caller holds the store's lock.

    The store's own area is last, because the repair may have created its lock.
    """
    found = Undone()
    if not is_undoable(places, name):
        return found
    for number, files in reversed(list(enumerate(places.areas))):
        with places.open_journals(join(name, str(number))) as journal:
            part = undo(files, journal)
            if number:  # paths of the store's own area are relative to it, others absolute
                part = Undone([*map(files.shown, part.restored)], [*map(files.shown, part.deleted)])
            found = part + found
    return found


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
                raise _needs_leave(plan, root, request)
            plan.undo = _apply(areas, plan, journal)
        plan.applied = True
        # Queues, index and the changed part of the log are read again; the rest of the log is unchanged.
        with open_store() as repaired:
            plan.judge(check_view(repaired, areas.extract, effort))
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


def _needs_leave(plan: Plan, root: str, request: Request) -> Refused:
    risks = ",".join(sorted({step.risk.value for step in plan.steps} - {Risk.DERIVED.value}))
    if risks:
        return Refused(
            f"every step of plan {plan.id} needs --allow; nothing was changed",
            hint=f"run it again with --allow {risks}"
            if request.parts or request.edit
            else f"rmqtool repair {quote(root)} --apply --allow {risks}",
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
        sync(os.path.dirname(link))
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


@contextmanager
def _places(roots: list[str], directory: str) -> Iterator[Places]:
    with ExitStack() as opened:
        files = [opened.enter_context(PosixWritableFileSystem(root)) for root in roots]
        journals = opened.enter_context(PosixWritableFileSystem(directory))
        yield Places(files, journals, lambda path: PosixWritableFileSystem(os.path.join(directory, path)))
