"""Messages made ready for another log: their numbers, hosts and references, by columns and in a buffer of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints
from rmqtool.bulk.hosts import offset_msg_ids
from rmqtool.bulk.properties import decode_properties
from rmqtool.bulk.records import Records, decode_records
from rmqtool.bulk.rewriting import Packed, pack
from rmqtool.formats import layouts, timer
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.topics import HALF_TOPIC, TIMER_TOPIC
from rmqtool.scan.numbering import Numbering, SourceQueues
from rmqtool.scan.redaction import Redaction

# Topics whose records others name by their places in the log: committed messages, the timer log.
_NAMED_BY_PLACE = frozenset({HALF_TOPIC, TIMER_TOPIC})
# The place of a half message that is gone: before every log.
_GONE = 0


class Places:
    """Where records went that are named by their places: 16 bytes for each half message and each timed one."""

    def __init__(self) -> None:
        self._old: list[Ints] = []
        self._new: list[Ints] = []
        self._sizes: list[Ints] = []

    def add(self, old: Ints, new: Ints, sizes: Ints) -> None:
        """Learn the new places and sizes of records."""
        self._old.append(old)
        self._new.append(new)
        self._sizes.append(sizes)

    def find(self, wanted: Ints, missing: int) -> Ints:
        """Return the new places; ``missing`` for records that the copy does not have."""
        return self._find(wanted, self._new, np.full(len(wanted), missing, np.int64))

    def find_sizes(self, wanted: Ints, sizes: Ints) -> Ints:
        """Return the new sizes of records; ``sizes`` of those that the copy does not have."""
        return self._find(wanted, self._sizes, sizes)

    def _find(self, wanted: Ints, column: list[Ints], missing: Ints) -> Ints:
        if not self._old:
            return missing
        if len(self._old) > 1:
            columns = [np.concatenate(pieces) for pieces in (self._old, self._new, self._sizes)]
            order = np.argsort(columns[0], kind="stable")  # late ones came last
            self._old[:], self._new[:], self._sizes[:] = ([one[order]] for one in columns)
        old = self._old[0]
        at = np.minimum(np.searchsorted(old, wanted), len(old) - 1)
        found: Ints = np.where(old[at] == wanted, column[0][at], missing)
        return found


class Moved(NamedTuple):
    """Records to append, as they were and packed as they will be; and those that come behind all others."""

    records: Records
    packed: Packed
    late: Records | None

    @property
    def late_count(self) -> int:
        """How many come behind all others."""
        return 0 if self.late is None else len(self.late)


class SourceMove:
    """The way of one source's messages into the copy."""

    def __init__(self, numbering: Numbering, queues: SourceQueues, redaction: Redaction) -> None:
        self.places = Places()
        self._redaction = redaction
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

    def append(self, moved: Moved) -> Moved:
        """Return the records of ``moved`` that were late, numbered behind all others."""
        records = moved.late
        assert records is not None, "nothing was late"
        return Moved(records, self._packed(records, self._numbering.append(records)), None)

    def placed(self, moved: Moved, new: Ints) -> None:
        """Remember the places of those records that others name by them."""
        topics = moved.records.topics
        rows = np.flatnonzero(topics.each(lambda topic: topic in _NAMED_BY_PLACE, np.bool_))
        if len(rows):
            old = moved.records.column("physical_offset")[rows].astype(np.int64)
            self.places.add(old, new[rows], moved.packed.sizes[rows])

    def _packed(self, records: Records, offsets: Ints) -> Packed:
        packed = pack(self._redaction.apply(records))
        if (records.column("queue_offset") != offsets).any():
            packed.put("queue_offset", offsets)
        commits = records.column("sys_flag") & TRANSACTION_MASK == int(TransactionType.COMMIT)
        rows = np.flatnonzero(commits)
        if len(rows):
            named = records.column("prepared_transaction_offset")[rows].astype(np.int64)
            packed.put("prepared_transaction_offset", self.places.find(named, _GONE), rows)
        return packed


def id_columns(moved: Moved) -> list[Iterable[Any]]:
    """Return what names appended messages: topic, queue, then old and new numbers, places and ids, and key."""
    old = moved.records
    new, _ = decode_records(moved.packed.data.data, moved.packed.starts)
    topics = old.topics
    return [
        [topics.values[code] for code in topics.codes.tolist()],
        old.column("queue_id").tolist(),
        old.column("queue_offset").tolist(),
        new.column("queue_offset").tolist(),
        old.column("physical_offset").tolist(),
        new.column("physical_offset").tolist(),
        offset_msg_ids(old).to_pylist(),
        offset_msg_ids(new).to_pylist(),
        decode_properties(old).values("UNIQ_KEY").to_pylist(),
    ]


def moved_timer_log(data: bytes, places: Places) -> bytes:
    """Return a file of the timer log whose units name the records of the copy; places before the log where it has none.

    A broker passes over a timer whose message is not there.
    """
    dtype = np.dtype(layouts.TIMER_LOG_UNIT.dtype())
    units = np.frombuffer(data, dtype, len(data) // dtype.itemsize).copy()
    is_unit = units["size"] == timer.UNIT_SIZE
    # Behind the first that is none there is the blank, or nothing.
    count = len(units) if is_unit.all() else int(np.argmin(is_unit))
    named = units["offset_py"][:count].astype(np.int64)
    units["offset_py"][:count] = places.find(named, _GONE)
    units["size_py"][:count] = places.find_sizes(named, units["size_py"][:count].astype(np.int64))
    return units[:count].tobytes() + data[count * dtype.itemsize :]
