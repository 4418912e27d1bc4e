"""Comparing two stores: by the bytes of their logs, by the messages that their queues serve, or by their messages.

Each store is read once for sums over its items, and a second time only for items whose sums differ (see
``log.digests``). By queue, an item is a queue entry with the message it points to. The entries of a queue point into
the log in its order, so all queues are followed while the log is read once; an entry that points elsewhere is looked up
by itself.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from rmqtool.audit.due import UNIT, Units
from rmqtool.audit.queues import QueueUnits, find_tags_code
from rmqtool.columns.gather import Ints
from rmqtool.columns.records import decode_records
from rmqtool.errors import ReadFailed, UsageError
from rmqtool.filters.wanted import TopicPatterns, parse_patterns
from rmqtool.formats import paths
from rmqtool.formats.codes import MAX_EXT_ADDRESS
from rmqtool.formats.consume_queue import are_fillers
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import ROCKSDB_QUEUE_VALUE
from rmqtool.formats.message_json import message_json
from rmqtool.formats.paths import FileKind
from rmqtool.formats.rocksdb_rows import decode_queue_key
from rmqtool.log.digests import (
    Buckets,
    Digests,
    DigestWork,
    Hashes,
    Items,
    Sense,
    bucket_of,
    digest_records,
    items_of,
    join_items,
    match,
    passes,
)
from rmqtool.log.end import find_log_end, read_record
from rmqtool.log.ranges import Answered, Effort, nominal_ranges, run_ranges
from rmqtool.log.read import Damage
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, logs_of
from rmqtool.look.place_search import plan_of
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.rocksdb import has_database_queues, open_database
from rmqtool.store.segments import SegmentQueue


class QueueSource(StrEnum):
    """Where the queues are. AUTO: in files if there are any, else in the database."""

    AUTO = "auto"
    FILE = "file"
    ROCKSDB = "rocksdb"


def has_queues(store: Store) -> bool:
    """Return whether a store has queues of any kind."""
    return store.has_file_queues or has_database_queues(store)


def source_of(store: Store, source: QueueSource) -> QueueSource:
    """Return where the queues of a store are read from."""
    if source is QueueSource.AUTO:
        return QueueSource.ROCKSDB if has_database_queues(store) and not store.has_file_queues else QueueSource.FILE
    return source


def open_streams(
    store: Store, source: QueueSource, topics: TopicPatterns, unread: dict[Queue, ReadFailed]
) -> dict[Queue, UnitStream]:
    """Return the entries of each wanted queue; queues in files that cannot be read are added to ``unread``."""
    source = source_of(store, source)
    if source is QueueSource.ROCKSDB and not has_database_queues(store):
        raise UsageError(f"{store.root} has no RocksDB queues", hint=f"they would be in {paths.CONSUME_QUEUE}/")
    return _of_database(store, topics) if source is QueueSource.ROCKSDB else _of_files(store, topics, unread)


def _of_files(store: Store, topics: TopicPatterns, unread: dict[Queue, ReadFailed]) -> dict[Queue, UnitStream]:
    found: dict[Queue, UnitStream] = {}
    exts = store.listing.queues(FileKind.CONSUME_QUEUE_EXT)
    for queue, segments in store.listing.queues(FileKind.CONSUME_QUEUE).items():
        if topics.matches(queue.topic):
            try:
                found[queue.topic, queue.queue_id] = UnitStream(_FileUnits(queue, segments, exts.get(queue)))
            except ReadFailed as error:
                unread[queue.topic, queue.queue_id] = error
    for queue, segments in store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).items():
        if topics.matches(queue.topic):
            held = _new_columns()
            for unit in BatchQueueFiles(queue, segments).iter_units():
                _add(held, (unit.msg_base_offset, unit.physical_offset, unit.size, unit.tags_code))
            found[queue.topic, queue.queue_id] = UnitStream(_held(held))
    return found


def _of_database(store: Store, topics: TopicPatterns) -> dict[Queue, UnitStream]:
    columns: dict[Queue, _Columns] = {}
    with open_database(store, paths.CONSUME_QUEUE) as database:
        for key, value in database.iter_rows("default"):
            place = decode_queue_key(key)
            if isinstance(place, Flaw) or len(value) != ROCKSDB_QUEUE_VALUE.size or not topics.matches(place.topic):
                continue
            row = ROCKSDB_QUEUE_VALUE.decode(value)
            held = columns.setdefault((place.topic, place.queue_id), _new_columns())
            _add(held, (place.queue_offset, row.physical_offset, row.size, row.tags_code))
    return {queue: UnitStream(_held(held)) for queue, held in columns.items()}


class _FileUnits:
    """The entries of a simple queue up to the end that a broker gives it, with tags codes from its extension."""

    def __init__(self, queue: QueueId, segments: SegmentQueue, ext: SegmentQueue | None) -> None:
        files = ConsumeQueueFiles(queue, segments)
        self.first, self.end = files.first_offset, files.max_offset
        self._units = QueueUnits(segments, ext)

    def read(self, queue_offset: int, count: int) -> Units:
        units = self._units.read(queue_offset, count)
        for row in (units["tags_code"] <= MAX_EXT_ADDRESS).nonzero()[0].tolist():
            units["tags_code"][row] = find_tags_code(self._units.ext, int(units["tags_code"][row])) or 0
        return units


_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


def _new_columns() -> _Columns:
    return array("q"), array("q"), array("q"), array("q")


def _add(columns: _Columns, row: tuple[int, int, int, int]) -> None:
    for column, value in zip(columns, row, strict=True):
        column.append(value)


def _held(columns: _Columns) -> HeldUnits:
    """Return entries from columns: queue offset, physical offset, size, tags code."""
    units = np.zeros(len(columns[0]), UNIT)
    for name, column in zip(("physical_offset", "size", "tags_code"), columns[1:], strict=True):
        units[name] = column
    return HeldUnits(np.array(columns[0], np.int64), units)


# Byte ranges that an answer lists at most.
_MOST_RANGES = 1000
_PIECE = 1 << 20


class By(StrEnum):
    """The property by which two items are the same: physical offset, queue offset, or message."""

    LOG = "log"
    QUEUE = "queue"
    MESSAGE = "message"


class Kind(StrEnum):
    """On which side a message is, or that it differs."""

    ONLY_A = "onlyA"
    ONLY_B = "onlyB"
    DIFFERENT = "different"


@dataclass(frozen=True)
class DiffOptions:
    """How to compare; ``sources`` say where the queues of the two stores are."""

    by: By = By.QUEUE
    topics: TopicPatterns = field(default_factory=lambda: parse_patterns(()))
    sources: tuple[QueueSource, QueueSource] = (QueueSource.AUTO, QueueSource.AUTO)


class Difference(NamedTuple):
    """A message or a queue entry that differs; ``place_a`` and ``place_b`` are -1 without a message on that side."""

    kind: Kind
    queue: Queue | None
    queue_offset: int
    place_a: int
    place_b: int
    size: int


class QueueDigest(NamedTuple):
    """The digests of one queue on both sides, over its messages in order; None on a side without the queue."""

    topic: str
    queue_id: int
    messages_a: int
    messages_b: int
    a: str | None
    b: str | None


class ByteRange(NamedTuple):
    """Bytes of the log."""

    start: int
    end: int


@dataclass
class Differences:
    """The result of a comparison."""

    by: By
    rows: list[Difference] = field(default_factory=list)
    digests: list[QueueDigest] = field(default_factory=list)
    messages: list[int] = field(default_factory=lambda: [0, 0])
    damages: tuple[list[Damage], list[Damage]] = field(default_factory=lambda: ([], []))
    notes: list[str] = field(default_factory=list)
    # Whether something could not be compared: queues that cannot be read, damage in the same place with other bytes.
    hidden: bool = False

    def count(self, kind: Kind) -> int:
        """Return how many messages differ in this way."""
        return sum(row.kind is kind for row in self.rows)

    @property
    def same(self) -> bool:
        """Whether no difference was found in what could be read."""
        return not self.rows

    @property
    def complete(self) -> bool:
        """Whether everything was compared. Damage that is byte for byte the same on both sides hides no difference."""
        return self.damages[0] == self.damages[1] and not self.hidden

    def ranges(self) -> list[ByteRange]:
        """Return the bytes of the log that differ, in order, adjacent ones joined."""
        found: list[ByteRange] = []
        for start, size in sorted((max(row.place_a, row.place_b), row.size) for row in self.rows):
            if found and start <= found[-1].end:
                found[-1] = ByteRange(found[-1].start, max(found[-1].end, start + size))
            elif len(found) < _MOST_RANGES:
                found.append(ByteRange(start, start + size))
        return found


class Side:
    """One of the two stores. It is read through once for each pass."""

    def __init__(self, store: Store, options: DiffOptions, source: QueueSource, numbers: dict[Queue, int]) -> None:
        self.store = store
        self.options = options
        self.source = source
        self.numbers = numbers
        self.damages: list[Damage] = []
        self.unread: dict[Queue, ReadFailed] = {}
        self.digests: dict[Queue, tuple[int, str]] = {}
        self.messages = 0

    def items(self, effort: Effort) -> Iterator[Items]:
        """Yield the items of this store, in pieces."""
        self.damages.clear()
        self.messages = 0
        if self.options.by is not By.QUEUE:
            for piece in self._pieces(effort):
                self.messages += len(piece)
                yield items_of(piece)
            return
        join = self._join()
        for piece in self._pieces(effort):
            yield join.take(piece)
        yield join.finish()
        self.unread |= join.unread
        self.digests = {queue: (join.messages[queue], found.hexdigest()) for queue, found in join.hashes.items()}
        self.messages = sum(join.messages.values())

    def _join(self) -> QueueJoin:
        streams = open_streams(self.store, self.source, self.options.topics, self.unread)
        for queue in streams:
            self.numbers.setdefault(queue, len(self.numbers))
        return QueueJoin(streams, self.numbers, range(self.store.commit_log.min_offset, self._end), self._read)

    @cached_property
    def _end(self) -> int:
        """The end of the log: a broker's start cuts off what queues have after it."""
        queues = self.store.listing.queues(FileKind.CONSUME_QUEUE)
        files = [ConsumeQueueFiles(*item) for item in queues.items()]
        return find_log_end(self.store.commit_log, files, dledger=self.store.is_dledger).physical_offset

    def _read(self, physical_offset: int) -> bytes:
        record = read_record(self.store.commit_log, physical_offset)
        return b"" if record is None else self.store.commit_log.read(physical_offset, record.total_size)

    def _pieces(self, effort: Effort) -> Iterator[Digests]:
        """Yield the digests of the log's messages, in order."""
        # Queues can serve messages of other topics: light queues do, and damaged ones.
        topics = parse_patterns(()) if self.options.by is By.QUEUE else self.options.topics
        selection = Selection(topics=topics)
        plan = plan_of(self.store, selection)
        work = DigestWork(selection, _sense(self.options.by))
        for answer in run_ranges(plan, nominal_ranges(plan), work, effort):
            if isinstance(answer, Damage):
                self.damages.append(answer)
            elif isinstance(answer, Answered):
                self.damages += answer.found.damages
                yield from answer.found.pieces


