"""Stores many messages at once, by columns; and records copied verbatim from another log.

The records are the same as those of ``put`` and ``commit_log``, at a fraction of the cost. Messages that are delayed,
for further queues, or for batch queues take the general path anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.engine.message import Encoder, Host, NewMessage, PutStatus, QueueOffsets, TopicRules, encode_length
from rmqtool.engine.put import MATTERS, Intake, PutTicket
from rmqtool.errors import NoSpace, StoreError
from rmqtool.formats.codes import HOST_BITS, TRANSACTION_MASK, SysFlag
from rmqtool.formats.commit_log import record_size
from rmqtool.formats.hosts import IPV4_LENGTH
from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from rmqtool.formats.properties import MAX_PROPERTIES_LENGTH, NAME_VALUE_SEPARATOR

if TYPE_CHECKING:
    from rmqtool.columns.encode import Numbers, Outgoing, Packed, Slab
    from rmqtool.columns.gather import Ints
    from rmqtool.engine.commit_log import CommitLog
    from rmqtool.engine.parts import Engine

# Bytes of records that are encoded and written at once.
_SLAB = 4 << 20
# Not stored by columns: transactional messages, because half and rolled-back ones take no queue offset, and inner
# batches, which take several.
_NEEDS_A_LOOK = TRANSACTION_MASK | SysFlag.INNER_BATCH
# Nor are messages that set the host bits themselves: here these bits are set from the addresses.
_NOT_BY_COLUMNS = int(_NEEDS_A_LOOK) | HOST_BITS
# Searched for in property texts. A value that happens to contain one only takes its message to the general path.
_SPECIAL_NAMES = tuple(f"{name}{NAME_VALUE_SEPARATOR}".encode() for name in sorted(MATTERS))


@dataclass(slots=True)
class MessageColumns:
    """Messages as columns of one length; a single value counts for all rows.

    ``property_texts`` are stored as they are. Missing ``born_timestamps`` are now. ``born_hosts``, one for each
    message, must be of one address family.
    """

    topics: Sequence[str] | str
    bodies: Sequence[bytes]
    property_texts: Sequence[bytes]
    queue_ids: Sequence[int] | int = 0
    flags: Sequence[int] | int = 0
    sys_flags: Sequence[int] | int = 0
    born_timestamps: Sequence[int] | int | None = None
    born_host: Host | None = None
    born_hosts: Sequence[Host] = ()
    reconsume_times: Sequence[int] | int = 0

    def __len__(self) -> int:
        return len(self.bodies)

    def message(self, row: int) -> NewMessage:
        """Return one row as a message, for the general path."""
        born = self.born_timestamps
        return NewMessage(
            self.topics if isinstance(self.topics, str) else self.topics[row],
            self.bodies[row],
            self.queue_ids if isinstance(self.queue_ids, int) else int(self.queue_ids[row]),
            self.property_texts[row],
            self.flags if isinstance(self.flags, int) else int(self.flags[row]),
            self.sys_flags if isinstance(self.sys_flags, int) else int(self.sys_flags[row]),
            born if born is None or isinstance(born, int) else int(born[row]),
            self.born_hosts[row] if self.born_hosts else self.born_host,
            reconsume_times=times if isinstance(times := self.reconsume_times, int) else int(times[row]),
        )


@dataclass(slots=True)
class PutColumns:
    """The results of many puts by row: physical offsets, queue offsets and sizes of the records.

    ``refused`` has the status of each row that is not PUT_OK. Its offsets are -1 unless its record was written.
    ``store_timestamp`` is the latest store time (ms), 0 if no write began.
    """

    physical_offsets: Ints
    queue_offsets: Ints
    sizes: Ints
    store_timestamp: int = 0
    refused: dict[int, PutStatus] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int) -> PutColumns:
        """Return the results of ``count`` messages, none of them stored yet."""
        import numpy as np

        return cls(np.full(count, -1, np.int64), np.full(count, -1, np.int64), np.zeros(count, np.int64))

    def take(self, tickets: Iterable[PutTicket]) -> None:
        """Take the results of messages that were put one by one, in the order of the rows."""
        for row, ticket in enumerate(tickets):
            self.physical_offsets[row], self.queue_offsets[row] = ticket.physical_offset, ticket.queue_offset
            self.sizes[row], self.store_timestamp = ticket.size, max(self.store_timestamp, ticket.store_timestamp)
            if ticket.status is not PutStatus.PUT_OK:
                self.refused[row] = ticket.status or PutStatus.UNKNOWN_ERROR

    @property
    def stored(self) -> int:
        """The number of messages with PUT_OK: stored, and as durable as requested."""
        return len(self.physical_offsets) - len(self.refused)


class _Ready(NamedTuple):
    """Messages that lack only their places: ``rows`` of the columns, without the refused ones.

    ``queue_codes`` are indexes into ``queues``.
    """

    rows: Ints
    outgoing: Outgoing
    queues: list[tuple[str, int]]
    queue_codes: Ints
    sizes: Ints


def is_plain(columns: MessageColumns, encoder: Encoder) -> bool:
    """Return whether all messages can be stored by columns; refused ones can too, ``make_ready`` finds them."""
    import numpy as np

    if encoder.has_property_crc:
        return False
    if (np.asarray(columns.sys_flags) & int(_NEEDS_A_LOOK)).any():
        return False
    topics = {columns.topics} if isinstance(columns.topics, str) else set(columns.topics)
    if any(encoder.topic_rules(topic).is_batch for topic in topics):
        return False
    texts = b"\n".join(columns.property_texts)
    return not any(name in texts for name in _SPECIAL_NAMES)


def columns_of(messages: Sequence[NewMessage], intake: Intake, now: int) -> MessageColumns | None:
    """Return messages, at least one, as columns; None if one of them needs the general path.

    One needs it also if a number does not fit its field, or if born hosts are of two address families. ``now`` is the
    born time of messages without one.
    """
    encoder, kinds = intake.encoder, intake.kinds
    own, texts = encoder.store_host, []
    # All born hosts must have addresses of one length: a slab has one layout of prefixes.
    length = len((messages[0].born_host or own)[0])
    for message in messages:
        given = message.properties
        if isinstance(given, bytes):
            return None
        names = tuple(given)
        kind = kinds.get(names) or intake.kind_of(names)
        if (
            not kind.is_plain
            or message.body is None
            or message.property_bins is not None
            or message.sys_flag & _NOT_BY_COLUMNS
            or message.store_host not in (None, own)
            or len((message.born_host or own)[0]) != length
            or message.prepared_transaction_offset
        ):
            return None
        texts.append(kind.text(given) if message.property_text is None else message.property_text)
    topics = [message.topic for message in messages]
    if encoder.has_property_crc or any(encoder.topic_rules(topic).is_batch for topic in set(topics)):
        return None
    queue_ids = [message.queue_id for message in messages]
    flags = [message.flag for message in messages]
    times = [message.reconsume_times for message in messages]
    if not all(
        INT_MIN <= value <= INT_MAX for column in (queue_ids, flags, times) for value in (min(column), max(column))
    ):
        return None
    given_born = [message.born_timestamp for message in messages]
    known = [time for time in given_born if time is not None]
    if known and not LONG_MIN <= min(known) <= max(known) <= LONG_MAX:
        return None
    hosts = [message.born_host or own for message in messages]
    sys_flags = [message.sys_flag for message in messages]
    return MessageColumns(
        topics,
        [message.body or b"" for message in messages],
        texts,
        queue_ids,
        flags if any(flags) else 0,
        sys_flags if any(sys_flags) else 0,
        [now if time is None else time for time in given_born] if known else None,
        born_hosts=() if all(host == own for host in hosts) else hosts,
        reconsume_times=times if any(times) else 0,
    )


def tickets_of(messages: Sequence[NewMessage], put: PutColumns, store_host: Host) -> list[PutTicket]:
    """Return the tickets of messages that were put by columns, in order, each with its status."""
    tickets = []
    # Share one tuple for each queue: the garbage collector looks at every tuple.
    queues: dict[tuple[str, int], tuple[str, int]] = {}
    places = zip(put.physical_offsets.tolist(), put.queue_offsets.tolist(), put.sizes.tolist(), strict=True)
    for message, (physical_offset, queue_offset, size) in zip(messages, places, strict=True):
        queue = message.topic, message.queue_id
        ticket = PutTicket(queues.setdefault(queue, queue), (), 1, store_host)
        ticket.physical_offset = physical_offset
        ticket.queue_offset = queue_offset
        ticket.size = size
        ticket.store_timestamp = put.store_timestamp
        ticket.is_written = True
        ticket.status = PutStatus.PUT_OK
        tickets.append(ticket)
    for row, status in put.refused.items():
        if status is PutStatus.FLUSH_DISK_TIMEOUT:
            tickets[row].status = status
        else:
            tickets[row].is_written = False
            tickets[row].refuse(status)
    return tickets


def make_ready(columns: MessageColumns, encoder: Encoder, now: int, put: PutColumns) -> _Ready:
    """Return the legal messages with all but their places; note in ``put`` which are refused, and why.

    ``now`` is the born time of messages without one.
    """
    import numpy as np

    from rmqtool.columns.encode import Outgoing

    count = len(columns)
    topics = [columns.topics] * count if isinstance(columns.topics, str) else columns.topics
    queue_ids = np.broadcast_to(np.asarray(columns.queue_ids, np.int64), count)
    names = {topic: code for code, topic in enumerate(dict.fromkeys(topics))}
    rules = [encoder.topic_rules(topic) for topic in names]
    codes = np.fromiter(map(names.__getitem__, topics), np.int64, count)
    texts = columns.property_texts
    text_lengths = np.fromiter(map(len, texts), np.int64, count)
    body_lengths = np.fromiter(map(len, columns.bodies), np.int64, count)
    flags = np.broadcast_to(np.asarray(columns.flags, np.int64), count)
    sys_flags = np.broadcast_to(np.asarray(columns.sys_flags, np.int64), count)
    host_bits = _host_bits(columns, encoder)
    heads = np.array([record_size(host_bits, rule.magic, 0, rule.topic_length, 0) for rule in rules], np.int64)
    sizes = heads[codes] + body_lengths + text_lengths
    legal = np.array([rule.refusal is None for rule in rules], np.bool_)[codes]
    legal &= (queue_ids >= 0) & (queue_ids <= INT_MAX) & (body_lengths <= encoder.max_body)
    legal &= (flags >= INT_MIN) & (flags <= INT_MAX) & (sys_flags >= INT_MIN) & (sys_flags <= INT_MAX)
    # Too many bytes of properties have a status of their own, so these rows are not judged by their size.
    long = legal & (text_lengths > MAX_PROPERTIES_LENGTH)
    legal &= long | (sizes <= encoder.max_record)
    rows = np.flatnonzero(legal & ~long)
    every = len(rows) == count
    born = columns.born_timestamps
    outgoing = Outgoing(
        bodies=columns.bodies if every else [columns.bodies[row] for row in rows.tolist()],
        tails=_tails(rules, codes, texts, rows),
        queue_ids=queue_ids[rows],
        queue_offsets=0,
        born_timestamps=now if born is None else np.broadcast_to(np.asarray(born, np.int64), count)[rows],
        store_timestamps=0,
        born_hosts=_born_hosts(columns, encoder, rows, every=every),
        store_host=encoder.store_host,
        magics=np.array([rule.magic for rule in rules], np.int64)[codes[rows]],
        flags=flags[rows],
        sys_flags=sys_flags[rows] & ~np.int64(HOST_BITS) | host_bits,
        reconsume_times=np.broadcast_to(np.asarray(columns.reconsume_times, np.int64), count)[rows],
    )
    for row in np.flatnonzero(~legal).tolist():
        put.refused[row] = PutStatus.MESSAGE_ILLEGAL
    for row in np.flatnonzero(long).tolist():
        put.refused[row] = encoder.status_of_long(texts[row])
    # Topic and queue id as one number.
    pairs, queue_codes = np.unique(codes[rows] << 32 | queue_ids[rows], return_inverse=True)
    of_code = list(names)
    queues = [(of_code[pair >> 32], pair & 0xFFFFFFFF) for pair in pairs.tolist()]
    return _Ready(rows, outgoing, queues, queue_codes, sizes[rows])


def _tails(rules: list[TopicRules], codes: Ints, texts: Sequence[bytes], rows: Ints) -> list[bytes]:
    """Return the bytes after each body: topic and properties, each after its length."""
    topics = [rule.encoded for rule in rules]
    if len(topics) == 1 and len(rows) == len(texts):
        (topic,) = topics
        return [topic + encode_length(len(text)) + text for text in texts]
    listed = codes.tolist()
    return [topics[listed[row]] + encode_length(len(texts[row])) + texts[row] for row in rows.tolist()]


def _born_hosts(columns: MessageColumns, encoder: Encoder, rows: Ints, *, every: bool) -> Sequence[Host]:
    """Return the born host of each row, or a single one that all rows have."""
    if not columns.born_hosts:
        return [columns.born_host or encoder.store_host]
    return columns.born_hosts if every else [columns.born_hosts[row] for row in rows.tolist()]


def _host_bits(columns: MessageColumns, encoder: Encoder) -> int:
    """Return the host bits of all messages: ``MessageColumns`` requires born hosts of one address family."""
    bits = 0
    born_host = columns.born_hosts[0] if columns.born_hosts else columns.born_host
    if len((born_host or encoder.store_host)[0]) != IPV4_LENGTH:
        bits |= SysFlag.BORN_HOST_V6
    if len(encoder.store_host[0]) != IPV4_LENGTH:
        bits |= SysFlag.STORE_HOST_V6
    return int(bits)


def write_ready(ready: _Ready, put: PutColumns, log: CommitLog, offsets: QueueOffsets, store_timestamp: int) -> None:
    """Give places and queue offsets, append and commit, slab by slab and segment by segment. The writer's lock is held.

    Without space for the next segment, the rest is refused; what was written before stays. A failed write is raised.
    """
    import numpy as np

    put.store_timestamp = store_timestamp
    ends = np.cumsum(ready.sizes)
    at, count = 0, len(ready.rows)
    while at < count:
        try:
            until = log.place_many(ends, at)
        except NoSpace as error:
            if error is log.taken_back:
                raise
            for row in ready.rows[at:].tolist():
                put.refused[row] = PutStatus.CREATE_MAPPED_FILE_FAILED
            return
        # A record larger than a slab is written by itself.
        slab = int(np.searchsorted(ends, (ends[at - 1] if at else 0) + _SLAB, side="right"))
        part = slice(at, min(until, max(slab, at + 1)))
        numbers = _number(ready.queue_codes[part], ready.queues, offsets)
        encoded = _encode_slab(ready.outgoing, part, numbers, log.wrote_offset, store_timestamp)
        log.append(encoded.data, store_timestamp)
        log.commit()
        rows = ready.rows[part]
        put.physical_offsets[rows] = encoded.physical_offsets
        put.queue_offsets[rows] = numbers
        put.sizes[rows] = ready.sizes[part]
        at = part.stop


def _encode_slab(whole: Outgoing, part: slice, numbers: Ints, position: int, store_timestamp: int) -> Slab:
    """Return the bytes of some of the messages, to be stored at ``position``."""
    from dataclasses import replace

    from rmqtool.columns.encode import encode_records

    slab = replace(
        whole,
        bodies=whole.bodies[part],
        tails=whole.tails[part],
        queue_offsets=numbers,
        store_timestamps=store_timestamp,
        queue_ids=_cut(whole.queue_ids, part),
        magics=_cut(whole.magics, part),
        flags=_cut(whole.flags, part),
        sys_flags=_cut(whole.sys_flags, part),
        born_timestamps=_cut(whole.born_timestamps, part),
        reconsume_times=_cut(whole.reconsume_times, part),
        born_hosts=whole.born_hosts[part] if len(whole.born_hosts) > 1 else whole.born_hosts,
    )
    return encode_records(slab, position)


def _cut(column: Numbers, part: slice) -> Numbers:
    return column if isinstance(column, int) else column[part]


def _number(queue_codes: Ints, queues: list[tuple[str, int]], offsets: QueueOffsets) -> Ints:
    """Return the queue offsets of messages, in their order, and advance their queues."""
    import numpy as np

    numbers = np.empty(len(queue_codes), np.int64)
    order = np.argsort(queue_codes, kind="stable")
    counts = np.bincount(queue_codes, minlength=len(queues))
    firsts = np.cumsum(counts) - counts
    for code in np.flatnonzero(counts).tolist():
        first, count = int(firsts[code]), int(counts[code])
        base = offsets.next(queues[code])
        numbers[order[first : first + count]] = np.arange(base, base + count)
        offsets.advance(queues[code], count)
    return numbers


class Adoption:
    """Adds whole records to an empty store; they keep the queue offsets that they have."""

    def __init__(self, engine: Engine, physical_offset: int) -> None:
        self._engine = engine
        engine.log.begin_at(physical_offset)
        engine.dispatcher.restart_at(physical_offset)

    def keep(self, packed: Packed) -> Ints:
        """Append records and dispatch them; return their physical offsets."""
        places = append_packed(packed, self._engine.log)
        self._engine.dispatcher.dispatch()
        return places

    def pass_queue_to(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Continue an empty queue at a queue offset: the messages before it were left out."""
        queues = self._engine.dispatcher.queues
        queues.simple_queue((topic, queue_id)).pass_to(queue_offset)
        queues.write_pending()


def append_packed(packed: Packed, log: CommitLog) -> Ints:
    """Append the records, segment by segment, with their new physical offsets, which are returned.

    ``packed`` is changed: its records get those offsets and new checksums. Raises StoreError, with nothing appended, if
    a record is larger than a segment allows; after NoSpace the records of the segments before stay appended.
    """
    import numpy as np

    largest = int(packed.sizes.max(initial=0))
    if largest > log.largest_record:
        raise StoreError(
            f"a record of {largest} bytes is larger than a segment of {log.segment_size} bytes",
            hint="use a larger mappedFileSizeCommitLog (--conf), or leave out such messages",
        )
    ends = np.cumsum(packed.sizes)
    places = np.empty(len(packed), np.int64)
    at = 0
    while at < len(packed):
        until = log.place_many(ends, at)
        part = packed.part(at, until)
        places[at:until] = log.wrote_offset + part.starts
        part.put("physical_offset", places[at:until])
        part.seal()
        log.append(part.data.tobytes(), packed.last_store_timestamp)
        log.commit()
        at = until
    return places
