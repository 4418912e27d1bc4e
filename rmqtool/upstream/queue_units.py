"""The entries of all queues, found by the place in the log that they point to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1
from rmqtool.formats.commit_log import PREFIXES, Message
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.java import encode_text
from rmqtool.upstream.consume_queues import ConsumeQueue
from rmqtool.upstream.files import StoreView
from rmqtool.upstream.index_counts import gather, gather_field, stand_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Octets = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

# Entries that are read, or skipped, at once.
_BLOCK = 4096
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_LONGEST_PREFIX = layouts.MESSAGE_PREFIX_V6V6.size


class _Block(NamedTuple):
    """Neighbouring entries in a file of a queue, and the lowest and highest offset that they point to."""

    queue_no: int
    path: str
    file_offset: int
    units: int
    low: int
    high: int


class QueueUnits:
    """The entries that the queues offer: those between their minimum and maximum offsets."""

    def __init__(self, files: StoreView, queues: Iterable[ConsumeQueue]) -> None:
        import numpy as np

        self._files = files
        self._dtype = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
        self._queues = list(queues)
        self._blocks = [
            block for queue_no, queue in enumerate(self._queues) for block in self._iter_blocks(queue_no, queue)
        ]
        self._lows = np.array([block.low for block in self._blocks], dtype=np.int64)
        self._highs = np.array([block.high for block in self._blocks], dtype=np.int64)

    def _iter_blocks(self, queue_no: int, queue: ConsumeQueue) -> Iterable[_Block]:
        for file in queue.mapped.mapped:
            first = file.start // UNIT_SIZE
            begin = max(queue.min_offset - first, 0)
            end = min(queue.max_offset - first, file.wrote // UNIT_SIZE)
            for number in range(begin, end, _BLOCK):
                block = _Block(queue_no, file.path, number * UNIT_SIZE, min(_BLOCK, end - number), 0, 0)
                offsets = self._read(block)["physical_offset"]
                yield block._replace(low=int(offsets.min()), high=int(offsets.max()))

    def _read(self, block: _Block) -> Any:
        import numpy as np

        data = self._files.read_exactly(block.path, block.file_offset, block.units * UNIT_SIZE)
        return np.frombuffer(data, dtype=self._dtype)

    def within(self, begin: int, end: int) -> UnitsWithin:
        """Return the entries that point into a range of the log."""
        import numpy as np

        offsets, sizes, numbers = [], [], []
        for block_no in np.flatnonzero((self._lows < end) & (self._highs >= begin)):
            block = self._blocks[block_no]
            units = self._read(block)
            units = units[(units["physical_offset"] >= begin) & (units["physical_offset"] < end)]
            offsets.append(units["physical_offset"].astype(np.int64))
            sizes.append(units["size"].astype(np.int64))
            numbers.append(np.full(len(units), block.queue_no, dtype=np.int64))
        empty = np.empty(0, dtype=np.int64)
        return UnitsWithin(self._queues, *(np.concatenate([empty, *part]) for part in (offsets, sizes, numbers)))


class UnitsWithin:
    """The entries that point into one range of the log."""

    def __init__(self, queues: Sequence[ConsumeQueue], offsets: Numbers, sizes: Numbers, queue_nos: Numbers) -> None:
        import numpy as np

        order = np.argsort(offsets, kind="stable")
        self._queues = queues
        self._offsets = offsets[order]
        self._sizes = sizes[order]
        self._queue_nos = queue_nos[order]

    def has(self, message: Message) -> bool:
        """Return whether the message's own queue has an entry for it, at any queue offset."""
        import numpy as np

        first = int(np.searchsorted(self._offsets, message.physical_offset))
        last = int(np.searchsorted(self._offsets, message.physical_offset, side="right"))
        for i in range(first, last):
            queue = self._queues[int(self._queue_nos[i])]
            mine = queue.topic == message.topic and queue.queue_id == message.queue_id
            if mine and int(self._sizes[i]) == message.total_size:
                return True
        return False

    def unmatched(self, data: bytes, at: Numbers, physical_offset: int) -> list[int]:
        """Return the places of records that have no entry in their own queue.

        ``data`` is the log from ``physical_offset`` on. A record that continues after it counts as unmatched.
        """
        import numpy as np

        units = np.searchsorted(self._offsets, at + physical_offset)
        inside = (units < len(self._offsets)) & (at <= len(data) - _LONGEST_PREFIX)
        inside[inside] = self._offsets[units[inside]] == at[inside] + physical_offset
        candidates = np.flatnonzero(inside)
        matches = self._matches(np.frombuffer(data, dtype=np.uint8), at[candidates], units[candidates])
        rest = np.ones(len(at), dtype=bool)
        rest[candidates[matches]] = False
        return [int(start) for start in at[rest]]

    def _matches(self, octets: Octets, at: Numbers, units: Numbers) -> Flags:
        """Compare records with the entries that point to them, all at once: size, queue and topic."""
        import numpy as np

        prefix_sizes = np.array([PREFIXES[bits << 4].size for bits in range(4)], dtype=np.int64)
        queue_ids = np.array([queue.queue_id for queue in self._queues], dtype=np.int64)
        names = [encode_text(queue.topic) for queue in self._queues]
        topic_lengths = np.array([len(name) for name in names], dtype=np.int64)
        topics = {name: number for number, name in enumerate(dict.fromkeys(names))}
        topic_nos = np.array([topics[name] for name in names], dtype=np.int64)
        wanted = self._queue_nos[units]
        body_at = at + prefix_sizes[gather_field(octets, at, _PREFIX, "sys_flag") >> 4 & 3]
        length_at = body_at + gather(octets, body_at - layouts.INT.size, layouts.INT)
        matches: Flags = (
            (gather_field(octets, at, _PREFIX, "total_size") == self._sizes[units])
            & (gather_field(octets, at, _PREFIX, "queue_id") == queue_ids[wanted])
            & (length_at >= body_at)
            & (length_at < len(octets) - topic_lengths[wanted] - layouts.SHORT.size)
        )
        length_at[~matches] = 0
        v1 = gather_field(octets, at, _PREFIX, "magic") == MESSAGE_MAGIC_V1
        lengths = np.where(v1, octets[length_at], gather(octets, length_at, layouts.SHORT))
        matches &= lengths == topic_lengths[wanted]
        topic_at = length_at + np.where(v1, 1, layouts.SHORT.size)
        wanted_topics = topic_nos[wanted]
        for name, number in topics.items():
            rows = np.flatnonzero(matches & (wanted_topics == number))
            if len(rows):
                matches[rows] = stand_at(octets, topic_at[rows], name)
        return matches
