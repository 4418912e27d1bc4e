"""The target of an export: the export appears whole or not at all, also if it is killed.

A target holds data only, so ``TARGET/**/*.parquet`` is what was exported. Manifests, one for each export, are in the
sibling ``TARGET_manifest``; damaged ranges are listed in the sibling ``TARGET_damage``. Everything is built in
``.TARGET.rmqtool``, which is also the lock. The list of renames is made durable there before the first of them, and the
next export finishes the renames of one that was killed. A new target, or one that replaces another, needs one rename.

Earlier versions kept ``_manifests``, ``_damage`` and ``_SUCCESS`` in the target. Such a target is continued, and the
next export moves these to the new places.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum

from rmqtool.errors import Refused, StoreInUse, WriteFailed
from rmqtool.exports.manifest import Manifest, decode_manifest, encode_manifest
from rmqtool.exports.parquet import make_durable, writing

_PENDING = "pending.json"
_TREE = "tree"
_OLD = "old"
# Names that earlier versions used in a target; ``_old_places`` moves them.
_OLD_MANIFESTS, _OLD_DAMAGE, _OLD_SUCCESS, _OLD_STAGING = "_manifests", "_damage", "_SUCCESS", "_staging"
_OURS_BESIDE = {"manifest": re.compile(r"[0-9]{6,}\.json"), "damage": re.compile(r"part-[0-9]{6,}\.parquet")}

# From one path to another, both relative to the directory that holds the target.
Move = tuple[str, str]


class Mode(StrEnum):
    """What to do with a target that exists."""

    ERROR = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"


def manifest_directory(directory: str) -> str:
    """Return the directory of the manifests of exports into ``directory``."""
    return f"{os.path.abspath(directory)}_manifest"


def damage_directory(directory: str) -> str:
    """Return the directory of the lists of damaged ranges of exports into ``directory``."""
    return f"{os.path.abspath(directory)}_damage"


class Target:
    """The target of one export. Use ``opened_target``."""

    def __init__(self, directory: str, mode: Mode) -> None:
        self.directory = os.path.abspath(directory)
        self.parent, self._name = os.path.split(self.directory)
        # The directory that tasks write to; nothing in it belongs to the target before ``commit``.
        self.staging = os.path.join(self.parent, f".{self._name}.rmqtool")
        self.manifests = manifest_directory(directory)
        self.damage = damage_directory(directory)
        self.mode = mode
        self.previous: list[Manifest] = []
        self.is_new = True

    @property
    def number(self) -> int:
        """The number of this export in its target."""
        return self.previous[-1].number + 1 if self.previous else 1

    def prepare(self, locks: ExitStack) -> None:
        """Finish a killed export, lock the target, and check that it may be written."""
        if not os.path.lexists(self.staging):
            self._require_ours()
        locks.enter_context(_locked(self.staging, self.directory))
        _finish(self.staging, self.directory)
        with writing(self.directory):
            _clear(self.staging)
        self._require_ours()
        self.is_new = not os.path.lexists(self.directory) or self.mode is Mode.OVERWRITE
        # If the target was emptied by hand, its manifests no longer count.
        self.previous = [] if self.is_new or not os.listdir(self.directory) else read_manifests(self.directory)

    def _require_ours(self) -> None:
        """Raise Refused for a target that must not be changed."""
        self._require_siblings()
        if not os.path.lexists(self.directory):
            return
        if not os.path.isdir(self.directory):
            hint = "name another directory (--to)"
            raise Refused(f"{self.directory} is a file, not a directory", file=self.directory, hint=hint)
        if os.path.ismount(self.directory):
            raise Refused(
                f"{self.directory} is a mount point: its manifest cannot be next to it, and it cannot be renamed",
                file=self.directory,
                hint="name a directory in it (--to)",
            )
        names = set(os.listdir(self.directory))
        if names and self.mode is Mode.ERROR:
            raise Refused(
                f"{self.directory} already exists and is not empty; it was left unchanged",
                file=self.directory,
                hint="--mode append adds to it, --mode overwrite replaces it, --since-last adds what is new",
            )
        if names and not os.path.isdir(self.manifests) and _OLD_MANIFESTS not in names:
            raise Refused(
                f"{self.directory} holds files that no rmqtool export wrote; it was left unchanged",
                file=self.directory,
                hint="name another directory (--to)",
            )
        if self.mode is not Mode.OVERWRITE and os.path.exists(os.path.join(self.directory, _OLD_MANIFESTS, _PENDING)):
            raise Refused(
                f"an earlier rmqtool was stopped while it added to {self.directory}",
                file=self.directory,
                hint="run that export again with the same rmqtool, or use --mode overwrite",
            )

    def _require_siblings(self) -> None:
        """Raise Refused if a sibling that this export needs exists and was not made by an export."""
        for kind, path in (("manifest", self.manifests), ("damage", self.damage)):
            if not os.path.lexists(path):
                continue
            names = os.listdir(path) if os.path.isdir(path) else [""]
            if not all(_OURS_BESIDE[kind].fullmatch(name) for name in names):
                raise Refused(
                    f"{path} holds files that no rmqtool export wrote; the {kind} of an export belongs there",
                    file=path,
                    hint="export to a directory of another name (--to)",
                )

    def commit(self, manifest: Manifest, files: dict[str, str], damage: str | None = None) -> None:
        """Make the export appear: ``files`` gives for each path in the target the file in ``staging``.

        ``damage`` is the file in ``staging`` that lists damaged ranges.
        """
        moves = self._old_places() if self.previous else self._out_of_the_way()
        if damage is not None:
            moves.append((self._staged(damage), f"{self._name}_damage/part-{manifest.number:06}.parquet"))
        with writing(self.directory):
            if self.is_new:
                self._build_tree(files)
                moves.append((self._staged(_TREE), self._name))
            else:
                moves += [(self._staged(staged), f"{self._name}/{path}") for path, staged in files.items()]
            written = _file_name(manifest.number)
            _write(os.path.join(self.staging, written), encode_manifest(manifest))
            # The manifest is renamed last, so that all files it names exist.
            moves.append((self._staged(written), f"{self._name}_manifest/{written}"))
            _write(os.path.join(self.staging, _PENDING), json.dumps(moves).encode("utf-8", "surrogateescape"))
            make_durable(self.staging)
        try:
            _finish(self.staging, self.directory)
        except WriteFailed:
            _undo(self.staging, self.directory)
            raise

    def _build_tree(self, files: dict[str, str]) -> None:
        tree = os.path.join(self.staging, _TREE)
        os.makedirs(tree)
        for path, staged in files.items():
            _move(os.path.join(self.staging, staged), os.path.join(tree, path))
        for directory, _, _ in os.walk(tree):
            make_durable(directory)

    def _staged(self, path: str) -> str:
        return f"{os.path.basename(self.staging)}/{path}"

    def _out_of_the_way(self) -> list[Move]:
        """Return the moves that remove what is replaced, and the siblings that a deleted target left."""
        names = [f"{self._name}_manifest", f"{self._name}_damage", *([self._name] if self.is_new else [])]
        return [
            (name, self._staged(f"{_OLD}/{name}")) for name in names if os.path.lexists(os.path.join(self.parent, name))
        ]

    def _old_places(self) -> list[Move]:
        """Return the moves from the places of earlier versions to the new ones."""
        moves = (
            (_OLD_MANIFESTS, f"{self._name}_manifest"),
            (_OLD_DAMAGE, f"{self._name}_damage"),
            (_OLD_SUCCESS, self._staged(f"{_OLD}/{_OLD_SUCCESS}")),
            (_OLD_STAGING, self._staged(f"{_OLD}/{_OLD_STAGING}")),
        )
        return [
            (f"{self._name}/{name}", path)
            for name, path in moves
            if os.path.lexists(os.path.join(self.directory, name))
        ]


@contextmanager
def opened_target(directory: str, mode: Mode) -> Iterator[Target]:
    """Yield a locked target; staged files that were not committed are removed afterwards."""
    target = Target(directory, mode)
    with ExitStack() as locks:
        target.prepare(locks)
        yield target


def read_manifests(directory: str) -> list[Manifest]:
    """Return the manifests of the exports into ``directory``, in their order."""
    places = (manifest_directory(directory), os.path.join(directory, _OLD_MANIFESTS))
    manifests = next((path for path in places if os.path.isdir(path)), None)
    found = []
    for name in sorted(os.listdir(manifests)) if manifests is not None else ():
        if name.endswith(".json") and name != _PENDING:
            path = os.path.join(manifests or "", name)
            with open(path, "rb") as file:
                found.append(decode_manifest(file.read(), path))
    return sorted(found, key=lambda manifest: manifest.number)


@contextmanager
def _locked(staging: str, directory: str) -> Iterator[None]:
    """Make the directory ``staging`` and lock it against other exports; remove it afterwards."""
    while True:
        with writing(directory):
            os.makedirs(staging, exist_ok=True)
            descriptor = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreInUse(
                f"another export to {directory} is running",
                file=directory,
                hint="run it again when that one has finished",
            ) from None
        if _is_still(staging, descriptor):
            break
        os.close(descriptor)  # the export before this one removed it just now
    try:
        yield
    finally:
        # Renames that could be neither finished nor undone are left to the next export.
        if not os.path.exists(os.path.join(staging, _PENDING)):
            # A task of a killed export may still be writing there; the next export removes what it leaves.
            shutil.rmtree(staging, ignore_errors=True)
        os.close(descriptor)


def _clear(staging: str) -> None:
    """Remove the files of a killed export, but not the directory: it is the lock.

    A task of that export, perhaps on another machine, may still be writing in a directory of its own.
    """
    with os.scandir(staging) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _is_still(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _file_name(number: int) -> str:
    return f"{number:06}.json"


def _write(path: str, data: bytes) -> None:
    """Write a small file: once its name exists, its content is complete."""
    new = f"{path}.new"
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)


def _move(source: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.rename(source, path)


def _read_pending(staging: str) -> list[Move]:
    """Return the announced renames as paths, or none."""
    pending, parent = os.path.join(staging, _PENDING), os.path.dirname(staging)
    if not os.path.exists(pending):
        return []
    with open(pending, "rb") as file:
        moves = json.loads(file.read().decode("utf-8", "surrogateescape"))
    return [(os.path.join(parent, source), os.path.join(parent, path)) for source, path in moves]


def _finish(staging: str, directory: str) -> None:
    """Do the announced renames that are not done yet."""
    with writing(directory):
        moves = _read_pending(staging)
        if not moves:
            return
        for source, path in moves:
            if os.path.lexists(source) and not os.path.lexists(path):
                _move(source, path)
        for touched in sorted({directory, os.path.dirname(directory), *(os.path.dirname(path) for _, path in moves)}):
            if os.path.isdir(touched):
                make_durable(touched)
        os.unlink(os.path.join(staging, _PENDING))


def _undo(staging: str, directory: str) -> None:
    """Undo the renames that were done; one that cannot be undone stays announced."""
    with suppress(OSError):
        for source, path in reversed(_read_pending(staging)):
            if os.path.lexists(path) and not os.path.lexists(source):
                _move(path, source)
                if os.path.dirname(path) != directory:
                    with suppress(OSError):
                        os.rmdir(os.path.dirname(path))
        os.unlink(os.path.join(staging, _PENDING))
