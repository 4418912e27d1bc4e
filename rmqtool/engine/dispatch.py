"""Builds queues and index from the commit log, in the order of the log.

The log is read again, instead of handing records over from the put, so that live dispatch, rebuilding and recovery are
one thing. A pass reads the available records, writes their entries together, and reports which queues grew. An
unfinished pass is repeated: dispatching a record twice changes nothing. upstream: ReputMessageService and its
dispatchers.

A record is dispatched once consumers may see it. With synchronous flush that is when it survives a power cut. upstream:
4.9 dispatches unflushed records, so consumers get messages that a power cut takes back.

Many records are dispatched by columns: the same entries at a tenth of the cost. If the columns are not clean (damage,
batch queues), or if queues have extensions, the records are dispatched one by one.

``BitMaps`` computes, for the extension of a queue, which groups' SQL filters a message matches; a pull skips messages
whose bits exclude its group. upstream: CommitLogDispatcherCalcBitMap, over ``config/consumerFilter.json``.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rmqtool import kernel
from rmqtool.config import Version
from rmqtool.engine.commit_log import CommitLog, Tail
from rmqtool.engine.consume_queue import ConsumeQueues, ExtUnit
from rmqtool.engine.health import Health
from rmqtool.engine.index_file import IndexService
from rmqtool.engine.message import QueueKey
from rmqtool.errors import ReadFailed, RmqtoolError
from rmqtool.files.filesystem import ReadableFile, ReadableFileSystem
from rmqtool.files.salvaged import is_of_the_disk
from rmqtool.filters.sql92 import Dialect, Selector, parse_selector
from rmqtool.findings import Finding, new_finding
from rmqtool.findings import Place as FindingPlace
from rmqtool.formats import layouts, paths
from rmqtool.formats.bloom import BITS, make_bit_map
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, batch_unit, has_queue_unit, iter_index_texts, queue_entries
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.index import key_hash
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.topics import is_directory_name
from rmqtool.log.walk import Place, SegmentWalk
from rmqtool.store.config_files import load_config
from rmqtool.store.segments import Segment

if TYPE_CHECKING:
    from rmqtool.columns.index_build import Keys
    from rmqtool.columns.properties import Properties
    from rmqtool.columns.queues import QueueRun
    from rmqtool.columns.records import Records


class _GroupFilter(NamedTuple):
    """The SQL filter of a group on a topic, and its bits in a bit map."""

    selector: Selector
    positions: tuple[int, ...]


class BitMaps:
    """Computes the bit map of a message from the filters that groups have registered."""

    def __init__(self, filters: dict[str, Any], version: Version) -> None:
        dialect = Dialect.V4 if version is Version.V4_9 else Dialect.V5
        self._by_topic: dict[str, list[_GroupFilter]] = {}
        for topic, data in (filters.get("filterDataByTopic") or {}).items():
            groups = (data.get("groupFilterData") or {}).values()
            found = [one for group in groups if (one := _group_filter(group, dialect)) is not None]
            if groups:
                self._by_topic[topic] = found

    def __call__(self, message: Message) -> bytes:
        """Return the bit map of a message; empty if no group filters its topic."""
        groups = self._by_topic.get(message.topic)
        if groups is None:
            return b""
        return make_bit_map(one.positions for one in groups if one.selector.matches(message.properties))


def _group_filter(group: dict[str, Any], dialect: Dialect) -> _GroupFilter | None:
    """Return the filter of a group; None if it is empty or does not parse, or its bits are for another bloom size."""
    bloom = group.get("bloomFilterData") or {}
    if bloom.get("bitNum") != BITS or not group.get("expression"):
        return None
    try:
        selector = parse_selector(group["expression"], dialect=dialect)
    except RmqtoolError:
        return None
    return _GroupFilter(selector, tuple(bloom["bitPos"]))


def read_bit_maps(files: ReadableFileSystem, version: Version) -> BitMaps:
    """Return the ``BitMaps`` for the filters in a store's ``config/consumerFilter.json``."""
    return BitMaps(load_config(files, paths.CONSUMER_FILTER), version)


class Taken(NamedTuple):
    """The result of dispatching a piece.

    ``end`` is the physical offset after it, ``last_place`` that of its last record. ``last_store_timestamp`` is the
    latest store time (ms) in it, ``records`` their number.
    """

    end: int
    records: int
    last_place: int
    last_store_timestamp: int
    findings: list[Finding]


class Piece(NamedTuple):
    """Consecutive records as columns, with their queue entries. ``end`` is the physical offset after them."""

    records: Records
    properties: Properties
    runs: list[QueueRun]
    end: int


