"""How full the disks of the store are, and from when on that matters.

Upstream: ``CleanCommitLogService.isSpaceToDelete``, ``MappedFileQueue`` for the directories that take no new segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.commit_log import LogDirectory
from rmqtool.engine.health import Health, RunningFlag
from rmqtool.storage.filesystem import Space

# Settings beyond these are taken as these.
_WARNING_RANGE = (35, 90)
_FORCIBLE_RANGE = (30, 85)


def used_percent(space: Space) -> int:
    """Return how full a disk is, rounded up; what only root may use counts neither as used nor as usable."""
    used = space.total - space.free
    usable = used + space.available
    return -(-100 * used // usable) if usable else 0


class DiskSpace:
    """Watches the disks: above the warning level puts are refused, above the forcible one a path gets no segment."""

    def __init__(self, directories: Sequence[LogDirectory], config: StoreConfig, health: Health) -> None:
        self.warning = _within(config.disk_space_warning_level_ratio, _WARNING_RANGE)
        self.forcible = _within(config.disk_space_clean_forcibly_ratio, _FORCIBLE_RANGE)
        # 5.x waits until there is some more room before it takes messages again.
        self._clears_at = self.warning if config.version is Version.V4_9 else self.forcible
        self.full_directories: frozenset[LogDirectory] = frozenset()
        self._directories = directories
        self._health = health

    def look(self) -> int:
        """Look at the disks; return how full the emptiest one of the log's is."""
        percents = {directory: used_percent(directory.filesystem.space()) for directory in self._directories}
        self.full_directories = frozenset(_above(percents.items(), self.forcible))
        least = min(percents.values())
        if least > self.warning:
            self._health.set(RunningFlag.DISK_FULL)
        elif least <= self._clears_at:
            self._health.set(RunningFlag.DISK_FULL, False)
        return least


def _above(percents: Iterable[tuple[LogDirectory, int]], limit: int) -> list[LogDirectory]:
    return [directory for directory, percent in percents if percent > limit]


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])