def _sense(by: By) -> Sense:
    return {By.LOG: Sense.BYTES, By.QUEUE: Sense.STORED, By.MESSAGE: Sense.SENT}[by]


def compare_stores(a: Store, b: Store, options: DiffOptions, effort: Effort) -> Differences:
    options, notes, is_whole = _settled(a, b, options)
    numbers: dict[Queue, int] = {}
    sides = [Side(store, options, source, numbers) for store, source in zip((a, b), options.sources, strict=True)]
    sums = [_sum(side, effort) for side in sides]
    unread = sides[0].unread | sides[1].unread
    notes += [f"{error.message}: this queue is not compared" for error in unread.values()]
    found = Differences(options.by, notes=notes, hidden=bool(unread) or not is_whole)
    found.damages = (list(sides[0].damages), list(sides[1].damages))
    found.messages = [side.messages for side in sides]
    found.digests = [one for one in _queue_digests(sides[0].digests, sides[1].digests) if one[:2] not in unread]
    queues = {number: queue for queue, number in numbers.items()}
    for wanted in passes(*sums):
        kept = [_keep(side, effort, wanted) for side in sides]
        found.rows += [row for row in _rows(kept[0], kept[1], queues) if row.queue not in unread]
    try:
        other = list(_other_bytes(a, b, found.damages))
    except ReadFailed:
        found.hidden = True
    else:
        found.rows += other if options.by is By.LOG else ()
        found.hidden |= bool(other) and options.by is not By.LOG
    found.rows.sort(key=lambda row: (row.queue or ("", -1), row.queue_offset, max(row.place_a, row.place_b)))
    return found


