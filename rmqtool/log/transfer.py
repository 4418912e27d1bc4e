"""Messages made ready for another log: their numbers, hosts and references, by columns and in a buffer of their own.

Which queue offset each message of a log gets in a copy.

Kept, a queue offset is what the record says: damage of a header that no checksum covers may say anything. Numbers that
rise along the log, and that the queue's own units confirm, are believed; a record that breaks the row gets the number
that is free between its neighbours. One that finds none comes behind all others, as the last of its queue.

Messages with a part of them left out, or with another broker's address: each is encoded anew, its place aside.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.hosts import offset_msg_ids
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import have_queue_unit
from rmqtool.columns.records import Records, decode_records
from rmqtool.columns.rewriting import Packed, pack
from rmqtool.errors import ReadFailed, UsageError
from rmqtool.formats import layouts, timer
from rmqtool.formats.codes import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag, TransactionType
from rmqtool.formats.commit_log import Message, decode_record, encode_message, record_size
from rmqtool.formats.hosts import IPV6_LENGTH
from rmqtool.formats.java import encode_text, parse_short
from rmqtool.formats.layouts import MessageRecord
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import (
    BUYER_ID,
    CORRELATION_ID,
    INNER_NUM,
    INSTANCE_ID,
    KEYS,
    TAGS,
    UNIQ_KEY,
    is_reserved,
)
from rmqtool.formats.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, TIMER_TOPIC, TopicKind, topic_kind
from rmqtool.log.ownership import WAITING
from rmqtool.log.queue_entries import QueueFiles, read_unit_places

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
        texts = decode_properties(records).values(INNER_NUM).to_pylist()
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


Host = tuple[bytes, int]

_SEPARATOR = PROPERTY_SEPARATOR.encode("ascii")
_NAME_END = NAME_VALUE_SEPARATOR.encode("ascii")
# Reserved names that a message does without: clients look at them, brokers need none.
_FREE = frozenset({KEYS, TAGS, UNIQ_KEY, BUYER_ID, CORRELATION_ID, INSTANCE_ID})
BODY = "body"
# Topics of a broker in which messages of clients lie.
_OF_CLIENTS = (*WAITING, CHECK_MAX_TIME_TOPIC)


@dataclass(frozen=True)
class Redaction:
    """What every message loses: its body, some properties; and the address of the broker that stored it.

    What a broker keeps for itself loses nothing but the address: without it the broker could not go on.
    """

    body: bool = False
    properties: frozenset[bytes] = frozenset()
    store_host: Host | None = None

    @classmethod
    def of(cls, words: tuple[str, ...], store_host: Host | None) -> Redaction:
        """Return the redaction of ``--redact``: the word ``body``, or names of properties."""
        for word in words:
            if word != BODY and is_reserved(word) and word not in _FREE:
                raise UsageError(
                    f"--redact {word}: a broker needs this property", hint="use body, KEYS, TAGS or one of your own"
                )
        named = frozenset(encode_text(word) for word in words if word != BODY)
        return cls(BODY in words, named, store_host)

    def apply(self, records: Records) -> Records:
        """Return the records as they are wanted, in a buffer of their own."""
        if not self.body and not self.properties and self.store_host is None:
            return records
        topics = records.topics
        own = topics.each(lambda topic: topic_kind(topic) is TopicKind.SYSTEM and topic not in _OF_CLIENTS, np.bool_)
        parts = list(self._encoded(records, own.tolist()))
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        made, declined = decode_records(b"".join(parts), np.cumsum(sizes) - sizes)
        assert declined is None, f"the encoded bytes are not a record: {declined}"
        return made

    def _encoded(self, records: Records, own: list[bool]) -> Iterator[bytes]:
        data = records.data.data
        for at, is_own in zip(records.file_offsets.tolist(), own, strict=True):
            message = decode_record(data, at)
            assert isinstance(message, Message), f"the columns hold only whole messages, not {message}"
            yield encode_message(self._changed(message, is_own=is_own))

    def _changed(self, message: Message, *, is_own: bool) -> MessageRecord:
        flags, body, crc, text = message.sys_flag, message.raw_body, message.body_crc, message.raw_properties
        if self.body and not is_own:
            body, crc, flags = b"", 0, flags & ~(COMPRESSION_MASK | int(SysFlag.COMPRESSED))
        if self.properties and not is_own:
            pairs = text.split(_SEPARATOR)
            text = _SEPARATOR.join(pair for pair in pairs if pair.split(_NAME_END, 1)[0] not in self.properties)
        address, port = self.store_host or (message.store_host_ip, message.store_host_port)
        flags = flags & ~int(SysFlag.STORE_HOST_V6) | (int(SysFlag.STORE_HOST_V6) if len(address) == IPV6_LENGTH else 0)
        return message._replace(
            total_size=record_size(flags, message.magic, len(body), len(message.raw_topic), len(text)),
            sys_flag=flags,
            body_crc=crc,
            body_length=len(body),
            raw_body=body,
            raw_properties=text,
            store_host_ip=address,
            store_host_port=port,
        )


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
        decode_properties(old).values(UNIQ_KEY).to_pylist(),
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
