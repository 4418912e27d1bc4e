"""Runs of sound records as columns: the result of the record check for most of a log, at a fraction of its cost.

A batch takes a record only if each test of ``RecordCheck`` passes; all others are left to that class. Nothing is
dispatched here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.formats.codes import HOST_BITS, RECORD_MAGICS
from rmqtool.formats.commit_log import PREFIXES, Message
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.formats.java import int32
from rmqtool.formats.property_names import INNER_MULTI_DISPATCH
from rmqtool.formats.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqtool.columns.properties import Properties
    from rmqtool.columns.records import Records

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_QUEUE_ID_BITS, _QUEUE_ID_MASK = 32, 0xFFFFFFFF
# Such records are in further queues, which the columns do not have; they are dispatched one by one.
_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()
# Below this, sums of sizes and places are far from Java's overflows.
_HIGHEST_OFFSET = 1 << 62


class Run(NamedTuple):
    """Sound records of a batch, from number ``first`` to before ``last``."""

    batch: Batch
    first: int
    last: int

    @property
    def last_start(self) -> int:
        """The start of the last record, counted from the first."""
        return int(self.batch.starts[self.last - 1] - self.batch.starts[self.first])

    @property
    def size(self) -> int:
        """The bytes of all records."""
        return int(self.batch.ends[self.last - 1] - self.batch.starts[self.first])

    @property
    def lies_apart(self) -> bool:
        """Whether no record claims to begin before the end of the one before it."""
        begins = self.batch.physical_offsets[self.first + 1 : self.last]
        return bool((begins >= self.batch.physical_ends[self.first : self.last - 1]).all())

    def messages(self) -> Iterator[Message]:
        """Yield the records one by one."""
        return map(self.batch.message, range(self.first, self.last))


class Batch:
    """Consecutive records in a buffer. Each column has one value for each record."""

    def __init__(self, records: Records, rules: DispatchRules) -> None:
        self._records = records
        self._rules = rules
        self.starts: Numbers = records.file_offsets
        self.total_sizes = self._column("total_size")
        self.ends: Numbers = self.starts + self.total_sizes
        self.physical_offsets = self._column("physical_offset")
        self.queue_ids = self._column("queue_id")
        self.queue_offsets = self._column("queue_offset")

    def __len__(self) -> int:
        return len(self.starts)

    def _column(self, name: str) -> Numbers:
        found: Numbers = self._records.column(name).astype("int64")
        return found

    def pieces(self, crc: bool) -> Iterator[Run | None]:
        """Yield the records in runs, and None for each record that is left to the record check."""
        first = 0
        for odd in [*self._find_odd(crc), len(self)]:
            if odd > first:
                yield Run(self, first, odd)
            if odd < len(self):
                yield None
            first = odd + 1

    def _find_odd(self, crc: bool) -> list[int]:
        import numpy as np

        from rmqtool.columns.records import have_right_crc

        if self._rules.multi_dispatch and _MULTI_DISPATCH in self._records.data.tobytes():
            return list(range(len(self)))
        sound = (self.physical_offsets >= 0) & (self.physical_offsets < _HIGHEST_OFFSET)
        sound &= self._records.topics.each(lambda topic: topic != SCHEDULE_TOPIC, np.bool_)
        if crc:
            sound &= have_right_crc(self._records)
        return [int(number) for number in np.flatnonzero(~sound)]

    @cached_property
    def queue_keys(self) -> Numbers:
        """A number for the queue of each record; ``queue_of`` decodes it."""
        found: Numbers = self._records.topics.codes.astype("int64") << _QUEUE_ID_BITS
        return found | self.queue_ids & _QUEUE_ID_MASK

    def queue_of(self, key: int) -> tuple[str, int]:
        """Return topic and queue id of a number of ``queue_keys``."""
        return self._records.topics.values[key >> _QUEUE_ID_BITS], int32(key)

    def message(self, number: int) -> Message:
        """Return one record without its body."""
        records = self._records
        at = int(self.starts[number])
        sys_flag = int(records.column("sys_flag")[number])
        values = PREFIXES[sys_flag & HOST_BITS].unpack_from(records.data.data, at)
        topic = int(records.topic_offsets[number])
        properties = int(records.properties_offsets[number])
        raw_topic = records.data[topic : topic + int(records.topic_lengths[number])].tobytes()
        raw_properties = records.data[properties : int(self.ends[number])].tobytes()
        return Message._make((*values, b"", raw_topic, raw_properties))

    @cached_property
    def ascends(self) -> bool:
        """Whether each record claims to be after the one before it."""
        import numpy as np

        return bool((np.diff(self.physical_offsets) > 0).all())

    @cached_property
    def physical_ends(self) -> Numbers:
        """Where each record claims to end."""
        return self.physical_offsets + self.total_sizes

    @cached_property
    def store_timestamps(self) -> Numbers:
        """The store time of each record."""
        return self._column("store_timestamp")

    @cached_property
    def has_unit(self) -> Flags:
        """Whether each record has a queue entry."""
        from rmqtool.columns.queues import have_queue_unit

        return have_queue_unit(self._records)

    @cached_property
    def index_texts(self) -> Numbers:
        """The number of index entries of each record."""
        import numpy as np

        from rmqtool.columns.dispatched import index_keys

        rows = index_keys(self._records, self._properties, self._rules).rows
        return np.bincount(rows, minlength=len(self))

    @cached_property
    def tags_codes(self) -> Numbers:
        """The tags code in each record's queue entry."""
        from rmqtool.columns.queues import tags_codes

        return tags_codes(self._records, self._properties, self._records.topics, self._rules)

    @cached_property
    def _properties(self) -> Properties:
        from rmqtool.columns.properties import decode_properties

        return decode_properties(self._records)


def read_batch(data: bytes, at: int, end: int, magics: Collection[int], rules: DispatchRules) -> Batch:
    """Return the whole records from ``at`` on, each found by the size of the one before; all are before ``end``.

    A version that does not know a magic number ends there.
    """
    import numpy as np

    from rmqtool.columns.records import decode_records
    from rmqtool.columns.starts import record_starts

    records, _ = decode_records(data, record_starts(data, at, end).file_offsets, end)
    if len(magics) < len(RECORD_MAGICS):
        known = np.isin(records.column("magic").astype(np.int32).view(np.uint32), list(magics))
        if not known.all():
            records = records.select(slice(int(known.argmin())))
    return Batch(records, rules)
