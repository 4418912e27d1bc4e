"""Checks the features that only some stores use: timers, transactions, pop, compacted topics, DLedger."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from rmqtool.checks.case import Case, Depth
from rmqtool.files.filesystem import split
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.formats import checkpoints, consume_queue, control_texts, layouts, paths, timer
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dledger import INDEX_UNIT_SIZE
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.layouts import DLedgerEntryHead, TimerLogUnit, TimerSlot
from rmqtool.formats.paths import Copy, FileKind
from rmqtool.formats.system_bodies import ROCKSDB_OP_BODY, decode_op_body, decode_pop_body
from rmqtool.formats.topics import HALF_TOPIC, OP_HALF_TOPIC, REVIVE_PREFIX
from rmqtool.log.end import read_record
from rmqtool.log.walk import SegmentWalk, walk_dledger
from rmqtool.store.listing import FoundFile, QueueId
from rmqtool.store.queues import ConsumeQueueFiles

# Units of the timer log that are compared with their records without --deep.
_FOLLOWED = 20_000
# Findings of one file that are reported.
_NAMED = 100
_PIECE = 1 << 20
# A broker may run long without a message, but not for this long.
_MOST_AHEAD_MS = 20 * 365 * 86_400_000
_NO_SLOT = TimerSlot(0, 0, 0, 0, 0)
_TIMER_CHECK = f"{paths.CONFIG}/{paths.TIMER_CHECK}"


def check_timers(case: Case) -> Iterator[Finding]:
    """Yield the findings about timers."""
    files = sorted(case.files(FileKind.TIMER_LOG), key=lambda file: file.what.base_offset or 0)
    saved = case.store.read_file(_TIMER_CHECK, 1 << 16)
    judge = _TimerLog(case, 0 if saved is None else checkpoints.decode_timer_checkpoint(saved).last_timer_log_flush_pos)
    yield from _check_begin(case, files)
    for file in files:
        yield from judge.check(file, is_last=file is files[-1])
    if case.live:
        return
    for file in case.files(FileKind.TIMER_WHEEL):
        if file.what.base_offset is None:
            yield from _check_wheel(case, file, judge)
    if saved is not None:
        yield from _check_timer_checkpoint(case, saved, judge.end)


def _check_begin(case: Case, files: list[FoundFile]) -> Iterator[Finding]:
    """Yield a finding if the timer log has lost its beginning.

    A broker deletes a file of the timer log only when it has deleted its messages.
    """
    begin = (files[0].what.base_offset or 0) if files else 0
    if begin > 0 and len(case.log) and case.log.min_offset == 0:
        text = (
            f"the timer log begins at {begin}, but nothing was deleted from the commit log: {begin} bytes are missing"
        )
        yield new_finding("TM-WRONG", text, Place(files[0].path, 0))


class _TimerLog:
    """Reads the units in order; ``slots`` becomes the due content of the wheel, ``end`` the end of the log.

    The next start adds the units from the saved position on to the wheel, which may lack them until then: after a
    crash, also after the store was recovered. ``earlier`` has what a slot may say instead.
    """

    def __init__(self, case: Case, saved: int) -> None:
        self.case = case
        self.slots: dict[int, TimerSlot] = {}
        self.earlier: dict[int, list[TimerSlot]] = {}
        self._saved = saved
        self.precision = case.store.config.timer_precision_ms
        self.start = -1
        self.end = 0
        self.units = 0
        self._named = 0

    def check(self, file: FoundFile, *, is_last: bool) -> Iterator[Finding]:
        base = file.what.base_offset or 0
        self.start = base if self.start < 0 else self.start
        with self.case.store.filesystem.open_read(file.path) as opened:
            at, data, start = 0, b"", 0
            while at < file.size:
                if at + timer.UNIT_SIZE > start + len(data):
                    start, data = at, opened.pread(min(_PIECE, file.size - at), at)
                found = timer.decode_timer_unit(data, at - start)
                if not isinstance(found, TimerLogUnit):
                    if isinstance(found, Flaw) and not (is_last and self.case.live):
                        yield new_finding(found.code, found.message, Place(file.path, at, file.size - at))
                    break
                yield from self._unit(file, at, base + at, found)
                at += timer.UNIT_SIZE
                self.end = base + at

    def _unit(self, file: FoundFile, at: int, position: int, unit: TimerLogUnit) -> Iterator[Finding]:
        self.units += 1
        place = Place(file.path, at, timer.UNIT_SIZE)
        number = (unit.write_time + unit.delay) // self.precision % timer.WHEEL_SLOTS
        before = self.slots.get(number, _NO_SLOT)
        after = timer.apply_to_slot(before, unit, position, self.precision)
        due = before.last_pos if before.time == after.time and before != _NO_SLOT else -1
        if unit.prev_pos != due and not (unit.prev_pos < self.start and self.start > 0) and self._may_name():
            yield new_finding(
                "TM-LOG", f"prevPos is {unit.prev_pos}, but the entry before it in this second is at {due}", place
            )
        self.slots[number] = after
        if position >= self._saved:
            self.earlier.setdefault(number, []).append(before)
        if self.case.depth is not Depth.DEEP and self.units > _FOLLOWED:
            return
        if self.case.log.min_offset <= unit.offset_py < self.case.end.physical_offset:
            record = read_record(self.case.log, unit.offset_py)
            known = self.case.explains(unit.offset_py) is not None
            if (record is None or record.total_size != unit.size_py) and not known and self._may_name():
                size = "no record begins" if record is None else f"there is a record of {record.total_size} bytes"
                text = f"the timer entry points to {unit.offset_py} ({unit.size_py} bytes), where {size}"
                yield new_finding("TM-WRONG", text, place)
        elif unit.offset_py >= self.case.end.physical_offset and not self.case.live and self._may_name():
            severity = Severity.NOTICE if self.case.abort else None
            text = f"the timer entry points to {unit.offset_py}, past the end of the log"
            why = "the timer message was lost with the end of the log"
            yield new_finding("TM-WRONG", text, place, severity=severity, consequence=why if self.case.abort else None)

    def _may_name(self) -> bool:
        self._named += 1
        return self._named <= _NAMED


def _check_wheel(case: Case, file: FoundFile, judge: _TimerLog) -> Iterator[Finding]:
    """Yield slots that differ from the timer log, unless the next start makes them agree."""
    if file.size not in (0, timer.WHEEL_SIZE):
        text = f"{file.size} bytes, a wheel has {timer.WHEEL_SIZE}"
        yield new_finding("TM-WRONG", text, Place(file.path, 0, file.size))
    if case.abort:
        return
    for number, found, due in islice(_differing_slots(case, file, judge), _NAMED):
        place = Place(file.path, number * timer.SLOT_SIZE, timer.SLOT_SIZE)
        text = f"slot {number} says {_words(found)}, the timer log says {_words(due)}"
        if due is not None and found._replace(num=due.num) == due:
            # A broker that starts after a crash links the entries again, and does not count them.
            yield new_finding("TM-WRONG", text, place, severity=Severity.NOTICE, consequence=_MISCOUNTED)
        else:
            yield new_finding("TM-WRONG", text, place)


_MISCOUNTED = "only the number is wrong: every timer of that second is delivered"


def _differing_slots(
    case: Case, file: FoundFile, judge: _TimerLog
) -> Iterator[tuple[int, TimerSlot, TimerSlot | None]]:
    """Yield the number of each slot that differs, what it says and what it should say."""
    seen: set[int] = set()
    for number, found in _used_slots(case, file):
        seen.add(number)
        due = judge.slots.get(number)
        if not _agrees(found, due, judge) and found not in judge.earlier.get(number, ()):
            yield number, found, due
    for number in sorted(judge.slots.keys() - seen):
        if _NO_SLOT not in judge.earlier.get(number, ()):
            yield number, _NO_SLOT, judge.slots[number]


def _used_slots(case: Case, file: FoundFile) -> Iterator[tuple[int, TimerSlot]]:
    size = timer.SLOT_SIZE
    with case.store.filesystem.open_read(file.path) as opened:
        done = 0
        for extent in opened.iter_data(0, file.size - file.size % size):
            at = max(done, extent.file_offset - extent.file_offset % size)
            while at < extent.end:
                data = opened.pread(min(_PIECE - _PIECE % size, file.size - at), at)
                if data.strip(b"\0"):
                    for number, slot in enumerate(layouts.TIMER_SLOT.iter_decode(data), at // size):
                        if timer.is_slot_used(slot):
                            yield number, slot
                at += len(data) - len(data) % size
                if len(data) < size:
                    break
            done = at


def _agrees(found: TimerSlot, due: TimerSlot | None, judge: _TimerLog) -> bool:
    if due is None:  # its timers may have been deleted with old files of the timer log
        return found.last_pos < judge.start or (judge.start > 0 and found.last_pos < judge.end)
    if judge.start > 0:
        return (found.time, found.last_pos) == (due.time, due.last_pos)
    return found == due


def _words(slot: TimerSlot | None) -> str:
    if slot is None or slot == _NO_SLOT:
        return "nothing"
    return f"{slot.num} timers at {slot.time}, from {slot.first_pos} to {slot.last_pos}"


def _check_timer_checkpoint(case: Case, data: bytes, end: int) -> Iterator[Finding]:
    path = _TIMER_CHECK
    if len(data) != checkpoints.PAGE_SIZE:
        text = f"{len(data)} bytes, a timer checkpoint has {checkpoints.PAGE_SIZE}"
        yield new_finding("CP-BAD", text, Place(path, 0, len(data)))
    found = checkpoints.decode_timer_checkpoint(data)
    told, stored = found.last_read_time_ms, case.end.last
    newest = stored.store_timestamp if stored is not None else 0
    if told < 0 or (newest and told > newest + _MOST_AHEAD_MS):
        field = layouts.TIMER_CHECKPOINT.field("last_read_time_ms")
        text = f"lastReadTimeMs is {told}: all timer messages up to then would count as delivered"
        yield new_finding("CP-AHEAD", text, Place(path, field.offset, field.size))
    if found.last_timer_log_flush_pos > end:
        field = layouts.TIMER_CHECKPOINT.field("last_timer_log_flush_pos")
        text = f"lastTimerLogFlushPos is {found.last_timer_log_flush_pos}, but the timer log ends at {end}"
        yield new_finding("CP-AHEAD", text, Place(path, field.offset, field.size))


# Records of one queue that are read without --deep: the newest.
_NEWEST = 10_000
# Committed records without their half message that are reported one by one.
_FEW = 5
_WHOLE = "the committed messages are intact; only their half messages are gone"


def check_internal(case: Case) -> Iterator[Finding]:
    """Yield the contradictions in the broker's own topics."""
    for queue in case.queues:
        check = _check_of(queue.topic)
        if check is not None:
            for record in _records(case, queue):
                yield from check(case, record)


