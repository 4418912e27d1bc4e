"""Moving messages into another store: new queue offsets, hosts and references, in columns.

A message that goes into a copy keeps its queue offset if that can be trusted. No checksum covers the header, so a
damaged one can claim any number: numbers are trusted if they rise along the log and the queue's own entries confirm
them. A record that breaks this order gets the free number between its neighbours. Without one it is *late*: it
becomes the last of its queue.

``Redaction`` encodes messages without bodies or properties, or with another store host. ``SourceMove`` combines the
two, and maps the physical offsets by which other records refer to half messages and timer messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmqtool.columns.encode import Packed, pack
from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.hosts import offset_msg_ids
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import have_queue_unit
from rmqtool.columns.records import Records, decode_records
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

# Topic and queue id.
Queue = tuple[str, int]

# A larger step between two numbers is trusted only if the queue's entries confirm it.
WIDEST_GAP = 1 << 20


class Numbered(NamedTuple):
    """Queue offsets of messages; those that are ``late`` have none yet."""

    queue_offsets: Ints
    late: Mask


class Watch:
    """Offsets of one queue of a source (the committed offsets of groups), and what each becomes in the copy."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self.offsets: Ints = np.array(sorted(set(offsets)), np.int64)
        self.found: dict[int, int] = {}

    def see(self, claims: Ints, numbers: Ints) -> None:
        """Take the old and the new offsets of the next messages.

        A watched offset becomes the new offset of the first message at or after it.
        """
        open_offsets = self.offsets[len(self.found) :]
        if not len(open_offsets) or not len(claims):
            return
        reached = np.maximum.accumulate(claims)
        rows = np.searchsorted(reached, open_offsets)
        for offset, row in zip(open_offsets.tolist(), rows.tolist(), strict=True):
            if row < len(numbers):
                self.found[offset] = int(numbers[row])


class Numbering:
    """The queues of a copy while it is written. ``begins_anew`` says whether the queues of a topic count from 0.

    For the other topics ``moved`` counts the messages that got another queue offset than they had, without late ones.
    """

    def __init__(self, begins_anew: Callable[[str], bool]) -> None:
        self.next: dict[Queue, int] = {}
        self.moved = 0
        self.begins_anew = begins_anew

    def number(self, records: Records, of_source: SourceQueues) -> Numbered:
        """Return the queue offsets of the next records in the order of the log."""
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
        """Return queue offsets after all others, for late messages."""
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
        """Return the claimed offsets if they can be trusted as they are, else a numbering around the trusted ones.

        The mask is that of the late messages, which have no number.
        """
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
    """The queues of one source: the physical offsets in their entries, and the watched offsets."""

    def __init__(self, queues: Iterable[QueueFiles], watches: Mapping[Queue, Watch]) -> None:
        self._files = {(one.queue.topic, one.queue.queue_id): one for one in queues if not one.is_batch}
        self._watches = watches

    def places_at(self, queue: Queue, claims: Ints) -> Ints | None:
        """Return the physical offsets in the entries at the claimed offsets; None without a readable queue."""
        files = self._files.get(queue)
        if files is None:
            return None
        try:
            return read_unit_places(files, claims)
        except ReadFailed:  # then the numbers are judged without entries
            return None

    def see(self, queue: Queue, claims: Ints, numbers: Ints) -> None:
        """Tell the watch of a queue, if it has one, the old (``claims``) and the new offsets of its next messages."""
        watch = self._watches.get(queue)
        if watch is not None:
            watch.see(claims, numbers)


def _message_counts(records: Records) -> Ints:
    """Return how many queue offsets each record takes: an inner batch takes one for each message."""
    counts = np.ones(len(records), np.int64)
    rows = np.flatnonzero(records.column("sys_flag") & int(SysFlag.INNER_BATCH))
    if len(rows):
        texts = decode_properties(records).values(INNER_NUM).to_pylist()
        for row in rows.tolist():
            counts[row] = max(parse_short(texts[row] or "") or 1, 1)
    return counts


def _is_sound(claims: Ints, due: int | None) -> bool:
    """Return whether numbers rise from the expected one without a jump that needs confirmation.

    A number of 2**40 or more is damage: no queue has that many messages.
    """
    steps = np.diff(claims, prepend=claims[0] - 1 if due is None else due - 1)
    return bool((steps > 0).all() and (steps <= WIDEST_GAP).all() and 0 <= claims[0] < 1 << 40)


