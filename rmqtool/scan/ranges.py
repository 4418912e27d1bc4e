"""Work on every range of a log, here or in several processes, and its answers in the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rmqtool.formats.layout import Buffer
from rmqtool.progress import NoProgress, Progress
from rmqtool.scan.chain import iter_answers, range_length
from rmqtool.scan.plan import RANGE, Plan
from rmqtool.scan.pool import Write, run_in_order
from rmqtool.scan.reading import Damage, Note, Range

# Below this starting processes takes longer than reading.
_ALONE = 8 * RANGE
_UNSEEN = NoProgress()


class Counted(NamedTuple):
    """How many messages were found in a range, and which damages."""

    messages: int
    damages: list[Damage]


@dataclass(frozen=True, slots=True)
class Answered:
    """What work made of a range; see ``RangeReader``.

    ``found`` is its own value, ``data`` what it wrote, in pieces: they stay until the next answer is asked for.
    """

    began: int | None
    reached: int | None
    left_over: Damage | None
    found: Any
    data: tuple[Buffer, ...] = ()


RangeWork = Callable[[Range, Write], Answered]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many processes may work, and who is told how far they are."""

    jobs: int = 1
    progress: Progress = _UNSEEN


def run_ranges(plan: Plan, ranges: list[Range], work: RangeWork, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield what ``work`` makes of the ranges, and what lies between files."""

    def here(asked: Range) -> Answered:
        written: list[Buffer] = []
        return replace(work(asked, written.append), data=tuple(written))

    if effort.jobs == 1 or sum(map(range_length, ranges)) < _ALONE:
        yield from iter_answers(plan, ranges, here, None, effort.progress)
        return
    with closing(run_in_order(work, ranges, effort.jobs)) as results:
        ahead = (replace(done.value, data=(done.data,) if done.data else ()) for done in results)
        yield from iter_answers(plan, ranges, here, ahead, effort.progress)
