"""The steps of a repair. Each is one file that is not as it should be, and the change to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from rmqtool.files.filesystem import Extent, WritableFileSystem, make_directories, split
from rmqtool.files.journal import BLOCK
from rmqtool.files.overlay import Action, OverlayFileSystem
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind

_CHUNK = 1 << 20
_QUARANTINE = "quarantine/"


class Risk(StrEnum):
    """The stake of a step: files derived from the log, files that cannot be derived, or messages."""

    DERIVED = "derived"
    STATE = "state"
    PRIMARY = "primary"


class Part(StrEnum):
    """The parts that a repair can be limited to, in the order in which they are done."""

    LOG = "log"
    CONFIG = "config"
    OFFSETS = "offsets"
    QUEUES = "queues"
    INDEX = "index"
    TIMERS = "timers"
    CHECKPOINT = "checkpoint"
    ABORT = "abort"


ORDER = tuple(Part)
_PARTS = {
    FileKind.COMMIT_LOG: Part.LOG,
    FileKind.CONSUME_QUEUE: Part.QUEUES,
    FileKind.CONSUME_QUEUE_EXT: Part.QUEUES,
    FileKind.BATCH_CONSUME_QUEUE: Part.QUEUES,
    FileKind.INDEX: Part.INDEX,
    FileKind.TIMER_WHEEL: Part.TIMERS,
    FileKind.TIMER_LOG: Part.TIMERS,
    FileKind.TIMER_CHECK: Part.TIMERS,
    FileKind.CHECKPOINT: Part.CHECKPOINT,
    FileKind.ABORT: Part.ABORT,
    FileKind.CONFIG: Part.CONFIG,
}
_OFFSETS = (paths.CONSUMER_OFFSET, paths.LMQ_CONSUMER_OFFSET, paths.DELAY_OFFSET)
_RISKS = {
    Part.LOG: Risk.PRIMARY,
    Part.CONFIG: Risk.STATE,
    Part.OFFSETS: Risk.STATE,
    Part.TIMERS: Risk.STATE,
}


def part_of(path: str, log_directories: Iterable[str]) -> Part:
    """Return the part that a file belongs to. All files in directories of the log belong to the log."""
    path = path.removeprefix(_QUARANTINE)
    directories = list(log_directories)
    what = paths.classify(path, directories)
    found = _PARTS.get(what.kind)
    if found is not None:
        return Part.OFFSETS if what.kind is FileKind.CONFIG and what.name in _OFFSETS else found
    if any(not directory or path.startswith(directory + "/") for directory in directories):
        return Part.LOG
    if what.kind is FileKind.ROCKSDB and path.startswith(paths.CONFIG + "/"):
        return Part.OFFSETS  # of the tables in a database, a repair changes only this one
    return Part.QUEUES if path.startswith(paths.CONSUME_QUEUE + "/") else Part.CONFIG


def risk_of(part: Part) -> Risk:
    """Return the risk of changing a part."""
    return _RISKS.get(part, Risk.DERIVED)


class OffsetChange(NamedTuple):
    """The committed offset of a group in one queue: before (None without one) and after."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int

    def as_json(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "group": self.group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "before": self.before,
            "after": self.after,
        }


