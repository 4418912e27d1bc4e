"""Batches: whole, right records as columns, and what each of them is due in queues and index.

A batch says what a broker makes of its records when it dispatches them; what stands in the queues and in the index is
compared with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.formats import index, layouts
from rmqtool.formats.codes import COMPRESSION_MASK, SysFlag, TransactionType, transaction_type
from rmqtool.formats.commit_log import PREFIXES, Message
from rmqtool.formats.compression import inflate_body
from rmqtool.formats.dispatch import (
    DispatchRules,
    QueueEntry,
    has_queue_unit,
    iter_index_texts,
    queue_entries,
    tags_code,
)
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import BatchConsumeQueueUnit

Ints = npt.NDArray[np.int64]
Units = npt.NDArray[np.void]

_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)

UNIT = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
BATCH_UNIT = np.dtype(layouts.BATCH_CONSUME_QUEUE_UNIT.dtype())


class Inflating(IntEnum):
    """How closely compressed bodies are looked at: not at all, their first bytes, or whole."""

    NONE = 0
    HEADS = 1
    WHOLE = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a batch is to say of its records. Topics with batch queues get their units there."""

    rules: DispatchRules
    batch_topics: frozenset[str] = frozenset()
    inflating: Inflating = Inflating.NONE
    keys: bool = True


class QueueRun(NamedTuple):
    """Units that one queue is due, in the order of the log, and the queue offsets that the records claim."""

    topic: str
    queue_id: int
    queue_offsets: Ints
    units: Units


class IndexKeys(NamedTuple):
    """Entries that an index is due: the place and the store time of a record, and the hash of one of its keys."""

    physical_offsets: Ints
    key_hashes: Ints
    store_timestamps: Ints

    def before(self, end: int) -> IndexKeys:
        """Return those of records before ``end`` of the log."""
        rows = self.physical_offsets < end
        return IndexKeys(*(column[rows] for column in self))


class RecordFlaw(NamedTuple):
    """A flaw that leaves a record whole: it says what it says."""

    physical_offset: int
    total_size: int
    flaw: Flaw