def decode_piece(data: bytes, physical_offset: int, rules: DispatchRules) -> Piece | None:
    """Return the records at the beginning of ``data``, which begins at ``physical_offset`` of the log.

    They end before the first one that is not a whole message. Returns None if the first one is not, or if one of them
    names another physical offset than its own.
    """
    from rmqtool.columns.properties import decode_properties
    from rmqtool.columns.queues import queue_runs
    from rmqtool.columns.records import decode_records, lie_in_place
    from rmqtool.columns.starts import record_starts

    starts = record_starts(data)
    records, _ = decode_records(data, starts.file_offsets)
    if not len(records) or not lie_in_place(records, physical_offset).all():
        return None
    properties = decode_properties(records)
    end = int(records.file_offsets[-1]) + int(records.column("total_size")[-1])
    return Piece(records, properties, queue_runs(records, properties, rules), physical_offset + end)


def queues_of(piece: Piece) -> set[QueueKey]:
    """Return the queues that get entries from a piece."""
    return {(run.topic, run.queue_id) for run in piece.runs}


def dispatch_piece(piece: Piece, queues: ConsumeQueues) -> Taken:
    """Add the queue entries of a piece to ``queues``, in memory until ``write_pending``."""
    records = piece.records
    findings: list[Finding] = []
    places, times = records.column("physical_offset"), records.column("store_timestamp")
    if queues.rows is not None:
        queues.rows.store_times.update(zip(places.tolist(), times.tolist(), strict=True))
    for run in piece.runs:
        _put_run(queues, run, findings)
    last_place = int(places[-1])
    return Taken(piece.end, len(records), last_place, int(times.max()), findings)


def keys_of(piece: Piece, rules: DispatchRules) -> Keys:
    """Return the index keys of a piece, each with physical offset and store time of its record."""
    from rmqtool.columns.dispatched import index_keys
    from rmqtool.columns.index_build import Keys

    records = piece.records
    places, times = records.column("physical_offset"), records.column("store_timestamp")
    found = index_keys(records, piece.properties, rules)
    return Keys(found.key_hashes, places[found.rows], times[found.rows])


def _put_run(queues: ConsumeQueues, run: QueueRun, findings: list[Finding]) -> None:
    # Consecutive queue offsets that continue the queue are added at once. Others are added one by one: the queue then
    # fills a gap, drops what it has, or reports.
    queue = queues.simple_queue((run.topic, run.queue_id))
    first, count = int(run.queue_offsets[0]), len(run.units)
    if int(run.queue_offsets[-1]) - first == count - 1 and bool((run.queue_offsets[1:] > run.queue_offsets[:-1]).all()):
        last = ConsumeQueueUnit(*run.units[-1].item())
        if queue.put_run(first, run.units.tobytes(), last):
            return
    for queue_offset, unit in zip(run.queue_offsets.tolist(), run.units.tolist(), strict=True):
        finding = queue.put(ConsumeQueueUnit(*unit), queue_offset)
        if finding is not None:
            findings.append(finding)


# Limits of one pass, after which its entries are written to the files: records that are taken one by one, or bytes of
# the log that are taken by columns.
_PASS = 4096
_PIECE = 4 << 20
# The bytes read at once for single records; more if there are not two records in them.
_WINDOW, _WIDEST_WINDOW = 1 << 20, 16 << 20
# The bytes of a piece while producers put: it holds them up for 3 ms, less than Python's switch interval of 5 ms.
_PIECE_BESIDE_PUTS = 1 << 20
# Columns pay from this many bytes on. With the kernel a piece costs as much as ten single records, with array
# operations as much as thirty. Importing numpy takes longer than dispatching 2 MiB record by record.
LEAST_FOR_BULK = 16 << 10 if kernel.NATIVE is None else 4 << 10
LEAST_TO_LOAD_BULK = 2 << 20

# The bytes that are read for the kernel when there are too few records for columns.
_LEAST_WINDOW = 64 << 10
# Topics that are known by their bytes. A producer of random topics must not fill the memory.
_MOST_TOPICS = 4096
# The result of the kernel's ``dispatch_one``: size, topic, queue id, queue offset, store time, queue entry (empty for a
# record without one), hashes of the keys, hash of the tag (-1 without a tag).
_Plain: TypeAlias = tuple[int, bytes, int, int, int, bytes, tuple[int, ...], int]

# Called with (queue, next offset) for every queue that grew.
Listener: TypeAlias = Callable[[QueueKey, int], None]


