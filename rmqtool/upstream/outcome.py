"""The outcome of one start, as a value and in the form of ``recover --json``.

A queue is *rewound* if the start gives queue offsets to new messages that old messages had already. A *trap* is an
effect of a start that a broker does not log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.config import Version
from rmqtool.files.overlay import Action, Change
from rmqtool.findings.finding import counted
from rmqtool.formats import layouts, paths
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.java import LONG_MAX, parse_long
from rmqtool.upstream.config_files import ConfigLoad, LoadedConfig
from rmqtool.upstream.consume_queues import ConsumeQueue
from rmqtool.upstream.files import StoreView
from rmqtool.upstream.intact import LostMessages, Unreached
from rmqtool.upstream.settings import StartSettings
from rmqtool.upstream.startup import HANGS, MessageStore, Started

_OFFSETS = paths.config_path(paths.CONSUMER_OFFSET)
_NAMED = 5
# No message needs a buffer of this size, so it is worth a warning.
_NOTABLE = 32 << 20


class Trap(NamedTuple):
    """One trap. ``loses`` if something is lost now or later, although the start may succeed."""

    name: str
    message: str
    loses: bool


def find_traps(store: MessageStore, started: Started | None, unreachable: int | None, abort_stays: bool) -> list[Trap]:
    """Return the traps of a start that was rehearsed to its end."""
    found = []
    if not store.commit_log.mapped.mapped and started is not None and store.loaded_max_offsets:
        found.append(Trap("no log", _NO_LOG, True))
    if started == HANGS:
        found.append(Trap("endless start", _ENDLESS, True))
    if store.commit_log.limited and unreachable:
        found.append(_limit(store, unreachable))
    if started is True:
        found += _blind(store)
        if abort_stays and not store.settings.duplication:
            found.append(Trap("abort stays", _ABORT_STAYS, False))
    if store.settings.is_4_9 and store.commit_log.check.most_allocated > _NOTABLE:
        found.append(Trap("heap", _HEAP_NEEDED.format(store.commit_log.check.most_allocated >> 20), False))
    return found


def heap_trap(size: int, lost_with_more: int | None) -> Trap:
    """Return the trap of a 4.9 broker whose heap decides the start.

    Without ``lost_with_more``, no heap is large enough.
    """
    if lost_with_more is None:
        return Trap("heap", _HEAP_KILLS.format(size), True)
    return Trap("heap", _HEAP_DECIDES.format(2 * size >> 20, lost_with_more), True)


def _limit(store: MessageStore, unreachable: int) -> Trap:
    limit, files = store.settings.recover_max_num, len(store.commit_log.mapped.mapped)
    return Trap(
        "file limit",
        f"a 5.4 broker reads only the last {limit} of the {files} log files; {counted(unreachable, 'message')} in "
        f"older files will be in no queue. commitLogRecoverMaxNum={files} makes it read all files",
        False,
    )


def _blind(store: MessageStore) -> list[Trap]:
    end = store.commit_log.mapped.max_offset
    beyond = {
        f"{topic}/{queue_id}": queue.max_physic_offset
        for (topic, queue_id), queue in sorted(store.queues.queues.items())
        if queue.max_physic_offset > end
    }
    if not beyond:
        return []
    names = ", ".join(list(beyond)[:_NAMED]) + (f" and {len(beyond) - _NAMED} more" if len(beyond) > _NAMED else "")
    most = max(beyond.values())
    what = f"{names} would name a message that ends at {most}, but the log ends at {end}"
    if store.settings.is_4_9:
        stops = (
            f"{what}: until the log grows past that, new messages of ALL topics are acknowledged but never delivered"
        )
        return [Trap("dispatch off", stops, True)]
    return [Trap("blind queues", f"{what}: messages sent there until then are acknowledged but never delivered", True)]


def config_traps(load: ConfigLoad, settings: StartSettings) -> list[Trap]:
    """Return the traps of the config files."""
    found = []
    offsets = next(config for config in load.files if config.file == _OFFSETS)
    if load.unreadable is not None and settings.version is Version.V4_9 and offsets.rewritten:
        found.append(Trap("offsets wiped", _WIPED.format(load.unreadable), True))
    for config in load.files:
        if load.unreadable is None and config.damaged:
            found.append(_damaged(config, deleted=config.file in load.deleted))
    return found


def _damaged(config: LoadedConfig, *, deleted: bool) -> Trap:
    if config.loaded_from == "bak":
        return Trap("only copy", (_DELETED if deleted else _ONLY_COPY).format(config.file), False)
    what = "every group starts from the beginning" if config.file == _OFFSETS else "its content is lost"
    return Trap("empty table", f"{config.file} cannot be read and has no usable .bak: it is loaded empty, {what}", True)


_NO_LOG = (
    "the log has no file, so every queue is deleted. If a volume is not mounted, mount it before you start a broker"
)
_ENDLESS = "the broker accepts no connections and logs nothing more, and every further start does the same"
_ABORT_STAYS = "even after a clean stop, so that every later start recovers as after a crash"
_HEAP_KILLS = "no heap has {} bytes: every start fails like this until the size in the record is repaired"
_HEAP_DECIDES = (
    "this assumes a small heap. With -Xmx above about {} MiB the broker gets past this record: it cuts the log there "
    "and deletes {} whole messages"
)
_HEAP_NEEDED = (
    "a damaged record makes the broker allocate {} MiB at once. With less free heap it dies with an OutOfMemoryError "
    "at every start"
)
_WIPED = (
    "the start fails at {} before the offsets are loaded, and the stopping broker overwrites "
    f"{_OFFSETS} with an EMPTY table. Then only .bak is good, and a second start (by a supervisor) empties that, too"
)
_DELETED = (
    "{} cannot be read: the broker deletes it and loads its .bak, the only copy until the next save. Back up both first"
)
_ONLY_COPY = (
    "{} cannot be read and its .bak is loaded; the next save overwrites that only good copy with the damaged file. "
    "Back up the .bak first"
)


# Bytes that are read after the apparent end of a file's entries.
_LOOKED_AT = 3277 * UNIT_SIZE


class Rewind(NamedTuple):
    """A queue whose next offset is lower after the start."""

    topic: str
    queue_id: int
    before: int
    after: int


def find_rewinds(
    before: StoreView, store: MessageStore, unreached: Iterable[Unreached], end: int | None
) -> list[Rewind]:
    """Return the rewound queues, those with the largest loss first.

    The files tell what a queue had before, not the broker: it sees nothing after the first invalid entry. If files are
    lost, messages of the log after the last entry that is left tell it. If ``end`` is given, entries that point to it
    or later are leftovers.
    """
    held: dict[tuple[str, int], int] = {}
    for (topic, queue_id), queue in store.queues.queues.items():
        loaded = store.loaded_max_offsets.get((topic, queue_id))
        if loaded is not None:
            sure = loaded if end is None else queue.max_offset
            held[topic, queue_id] = max([sure, *_iter_written_behind(before, queue, sure, end)])
    for one in unreached:
        key = one.topic, one.queue_id
        last = store.queues.queues.get(key)
        if last is None or not last.max_offset or last.max_physic_offset <= one.last_physical_offset:
            held[key] = max(held.get(key, 0), one.last_queue_offset + 1)
    found = []
    for key, offset in held.items():
        after = store.queues.queues[key].max_offset if key in store.queues.queues else 0
        if offset > after:
            found.append(Rewind(*key, offset, after))
    return sorted(found, key=lambda one: (one.after - one.before, one.topic, one.queue_id))


def _iter_written_behind(files: StoreView, queue: ConsumeQueue, sure: int, end: int | None) -> Iterator[int]:
    """Yield, for each file that continues after a queue offset, the offset after the last entry found there."""
    import numpy as np

    dtype = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
    for directory in queue.mapped.directories:
        for entry in files.entries(directory):
            start = parse_long(entry.name)
            if start is None or entry.is_directory or start + entry.size <= sure * UNIT_SIZE:
                continue
            at = max(sure * UNIT_SIZE - start, 0)
            data = files.read(f"{directory}/{entry.name}", at, _LOOKED_AT)
            units = np.frombuffer(data, dtype, count=len(data) // UNIT_SIZE)
            offsets = units["physical_offset"]
            within = (offsets >= 0) & (offsets < (LONG_MAX if end is None else end))
            written = np.flatnonzero(within & (units["size"] > 0))
            if len(written):
                yield (start + at) // UNIT_SIZE + int(written[-1]) + 1


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """A queue after the start."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class Scan(NamedTuple):
    """The part of the log that recovery reads: from which file on, how many of how many, and why from there.

    ``latest`` is the checkpoint's time that it uses after a crash.
    """

    path: str
    files: int
    of_files: int
    size: int
    reason: str
    latest: int | None


