"""Runs of sound records as columns: the result of the record check for most of a log, at a fraction of its cost.

A batch takes a record only if each test of ``RecordCheck`` passes; all others are left to that class. Nothing is
dispatched here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import (
    HOST_BITS,
    MESSAGE_MAGIC_V1,
    RECORD_MAGICS,
    TRANSACTION_MASK,
    SysFlag,
    TransactionType,
)
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, PREFIXES, Message
from rmqtool.formats.java import INT_MAX, fastest_crc32, int32
from rmqtool.formats.property_names import INNER_MULTI_DISPATCH
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.upstream.index_counts import NamedValues, cut_out, find_starts, gather, gather_field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_START = layouts.RECORD_START
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_STORE_TIMESTAMP = _PREFIX.field("store_timestamp").offset
_LONGER_HOST = layouts.MESSAGE_PREFIX_V6V4.field("store_timestamp").offset - _STORE_TIMESTAMP
_LENGTH = layouts.INT.size
_BITS = 4
_QUEUE_ID_BITS, _QUEUE_ID_MASK = 32, 0xFFFFFFFF
_RAW_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
# Such records are in further queues, which the columns do not have; they are dispatched one by one.
_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()
# Records that are walked one by one to learn their mean size. Searching the bytes of a record takes as long as one step
# of the walk if it has this many bytes. The last number: with fewer records between breaks, steps are faster too.
_SAMPLE, _LONG, _FEWEST_PER_BREAK = 16, 1500, 16
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
    """Consecutive records in ``data``. Each column has one value for each record."""

    def __init__(self, data: bytes, starts: Sequence[int] | Numbers, multi_dispatch: bool) -> None:
        import numpy as np

        self.data = data
        self._octets = np.frombuffer(data, np.uint8)
        self.starts: Numbers = np.array(starts, dtype=np.int64)
        self.total_sizes = self._field("total_size")
        self.physical_offsets = self._field("physical_offset")
        self.queue_ids = self._field("queue_id")
        self.queue_offsets = self._field("queue_offset")
        self.sys_flags = self._field("sys_flag")
        self._v1: Flags = self._field("magic") == MESSAGE_MAGIC_V1
        self._multi_dispatch = multi_dispatch and _MULTI_DISPATCH in data
        self._lay_out()

    def __len__(self) -> int:
        return len(self.starts)

    def _field(self, name: str) -> Numbers:
        return gather_field(self._octets, self.starts, _PREFIX, name)

    def _lay_out(self) -> None:
        """Find where the parts of each record begin; ``sound`` is whether their sizes add up."""
        import numpy as np

        ends = self.starts + self.total_sizes
        prefix_sizes = np.array([PREFIXES[bits << _BITS].size for bits in range(4)], dtype=np.int64)
        self.body_at: Numbers = self.starts + prefix_sizes[(self.sys_flags & HOST_BITS) >> _BITS]
        room = self.body_at + layouts.SHORT.size < ends
        last = len(self.data) - layouts.LONG.size
        body_length = gather(self._octets, np.minimum(self.body_at - _LENGTH, last), layouts.INT)
        self.body_end: Numbers = self.body_at + body_length
        sound = room & (body_length >= 0) & (self.body_end + layouts.SHORT.size < ends)
        topic_at = np.where(sound, self.body_end, 0)
        short = gather(self._octets, topic_at, layouts.SHORT)
        topic_length = np.where(self._v1, self._octets[topic_at].view(np.int8), short)
        self.topic_at: Numbers = topic_at + np.where(self._v1, 1, layouts.SHORT.size)
        self.topic_end: Numbers = self.topic_at + topic_length
        self.properties_at: Numbers = self.topic_end + layouts.SHORT.size
        sound &= (topic_length >= 0) & (self.properties_at <= ends)
        properties_length = gather(self._octets, np.where(sound, self.topic_end, 0), layouts.SHORT)
        sound &= (properties_length >= 0) & (self.properties_at + properties_length == ends)
        sound &= (self.physical_offsets >= 0) & (self.physical_offsets < _HIGHEST_OFFSET)
        self.topic_end[~sound] = 0
        self.ends: Numbers = ends
        self.sound: Flags = sound & (not self._multi_dispatch)

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

        sound = self.sound.copy()
        if _RAW_SCHEDULE_TOPIC in self.topics:
            sound &= np.array([topic != _RAW_SCHEDULE_TOPIC for topic in self.topics], dtype=bool)
        if crc:
            view, crc32 = memoryview(self.data), fastest_crc32()
            ends = np.where(sound, self.body_end, self.body_at)
            spans = zip(self.body_at.tolist(), ends.tolist(), strict=True)
            found = np.fromiter((crc32(view[begin:end]) for begin, end in spans), np.int64, len(self))
            sound &= (found & INT_MAX == self._field("body_crc")) | (self.body_at == self.body_end)
        return [int(number) for number in np.flatnonzero(~sound)]

    @cached_property
    def topics(self) -> list[bytes]:
        """The topic of each record whose sizes add up."""
        return cut_out(self.data, self.topic_at, self.topic_end)

    @cached_property
    def queue_keys(self) -> Numbers:
        """A number for the queue of each record; ``queue_of`` decodes it."""
        import numpy as np

        number_of = {topic: number for number, topic in enumerate(self._distinct_topics)}
        topics = np.fromiter(map(number_of.__getitem__, self.topics), np.int64, len(self))
        return topics << _QUEUE_ID_BITS | self.queue_ids & _QUEUE_ID_MASK

    @cached_property
    def _distinct_topics(self) -> list[bytes]:
        return list(dict.fromkeys(self.topics))

    def queue_of(self, key: int) -> tuple[bytes, int]:
        """Return topic and queue id of a number of ``queue_keys``."""
        return self._distinct_topics[key >> _QUEUE_ID_BITS], int32(key)

    def message(self, number: int) -> Message:
        """Return one record without its body."""
        at = int(self.starts[number])
        values = PREFIXES[int(self.sys_flags[number]) & HOST_BITS].unpack_from(self.data, at)
        topic = self.data[int(self.topic_at[number]) : int(self.topic_end[number])]
        properties = self.data[int(self.properties_at[number]) : int(self.ends[number])]
        return Message._make((*values, b"", topic, properties))

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
        import numpy as np

        at = self.starts + _STORE_TIMESTAMP + np.where(self.sys_flags & SysFlag.BORN_HOST_V6, _LONGER_HOST, 0)
        return gather(self._octets, at, layouts.LONG)

    @cached_property
    def has_unit(self) -> Flags:
        """Whether each record has a queue entry."""
        kind = self.sys_flags & TRANSACTION_MASK
        found: Flags = (kind == TransactionType.NONE) | (kind == TransactionType.COMMIT)
        return found

    def index_texts(self, tags: bool) -> Numbers:
        """Return the number of index entries of each record."""
        import numpy as np

        known = self._texts.get(tags)
        if known is None:
            counts = self._named_values.count_texts(tags=tags)
            rolled_back = self.sys_flags & TRANSACTION_MASK == TransactionType.ROLLBACK
            known = self._texts[tags] = np.where(rolled_back, 0, counts)
        return known

    @cached_property
    def tags_codes(self) -> Numbers:
        """The tags code in each record's queue entry."""
        return self._named_values.tags_hashes()

    @cached_property
    def _named_values(self) -> NamedValues:
        return NamedValues(cut_out(self.data, self.properties_at, self.ends))

    @cached_property
    def _texts(self) -> dict[bool, Numbers]:
        return {}