def _check_of(topic: str) -> Callable[[Case, Message], Iterator[Finding]] | None:
    if topic == OP_HALF_TOPIC:
        return _check_op
    return _check_pop if topic.startswith(REVIVE_PREFIX) else None


def _records(case: Case, queue: QueueId) -> Iterator[Message]:
    files = ConsumeQueueFiles(queue, case.queues[queue])
    first = 0 if case.depth is Depth.DEEP else files.max_offset - _NEWEST
    for _, unit in files.iter_units(first):
        if case.log.min_offset <= unit.physical_offset < case.end.physical_offset:
            record = read_record(case.log, unit.physical_offset)
            if record is not None and (record.topic, record.queue_id) == tuple(queue):
                yield record


def _place(case: Case, record: Message) -> Place:
    place = case.place(record.physical_offset, record.total_size)
    return place._replace(topic=record.topic, queue_id=record.queue_id)


def _max_offset(case: Case, topic: str, queue_id: int) -> int | None:
    segments = case.queues.get(QueueId(topic, queue_id))
    return None if segments is None else ConsumeQueueFiles(QueueId(topic, queue_id), segments).max_offset


def _check_op(case: Case, record: Message) -> Iterator[Finding]:
    """Compare an op record with the half queue that it refers to."""
    if record.raw_body == ROCKSDB_OP_BODY:
        return
    offsets = decode_op_body(record.raw_body)
    if isinstance(offsets, Flaw):
        yield new_finding(offsets.code, offsets.message, _place(case, record))
        return
    end = _max_offset(case, HALF_TOPIC, record.queue_id)
    beyond = [offset for offset in offsets if end is not None and offset >= end]
    if beyond and not case.live:
        text = f"the op record decides half message {beyond[0]}, the half queue ends at {end}"
        yield new_finding("TX-WRONG", text, _place(case, record))