class Cut(NamedTuple):
    """Where reading the log ends, and why."""

    path: str
    file_offset: int
    code: str | None
    message: str


class LostIndex(NamedTuple):
    """A deleted index file: its number of entries, and the store times and physical offsets in its header."""

    path: str
    entries: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOutcome:
    """The outcome for a broker of ``version``. None means unknown."""

    version: Version
    clean: bool
    loads: bool = False
    starts: Started = False
    reason: str | None = None
    min_physical_offset: int | None = None
    max_physical_offset: int | None = None
    changes: tuple[Change, ...] = ()
    queues: tuple[QueueOutcome, ...] | None = None
    scan: Scan | None = None
    cut: Cut | None = None
    lost: tuple[LostMessages, ...] = ()
    lost_indexes: tuple[LostIndex, ...] = ()
    rewinds: tuple[Rewind, ...] = ()
    unreachable: int | None = None
    unreached: tuple[Unreached, ...] = ()
    traps: tuple[Trap, ...] = ()
    config: tuple[LoadedConfig, ...] = ()
    log_lines: tuple[str, ...] = ()

    @property
    def loses_nothing(self) -> bool:
        """Whether the broker starts, and nothing is lost by it."""
        return self.starts is True and not self.messages_destroyed and not any(trap.loses for trap in self.traps)

    @property
    def messages_lost(self) -> int:
        """The number of whole messages in the files that are not served."""
        return sum(part.messages for part in self.lost)

    @property
    def messages_destroyed(self) -> int:
        """The number of those that no earlier start had cut off already."""
        return sum(part.messages for part in self.lost if not part.leftover)

    def as_json(self) -> dict[str, object]:
        """Return the JSON form."""
        found: dict[str, object] = {
            "as": str(self.version),
            "mode": "normal" if self.clean else "abnormal",
            "loads": self.loads,
            "starts": self.starts,
        }
        if self.reason is not None:
            found["reason"] = self.reason
        found |= {
            "minPhyOffset": self.min_physical_offset,
            "maxPhyOffset": self.max_physical_offset,
            "files": [_file_json(change) for change in self.changes],
            "queues": None if self.queues is None else _queues_json(self.queues),
            "messagesLost": self.messages_lost,
            "messagesUnreachable": self.unreachable,
            "config": [
                {
                    "file": one.file,
                    "loadedFrom": one.loaded_from,
                    "rewritten": one.rewritten,
                    "damaged": one.damaged,
                }
                for one in self.config
            ],
            "logLines": list(self.log_lines),
        }
        return found | self._story_json()

    def _is_rebuilt(self, index: LostIndex) -> bool:
        """Return whether the start indexes all messages of a deleted index file again: after a crash those it reads."""
        if self.clean or self.scan is None or self.max_physical_offset is None or self.starts is not True:
            return False
        first = paths.parse_segment_name(self.scan.path.rpartition("/")[2])
        is_read = bool(index.entries) and first is not None and first <= index.begin_physical_offset
        return is_read and index.end_physical_offset < self.max_physical_offset

    def _story_json(self) -> dict[str, object]:
        """Return the fields of the JSON form that explain its numbers."""
        scan, cut = self.scan, self.cut
        return {
            "scan": scan
            and {
                "file": scan.path,
                "files": scan.files,
                "ofFiles": scan.of_files,
                "bytes": scan.size,
                "reason": scan.reason,
                "latestTimestamp": scan.latest,
            },
            "cut": cut and {"file": cut.path, "offset": cut.file_offset, "code": cut.code, "message": cut.message},
            "lost": [
                {
                    "file": part.path,
                    "topic": part.topic,
                    "messages": part.messages,
                    "firstStoreTimestamp": part.first_store_timestamp,
                    "lastStoreTimestamp": part.last_store_timestamp,
                    "leftover": part.leftover,
                }
                for part in self.lost
            ],
            "indexLost": [
                {
                    "file": index.path,
                    "entries": index.entries,
                    "beginTimestamp": index.begin_timestamp,
                    "endTimestamp": index.end_timestamp,
                    "rebuilt": self._is_rebuilt(index),
                }
                for index in self.lost_indexes
            ],
            "rewinds": [
                {"topic": one.topic, "queueId": one.queue_id, "before": one.before, "after": one.after}
                for one in self.rewinds
            ],
            "unreached": [
                {"topic": one.topic, "queueId": one.queue_id, "messages": one.messages} for one in self.unreached
            ],
            "traps": [{"name": trap.name, "message": trap.message, "loses": trap.loses} for trap in self.traps],
        }


