"""The undo journals of one store: where they are, which are trusted, and in which order they were made.

Undo writes old bytes back with owner and mode. So a forged journal could change any file of the user who undoes it. A
journal is trusted only if it belongs to the user who runs the command, if only that user can write it, and if it refers
only to files in the areas that the open store itself has.
"""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from shlex import quote
from typing import Any

from rmqtool.errors import ReadFailed, Refused, UsageError
from rmqtool.files.filesystem import Kind, path_parts
from rmqtool.files.journal import LOG, OLD_BYTES, Journal, read_journal
from rmqtool.files.posix import PosixReadableFileSystem

SUFFIX = "-rmqtool-undo"
# A link in that directory to journals on another disk.
LINK = "elsewhere"
# The directory of one repair: the id of its plan, with a number if there are several.
_NAME = re.compile(r"[0-9a-f]{12}(-[0-9]+)?")
_SPECIAL_BITS = modes.S_ISUID | modes.S_ISGID | modes.S_ISVTX
_OTHERS_WRITE = modes.S_IWGRP | modes.S_IWOTH


@dataclass(frozen=True)
class PastRepair:
    """A past repair, by its journals; ``told`` has one journal for each area."""

    directory: str
    told: tuple[Journal, ...] = ()
    changed_ms: int = 0

    @property
    def about(self) -> dict[str, Any]:
        """The description of the repair in its first journal."""
        return next((one.about for one in self.told if one.about), {})

    @property
    def roots(self) -> list[str]:
        """The directories that the journals belong to."""
        return [str(one.about["root"]) for one in self.told if one.about]

    @property
    def order(self) -> tuple[int, int]:
        """The sort key: the order in which repairs were made."""
        return int(self.about.get("number", 0)), self.time

    @property
    def time(self) -> int:
        """The time of the repair in ms. Journals of older versions do not have it; then it is the time of the file."""
        return int(self.about.get("time", self.changed_ms))

    @property
    def changed_something(self) -> bool:
        """Whether a change was begun."""
        return any(one.originals for one in self.told)

    @property
    def is_undone(self) -> bool:
        """Whether all changes were undone."""
        return self.changed_something and all(one.undone for one in self.told if one.originals)

    @property
    def is_unfinished(self) -> bool:
        """Whether the repair, or its undo, was interrupted."""
        if not self.changed_something or self.is_undone:
            return False
        # In an area without changes the journal is done as soon as the others are.
        return any(one.done is None for one in self.told) or any(one.undoing for one in self.told)

    def as_json(self) -> dict[str, object]:
        """Return the JSON form."""
        about = self.about
        return {
            "undo": self.directory,
            "plan": str(about.get("plan", "")),
            "time": self.time,
            "steps": about.get("steps", []),
            "store": str(about.get("store", "")),
            "undone": self.is_undone,
        }


@dataclass(frozen=True)
class Journals:
    """The journals of the store at ``root``, whose areas are ``roots``; the first is the store's own."""

    root: str
    roots: Sequence[str] = field(default_factory=list)

    @property
    def beside(self) -> str:
        """The default directory, beside the store. It may be a link to another one."""
        return self.root + SUFFIX

    def place(self) -> str:
        """Return the directory for new journals, unless the user names another."""
        return _followed(self.beside) if os.path.islink(self.beside) else self.beside

    def places(self) -> list[str]:
        """Return each directory with journals of the store: the one beside it, and those that links there point to."""
        first = self.place()
        if not os.path.isdir(first):
            return []
        links = sorted(entry.path for entry in os.scandir(first) if entry.is_symlink() and entry.name.startswith(LINK))
        return list(dict.fromkeys([first, *map(_followed, links)]))

    def find_all(self) -> list[PastRepair]:
        """Return the repairs of this store with trusted journals, newest first."""
        return [past for past, flaw in self.judged() if flaw is None]

    def judged(self) -> list[tuple[PastRepair, Refused | None]]:
        """Return each repair, newest first, with the reason if its journals are not trusted.

        Repairs of other stores are left out: stores may share a directory of journals.
        """
        found: list[tuple[PastRepair, Refused | None]] = []
        for directory in (one for place in self.places() for one in iter_repairs(place)):
            try:
                past = read_past(directory)
            except (ReadFailed, OSError) as error:
                found.append((PastRepair(directory), _refused(directory, str(error))))
                continue
            is_of_moved_store = past.is_unfinished and os.path.dirname(directory) == self.beside
            if past.about and (past.about.get("store") == self.root or is_of_moved_store):
                found.append((past, self.flaw_of(past)))
        return sorted(found, key=lambda one: (one[0].order, one[0].directory), reverse=True)

    def unfinished(self) -> list[PastRepair]:
        """Return the interrupted repairs and undos; refuse untrusted ones."""
        found = []
        for past, flaw in self.judged():
            if past.is_unfinished or (flaw is not None and not past.told):
                if flaw is not None:
                    raise flaw
                found.append(past)
        return found

    def next_number(self) -> int:
        """Return the number of the next repair."""
        return max((past.order[0] for past in self.find_all()), default=0) + 1

    def flaw_of(self, past: PastRepair) -> Refused | None:
        """Return why the journals of a repair are not trusted."""
        try:
            why = next(chain(_foreign_parts(past.directory), self._foreign_places(past)), None)
        except (ReadFailed, OSError) as error:
            why = str(error)
        return None if why is None else _refused(past.directory, why)

    def _foreign_places(self, past: PastRepair) -> Iterator[str]:
        """Yield the references of the journals that do not belong to this store."""
        if len(set(past.roots)) < len(past.roots):
            yield "two of its parts are for the same directory"
        for about in (one.about for one in past.told if one.about):
            if about.get("store") != self.root:
                yield f"it belongs to the store {about.get('store')}, not to {self.root}"
            if about["root"] not in self.roots:
                yield f"it belongs to {about['root']}, which is not a directory of this store"
        for told in past.told:
            for path, original in told.originals.items():
                path_parts(path)
                mode = original.attributes.mode if original.attributes is not None else 0
                if original.kind is Kind.FILE and mode & _SPECIAL_BITS:
                    yield f"it would give {path} the mode {mode:o}"

    def find(self, wanted: str) -> PastRepair:
        """Return a repair by its directory, or the ``last``. Refuse untrusted ones, and all but the newest."""
        done = [past for past in self.find_all() if past.changed_something and not past.is_undone]
        if wanted == "last":
            if not done:
                raise UsageError(f"{self.root} has no repair to undo", hint="rmqtool repair STORE --list")
            return done[0]
        directory = os.path.realpath(wanted)
        past = read_past(directory) if os.path.isdir(directory) and journal_names(directory) else None
        if past is None:
            if _is_empty_of_repair(directory):
                return PastRepair(directory)  # interrupted before the first journal: nothing was changed
            raise UsageError(f"{directory} is not an undo journal", hint="rmqtool repair STORE --list")
        flaw = self.flaw_of(past) if past.about else None
        if flaw is not None:
            raise flaw
        newer = [one for one in done if one.order > past.order and one.directory != past.directory]
        if newer and past.changed_something and not past.is_undone:
            raise Refused(
                f"only the newest repair of {self.root} can be undone, and there is a newer one: undo that first",
                file=directory,
                hint=f"rmqtool repair STORE --undo {quote(newer[0].directory)}",
            )
        return past


