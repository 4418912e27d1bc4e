"""Which queue offset each message of a log gets in a copy.

Kept, a queue offset is what the record says: damage of a header that no checksum covers may say anything. Numbers that
rise along the log, and that the queue's own units confirm, are believed; a record that breaks the row gets the number
that is free between its neighbours. One that finds none comes behind all others, as the last of its queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from rmqtool.bulk.gather import Ints, Mask
from rmqtool.bulk.properties import decode_properties
from rmqtool.bulk.queues import have_queue_unit
from rmqtool.bulk.records import Records
from rmqtool.errors import ReadFailed
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.java import parse_short
from rmqtool.scan.queue_units import QueueFiles, read_unit_places

Queue = tuple[str, int]

# A number that is so far ahead of the last one is believed only where the queue's units confirm it.
WIDEST_GAP = 1 << 20


class Numbered(NamedTuple):
    """The queue offsets of messages; those that are ``late`` have none yet."""

    queue_offsets: Ints
    late: Mask


class Watch:
    """Offsets of one queue of one source, and where each of them leads to in the copy: what groups have consumed."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self.offsets: Ints = np.array(sorted(set(offsets)), np.int64)
        self.found: dict[int, int] = {}

    def see(self, claims: Ints, numbers: Ints) -> None:
        """Learn the numbers of messages: an offset leads to the first message that is not before it."""
        open_offsets = self.offsets[len(self.found) :]
        if not len(open_offsets) or not len(claims):
            return
        reached = np.maximum.accumulate(claims)
        rows = np.searchsorted(reached, open_offsets)
        for offset, row in zip(open_offsets.tolist(), rows.tolist(), strict=True):
            if row < len(numbers):
                self.found[offset] = int(numbers[row])


class Numbering:
    """The queues of a copy while it grows. ``begins_anew`` says of a topic whether its queues count from 0."""

    def __init__(self, begins_anew: Callable[[str], bool]) -> None:
        self.next: dict[Queue, int] = {}
        self.moved = 0
        self.begins_anew = begins_anew

    def number(self, records: Records, of_source: SourceQueues) -> Numbered:
        """Return the queue offsets of records that follow those before."""
        offsets: Ints = records.column("queue_offset").astype(np.int64)
        late = np.zeros(len(records), np.bool_)
        rows = np.flatnonzero(have_queue_unit(records))
        topics = records.topics
        keys = (
            topics.codes[rows].astype(np.int64) << 32 | records.column("queue_id")[rows].astype(np.int64) & 0xFFFFFFFF
        )
        counts = _message_counts(records)
        found, codes = np.unique(keys, return_inverse=True)
        order = rows[np.argsort(codes, kind="stable")]
        ends = np.cumsum(np.bincount(codes, minlength=len(found))).tolist()
        for key, begin, end in zip(found.tolist(), [0, *ends], ends, strict=False):
            queue = topics.values[key >> 32], int(np.int64(key).astype(np.int32))
            own = order[begin:end]
            claims = offsets[own].copy()
            if self.begins_anew(queue[0]):
                due = self.next.get(queue, 0)
                steps = counts[own]
                offsets[own] = due + np.cumsum(steps) - steps
            else:
                offsets[own], late[own] = self._kept(queue, claims, records.column("physical_offset")[own], of_source)
            placed = own[~late[own]]
            if len(placed):
                self.next[queue] = int(offsets[placed[-1]] + counts[placed[-1]])
            of_source.see(queue, claims[~late[own]], offsets[placed])
        return Numbered(offsets, late)

    def append(self, records: Records) -> Ints:
        """Return offsets behind all others: for messages that were late."""
        topics = records.topics
        offsets = np.empty(len(records), np.int64)
        for row, (code, queue_id) in enumerate(
            zip(topics.codes.tolist(), records.column("queue_id").tolist(), strict=True)
        ):
            queue = topics.values[code], queue_id
            offsets[row] = self.next.get(queue, 0)
            self.next[queue] = int(offsets[row]) + 1
        return offsets

    def _kept(self, queue: Queue, claims: Ints, places: Ints, of_source: SourceQueues) -> tuple[Ints, Mask]:
        due = self.next.get(queue)
        is_row = bool((np.diff(claims) == 1).all()) and claims[0] >= 0
        if is_row and due is not None and claims[0] == due:
            return claims, np.zeros(len(claims), np.bool_)
        named = of_source.places_at(queue, claims)
        if _is_sound(claims, due) and not _is_contradicted(named, places):
            return claims, np.zeros(len(claims), np.bool_)
        chain = _chain(claims, due, named, places)
        numbers, late = _fill(claims, chain, due)
        self.moved += int((numbers != claims).sum())
        return numbers, late


