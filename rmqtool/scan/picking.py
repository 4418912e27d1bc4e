"""The few messages among many that a broker keeps its own books with, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rmqtool.bulk.gather import Mask
from rmqtool.bulk.records import Records
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.scan.plan import Plan
from rmqtool.scan.ranges import Effort
from rmqtool.scan.reading import Damage, Part
from rmqtool.scan.selection import Selection
from rmqtool.scan.stream import iter_parts


def iter_picked(
    plan: Plan, selection: Selection, effort: Effort, topics: Callable[[str], bool], sys_flag: int = 0
) -> Iterator[Message | Damage]:
    """Yield the wanted messages of some topics, and of any topic those with one of some flags; and the damage."""
    for found in iter_parts(plan, selection, effort):
        if isinstance(found, Damage):
            yield found
        elif isinstance(found, Part):
            yield from _picked(found.records, topics, sys_flag)


def _picked(records: Records, topics: Callable[[str], bool], sys_flag: int) -> Iterator[Message]:
    names = records.topics
    wanted: Mask = names.each(topics, np.bool_)
    if sys_flag:
        wanted = wanted | (records.column("sys_flag") & sys_flag != 0)
    for at in records.file_offsets[np.flatnonzero(wanted)].tolist():
        message = decode_record(records.data.data, at)
        if isinstance(message, Message):
            yield message
