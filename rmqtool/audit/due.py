"""Valid records as columns, in batches, with the queue entries and index entries that each record is due.

A batch has what a broker makes of these records when it dispatches them. The other modules of this room compare that
with the entries that are on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import NOT_TEXT
from rmqtool.columns.dispatched import IndexKeys as RowKeys
from rmqtool.columns.dispatched import dispatch_of, index_keys, tag_keys
from rmqtool.columns.gather import gather
from rmqtool.columns.properties import Properties, decode_properties
from rmqtool.columns.queues import QueueEntries, QueueRun, batch_units, have_queue_unit, queue_entries
from rmqtool.columns.records import Records, are_bridges, decode_records
from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import layouts
from rmqtool.formats.codes import (
    COMPRESSION_MASK,
    HOST_BITS,
    TRANSACTION_MASK,
    SysFlag,
    TransactionType,
)
from rmqtool.formats.commit_log import (
    KNOWN_SYS_FLAGS,
    MOST_AHEAD_MS,
    MOST_BEHIND_MS,
    MOST_PORT,
    MOST_RECONSUME_TIMES,
    PREFIXES,
    Message,
    decode_record,
    iter_odd_fields,
)
from rmqtool.formats.compression import body_codec, inflate_body
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.formats.flaws import Flaw
from rmqtool.log.read import Rows
from rmqtool.log.walk import Place

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Units = npt.NDArray[np.void]

# The dtypes of entries in simple queues and in batch queues.
UNIT = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
BATCH_UNIT = np.dtype(layouts.BATCH_CONSUME_QUEUE_UNIT.dtype())


class Inflating(IntEnum):
    """How closely to look at compressed bodies: not at all, at their first bytes, or at all of them."""

    NONE = 0
    HEADS = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects what batches contain.

    ``rules`` make the entries of queues. Topics in ``batch_topics`` have batch queues and get their entries there.
    ``inflating`` says how bodies are examined. ``keys`` adds the index entries of keys, ``tag_keys`` those of tags,
    which brokers write from 5.4 on.
    """

    rules: DispatchRules
    batch_topics: frozenset[str] = frozenset()
    inflating: Inflating = Inflating.NONE
    keys: bool = True
    tag_keys: bool = False


class IndexKeys(NamedTuple):
    """Entries due in an index: for each, the physical offset and store time of the record, and the hash of the key."""

    physical_offsets: Ints
    key_hashes: Ints
    store_timestamps: Ints

    def before(self, end: int) -> IndexKeys:
        """Return the entries of records before ``end`` of the log."""
        rows = self.physical_offsets < end
        return IndexKeys(*(column[rows] for column in self))


class RecordFlaw(NamedTuple):
    """A flaw that does not hide the content of a record: all fields can still be read."""

    physical_offset: int
    total_size: int
    flaw: Flaw


class HostRun(NamedTuple):
    """Consecutive records stored by the same host, among those with hosts of its address family.

    ``host`` is the address, then the port in 4 bytes. ``length`` is the size of the first record.
    """

    host: bytes
    physical_offset: int
    length: int
    records: int


