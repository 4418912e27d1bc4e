"""Queue files, index files and tails of records, made with the column functions: tests compare them with real files."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from rmqtool.columns.index_build import Keys, hang_in
from rmqtool.columns.queues import QueueRun
from rmqtool.formats import layouts
from rmqtool.formats.layouts import IndexHeader
from tests.support.builders import MAGIC_V1

FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def encode_tail(raw_topic: bytes, raw_properties: bytes, magic: int = MAGIC_V1) -> bytes:
    """What follows the body of a record: topic and properties, each after its length."""
    length = struct.pack(">b" if magic == MAGIC_V1 else ">h", len(raw_topic))
    return length + raw_topic + struct.pack(">h", len(raw_properties)) + raw_properties


def join_runs(runs: Iterable[QueueRun]) -> dict[tuple[str, int], QueueRun]:
    """The runs of each queue as one, in the order given."""
    of_queue: dict[tuple[str, int], list[QueueRun]] = {}
    for run in runs:
        of_queue.setdefault((run.topic, run.queue_id), []).append(run)
    return {
        queue: QueueRun(
            *queue,
            np.concatenate([run.queue_offsets for run in found]),
            # Left to itself numpy would turn the units into the machine's byte order.
            np.concatenate([run.units for run in found], dtype=found[0].units.dtype),
        )
        for queue, found in of_queue.items()
    }


def queue_files(run: QueueRun, units_per_file: int) -> Iterator[tuple[int, bytes]]:
    """The files of a queue that begins with ``run``, by offset: with fillers before it, without zeros after it."""
    offsets = run.queue_offsets.tolist()
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    fillers, size = offsets[0] % units_per_file, 20 * units_per_file
    data = FILLER * fillers + run.units.tobytes()
    for at in range(0, len(data), size):
        yield 20 * (offsets[0] - fillers) + at, data[at : at + size]


class IndexContent:
    """An index file in memory, changed in place."""

    def __init__(self, data: bytes, slots: int, entries: int) -> None:
        self.data = np.zeros(40 + 4 * slots + 20 * entries, np.uint8)
        self.data[: len(data)] = np.frombuffer(data, np.uint8)[: len(self.data)]
        self.slots: npt.NDArray[np.int32] = np.frombuffer(self.data, ">i4", slots, 40)
        entry = np.dtype(layouts.INDEX_ENTRY.dtype())
        self.entries: npt.NDArray[np.void] = np.frombuffer(self.data, entry, entries, 40 + 4 * slots)

    @property
    def header(self) -> IndexHeader:
        """The header as the file has it."""
        return layouts.INDEX_HEADER.decode(self.data.data)

    @header.setter
    def header(self, header: IndexHeader) -> None:
        layouts.INDEX_HEADER.pack_into(self.data, 0, *header)

    @property
    def next_entry(self) -> int:
        """The number of the next entry; a header that says none yet means the first."""
        return max(self.header.index_count, 1)

    def insert(self, keys: Keys) -> int:
        """Insert as many of ``keys`` as fit, the first ones, and return how many."""
        first = self.next_entry
        count = max(min(len(keys.key_hashes), len(self.entries) - first), 0)
        if count:
            self.entries[first : first + count], self.header = hang_in(self.slots, self.header, keys.cut(0, count))
        return count


def insert_keys(newest: IndexContent, keys: Keys) -> list[IndexContent]:
    """Insert all ``keys``, into ``newest`` and then into new files of its geometry; return ``newest`` and those."""
    contents = [newest]
    at = newest.insert(keys)
    while at < len(keys.key_hashes):
        last = contents[-1].header
        time, place = max(last.end_timestamp, 0), max(last.end_phy_offset, 0)
        contents.append(IndexContent(b"", len(newest.slots), len(newest.entries)))
        contents[-1].header = IndexHeader(time, time, place, place, 0, 0)
        at += contents[-1].insert(keys.cut(at))
    return contents