class Edit(NamedTuple):
    """A file that was changed in the overlays on request, the reason, and the changed offsets."""

    path: str
    reason: str
    offsets: tuple[OffsetChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One file, the change to it, and the reason.

    ``area`` is the number of the store's area. ``source`` is the current name of a file that is renamed. ``extents``
    are the bytes that change. ``is_directory`` marks an empty directory that is removed. ``offsets`` are the committed
    offsets that an edited table changes.
    """

    area: int
    part: Part
    action: str
    path: str
    shown: str
    reason: str
    bytes: int
    saved: int
    extents: tuple[Extent, ...] = ()
    size: int | None = None
    source: str | None = None
    is_directory: bool = False
    allowed: bool = True
    offsets: tuple[OffsetChange, ...] = ()

    @property
    def risk(self) -> Risk:
        """The risk of this step."""
        return risk_of(self.part)

    def as_json(self, number: int) -> dict[str, object]:
        """Return the JSON form."""
        found: dict[str, object] = {
            "n": number,
            "class": self.risk.value,
            "action": self.action,
            "file": self.shown,
            "reason": self.reason,
            "bytes": self.bytes,
            "allowed": self.allowed,
        }
        return found | {"offsets": [one.as_json() for one in self.offsets]} if self.offsets else found


@dataclass
class Reasons:
    """The reasons for changing files, by prefixes of paths; the longest prefix decides."""

    default: dict[Part, str] = field(default_factory=dict)
    by_path: dict[str, str] = field(default_factory=dict)

    def of(self, path: str, part: Part) -> str:
        """Return the reason for changing a file."""
        known = [start for start in self.by_path if path == start or path.startswith(start + "/")]
        return self.by_path[max(known, key=len)] if known else self.default[part]


def steps_of(
    area: int, overlay: OverlayFileSystem, log_directories: Iterable[str], reasons: Reasons, shown: str
) -> list[Step]:
    """Return a step for each file that is changed in an overlay. ``shown`` is put before each path."""
    directories = list(log_directories)
    changes = {change.path: change for change in overlay.changes() if not _is_own(change.path, change.action)}
    sources = {path: source for path in changes if (source := overlay.find_source(path)) is not None}
    found = []
    for path, change in changes.items():
        if path in sources.values() and change.action is Action.DELETE:
            continue  # it is renamed
        part = part_of(path, directories)
        source = sources.get(path)
        extents: tuple[Extent, ...] = ()
        if change.action is not Action.DELETE:
            # Before the rename, only the overlay's own bytes can be read under the new name.
            extents = tuple(overlay.iter_changed(path) if source is None else overlay.iter_own(path))
        before, after = change.size_before or 0, change.size_after
        written = sum(extent.length for extent in extents)
        action = "rename" if source is not None else change.action.value
        if source is not None:
            saved = overlay.stat(path).size
        elif change.action is Action.DELETE:
            saved = before
        else:
            saved = sum(_blocks(extent, before) for extent in extents) + max(before - (after or 0), 0)
        reason = reasons.of(source or path, part)
        count = written if change.action is not Action.DELETE else before
        step = Step(area, part, action, path, shown + path, reason, count, saved, extents, after, source)
        found.append(step)
    for path in overlay.removed_directories():
        part = part_of(path, directories)
        found.append(Step(area, part, "delete", path, shown + path, reasons.of(path, part), 0, 0, is_directory=True))
    return found


def _is_own(path: str, action: Action) -> bool:
    """Return whether a changed file is a by-product of recovery, not part of the repair."""
    return path == paths.LOCK or (path == paths.ABORT + paths.Copy.BAK and action is Action.CREATE)


def _blocks(extent: Extent, size: int) -> int:
    """Return how many bytes of a file with ``size`` bytes are saved before a range is written."""
    start, end = extent.file_offset // BLOCK * BLOCK, -(-extent.end // BLOCK) * BLOCK
    return max(min(end, size) - start, 0)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Return steps in the order of execution: the abort marker is last."""
    return sorted(steps, key=lambda step: (ORDER.index(step.part), step.area, step.path))


def renumber_new_indexes(steps: Iterable[Step]) -> list[Step]:
    """Return steps with numbers as names of new index files: the time in their names is only known later."""
    found, number = [], 0
    for step in steps:
        if step.part is Part.INDEX and step.action == Action.CREATE:
            number += 1
            step = replace(step, shown=f"{paths.INDEX}/NEW-{number}")  # noqa: PLW2901
        found.append(step)
    return found


def digest_of(steps: Iterable[Step], overlays: Sequence[OverlayFileSystem], state: str, size: int) -> str:
    """Return a digest of the result of steps: the store's state before, and each written byte.

    RocksDB puts random ids and times into its files. Their rows follow from the state and the changed offsets.
    """
    digest = hashlib.blake2b(state.encode(), digest_size=size)
    for step in steps:
        if paths.classify(step.path, ()).kind is FileKind.ROCKSDB:
            digest.update(json.dumps((step.area, step.action, step.shown, step.offsets)).encode())
            continue
        told = (step.area, step.action, step.shown, step.source, step.size, [tuple(one) for one in step.extents])
        digest.update(json.dumps(told).encode())
        if not step.extents:
            continue
        with overlays[step.area].open_read(step.path) as file:
            for extent in step.extents:
                for file_offset in range(extent.file_offset, extent.end, _CHUNK):
                    digest.update(file.pread_exactly(min(_CHUNK, extent.end - file_offset), file_offset))
    return digest.hexdigest()


def transfer(step: Step, source: OverlayFileSystem, target: WritableFileSystem) -> None:
    """Repeat a change of an overlay in ``target``. The caller forces it to disk."""
    if step.is_directory:
        target.rmdir(step.path)
        return
    if step.action == Action.DELETE:
        target.unlink(step.path)
        return
    if step.source is not None:
        make_directories(target, split(step.path)[0])
        target.rename(step.source, step.path)
    if step.action == Action.CREATE:
        make_directories(target, split(step.path)[0])
        with target.create(step.path) as new:
            new.truncate(step.size or 0)
    with source.open_read(step.path) as after, target.open_write(step.path) as file:
        if step.size is not None and file.size() != step.size:
            file.truncate(step.size)
        for extent in step.extents:
            for file_offset in range(extent.file_offset, extent.end, _CHUNK):
                file.pwrite(after.pread_exactly(min(_CHUNK, extent.end - file_offset), file_offset), file_offset)
