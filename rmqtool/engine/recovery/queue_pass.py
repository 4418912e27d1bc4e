"""Compares one simple consume queue with the log, and repairs it.

The log decides: the entry of queue offset n is that of the record that claims n (``audit.claims``). Entries are
compared while the log is read and written only where they differ. So a right queue is not touched, a short one grows, a
missing one is created.

upstream: ConsumeQueue.recover trusts the last three files, and numbers later messages by their length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rmqtool.audit.claims import Claim, QueueClaims, Verdict
from rmqtool.engine.consume_queue import DerivedQueue
from rmqtool.engine.message import QueueKey
from rmqtool.engine.recovery.report import Misfit
from rmqtool.files.filesystem import join
from rmqtool.formats import layouts
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.consume_queue import FILLER_UNIT, LAST_OFFSET, UNIT_SIZE, is_written
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import segment_name
from rmqtool.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC, is_directory_name
from rmqtool.log.end import read_record

if TYPE_CHECKING:
    from rmqtool.audit.damage import Bridge
    from rmqtool.audit.log_pass import LogPass
    from rmqtool.columns.queues import QueueRun
    from rmqtool.store.segments import SegmentQueue

_UNIT = layouts.CONSUME_QUEUE_UNIT
# Readers skip an entry of this size in bytes: a record of that size would end before its hosts.
_TOO_SHORT = 48
# Entries that are read at once.
_CHUNK = 4096

# Called with a position in the queue, in bytes, and the bytes to write there.
Write: TypeAlias = Callable[[int, bytes], None]


@dataclass
class Evidence:
    """Shared by the checks of all queues: entries and records that do not fit each other.

    ``standing`` are entries that no record claims, as queue and queue offset, by the physical offset that they point
    to. ``strays`` are records that cannot have the queue offset that they claim (``Verdict.STRAY``), each with the
    check of its queue. ``misfits`` are for the report: their entry is not at the offset that they claim, or they have
    none.
    """

    standing: dict[int, list[tuple[QueueKey, int]]] = field(default_factory=dict)
    strays: list[tuple[QueueCheck, Claim]] = field(default_factory=list)
    misfits: list[Misfit] = field(default_factory=list)


class QueueCheck:
    """Compares and repairs one queue while the log is read; its records are taken in the order of the log."""

    def __init__(
        self,
        key: QueueKey,
        files: DerivedQueue,
        write: Write,
        log: LogPass,
        evidence: Evidence,
        ext: SegmentQueue | None = None,
    ) -> None:
        self.key = key
        self.claims = QueueClaims(self, log.damage.lost_between, log.log.min_offset)
        self.wrong_units = 0
        # The end of entries that were written for a deleted topic of this name.
        self.former_end = 0
        self._files = files
        self._write = write
        self._log = log
        self._evidence = evidence
        self._ext = ext
        self._pending: Claim | None = None
        # Where the records of the present topic begin, by its first entry on disk; None before that is known.
        self._begin: int | None = None

    def take(self, run: QueueRun) -> None:
        """Take the records of one batch: consecutive claims are compared at once, others one by one."""
        import numpy as np

        if self._begin is None:
            self._begin = self._find_begin(int(run.units["physical_offset"][0]))
        if self._begin > run.units["physical_offset"][0]:
            rows = run.units["physical_offset"] >= self._begin
            run = run._replace(queue_offsets=run.queue_offsets[rows], units=run.units[rows])
        breaks = np.append(np.flatnonzero(np.diff(run.queue_offsets) != 1) + 1, len(run.units)).tolist()
        begin = 0
        for end in breaks:
            while begin < end and (self._pending is not None or self.claims.expected != run.queue_offsets[begin]):
                self._take_odd(Claim(int(run.queue_offsets[begin]), ConsumeQueueUnit(*run.units[begin].item())))
                begin += 1
            if begin < end:
                self._compare(int(run.queue_offsets[begin]), run.units[begin:end])
            begin = end

    def _find_begin(self, first: int) -> int:
        """Return where the records of the queue begin; those before are of a deleted topic of this name.

        ``first`` is the place of the first record that names the queue.
        """
        unit = self.read_unit(0)
        if unit is None or not is_written(unit) or unit.size == FILLER_SIZE or unit.physical_offset <= first:
            return first
        record = read_record(self._log.log, unit.physical_offset)
        is_own = record is not None and (record.topic, record.queue_id, record.queue_offset) == (*self.key, 0)
        return unit.physical_offset if is_own else first

    def _take_odd(self, claim: Claim) -> None:
        """Take a record whose offset may not follow the one before."""
        self._settle(claim.queue_offset)
        verdict = self.claims.judge(claim)
        if verdict is None:
            self._pending = claim
        else:
            self._accept(claim, verdict)

    def _settle(self, following: int | None) -> None:
        """Decide about the waiting record, now that the next record of the queue claims ``following``.

        At the end of the log ``following`` must be None. Without a waiting record this does nothing.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            self._accept(pending, self.claims.judge_by(pending, following))

    def _accept(self, claim: Claim, verdict: Verdict) -> None:
        """Write the entry of a record where ``verdict`` says, and fill the gap before it; keep a stray as evidence."""
        expected = self.claims.expected
        if verdict is Verdict.STRAY:
            self._evidence.strays.append((self, claim))
        elif verdict is Verdict.NEXT and expected is not None:
            self._stand_at(expected, claim)
        else:
            if verdict is Verdict.BEGINS and expected is not None:
                self._forget_deleted_topic(expected)
            elif expected is None:
                self._fill_head(claim)
            elif claim.queue_offset > expected:
                self._fill_gap(expected, claim)
            self._put(claim.queue_offset, claim.unit)

    def _forget_deleted_topic(self, expected: int) -> None:
        """Forget the records so far: they are of a deleted topic of this name."""
        for at in range(0, expected, _CHUNK):
            self.clear(at, min(_CHUNK, expected - at))
        self.former_end = max(self.former_end, expected)
        self.wrong_units = 0
        self._evidence.strays = [(check, claim) for check, claim in self._evidence.strays if check is not self]

    def _stand_at(self, queue_offset: int, claim: Claim) -> None:
        """Give a record another queue offset than it claims, and report it as a misfit."""
        self.misfit(claim, f"its queue entry is at {queue_offset}: the queue offset in the record is wrong")
        self._put(queue_offset, claim.unit)

    def misfit(self, claim: Claim, reason: str) -> None:
        """Note for the report that a record of this queue is not at the queue offset that it claims, and why."""
        self._evidence.misfits.append(Misfit(claim.unit.physical_offset, *self.key, claim.queue_offset, reason))

    def _put(self, queue_offset: int, unit: ConsumeQueueUnit) -> None:
        """Write an entry, unless the one on disk is right, and expect the next one."""
        found = self.read_unit(queue_offset)
        if found is None or not self._is_right(found, unit):
            self.replace(queue_offset, _UNIT.encode(unit))
        self.claims.place(queue_offset, unit.physical_offset + unit.size)

    def lead_to(self, queue_offset: int, unit: ConsumeQueueUnit) -> bool:
        """Return whether the entry on disk at a queue offset leads to the record of ``unit``, with any tags code."""
        found = self.read_unit(queue_offset)
        return found is not None and found[:2] == unit[:2]

    def _is_right(self, found: ConsumeQueueUnit, due: ConsumeQueueUnit) -> bool:
        """Return whether an entry on disk is the one that a record is due."""
        if found == due or found[:2] != due[:2]:
            return found == due

        from rmqtool.audit.queues import judge_units
        from rmqtool.columns.queues import decode_units

        wanted, there = (decode_units(_UNIT.encode(unit)) for unit in (due, found))
        return bool(judge_units(self.key[0], wanted, there, self._ext).right[0])

    def read_unit(self, queue_offset: int) -> ConsumeQueueUnit | None:
        """Return the entry on disk, zeros if it was never written; None without a file."""
        data = self._files.read(queue_offset * UNIT_SIZE, UNIT_SIZE)
        return _UNIT.decode(data) if len(data) == UNIT_SIZE else None

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return the entries on disk; zeros where there is no file."""
        position, end = queue_offset * UNIT_SIZE, (queue_offset + count) * UNIT_SIZE
        parts = []
        while position < end:
            length = min(end - position, self._files.file_size - position % self._files.file_size)
            parts.append(self._files.read(position, length).ljust(length, b"\0"))
            position += length
        return b"".join(parts)

    def replace(self, queue_offset: int, units: bytes) -> None:
        """Write entries that differ from those on disk, and count them as wrong."""
        self.wrong_units += len(units) // UNIT_SIZE
        self._write(queue_offset * UNIT_SIZE, units)

    def clear(self, queue_offset: int, count: int) -> None:
        """Write zeros over ``count`` entries; to readers the queue ends there."""
        self._write(queue_offset * UNIT_SIZE, bytes(count * UNIT_SIZE))

    def _compare(self, queue_offset: int, units: Any) -> None:
        """Compare the entries of records with consecutive offsets with those on disk."""
        import numpy as np

        from rmqtool.audit.queues import judge_units
        from rmqtool.columns.queues import decode_units

        found = decode_units(self.read(queue_offset, len(units)))
        wrong = np.flatnonzero(~judge_units(self.key[0], units, found, self._ext).right)
        for rows in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1):
            if len(rows):
                self.replace(queue_offset + int(rows[0]), units[rows[0] : rows[-1] + 1].tobytes())
        self.claims.place(queue_offset + len(units) - 1, int(units["physical_offset"][-1]) + int(units["size"][-1]))

    def _fill_head(self, claim: Claim) -> None:
        """Fill the entries before the first record in its file: a broker reads a file from its beginning."""
        first = claim.queue_offset
        if not self._log.log.min_offset and self.claims.is_explained(claim, 0):
            # No message was removed from this log yet: the messages before are lost to damage.
            self._fill_gap(0, claim)
            return
        per_file = self._files.file_size // UNIT_SIZE
        begin = first - first % per_file
        if self._files.read(begin * UNIT_SIZE, UNIT_SIZE) or begin < first:
            self._fill_before(begin, claim)

    def _fill_before(self, begin: int, claim: Claim) -> None:
        """Fill entries that are not written, or that point to the first record or later: their messages are lost."""
        for at in range(begin, claim.queue_offset, _CHUNK):
            count = min(_CHUNK, claim.queue_offset - at)
            for number, unit in enumerate(_UNIT.iter_decode(self.read(at, count))):
                if not is_written(unit) or unit.physical_offset >= claim.unit.physical_offset:
                    self.replace(at + number, FILLER_UNIT)

    def _fill_gap(self, begin: int, following: Claim) -> None:
        """Fill the entries of lost messages; an entry that may belong to one of them stays."""
        for queue_offset in range(begin, following.queue_offset):
            unit = self.read_unit(queue_offset)
            bridge = self._log.damage.find_last_bridge(self.claims.last_end, following.unit.physical_offset)
            stand_in = self._stand_in(bridge)
            if unit is not None and bridge is not None and unit.size == FILLER_SIZE:
                # It was filled before the bridge was written.
                if _UNIT.encode(unit) != stand_in:
                    self.replace(queue_offset, stand_in)
            elif unit is None or not self.may_stay(queue_offset, unit):
                self.replace(queue_offset, stand_in)

    def _stand_in(self, bridge: Bridge | None) -> bytes:
        """Return the entry of a lost message: it points to the bridge over its record.

        upstream: after an entry that points nowhere, DefaultMessageStore.getMessage skips the rest of the segment. The
        readers of delays and timers skip an entry that is too short for a record, but cannot take a record that is not
        theirs. A filler claims the first 2 GiB of the log, and at the end of a queue a start takes that for the end of
        the dispatched log.
        """
        if bridge is None:
            return FILLER_UNIT
        size = _TOO_SHORT if self.key[0] in (SCHEDULE_TOPIC, TIMER_TOPIC) else bridge.size
        return _UNIT.encode(ConsumeQueueUnit(bridge.physical_offset, size, 0))

    def may_stay(self, queue_offset: int, unit: ConsumeQueueUnit) -> bool:
        """Return whether an entry that no record claims may stay.

        It may if its message is lost or removed, or is a record that claims another place. An entry of a message under
        a bridge is replaced by that bridge's; one of another record is noted as evidence about that record.
        """
        if not is_written(unit):
            return False
        at = unit.physical_offset
        if unit.size == FILLER_SIZE or at < self._log.log.min_offset or self._log.damage.covers(at):
            return True
        bridge = self._log.damage.find_bridge(at)
        if bridge is not None:
            stand_in = self._stand_in(bridge)
            if _UNIT.encode(unit) != stand_in:
                self.replace(queue_offset, stand_in)
            return True
        record = self._log.find_record(at)
        if record is None or record.total_size != unit.size:
            return False
        self._evidence.standing.setdefault(at, []).append((self.key, queue_offset))
        return True

    def iter_former(self, end: int) -> Iterator[str]:
        """Yield the files that were made for a deleted topic of this name, from queue offset ``end`` on."""
        size = self._files.file_size
        for base in range(-(-end * UNIT_SIZE // size) * size, self.former_end * UNIT_SIZE, size):
            yield join(self._files.directory, segment_name(base))

    def settle_last(self) -> None:
        """Decide about a record that still waits at the end of the log."""
        self._settle(None)

    def place_stray(self, claim: Claim) -> None:
        """Write an entry for a stray without one, at its claim or after the end; or note it as a misfit."""
        topic, queue_id = self.key
        offset, expected = claim.queue_offset, self.claims.expected
        if not is_directory_name(topic) or not 0 <= queue_id <= INT_MAX:
            self.misfit(claim, "a queue cannot have this name")
        elif expected is None and 0 <= offset <= LAST_OFFSET:
            self._accept(claim, Verdict.CLAIMED)
        elif expected is None or 0 <= offset < expected:
            self.misfit(
                claim, "another message has its queue offset" if expected else "the queue offset is impossibly large"
            )
        else:
            self._stand_at(expected, claim)
