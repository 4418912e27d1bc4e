"""Checks of a tier: every record of its logs, every entry of its queues, its index files, and its metadata.

Records are judged as in a commit log, under the same codes. The entries of a queue are compared with the records of its
log in both directions, a part of the log at a time. The metadata is in the store of the tier: without the store it is
not checked, nor are the entries of index files, which name topics by their number in it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rmqtool.checks.case import Case, Depth
from rmqtool.errors import ReadFailed
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.tier_index import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, count_slots, decode_header
from rmqtool.log.ranges import Effort, read_plan
from rmqtool.log.read import Damage, Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, first_kept, tier_files, tier_label
from rmqtool.log.stream import iter_parts
from rmqtool.look.tier_overview import bounds_of
from rmqtool.store.config_files import read_config
from rmqtool.store.listing import QueueId, beneath
from rmqtool.store.open import Root
from rmqtool.store.segments import Segment
from rmqtool.store.tiers import Tier, TierAbsent, tier_of

# Entries that are read at once to compare items of the index with them.
_MOST_UNITS = 1 << 20
_RESTORE = "restore the tier from a backup (repair does not change it), then run check again"


@dataclass
class TierJudge:
    """One check of a tier: iterate over ``findings``; the numbers are complete afterwards.

    ``name`` is the directory of the tier as people see it. ``metadata`` is that of its store, and ``kept`` the first
    queue offset that the store has of each queue; None without the store. With ``quick``, no message is read.
    """

    tier: Tier
    name: str = ""
    metadata: Mapping[str, Any] | None = None
    kept: Mapping[QueueId, int] | None = None
    quick: bool = False
    effort: Effort = field(default_factory=Effort)
    messages: int = 0
    bytes: int = 0
    lost: dict[QueueId, int] = field(default_factory=dict)
    complete: bool = True

    @property
    def files(self) -> int:
        """The number of segments."""
        queues = self.tier.queues.values()
        return len(self.tier.index) + sum(len(queue.log) + len(queue.entries) for queue in queues)

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        for part in (self._names, self._gaps, self._metadata, self._holes, self._logs, self._index):
            try:
                yield from part()
            except ReadFailed as error:
                self.complete = False
                yield new_finding(error.finding, error.message, Place(error.file, error.offset))

    def _shown(self, path: str) -> str:
        return f"{self.name}/{path}" if self.name else path

    def _names(self) -> Iterator[Finding]:
        for stranger in self.tier.strangers:
            path = self._shown(stranger.path)
            yield new_finding("TI-NAME", f"{path} is not a segment of a tier", Place(path))

    def _gaps(self) -> Iterator[Finding]:
        for queue in self.tier.queues:
            for gap in self.tier.entries_of(queue).gaps():
                first, last = gap.start_offset // UNIT_SIZE, gap.end_offset // UNIT_SIZE
                file = f"{queue.topic}/{queue.queue_id}/{paths.TIER_QUEUE}/{paths.tier_segment_name(gap.start_offset)}"
                text = f"{counted(last - first, 'queue entry is', 'queue entries are')} missing, from {first} on"
                yield new_finding("TI-GAP", text, Place(self._shown(file), None, None, *queue))

    # --- metadata ---------------------------------------------------------------------------------------------------

    def _metadata(self) -> Iterator[Finding]:
        """Compare the metadata with the segments: what it does not have, what is missing, other sizes."""
        if self.metadata is None:
            return
        queues = self.tier.queues.values()
        by_table = (
            ("commitLogFileSegmentTable", [segment for queue in queues for segment in queue.log]),
            ("consumeQueueFileSegmentTable", [segment for queue in queues for segment in queue.entries]),
            ("indexFileSegmentTable", self.tier.index),
        )
        for table, segments in by_table:
            yield from self._compare(self.metadata.get(table) or {}, segments)

    def _compare(
        self, table: Mapping[str, Mapping[int, Mapping[str, Any]]], segments: Sequence[Segment]
    ) -> Iterator[Finding]:
        known = {
            (path.removeprefix(self.tier.broker + "/"), base): row["size"]
            for path, rows in table.items()
            if path.startswith(self.tier.broker + "/")
            for base, row in rows.items()
        }
        last = {_queue_of(segment): segment for segment in segments}
        for segment in segments:
            size = known.pop((_queue_of(segment), segment.base_offset), None)
            is_last = last[_queue_of(segment)] is segment and f"/{paths.TIER_INDEX}/" not in segment.path
            yield from self._compare_size(segment, size, is_last=is_last)
        for (queue, base), size in sorted(known.items()):
            text = f"a segment of {size} bytes, from {base} on, is missing; the metadata has it"
            yield new_finding("TI-META", text, Place(self._shown(queue)))

    def _compare_size(self, segment: Segment, size: int | None, *, is_last: bool) -> Iterator[Finding]:
        place = Place(self._shown(segment.path))
        if size is None:
            if segment.size:
                yield new_finding("TI-ALONE", "the metadata does not have this segment", place)
        elif segment.size < size:
            text = f"it has {segment.size} bytes, the metadata says {size}"
            yield new_finding("TI-META", text, place._replace(offset=segment.size, length=size - segment.size))
        elif segment.size > size and not is_last:
            text = f"it has {segment.size} bytes, and the metadata says {size}"
            yield new_finding("TI-ALONE", text, place._replace(offset=size, length=segment.size - size))

    def _holes(self) -> Iterator[Finding]:
        """Yield queues of which the store begins after the end of the tier."""
        for queue, first in (self.kept or {}).items():
            if queue in self.tier.queues and self.tier.entries_of(queue).segments:
                low, end, _ = bounds_of(self.tier, queue)
                if low < end < first:
                    text = (
                        f"{counted(first - end, 'message is', 'messages are')} in neither, from queue offset {end} on"
                    )
                    yield new_finding("TI-HOLE", text, Place(None, None, None, *queue))

    # --- logs and queues --------------------------------------------------------------------------------------------

    def _logs(self) -> Iterator[Finding]:
        if self.quick:
            return
        for queue in self.tier.queues:
            files = [one for one in tier_files(self.tier, self.name) if one.tier and one.tier[:2] == tuple(queue)]
            if files:
                yield from self._log(queue, files)
            elif self.tier.entries_of(queue).end_offset:
                low, end, _ = bounds_of(self.tier, queue)
                yield self._lost_entries(queue, low, end)

    def _log(self, queue: QueueId, files: list[LogFile]) -> Iterator[Finding]:
        """Read the log of a queue, and compare each part with the entries."""
        import numpy as np

        low, end, _ = bounds_of(self.tier, queue)
        reached: int | None = low if files[0].record_base == 0 else None
        missing: list[int] = []
        selection = Selection()
        for found in iter_parts(read_plan(files, selection), selection, self.effort):
            if isinstance(found, Damage):
                yield self._damaged(found, queue)
            elif isinstance(found, Part):
                records = found.records
                self.messages += len(records)
                self.bytes += int(records.column("total_size").sum())
                offsets = records.column("queue_offset").astype(np.int64)
                yield from self._strangers(queue, found)
                yield from self._entries(queue, found, offsets, missing)
                known = offsets[(offsets >= low) & (offsets < end)]
                if not len(known):
                    continue
                first, last = int(known[0]), int(known[-1])
                reached = first if reached is None else reached
                if first > reached:
                    yield self._lost_entries(queue, reached, first)
                reached = max(reached, last + 1)
        if reached is not None and reached < end:
            yield self._lost_entries(queue, reached, end)
        if missing:
            text = (
                f"{counted(len(missing), 'message has', 'messages have')} no entry, from queue offset {min(missing)} on"
            )
            yield new_finding("TI-MISSING", text, self._of_queue(queue))

    def _of_queue(self, queue: QueueId) -> Place:
        return Place(self._shown(f"{queue.topic}/{queue.queue_id}/{paths.TIER_QUEUE}"), None, None, *queue)

    def _damaged(self, damage: Damage, queue: QueueId) -> Finding:
        found = new_finding(damage.code, damage.message, Place(damage.file, damage.file_offset, damage.length, *queue))
        if damage.code == "ST-READ":
            self.complete = False
        return replace(found, consequence="consumers do not receive the messages there", fix=_RESTORE)

    def _strangers(self, queue: QueueId, part: Part) -> Iterator[Finding]:
        """Yield messages that are in the log of another queue than their own."""
        import numpy as np

        own = part.records.topics.each(lambda topic: topic == queue.topic, np.bool_)
        own = own & (part.records.column("queue_id") == queue.queue_id)
        for row in np.flatnonzero(~own)[:1].tolist():
            text = f"{counted(int((~own).sum()), 'message', 'messages')} of another queue, here is the first"
            yield new_finding("TI-QUEUE", text, Place(part.file.name, part.record_offset(row), None, *queue))

    def _entries(self, queue: QueueId, part: Part, offsets: Any, missing: list[int]) -> Iterator[Finding]:
        """Compare the records of a part with their entries; ``missing`` gets the queue offsets without one."""
        import numpy as np

        # A damaged record can name any queue offset: only entries near those of most messages are read.
        begin = max(int(np.sort(offsets)[len(offsets) // 2]) - _MOST_UNITS // 2, 0)
        near = (offsets >= begin) & (offsets < begin + _MOST_UNITS)
        if not near.any():
            missing += offsets.tolist()
            return
        begin = int(offsets[near].min())
        units = self._units(queue, begin, int(offsets[near].max()) + 1)
        inside = near.copy()
        inside[near] = units["size"][offsets[near] - begin] > 0
        at = offsets - begin
        missing += offsets[~inside].tolist()
        own = units[at[inside]]
        records = part.records.select(inside)
        wrong = own["physical_offset"] != records.column("physical_offset")
        wrong |= own["size"] != records.column("total_size")
        for row in np.flatnonzero(wrong)[:1].tolist():
            number, place = int(offsets[inside][row]), int(own["physical_offset"][row])
            some = counted(int(wrong.sum()), "queue entry points", "queue entries point")
            text = f"{some} to other bytes; the entry of {number} to {place}, its message is at "
            text += f"{int(records.column('physical_offset')[row])}"
            yield new_finding("TI-QUEUE", text, self._of_queue(queue))

    def _units(self, queue: QueueId, begin: int, end: int) -> Any:
        """Return the entries of a queue from ``begin`` to ``end``; missing ones are zeros."""
        from rmqtool.columns.queues import decode_units

        segments = self.tier.entries_of(queue)
        data = bytearray((end - begin) * UNIT_SIZE)
        for segment in segments:
            first = max(begin * UNIT_SIZE, segment.base_offset)
            last = min(end * UNIT_SIZE, segment.end_offset)
            if first < last:
                found = segments.read(first, last - first)
                at = first - begin * UNIT_SIZE
                data[at : at + len(found)] = found
        return decode_units(bytes(data))

    def _lost_entries(self, queue: QueueId, begin: int, end: int) -> Finding:
        """Return the finding for entries whose messages the log does not have."""
        self.lost[queue] = self.lost.get(queue, 0) + end - begin
        text = f"{counted(end - begin, 'queue entry points', 'queue entries point')} to no message, from {begin} on"
        return new_finding("TI-QUEUE", text, self._of_queue(queue))

    # --- index ------------------------------------------------------------------------------------------------------

    def _index(self) -> Iterator[Finding]:
        for segment in self.tier.index:
            if segment.size:
                yield from self._index_file(segment)

    def _index_file(self, segment: Segment) -> Iterator[Finding]:
        """Judge the head, the slots and the items of a sealed file."""
        import numpy as np

        from rmqtool.columns.queues import decode_tier_items, decode_tier_slots

        file, place = self.tier.open_files.open(segment), Place(self._shown(segment.path))
        header = decode_header(file.pread(HEADER_SIZE, 0))
        if header is None:
            yield new_finding("TI-INDEX", "it does not begin as a sealed index file", place._replace(offset=0))
            return
        slots = count_slots(header, segment.size)
        if slots is None:
            text = f"{header.index_item_count} items do not fit into {segment.size} bytes"
            yield new_finding("TI-INDEX", text, place._replace(offset=0))
            return
        if self.quick:
            return
        begin = HEADER_SIZE + slots * SLOT_SIZE
        positions, lengths = decode_tier_slots(file.pread(slots * SLOT_SIZE, HEADER_SIZE))
        bad = (lengths > 0) & ((positions < begin) | (positions + lengths > segment.size))
        bad |= (lengths < 0) | (lengths % ITEM_SIZE != 0)
        for slot in np.flatnonzero(bad)[:1].tolist():
            text = f"{counted(int(bad.sum()), 'slot points', 'slots point')} to no item"
            yield new_finding("TI-INDEX", text, place._replace(offset=HEADER_SIZE + slot * SLOT_SIZE, length=SLOT_SIZE))
        # Items are in the order of their slots.
        ends = np.cumsum(np.maximum(lengths, 0)) // ITEM_SIZE
        away = []
        for first in range(0, header.index_item_count, _MOST_UNITS):
            count = min(_MOST_UNITS, header.index_item_count - first)
            items = decode_tier_items(file.pread(count * ITEM_SIZE, begin + first * ITEM_SIZE))
            wrong = self._astray(items)
            if not bad.any() and int(ends[-1]) == header.index_item_count:
                slots_of = np.searchsorted(ends, np.arange(first, first + len(items)), side="right")
                wrong |= items["hash_code"] % slots != slots_of
            away += (np.flatnonzero(wrong) + first).tolist()
        for row in away[:1]:
            text = f"{counted(len(away), 'item points', 'items point')} to no message of its queue"
            yield new_finding("TI-INDEX", text, place._replace(offset=begin + row * ITEM_SIZE, length=ITEM_SIZE))

    def _astray(self, items: Any) -> Any:
        """Return which items point to a place to which no entry of their queue points."""
        import numpy as np

        wrong = np.zeros(len(items), np.bool_)
        for topic, number in self._topic_ids().items():
            of_topic = items["topic_id"] == number
            for queue_id in np.unique(items["queue_id"][of_topic]).tolist():
                rows = np.flatnonzero(of_topic & (items["queue_id"] == queue_id))
                wrong[rows] |= self._without_entry(QueueId(topic, queue_id), items[rows])
        return wrong

    def _topic_ids(self) -> dict[str, int]:
        rows = (self.metadata or {}).get("topicMetadataTable") or {}
        return {topic: row["topicId"] for topic, row in rows.items()}

    def _without_entry(self, queue: QueueId, items: Any) -> Any:
        """Return which items point to a place without an entry in their queue; expired messages do not count."""
        import numpy as np

        offsets, sizes = items["offset"].astype(np.int64), items["size"].astype(np.int64)
        wrong = offsets >= self.tier.log_of(queue).min_offset
        low, end, _ = bounds_of(self.tier, queue)
        for begin in range(max(low, 0), end, _MOST_UNITS):
            units = self._units(queue, begin, min(begin + _MOST_UNITS, end))
            units = units[units["size"] > 0]
            places = units["physical_offset"].astype(np.int64)
            at = np.minimum(np.searchsorted(places, offsets), max(len(places) - 1, 0))
            if len(places):
                wrong &= ~((places[at] == offsets) & (units["size"][at] == sizes))
        return wrong


def _queue_of(segment: Segment) -> str:
    """Return TOPIC/QUEUE of a segment of a tier."""
    return "/".join(segment.path.split("/")[:2])


class TierCounts(NamedTuple):
    """The numbers of a check of a tier; ``files`` are those that are not below the root of its store."""

    messages: int
    files: int
    is_complete: bool


def check_tier(case: Case, effort: Effort | None) -> Generator[Finding, None, TierCounts | None]:
    """Check the tier that the settings of a store name; return its numbers, None without a tier."""
    from rmqtool.log.queue_entries import queue_files_of

    if not isinstance(case.store.filesystem, Root):
        return None  # the store as a repair would leave it: no repair changes the tier
    found = tier_of(case.store)
    if isinstance(found, TierAbsent):
        yield new_finding("TI-MOUNT", found.reason, Place(found.path))
    if found is None or isinstance(found, TierAbsent):
        return None
    metadata, _ = read_config(case.store, paths.TIERED_METADATA)
    kept = first_kept(queue_files_of(case.store), case.log.min_offset)
    with found as tier:
        judge = TierJudge(tier, tier_label(case.store, tier), metadata, kept, quick=case.depth is Depth.QUICK)
        judge.effort = effort or Effort()
        yield from judge.findings()
        files = 0 if beneath(case.store.root, tier.root) else judge.files
        return TierCounts(judge.messages, files, judge.complete)
