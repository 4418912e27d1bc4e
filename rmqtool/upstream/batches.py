"""Runs of sound records as columns: what the record check finds of most of a log, at a fraction of its cost.

A batch takes a record only when nothing about it is odd, with the tests of ``RecordCheck``; whatever else stands there
is left to that one. Nothing is dispatched here.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, TRANSACTION_MASK, SysFlag, TransactionType
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, PREFIXES, Message
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.upstream.gather import gather, gather_field
from rmqtool.upstream.index_counts import NamedValues

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
_HOST_BITS = 0x30
_BITS = 4
_RAW_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
# Dispatched to queues that no column names; their records go the other way.
_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
# Sums of lengths and places stay far from Java's overflows below this.
_HIGHEST_OFFSET = 1 << 62


class Run(NamedTuple):
    """Sound records of a batch, from one number to another."""

    batch: Batch
    first: int
    last: int

    @property
    def last_start(self) -> int:
        """Where the last one begins, counted from the first."""
        return int(self.batch.starts[self.last - 1] - self.batch.starts[self.first])

    @property
    def size(self) -> int:
        """The bytes of all of them."""
        return int(self.batch.ends[self.last - 1] - self.batch.starts[self.first])

    @property
    def lies_apart(self) -> bool:
        """Whether none says that it begins before the end of the one before it."""
        begins = self.batch.physical_offsets[self.first + 1 : self.last]
        return bool((begins >= self.batch.physical_ends[self.first : self.last - 1]).all())

    def messages(self) -> Iterator[Message]:
        """Yield them one by one."""
        return map(self.batch.message, range(self.first, self.last))


class Batch:
    """Records that stand one behind the other in ``data``. Each column has one value for each of them."""

    def __init__(self, data: bytes, starts: Sequence[int], multi_dispatch: bool) -> None:
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
        """Find where the parts of each record begin; ``sound`` says where they add up to its size."""
        import numpy as np

        ends = self.starts + self.total_sizes
        prefix_sizes = np.array([PREFIXES[bits << _BITS].size for bits in range(4)], dtype=np.int64)
        self.body_at: Numbers = self.starts + prefix_sizes[(self.sys_flags & _HOST_BITS) >> _BITS]
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
        """Yield the records in runs; None for each that is left to the record check."""
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
            view = memoryview(self.data)
            spans = zip(self.body_at.tolist(), self.body_end.tolist(), sound.tolist(), strict=True)
            found = [zlib.crc32(view[begin:end]) if is_sound else 0 for begin, end, is_sound in spans]
            same = np.array(found, dtype=np.int64) & INT_MAX == self._field("body_crc")
            sound &= same | (self.body_at == self.body_end)
        return [int(number) for number in np.flatnonzero(~sound)]

    @cached_property
    def topics(self) -> list[bytes]:
        """The topic of every record whose lengths add up."""
        data = self.data
        return [data[begin:end] for begin, end in zip(self.topic_at.tolist(), self.topic_end.tolist(), strict=True)]

    @cached_property
    def keys(self) -> list[tuple[bytes, int]]:
        """Topic and queue id of every record."""
        return list(zip(self.topics, self.queue_ids.tolist(), strict=True))

    def message(self, number: int) -> Message:
        """Return one record; its body is left out."""
        at = int(self.starts[number])
        values = PREFIXES[int(self.sys_flags[number]) & _HOST_BITS].unpack_from(self.data, at)
        topic = self.data[int(self.topic_at[number]) : int(self.topic_end[number])]
        properties = self.data[int(self.properties_at[number]) : int(self.ends[number])]
        return Message._make((*values, b"", topic, properties))

    @cached_property
    def ascends(self) -> bool:
        """Whether each record says that it lies behind the one before it."""
        import numpy as np

        return bool((np.diff(self.physical_offsets) > 0).all())

    @cached_property
    def physical_ends(self) -> Numbers:
        """Where each record says that it ends."""
        return self.physical_offsets + self.total_sizes

    @cached_property
    def store_timestamps(self) -> Numbers:
        """When each record was stored."""
        import numpy as np

        at = self.starts + _STORE_TIMESTAMP + np.where(self.sys_flags & SysFlag.BORN_HOST_V6, _LONGER_HOST, 0)
        return gather(self._octets, at, layouts.LONG)

    @cached_property
    def has_unit(self) -> Flags:
        """Whether each record stands in its queue."""
        kind = self.sys_flags & TRANSACTION_MASK
        found: Flags = (kind == TransactionType.NONE) | (kind == TransactionType.COMMIT)
        return found

    def index_texts(self, tags: bool) -> Numbers:
        """Return how many texts each record is indexed under."""
        import numpy as np

        known = self._texts.get(tags)
        if known is None:
            counts = self._named_values.count_texts(tags=tags)
            rolled_back = self.sys_flags & TRANSACTION_MASK == TransactionType.ROLLBACK
            known = self._texts[tags] = np.where(rolled_back, 0, counts)
        return known

    @cached_property
    def tags_codes(self) -> Numbers:
        """The tags code of each record's unit."""
        return self._named_values.tags_hashes()

    @cached_property
    def _named_values(self) -> NamedValues:
        data = self.data
        spans = zip(self.properties_at.tolist(), self.ends.tolist(), strict=True)
        return NamedValues([data[begin:end] for begin, end in spans])

    @cached_property
    def _texts(self) -> dict[bool, Numbers]:
        return {}


def walk(data: bytes, at: int, end: int, magics: Collection[int]) -> list[int]:
    """Return where records begin from ``at`` on, as far as each goes by its size; all lie in front of ``end``."""
    unpack = _START.unpack_from
    starts = []
    last = end - _PREFIX.size
    while at <= last:
        total_size, magic = unpack(data, at)
        if magic not in magics or total_size < MIN_RECORD_SIZE or at + total_size > end:
            break
        starts.append(at)
        at += total_size
    return starts
