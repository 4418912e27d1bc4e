"""One segment as an ordered stream of batches and of places that are no right record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rmqtool.bulk.records import decode_records
from rmqtool.formats.flaws import Flaw
from rmqtool.scan.batches import Batch, Wanted, batch_of, join_batches
from rmqtool.scan.columns import Rows
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.walk import Place

# Queues and index are asked once for so many records: each question costs some reads.
_RECORDS = 1 << 17


def iter_batches(file: ReadableFile, pieces: Iterable[Rows | Place], wanted: Wanted) -> Iterator[Batch | Place]:
    """Yield the pieces of a segment in their order: records in batches, everything else as places.

    A record with a flaw that does not hide what it says (``Place.damaged``) comes as a place only; one whose store
    time cannot be comes as a place and in a batch.
    """
    waiting: list[Batch] = []
    records = 0
    for found in pieces:
        place = None if isinstance(found, Rows) else found
        if isinstance(found, Rows):
            waiting.append(batch_of(found.records, wanted))
            records += len(found.records)
            del found  # other bytes come into the memory that it was made of
            if records < _RECORDS:
                continue
        elif _is_untimed(found):
            yield found
            waiting.append(_batch_at(file, found, wanted))
            continue
        if waiting:
            yield join_batches(waiting)
            waiting, records = [], 0
        if place is not None:
            yield place
    if waiting:
        yield join_batches(waiting)


def _is_untimed(place: Place) -> bool:
    return isinstance(place.what, Flaw) and place.what.code == "CL-TIME" and place.damaged is not None


def _batch_at(file: ReadableFile, place: Place, wanted: Wanted) -> Batch:
    """Return the batch of the one record at a place."""
    data = file.pread_exactly(place.length, place.file_offset)
    records, declined = decode_records(data, np.zeros(1, np.int64))
    assert declined is None, f"the walk calls a message what bulk declines: {declined}"
    return batch_of(records, wanted)
