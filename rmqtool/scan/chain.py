"""Ranges of a log put together: which answers count, which are asked again, and what is said between the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from rmqtool.formats import paths
from rmqtool.progress import NoProgress, Progress
from rmqtool.scan.logs import LogFile
from rmqtool.scan.plan import RANGE, Plan, find_gaps, plan_ranges
from rmqtool.scan.reading import STALE, TORN, UNWRITTEN, Damage, Note, Range, is_damage
from rmqtool.storage.filesystem import join, split


class Answer(Protocol):
    """What is known of a range that was read; see ``RangeReader``."""

    @property
    def began(self) -> int | None:
        """Where it really began."""

    @property
    def reached(self) -> int | None:
        """Where it really ended."""

    @property
    def left_over(self) -> Damage | None:
        """What stands behind the last record of the file."""


A = TypeVar("A", bound=Answer)

_UNSEEN = NoProgress()


def nominal_ranges(plan: Plan, physical_from: int = 0, size: int = RANGE) -> list[Range]:
    """Return the ranges of the wanted files from a place in the log on: what can be read ahead."""
    size = plan.covered_range if plan.queues else size
    return [part for file in plan.wanted for part in plan_ranges(file, max(physical_from - file.base_offset, 0), size)]


def iter_answers(
    plan: Plan,
    ranges: Sequence[Range],
    read: Callable[[Range], A],
    ahead: Iterator[A] | None = None,
    progress: Progress = _UNSEEN,
) -> Iterator[A | Damage | Note]:
    """Yield the answers to all ``ranges`` in their order, and what lies between files.

    ``ahead`` are answers to the ranges as they stand, from those who could not know where the range before ends. One
    that began elsewhere is thrown away, and ``read`` is asked for the right one. An answer may still be read when it
    is yielded: it is looked at when the next one is asked for.
    """
    gaps = find_gaps(plan.files)
    progress.start("reading", sum(map(range_length, ranges)), "bytes")
    file: LogFile | None = None
    at: int | None = None
    settled = False
    for asked in ranges:
        early = next(ahead) if ahead is not None else None
        if asked.file != file:
            file, at = asked.file, None if asked.is_guess else asked.start
            settled = False
            if file in gaps:
                yield gaps[file]
        if at is None or at < _end(asked):
            fits = early is not None and (at is None or early.began == at)
            found = early if early and fits else read(asked if at is None else asked._replace(start=at, is_guess=False))
            yield found
            at = found.reached
            if found.left_over is not None:
                settled = True
                yield from judge_rest(found.left_over, plan, asked.file)
        progress.advance(range_length(asked))
    if not plan.files or file == plan.files[-1]:
        yield from find_missing_end(plan, settled=settled)
    progress.finish()


def _end(asked: Range) -> int:
    return asked.file.size if asked.stop is None else asked.stop


def range_length(asked: Range) -> int:
    """Return how many bytes a range has, as it was planned."""
    return _end(asked) - asked.start


def judge_rest(left_over: Damage, plan: Plan, file: LogFile) -> Iterator[Damage | Note]:
    """Yield what is to be said of something behind the last record of a file."""
    place = f"{left_over.file}@{left_over.file_offset}"
    begin = file.base_offset + left_over.file_offset
    if is_damage(left_over, records_behind=plan.has_records_behind(file), live=plan.live):
        yield left_over
    elif left_over.code == UNWRITTEN:
        extent = plan.find_extent(begin, file.end_offset)
        if extent is not None:
            yield left_over._replace(length=extent - begin, message="zeros where queues name messages")
    elif left_over.code == STALE:
        text = f"behind the end of the log, at {place}, stand records that a recovery cut off: they are left out"
        yield Note(text)
    elif left_over.code == TORN:
        yield Note(f"the record at {place} is not whole yet: a broker is writing")


def find_missing_end(plan: Plan, *, settled: bool) -> Iterator[Damage]:
    """Yield what queues name behind the last file. ``settled``: something behind its last record was judged already."""
    if not plan.files and plan.witnesses:
        text = "the commit log is empty, yet queues exist: is its volume not mounted?"
        yield Damage("ST-MOUNT", paths.COMMIT_LOG, 0, 0, text)
    if not plan.files or settled:
        return
    last = plan.files[-1]
    extent = plan.find_extent(last.end_offset)
    if extent is not None:
        name = join(split(last.name)[0], paths.segment_name(last.end_offset))
        text = f"the log ends at {last.end_offset}, queues name messages up to {extent}"
        yield Damage("CL-GAP", name, 0, extent - last.end_offset, text)