def _settled(a: Store, b: Store, options: DiffOptions) -> tuple[DiffOptions, list[str], bool]:
    """Return how the stores can be compared, notes about it, and whether that is all that was asked.

    Without queues, or where a database of them cannot be read, the messages of the logs are compared.
    """
    if options.by is not By.QUEUE:
        return options, [], True
    without = [store.root for store in (a, b) if not has_queues(store)]
    by_message = replace(options, by=By.MESSAGE)
    if len(without) == 2:
        return by_message, ["neither store has queues: the messages of their logs are compared"], True
    for store, source in zip((a, b), options.sources, strict=True):
        try:
            _require_database(store, source)
        except ReadFailed as error:
            return by_message, [f"{error.message}: the messages of the logs are compared"], False
    return options, [f"{root} has no queues" for root in without], True


def _require_database(store: Store, source: QueueSource) -> None:
    """Raise ``ReadFailed`` if queues are needed from a database that cannot be read."""
    if source_of(store, source) is QueueSource.ROCKSDB and has_database_queues(store):
        with open_database(store, paths.CONSUME_QUEUE) as database:
            for _ in database.iter_rows("default"):
                pass


def _other_bytes(a: Store, b: Store, damages: tuple[list[Damage], list[Damage]]) -> Iterator[Difference]:
    """Yield damage that is at the same offset on both sides and has different bytes."""
    files = {store.root: {store_file.name: store_file for store_file in _files(store)} for store in (a, b)}
    for damage in sorted(set(damages[0]) & set(damages[1]), key=lambda one: (one.file, one.file_offset)):
        file = files[a.root].get(damage.file)
        other = files[b.root].get(damage.file)
        if file is None or other is None:
            continue
        place = file.base_offset + damage.file_offset
        if any(x != y for x, y in zip(_read(a, place, damage.length), _read(b, place, damage.length), strict=False)):
            yield Difference(Kind.DIFFERENT, None, -1, place, place, damage.length)


