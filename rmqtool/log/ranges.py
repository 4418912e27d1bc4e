"""Plans and ranges: which bytes of a log are read, by how many threads, and the answers in the order of the log.

A plan is made from the first record of each file. Its ranges are read ahead, each from a guessed start. Then the
answers are put in order: an answer counts if it began where the range before it ended, else its range is read again
from there. Between files, gaps and leftovers are judged.

Threads run in parallel while the interpreter's lock is released: while files are read, and while the kernel, Arrow or
numpy works on a whole buffer. At most one result more than there are threads waits, so memory stays flat.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import ReadableFile, join, split
from rmqtool.formats import layouts, paths
from rmqtool.formats.codes import HOST_BITS, RECORD_MAGICS
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.dledger import HEAD_SIZE
from rmqtool.formats.layout import Buffer
from rmqtool.log.queue_entries import AFTER, QueueFiles, count_units, find_extent, read_places
from rmqtool.log.read import ONE_READ, STALE, TORN, UNWRITTEN, Damage, Note, Range, as_damage
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, LogKind, TierPart
from rmqtool.progress import NoProgress, Progress
from rmqtool.store.listing import LOG_IS_EMPTY
from rmqtool.store.open import is_far
from rmqtool.store.segments import Sized, next_base, usual_size

# Takes one piece of output after the other.
Write = Callable[[Buffer], object]
# Given a task and a function that takes output, return a value.
Work = Callable[[Any, Write], Any]


class Done(NamedTuple):
    """The result of a task: the value, and what was written, in pieces."""

    value: Any
    data: list[Buffer]


class _Task:
    """A task, and the box into which a thread puts its result."""

    __slots__ = ("box", "what")

    def __init__(self, what: Any) -> None:
        self.what = what
        self.box: SimpleQueue[Done | BaseException] = SimpleQueue()

    def result(self) -> Done:
        """Wait for the result of the task; raise the error that ended it."""
        found = self.box.get()
        if isinstance(found, BaseException):
            raise found
        return found


def run_in_order(works: Sequence[Work], tasks: Iterable[Any]) -> Generator[Done, None, None]:
    """Yield the result of each task, in the order of the tasks, with a thread for each of ``works``.

    A thread calls only its own work. The error of a task is raised in its turn. Closing the iterator waits for the
    tasks that have begun, and starts no more.
    """
    waiting: SimpleQueue[_Task | None] = SimpleQueue()
    threads = [threading.Thread(target=_serve, args=(work, waiting), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    given: deque[_Task] = deque()
    try:
        for what in tasks:
            given.append(_Task(what))
            waiting.put(given[-1])
            if len(given) > len(threads):
                yield given.popleft().result()
        while given:
            yield given.popleft().result()
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()


def _serve(work: Work, waiting: SimpleQueue[_Task | None]) -> None:
    """Do one task after the other, up to the None that ends them."""
    while (task := waiting.get()) is not None:
        written: list[Buffer] = []
        try:
            task.box.put(Done(work(task.what, written.append), written))
        except BaseException as error:
            task.box.put(error)


# Bytes that one thread reads at a time. Ranges read by way of the queues are larger, limited in bytes and in entries,
# because results are held until it is their turn.
RANGE = ONE_READ
COVERED_RANGE = 1 << 30
_MOST_UNITS = 250_000
# Bytes of log that can be read in the time of two lookups in one queue.
LOOK_UP = 192 << 10
# A log of at most this size is read through even for a few queues, so that all damage in it is reported.
READ_THROUGH = 16 << 20

# On object storage each queue costs requests: a log with more queues than this is read through.
_FAR_QUEUES = 16

# As many bytes as the fixed part of any record has at most.
_LONGEST_PREFIX = layouts.MESSAGE_PREFIX_V6V6


@dataclass(frozen=True)
class Plan:
    """The files of a log in their order, and which of them are read.

    ``first_times`` are the store times of the files' first records; None without one. If there are ``queues``, wanted
    messages are found by way of them, ``covered_range`` bytes of the log at a time. ``live``: a broker is writing, so
    the end of the log is not settled. ``witnesses`` are all queues in files: their entries tell what is missing from
    the end of the log. ``usual_size`` is that of the log's files, if these are only some of them.
    """

    files: Sequence[LogFile]
    first_times: Sequence[int | None]
    wanted: Sequence[LogFile]
    queues: Sequence[QueueFiles] = ()
    covered_range: int = COVERED_RANGE
    live: bool = False
    witnesses: Sequence[QueueFiles] = ()
    usual_size: int = 0

    def has_records_after(self, file: LogFile) -> bool:
        """Return whether a later file than ``file`` has records."""
        first, last = self.files.index(file) + 1, len(self.files)
        if file.tier is not None:  # each queue has a log of its own
            last = next(end for begin, end in _logs(self.files) if begin < first <= end)
        # The last file first: it usually has records, and on object storage each look is a request.
        return any(self.first_times[number] is not None for number in reversed(range(first, last)))

    def find_extent(self, begin: int, end: int = AFTER) -> int | None:
        """Return where the last record ends that queues point to from ``begin`` to ``end``.

        It is used where the log itself has no records. None without a trusted entry, and while a broker is writing.
        """
        if self.live:
            return None
        try:
            return find_extent(self.witnesses, begin, end)
        except ReadFailed:  # queues that cannot be read tell nothing
            return None


def read_first_time(file: LogFile) -> int | None:
    """Return the store time of a file's first record; None without one, or if the file cannot be read."""
    at = HEAD_SIZE if file.kind is LogKind.DLEDGER else 0
    try:
        with file.open() as opened:
            return _time_at(opened, file, at)
    except ReadFailed:
        return None


