"""Where the last messages of a log begin, found from its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rmqtool.scan.chain import nominal_ranges
from rmqtool.scan.ordering import KeyWork, Order
from rmqtool.scan.plan import Plan
from rmqtool.scan.ranges import Answered, Effort, run_ranges
from rmqtool.scan.selection import Selection
from rmqtool.scan.sorting import COLUMNS, PLACE


def find_last_place(plan: Plan, selection: Selection, count: int, effort: Effort) -> int:
    """Return the place in the log of the first of the last ``count`` messages; 0 when there are not so many.

    Files are read from the last one on, until they hold enough.
    """
    left = count
    for file in reversed(plan.wanted):
        one = replace(plan, wanted=[file])
        places = np.concatenate([np.empty(0, np.int64), *_iter_places(one, selection, effort)])
        if len(places) >= left:
            return int(places[-left])
        left -= len(places)
    return 0


def _iter_places(plan: Plan, selection: Selection, effort: Effort) -> Iterator[np.ndarray]:
    work = KeyWork(selection, Order.LOG, plan.queues)
    for answer in run_ranges(plan, nominal_ranges(plan), work, effort):
        if isinstance(answer, Answered):
            yield np.frombuffer(b"".join(answer.data), np.int64).reshape(-1, COLUMNS)[:, PLACE]
