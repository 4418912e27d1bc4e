"""Which bytes of a log are read, in which ranges: decided before anything is read but the first record of each file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqtool.errors import ReadFailed
from rmqtool.formats import layouts, paths
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.dledger import HEAD_SIZE
from rmqtool.scan.columns import ONE_READ
from rmqtool.scan.logs import LogFile, LogKind
from rmqtool.scan.queue_units import BEHIND, QueueFiles, count_units, find_extent
from rmqtool.scan.reading import Damage, Range
from rmqtool.scan.selection import Selection
from rmqtool.storage.filesystem import join, split

# Ranges of so many bytes are read by one process at a time; larger ones where queues lead to little of them, up to so
# many bytes and units: what is made of them is held until its turn comes.
RANGE = ONE_READ
COVERED_RANGE = 1 << 30
_MOST_UNITS = 250_000
# In the time that it takes to look up one queue twice, so much of the log is read.
LOOK_UP = 192 << 10
# A log up to this size is read through, so that all its damage is seen, also when only some queues are wanted.
READ_THROUGH = 16 << 20

_LONGEST_PREFIX = layouts.MESSAGE_PREFIX_V6V6
_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


@dataclass(frozen=True)
class Plan:
    """The files of a log, in their order, and which of them are read.

    ``first_times`` are the store times of their first records, None where none begins. Where there are ``queues``,
    they lead to the wanted messages, ``covered_range`` bytes of the log at a time. ``live`` says that a broker is
    writing: the end of the log is not settled.
    ``witnesses`` are all queues that the store keeps in files: they tell what is gone from the end of the log.
    """

    files: Sequence[LogFile]
    first_times: Sequence[int | None]
    wanted: Sequence[LogFile]
    queues: Sequence[QueueFiles] = ()
    covered_range: int = COVERED_RANGE
    live: bool = False
    witnesses: Sequence[QueueFiles] = ()

    def has_records_behind(self, file: LogFile) -> bool:
        """Return whether records follow in the files behind ``file``."""
        behind = self.files.index(file) + 1
        return any(time is not None for time in self.first_times[behind:])

    def find_extent(self, begin: int, end: int = BEHIND) -> int | None:
        """Return where the messages end that queues name from ``begin``, where the log has none, up to ``end``."""
        if self.live:
            return None
        try:
            return find_extent(self.witnesses, begin, end)
        except ReadFailed:  # the queues are a help, no more
            return None


def read_first_time(file: LogFile) -> int | None:
    """Return the store time of a file's first record, None where none begins or the file cannot be read."""
    at = HEAD_SIZE if file.kind is LogKind.DLEDGER else 0
    try:
        with file.open() as opened:
            data = opened.pread(_LONGEST_PREFIX.size, at)
    except ReadFailed:
        return None
    if len(data) < _LONGEST_PREFIX.size:
        return None
    found = PREFIXES[layouts.MESSAGE_PREFIX_V4V4.decode(data).sys_flag & _HOST_BITS].decode(data)
    is_record = found.magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) and found.physical_offset == file.base_offset + at
    return found.store_timestamp if is_record and found.store_timestamp > 0 else None


def read_plan(
    files: Sequence[LogFile], selection: Selection, queues: Sequence[QueueFiles] = (), *, live: bool = False
) -> Plan:
    """Look at the first record of each file and plan what is read; ``queues`` are all that the store keeps in files."""
    times = [read_first_time(file) for file in files]
    wanted = plan_files(files, times, selection)
    size = _covered_range(queues, selection, wanted) if selection.names_queues else 0
    return Plan(files, times, wanted, queues if size else (), size, live=live, witnesses=queues)


def _covered_range(queues: Sequence[QueueFiles], selection: Selection, wanted: Sequence[LogFile]) -> int:
    """Return how many bytes of the log are read at a time by way of the queues; 0 where it is read through.

    That is so for a small log, and where looking up all queues for each range takes more than half as long.
    """
    written = sum(file.size for file in wanted)
    if written <= READ_THROUGH:
        return 0
    try:
        units, of_wanted = count_units(queues, selection)
    except ReadFailed:  # the queues are a help, no more
        return 0
    by_units = written * _MOST_UNITS // max(units, 1)
    by_wanted = RANGE * max(units // max(of_wanted, 1) - 1, 1)
    size = min(COVERED_RANGE, by_units, by_wanted)
    return size if units and len(queues) * LOOK_UP <= size else 0


def plan_files(files: Sequence[LogFile], times: Sequence[int | None], selection: Selection) -> list[LogFile]:
    """Return the files that can hold wanted messages, by where they lie and when their first records were stored.

    Store times rise along a log. Where the first ones do not, its clock was set back, and none of them is relied on.
    """
    known = [time for time in times if time is not None]
    begin, end = selection.begin, selection.end
    if known != sorted(known):
        begin = end = None
    following = [*times[1:], None][: len(times)]
    return [
        file
        for file, first, after in zip(files, times, following, strict=True)
        if file.end_offset > selection.physical_from
        and (end is None or first is None or first < end)
        and (begin is None or after is None or after >= begin)
    ]


def plan_ranges(file: LogFile, start: int = 0, size: int = RANGE) -> Iterator[Range]:
    """Yield the ranges of a file from ``start`` on, all but the first begun by a guess. DLedger's are not cut."""
    if file.kind is LogKind.DLEDGER:
        yield Range(file)
        return
    begins = range(start, max(file.size, start + 1), size)
    for begin in begins:
        stop = begin + size
        yield Range(file, begin, stop if stop < file.size else None, is_guess=begin > 0)


def find_gaps(files: Sequence[LogFile]) -> dict[LogFile, Damage]:
    """Return what is missing between two files, by the file behind the gap."""
    found = {}
    for before, after in pairwise(files):
        length = after.base_offset - before.end_offset
        if length > 0 and after.kind is not LogKind.COMPACTION:
            name = join(split(before.name)[0], paths.segment_name(before.end_offset))
            text = f"{length} bytes of the log are missing from {before.end_offset} on"
            found[after] = Damage("CL-GAP", name, 0, length, text)
    return found