def _time_at(opened: ReadableFile, file: LogFile, at: int) -> int | None:
    """Return the store time of the record at an offset of an open file; None without one."""
    data = opened.pread(_LONGEST_PREFIX.size, at)
    if len(data) < _LONGEST_PREFIX.size:
        return None
    found = PREFIXES[layouts.MESSAGE_PREFIX_V4V4.decode(data).sys_flag & HOST_BITS].decode(data)
    is_record = found.magic in RECORD_MAGICS and found.physical_offset == file.record_base + at
    return found.store_timestamp if is_record and found.store_timestamp > 0 else None


class FirstTimes(Sequence[int | None]):
    """The store times of the first records of files.

    Each is read when it is asked for, because on object storage that takes two requests.
    """

    def __init__(self, files: Sequence[LogFile]) -> None:
        self._files = files
        self._known: dict[int, int | None] = {}

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, number: int) -> int | None: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[int | None]: ...
    def __getitem__(self, number: int | slice) -> int | Sequence[int | None] | None:
        if isinstance(number, slice):
            return [self[one] for one in range(len(self))[number]]
        if number not in self._known:
            self._known[number] = read_first_time(self._files[number])
        return self._known[number]


def read_plan(
    files: Sequence[LogFile], selection: Selection, queues: Sequence[QueueFiles] = (), *, live: bool = False
) -> Plan:
    """Return the plan of a read; ``queues`` are all queues that the store has in files.

    The first record of each file is read now. On object storage, where that is a request for each file, it is read now
    only if the selection has a bound in time, and otherwise when its time is needed.
    """
    times: Sequence[int | None] = FirstTimes(files)
    far = any(is_far(file.directory) for file in files)
    if selection.begin is not None or selection.end is not None or not far:
        times = list(times)
    wanted = plan_files(files, times, selection)
    by_queues = selection.names_queues and not (far and len(queues) > _FAR_QUEUES)
    size = _covered_range(queues, selection, wanted) if by_queues else 0
    return Plan(files, times, wanted, queues if size else (), size, live=live, witnesses=queues)


