"""Messages in groups: counted by topic, queue, tag, key, producer, time, size, and combinations of them.

A group is the hash of its values and the physical offset of one of its messages. The values are read from that message
later, only for the groups that are shown, so a million keys need some tens of megabytes. Tables of groups are added up
in memory, and in runs on disk if they are many.

``Marks`` tell which hashes occur more than once, in a few megabytes: two hashes can share a bucket, so some that occur
once are marked too, but none that occurs twice is missed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from typing import IO, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.hosts import coded_hosts
from rmqtool.columns.pieces import Coded
from rmqtool.columns.properties import Properties, decode_properties
from rmqtool.columns.records import Records
from rmqtool.formats.commit_log import Message
from rmqtool.formats.hosts import format_address
from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.property_names import KEYS, PGROUP, TAGS, UNIQ_KEY
from rmqtool.formats.topics import TopicKind, retried_group, topic_kind
from rmqtool.log.ranges import Answered, Write
from rmqtool.log.read import Damage, Part, Range, RangeReader
from rmqtool.log.select import Selection

# 2**25 buckets: 32 MiB while counting, 4 MiB as marks.
_BITS = 25
_TWICE = 2


def _buckets(hashes: npt.NDArray[np.uint64]) -> Ints:
    """Return the bucket of each hash: its upper bits."""
    found: Ints = (hashes >> np.uint64(64 - _BITS)).astype(np.int64)
    return found


class Marks:
    """Counts hashes by buckets, up to two."""

    def __init__(self) -> None:
        self._counts = np.zeros(1 << _BITS, np.uint8)

    def add(self, hashes: npt.NDArray[np.uint64], times: Any) -> None:
        """Count each of ``hashes`` ``times`` times; the hashes are distinct."""
        buckets = _buckets(hashes)
        np.add.at(self._counts, buckets, np.minimum(times, _TWICE).astype(np.uint8))
        self._counts[buckets] = np.minimum(self._counts[buckets], _TWICE)

    def packed(self) -> bytes:
        """Return one bit for each bucket, set if it was counted twice or more."""
        return np.packbits(self._counts >= _TWICE).tobytes()


def is_marked(packed: bytes, hashes: npt.NDArray[np.uint64]) -> Mask:
    """Return which hashes are in a bucket that was counted twice or more; ``packed`` has a bit for each bucket."""
    buckets = _buckets(hashes)
    bits = np.frombuffer(packed, np.uint8)[buckets >> 3] >> (7 - (buckets & 7)).astype(np.uint8)
    marked: Mask = bits & 1 != 0
    return marked


Hashes = npt.NDArray[np.uint64]

# Rows that wait unsorted before they are merged into the table.
_PENDING = 1 << 17
# A table of more groups than this, about 30 MiB, goes from memory into a run on disk. Rows that wait are added to that.
HELD = 1 << 19
# Hashes are divided into 2 ** _SLICE_BITS ranges of equal width. For each a run has the row where it begins, so that
# the groups of a few ranges can be read from all runs and merged, without the others in memory.
_SLICE_BITS = 10
_SLICES = 1 << _SLICE_BITS
_WORD = np.dtype(np.int64).itemsize


class GroupTable(NamedTuple):
    """Groups as columns, sorted by hash.

    The columns are the numbers of messages, of bytes of their records and of their stored bodies, and the first and
    last store time (ms). ``places`` has the physical offset of one message of each.
    """

    hashes: Hashes
    messages: Ints
    bytes: Ints
    body_bytes: Ints
    first: Ints
    last: Ints
    places: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def select(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> GroupTable:
        return GroupTable(self.hashes[rows], *(column[rows] for column in self[1:]))


# How each column after the hashes is combined when groups are merged.
_JOINS = (np.add, np.add, np.add, np.minimum, np.maximum, np.minimum)


def empty_table() -> GroupTable:
    return GroupTable(np.empty(0, np.uint64), *(np.empty(0, np.int64) for _ in range(6)))


def merge_tables(tables: list[GroupTable]) -> GroupTable:
    """Return the groups of several tables merged. The list is emptied on the way, to free columns early."""
    parts = [list(columns) for columns in zip(*(table for table in tables if len(table)), strict=True)]
    tables.clear()
    if not parts:
        return empty_table()
    hashes = np.concatenate(parts[0])
    parts[0].clear()
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    columns = []
    for join, column in zip(_JOINS, parts[1:], strict=True):
        columns.append(join.reduceat(np.concatenate(column)[order], begins))
        column.clear()
    return GroupTable(hashes[begins], *columns)


def join_tables(tables: Sequence[GroupTable]) -> GroupTable:
    """Return tables that have no group in common as one, in the order given."""
    return GroupTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))


@dataclass
class HeldGroups:
    """Groups in memory. Sorting is put off until enough rows wait, so only a few tables are held."""

    table: GroupTable = field(default_factory=empty_table)
    _waiting: list[GroupTable] = field(default_factory=list)
    _rows: int = 0

    def add(self, table: GroupTable) -> None:
        self._waiting.append(table)
        self._rows += len(table)
        if self._rows > max(_PENDING, len(self.table) // 4):
            self.settle()

    def settle(self) -> GroupTable:
        """Merge the waiting rows into the table, and return it."""
        tables, self.table, self._waiting, self._rows = [self.table, *self._waiting], empty_table(), [], 0
        self.table = merge_tables(tables)
        return self.table


@dataclass
class Groups:
    """Groups in memory, and in runs on disk if they are many."""

    _held: HeldGroups = field(default_factory=HeldGroups)
    _runs: list[_Run] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.file.close()

    def add(self, table: GroupTable) -> None:
        self._held.add(table)
        if len(self._held.table) > HELD:
            self._runs.append(_write_run(self._held.settle()))
            self._held = HeldGroups()

    def pieces(self) -> Iterator[GroupTable]:
        """Yield all groups, each once, in tables that fit into memory. Nothing can be added after that."""
        last = self._held.settle()
        if not self._runs:
            yield last
            return
        count = sum(int(run.bounds[-1]) for run in self._runs) + len(last)
        # Slices that have about ``HELD`` groups together.
        step = max(1, _SLICES * HELD // count)
        bounds = _bounds(last.hashes)
        for begin in range(0, _SLICES, step):
            end = min(begin + step, _SLICES)
            held = last.select(np.arange(bounds[begin], bounds[end]))
            yield merge_tables([*(run.read(begin, end) for run in self._runs), held])


class _Run(NamedTuple):
    """Groups in a file, column by column; ``bounds`` are the rows where slices of the range of hashes begin."""

    file: IO[bytes]
    bounds: Sequence[int]

    def read(self, begin: int, end: int) -> GroupTable:
        """Return the groups of the slices from ``begin`` to before ``end``."""
        first, stop, count = self.bounds[begin], self.bounds[end], self.bounds[-1]
        columns = []
        for number in range(len(GroupTable._fields)):
            self.file.seek((number * count + first) * _WORD)
            columns.append(np.frombuffer(self.file.read((stop - first) * _WORD), np.int64))
        return GroupTable(columns[0].view(np.uint64), *columns[1:])


def _bounds(hashes: Hashes) -> list[int]:
    """Return the row where each slice begins among sorted ``hashes``, and after these the number of rows."""
    starts = np.arange(_SLICES, dtype=np.uint64) << np.uint64(64 - _SLICE_BITS)
    return [*np.searchsorted(hashes, starts).tolist(), len(hashes)]


def _write_run(table: GroupTable) -> _Run:
    """Write groups to a temporary file without a name, column after column."""
    file = tempfile.TemporaryFile(prefix="rmqtool-groups-")  # noqa: SIM115  (closed at the end of the context)
    for column in table:
        file.write(column.tobytes())
    return _Run(file, _bounds(table.hashes))


_HOUR = 3_600_000
# Offsets of all time zones are multiples of a quarter of an hour, by today's laws.
_QUARTER = 900_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The hash of the values so far is multiplied by this number, 2**64 divided by the golden ratio, before the next one is
# added: so the order of the values matters.
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# Up to this many possible combinations per message, each gets a number, whether it occurs or not. If there are more,
# the combinations that occur are found first.
_FEW = 4


@dataclass(frozen=True)
class Grouping:
    """How messages are grouped: the dimensions, and the time zone of hours and days (None: the machine's).

    ``own_names`` are the names of cluster and broker, which are topics of the system. With ``normal_only`` only
    ordinary topics count. ``span`` is the number of bytes of log in one segment group. Groups that are not marked in
    ``kept`` are left out; see ``Marks``.
    """

    by: tuple[str, ...]
    zone: tzinfo | None = None
    own_names: frozenset[str] = frozenset()
    span: int = 1 << 30
    normal_only: bool = False
    kept: bytes | None = None

    def table(self, records: Records) -> GroupTable:
        """Return the groups of some records. By key, a message counts once for each of its keys."""
        if self.normal_only:
            names = records.topics
            records = records.select(names.each(self.is_normal, np.bool_))
        if not len(records):
            return empty_table()
        columns = _Columns(records, self)
        rows = columns.rows
        length = len(records) if rows is None else len(rows)
        codes: Ints = np.zeros(length, np.int64)
        hashes: Hashes = np.zeros(1, np.uint64)
        for name in self.by:
            column = columns.column(name)
            mine = np.fromiter(map(hash_value, column.values), np.uint64, len(column.values))
            if len(hashes) * len(mine) <= _FEW * length:
                codes = codes * len(mine) + column.codes
                hashes = (hashes[:, None] * np.uint64(_MIX) + mine[None, :]).ravel()
            else:  # most combinations do not occur
                hashes, codes = np.unique(hashes[codes] * np.uint64(_MIX) + mine[column.codes], return_inverse=True)
        return self._kept(_sum_up(records, rows, codes, hashes))

    def _kept(self, table: GroupTable) -> GroupTable:
        if self.kept is None:
            return table
        return table.select(is_marked(self.kept, table.hashes))

    def is_normal(self, topic: str) -> bool:
        """Return whether a topic is an ordinary one: not of the system, of retries, of dead letters, or light."""
        return topic_kind(topic, self.own_names) is TopicKind.NORMAL

    def values(self, message: Message) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each group that a message is in; it can be in several by its keys."""
        found: list[tuple[Any, ...]] = [()]
        for name in self.by:
            values = _values_of(name, message, self)
            found = [(*before, value) for before in found for value in values]
        yield from found


def hash_value(value: Any) -> int:
    """Return the hash of one value of a dimension; its type counts, so that 1 and "1" differ."""
    text = f"{type(value).__name__}:{value}".encode("utf-8", "surrogatepass")
    return int(blake2b(text, digest_size=8).hexdigest(), 16)


def hash_values(values: Iterable[Any]) -> int:
    """Return the hash of a group, from the hashes of its values in order."""
    hashed = 0
    for value in values:
        hashed = (hashed * _MIX + hash_value(value)) & _MASK
    return hashed


def _sum_up(records: Records, rows: Ints | None, codes: Ints, hashes: Hashes) -> GroupTable:
    """Return the groups of some messages; ``codes`` has an index into ``hashes`` for each message.

    ``rows`` are the rows of the messages in ``records``, which can repeat; None if the messages are all records.
    """
    sizes, bodies, times, offsets = (
        records.column(name) if rows is None else records.column(name)[rows]
        for name in ("total_size", "body_length", "store_timestamp", "physical_offset")
    )
    count = len(hashes)
    messages = np.bincount(codes, minlength=count)
    # numpy keeps the last of repeated indexes: the first message if rows go backwards, the last if forwards.
    numbers = np.arange(len(codes))
    first_rows, last_rows = np.zeros(count, np.int64), np.zeros(count, np.int64)
    first_rows[codes[::-1]] = numbers[::-1]
    if (times[1:] >= times[:-1]).all():
        last_rows[codes] = numbers
        first, last = times[first_rows], times[last_rows]
    else:
        first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(first, codes, times)
        np.maximum.at(last, codes, times)
    sums = (np.bincount(codes, column, count).astype(np.int64) for column in (sizes, bodies))
    columns = (hashes, messages, *sums, first, last, offsets[first_rows])
    there = np.flatnonzero(messages)
    order = there[np.argsort(hashes[there], kind="stable")]
    return GroupTable(*(column[order] for column in columns))


def whole_table(records: Records) -> GroupTable:
    """Return all records, at least one, as one group."""
    sums = (int(records.column(name).sum(dtype=np.int64)) for name in ("total_size", "body_length"))
    times = records.column("store_timestamp")
    figures = (len(records), *sums, int(times.min()), int(times.max()), int(records.column("physical_offset")[0]))
    return GroupTable(np.zeros(1, np.uint64), *(np.array([figure]) for figure in figures))


@dataclass
class _Columns:
    """The dimensions of some records, each as codes of distinct values."""

    records: Records
    grouping: Grouping
    _properties: Properties | None = None

    def __post_init__(self) -> None:
        # By key, the row of the message of each code: a message has a code for each of its keys. Else None.
        self.rows: Ints | None = None
        self._keys: Coded | None = None
        if "key" in self.grouping.by:
            self._split_keys()

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            self._properties = decode_properties(self.records)
        return self._properties

    def column(self, name: str) -> Coded:
        """Return a dimension as a coded column: a code for each of ``rows``, or for each record without those."""
        if name == "key":
            assert self._keys is not None
            return self._keys
        found: Coded = getattr(self, f"_{name}")()
        return found if self.rows is None else found._replace(codes=found.codes[self.rows])

    def _split_keys(self) -> None:
        """Make a row for each key of a message, and one row for a message without a key."""
        whole = self._property(KEYS)
        tokens = [_tokens(value) for value in whole.values]
        counts = np.array([len(some) for some in tokens], np.int64)[whole.codes]
        self.rows = np.repeat(np.arange(len(whole.codes)), counts)
        number: dict[Any, int] = {}
        by_value = [np.array([number.setdefault(token, len(number)) for token in some], np.int32) for some in tokens]
        codes = np.concatenate([by_value[code] for code in whole.codes.tolist()])
        self._keys = Coded(codes, list(number))

    def _property(self, name: str) -> Coded:
        """Return a property as a coded column. The last value, None, is for messages without the property."""
        encoded = self.properties.raw_values(name).dictionary_encode()
        texts = [decode_text(value) for value in encoded.dictionary.to_pylist()]
        return Coded(encoded.indices.fill_null(len(texts)).to_numpy(), [*texts, None])

    def _topic(self) -> Coded:
        records = self.records
        return records.topics

    def _queue(self) -> Coded:
        return _coded_numbers(self.records.column("queue_id"))

    def _tag(self) -> Coded:
        return self._property(TAGS)

    def _uniqKey(self) -> Coded:  # noqa: N802  (named as the dimension is)
        return self._property(UNIQ_KEY)

    def _body(self) -> Coded:
        """Return the digest of each body as it is stored."""
        records = self.records
        digests = map(_digest, _bodies(records))
        number: dict[Any, int] = {}
        codes = [number.setdefault(digest, len(number)) for digest in digests]
        return Coded(np.array(codes, np.int32), list(number))

    def _segment(self) -> Coded:
        size = self.grouping.span
        return _coded_numbers(self.records.column("physical_offset") // size * size)

    def _producer(self) -> Coded:
        return _mapped(coded_hosts(self.records, "born_host"), lambda host: host.rpartition(":")[0].strip("[]"))

    def _group(self) -> Coded:
        """Return the group that each message is retried for, else the producer group of its transaction."""
        topics, groups = self._topic(), self._property(PGROUP)
        retried = topics.each(lambda topic: retried_group(topic) is not None, np.bool_)
        named = _mapped(topics, retried_group)
        own = np.array([_position(named.values, groups.values, value) for value in groups.values], np.int32)
        values = [*named.values, *groups.values]
        return Coded(np.where(retried, named.codes, own[groups.codes]), values)

    def _kind(self) -> Coded:
        return _mapped(self._topic(), lambda topic: topic_kind(topic, self.grouping.own_names).value)

    def _hour(self) -> Coded:
        return self._calendar(start_of_hour)

    def _day(self) -> Coded:
        return self._calendar(start_of_day)

    def _calendar(self, start: Callable[[int, tzinfo | None], int]) -> Coded:
        """Return the hour or day of each message, computed once for each quarter of an hour."""
        quarters = _coded_numbers(self.records.column("store_timestamp") // _QUARTER)
        return _mapped(quarters, lambda quarter: start(quarter * _QUARTER, self.grouping.zone))

    def _size(self) -> Coded:
        """Return the smallest power of two that each record fits into."""
        return _coded_numbers(1 << np.frexp(self.records.column("total_size") - 1)[1].astype(np.int64))


def _bodies(records: Records) -> Iterator[memoryview]:
    begins = records.body_offsets
    for begin, end in zip(begins.tolist(), (begins + records.body_lengths).tolist(), strict=True):
        yield records.data.data[begin:end]


def _digest(body: bytes | memoryview) -> str:
    """Return a digest of a stored body, long enough that different bodies have different digests."""
    return blake2b(body, digest_size=16).hexdigest()


def _tokens(keys: str | None) -> list[Any]:
    """Return the distinct keys in a text of keys; one None for no key."""
    return list(dict.fromkeys(key_tokens({KEYS: keys or ""}))) or [None]


def _position(before: list[Any], values: list[Any], value: Any) -> int:
    """Return the place of ``value`` in the two lists joined, by its place in the second."""
    return len(before) + values.index(value)


def _coded_numbers(column: Any) -> Coded:
    values, codes = np.unique(column, return_inverse=True)
    return Coded(codes.astype(np.int32), values.tolist())


def _mapped(column: Coded, function: Callable[[Any], Any]) -> Coded:
    """Return ``function`` of each value of a column; equal results become one value."""
    number: dict[Any, int] = {}
    codes = [number.setdefault(function(value), len(number)) for value in column.values]
    return Coded(np.array(codes, np.int32)[column.codes], list(number))


def start_of_hour(time: int, zone: tzinfo | None) -> int:
    """Return when the hour of ``time`` began in a zone (None: the machine's), both in ms."""
    offset = _offset(time, zone)
    return (time + offset) // _HOUR * _HOUR - offset


def start_of_day(time: int, zone: tzinfo | None) -> int:
    """Return when the day of ``time`` began in a zone (None: the machine's), both in ms."""
    offset = _offset(time, zone)
    start = (time + offset) // (24 * _HOUR) * (24 * _HOUR)
    # The clock may have been changed since the day began, as for summer time.
    return start - _offset(start - offset, zone)


def _offset(time: int, zone: tzinfo | None) -> int:
    """Return how far a zone is ahead of UTC, in ms; 0 for a time beyond the calendar."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=time)).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return 0
    return (moment.utcoffset() or timedelta()) // timedelta(milliseconds=1)


def _values_of(name: str, message: Message, grouping: Grouping) -> list[Any]:
    """Return the values of one dimension for a message; it can have several keys."""
    quarter = message.store_timestamp // _QUARTER * _QUARTER
    make: dict[str, Callable[[], Any]] = {
        "topic": lambda: message.topic,
        "queue": lambda: message.queue_id,
        "tag": lambda: message.tags,
        "uniqKey": lambda: message.uniq_key,
        "body": lambda: _digest(message.raw_body),
        "segment": lambda: message.physical_offset // grouping.span * grouping.span,
        "producer": lambda: format_address(message.born_host_ip),
        "group": lambda: _group_of(message),
        "kind": lambda: topic_kind(message.topic, grouping.own_names).value,
        "hour": lambda: start_of_hour(quarter, grouping.zone),
        "day": lambda: start_of_day(quarter, grouping.zone),
        "size": lambda: 1 << (message.total_size - 1).bit_length(),
    }
    if name == "key":
        return _tokens(message.keys)
    return [make[name]()]


def _group_of(message: Message) -> str | None:
    """Return the group that a message is retried for, else the producer group of its transaction, else None."""
    group = retried_group(message.topic)
    return message.properties.get(PGROUP) if group is None else group


class Grouped(NamedTuple):
    """The result of one range: the groups of each grouping, all messages as one group, and damage."""

    groups: list[GroupTable]
    total: GroupTable
    damages: list[Damage]


@dataclass(frozen=True)
class GroupWork:
    """Groups the wanted messages of a range, in several ways at once; see ``ranges.RangeWork``.

    ``found`` is a ``Grouped``. Bodies are read only if a dimension needs them.
    """

    selection: Selection
    groupings: tuple[Grouping, ...]

    def __call__(self, asked: Range, write: Write) -> Answered:  # noqa: ARG002  (nothing is written)
        reader = RangeReader(asked, self.selection, checksums=False)
        groups, total = [HeldGroups() for _ in self.groupings], HeldGroups()
        damages: list[Damage] = []
        for found in reader.parts():
            if isinstance(found, Part):
                total.add(whole_table(found.records))
                for grouping, tables in zip(self.groupings, groups, strict=True):
                    tables.add(grouping.table(found.records))
            else:
                damages.append(found)
        settled = [tables.settle() for tables in groups]
        return Answered(reader.began, reader.reached, reader.left_over, Grouped(settled, total.settle(), damages))