@dataclass(frozen=True)
class DispatchOptions:
    """The settings that the dispatch depends on."""

    rules: DispatchRules
    batch_topics: frozenset[str]
    with_index: bool
    with_ext: bool
    # A consumer must not see a message that a power cut can take back from its producer.
    waits_for_flush: bool
    # Called for each message if queues have extensions, see ``BitMaps``.
    bit_map: Callable[[Message], bytes]


def _is_in_place(message: Message, physical_offset: int) -> bool:
    """Return whether a record names its own place and has a store time; the tolerant walk judges all others."""
    return message.physical_offset == physical_offset and message.store_timestamp > 0


class Dispatcher:
    """Follows the log, and builds queues and index from it."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService,
        health: Health,
        options: DispatchOptions,
    ) -> None:
        self.queues = queues
        self.index = index
        self.listeners: list[Listener] = []
        # The end of the dispatched log: up to here log, queues and index agree.
        self.dispatched = Tail(log.wrote_offset, log.store_timestamp)
        self._log = log
        self._health = health
        self._options = options
        # Held during a pass: entries must be added in the order of the log.
        self._lock = threading.Lock()
        self._without_puts: AbstractContextManager[object] = nullcontext()
        self._piece = _PIECE
        # The segment that was read last, kept open for the next pass.
        self._reading: tuple[Segment, ReadableFile] | None = None
        # The delays (ms) for the kernel; None if one does not fit into 64 bits, and the kernel is not used then.
        levels = options.rules.delays
        self._delays = array("q", levels) if max(levels, default=0) <= LONG_MAX else None
        # Topics, by their bytes, whose messages need no more than an entry in a simple queue.
        self._topics: dict[bytes, str] = {}
        # Bytes dispatched so far: after ``LEAST_TO_LOAD_BULK`` importing numpy pays.
        self._dispatched_bytes = 0

    @property
    def visible(self) -> int:
        """The physical offset before which records may be dispatched: the flushed end if consumers wait for it."""
        return self._log.flushed_offset if self._options.waits_for_flush else self._log.committed_offset

    @property
    def behind(self) -> int:
        """The bytes of the visible log that are not dispatched."""
        return self.visible - self.dispatched.offset

    def restart_at(self, physical_offset: int) -> None:
        """Continue at a record: it and everything after it is dispatched, once more if it was before."""
        with self._lock:
            self.dispatched = Tail(physical_offset, 0)

    def go_beside_puts(self, without_puts: AbstractContextManager[object]) -> None:
        """Prepare for a dispatch thread beside producers: puts are excluded while a piece is computed.

        Each put gives up Python's lock for its write. Otherwise the threads would switch at every put, which costs more
        than the piece.
        """
        self._without_puts = self.index.without_puts = without_puts
        self._piece = _PIECE_BESIDE_PUTS

    def dispatch(self) -> int:
        """Dispatch the visible records, one thread at a time; return how many.

        It ends early if a dispatch has failed before. Raises WriteFailed, with the pass not counted as done.
        """
        count = 0
        with self._lock:
            while self._health.is_queue_writeable and self.dispatched.offset < (end := self.visible):
                segment = self._segment_at(self.dispatched.offset)
                if segment is None:
                    break
                count += self._dispatch_in(segment, min(end, segment.end_offset))
        return count

    def take_back(self) -> bool:
        """Remove the entries of a pass that ended on a full disk; return whether all are removed.

        Then a start needs no recovery: it dispatches after the last message that has an entry, so these records too.
        """
        with self._lock:
            is_done = self.queues.take_back(self.dispatched.offset)
            if is_done:
                self.index.take_back()
        return is_done

    def close(self) -> None:
        """Close the segment that was read last; another pass opens it again."""
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None

    def _opened(self, segment: Segment) -> ReadableFile:
        """Return a segment opened for the dispatcher alone: shared files may be closed by other threads."""
        if self._reading is None or self._reading[0] != segment:
            self.close()
            self._reading = segment, segment.filesystem.open_read(segment.path)
        return self._reading[1]

    def _read(self, segment: Segment, position: int, length: int) -> bytes:
        """Read a segment from a physical offset on; return b"" for bytes that the disk cannot give."""
        try:
            return self._opened(segment).pread(length, position - segment.base_offset)
        except ReadFailed as error:
            if not is_of_the_disk(error):
                raise
            return b""

    def _segment_at(self, physical_offset: int) -> Segment | None:
        """Return the segment that holds an offset, or the first one after a gap; None after the last one."""
        segments = self._log.segments
        found = segments.find(physical_offset)
        return found or next((one for one in segments if one.base_offset > physical_offset), None)

    def _dispatch_in(self, segment: Segment, end: int) -> int:
        """Dispatch one pass of a segment's records before ``end``; return how many records.

        By columns if there are enough bytes and the records allow it, else one by one.
        """
        position = max(self.dispatched.offset, segment.base_offset)
        if end - position >= self._least_for_bulk():
            taken = self._dispatch_piece(segment, position, end)
            if taken is not None:
                return taken
        return self._dispatch_records(segment, position, end)

    def _least_for_bulk(self) -> int:
        """Return the number of bytes from which columns pay; with extensions they never do.

        The first time it includes the import of their libraries. After many bytes the import has paid off, or has been
        done.
        """
        if self._options.with_ext:
            return sys.maxsize
        return LEAST_FOR_BULK if self._dispatched_bytes >= LEAST_TO_LOAD_BULK else LEAST_TO_LOAD_BULK

    def _dispatch_piece(self, segment: Segment, position: int, end: int) -> int | None:
        """Dispatch a piece of a segment by columns; return how many records.

        Returns None, with nothing done, for records that columns cannot handle: damage at the beginning, a record in
        another place than it names, a batch topic, a topic that cannot be a directory.
        """

        options = self._options
        data = self._read(segment, position, min(end - position, self._piece))
        with self._without_puts:
            piece = decode_piece(data, position, options.rules)
            if piece is None:
                return None
            if any(topic in options.batch_topics or not is_directory_name(topic) for topic, _ in queues_of(piece)):
                return None
            taken = dispatch_piece(piece, self.queues)
            keys = keys_of(piece, options.rules) if options.with_index else None
        if keys is not None:
            self.index.put_keys(keys, taken.last_place)
        for finding in taken.findings:
            self._report(finding)
        self._finish_pass(Tail(taken.end, max(self.dispatched.store_timestamp, taken.last_store_timestamp)))
        return taken.records

    def _dispatch_records(self, segment: Segment, position: int, end: int) -> int:
        """Dispatch records one by one, with the kernel as far as it goes; return how many."""
        store_timestamp = self.dispatched.store_timestamp
        count = done = 0
        while position < end and count < _PASS:
            done, position, latest = self._dispatch_compiled(segment, position, end)
            store_timestamp = max(store_timestamp, latest)
            count += done
            if not done:
                break
        if done:
            self._finish_pass(Tail(position, store_timestamp))
            return count
        for message, reached in self._iter_records(segment, position, end):
            position = reached
            if message is not None:
                self._dispatch_record(message)
                store_timestamp = max(store_timestamp, message.store_timestamp)
                count += 1
                if count >= _PASS:
                    break
        self._finish_pass(Tail(position, store_timestamp))
        return count

    def _dispatch_compiled(self, segment: Segment, position: int, end: int) -> tuple[int, int, int]:
        """Dispatch records with the kernel, up to the first one that it leaves.

        Return how many, where the next one is, and the highest store time. A record is dispatched once a record or the
        end follows, because its size may be wrong.
        """
        native, latest, count = kernel.NATIVE, 0, 0
        if native is None or self._options.with_ext or self._delays is None:
            return 0, position, 0
        data = self._read(segment, position, min(end - position, _LEAST_WINDOW))
        at, last = 0, None
        while (found := native.dispatch_one(data, at, position, self._delays)) is not None:
            if last is not None:
                if not self._dispatch_plain(last, position + at):
                    return count, position + at - last[0], latest
                count, latest = count + 1, max(latest, last[4])
            last = found
            at += found[0]
        if last is None:
            return 0, position, 0
        if position + at == end and self._dispatch_plain(last, end):
            return count + 1, end, max(latest, last[4])
        return count, position + at - last[0], latest

    def _dispatch_plain(self, record: _Plain, end: int) -> bool:
        """Add a record that ends at ``end`` to its queue and the index; return False if it needs the general path."""
        size, raw_topic, queue_id, queue_offset, store_timestamp, unit, hashes, tag_hash = record
        topic = self._topics.get(raw_topic)
        if topic is None:
            topic = raw_topic.decode()
            if topic in self._options.batch_topics or not is_directory_name(topic):
                return False
            if len(self._topics) == _MOST_TOPICS:
                self._topics.clear()
            self._topics[raw_topic] = topic
        if unit:
            queue = self.queues.simple_queue((topic, queue_id))
            if self.queues.rows is not None:
                self.queues.rows.store_times[end - size] = store_timestamp
            if not queue.put_next(queue_offset, unit, end):
                finding = queue.put(layouts.CONSUME_QUEUE_UNIT.decode(unit), queue_offset)
                if finding is not None:
                    self._report(finding)
        if self._options.with_index:
            if tag_hash >= 0 and self._options.rules.tag_entries:
                hashes = (*hashes, tag_hash)
            self.index.put(hashes, end - size, store_timestamp)
        return True

    def _iter_records(self, segment: Segment, position: int, end: int) -> Iterator[tuple[Message | None, int]]:
        """Yield the records from ``position`` on with their ends; None instead of a record for skipped bytes.

        Only structure is checked, as upstream does: a consumer sees a wrong checksum of a body. A record is yielded
        once a record or the end follows, because its size may be wrong. The tolerant walk reads the records before a
        break again and decides.
        """
        file, base, window = self._opened(segment), segment.base_offset, _WINDOW
        while position < end:
            data = self._read(segment, position, min(end - position, window))
            if not data:
                break
            at, last = 0, None
            while isinstance(found := decode_record(data, at), Message) and _is_in_place(found, position + at):
                if last is not None:
                    yield last, position + at
                at += found.total_size
                last = found
            if last is not None and position + at == end:
                yield last, end
                return
            if last is not None and at > last.total_size:
                # Read the last record again with the bytes that follow it.
                position += at - last.total_size
            elif window < min(end - position, _WIDEST_WINDOW):
                window *= 4
            else:
                break
        walk = SegmentWalk(file, base, end - base)
        for place in walk.places(position - base):
            yield self._message_of(place, segment), base + place.file_offset + place.length

    def _message_of(self, place: Place, segment: Segment) -> Message | None:
        """Return the record of a place, also one whose only flaw is a wrong checksum.

        Returns None for a blank or damage; damage is reported.

        upstream: one unreadable record hides all others after it in its segment.
        """
        what = place.what
        if isinstance(what, Message):
            return what
        if not isinstance(what, Flaw):
            return None
        if what.code == "CL-CRC":
            return place.damaged
        at = place.file_offset + what.at
        self._health.report(new_finding(what.code, what.message, FindingPlace(segment.path, at, what.length)))
        return None

    def _dispatch_record(self, message: Message) -> None:
        """Add the entries of one record of any kind: the general path."""
        options = self._options
        if has_queue_unit(message.sys_flag):
            if message.topic in options.batch_topics:
                self._put_batch_unit(message)
            else:
                self._put_units(message)
        if options.with_index:
            hashes = map(key_hash, iter_index_texts(message, options.rules))
            self.index.put(hashes, message.physical_offset, message.store_timestamp)

    def _put_batch_unit(self, message: Message) -> None:
        """Add the entry of a record to its batch queue, unless the topic cannot have queues."""
        if self._is_queue_name(message.topic, message.physical_offset):
            queue = self.queues.batch_queue((message.topic, message.queue_id))
            queue.put(batch_unit(message, self._options.rules.delays))

    def _put_units(self, message: Message) -> None:
        """Add the entries of a message in simple queues: in its own queue, and in further queues that it names."""
        ext = None
        if self.queues.rows is not None:
            self.queues.rows.store_times[message.physical_offset] = message.store_timestamp
        if self._options.with_ext:
            ext = ExtUnit(message.store_timestamp, self._options.bit_map(message))
        for entry in queue_entries(message, self._options.rules):
            if self._is_queue_name(entry.topic, message.physical_offset):
                queue = self.queues.simple_queue((entry.topic, entry.queue_id))
                finding = queue.put(entry.unit, entry.queue_offset, ext)
                if finding is not None:
                    self._report(finding)
            # Only the message's own queue has an extension.
            ext = None

    def _is_queue_name(self, topic: str, physical_offset: int) -> bool:
        """Return whether a topic can have queues on disk; report the record if not, which then gets no entry."""
        if is_directory_name(topic):
            return True
        text = f"the record at {physical_offset} has a topic that cannot be a directory name: {topic!r}"
        place = FindingPlace(topic=topic)
        self._report(new_finding("CL-TOPIC", text, place, commitLogOffset=physical_offset))
        return False

    def _report(self, finding: Finding) -> None:
        """Keep a finding about a record, with the file and offset of the record."""
        physical_offset = finding.data["commitLogOffset"]
        if isinstance(physical_offset, int) and (segment := self._log.segments.find(physical_offset)) is not None:
            finding = replace(finding, file=segment.path, offset=physical_offset - segment.base_offset)
        self._health.report(finding)

    def _finish_pass(self, reached: Tail) -> None:
        """Write the entries of this pass to the files, and then tell the listeners: they may read at once."""
        grown = self.queues.write_pending()
        self.index.write_pending()
        self._dispatched_bytes += reached.offset - self.dispatched.offset
        self.dispatched = reached
        for queue in grown:
            for listener in self.listeners:
                listener(queue.key, queue.max_offset)
