"""How full the disks of a store are, and what a broker does about it.

Upstream: ``CleanCommitLogService.isSpaceToDelete``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.config import StoreConfig
from rmqtool.files.filesystem import Space
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.formats import paths
from rmqtool.store.open import Store

# Brokers limit the settings to these ranges, in percent.
_NORMAL_RANGE, _WARNING_RANGE, _FORCIBLE_RANGE = (10, 95), (35, 90), (30, 85)


class DiskUse(NamedTuple):
    """The fullest disk that counts, that of ``path``.

    ``consequence`` is what a broker does; None below all thresholds.
    """

    path: str
    space: Space
    consequence: str | None
    severity: Severity = Severity.NOTICE

    def as_json(self) -> dict[str, object]:
        """Return the object of docs/contract.md."""
        shown: dict[str, object] = {"path": self.path, "usedRatio": round(self.space.used_ratio, 4)}
        return shown if self.consequence is None else {**shown, "consequence": self.consequence}


def measure(path: str) -> Space:
    found = os.statvfs(path)
    return Space(found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize, found.f_bavail * found.f_frsize)


def read_disk_use(store: Store) -> DiskUse | None:
    """Return how full the disks are, or None if the store is not on a disk.

    A broker looks at the directory of the log with the most free space. The root is looked at too: it has queues and
    index.
    """
    log = [directory for directory in store.config.commit_log_dirs if os.path.isdir(directory)]
    try:
        spaces = {os.path.realpath(path): measure(path) for path in log}
        roomiest = min(spaces, key=lambda path: spaces[path].used_percent, default=None)
        places = {} if roomiest is None else {roomiest: spaces[roomiest]}
        places.setdefault(os.path.realpath(store.root), measure(store.root))
    except OSError:  # a disk that was removed, or a store that is not a directory
        return None
    path = max(places, key=lambda one: places[one].used_percent)
    severity, consequence = _judge(store.config, places[path].used_percent)
    return DiskUse(path, places[path], consequence, severity)


def _judge(config: StoreConfig, used: int) -> tuple[Severity, str | None]:
    warning = _within(config.disk_space_warning_level_ratio, _WARNING_RANGE)
    forcible = _within(config.disk_space_clean_forcibly_ratio, _FORCIBLE_RANGE)
    normal = _within(config.disk_max_used_space_ratio, _NORMAL_RANGE)
    at_once = "a broker deletes the oldest files of the log at any age"
    if not config.clean_file_forcibly_enable:
        at_once = "a broker deletes expired files of the log at any hour"
    if used > warning:
        return Severity.WARNING, f"above {warning} % a broker refuses messages; {at_once.replace('a broker', 'it')}"
    if used > forcible:
        return Severity.WARNING, f"above {forcible} % {at_once}"
    if used > normal:
        hours = f"{config.file_reserved_time} h"
        return Severity.NOTICE, f"above {normal} % a broker deletes files of the log older than {hours} at any hour"
    return Severity.NOTICE, None


def check_disk(use: DiskUse | None) -> Iterator[Finding]:
    """Yield a finding if the disk is so full that a broker acts."""
    if use is not None and use.consequence is not None:
        text = f"the disk of {use.path} is {use.space.used_percent} % full"
        place = Place(paths.COMMIT_LOG)
        yield new_finding("ST-DISK", text, place, severity=use.severity, consequence=use.consequence)


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])
