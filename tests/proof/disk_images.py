"""Power cuts of disks with a cache: the images that may be left, from a log of every write to the disk.

Producers write to a store on ext4 or XFS, on a disk that keeps a log (``block_log``). A disk with a cache keeps what
was written before a flush; of what came after, any part. Such images are made at many places of the log, and mounted:
the file system replays its journal, and what was acknowledged before that place is there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.proof import cuts
from tests.proof.block_log import Entry, Image, LoggedDisk, iter_images
from tests.proof.campaign import Campaign, Outcome
from tests.proof.cuts import Acknowledged, Disk
from tests.proof.workshop import copy_sparse, workshop

# Judged of one recording.
IMAGES = 32
_MOST_ACKNOWLEDGED = 60


class Recording(NamedTuple):
    """What was written to a disk, and what producers were told, each with where the log ended then."""

    entries: Sequence[Entry]
    told: Sequence[tuple[int, Acknowledged]]


def missing() -> str | None:
    """Return why no disk can be recorded here."""
    if (reason := cuts.missing()) is not None:
        return reason
    return None if _fuse_answers() else "FUSE is not there, or a loop device cannot lie on it"


@lru_cache(maxsize=1)
def _fuse_answers() -> bool:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    disk = cuts.usable()[0]
    with _logged(disk) as logged:
        if not cuts.mount(disk, logged.file):
            return False
        cuts.unmount()
    return bool(logged.entries())


def _logged(disk: Disk) -> LoggedDisk:
    return LoggedDisk(cuts.image_of(disk), workshop() / "logged", workshop() / "log")


def run(seed: int) -> Outcome:
    """Record producers once, and judge some of the images that power cuts may leave."""
    result, chance = Outcome(), random.Random(f"images {seed}")
    disks = cuts.usable()
    disk = disks[seed % len(disks)]
    recording = _record(disk, chance.randrange(2, _MOST_ACKNOWLEDGED))
    first = next(at for at, one in enumerate(recording.entries) if one.log_end >= recording.told[0][0])
    for image in iter_images(recording.entries, first, IMAGES, chance):
        told = [one for log_end, one in recording.told if log_end <= image.log_end]
        where = f"{disk.kind} {disk.options}, seed {seed}, {image.word}, {len(told)} acknowledgements"
        result.judge(_judge(disk, image, told), where)
    return result


def _record(disk: Disk, count: int) -> Recording:
    told: list[tuple[int, Acknowledged]] = []
    with _logged(disk) as logged:
        assert cuts.mount(disk, logged.file)
        try:
            store, text = cuts.place() / "store", b""
            store.mkdir()
            cuts.sync(cuts.place())
            with cuts.producing(store) as reading:
                while len(told) < count:
                    text += cuts.read_some(reading)
                    *lines, text = text.split(b"\n")
                    # What was written and flushed before they were told is in the log.
                    log_end = logged.log_end
                    told += [(log_end, Acknowledged.of(line)) for line in lines]
            entries = logged.entries()
        finally:
            cuts.unmount()
    return Recording(entries, told)


def _judge(disk: Disk, image: Image, told: Sequence[Acknowledged]) -> list[str]:
    path = workshop() / "left.image"
    copy_sparse(cuts.image_of(disk), path)
    _write(path, image)
    if not cuts.mount(disk, path):
        return ["it cannot be mounted"]
    try:
        return cuts.judge(cuts.place() / "store", told)
    finally:
        cuts.unmount()


def _write(path: Path, image: Image) -> None:
    with path.open("r+b") as file:
        for offset, data in image.writes:
            file.seek(offset)
            file.write(data)


CAMPAIGN = Campaign("power cuts of disks with a cache", "disk images", 10_000, run, missing)
