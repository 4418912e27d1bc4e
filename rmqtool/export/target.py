"""Where an export appears: whole or not at all, whatever stops it.

A new target is built beside its place and gets its name by one rename; so is one that replaces another. What is added
to a target is written into ``_staging`` inside it; a list of renames is made durable before the first of them, and
whoever comes next finishes what a kill cut short. Names with a leading underscore are passed over by all readers.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum

from rmqtool.errors import Refused, StoreInUse, WriteFailed
from rmqtool.export.failures import writing
from rmqtool.export.manifest import Manifest, decode_manifest, encode_manifest
from rmqtool.export.parquet import make_durable

STAGING = "_staging"
MANIFESTS = "_manifests"
DAMAGE = "_damage"
_PENDING = "pending.json"
_SUCCESS = "_SUCCESS"
_TREE = "tree"


class Mode(StrEnum):
    """What becomes of a target that is there already."""

    ERROR = "error"
    APPEND = "append"
    OVERWRITE = "overwrite"


class Target:
    """One export's way to its directory. Use ``opened_target``."""

    def __init__(self, directory: str, mode: Mode) -> None:
        self.directory = os.path.abspath(directory)
        parent, name = os.path.split(self.directory)
        self.beside = os.path.join(parent, f".{name}.rmqtool")
        self.replaced = os.path.join(parent, f".{name}.rmqtool-old")
        self.mode = mode
        self.previous: list[Manifest] = []
        self.is_new = True

    @property
    def staging(self) -> str:
        """The directory that tasks write beneath; nothing in it is the target's before ``commit``."""
        return self.beside if self.is_new else os.path.join(self.directory, STAGING)

    @property
    def number(self) -> int:
        """The number of this export in its target."""
        return self.previous[-1].number + 1 if self.previous else 1

    def prepare(self, locks: ExitStack) -> None:
        """Finish or undo what a killed export left, take the target, and see whether it may be written."""
        exists = os.path.lexists(self.directory)
        if not exists or self.mode is Mode.OVERWRITE:
            locks.enter_context(_locked(self.beside, self.directory))
            with writing(self.directory):
                _clear(self.beside)
                if os.path.isdir(self.replaced) and not exists:
                    os.rename(self.replaced, self.directory)
                    exists = True
        if exists:
            self._require_ours()
            inside = os.path.join(self.directory, STAGING)
            locks.enter_context(_locked(inside, self.directory))
            _finish_pending(self.directory)
            with writing(self.directory):
                _clear(inside)
            self.previous = [] if self.mode is Mode.OVERWRITE else read_manifests(self.directory)
        self.is_new = not exists or self.mode is Mode.OVERWRITE

    def _require_ours(self) -> None:
        """Raise Refused for a target that must not be touched."""
        if not os.path.isdir(self.directory):
            hint = "name another directory (--to)"
            raise Refused(f"{self.directory} is a file, not a directory", file=self.directory, hint=hint)
        names = set(os.listdir(self.directory)) - {STAGING}
        if names and self.mode is Mode.ERROR:
            raise Refused(
                f"{self.directory} is there and not empty; nothing in it was touched",
                file=self.directory,
                hint="--mode append adds to it, --mode overwrite replaces it, --since-last adds what is new",
            )
        if names and MANIFESTS not in names:
            raise Refused(
                f"{self.directory} holds files that no export of rmqtool wrote; nothing in it was touched",
                file=self.directory,
                hint="name another directory (--to)",
            )

    def commit(self, manifest: Manifest, files: dict[str, str]) -> None:
        """Let the export appear: ``files`` says for each path beneath the target where in ``staging`` it lies."""
        if self.is_new:
            self._commit_new(manifest, files)
        else:
            self._commit_more(manifest, files)

    def _commit_new(self, manifest: Manifest, files: dict[str, str]) -> None:
        tree = os.path.join(self.beside, _TREE)
        with writing(self.directory):
            os.makedirs(os.path.join(tree, MANIFESTS))
            for path, staged in files.items():
                _move(os.path.join(self.beside, staged), os.path.join(tree, path))
            _write(os.path.join(tree, MANIFESTS, _name(manifest.number)), encode_manifest(manifest))
            _write(os.path.join(tree, _SUCCESS), b"")
            for directory, _, _ in os.walk(tree):
                make_durable(directory)
            if self.mode is Mode.OVERWRITE and os.path.isdir(self.directory):
                shutil.rmtree(self.replaced, ignore_errors=True)
                os.rename(self.directory, self.replaced)
            os.rename(tree, self.directory)
            make_durable(os.path.dirname(self.directory))
        shutil.rmtree(self.replaced, ignore_errors=True)

    def _commit_more(self, manifest: Manifest, files: dict[str, str]) -> None:
        manifests = os.path.join(self.directory, MANIFESTS)
        pending = os.path.join(manifests, _PENDING)
        with writing(self.directory):
            os.makedirs(manifests, exist_ok=True)
            _write(pending, json.dumps({"files": files, "manifest": manifest.as_json()}).encode("utf-8"))
            make_durable(manifests)
        try:
            _finish_pending(self.directory)
        except WriteFailed:
            _undo_pending(self.directory, files)
            raise