def iter_repairs(place: str) -> Iterator[str]:
    """Yield the directory of each repair with journals in a place."""
    for name in sorted(os.listdir(place)):
        path = os.path.join(place, name)
        if os.path.isdir(path) and not os.path.islink(path) and (not os.access(path, os.R_OK) or journal_names(path)):
            yield path


def journal_names(directory: str) -> list[str]:
    """Return the names of journals in the directory of a repair, in the order of the areas; other names are ignored."""
    with os.scandir(directory) as entries:
        return sorted((one.name for one in entries if one.name.isdecimal() and one.is_dir()), key=int)


def read_past(directory: str) -> PastRepair:
    """Read the journals of one repair."""
    told = []
    for name in journal_names(directory):
        with PosixReadableFileSystem(os.path.join(directory, name)) as journal:
            told.append(read_journal(journal))
    return PastRepair(directory, tuple(told), os.stat(directory).st_mtime_ns // 1_000_000)


def store_beside(directory: str) -> str | None:
    """Return the store beside which the directory of a repair is; None if it is elsewhere."""
    place = os.path.dirname(os.path.realpath(directory))
    root = place.removesuffix(SUFFIX)
    return root if root != place and os.path.isdir(root) else None


def _is_empty_of_repair(directory: str) -> bool:
    is_named = _NAME.fullmatch(os.path.basename(directory)) is not None
    return is_named and os.path.isdir(directory) and not os.listdir(directory)


def _foreign_parts(directory: str) -> Iterator[str]:
    """Yield the parts of a journal that another user owns or can write, and links."""
    yield from _flaws_of(directory, modes.S_ISDIR)
    for name in journal_names(directory):
        inside = os.path.join(directory, name)
        yield from _flaws_of(inside, modes.S_ISDIR)
        for path in (os.path.join(inside, file) for file in (LOG, OLD_BYTES)):
            if os.path.lexists(path):
                yield from _flaws_of(path, modes.S_ISREG)


def _flaws_of(path: str, is_kind: Callable[[int], bool]) -> Iterator[str]:
    found = os.lstat(path)
    if not is_kind(found.st_mode) or (modes.S_ISREG(found.st_mode) and found.st_nlink > 1):
        yield f"{path} is not a directory or a regular file"
    if found.st_uid != os.geteuid():
        yield f"{path} belongs to user {found.st_uid}, and you are user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        yield f"others may write {path}"


def _refused(directory: str, why: str) -> Refused:
    return Refused(
        f"the journal {directory} is not trusted: {why}; nothing was undone or repaired",
        file=directory,
        hint="find out who made it; to continue without it, move it away",
    )


def _followed(link: str) -> str:
    """Return the target of our own link: a directory on another disk, which must exist."""
    target = os.path.realpath(link)
    if os.lstat(link).st_uid != os.geteuid():
        raise Refused(
            f"{link} is a link of another user, and is not followed to look for journals",
            file=link,
            hint="find out who made it; to continue without it, move it away",
        )
    if not os.path.isdir(target):
        raise Refused(
            f"journals of this store are in {target}, which is missing: an interrupted repair cannot be detected",
            file=link,
            hint=f"mount that disk; if the journals are lost: rm {link}",
        )
    return target
