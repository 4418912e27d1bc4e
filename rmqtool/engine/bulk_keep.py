"""Records of another log appended as they are: only their places are new. What a copy hands over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtool.errors import StoreError
from rmqtool.formats.commit_log import BLANK_SIZE

if TYPE_CHECKING:
    from rmqtool.bulk.gather import Ints
    from rmqtool.bulk.rewriting import Packed
    from rmqtool.engine.building import Engine
    from rmqtool.engine.commit_log import CommitLog


class Adoption:
    """The way of whole records into an empty store: the numbers that they bring along are taken as they are."""

    def __init__(self, engine: Engine, physical_offset: int) -> None:
        self._engine = engine
        engine.log.begin_at(physical_offset)
        engine.dispatcher.restart_at(physical_offset)

    def keep(self, packed: Packed) -> Ints:
        """Append records and dispatch them; return their places."""
        places = append_packed(packed, self._engine.log)
        self._engine.dispatcher.dispatch()
        return places

    def pass_queue_to(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Let a queue that holds no message be numbered on from an offset."""
        queues = self._engine.dispatcher.queues
        queues.simple_queue((topic, queue_id)).pass_to(queue_offset)
        queues.write_pending()


def append_packed(packed: Packed, log: CommitLog) -> Ints:
    """Append the records, segment by segment; their bytes in ``packed`` get the places that are returned."""
    import numpy as np

    largest = int(packed.sizes.max(initial=0))
    if largest > log.largest_record:
        raise StoreError(
            f"a record of {largest} bytes fits into no segment of {log.segment_size} bytes",
            hint="take a larger mappedFileSizeCommitLog (--conf), or leave such messages out",
        )
    ends = np.cumsum(packed.sizes)
    places = np.empty(len(packed), np.int64)
    at = 0
    while at < len(packed):
        done = int(ends[at - 1]) if at else 0
        until = int(np.searchsorted(ends, done + log.room - BLANK_SIZE, side="right"))
        if until <= at:
            log.prepare_next()
            log.roll()
            continue
        part = packed.part(at, until)
        places[at:until] = log.wrote_offset + part.starts
        part.put("physical_offset", places[at:until])
        part.seal()
        log.append(part.data.tobytes(), packed.last_store_timestamp)
        log.commit()
        at = until
    return places
