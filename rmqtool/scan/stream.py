"""A log as an ordered stream of wanted messages, with damage and notes in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqtool.scan.chain import iter_answers, nominal_ranges
from rmqtool.scan.covering import CoveredReader, reader_of
from rmqtool.scan.lines import LineWork
from rmqtool.scan.plan import RANGE, Plan
from rmqtool.scan.pool import Write
from rmqtool.scan.queue_units import QueueFiles
from rmqtool.scan.ranges import Answered, Counted, Effort, run_ranges
from rmqtool.scan.reading import Damage, Note, Part, Range, RangeReader
from rmqtool.scan.selection import Selection

# Counting makes so little of so much that its ranges are larger.
_COUNTED_RANGE = 8 * RANGE


def iter_parts(plan: Plan, selection: Selection, effort: Effort) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages of a log in its order, in this process."""
    ranges = nominal_ranges(plan, selection.physical_from)

    def read(asked: Range) -> RangeReader | CoveredReader:
        return reader_of(asked, selection, plan.queues)

    for answer in iter_answers(plan, ranges, read, None, effort.progress):
        if isinstance(answer, Damage | Note):
            yield answer
        else:
            yield from answer.parts()


def iter_line_answers(plan: Plan, selection: Selection, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the lines of the wanted messages in the order of the log; ``found`` is what they hold, ``Lined``."""
    return run_ranges(plan, nominal_ranges(plan, selection.physical_from), LineWork(selection, plan.queues), effort)


def iter_counts(plan: Plan, selection: Selection, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield how many messages are wanted, range by range. No body is looked at that no question is about."""
    ranges = nominal_ranges(plan, selection.physical_from, _COUNTED_RANGE)
    return run_ranges(plan, ranges, CountWork(selection, plan.queues), effort)


@dataclass(frozen=True)
class CountWork:
    """Counts the wanted messages of ranges."""

    selection: Selection
    queues: Sequence[QueueFiles]

    def __call__(self, asked: Range, write: Write) -> Answered:  # noqa: ARG002  (nothing is written)
        """Count the wanted messages of a range."""
        reader = reader_of(asked, self.selection, self.queues, checksums=False)
        messages, damages = 0, []
        for found in reader.parts():
            if isinstance(found, Part):
                messages += len(found.records)
            else:
                damages.append(found)
        return Answered(reader.began, reader.reached, reader.left_over, Counted(messages, damages))