def walk(data: bytes, at: int, end: int, magics: Collection[int]) -> Sequence[int] | Numbers:
    """Return the starts of records from ``at`` on, each found by the size of the one before; all are before ``end``."""
    import numpy as np

    first = _walk_one_by_one(data, at, end, magics, _SAMPLE)
    if len(first) < _SAMPLE:
        return first
    mean = (first[-1] - at) // (_SAMPLE - 1)
    found = _walk_by_magics(data, first[-1], end, magics, mean) if mean < _LONG else None
    return _walk_one_by_one(data, at, end, magics) if found is None else np.concatenate((first[:-1], found))


def _walk_by_magics(data: bytes, at: int, end: int, magics: Collection[int], mean: int) -> Numbers | None:
    """Return the starts that a walk from ``at`` finds, computed from all places with a magic number.

    Each place leads to the one after its record; places within a record are not reached. Returns None if bodies have
    too many magic numbers, so that a walk one by one is faster.
    """
    import numpy as np

    octets = np.frombuffer(data, np.uint8)
    starts = find_starts(octets[at:end]) + at
    starts = starts[: int(np.searchsorted(starts, end - _PREFIX.size, side="right"))]
    due = (end - at) // mean
    if len(starts) > 2 * due + _SAMPLE:
        return None
    sizes = gather_field(octets, starts, _START, "total_size")
    magic = gather_field(octets, starts, _START, "magic")
    good = (sizes >= MIN_RECORD_SIZE) & (starts + sizes <= end)
    for other in set(RECORD_MAGICS).difference(magics):
        good &= magic != other
    leads_on = good[:-1] & (starts[:-1] + sizes[:-1] == starts[1:])
    breaks = np.append(np.flatnonzero(~leads_on), len(starts) - 1)
    if len(breaks) > due // _FEWEST_PER_BREAK + 1:
        return None
    parts, step = [], 0
    while step < len(starts):
        last = int(breaks[np.searchsorted(breaks, step)])
        parts.append(starts[step : last + int(good[last])])
        if not good[last]:
            break
        step = int(np.searchsorted(starts, starts[last] + sizes[last]))
        if step < len(starts) and starts[step] != starts[last] + sizes[last]:
            break
    return np.concatenate(parts)


def _walk_one_by_one(data: bytes, at: int, end: int, magics: Collection[int], most: int | None = None) -> list[int]:
    unpack = _START.unpack_from
    starts: list[int] = []
    last = end - _PREFIX.size
    while at <= last and len(starts) != most:
        total_size, magic = unpack(data, at)
        if magic not in magics or total_size < MIN_RECORD_SIZE or at + total_size > end:
            break
        starts.append(at)
        at += total_size
    return starts