def _check_pop(case: Case, record: Message) -> Iterator[Finding]:
    """Compare a check point or ack with the queue that it refers to."""
    tag = record.tags
    if tag not in list(PopTag):
        return
    decoded = decode_pop_body(PopTag(tag), record.raw_body)
    if isinstance(decoded, Flaw):
        yield new_finding("PO-WRONG", f"the {tag} does not parse: {decoded.message}", _place(case, record))
        return
    value: dict[str, Any] = decoded.value
    topic, queue_id, offset = value.get("t"), value.get("q"), value.get("so")
    if not isinstance(topic, str) or not isinstance(queue_id, int) or not isinstance(offset, int):
        yield new_finding("PO-WRONG", f"the {tag} does not name a topic, queue and offset", _place(case, record))
        return
    end = _max_offset(case, topic, queue_id)
    if end is not None and offset > end and not case.live:
        text = f"the {tag} begins at {topic}/{queue_id} @ {offset}, the queue ends at {end}"
        yield new_finding("PO-WRONG", text, _place(case, record))


def check_commits(case: Case, commits: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield committed records whose half message is not where they claim; ``commits`` has both physical offsets."""
    wrong = [commit for commit in commits if not _is_half(case, commit[1])]
    for physical_offset, prepared_offset in wrong if len(wrong) <= _FEW else ():
        text = f"the record commits a half message at {prepared_offset}, where no record begins"
        record = read_record(case.log, physical_offset)
        place = case.place(physical_offset, record.total_size if record is not None else None)
        yield new_finding("TX-WRONG", text, place, consequence=_WHOLE)
    if len(wrong) > _FEW:
        text = (
            f"{len(wrong)} committed records name half messages that are not there; the record here names {wrong[0][1]}"
        )
        yield new_finding("TX-WRONG", text, case.place(wrong[0][0]), consequence=_WHOLE, records=len(wrong))


def _is_half(case: Case, physical_offset: int) -> bool:
    """Return whether there is a half message at an offset, or may have been: the log there is removed or damaged."""
    if (physical_offset < case.log.min_offset and case.log.min_offset > 0) or case.explains(physical_offset):
        return True
    half = read_record(case.log, physical_offset)
    return half is not None and (
        half.topic == HALF_TOPIC or transaction_type(half.sys_flag) is TransactionType.PREPARED
    )


_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT


def check_compaction(case: Case) -> Iterator[Finding]:
    """Yield the findings of the compaction store; a file that is being written is left out."""
    logs = _by_queue(case, FileKind.COMPACTION_LOG)
    queues = _by_queue(case, FileKind.COMPACTION_QUEUE)
    return (_with_way_out(finding, logs) for finding in _iter_findings(case, logs, queues))


def _with_way_out(finding: Finding, logs: dict[QueueId, list[FoundFile]]) -> Finding:
    """Return a finding with the command that saves the messages of its compacted log."""
    files = logs.get(QueueId(finding.topic or "", finding.queue_id or 0))
    if not files:
        return finding
    directory = shlex.quote(split(files[0].path)[0])
    saved = f"rmqtool cat {{store}}/{directory} --jsonl > messages.jsonl"
    return replace(finding, fix=f"save its messages: {saved}; then restore the directory from a backup")


def _iter_findings(
    case: Case, logs: dict[QueueId, list[FoundFile]], queues: dict[QueueId, list[FoundFile]]
) -> Iterator[Finding]:
    for queue, files in logs.items():
        sizes: dict[int, int] = {}
        for file in files:
            yield from _check_log(case, queue, file, sizes)
        of_queue = queues.get(queue, [])
        for file in of_queue:
            yield from _check_queue(case, queue, file, sizes)
        if {file.what.base_offset for file in of_queue} == set() and sizes:
            text = "the compacted log has no queue file"
            yield new_finding("CM-WRONG", text, Place(files[0].path, None, None, *queue))


def _by_queue(case: Case, kind: FileKind) -> dict[QueueId, list[FoundFile]]:
    found: dict[QueueId, list[FoundFile]] = {}
    for file in case.files(kind):
        what = file.what
        if what.topic is not None and what.queue_id is not None and what.stage is None:
            found.setdefault(QueueId(what.topic, what.queue_id), []).append(file)
    return found


def _check_log(case: Case, queue: QueueId, file: FoundFile, sizes: dict[int, int]) -> Iterator[Finding]:
    """Yield the flaws of one file; add offset and size of each record to ``sizes``."""
    base = file.what.base_offset or 0
    named = 0
    with case.store.filesystem.open_read(file.path) as opened:
        for place in SegmentWalk(opened, base, compacted=True).places():
            if isinstance(place.what, Message):
                sizes[base + place.file_offset] = place.what.total_size
            elif isinstance(place.what, Flaw) and not case.live and named < _NAMED:
                named += 1
                text = f"{place.what.code}: {place.what.message}"
                yield new_finding("CM-WRONG", text, Place(file.path, place.file_offset, place.length, *queue))


def _check_queue(case: Case, queue: QueueId, file: FoundFile, sizes: dict[int, int]) -> Iterator[Finding]:
    named = 0
    with case.store.filesystem.open_read(file.path) as opened:
        data = opened.pread(file.size, 0)
    for number, unit in enumerate(_UNIT.iter_decode(data)):
        if not consume_queue.is_batch_written(unit):
            return
        if sizes.get(unit.physical_offset) != unit.size and not case.live and named < _NAMED:
            named += 1
            text = f"the entry points to {unit.physical_offset} ({unit.size} bytes), where no such record begins"
            yield new_finding("CM-WRONG", text, Place(file.path, number * _UNIT.size, _UNIT.size, *queue))


# Missing until the node votes for the first time.
_NO_LEADER = "voteLeader"


def check_dledger(case: Case) -> Iterator[Finding]:
    """Yield the findings of a DLedger log, except for its records."""
    for file in case.files(FileKind.DLEDGER_STATE):
        data = case.store.read_file(file.path, 1 << 16)
        if data is None or file.what.copy is Copy.TMP:
            continue
        decoded = control_texts.decode_dledger_state(file.what.name or "", data)
        if isinstance(decoded, Flaw):
            yield new_finding(decoded.code, decoded.message, Place(file.path, decoded.at, decoded.length))
            continue
        keys = control_texts.DLEDGER_KEYS[file.what.name or ""]
        lacking = [key for key in keys if key not in decoded and key != _NO_LEADER]
        if lacking and not case.live:
            yield new_finding("DL-STATE", f"{' and '.join(lacking)} is missing", Place(file.path, 0, len(data)))
    if case.store.is_dledger:
        yield from _check_entries(case)


def _check_entries(case: Case) -> Iterator[Finding]:
    index = case.store.listing.segments(case.files(FileKind.DLEDGER_INDEX))
    before: DLedgerEntryHead | None = None
    named = 0
    for segment in case.log:
        for entry in walk_dledger(case.log.open(segment), segment.base_offset):
            head = entry.head
            if not isinstance(head, DLedgerEntryHead) or named > _NAMED:
                continue
            place = Place(segment.path, entry.file_offset, layouts.DLEDGER_ENTRY_HEAD.size)
            for text in _faults(head, before, segment.base_offset + entry.file_offset):
                named += 1
                yield new_finding("DL-INDEX", text, place)
            unit_at = head.entry_index * INDEX_UNIT_SIZE
            data = index.read(unit_at, INDEX_UNIT_SIZE)
            if len(data) == INDEX_UNIT_SIZE and data.strip(b"\0"):
                unit = layouts.DLEDGER_INDEX_UNIT.decode(data)
                told = (unit.pos, unit.size, unit.entry_index, unit.term)
                if told != (head.pos, head.size, head.entry_index, head.term):
                    named += 1
                    found = index.find(unit_at)
                    file = found.path if found is not None else None
                    at = unit_at - (found.base_offset if found is not None else 0)
                    text = f"the index points to {unit.pos} ({unit.size} bytes) for entry {head.entry_index}"
                    yield new_finding("DL-INDEX", text, Place(file, at, INDEX_UNIT_SIZE))
            elif not case.live:
                named += 1
                yield new_finding("DL-INDEX", f"entry {head.entry_index} is not in the index", place)
            before = head


def _faults(head: DLedgerEntryHead, before: DLedgerEntryHead | None, position: int) -> Iterator[str]:
    if head.pos != position:
        yield f"entry {head.entry_index} is at {position}, but names {head.pos} as its position"
    if before is not None and head.entry_index != before.entry_index + 1:
        yield f"entry {head.entry_index} follows entry {before.entry_index}"
    if before is not None and head.term < before.term:
        yield f"term {head.term} follows term {before.term}"
