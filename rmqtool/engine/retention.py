"""Removes old data, or data of any age if the disk is full.

First go segments of the log, then queue and index files whose records are gone.

Only on request, or at intervals with ``Setup.expires``: ``find_expired`` returns what a broker would remove now,
``run`` removes it. A file can be removed while it is being read, because the reader keeps it open. upstream:
CleanCommitLogService, CleanConsumeQueueService; a mapped file in use stays, and upstream tries again for minutes.

``remove_queues`` removes the queues of a deleted topic. Its records stay in the log until they expire. upstream:
DefaultMessageStore.deleteTopics.

``DiskSpace`` measures how full the disks are. upstream: CleanCommitLogService.isSpaceToDelete, and MappedFileQueue for
the directories that get no new segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.commit_log import CommitLog, LogDirectory
from rmqtool.engine.health import Health, RunningFlag
from rmqtool.engine.load import count_messages
from rmqtool.engine.row_queues import remove_topic
from rmqtool.files.filesystem import Kind, WritableFileSystem, join, split
from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.paths import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    FileKind,
    parse_segment_name,
    segment_directory,
    segment_name,
)
from rmqtool.formats.topics import is_directory_name
from rmqtool.store.index_files import read_header
from rmqtool.store.segments import Segment

if TYPE_CHECKING:
    from rmqtool.engine.parts import Engine, Setup


def remove_queues(files: WritableFileSystem, topic: str) -> None:
    """Remove all queues of a topic from a store that is not open anywhere."""
    if not is_directory_name(topic):
        return
    for tree in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE):
        directory = join(tree, topic)
        if files.is_directory(directory):
            _remove(files, directory)
    remove_topic(files, topic)


def _remove(files: WritableFileSystem, directory: str) -> None:
    """Remove a directory with everything in it, durably."""
    for entry in files.listdir(directory):
        path = join(directory, entry.name)
        if entry.kind is Kind.DIRECTORY:
            _remove(files, path)
        else:
            files.unlink(path)
    files.rmdir(directory)
    files.fsync_dir(split(directory)[0])


# Upstream limits the settings to these ranges.
_WARNING_RANGE = (35, 90)
_FORCIBLE_RANGE = (30, 85)


class DiskSpace:
    """Watches the disks.

    Puts are refused once all disks of the log are above the warning level. A directory whose disk is above the
    forcible level gets no new segment, unless all disks are above it.
    """

    def __init__(self, directories: Sequence[LogDirectory], config: StoreConfig, health: Health) -> None:
        self.warning = _within(config.disk_space_warning_level_ratio, _WARNING_RANGE)
        self.forcible = _within(config.disk_space_clean_forcibly_ratio, _FORCIBLE_RANGE)
        # 5.x takes messages again only when there is more space than the warning level asks for.
        self._clears_at = self.warning if config.version is Version.V4_9 else self.forcible
        self.full_directories: frozenset[LogDirectory] = frozenset()
        # Percent used of the emptiest disk, at the last look.
        self.used = 0
        self._directories = directories
        self._health = health

    def look(self) -> int:
        """Look at the disks of the log; return the percent used of the emptiest one.

        Sets or clears the flag DISK_FULL, and ``full_directories``.
        """
        percents = {directory: directory.filesystem.space().used_percent for directory in self._directories}
        self.full_directories = frozenset(_above(percents.items(), self.forcible))
        self.used = least = min(percents.values())
        if least > self.warning:
            self._health.set(RunningFlag.DISK_FULL)
        elif least <= self._clears_at:
            self._health.set(RunningFlag.DISK_FULL, False)
        return least


def _above(percents: Iterable[tuple[LogDirectory, int]], limit: int) -> list[LogDirectory]:
    return [directory for directory, percent in percents if percent > limit]


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


_HOUR_MS = 3_600_000
# The most segments that one run removes, as upstream.
_MOST_AT_ONCE = 10
# A broker looks for expired files for the first time this many ms after its start.
_FIRST_RUN = 60_000
# Runs for which an administrator's request is valid. As upstream.
_MANUAL_RUNS = 20
# Where an entry has its physical offset: the same in simple and in batch queues.
_PHYSICAL_OFFSET = layouts.CONSUME_QUEUE_UNIT.field("physical_offset").offset


class Urgency(NamedTuple):
    """Whether old segments are removed at any hour, and whether segments of any age are."""

    wanted: bool
    at_once: bool


class Expired(NamedTuple):
    """The files that retention removes, segments of the log first, and the number of messages in them.

    ``used`` is how full the disk is in percent, if that is the reason and age does not count; else None.
    """

    segments: int
    messages: int
    bytes: int
    files: tuple[str, ...]
    used: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of a removal, with the reason; see docs/contract.md."""
        reason = "age" if self.used is None else "disk"
        return {**self._asdict(), "files": list(self.files), "reason": reason}