class HostRun(NamedTuple):
    """Records one behind the other that the same host stored; ``length`` is that of the first."""

    host: bytes
    physical_offset: int
    length: int
    records: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that stand in the log one behind the other, at most blanks and damage between two batches.

    ``runs`` are the units due in simple queues, ``batch_runs`` those due in batch queues. ``bodies`` names records
    whose body does not inflate, ``commits`` committed records with the place of the half message they name,
    ``heads`` records with a header that no broker writes, ``hosts`` who stored them, where nothing was left out.
    """

    physical_offsets: Ints
    sizes: Ints
    store_timestamps: Ints
    runs: list[QueueRun]
    batch_runs: list[QueueRun]
    keys: IndexKeys
    tag_keys: IndexKeys
    bodies: list[RecordFlaw]
    commits: list[tuple[int, int]]
    heads: list[RecordFlaw]
    hosts: list[HostRun]

    def before(self, end: int) -> Batch:
        """Return the part of the batch that lies before ``end`` of the log."""
        if self.physical_offsets[-1] < end:
            return self
        rows = self.physical_offsets < end
        return Batch(
            self.physical_offsets[rows],
            self.sizes[rows],
            self.store_timestamps[rows],
            _runs_before(self.runs, end),
            _runs_before(self.batch_runs, end),
            self.keys.before(end),
            self.tag_keys.before(end),
            [found for found in self.bodies if found.physical_offset < end],
            [(place, half) for place, half in self.commits if place < end],
            [found for found in self.heads if found.physical_offset < end],
            [],
        )


def _runs_before(runs: list[QueueRun], end: int) -> list[QueueRun]:
    kept = (run.units["physical_offset"] < end for run in runs)
    cut = (
        run._replace(queue_offsets=run.queue_offsets[rows], units=run.units[rows])
        for run, rows in zip(runs, kept, strict=True)
    )
    return [run for run in cut if len(run.units)]


def batch_of(messages: list[Message], wanted: Wanted) -> Batch:
    """Return the batch of ``messages``, one by one: for what bulk does not take."""
    entries: dict[tuple[str, int], list[QueueEntry]] = {}
    batches: dict[tuple[str, int], list[BatchConsumeQueueUnit]] = {}
    keys: list[tuple[int, int, int]] = []
    tag_keys: list[tuple[int, int, int]] = []
    for message in messages:
        if message.topic in wanted.batch_topics or message.sys_flag & SysFlag.INNER_BATCH:
            if has_queue_unit(message.sys_flag):
                batches.setdefault((message.topic, message.queue_id), []).append(batch_unit(message, wanted.rules))
        else:
            for entry in queue_entries(message, wanted.rules):
                entries.setdefault((entry.topic, entry.queue_id), []).append(entry)
        if wanted.keys:
            _add_keys(keys, tag_keys, message, wanted.rules)
    return Batch(
        _column(message.physical_offset for message in messages),
        _column(message.total_size for message in messages),
        _column(message.store_timestamp for message in messages),
        [_run(queue, found) for queue, found in entries.items()],
        [_batch_run(queue, found) for queue, found in batches.items()],
        _keys(keys),
        _keys(tag_keys),
        [found for message in messages if (found := _check_body(message, wanted.inflating)) is not None],
        [
            (message.physical_offset, message.prepared_transaction_offset)
            for message in messages
            if transaction_type(message.sys_flag) is TransactionType.COMMIT
        ],
        [found for message in messages if (found := check_head(message)) is not None],
        join_hosts(_host_of(message) for message in messages),
    )


def batch_unit(message: Message, rules: DispatchRules) -> BatchConsumeQueueUnit:
    """Return the unit of a message in a batch queue."""
    properties = message.properties
    base = _number(properties.get("INNER_BASE"), message.queue_offset)
    count = _number(properties.get("INNER_NUM"), 1)
    code = tags_code(message, rules.delays)
    return BatchConsumeQueueUnit(
        message.physical_offset, message.total_size, code, message.store_timestamp, base, count, -1, 0
    )


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() and len(text) < 19 else default


def _add_keys(
    keys: list[tuple[int, int, int]], tag_keys: list[tuple[int, int, int]], message: Message, rules: DispatchRules
) -> None:
    place, time = message.physical_offset, message.store_timestamp
    plain = DispatchRules(rules.delays)
    keys += [(place, index.key_hash(text), time) for text in iter_index_texts(message, plain)]
    if message.tags and transaction_type(message.sys_flag) is not TransactionType.ROLLBACK:
        tag_keys.append((place, index.key_hash(index.tag_key_text(message.topic, message.tags)), time))


def _column(numbers: Iterable[int]) -> Ints:
    return np.fromiter(numbers, np.int64)


def _keys(rows: list[tuple[int, int, int]]) -> IndexKeys:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return IndexKeys(columns[:, 0], columns[:, 1], columns[:, 2])


def _run(queue: tuple[str, int], entries: list[QueueEntry]) -> QueueRun:
    return QueueRun(*queue, _column(e.queue_offset for e in entries), np.array([tuple(e.unit) for e in entries], UNIT))


def _batch_run(queue: tuple[str, int], units: list[BatchConsumeQueueUnit]) -> QueueRun:
    rows: list[tuple[Any, ...]] = [tuple(unit) for unit in units]
    return QueueRun(*queue, _column(unit.msg_base_offset for unit in units), np.array(rows, BATCH_UNIT))


_HEADS = {"zlib": (b"\x78",), "lz4": (b"\x04\x22\x4d\x18",), "zstd": (b"\x28\xb5\x2f\xfd",)}


def _host_of(message: Message) -> HostRun:
    host = message.store_host_ip + layouts.INT.packer.pack(message.store_host_port)
    return HostRun(host, message.physical_offset, message.total_size, 1)


def join_hosts(runs: Iterable[HostRun]) -> list[HostRun]:
    """Return runs with neighbours of one host joined; hosts of IPv4 and of IPv6 each have a row of their own."""
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


# What a header says beyond this was not put there by a broker.
MOST_RECONSUME_TIMES = 1 << 16
MOST_AHEAD_MS = 600_000
MOST_BEHIND_MS = 10 * 365 * 86_400_000
KNOWN_SYS_FLAGS = 0xFF | COMPRESSION_MASK


def check_head(message: Message) -> RecordFlaw | None:
    """Return the flaw of a record whose header holds what no broker writes."""
    prefix = PREFIXES[message.sys_flag & _HOST_BITS]
    for name, text in _odd_fields(message):
        field = prefix.field(name)
        return RecordFlaw(message.physical_offset, message.total_size, Flaw("CL-HEAD", text, field.offset, field.size))
    return None


def _odd_fields(message: Message) -> Iterator[tuple[str, str]]:
    if message.sys_flag & 0xFFFFFFFF & ~KNOWN_SYS_FLAGS:
        yield "sys_flag", f"the system flag {message.sys_flag & 0xFFFFFFFF:#x} has bits without a meaning"
    for name in ("born_host_port", "store_host_port"):
        port = getattr(message, name)
        if not 0 <= port <= 0xFFFF:
            yield name, f"{port} is no port"
    if not 0 <= message.reconsume_times < MOST_RECONSUME_TIMES:
        yield "reconsume_times", f"it was consumed {message.reconsume_times} times again"
    if message.prepared_transaction_offset and transaction_type(message.sys_flag) is TransactionType.NONE:
        offset = message.prepared_transaction_offset
        yield "prepared_transaction_offset", f"half message {offset} is named by a record outside of transactions"
    ahead = message.born_timestamp - message.store_timestamp
    if message.store_timestamp > 0 and not -MOST_BEHIND_MS <= ahead <= MOST_AHEAD_MS:
        yield "born_timestamp", f"it was born at {message.born_timestamp} and stored at {message.store_timestamp}"


def _check_body(message: Message, inflating: Inflating) -> RecordFlaw | None:
    if not message.sys_flag & SysFlag.COMPRESSED or inflating is Inflating.NONE:
        return None
    flaw = check_body_head(message.sys_flag, message.raw_body)
    if flaw is None and inflating is Inflating.WHOLE:
        found = inflate_body(message.sys_flag, message.raw_body)
        flaw = found if isinstance(found, Flaw) else None
    return None if flaw is None else RecordFlaw(message.physical_offset, message.total_size, flaw)


def check_body_head(sys_flag: int, raw_body: bytes) -> Flaw | None:
    """Return the flaw of a compressed body whose first bytes are not those of its codec."""
    from rmqtool.formats.compression import body_codec

    codec = body_codec(sys_flag) or ""
    if not raw_body or raw_body.startswith(_HEADS.get(codec, ())):
        return None
    return Flaw(
        "BD-INFLATE",
        f"the body is marked as compressed, and does not begin like {codec or 'compressed data'}",
        0,
        len(raw_body),
    )