class Half(NamedTuple):
    """A committed record, and the physical offset of the half message that it commits."""

    physical_offset: int
    prepared_offset: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of a segment, with at most blanks and damage between them and the next batch.

    ``entries`` are due in simple queues, ``batch_runs`` in batch queues, ``keys`` and ``tag_keys`` in the index.
    ``bodies`` has the records whose body does not inflate, ``heads`` bridges and records with a header or properties
    that no broker writes, ``commits`` the committed records with their half messages. ``hosts`` has the hosts that
    stored the records; it is empty in a part of a batch.
    """

    physical_offsets: Ints
    sizes: Ints
    store_timestamps: Ints
    entries: list[QueueEntries]
    batch_runs: list[QueueRun]
    keys: IndexKeys
    tag_keys: IndexKeys
    bodies: list[RecordFlaw]
    commits: list[Half]
    heads: list[RecordFlaw]
    hosts: list[HostRun]

    def without_tag_keys(self) -> Batch:
        """Return the batch without the entries that 5.4 adds for tags."""
        return replace(self, tag_keys=_NO_KEYS) if len(self.tag_keys.key_hashes) else self

    def before(self, end: int) -> Batch:
        """Return the records that begin before ``end`` of the log, with everything that they are due."""
        if self.physical_offsets[-1] < end:
            return self
        rows = self.physical_offsets < end
        return Batch(
            self.physical_offsets[rows],
            self.sizes[rows],
            self.store_timestamps[rows],
            [part.select(part.units["physical_offset"] < end) for part in self.entries],
            _runs_before(self.batch_runs, end),
            self.keys.before(end),
            self.tag_keys.before(end),
            [found for found in self.bodies if found.physical_offset < end],
            [found for found in self.commits if found.physical_offset < end],
            [found for found in self.heads if found.physical_offset < end],
            [],
        )


def _runs_before(runs: list[QueueRun], end: int) -> list[QueueRun]:
    """Return the runs with only their entries of records before ``end`` of the log; empty runs are dropped."""
    kept = (run.units["physical_offset"] < end for run in runs)
    cut = (
        run._replace(queue_offsets=run.queue_offsets[rows], units=run.units[rows])
        for run, rows in zip(runs, kept, strict=True)
    )
    return [run for run in cut if len(run.units)]


def batch_of(records: Records, wanted: Wanted) -> Batch:
    """Return the batch of some valid records; ``wanted`` decides which of its columns are filled."""
    properties = decode_properties(records)
    in_batches = _stand_in_batches(records, wanted)
    places = records.column("physical_offset").astype(np.int64)
    times = records.column("store_timestamp").astype(np.int64)
    plain, inner, simple, packed = records, None, properties, None
    if in_batches.any():
        plain, inner = records.select(~in_batches), records.select(in_batches)
        simple, packed = decode_properties(plain), decode_properties(inner)
    return Batch(
        places,
        records.column("total_size").astype(np.int64),
        times,
        [queue_entries(plain, simple, wanted.rules)] if len(plain) else [],
        [] if inner is None or packed is None else list(_batch_runs(inner, packed, wanted.rules)),
        _keys(index_keys(records, properties, _PLAIN), places, times) if wanted.keys else _NO_KEYS,
        _keys(tag_keys(records, properties), places, times) if wanted.tag_keys else _NO_KEYS,
        list(_check_bodies(records, wanted.inflating)),
        _commits(records),
        [
            *(
                found
                for row in np.flatnonzero(_have_odd_heads(records)).tolist()
                for found in check_head(_message(records, row))
            ),
            *_bridges(records),
            *_check_texts(records, properties),
            *_check_ends(records),
        ],
        _host_runs(records),
    )


# Index keys without those of tags, which are a column of their own: only brokers from 5.4 on write them.
_PLAIN = DispatchRules()
_NO_KEYS = IndexKeys(*(np.zeros(0, np.int64) for _ in range(3)))


def _stand_in_batches(records: Records, wanted: Wanted) -> Mask:
    """Return which records are due an entry in a batch queue: inner batches, and all of a batch topic."""
    found: Mask = records.column("sys_flag") & int(SysFlag.INNER_BATCH) != 0
    if wanted.batch_topics:
        topics = records.topics
        found |= topics.each(lambda topic: topic in wanted.batch_topics, np.bool_)
    return found


def _batch_runs(records: Records, properties: Properties, rules: DispatchRules) -> Iterator[QueueRun]:
    """Yield the entries due in batch queues, one run for each queue."""
    kept = np.flatnonzero(have_queue_unit(records))
    if not len(kept):
        return
    units = batch_units(records, properties, rules)
    topics = records.topics
    codes, numbers = topics.codes[kept], records.column("queue_id")[kept]
    for code, queue_id in sorted(set(zip(codes.tolist(), numbers.tolist(), strict=True))):
        rows = np.flatnonzero((codes == code) & (numbers == queue_id))
        yield QueueRun(topics.values[code], queue_id, units["msg_base_offset"][rows].astype(np.int64), units[rows])


def _keys(found: RowKeys, places: Ints, times: Ints) -> IndexKeys:
    """Return keys with the physical offset and the store time of their record, in place of its row."""
    return IndexKeys(places[found.rows], found.key_hashes.astype(np.int64), times[found.rows])


def _message(records: Records, row: int) -> Message:
    """Return one row as ``formats`` decodes it."""
    message = decode_record(records.data.data, int(records.file_offsets[row]))
    assert isinstance(message, Message), f"the columns hold only whole messages, not {message}"
    return message


def _commits(records: Records) -> list[Half]:
    """Return the committed records among some, each with the half message that it names."""
    rows = np.flatnonzero(records.column("sys_flag") & TRANSACTION_MASK == int(TransactionType.COMMIT))
    places = records.column("physical_offset")[rows].tolist()
    return [*map(Half, places, records.column("prepared_transaction_offset")[rows].tolist())]


def _bridges(records: Records) -> Iterator[RecordFlaw]:
    """Yield a flaw for each bridge, so that a check names the places where a repair covered damage."""
    for row in np.flatnonzero(are_bridges(records)).tolist():
        place, size = records.column("physical_offset")[row], records.column("total_size")[row]
        flaw = Flaw("CL-BRIDGE", "a repair has covered damage here with a placeholder record")
        yield RecordFlaw(int(place), int(size), flaw)


def _check_texts(records: Records, properties: Properties) -> Iterator[RecordFlaw]:
    """Yield the records whose properties are not UTF-8. A broker writes them from strings, so these are damaged."""
    for row in _rows_without_text(records, properties):
        begin, size = int(records.properties_offsets[row]), int(records.properties_lengths[row])
        place, total = records.column("physical_offset")[row], records.column("total_size")[row]
        flaw = Flaw("CL-PROPS", "the properties are not UTF-8 text", begin - int(records.file_offsets[row]), size)
        yield RecordFlaw(int(place), int(total), flaw)


def _check_ends(records: Records) -> Iterator[RecordFlaw]:
    """Yield the records whose properties end in a zero byte.

    No checksum covers properties, and a power cut leaves zeros where the end of a record was not written yet.
    """
    ends = records.properties_offsets + records.properties_lengths
    rows = np.flatnonzero((records.properties_lengths > 0) & (records.data[np.maximum(ends - 1, 0)] == 0))
    for row in rows.tolist():
        begin, size = int(records.properties_offsets[row]), int(records.properties_lengths[row])
        text = records.data[begin : begin + size].tobytes()
        zeros = size - len(text.rstrip(b"\0"))
        place, total = records.column("physical_offset")[row], records.column("total_size")[row]
        at = begin + size - zeros - int(records.file_offsets[row])
        yield RecordFlaw(
            int(place), int(total), Flaw("CL-PROPS", f"the properties end in {zeros} zero bytes", at, zeros)
        )


def _rows_without_text(records: Records, properties: Properties) -> list[int]:
    """Return the rows whose properties are not UTF-8. The kernel flags them when it dispatches records."""
    dispatch = dispatch_of(records)
    if dispatch is not None:
        rows: list[int] = np.flatnonzero(dispatch.flags & NOT_TEXT).tolist()
        return rows
    # Nearly always all properties are text, which one look at the joined blocks proves.
    text = properties.text
    if not len(text) or text.max() < _FIRST_NOT_ASCII or _is_text(text.tobytes()):
        return []
    begins, sizes = records.properties_offsets.tolist(), records.properties_lengths.tolist()
    blocks = (records.data[begin : begin + size].tobytes() for begin, size in zip(begins, sizes, strict=True))
    return [row for row, block in enumerate(blocks) if not _is_text(block)]


_FIRST_NOT_ASCII = 0x80


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# The magic bytes of each codec. A zlib body begins with 0x78 because Java deflates with a window of 32 KiB.
_HEADS = {"zlib": (b"\x78",), "lz4": (b"\x04\x22\x4d\x18",), "zstd": (b"\x28\xb5\x2f\xfd",)}


def _check_bodies(records: Records, inflating: Inflating) -> Iterator[RecordFlaw]:
    """Yield the records whose compressed body does not begin like its codec, or with ``WHOLE`` does not inflate.

    With ``NONE`` no body is looked at.
    """
    if inflating is Inflating.NONE:
        return
    flags = records.column("sys_flag")
    for row in np.flatnonzero(flags & int(SysFlag.COMPRESSED)).tolist():
        begin = int(records.body_offsets[row])
        raw = records.data[begin : begin + int(records.body_lengths[row])].tobytes()
        flaw = _check_body(int(flags[row]), raw, inflating)
        if flaw is not None:
            place, size = records.column("physical_offset")[row], records.column("total_size")[row]
            yield RecordFlaw(int(place), int(size), flaw)


def _check_body(sys_flag: int, raw_body: bytes, inflating: Inflating) -> Flaw | None:
    """Return the flaw of a compressed body: it does not begin like its codec, or with ``WHOLE`` it does not inflate."""
    # The first bytes name the codec. They prove most damage without decompression, which takes most of the time.
    codec = body_codec(sys_flag) or ""
    if raw_body and not raw_body.startswith(_HEADS.get(codec, ())):
        text = f"the body is marked as compressed, but does not begin like {codec or 'compressed data'}"
        return Flaw("BD-INFLATE", text, 0, len(raw_body))
    found = inflate_body(sys_flag, raw_body) if inflating is Inflating.WHOLE else None
    return found if isinstance(found, Flaw) else None


def _have_odd_heads(records: Records) -> Mask:
    """Return which records ``check_head`` has a flaw for. It repeats those conditions on whole columns."""
    flags = records.column("sys_flag")
    found: Mask = flags & ~np.int32(KNOWN_SYS_FLAGS) != 0
    found |= (flags & COMPRESSION_MASK != 0) & (flags & int(SysFlag.COMPRESSED) == 0)
    for name in ("born_host_port", "store_host_port"):
        port = records.column(name)
        found |= (port < 1) | (port > MOST_PORT)
    times = records.column("reconsume_times")
    found |= (times < 0) | (times >= MOST_RECONSUME_TIMES)
    found |= (records.body_lengths == 0) & (records.column("body_crc") != 0)
    outside = flags & TRANSACTION_MASK == int(TransactionType.NONE)
    found |= outside & (records.column("prepared_transaction_offset") != 0)
    stored = records.column("store_timestamp")
    ahead = records.column("born_timestamp") - stored
    found |= ((ahead > MOST_AHEAD_MS) | (ahead < -MOST_BEHIND_MS)) & (stored > 0)
    return found


def check_head(message: Message) -> Iterator[RecordFlaw]:
    """Yield one flaw if the header has values that no broker writes: that of the first in ``iter_odd_fields``."""
    prefix = PREFIXES[message.sys_flag & HOST_BITS]
    for name, text in iter_odd_fields(message):
        field = prefix.field(name)
        yield RecordFlaw(message.physical_offset, message.total_size, Flaw("CL-HEAD", text, field.offset, field.size))
        return


def _host_runs(records: Records) -> list[HostRun]:
    """Return the runs of records with the same store host; those with IPv6 hosts form runs of their own."""
    six = records.column("sys_flag") & int(SysFlag.STORE_HOST_V6) != 0
    parts = (records.select(~six), records.select(six)) if six.any() else (records,)
    return [run for part in parts for run in _host_runs_of(part)]


def _host_runs_of(records: Records) -> Iterator[HostRun]:
    """Yield the runs of records whose hosts are of one address family."""
    if not len(records):
        return
    hosts = _store_addresses(records)
    ports = records.column("store_host_port")
    changes = (hosts[1:] != hosts[:-1]) | (ports[1:] != ports[:-1])
    firsts = np.append(0, np.flatnonzero(changes) + 1)
    counts = np.diff(np.append(firsts, len(records)))
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        message = _message(records, first)
        host = message.store_host_ip + layouts.INT.packer.pack(message.store_host_port)
        yield HostRun(host, message.physical_offset, message.total_size, count)


def _store_addresses(records: Records) -> npt.NDArray[np.void]:
    """Return the bytes of the store hosts' addresses, which are of one family; a whole prefix has 20 times as many."""
    flags = records.column("sys_flag")
    fields = {bits: layout.field("store_host_ip") for bits, layout in PREFIXES.items()}
    places = np.array([fields[bits].offset if bits in fields else 0 for bits in range(HOST_BITS + 1)])
    width = fields[int(flags[0]) & HOST_BITS].size
    found = gather(records.data, records.file_offsets + places[flags & HOST_BITS], width)
    return np.ascontiguousarray(found).view(f"V{width}" if width > layouts.INT.size else np.uint32).ravel()