def _covered_range(queues: Sequence[QueueFiles], selection: Selection, wanted: Sequence[LogFile]) -> int:
    """Return how many bytes are read at a time by way of the queues; 0 to read the log through.

    It is 0 for a small log, and if looking up all queues for each range would take more than half as long as reading
    it.
    """
    written = sum(file.size for file in wanted)
    if written <= READ_THROUGH:
        return 0
    try:
        units, of_wanted = count_units(queues, selection)
    except ReadFailed:  # without the queues the log is read through
        return 0
    # The limits for one range: of its entries, and of the bytes of its wanted messages (about ``RANGE``).
    by_units = written * _MOST_UNITS // max(units, 1)
    by_wanted = RANGE * max(units // max(of_wanted, 1) - 1, 1)
    size = min(COVERED_RANGE, by_units, by_wanted)
    return size if units and len(queues) * LOOK_UP <= size else 0


def plan_files(files: Sequence[LogFile], times: Sequence[int | None], selection: Selection) -> list[LogFile]:
    """Return the files that can contain wanted messages, by their offsets and the store times of their first records.

    Store times rise along a log. If the first ones do not, the clock was set back, and times are not used.
    """
    wanted = []
    for first, last in _logs(files):
        wanted += _plan_log(files[first:last], times[first:last], selection)
    return wanted


def _logs(files: Sequence[LogFile]) -> Iterator[tuple[int, int]]:
    """Yield the first number and the one after the last of the files of each log: each queue of a tier has its own."""
    for _, numbers in groupby(range(len(files)), lambda number: _queue_of(files[number])):
        first, *others = numbers
        yield first, first + len(others) + 1


def _queue_of(file: LogFile) -> tuple[str, int] | None:
    return None if file.tier is None else file.tier[:2]


def _plan_log(files: Sequence[LogFile], times: Sequence[int | None], selection: Selection) -> list[LogFile]:
    begin, end, tier = selection.begin, selection.end, files[0].tier
    if tier is not None and not _wants_of_tier(tier, selection):
        return []
    if begin is None and end is None:
        return [file for file in files if file.end_offset > selection.physical_from]
    known = [time for time in times if time is not None]
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


def _wants_of_tier(tier: TierPart, selection: Selection) -> bool:
    """Return whether messages of a queue of a tier can be wanted. It has only messages whose own queue this is."""
    least = selection.least_of(tier.topic, tier.queue_id)
    is_before = least is None or tier.until is None or least < tier.until
    return is_before and selection.wants_queue(tier.topic, tier.queue_id)


# About this many records of a file have their times looked at. They are found by the entries of one queue: the largest
# ones are tried, up to the second number, until one has enough entries.
_MARKS, _MOST_TRIED = 64, 8
# In milliseconds: a clock that was set back by less leaves out no message.
_CLOCK_STEP = 600_000


def bounds_of_period(
    wanted: Sequence[LogFile], queues: Sequence[QueueFiles], begin: int | None, end: int | None
) -> tuple[int | None, int | None]:
    """Return the physical offsets between which all messages of a period are; None for an open bound.

    ``wanted`` are the files that can have some. Of a queue with many entries in the first and in the last of them, some
    entries are looked up: they say where records begin, and the records when they were stored. One mark more is read
    at both ends: between two marks the clock may have been wrong for a while, and no mark shows it.
    """
    lower = upper = None
    known: dict[LogFile, list[tuple[int, int]]] = {}
    if wanted and begin is not None:
        known[wanted[0]] = _marks(wanted[0], queues)
        before = [place for place, time in known[wanted[0]] if time < begin - _CLOCK_STEP]
        lower = before[-2] if len(before) > 1 else None
    if wanted and end is not None:
        marks = known.get(wanted[-1]) or _marks(wanted[-1], queues)
        after = [place for place, time in marks if time >= end + _CLOCK_STEP]
        upper = after[1] if len(after) > 1 else None
    return lower, upper


def _marks(file: LogFile, queues: Sequence[QueueFiles]) -> list[tuple[int, int]]:
    """Return physical offsets of some records in a file, with their store times (ms), in order.

    Return none if the times do not rise, if no queue has enough entries there, or if the file is not a commit log or
    is on object storage.
    """
    if file.kind is not LogKind.COMMIT_LOG or is_far(file.directory):
        return []
    simple = (queue for queue in queues if not queue.is_batch)
    largest = sorted(simple, key=lambda queue: -sum(part.size for part in queue.files))
    try:
        for queue in largest[:_MOST_TRIED]:
            named = read_places([queue], Selection(), file.base_offset, file.end_offset)
            if named is not None and len(named.places) >= _MARKS:
                every = named.places[:: len(named.places) // _MARKS].tolist()
                with file.open() as opened:
                    times = [_time_at(opened, file, place - file.base_offset) for place in every]
                marks = [(place, time) for place, time in zip(every, times, strict=True) if time is not None]
                return marks if marks == sorted(marks, key=lambda mark: mark[1]) else []
    except ReadFailed:  # the queues are only a help
        pass
    return []


def plan_ranges(file: LogFile, start: int = 0, size: int = RANGE) -> Iterator[Range]:
    """Yield the ranges of a file from ``start`` on.

    A range that does not begin with the file begins at a guess. A DLedger file is one range, from its beginning.
    """
    if file.kind is LogKind.DLEDGER:
        yield Range(file)
        return
    begins = range(start, max(file.size, start + 1), size)
    for begin in begins:
        stop = begin + size
        yield Range(file, begin, stop if stop < file.size else None, is_guess=begin > 0)


def find_gaps(plan: Plan) -> dict[LogFile, list[Damage]]:
    """Return the missing bytes between files as damage, by the file after the gap."""
    files = plan.files
    usual = usual_size_of(plan)
    return {
        after: _missing_between(before, after, usual)
        for before, after in pairwise(files)
        if after.base_offset > before.end_offset and after.kind is not LogKind.COMPACTION
    }


def usual_size_of(plan: Plan) -> int:
    """Return the size of most files of the log; the files of a tier have none in common."""
    return plan.usual_size or usual_size([file for file in plan.files if file.tier is None])


def _missing_between(before: LogFile, after: LogFile, usual: int) -> list[Damage]:
    """Return the missing bytes between two files; those of a queue's log in a tier have no usual size."""
    if after.tier is None:
        return list(missing_after(before.name, before, after.base_offset, usual))
    length, end = after.base_offset - before.end_offset, before.record_base + before.size
    return [Damage("CL-GAP", before.name, before.size, length, _missing(end, end + length))]


def missing_after(name: str, before: Sized, end: int, usual: int) -> Iterator[Damage]:
    """Yield the missing bytes between a file of a log and the next one, which begins at ``end``.

    A file that is shorter than the ``usual`` size was cut; what is missing after that are files.
    """
    begin = before.base_offset + before.size
    following = min(next_base(before, usual), end)
    if begin < following:
        text = f"{before.size} bytes, the others have {usual}: {_missing(begin, following)}"
        yield Damage("CL-SIZE", name, before.size, following - begin, text)
    if following < end:
        file = join(split(name)[0], paths.segment_name(following))
        yield Damage("CL-GAP", file, 0, end - following, _missing(following, end))


def _missing(begin: int, end: int) -> str:
    return f"{end - begin} bytes of the log are missing from {begin} on"


class Answer(Protocol):
    """The bounds that a range turned out to have, and its leftover; each kind of work adds a result of its own."""

    @property
    def began(self) -> int | None:
        """The file offset of the first record, None without one."""

    @property
    def reached(self) -> int | None:
        """The file offset where the next range begins; None if no record was found or reading failed."""

    @property
    def left_over(self) -> Damage | None:
        """The bytes after the last record, if only the next file tells whether they are damage; else None."""


A = TypeVar("A", bound=Answer)

_NO_PROGRESS = NoProgress()


def nominal_ranges(plan: Plan, physical_from: int = 0, size: int = RANGE) -> list[Range]:
    """Return the ranges of the wanted files from a physical offset on, all of which can be read ahead."""
    size = plan.covered_range if plan.queues else size
    return [part for file in plan.wanted for part in plan_ranges(file, max(physical_from - file.base_offset, 0), size)]


def iter_answers(
    plan: Plan,
    ranges: Sequence[Range],
    read: Callable[[Range], A],
    ahead: Iterator[A] | None = None,
    progress: Progress = _NO_PROGRESS,
) -> Iterator[A | Damage | Note]:
    """Yield the answers to all ``ranges`` in order, and the damage and notes that are between files.

    ``ahead`` are answers to the ranges as planned. One that began in the wrong place is dropped, and ``read`` reads the
    range again. An answer may still be incomplete when it is yielded; its ``reached`` is read when the next one is
    asked for.
    """
    gaps = find_gaps(plan)
    progress.start("reading", sum(map(range_length, ranges)), "bytes")
    file: LogFile | None = None
    at: int | None = None
    settled = False
    for asked in ranges:
        early = next(ahead) if ahead is not None else None
        if asked.file != file:
            file, at = asked.file, None if asked.is_guess else asked.start
            settled = False
            yield from gaps.get(file, ())
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
    """Return the planned length of a range."""
    return _end(asked) - asked.start


def judge_rest(left_over: Damage, plan: Plan, file: LogFile) -> Iterator[Damage | Note]:
    """Yield damage or a note for what comes after the last record of a file, or nothing if it is normal."""
    place = f"{left_over.file}@{left_over.file_offset}"
    begin = file.base_offset + left_over.file_offset
    damage = as_damage(left_over, records_follow=plan.has_records_after(file), live=plan.live)
    if damage is not None:
        yield damage
    elif left_over.code == UNWRITTEN:
        # Places in a tier are not those that the entries of the store name.
        extent = plan.find_extent(begin, file.end_offset) if file.tier is None else None
        if extent is not None:
            text = "zeros where queues expect messages"
            yield left_over._replace(code="CL-MAGIC", length=extent - begin, message=text)
    elif left_over.code == STALE:
        text = f"after the end of the log, at {place}, are records that a recovery cut off: they are left out"
        yield Note(text)
    elif left_over.code == TORN:
        yield Note(f"the record at {place} is incomplete: a broker is writing it")


def find_missing_end(plan: Plan, *, settled: bool) -> Iterator[Damage]:
    """Yield damage if queues point past the last file.

    ``settled``: what comes after its last record was judged already.
    """
    files = [file for file in plan.files if file.tier is None]
    if not files and plan.witnesses:
        text = f"{LOG_IS_EMPTY}: is its volume mounted?"
        yield Damage("ST-MOUNT", paths.COMMIT_LOG, 0, 0, text)
    if not files or settled:
        return
    last = files[-1]
    extent = plan.find_extent(last.end_offset)
    if extent is not None:
        text = f"the log ends at {last.end_offset}, but queues point to messages up to {extent}"
        for damage in missing_after(last.name, last, extent, usual_size_of(plan)):
            yield damage._replace(message=text)


class Counted(NamedTuple):
    """The number of wanted messages in a range, and its damage."""

    messages: int
    damages: list[Damage]


@dataclass(frozen=True, slots=True)
class Answered:
    """An ``Answer`` with the result of the work: ``found`` is its value, ``data`` the pieces of its output."""

    began: int | None
    reached: int | None
    left_over: Damage | None
    found: Any
    data: tuple[Buffer, ...] = ()


# The work for one range. One such value is called by several threads at once, so it must not change itself.
RangeWork = Callable[[Range, Write], Answered]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many threads may work, and where progress is reported."""

    jobs: int = 1
    progress: Progress = _NO_PROGRESS


def run_ranges(plan: Plan, ranges: list[Range], work: RangeWork, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the result of ``work`` for each range in order, and the damage and notes that are between files."""

    def here(asked: Range) -> Answered:
        written: list[Buffer] = []
        return replace(work(asked, written.append), data=tuple(written))

    jobs = min(effort.jobs, len(ranges))
    if jobs < 2:
        yield from iter_answers(plan, ranges, here, None, effort.progress)
        return
    with closing(run_in_order([work] * jobs, ranges)) as results:
        ahead = (replace(done.value, data=tuple(done.data)) for done in results)
        yield from iter_answers(plan, ranges, here, ahead, effort.progress)
