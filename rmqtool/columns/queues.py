"""Queue entries (units) of many records: decoding files, building entries, sorting them by queue.

Which entries a record gets, and their content, is decided as in ``formats.dispatch``. Records that only its functions
handle (delayed ones, inner batches, those with further queues) go through them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import BESIDE_QUEUE, NAMES_QUEUES, grouped
from rmqtool.columns.dispatched import Dispatch, dispatch_of, message_of
from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.hashes import java_hashes
from rmqtool.columns.pieces import Coded, as_numbers, coded
from rmqtool.columns.properties import Properties
from rmqtool.columns.records import Records
from rmqtool.formats import layouts
from rmqtool.formats.codes import TRANSACTION_MASK
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.dispatch import DispatchRules, batch_unit, dispatch_targets, has_queue_unit, tags_code
from rmqtool.formats.layout import Buffer
from rmqtool.formats.property_names import INNER_MULTI_DISPATCH, INNER_NUM, TAGS
from rmqtool.formats.topics import SCHEDULE_TOPIC

Units = npt.NDArray[np.void]

_UNIT = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
_BATCH_UNIT = np.dtype(layouts.BATCH_CONSUME_QUEUE_UNIT.dtype())
# Whether a record has an entry in its queue, by the bits of its transaction type.
_WITH_UNIT = np.array([has_queue_unit(flag) for flag in range(TRANSACTION_MASK + 1)])


def decode_units(data: Buffer) -> Units:
    """Return the entries of a simple queue's bytes, written or not, uncopied; a shorter rest is left out."""
    return np.frombuffer(data, _UNIT, len(data) // UNIT_SIZE)


def decode_batch_units(data: Buffer) -> Units:
    """Return the entries of a batch or sparse queue's bytes, as ``decode_units`` does."""
    return np.frombuffer(data, _BATCH_UNIT, len(data) // BATCH_UNIT_SIZE)


_TIER_ITEM = np.dtype(layouts.TIERED_SEALED_ITEM.dtype())
_TIER_SLOT = np.dtype(layouts.TIERED_INDEX_SLOT.dtype())


def decode_tier_items(data: Buffer) -> Units:
    """Return the items in bytes of a sealed index file of a tier; a shorter rest is left out."""
    return np.frombuffer(data, _TIER_ITEM, len(data) // _TIER_ITEM.itemsize)


def decode_tier_slots(data: Buffer) -> tuple[Ints, Ints]:
    """Return the file offsets and lengths of the items of slots, from bytes of a sealed index file of a tier."""
    slots = np.frombuffer(data, _TIER_SLOT, len(data) // _TIER_SLOT.itemsize)
    return slots["position"].astype(np.int64), slots["length"].astype(np.int64)


class QueueRun(NamedTuple):
    """Entries of one queue in the order of the log, and the queue offsets that their records name."""

    topic: str
    queue_id: int
    queue_offsets: Ints
    units: Units


def queue_runs(records: Records, properties: Properties, rules: DispatchRules) -> list[QueueRun]:
    """Return the entries that ``records`` get, queue by queue: in their own queues and in further ones they name.

    An inner batch belongs to a batch queue; the caller leaves it out, as with ``formats.dispatch``.
    """
    return runs_of([queue_entries(records, properties, rules)])


class QueueEntries(NamedTuple):
    """Entries in the order of the log; ``topic_codes`` are indexes into ``topics``."""

    topics: list[str]
    topic_codes: Ints
    queue_ids: Ints
    queue_offsets: Ints
    units: Units

    def select(self, rows: Mask) -> QueueEntries:
        """Return some of the entries, in their order; ``topics`` stay as they are."""
        topics, codes, queue_ids, queue_offsets, units = self
        return QueueEntries(topics, codes[rows], queue_ids[rows], queue_offsets[rows], units[rows])


def queue_entries(records: Records, properties: Properties, rules: DispatchRules) -> QueueEntries:
    """Return the entries that ``records`` get, in the order of the log; ``runs_of`` sorts several of these by queue."""
    dispatch = dispatch_of(records, rules.delays)
    topics = records.topics
    rows = np.flatnonzero(have_queue_unit(records))
    entries = _Entries(
        topics.values,
        rows,
        topics.codes[rows].astype(np.int64),
        records.column("queue_id")[rows].astype(np.int64),
        records.column("queue_offset")[rows],
    )
    if rules.multi_dispatch:
        entries = entries.with_targets(records, _rows_with_queues(records, properties, dispatch), rules)
    if dispatch is not None:
        whole = len(entries.rows) == len(records) and len(rows) == len(records)
        # As bare bytes: numpy copies structures field by field.
        units = dispatch.units if whole else dispatch.units.view(f"V{UNIT_SIZE}")[entries.rows].view(_UNIT)
        return QueueEntries(entries.topics, entries.topic_codes, entries.queue_ids, entries.queue_offsets, units)
    codes = tags_codes(records, properties, topics, rules)
    units = np.empty(len(entries.rows), _UNIT)
    units["physical_offset"] = records.prefixes["physical_offset"][entries.rows]
    units["size"] = records.prefixes["total_size"][entries.rows]
    units["tags_code"] = codes[entries.rows]
    return QueueEntries(entries.topics, entries.topic_codes, entries.queue_ids, entries.queue_offsets, units)


def _rows_with_queues(records: Records, properties: Properties, dispatch: Dispatch | None) -> Ints:
    """Return the rows of records that have an entry in their own queue and name further queues."""
    if dispatch is not None:
        return np.flatnonzero(dispatch.flags & (NAMES_QUEUES | BESIDE_QUEUE) == NAMES_QUEUES)
    return np.flatnonzero(properties.find(INNER_MULTI_DISPATCH).present & have_queue_unit(records))


def have_queue_unit(records: Records) -> Mask:
    """Return which records have an entry in their queue: all but half messages and rollbacks."""
    found: Mask = _WITH_UNIT[records.column("sys_flag") & TRANSACTION_MASK]
    return found


def tags_codes(records: Records, properties: Properties, topics: Coded, rules: DispatchRules) -> Ints:
    """Return the tags code of each record: the hash of its tag, 0 without one.

    For a message with a delay level in the delay queues it is the time of delivery (ms).
    """
    tags = properties.find(TAGS)
    codes = java_hashes(properties.text, *tags).hashes.view(np.int32).astype(np.int64)
    delayed = np.flatnonzero(topics.each(lambda topic: topic == SCHEDULE_TOPIC, np.bool_)) if topics.values else ()
    for row in delayed:
        codes[row] = tags_code(message_of(records, int(row)), rules.delays)
    return codes


class _Entries(NamedTuple):
    """The queue of each entry and the row of its record, in the order of the log."""

    topics: list[str]
    rows: Ints
    topic_codes: Ints
    queue_ids: Ints
    queue_offsets: Ints

    def with_targets(self, records: Records, named: Ints, rules: DispatchRules) -> _Entries:
        """Return these and the entries of further queues that records name, each after its record's own entry."""
        topics = {topic: code for code, topic in enumerate(self.topics)}
        extra = [
            (row, topics.setdefault(topic, len(topics)), queue_id, queue_offset)
            for row in named.tolist()
            for topic, queue_id, queue_offset in dispatch_targets(message_of(records, row), rules)
        ]
        if not extra:
            return self
        columns = np.concatenate((np.stack(self[1:], axis=1), np.array(extra, np.int64)))
        return _Entries(list(topics), *columns[np.argsort(columns[:, 0], kind="stable")].T)


def runs_of(parts: Sequence[QueueEntries]) -> list[QueueRun]:
    """Return the entries of ``parts``, which follow each other in the log, queue by queue.

    Queues are in the order of their first entries.
    """
    if not any(len(part.units) for part in parts):
        return []
    numbers: dict[str, int] = {}
    known = [np.array([numbers.setdefault(topic, len(numbers)) for topic in part.topics], np.int64) for part in parts]
    codes = np.concatenate([of[part.topic_codes] for of, part in zip(known, parts, strict=True) if len(part.units)])
    queue_ids = np.concatenate([part.queue_ids for part in parts])
    queue_offsets = np.concatenate([part.queue_offsets for part in parts])
    units = np.concatenate([part.units for part in parts], dtype=_UNIT)
    topics = list(numbers)
    order, ends = grouped(codes, queue_ids) or _grouped(codes, queue_ids)
    queue_offsets = queue_offsets[order]
    # As bare bytes: numpy copies structures field by field.
    units = units.view(f"V{UNIT_SIZE}")[order].view(_UNIT)
    firsts = order[[0, *ends[:-1]]]
    runs = []
    begin = 0
    for end, code, queue_id in zip(ends, codes[firsts].tolist(), queue_ids[firsts].tolist(), strict=True):
        runs.append(QueueRun(topics[code], queue_id, queue_offsets[begin:end], units[begin:end]))
        begin = end
    return runs


def _grouped(codes: Ints, queue_ids: Ints) -> tuple[Ints, list[int]]:
    """Return the rows queue by queue and where each queue ends among them, as ``compiled.grouped`` does."""
    queues = coded(as_numbers(codes << 32 | queue_ids & 0xFFFFFFFF))
    # numpy's stable sort of 16 bits is a radix sort, in linear time.
    narrow = np.uint16 if len(queues.values) <= 1 << 16 else np.int64
    order = np.argsort(queues.codes.astype(narrow), kind="stable")
    return order, np.cumsum(np.bincount(queues.codes, minlength=len(queues.values))).tolist()


def batch_units(records: Records, properties: Properties, rules: DispatchRules) -> Units:
    """Return the entries that ``records``, all of one batch queue, get in it; half messages and rollbacks get none."""
    topics = records.topics
    units = np.zeros(len(records), _BATCH_UNIT)
    for name, of_record in (("physical_offset",) * 2, ("size", "total_size"), ("store_time", "store_timestamp")):
        units[name] = records.prefixes[of_record]
    units["tags_code"] = tags_codes(records, properties, topics, rules)
    # A record that is not an inner batch is a batch of one message.
    units["msg_base_offset"] = records.prefixes["queue_offset"]
    units["batch_size"] = 1
    units["compacted_offset"] = -1
    for row in np.flatnonzero(properties.find(INNER_NUM).present).tolist():
        units[row] = tuple(batch_unit(message_of(records, row), rules.delays))
    return units[have_queue_unit(records)]