@contextmanager
def opened_target(directory: str, mode: Mode) -> Iterator[Target]:
    """Give a target that is ours alone; what was staged and not committed is gone afterwards."""
    target = Target(directory, mode)
    with ExitStack() as locks:
        target.prepare(locks)
        yield target


def read_manifests(directory: str) -> list[Manifest]:
    """Return what the exports into ``directory`` did, in their order."""
    manifests = os.path.join(directory, MANIFESTS)
    if not os.path.isdir(manifests):
        return []
    found = []
    for name in sorted(os.listdir(manifests)):
        if name != _PENDING and name.endswith(".json"):
            path = os.path.join(manifests, name)
            with open(path, "rb") as file:
                found.append(decode_manifest(file.read(), path))
    return sorted(found, key=lambda manifest: manifest.number)


@contextmanager
def _locked(staging: str, directory: str) -> Iterator[None]:
    """Make the directory ``staging`` and hold it against every other export; remove it afterwards."""
    while True:
        with writing(directory):
            os.makedirs(staging, exist_ok=True)
            descriptor = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreInUse(
                f"another export to {directory} is running", file=directory, hint="run it again afterwards"
            ) from None
        if _is_still(staging, descriptor):
            break
        os.close(descriptor)  # the one before removed it just now
    try:
        yield
    finally:
        # A task of an export that was killed may be writing there still: what it leaves the next export clears.
        shutil.rmtree(staging, ignore_errors=True)
        os.close(descriptor)


def _clear(staging: str) -> None:
    """Remove what a killed export left, the directory itself excepted: it is the lock.

    A task of that export, on another machine perhaps, may be writing there still. It does so in a directory of its own.
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


def _name(number: int) -> str:
    return f"{number:06}.json"


def _write(path: str, data: bytes) -> None:
    """Write a small file so that its name stands for all of it."""
    new = f"{path}.new"
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)


def _move(source: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.rename(source, path)


def _finish_pending(directory: str) -> None:
    """Carry out the renames that were announced, then let the manifest say so."""
    manifests = os.path.join(directory, MANIFESTS)
    pending = os.path.join(manifests, _PENDING)
    if not os.path.exists(pending):
        return
    with writing(directory):
        with open(pending, "rb") as file:
            found = json.load(file)
        touched = set()
        for path, staged in found["files"].items():
            source = os.path.join(directory, STAGING, staged)
            if os.path.exists(source):
                _move(source, os.path.join(directory, path))
            touched.add(os.path.dirname(os.path.join(directory, path)))
        for path in sorted(touched):
            make_durable(path)
        _write(os.path.join(directory, _SUCCESS), b"")
        data = (json.dumps(found["manifest"], indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
        _write(os.path.join(manifests, _name(found["manifest"]["number"])), data)
        os.unlink(pending)
        make_durable(manifests)


def _undo_pending(directory: str, files: dict[str, str]) -> None:
    for path in files:
        with suppress(OSError):
            os.unlink(os.path.join(directory, path))
    with suppress(OSError):
        os.unlink(os.path.join(directory, MANIFESTS, _PENDING))
