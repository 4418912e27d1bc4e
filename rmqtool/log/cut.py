"""The place at which a log must end, so that it has no message of a certain time or later.

The log decides, in its own order: it ends before the first valid record that was stored at the time or later, and all
after that is left out. A message after it may be older, because the clock of the broker was set back. Such messages are
counted: a log is cut at one place, and cannot leave out a message in its middle.

Damaged ranges are skipped. A record without a readable time decides nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmqtool.columns.records import Records
from rmqtool.filters.wanted import want
from rmqtool.log.ranges import Effort, read_plan
from rmqtool.log.read import Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import Source
from rmqtool.log.stream import iter_parts


@dataclass
class Cut:
    """The end of the log, and the messages after it that are left out: their number by topic, and their times."""

    offset: int
    bytes: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    # Messages that were stored before the time, after one that was not: the clock was set back.
    stored_before: int = 0
    topics: Counter[str] = field(default_factory=Counter)
    # The queues, by topic and number, that have a message after the end.
    queues: set[tuple[str, int]] = field(default_factory=set)

    def as_json(self) -> dict[str, Any]:
        """Return ``cut`` of the JSON of a recovery."""
        return {
            "offset": self.offset,
            "messages": self.topics.total(),
            "bytes": self.bytes,
            "firstStoreTimestamp": self.first_timestamp,
            "lastStoreTimestamp": self.last_timestamp,
            "storedBefore": self.stored_before,
            "topics": dict(sorted(self.topics.items())),
        }


def find_cut(source: Source, until: int, effort: Effort) -> Cut | None:
    """Return where the log must end, in one reading of it; None if nothing was stored at the time or later."""
    selection = Selection.of(want())
    files = [file for file in source.files if file.tier is None]  # a tier is not cut
    effort.progress.start("reading", sum(file.size for file in files), "bytes")
    cut: Cut | None = None
    for part in iter_parts(read_plan(files, selection, source.queues), selection, effort):
        if not isinstance(part, Part):
            continue
        records = part.records
        if cut is None:
            late = np.flatnonzero(records.column("store_timestamp") >= until)
            if not len(late):
                continue
            records = records.select(slice(int(late[0]), len(records)))
            first = int(records.column("store_timestamp")[0])
            cut = Cut(int(records.column("physical_offset")[0]), 0, first, first)
        _count(cut, records, until)
    effort.progress.finish()
    return cut


def _count(cut: Cut, records: Records, until: int) -> None:
    """Add ``records``, all after the end of the cut log, to the counts of ``cut``."""
    times = records.column("store_timestamp")
    cut.bytes += int(records.column("total_size").sum())
    cut.first_timestamp = min(cut.first_timestamp, int(times.min()))
    cut.last_timestamp = max(cut.last_timestamp, int(times.max()))
    cut.stored_before += int((times < until).sum())
    topics = records.topics
    for number, count in enumerate(np.bincount(topics.codes, minlength=len(topics.values)).tolist()):
        if count:
            cut.topics[topics.values[number]] += count
    for number, queue_id in np.unique(np.stack([topics.codes, records.column("queue_id")]), axis=1).T.tolist():
        cut.queues.add((topics.values[number], queue_id))
