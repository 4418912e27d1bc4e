"""One segment as an ordered stream of batches and of places that are no right record."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.scan.batches import Batch, Wanted, batch_of
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.walk import Place, SegmentWalk, walk_dledger

# Records of a batch that the walk hands over one by one.
_WALKED = 4096


def scan_segment(
    file: ReadableFile, base_offset: int, wanted: Wanted, *, dledger: bool = False, last_timestamp: int = 0
) -> Iterator[Batch | Place]:
    """Yield what stands in a segment, in order: records in batches, everything else as places.

    A record with a flaw that does not hide what it says (``Place.damaged``) comes as a place only; a store time that
    cannot be comes as a place and in a batch.
    """
    waiting: list[Message] = []
    for place in _places(file, base_offset, dledger=dledger, last_timestamp=last_timestamp):
        if isinstance(place.what, Message):
            waiting.append(place.what)
            if len(waiting) == _WALKED:
                yield batch_of(waiting, wanted)
                waiting = []
            continue
        if isinstance(place.what, Flaw) and place.what.code == "CL-TIME" and place.damaged is not None:
            yield place
            waiting.append(place.damaged)
            continue
        if waiting:
            yield batch_of(waiting, wanted)
            waiting = []
        yield place
    if waiting:
        yield batch_of(waiting, wanted)


def _places(file: ReadableFile, base_offset: int, *, dledger: bool, last_timestamp: int) -> Iterator[Place]:
    if dledger:
        for entry in walk_dledger(file, base_offset):
            if entry.record.length:
                yield entry.record
        return
    walk = SegmentWalk(file, base_offset)
    walk.last_timestamp = last_timestamp
    yield from walk.places()