class SourceQueues:
    """What the queues of one source say of its messages, and what is watched there."""

    def __init__(self, queues: Iterable[QueueFiles], watches: Mapping[Queue, Watch]) -> None:
        self._files = {(one.queue.topic, one.queue.queue_id): one for one in queues if not one.is_batch}
        self._watches = watches

    def places_at(self, queue: Queue, claims: Ints) -> Ints | None:
        """Return the places that units name at the claimed offsets; None where no queue tells."""
        files = self._files.get(queue)
        if files is None:
            return None
        try:
            return read_unit_places(files, claims)
        except ReadFailed:  # the queues are a help, no more
            return None

    def see(self, queue: Queue, claims: Ints, numbers: Ints) -> None:
        """Learn the numbers of messages of a queue."""
        watch = self._watches.get(queue)
        if watch is not None:
            watch.see(claims, numbers)


def _message_counts(records: Records) -> Ints:
    """Return how many queue offsets each record takes: an inner batch takes several."""
    counts = np.ones(len(records), np.int64)
    rows = np.flatnonzero(records.column("sys_flag") & int(SysFlag.INNER_BATCH))
    if len(rows):
        texts = decode_properties(records).values("INNER_NUM").to_pylist()
        for row in rows.tolist():
            counts[row] = max(parse_short(texts[row] or "") or 1, 1)
    return counts


def _is_sound(claims: Ints, due: int | None) -> bool:
    """Return whether numbers rise from the one that is due, without a jump that only units could explain."""
    steps = np.diff(claims, prepend=claims[0] - 1 if due is None else due - 1)
    return bool((steps > 0).all() and (steps <= WIDEST_GAP).all() and 0 <= claims[0] < 1 << 40)


def _is_contradicted(named: Ints | None, places: Ints) -> bool:
    """Return whether units say of one of the numbers that another record has it, or that it does not exist."""
    return named is not None and bool((named != places).any())


def _chain(claims: Ints, due: int | None, named: Ints | None, places: Ints) -> Mask:
    """Return which of the numbers are believed: they rise, and as many as possible do."""
    possible = (claims >= (0 if due is None else due)) & (claims < 1 << 40)
    confirmed = np.zeros(len(claims), np.bool_)
    if named is not None and (named == places).sum() * 2 >= len(claims):
        confirmed = possible & (named == places)
        # What no unit contradicts must at least fit between those that units confirm.
        below = np.maximum.accumulate(np.where(confirmed, claims, -1))
        above = np.minimum.accumulate(np.where(confirmed, claims, 1 << 62)[::-1])[::-1]
        possible &= confirmed | ((claims > below) & (claims < above) & (named < 0))
    elif due is not None:
        possible &= claims <= due + WIDEST_GAP
    chain = np.zeros(len(claims), np.bool_)
    chain[_longest_rise(claims, np.flatnonzero(possible))] = True
    return chain


def _longest_rise(claims: Ints, rows: Ints) -> list[int]:
    """Return the rows of a longest strictly rising choice of ``claims``."""
    tails: list[int] = []
    tail_rows: list[int] = []
    before: dict[int, int] = {}
    for row in rows.tolist():
        value = int(claims[row])
        at = bisect_left(tails, value)
        before[row] = tail_rows[at - 1] if at else -1
        tails[at : at + 1] = [value]
        tail_rows[at : at + 1] = [row]
    found = []
    row = tail_rows[-1] if tail_rows else -1
    while row >= 0:
        found.append(row)
        row = before[row]
    return found[::-1]


def _fill(claims: Ints, chain: Mask, due: int | None) -> tuple[Ints, Mask]:
    """Return the numbers: those of the chain as they are, free ones before the next of the chain for the others."""
    numbers, late = claims.copy(), ~chain
    above = np.minimum.accumulate(np.where(chain, claims, 1 << 62)[::-1])[::-1]
    last = -1
    if due is not None:
        last = due - 1
    elif chain.any():
        # Those before the first of the chain stood right before it.
        first = int(np.argmax(chain))
        last = max(int(claims[first]) - first - 1, -1)
    for row in range(len(claims)):
        if not chain[row] and last + 1 < above[row]:
            numbers[row], late[row] = last + 1, False
        if not late[row]:
            last = int(numbers[row])
    return numbers, late
