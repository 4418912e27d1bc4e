"""The steps of a repair: each is one file that is not what it should be, and what is done to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from rmqtool.files.filesystem import Extent, WritableFileSystem, make_directories, split
from rmqtool.files.journal_log import BLOCK
from rmqtool.files.overlay import Action, OverlayFileSystem
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind

_CHUNK = 1 << 20
_QUARANTINE = "quarantine/"


class Risk(StrEnum):
    """How much is at stake: what is made anew from the log, what cannot be, and the messages themselves."""

    DERIVED = "derived"
    STATE = "state"
    PRIMARY = "primary"


class Part(StrEnum):
    """What can be named to be repaired, in the order in which it is done."""

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
    """Return what a file is a part of; what lies among the files of the log is the log's."""
    path = path.removeprefix(_QUARANTINE)
    directories = list(log_directories)
    what = paths.classify(path, directories)
    found = _PARTS.get(what.kind)
    if found is not None:
        return Part.OFFSETS if what.kind is FileKind.CONFIG and what.name in _OFFSETS else found
    if any(not directory or path.startswith(directory + "/") for directory in directories):
        return Part.LOG
    return Part.QUEUES if path.startswith(paths.CONSUME_QUEUE + "/") else Part.CONFIG


def risk_of(part: Part) -> Risk:
    """Return the risk of changing a part."""
    return _RISKS.get(part, Risk.DERIVED)


class OffsetChange(NamedTuple):
    """Where a group goes on in one queue: before (None: it had no offset there) and after."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int

    def as_json(self) -> dict[str, object]:
        """Return the object of a step."""
        return {
            "group": self.group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "before": self.before,
            "after": self.after,
        }


class Edit(NamedTuple):
    """A file that was changed in the overlays because somebody asked for it: why, and which offsets are others."""

    path: str
    reason: str
    offsets: tuple[OffsetChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One file: what becomes of it, and why.

    ``area`` counts the areas of the store. ``source`` is the file's name now when it gets another one.
    ``extents`` are the bytes that will be others; ``is_directory``: it is an empty directory that goes away.
    ``offsets`` are those of groups that the change of a table is about.
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
        """Return the object of the contract."""
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
    """Why files are changed: by the beginning of their paths, the longest wins."""

    default: dict[Part, str] = field(default_factory=dict)
    by_path: dict[str, str] = field(default_factory=dict)

    def of(self, path: str, part: Part) -> str:
        """Return the reason for changing a file."""
        known = [start for start in self.by_path if path == start or path.startswith(start + "/")]
        return self.by_path[max(known, key=len)] if known else self.default[part]


def steps_of(
    area: int, overlay: OverlayFileSystem, log_directories: Iterable[str], reasons: Reasons, shown: str
) -> list[Step]:
    """Return a step for every file that an overlay has otherwise. ``shown`` stands in front of every path."""
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
            # Of a file that gets another name only what is in the overlay can be read once it has that name.
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
    """Tell whether a recovery leaves a file behind that is no part of what it mends."""
    return path == paths.LOCK or (path == paths.ABORT + paths.Copy.BAK and action is Action.CREATE)


def _blocks(extent: Extent, size: int) -> int:
    """Return how many bytes of a file of ``size`` are saved before a span is written."""
    start, end = extent.file_offset // BLOCK * BLOCK, -(-extent.end // BLOCK) * BLOCK
    return max(min(end, size) - start, 0)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Return steps in the order in which they are done: the marker of an unclean stop goes last."""
    return sorted(steps, key=lambda step: (ORDER.index(step.part), step.area, step.path))


def renumber_new_indexes(steps: Iterable[Step]) -> list[Step]:
    """Return steps in which new index files have no time in their names: that is known when they are made."""
    found, number = [], 0
    for step in steps:
        if step.part is Part.INDEX and step.action == Action.CREATE:
            number += 1
            step = replace(step, shown=f"{paths.INDEX}/NEW-{number}")  # noqa: PLW2901
        found.append(step)
    return found


def digest_of(steps: Iterable[Step], overlays: Sequence[OverlayFileSystem], state: str, size: int) -> str:
    """Return a digest of what steps leave behind: the state that they begin with, and every byte that they write."""
    digest = hashlib.blake2b(state.encode(), digest_size=size)
    for step in steps:
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
    """Do in ``target`` what was done in an overlay. Syncing is the caller's matter."""
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
