"""The target of an export: the export appears whole or not at all, also if it is killed.

A target holds data only, so ``TARGET/**/*.parquet`` is what was exported. Manifests, one for each export, are in the
sibling ``TARGET_manifest``; damaged ranges are listed in the sibling ``TARGET_damage``. Everything is built in
``.TARGET.rmqtool``, which is also the lock. The list of renames is made durable there before the first of them, and the
next export finishes the renames of one that was killed. A new target, or one that replaces another, needs one rename.

A manifest is one JSON file: the files of an export, how far it read each store, and with which choice.

Earlier versions kept ``_manifests``, ``_damage`` and ``_SUCCESS`` in the target. Such a target is continued, and the
next export moves these to the new places.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from shlex import quote
from typing import Any

from rmqtool.errors import Refused, StoreError, StoreInUse, WriteFailed
from rmqtool.exports.parquet import PartFile, writing
from rmqtool.files.publish import ANNOUNCED, Move, Renames, lock_directory, move, sync, write_whole
from rmqtool.log.follow import LastRecord

_TREE = "tree"
_OLD = "old"
# Names that earlier versions used in a target; ``_old_places`` moves them.
_OLD_MANIFESTS, _OLD_DAMAGE, _OLD_SUCCESS, _OLD_STAGING = "_manifests", "_damage", "_SUCCESS", "_staging"
_OURS_BESIDE = {"manifest": re.compile(r"[0-9]{6,}\.json"), "damage": re.compile(r"part-[0-9]{6,}\.parquet")}


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
        locks.enter_context(locked_staging(self.staging, self.directory))
        _finish(self.staging, self.directory)
        with writing(self.directory):
            clear_staging(self.staging)
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
        if "_delta_log" in names:
            raise Refused(
                f"{self.directory} is a Delta table; it was left unchanged",
                file=self.directory,
                hint="--format delta adds to it, or name another directory (--to)",
            )
        if names and not os.path.isdir(self.manifests) and _OLD_MANIFESTS not in names:
            raise Refused(
                f"{self.directory} holds files that no rmqtool export wrote; it was left unchanged",
                file=self.directory,
                hint="name another directory (--to)",
            )
        if self.mode is not Mode.OVERWRITE and os.path.exists(os.path.join(self.directory, _OLD_MANIFESTS, ANNOUNCED)):
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
            write_whole(os.path.join(self.staging, written), encode_manifest(manifest))
            # The manifest is renamed last, so that all files it names exist.
            moves.append((self._staged(written), f"{self._name}_manifest/{written}"))
            Renames(self.staging).announce(moves)
        try:
            _finish(self.staging, self.directory)
        except WriteFailed:
            Renames(self.staging).undo(keep=self.directory)
            raise

    def _build_tree(self, files: dict[str, str]) -> None:
        tree = os.path.join(self.staging, _TREE)
        os.makedirs(tree)
        for path, staged in files.items():
            move(os.path.join(self.staging, staged), os.path.join(tree, path))
        for directory, _, _ in os.walk(tree):
            sync(directory)

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
        if name.endswith(".json") and name != ANNOUNCED:
            path = os.path.join(manifests or "", name)
            with open(path, "rb") as file:
                found.append(decode_manifest(file.read(), path))
    return sorted(found, key=lambda manifest: manifest.number)


@contextmanager
def locked_staging(staging: str, directory: str) -> Iterator[None]:
    """Make the directory ``staging`` and lock it against other exports; remove it afterwards."""
    hint = "run it again when that one has finished"
    with ExitStack() as stack:
        with writing(directory):
            busy = StoreInUse(f"another export to {directory} is running", file=directory, hint=hint)
            stack.callback(os.close, lock_directory(staging, busy))
        try:
            yield
        finally:
            # Renames that could be neither finished nor undone are left to the next export.
            if not Renames(staging).are_pending:
                # A task of a killed export may still be writing there; the next export removes what it leaves.
                shutil.rmtree(staging, ignore_errors=True)


def clear_staging(staging: str) -> None:
    """Remove the files of a killed export, but not the directory: it is the lock.

    A task of that export, perhaps on another machine, may still be writing in a directory of its own.
    """
    with os.scandir(staging) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _file_name(number: int) -> str:
    return f"{number:06}.json"


def _finish(staging: str, directory: str) -> None:
    with writing(directory):
        try:
            Renames(staging).finish()
        except StoreError as error:
            every = map(quote, (staging, directory, manifest_directory(directory), damage_directory(directory)))
            error.hint = f"export to another directory (--to); or give this one up: rm -rf {' '.join(every)}"
            raise


VERSION = 1


# By topic: the numbers of its queues as texts, for they are keys in JSON, with the offset where the next read begins.
QueueEnds = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Progress:
    """The part of a store that was read: from one physical offset up to another.

    Of a live cluster it is the offset up to which each queue of each topic was read. There ``end`` is the sum of these,
    a number that grows with each export. ``choices`` are those of the export that read it, if the manifest has others.
    """

    store: str
    start: int
    end: int
    last: LastRecord | None
    queues: QueueEnds | None = None
    choices: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export. ``read`` is by broker and continues from export to export, only with the same choices."""

    number: int
    written_by: str
    schema_version: int
    choices: dict[str, Any]
    read: dict[str, Progress]
    files: list[PartFile]
    damage: dict[str, int] = field(default_factory=dict)

    def choices_of(self, broker: str) -> dict[str, Any]:
        """Return the choices with which a broker was read; those of this export for a broker that was not."""
        progress = self.read.get(broker)
        return self.choices if progress is None or progress.choices is None else progress.choices

    def read_before(self, choices: dict[str, Any]) -> dict[str, Progress]:
        """Return what was read of each broker, for a manifest that has other ``choices``."""
        own = {broker: self.choices_of(broker) for broker in self.read}
        return {
            broker: replace(progress, choices=None if own[broker] == choices else own[broker])
            for broker, progress in self.read.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "manifestVersion": VERSION,
            "number": self.number,
            "writtenBy": self.written_by,
            "schemaVersion": self.schema_version,
            "choices": self.choices,
            "read": {broker: _progress_json(progress) for broker, progress in sorted(self.read.items())},
            "files": [file._asdict() for file in self.files],
            "damage": self.damage,
        }