def _files(store: Store) -> list[LogFile]:
    return logs_of(store)


def _read(store: Store, physical_offset: int, length: int) -> Iterator[bytes]:
    for at in range(physical_offset, physical_offset + length, _PIECE):
        yield store.commit_log.read(at, min(_PIECE, physical_offset + length - at))


def _sum(side: Side, effort: Effort) -> Buckets:
    sums = Buckets()
    for items in side.items(effort):
        sums.add(items)
    return sums


def _keep(side: Side, effort: Effort, wanted: Any) -> Items:
    return join_items(items.select(wanted[bucket_of(items.identities)]) for items in side.items(effort))


def _rows(a: Items, b: Items, queues: dict[int, Queue]) -> Iterator[Difference]:
    for row_a, row_b in match(a, b):
        items, row = (a, row_a) if row_a >= 0 else (b, row_b)
        place_a = int(a.places[row_a]) if row_a >= 0 else -1
        place_b = int(b.places[row_b]) if row_b >= 0 else -1
        yield Difference(
            _kind(row_a, row_b, place_a, place_b),
            queues.get(int(items.queues[row])),
            int(items.offsets[row]),
            place_a,
            place_b,
            max(int(side.sizes[at]) for side, at in ((a, row_a), (b, row_b)) if at >= 0),
        )


def _kind(row_a: int, row_b: int, place_a: int, place_b: int) -> Kind:
    """Return the kind of a difference. An entry that points to no message counts as missing."""
    if row_a < 0 or (place_a < 0 <= place_b):
        return Kind.ONLY_B
    return Kind.ONLY_A if row_b < 0 or (place_b < 0 <= place_a) else Kind.DIFFERENT


