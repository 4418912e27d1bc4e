"""The queue files that a part of a log needs, as small values for tasks that read this part on other machines.

A store can have thousands of queues, and a queue hundreds of files. The entries of one part of the log are in one or
two files of each queue. A task that gets these need not list the store.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Sequence

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import join, split
from rmqtool.formats import paths
from rmqtool.log.queue_entries import QueueFile, QueueFiles, read_first_places
from rmqtool.store.listing import QueueId
from rmqtool.store.open import is_far

# Names of queues and files repeat: the fastest level makes a fifteenth of them.
_LEVEL = 1


class QueueParts:
    """Finds the files of queues that have the entries of a part of the log."""

    def __init__(self, queues: Sequence[QueueFiles]) -> None:
        self._queues = queues
        self._firsts = [_first_places(queue) for queue in queues]
        # Adjacent parts mostly need the same files.
        self._last: tuple[list[slice], bytes] = ([], b"")

    def between(self, begin: int, end: int) -> list[QueueFiles]:
        """Return the queues with those of their files that have entries from ``begin`` to ``end``.

        The nearest entries before and after are in them, too.
        """
        return self._select(self._slices(begin, end))

    def packed(self, begin: int, end: int) -> bytes:
        """Return the same as bytes for ``unpack_queues``."""
        slices = self._slices(begin, end)
        if slices != self._last[0]:
            self._last = slices, _pack(self._select(slices))
        return self._last[1]

    def _select(self, slices: list[slice]) -> list[QueueFiles]:
        return [queue._replace(files=queue.files[files]) for queue, files in zip(self._queues, slices, strict=True)]

    def _slices(self, begin: int, end: int) -> list[slice]:
        return [
            slice(None) if firsts is None else slice(bisect_left(firsts, begin) - 1, bisect_left(firsts, end) + 1)
            for firsts in self._firsts
        ]


def _pack(queues: Sequence[QueueFiles]) -> bytes:
    """Return the queues of one store as bytes. The names of files follow from their offsets."""
    rows = [
        (*queue, is_batch, split(files[0].path)[0], [(file.base_offset, file.size) for file in files])
        for queue, _, files, is_batch in queues
    ]
    return zlib.compress(json.dumps((queues[0].directory, rows)).encode(), _LEVEL)


def unpack_queues(packed: bytes) -> list[QueueFiles]:
    """Return the queues that were packed by another process of this job."""
    root, rows = json.loads(zlib.decompress(packed))
    return [
        QueueFiles(
            QueueId(topic, queue_id),
            root,
            tuple(QueueFile(base, size, join(above, paths.segment_name(base))) for base, size in files),
            is_batch,
        )
        for topic, queue_id, is_batch, above, files in rows
    ]


def _first_places(queue: QueueFiles) -> list[int] | None:
    """Return the physical offset in the first entry of each file, with that of the first file as -1.

    Return None if that does not tell which files are needed: for a damaged queue, and on object storage, where each
    file would be a request.
    """
    if len(queue.files) == 1 or is_far(queue.directory):
        return None
    try:
        places = read_first_places(queue)
    except ReadFailed:  # the task will read the log without it
        return None
    return places if places == sorted(places) else None