def _file_json(change: Change) -> dict[str, object]:
    found: dict[str, object] = {"path": change.path, "action": change.action.value}
    if change.size_before is not None:
        found["sizeBefore"] = change.size_before
    if change.size_after is not None:
        found["sizeAfter"] = change.size_after
    return found


def _queues_json(queues: tuple[QueueOutcome, ...]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for queue in queues:
        offsets = {"minOffset": queue.min_offset, "maxOffset": queue.max_offset}
        found.setdefault(queue.topic, {})[str(queue.queue_id)] = offsets
    return found


def merge_changes(after_load: list[Change], after_stop: list[Change]) -> tuple[Change, ...]:
    """Return what load() deletes, creates and resizes, then the files whose bytes differ after the broker has stopped.

    Files that start() or shutdown() add or remove are left out: ``abort``, backups, queue files that 4.9 creates.
    """
    structural = [change for action in _STRUCTURAL for change in after_load if change.action is action]
    resized = {change.path for change in after_load if change.action is Action.RESIZE}
    modified = [
        Change(change.path, Action.MODIFY, change.size_before, change.size_after)
        for change in after_stop
        if change.action in (Action.MODIFY, Action.RESIZE) and change.path not in resized
    ]
    return (*structural, *modified)


_STRUCTURAL = (Action.DELETE, Action.CREATE, Action.RESIZE)