def _queue_digests(a: dict[Queue, tuple[int, str]], b: dict[Queue, tuple[int, str]]) -> Iterator[QueueDigest]:
    for queue in sorted(a.keys() | b.keys()):
        (count_a, digest_a), (count_b, digest_b) = a.get(queue, (0, None)), b.get(queue, (0, None))
        yield QueueDigest(*queue, count_a, count_b, digest_a, digest_b)


def iter_json_rows(found: Differences, a: Store, b: Store) -> Iterator[dict[str, Any]]:
    """Yield the rows of docs/contract.md, with the messages of both sides."""
    sides: tuple[tuple[str, Store, Callable[[Difference], int]], ...] = (
        ("a", a, lambda row: row.place_a),
        ("b", b, lambda row: row.place_b),
    )
    for row in found.rows:
        messages = {}
        for name, store, place in sides:
            message = read_record(store.commit_log, place(row)) if place(row) >= 0 else None
            if message is not None:
                messages[name] = message_json(message).fields
        either = next(iter(messages.values()), None)
        queue = row.queue or ((either["topic"], either["queueId"]) if either is not None else ("", -1))
        offset = row.queue_offset if row.queue is not None else either["queueOffset"] if either is not None else -1
        yield {"topic": queue[0], "queueId": queue[1], "queueOffset": offset, "kind": row.kind.value, **messages}


def diff_head(found: Differences, stores: tuple[Store, Store], *, topics: bool) -> dict[str, Any]:
    """Return the object of docs/contract.md without its rows; with ``topics``, counts by topic."""
    head: dict[str, Any] = {
        "same": found.same,
        "complete": found.complete,
        "by": found.by.value,
        "a": {"store": stores[0].root, "messages": found.messages[0], "damaged": len(found.damages[0])},
        "b": {"store": stores[1].root, "messages": found.messages[1], "damaged": len(found.damages[1])},
        **{kind.value: found.count(kind) for kind in Kind},
    }
    if found.by is By.QUEUE:
        names = ("topic", "queueId", "messagesA", "messagesB", "a", "b")
        head["digests"] = [dict(zip(names, digest, strict=True)) for digest in found.digests]
    if found.by is By.LOG:
        head["ranges"] = [{"offset": start, "length": end - start} for start, end in found.ranges()]
    if topics:
        counts: dict[str, Counter[str]] = {}
        for row in iter_json_rows(found, *stores):
            counts.setdefault(row["topic"], Counter())[row["kind"]] += 1
        zeros = {kind.value: 0 for kind in Kind}
        head["topics"] = [{"topic": topic, **zeros, **counted} for topic, counted in sorted(counts.items())]
    return head


Queue = tuple[str, int]

# Entries of a queue that are read at once.
_AT_ONCE = 4096
# A physical offset past the end of any log.
_FAR = 1 << 62
# Mixes queue and offset into one identity; multiplying by it spreads similar numbers.
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class UnitSource(Protocol):
    """The entries of one queue from ``first`` to before ``end``, read by queue offset."""

    first: int
    end: int

    def read(self, queue_offset: int, count: int) -> Units:
        """Return ``count`` entries from ``queue_offset`` on."""


class HeldUnits:
    """Entries in memory, with their own queue offsets."""

    def __init__(self, offsets: Ints, units: Units) -> None:
        self.first, self.end = 0, len(offsets)
        self.offsets = offsets
        self._units = units

    def read(self, queue_offset: int, count: int) -> Units:
        """Return entries by their number."""
        return self._units[queue_offset : queue_offset + count]


