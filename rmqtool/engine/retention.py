"""What goes when it is old, or when the disk is full: segments of the log, then what leads only to them.

Upstream: ``CleanCommitLogService``, ``CleanConsumeQueueService``. A file that is being read can be removed here at any
time: who has it open reads on, so nothing hangs. upstream: a mapped file in use stays, and is tried again for minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from rmqtool.config import StoreConfig
from rmqtool.engine.clock import Clock
from rmqtool.engine.commit_log import CommitLog
from rmqtool.engine.disk_space import DiskSpace, used_percent
from rmqtool.engine.dispatcher import Dispatcher
from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.paths import INDEX, FileKind, parse_segment_name, segment_directory
from rmqtool.storage.filesystem import WritableFileSystem, join
from rmqtool.storage.index_files import read_header

_HOUR_MS = 3_600_000
# So many segments go in one run at most.
_MOST_AT_ONCE = 10
# A broker does not look before it has been up so long (ms).
_FIRST_RUN = 60_000
# An administrator's request holds for so many runs.
_MANUAL_RUNS = 20
_PHYSICAL_OFFSET = layouts.CONSUME_QUEUE_UNIT.field("physical_offset").offset


class Urgency(NamedTuple):
    """Whether the disk asks for room, and whether for so much that age does not count."""

    wanted: bool
    at_once: bool


class Retention:
    """Removes what a broker of these settings would remove. One thread at a time."""

    def __init__(
        self, files: WritableFileSystem, config: StoreConfig, clock: Clock, dispatcher: Dispatcher, disks: DiskSpace
    ) -> None:
        # Called when files of queues or index were removed.
        self.on_removed: Callable[[], None] = _do_nothing
        self._files = files
        self._config = config
        self._clock = clock
        self._dispatcher = dispatcher
        self._disks = disks
        self._started = clock.monotonic()
        self._manual_runs = 0
        self._cleaned_to = -1

    def ask(self) -> None:
        """Have what is old removed at any hour, for some time."""
        self._manual_runs = _MANUAL_RUNS

    def run_if_due(self, log: CommitLog) -> None:
        """Do what a broker does every ten seconds, once it has been up for a minute."""
        if self._clock.monotonic() - self._started >= _FIRST_RUN:
            self.run(log)

    def run(self, log: CommitLog) -> int:
        """Remove expired segments if it is time to, and what leads to them; return how many segments that were."""
        urgency = self.urgency()
        is_asked = self._manual_runs > 0
        self._manual_runs -= is_asked
        removed = 0
        if is_asked or urgency.wanted or self.is_hour():
            removed = self._remove_segments(log, at_once=urgency.at_once and self._config.clean_file_forcibly_enable)
        if log.min_offset > self._cleaned_to:
            self._cleaned_to = log.min_offset
            self._remove_units(log.min_offset)
        return removed

    def is_hour(self) -> bool:
        """Tell whether this is an hour in which expired files go."""
        hour = datetime.fromtimestamp(self._clock.now() / 1000, self._clock.zone).hour
        return any(word.strip().isdecimal() and int(word) == hour for word in self._config.delete_when.split(";"))

    def urgency(self) -> Urgency:
        """Return what the disks of log and queues ask for."""
        used = max(self._disks.look(), used_percent(self._files.space()))
        normal = self._config.disk_max_used_space_ratio
        return Urgency(used > min(normal, self._disks.forcible), used > self._disks.forcible)

    def _remove_segments(self, log: CommitLog, *, at_once: bool) -> int:
        """Remove the oldest segments, up to the first that is too young; never the last, nor an undispatched one."""
        oldest = self._clock.now() - self._config.file_reserved_time * _HOUR_MS
        count = 0
        for segment in log.segments.segments[:-1][:_MOST_AT_ONCE]:
            written = segment.filesystem.stat(segment.path).mtime_ns // 1_000_000
            is_young = written > oldest and not at_once
            if is_young or segment.end_offset > self._dispatcher.dispatched.offset or not log.remove_first():
                break
            count += 1
        return count

    def _remove_units(self, log_min: int) -> None:
        queues = self._dispatcher.queues
        found = False
        for key, simple in queues.simple.items():
            for base in self._behind(FileKind.CONSUME_QUEUE, key, UNIT_SIZE, log_min):
                simple.remove_file(base)
                found = True
        for key, batch in queues.batch.items():
            for base in self._behind(FileKind.BATCH_CONSUME_QUEUE, key, BATCH_UNIT_SIZE, log_min):
                batch.remove_file(base)
                found = True
        found |= self._remove_index(log_min)
        if found:
            self.on_removed()

    def _behind(self, kind: FileKind, key: tuple[str, int], unit_size: int, log_min: int) -> list[int]:
        """Return which files of a queue end with a unit of a record that is gone, the oldest first, never the last."""
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

    def _remove_index(self, log_min: int) -> bool:
        index = self._dispatcher.index
        found = False
        for name in index.names[:-1]:
            path = join(INDEX, name)
            with self._files.open_read(path) as file:
                header = read_header(file)
            if header is None or header.end_phy_offset >= log_min:
                break
            self._files.unlink(path)
            index.names.remove(name)
            found = True
        if found:
            self._files.fsync_dir(INDEX)
        return found


def _do_nothing() -> None:
    """Nobody wants to know."""
