"""Messages made ready for another log: their numbers, hosts and references, by columns and in a buffer of their own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints
from rmqtool.bulk.pieces import coded_texts
from rmqtool.bulk.records import Records
from rmqtool.bulk.rewriting import Packed, pack
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.topics import HALF_TOPIC, TIMER_TOPIC
from rmqtool.scan.numbering import Numbering, SourceQueues

# Topics whose records others name by their places in the log: committed messages, the timer log.
_NAMED_BY_PLACE = frozenset({HALF_TOPIC, TIMER_TOPIC})
# The place of a half message that is gone: before every log.
_GONE = 0


class Places:
    """Where records went that are named by their places: 16 bytes for each half message and each timed one."""

    def __init__(self) -> None:
        self._old: list[Ints] = []
        self._new: list[Ints] = []

    def add(self, old: Ints, new: Ints) -> None:
        """Learn the new places of records."""
        self._old.append(old)
        self._new.append(new)

    def find(self, wanted: Ints, missing: int) -> Ints:
        """Return the new places; ``missing`` for records that the copy does not have."""
        if len(self._old) > 1:
            self._old, self._new = [np.concatenate(self._old)], [np.concatenate(self._new)]
        if not self._old or not len(self._old[0]):
            return np.full(len(wanted), missing, np.int64)
        old, new = self._old[0], self._new[0]
        at = np.minimum(np.searchsorted(old, wanted), len(old) - 1)
        found: Ints = np.where(old[at] == wanted, new[at], missing)
        return found


class Moved(NamedTuple):
    """Records to append, and those that come behind all others."""

    records: Records
    packed: Packed
    late: Records | None


class SourceMove:
    """The way of one source's messages into the copy."""

    def __init__(self, numbering: Numbering, queues: SourceQueues) -> None:
        self.places = Places()
        self._numbering = numbering
        self._queues = queues

    def move(self, records: Records) -> Moved:
        """Return records with the numbers that they get."""
        numbered = self._numbering.number(records, self._queues)
        late = None
        if numbered.late.any():
            late, records = records.select(numbered.late), records.select(~numbered.late)
        offsets = numbered.queue_offsets[~numbered.late]
        return Moved(records, self._packed(records, offsets), late)

    def append(self, records: Records) -> Moved:
        """Return records that were late, numbered behind all others."""
        return Moved(records, self._packed(records, self._numbering.append(records)), None)

    def placed(self, moved: Moved, new: Ints) -> None:
        """Remember the places of those records that others name by them."""
        topics = coded_texts(moved.records.data, moved.records.topic_offsets, moved.records.topic_lengths)
        rows = np.flatnonzero(topics.each(lambda topic: topic in _NAMED_BY_PLACE, np.bool_))
        if len(rows):
            self.places.add(moved.records.column("physical_offset")[rows].astype(np.int64), new[rows])

    def _packed(self, records: Records, offsets: Ints) -> Packed:
        packed = pack(records)
        if (records.column("queue_offset") != offsets).any():
            packed.put("queue_offset", offsets)
        commits = records.column("sys_flag") & TRANSACTION_MASK == int(TransactionType.COMMIT)
        rows = np.flatnonzero(commits)
        if len(rows):
            named = records.column("prepared_transaction_offset")[rows].astype(np.int64)
            packed.put("prepared_transaction_offset", self.places.find(named, _GONE), rows)
        return packed