class Retention:
    """Removes what a broker with these settings would remove. For one thread at a time."""

    def __init__(
        self, engine: Engine, setup: Setup, *, before_removing: Callable[[], None], on_removed: Callable[[], None]
    ) -> None:
        # Called before a segment is removed, and after files of queues or index were.
        self._before_removing = before_removing
        self._on_removed = on_removed
        self._files = setup.files
        self._config = setup.config
        self._clock = setup.clock
        self._dispatcher = engine.dispatcher
        self._disks = engine.disks
        self._started = self._clock.monotonic()
        self._manual_runs = 0
        self._cleaned_to = -1

    def ask(self) -> None:
        """Remove old segments at any hour, for the next 20 runs."""
        self._manual_runs = _MANUAL_RUNS

    def run_if_due(self, log: CommitLog) -> None:
        """Do what a broker does every ``cleanResourceInterval`` ms, once it has run for a minute."""
        if self._clock.monotonic() - self._started >= _FIRST_RUN:
            self.run(log)

    def run(self, log: CommitLog) -> Expired:
        """Remove the oldest segments of the log, then the files that point only to them; return what was removed.

        Expired segments are removed in the hour of ``deleteWhen``, after ``ask``, and at any hour if the disk is nearly
        full. If the disk is full, age does not count, unless ``cleanFileForciblyEnable`` is off. At most 10 segments
        are removed.
        """
        asked_for, used = self._due(log)
        self._manual_runs -= self._manual_runs > 0
        removed = []
        for segment in asked_for:
            messages = count_messages(log.segments.open(segment), segment.size)
            self._before_removing()
            if not log.remove_first():
                break
            removed.append((segment, messages))
        files: list[str] = []
        if log.min_offset > self._cleaned_to:
            try:
                self._remove_units(log.min_offset, files)
                files += self._remove_index(log.min_offset)
            finally:
                if files:
                    self._on_removed()
            # After an error the next run tries again.
            self._cleaned_to = log.min_offset
        return _expired(removed, files, used)

    def find_expired(self, log: CommitLog) -> Expired:
        """Return what ``run`` would remove from the log now; files of queues and index are not in it."""
        segments, used = self._due(log)
        return _expired([(one, count_messages(log.segments.open(one), one.size)) for one in segments], [], used)

    def _due(self, log: CommitLog) -> tuple[list[Segment], int | None]:
        """Return the segments that a broker would remove now, and the percent of disk used; None if that is not why."""
        used = max(self._disks.look(), self._files.space().used_percent)
        urgency = self._urgency(used)
        at_once = urgency.at_once and self._config.clean_file_forcibly_enable
        if self._manual_runs > 0 or urgency.wanted or self.is_hour():
            return self._oldest_segments(log, at_once=at_once), used if at_once else None
        return [], None

    def is_hour(self) -> bool:
        """Return whether the hour in the clock's zone is one of ``deleteWhen``, a list such as ``04;16``."""
        hour = datetime.fromtimestamp(self._clock.now() / 1000, self._clock.zone).hour
        return any(word.strip().isdecimal() and int(word) == hour for word in self._config.delete_when.split(";"))

    def _urgency(self, used: int) -> Urgency:
        """Return how urgently disks that are ``used`` percent full need space.

        ``diskMaxUsedSpaceRatio`` and ``diskSpaceCleanForciblyRatio`` decide.
        """
        normal = self._config.disk_max_used_space_ratio
        return Urgency(used > min(normal, self._disks.forcible), used > self._disks.forcible)

    def _oldest_segments(self, log: CommitLog, *, at_once: bool) -> list[Segment]:
        """Return the oldest segments up to the first one that is too young, at most 10.

        Never the last, never an undispatched one. With ``at_once`` none is too young.
        """
        oldest = self._clock.now() - self._config.file_reserved_time * _HOUR_MS
        found = []
        for segment in log.segments.segments[:-1][:_MOST_AT_ONCE]:
            written = segment.filesystem.stat(segment.path).mtime_ns // 1_000_000
            is_young = written > oldest and not at_once
            if is_young or segment.end_offset > self._dispatcher.dispatched.offset or not log.may_remove(segment):
                break
            found.append(segment)
        return found

    def _remove_units(self, log_min: int, removed: list[str]) -> None:
        """Remove the files of queues that point only to removed records; add their paths to ``removed``."""
        queues = self._dispatcher.queues
        for kind, found, size in (
            (FileKind.CONSUME_QUEUE, queues.simple, UNIT_SIZE),
            (FileKind.BATCH_CONSUME_QUEUE, queues.batch, BATCH_UNIT_SIZE),
        ):
            for key, queue in found.items():
                directory = segment_directory(kind, *key)
                for base in self._behind(kind, key, size, log_min):
                    queue.remove_file(base)
                    removed.append(join(directory, segment_name(base)))
                    # One after the other: after a power cut a file must not be back without the one after it. One
                    # sync after all of them would not keep their order. upstream: it syncs no removal.
                    self._files.fsync_dir(directory)

    def _behind(self, kind: FileKind, key: tuple[str, int], unit_size: int, log_min: int) -> list[int]:
        """Return the files of a queue whose last entry points to a removed record, oldest first.

        Never the last file.
        """
        directory = segment_directory(kind, *key)
        if not self._files.exists(directory):
            return []
        names = [entry.name for entry in self._files.listdir(directory) if parse_segment_name(entry.name) is not None]
        found = []
        for name in names[:-1]:
            with self._files.open_read(join(directory, name)) as file:
                data = file.pread(layouts.LONG.size, file.size() - unit_size + _PHYSICAL_OFFSET)
            if len(data) < layouts.LONG.size or layouts.LONG.unpack_from(data)[0] >= log_min:
                break
            found.append(int(name))
        return found

    def _remove_index(self, log_min: int) -> list[str]:
        """Remove the index files whose last entry points to a removed record, never the last file; return the paths."""
        index = self._dispatcher.index
        removed = []
        for name in index.names[:-1]:
            path = join(INDEX, name)
            with self._files.open_read(path) as file:
                header = read_header(file)
            if header is None or header.end_phy_offset >= log_min:
                break
            self._files.unlink(path)
            index.names.remove(name)
            removed.append(path)
        if removed:
            self._files.fsync_dir(INDEX)
        return removed


def _expired(segments: list[tuple[Segment, int]], files: list[str], used: int | None) -> Expired:
    """Return the report of removed ``segments``, each with its number of messages, and of other removed files."""
    return Expired(
        len(segments),
        sum(messages for _, messages in segments),
        sum(segment.size for segment, _ in segments),
        (*(segment.path for segment, _ in segments), *files),
        used if segments else None,
    )