def join_hosts(runs: Iterable[HostRun]) -> list[HostRun]:
    """Return runs with neighbours of the same host joined.

    Runs of IPv4 and IPv6 hosts come in any order relative to each other, so each family is joined by itself.
    """
    found: list[HostRun] = []
    last: dict[int, int] = {}
    for run in runs:
        at = last.get(len(run.host))
        if at is not None and found[at].host == run.host:
            found[at] = found[at]._replace(records=found[at].records + run.records)
        else:
            last[len(run.host)] = len(found)
            found.append(run)
    return found


def join_batches(batches: list[Batch]) -> Batch:
    """Return consecutive batches, at least one, as one; runs of one host that meet at a border become one."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        np.concatenate([batch.physical_offsets for batch in batches]),
        np.concatenate([batch.sizes for batch in batches]),
        np.concatenate([batch.store_timestamps for batch in batches]),
        [part for batch in batches for part in batch.entries],
        [run for batch in batches for run in batch.batch_runs],
        IndexKeys(*map(np.concatenate, zip(*(batch.keys for batch in batches), strict=True))),
        IndexKeys(*map(np.concatenate, zip(*(batch.tag_keys for batch in batches), strict=True))),
        [found for batch in batches for found in batch.bodies],
        [found for batch in batches for found in batch.commits],
        [found for batch in batches for found in batch.heads],
        join_hosts(run for batch in batches for run in batch.hosts),
    )


# A batch ends once it has at least this many records. To compare even a small one with queues and index takes several
# reads.
_RECORDS = 1 << 17


def iter_batches(file: ReadableFile, pieces: Iterable[Rows | Place], wanted: Wanted) -> Iterator[Batch | Place]:
    """Yield the pieces of a segment in order: records in batches, everything else as places.

    A record whose only flaw is its store time comes as a place, and afterwards in a batch: it is due its entries. A
    record with another flaw that leaves it readable (``Place.damaged``) comes as a place only.
    """
    waiting: list[Batch] = []
    records = 0
    for found in pieces:
        place = None if isinstance(found, Rows) else found
        if isinstance(found, Rows):
            waiting.append(batch_of(found.records, wanted))
            records += len(found.records)
            del found  # frees the columns, so that the next read can use their memory
            if records < _RECORDS:
                continue
        elif _is_untimed(found):
            yield found
            waiting.append(batch_at(file, found.file_offset, found.length, wanted))
            continue
        if waiting:
            yield join_batches(waiting)
            waiting, records = [], 0
        if place is not None:
            yield place
    if waiting:
        yield join_batches(waiting)


def _is_untimed(place: Place) -> bool:
    """Return whether the store time is the only flaw of a record."""
    return isinstance(place.what, Flaw) and place.what.code == "CL-TIME" and place.damaged is not None


def batch_at(file: ReadableFile, file_offset: int, length: int, wanted: Wanted) -> Batch:
    """Return the batch of a single record whose structure is known to be whole."""
    data = file.pread_exactly(length, file_offset)
    records, declined = decode_records(data, np.zeros(1, np.int64))
    assert declined is None, f"the walk calls a message what columns decline: {declined}"
    return batch_of(records, wanted)