def _is_contradicted(named: Ints | None, places: Ints) -> bool:
    """Return whether an entry names another record for one of the numbers, or does not exist."""
    return named is not None and bool((named != places).any())


def _chain(claims: Ints, due: int | None, named: Ints | None, places: Ints) -> Mask:
    """Return which numbers are trusted: the longest rising sequence of possible numbers.

    A number is possible from ``due`` on (0 without it) and below 2**40. An entry in the source confirms the number of
    the record that it points to. If entries confirm at least half of the numbers, another number is possible only if it
    has no entry and fits between the confirmed ones around it. If they confirm fewer, a possible number is at most
    ``WIDEST_GAP`` after ``due``.
    """
    possible = (claims >= (0 if due is None else due)) & (claims < 1 << 40)
    confirmed = np.zeros(len(claims), np.bool_)
    if named is not None and (named == places).sum() * 2 >= len(claims):
        confirmed = possible & (named == places)
        # Numbers without an entry must at least fit between confirmed ones.
        below = np.maximum.accumulate(np.where(confirmed, claims, -1))
        above = np.minimum.accumulate(np.where(confirmed, claims, 1 << 62)[::-1])[::-1]
        possible &= confirmed | ((claims > below) & (claims < above) & (named < 0))
    elif due is not None:
        possible &= claims <= due + WIDEST_GAP
    chain = np.zeros(len(claims), np.bool_)
    chain[_longest_rise(claims, np.flatnonzero(possible))] = True
    return chain


def _longest_rise(claims: Ints, rows: Ints) -> list[int]:
    """Return the rows of a longest strictly rising subsequence of ``claims``."""
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
    """Return the numbers: trusted ones as they are, and for the others the free ones before the next trusted one.

    The mask is that of the late messages, for which no number is free.
    """
    numbers, late = claims.copy(), ~chain
    above = np.minimum.accumulate(np.where(chain, claims, 1 << 62)[::-1])[::-1]
    last = -1
    if due is not None:
        last = due - 1
    elif chain.any():
        # Records before the first trusted one get the numbers just before it.
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
# Reserved names that can be removed: brokers do not need them.
_FREE = frozenset({KEYS, TAGS, UNIQ_KEY, BUYER_ID, CORRELATION_ID, INSTANCE_ID})
BODY = "body"
# Topics of a broker that contain messages of clients.
_OF_CLIENTS = (*WAITING, CHECK_MAX_TIME_TOPIC)


@dataclass(frozen=True)
class Redaction:
    """The parts that every message loses, and the new store host.

    A broker's own records lose nothing and only get the host: the broker could not go on without them.
    """

    body: bool = False
    properties: frozenset[bytes] = frozenset()
    store_host: Host | None = None

    @classmethod
    def of(cls, words: tuple[str, ...], store_host: Host | None) -> Redaction:
        """Return the redaction of ``--redact``: the word ``body``, and names of properties.

        Raises UsageError for a property that brokers need.
        """
        for word in words:
            if word != BODY and is_reserved(word) and word not in _FREE:
                raise UsageError(
                    f"--redact {word}: a broker needs this property", hint="use body, KEYS, TAGS or one of your own"
                )
        named = frozenset(encode_text(word) for word in words if word != BODY)
        return cls(BODY in words, named, store_host)

    def apply(self, records: Records) -> Records:
        """Return the redacted records in a new buffer; the same ``records`` if nothing is redacted."""
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
        """Yield the bytes of each record as it is after the redaction; ``own`` marks a broker's own records."""
        data = records.data.data
        for at, is_own in zip(records.file_offsets.tolist(), own, strict=True):
            message = decode_record(data, at)
            assert isinstance(message, Message), f"the columns hold only whole messages, not {message}"
            yield encode_message(self._changed(message, is_own=is_own))

    def _changed(self, message: Message, *, is_own: bool) -> MessageRecord:
        """Return a redacted message, with the lengths, flags and checksum that it has then."""
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


# Commits name half messages, and the timer log names timer messages, by their physical offsets.
_NAMED_BY_PLACE = frozenset({HALF_TOPIC, TIMER_TOPIC})
# The physical offset of a half message that was left out: before the first byte of a copy's log (``repairs.target``).
_GONE = 0


