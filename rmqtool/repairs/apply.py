"""Applies a plan: saves old bytes to the journal, changes the files, and undoes everything if that fails.

The journal is beside the store: a directory for each repair, with one journal for each area. An interrupted repair is
undone before another one begins, so at most one is unfinished.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from shlex import quote

from rmqtool.errors import Refused, RmqtoolError, WriteFailed
from rmqtool.files.failures import require_room
from rmqtool.files.filesystem import Attributes, Entry, Kind, Status, WritableFileSystem, join
from rmqtool.files.journal import JournalledFileSystem
from rmqtool.files.journal_log import Undone, read_journal, require_undoable, undo
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.plan import Plan
from rmqtool.repairs.steps import Step, transfer

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
    _require_space(plan, places)
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


def _require_space(plan: Plan, places: Places) -> None:
    """Refuse a plan for which there is not enough space, before anything is written."""
    saved = sum(step.saved for step in plan.allowed) + _LINES
    hint = "free some space there, or keep the journal on another disk: --journal DIR"
    require_room(places.journals, saved, "the journal", hint)
    for number, files in enumerate(places.areas):
        grown = sum(_growth(files, step) for step in plan.allowed if step.area == number)
        shared = _on_one_disk(files, places.journals)
        require_room(
            files, grown + (saved if shared else 0), "the repair", hint if shared else "free some space there first"
        )


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


def unfinished(journals: WritableFileSystem, open_journals: Callable[[str], WritableFileSystem]) -> list[str]:
    """Return the names of repairs that were interrupted, or whose undo was."""
    found = []
    for entry in journals.listdir():
        if entry.kind is Kind.DIRECTORY and _is_unfinished(open_journals, entry.name, journals):
            found.append(entry.name)
    return found


def journal_names(entries: Iterable[Entry]) -> list[str]:
    """Return the names of journals in the directory of a repair, in the order of the areas; other names are ignored."""
    names = (entry.name for entry in entries if entry.kind is Kind.DIRECTORY and entry.name.isdecimal())
    return sorted(names, key=int)


def _is_unfinished(open_journals: Callable[[str], WritableFileSystem], name: str, journals: WritableFileSystem) -> bool:
    told = []
    for area in journal_names(journals.listdir(name)):
        with open_journals(join(name, area)) as journal:
            told.append(read_journal(journal))
    changed = [one for one in told if one.originals]
    undone = [one.undone for one in changed]
    is_undoing = any(one.undoing for one in changed) and not all(undone)
    # In an area without changes the journal is done as soon as the others are.
    return is_undoing or (bool(changed) and not all(undone) and any(one.done is None for one in told))


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