class UnitStream:
    """The entries of a queue, taken in order."""

    def __init__(self, source: UnitSource) -> None:
        self._source = source
        self._at = source.first
        self._waiting = np.zeros(0, UNIT)

    def take(self, below: int) -> Iterator[tuple[Ints, Units]]:
        """Yield queue offsets and entries up to the first that points to ``below`` or later."""
        while True:
            if not len(self._waiting):
                count = min(_AT_ONCE, self._source.end - self._at)
                if count <= 0:
                    return
                self._waiting = self._source.read(self._at, count)
            later = np.flatnonzero(self._waiting["physical_offset"] >= below)
            count = int(later[0]) if len(later) else len(self._waiting)
            if count:
                numbers = np.arange(self._at, self._at + count)
                held = self._source.offsets if isinstance(self._source, HeldUnits) else None
                yield (numbers if held is None else held[numbers]), self._waiting[:count]
                self._at += count
                self._waiting = self._waiting[count:]
            if len(later):
                return


class QueueJoin:
    """Joins the entries of all queues with the messages of the log, which comes in pieces.

    ``read`` returns the bytes of the sound record at an offset. An entry that points outside of ``log`` is not an item:
    its message has expired, or never existed. ``hashes`` are digests over what each queue serves, ``messages`` the
    number of its entries that point to a message.
    """

    def __init__(
        self, streams: dict[Queue, UnitStream], numbers: dict[Queue, int], log: range, read: Callable[[int], bytes]
    ) -> None:
        self._streams = streams
        self._numbers = numbers
        self._log = log
        self._read = read
        self.unread: dict[Queue, ReadFailed] = {}
        self.hashes = {queue: hashlib.sha256() for queue in streams}
        self.messages = dict.fromkeys(streams, 0)

    def take(self, digests: Digests) -> Items:
        """Return the items for entries that point to a piece of the log or before."""
        return self._items(int(digests.places[-1]) + 1, digests) if len(digests) else join_items(())

    def finish(self) -> Items:
        """Return the items for the remaining entries, which point past everything that was read."""
        return self._items(_FAR, None)

    def _items(self, below: int, digests: Digests | None) -> Items:
        return join_items(self._iter_items(below, digests))

    def _iter_items(self, below: int, digests: Digests | None) -> Iterator[Items]:
        for queue, stream in self._streams.items():
            try:
                for offsets, units in stream.take(below):
                    yield self._item_of(queue, offsets, units, digests)
            except ReadFailed as error:
                self.unread[queue] = error

    def _item_of(self, queue: Queue, offsets: Ints, units: Units, digests: Digests | None) -> Items:
        sizes, places = units["size"].astype(np.int64), units["physical_offset"].astype(np.int64)
        written = (sizes > 0) & ~are_fillers(places, sizes)
        written &= (places >= self._log.start) & (places < self._log.stop)
        offsets, sizes, places = offsets[written], sizes[written], places[written]
        lows, highs, found = self._words(places, sizes, digests)
        codes = units["tags_code"].astype(np.int64)[written]
        lows = lows ^ (codes.view(np.uint64) * np.uint64(_MIX))
        number = self._numbers[queue]
        identities = offsets.astype(np.uint64) + np.uint64((number + 1) * _MIX & _MASK)
        self.hashes[queue].update(np.stack((lows, highs), axis=1).tobytes())
        self.messages[queue] += int(np.count_nonzero(found >= 0))
        return Items(identities, lows, highs, found, sizes, np.full(len(offsets), number, np.int64), offsets)

    def _words(self, places: Ints, sizes: Ints, digests: Digests | None) -> tuple[Hashes, Hashes, Ints]:
        """Return the digests of the messages at some offsets; those not among ``digests`` are read one by one."""
        lows, highs = np.zeros(len(places), np.uint64), np.zeros(len(places), np.uint64)
        found, hit = np.full(len(places), -1, np.int64), np.zeros(len(places), np.bool_)
        if digests is not None:
            rows = np.minimum(np.searchsorted(digests.places, places), len(digests) - 1)
            hit = (digests.places[rows] == places) & (digests.sizes[rows] == sizes)
            lows[hit], highs[hit], found[hit] = digests.lows[rows[hit]], digests.highs[rows[hit]], places[hit]
        for row in np.flatnonzero(~hit).tolist():
            data = self._read(int(places[row]))
            if len(data) == sizes[row]:
                one = digest_records(decode_records(data, np.zeros(1, np.int64))[0], Sense.STORED)
                lows[row], highs[row], found[row] = one.lows[0], one.highs[0], places[row]
        return lows, highs, found