def _progress_json(progress: Progress) -> dict[str, Any]:
    last = progress.last
    if progress.queues is not None:
        place: dict[str, Any] = {"queues": progress.queues, "end": progress.end}
    else:
        place = {"startCommitLogOffset": progress.start, "endCommitLogOffset": progress.end}
    own = {} if progress.choices is None else {"choices": progress.choices}
    return {"store": progress.store, **place, "lastRecord": asdict(last) if last is not None else None, **own}


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of the file."""
    return (json.dumps(manifest.as_json(), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Return the manifest in ``data``; raise StoreError, naming ``path``, for bytes that no export wrote."""
    try:
        found = json.loads(data)
        if found["manifestVersion"] != VERSION:
            raise StoreError(
                f"{path} has version {found['manifestVersion']}; this rmqtool reads version {VERSION}",
                file=path,
                hint="use the rmqtool that wrote it, or export to another directory (--to)",
            )
        return Manifest(
            number=int(found["number"]),
            written_by=str(found["writtenBy"]),
            schema_version=int(found["schemaVersion"]),
            choices=dict(found["choices"]),
            read={broker: _progress(progress) for broker, progress in found["read"].items()},
            files=[PartFile(**file) for file in found["files"]],
            damage=dict(found["damage"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{path} is not an export manifest: {error!r}",
            file=path,
            hint="export again, to another directory (--to)",
        ) from error


def _progress(found: dict[str, Any]) -> Progress:
    told = found["lastRecord"]
    last = LastRecord(**{name: int(value) for name, value in told.items()}) if told is not None else None
    own = dict(found["choices"]) if "choices" in found else None
    if "queues" in found:
        queues = {topic: {name: int(end) for name, end in ends.items()} for topic, ends in found["queues"].items()}
        return Progress(str(found["store"]), 0, int(found["end"]), last, queues, own)
    start, end = int(found["startCommitLogOffset"]), int(found["endCommitLogOffset"])
    return Progress(str(found["store"]), start, end, last, choices=own)