class Places:
    """The new physical offsets of moved records that others refer to, and their new sizes: 24 bytes each in memory."""

    def __init__(self) -> None:
        self._old: list[Ints] = []
        self._new: list[Ints] = []
        self._sizes: list[Ints] = []

    def add(self, old: Ints, new: Ints, sizes: Ints) -> None:
        self._old.append(old)
        self._new.append(new)
        self._sizes.append(sizes)

    def find(self, wanted: Ints, missing: int) -> Ints:
        """Return the new offsets; ``missing`` for records that are not in the copy."""
        return self._find(wanted, self._new, np.full(len(wanted), missing, np.int64))

    def find_sizes(self, wanted: Ints, sizes: Ints) -> Ints:
        """Return the new sizes; the value of ``sizes`` for records that are not in the copy."""
        return self._find(wanted, self._sizes, sizes)

    def _find(self, wanted: Ints, column: list[Ints], missing: Ints) -> Ints:
        """Return the value in ``column`` of each record of ``wanted`` (old offsets).

        That in ``missing`` if it was not moved.
        """
        if not self._old:
            return missing
        if len(self._old) > 1:
            columns = [np.concatenate(pieces) for pieces in (self._old, self._new, self._sizes)]
            order = np.argsort(columns[0], kind="stable")  # late messages were added last, out of order
            self._old[:], self._new[:], self._sizes[:] = ([one[order]] for one in columns)
        old = self._old[0]
        at = np.minimum(np.searchsorted(old, wanted), len(old) - 1)
        found: Ints = np.where(old[at] == wanted, column[0][at], missing)
        return found


class Moved(NamedTuple):
    """Records to append: as they were, and packed with new values.

    ``late`` are in neither: they are appended after all others, with offsets of their own; None without any.
    """

    records: Records
    packed: Packed
    late: Records | None

    @property
    def late_count(self) -> int:
        return 0 if self.late is None else len(self.late)


class SourceMove:
    """Moves the messages of one source into the copy."""

    def __init__(self, numbering: Numbering, queues: SourceQueues, redaction: Redaction) -> None:
        self.places = Places()
        self._redaction = redaction
        self._numbering = numbering
        self._queues = queues

    def move(self, records: Records) -> Moved:
        """Return the next records of the source with their new numbers."""
        numbered = self._numbering.number(records, self._queues)
        late = None
        if numbered.late.any():
            late, records = records.select(numbered.late), records.select(~numbered.late)
        offsets = numbered.queue_offsets[~numbered.late]
        return Moved(records, self._packed(records, offsets), late)

    def append(self, moved: Moved) -> Moved:
        """Return the late records of ``moved``, numbered after all others."""
        records = moved.late
        assert records is not None, "nothing was late"
        return Moved(records, self._packed(records, self._numbering.append(records)), None)

    def placed(self, moved: Moved, new: Ints) -> None:
        """Remember the new offsets of those records that others refer to."""
        topics = moved.records.topics
        rows = np.flatnonzero(topics.each(lambda topic: topic in _NAMED_BY_PLACE, np.bool_))
        if len(rows):
            old = moved.records.column("physical_offset")[rows].astype(np.int64)
            self.places.add(old, new[rows], moved.packed.sizes[rows])

    def _packed(self, records: Records, offsets: Ints) -> Packed:
        """Return the records with their new queue offsets; commits name the new places of their half messages."""
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
    """Return the columns of the id map: topic, queue, then old and new offsets and ids, and the key or None."""
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
    """Return a file of the timer log with the physical offsets of the copy.

    A timer whose message was left out gets an offset before the log; brokers ignore such a timer.
    """
    dtype = np.dtype(layouts.TIMER_LOG_UNIT.dtype())
    units = np.frombuffer(data, dtype, len(data) // dtype.itemsize).copy()
    is_unit = units["size"] == timer.UNIT_SIZE
    # After the first that is not an entry there is only the blank or nothing.
    count = len(units) if is_unit.all() else int(np.argmin(is_unit))
    named = units["offset_py"][:count].astype(np.int64)
    units["offset_py"][:count] = places.find(named, _GONE)
    units["size_py"][:count] = places.find_sizes(named, units["size_py"][:count].astype(np.int64))
    return units[:count].tobytes() + data[count * dtype.itemsize :]
