"""Checks RocksDB databases: whether they open, whether their rows parse, and the queue rows against the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rmqtool.audit.bounds import Bounds, RowRange, iter_bounds_apart, read_all_bounds
from rmqtool.checks.case import Case
from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.dispatch import tags_code
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.layouts import RocksDBOffsetValue
from rmqtool.formats.property_names import INNER_MULTI_DISPATCH
from rmqtool.formats.rocksdb_rows import QueueRowKey
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.log.end import read_record
from rmqtool.store.listing import QueueId
from rmqtool.store.rocksdb import (
    Database,
    find_unread_log,
    has_database_queues,
    iter_queue_rows,
    open_database,
    read_bounds,
)

if TYPE_CHECKING:
    from rmqtool.audit.reports import Queue, Sequence

# Findings of one column family, and of one queue, that are reported.
_NAMED = 100
# The log has all content of the queue rows, so a repair writes them again.
_PLAN = "rmqtool repair {store}"
# The consequence of a wrong row in a store that has its queues in files, too.
_IN_FILES = "consumers read the queue in files; a broker that reads RocksDB does not serve these messages"
_QUEUE_VALUE = layouts.ROCKSDB_QUEUE_VALUE
_CHECKPOINT_VALUE = layouts.LONG
# 5.4's rows about itself: plain names with one number each.
_BOOKKEEPING = (b"last", b"sys_", b"timeline")


def check_databases(case: Case, sequences: dict[Queue, Sequence] | None) -> Iterator[Finding]:
    """Yield the findings of the databases; ``sequences`` has the queue offsets in the log, if it was read."""
    for directory in case.store.listing.databases():
        if not case.store.listing.has_rows(directory):
            continue
        try:
            with open_database(case.store, directory) as database:
                yield from _check_database(case, directory, database, sequences)
            unread = None if case.live else find_unread_log(case.store, directory)
            if unread is not None:
                yield case.unread(unread)
        except OptionalMissing as error:
            case.missing = error
        except ReadFailed as error:
            yield case.unread(error)


def _check_database(
    case: Case, directory: str, database: Database, sequences: dict[Queue, Sequence] | None
) -> Iterator[Finding]:
    if directory == paths.CONSUME_QUEUE:
        yield from _check_queue_rows(case, database, sequences)
        yield from _check_bounds(case, database)
        return
    for family in database.families:
        check = _CHECKS.get((directory, family), _check_json if directory.startswith(paths.CONFIG) else None)
        if check is None:
            continue
        bad = 0
        for key, value in database.iter_rows(family):
            text = check(case, key, value)
            if text is not None:
                bad += 1
                if bad <= _NAMED:
                    yield new_finding("RX-ROW", f"{family}: {text}", Place(directory), key=key.hex())


def read_fillers(case: Case) -> set[tuple[QueueId, int]]:
    """Return the places in queues in RocksDB whose messages were left out on purpose."""
    found: set[tuple[QueueId, int]] = set()
    if has_database_queues(case.store):
        with suppress(OptionalMissing, ReadFailed), open_database(case.store, paths.CONSUME_QUEUE) as database:
            for queue in read_bounds(database):
                rows = iter_queue_rows(database, queue)
                found.update((queue, row.queue_offset) for row in rows if row.value.size == FILLER_SIZE)
    return found


@dataclass
class _Rows:
    """The rows of one queue so far; ``right`` are those without a fault, ``bounds`` those of the queue."""

    queue: Queue
    first: int
    last: int
    bounds: Bounds
    right: RowRange = field(default_factory=RowRange)
    wrong: int = 0


def _check_queue_rows(case: Case, database: Database, sequences: dict[Queue, Sequence] | None) -> Iterator[Finding]:
    """Compare the rows of all queues with the log, and the bounds with the rows."""
    current: _Rows | None = None
    seen: set[Queue] = set()
    bounds = read_all_bounds(database)
    for key, value in database.iter_rows("default"):
        decoded = rocksdb_rows.decode_queue_key(key)
        if isinstance(decoded, Flaw) or len(value) != _QUEUE_VALUE.size:
            text = decoded.message if isinstance(decoded, Flaw) else f"a value of {len(value)} bytes"
            yield _odd_row(text, key)
            continue
        queue = decoded.topic, decoded.queue_id
        if current is None or current.queue != queue:
            yield from _end_of_queue(case, current, sequences)
            seen.add(queue)
            current = _Rows(
                queue, decoded.queue_offset, decoded.queue_offset - 1, bounds.get(QueueId(*queue), Bounds())
            )
            yield from _begin_of_queue(case, current, sequences)
        if decoded.queue_offset != current.last + 1 and current.wrong < _NAMED:
            current.wrong += 1
            gap = counted(decoded.queue_offset - current.last - 1, "row is", "rows are")
            text = f"{gap} missing, from queue offset {current.last + 1} on"
            yield _queue_finding(case, "CQ-MISSING", text, queue, current.last + 1)
        current.last = decoded.queue_offset
        row = _QUEUE_VALUE.decode(value)
        fault = _row_fault(case, decoded, row)
        if fault is None:
            in_log = row.physical_offset >= case.log.min_offset and row.size != FILLER_SIZE
            current.right.add(decoded.queue_offset, row.physical_offset, in_log=in_log)
        elif current.wrong < _NAMED:
            current.wrong += 1
            yield _queue_finding(case, "CQ-WRONG", fault, queue, decoded.queue_offset)
    yield from _end_of_queue(case, current, sequences)
    case.row_queues = frozenset(QueueId(*queue) for queue in seen)
    for queue, sequence in (sequences or {}).items():
        if case.store.has_file_queues and case.is_deleted(queue[0]):
            continue  # the queues in files say so
        if queue not in seen and not _is_begun_late(case, bounds.get(QueueId(*queue), Bounds()), sequence):
            text = f"{counted(sequence.records, 'message has', 'messages have')} no row"
            yield _queue_finding(case, "CQ-MISSING", text, queue, sequence.first)


def _queue_finding(
    case: Case, code: str, text: str, queue: Queue, queue_offset: int, severity: Severity | None = None
) -> Finding:
    """Return a finding about a row. If the queue is in files, too, consumers read those."""
    place = Place(paths.CONSUME_QUEUE, None, None, *queue)
    if not case.store.has_file_queues:
        return new_finding(code, text, place, severity=severity, queueOffset=queue_offset)
    severity = Severity.NOTICE if severity is Severity.NOTICE else Severity.WARNING
    return new_finding(code, text, place, severity=severity, consequence=_IN_FILES, queueOffset=queue_offset)


def _odd_row(text: str, key: bytes) -> Finding:
    return replace(new_finding("RX-ROW", text, Place(paths.CONSUME_QUEUE), key=key.hex()), fix=_PLAN)


def _is_begun_late(case: Case, bounds: Bounds, sequence: Sequence) -> bool:
    """Return whether a broker began the queue in RocksDB after its messages: before, it was in files alone."""
    return case.store.has_file_queues and bounds.min is not None and bounds.min.queue_offset > sequence.last


def _begin_of_queue(case: Case, rows: _Rows, sequences: dict[Queue, Sequence] | None) -> Iterator[Finding]:
    """Compare the first row of a queue with the first message of the queue in the log."""
    sequence = None if sequences is None else sequences.get(rows.queue)
    least = rows.bounds.min
    is_begun = case.store.has_file_queues and least is not None and least.queue_offset >= rows.first
    if sequence is None or case.live or sequence.first >= rows.first or is_begun:
        return
    rows.wrong += 1
    some = counted(rows.first - sequence.first, "row is", "rows are")
    text = f"{some} missing, from queue offset {sequence.first} on"
    severity = Severity.NOTICE if case.store.has_file_queues else None
    yield _queue_finding(case, "CQ-MISSING", text, rows.queue, sequence.first, severity)


def _end_of_queue(case: Case, rows: _Rows | None, sequences: dict[Queue, Sequence] | None) -> Iterator[Finding]:
    """Compare the last row of a queue with the last message of the queue in the log, and the bounds with the rows."""
    if rows is None or case.live:
        return
    sequence = None if sequences is None else sequences.get(rows.queue)
    if sequence is not None and sequence.last > rows.last:
        some = counted(sequence.last - rows.last, "message has", "messages have")
        text = f"{some} no row, from queue offset {rows.last + 1} on"
        severity = Severity.WARNING if case.abort else None
        yield _queue_finding(case, "CQ-MISSING", text, rows.queue, rows.last + 1, severity)
    for bound, found, due in iter_bounds_apart(rows.right, rows.bounds):
        if found is not None and sequence is not None and due.queue_offset < found.queue_offset == sequence.last:
            continue  # the bound is that of the log; the rows up to it are missing
        yield _bound_finding(case, rows.queue, bound, found, due)


def _bound_finding(
    case: Case, queue: Queue, bound: str, found: RocksDBOffsetValue | None, due: RocksDBOffsetValue
) -> Finding:
    """Return the finding of a bound that differs from the rows of its queue."""
    if found is None:
        text = f"the rows end at {due.queue_offset}, but there is no max bound: a broker takes the queue for empty"
    elif found.queue_offset == due.queue_offset:
        text = f"the max bound points to {found.physical_offset}, its row to {due.physical_offset}"
        return _queue_finding(case, "CQ-WRONG", text, queue, due.queue_offset, Severity.NOTICE)
    elif bound == "min":
        hidden = counted(found.queue_offset - due.queue_offset, "message", "messages")
        text = f"the min bound is {found.queue_offset}, but the first row is {due.queue_offset}: {hidden} not served"
    elif found.queue_offset < due.queue_offset:
        hidden = counted(due.queue_offset - found.queue_offset, "message", "messages")
        text = f"the max bound is {found.queue_offset}, but the last row is {due.queue_offset}: {hidden} not served"
    else:
        text = f"the max bound is {found.queue_offset}, but the last row is {due.queue_offset}"
    return _queue_finding(case, "CQ-WRONG", text, queue, due.queue_offset)


def _row_fault(case: Case, key: QueueRowKey, value: layouts.RocksDBQueueValue) -> str | None:
    """Return the fault of a queue row whose message should be in the log."""
    place = value.physical_offset
    if place < case.log.min_offset or case.explains(place) is not None or value.size == FILLER_SIZE:
        return None
    if place >= case.end.physical_offset:
        return None if case.live else f"row {key.queue_offset} points to {place}, past the end of the log"
    record = read_record(case.log, place)
    if record is None:
        return f"row {key.queue_offset} points to {place}, where no record begins"
    said = (record.topic, record.queue_id, record.queue_offset)
    if said != tuple(key) and INNER_MULTI_DISPATCH not in record.properties:
        return f"row {key.queue_offset} points to {place}, the record of {said[0]}/{said[1]} @ {said[2]}"
    if record.total_size != value.size:
        return f"row {key.queue_offset} says {value.size} bytes, its record has {record.total_size}"
    if record.store_timestamp != value.store_time:
        return f"row {key.queue_offset} says store time {value.store_time}, its record {record.store_timestamp}"
    code = tags_code(record, case.store.dispatch_rules.delays)
    if value.tags_code != code and record.topic != SCHEDULE_TOPIC:
        return f"row {key.queue_offset} has tags code {value.tags_code}, the message has {code}"
    return None


def _check_bounds(case: Case, database: Database) -> Iterator[Finding]:
    for key, value in database.iter_rows("offset"):
        decoded = rocksdb_rows.decode_bound_key(key)
        bound = rocksdb_rows.decode_bound_value(value)
        if isinstance(decoded, Flaw) or (bound is None and len(value) != _CHECKPOINT_VALUE.size):
            text = decoded.message if isinstance(decoded, Flaw) else f"a bound of {len(value)} bytes"
            yield _odd_row(text, key)
            continue
        place = _CHECKPOINT_VALUE.decode(value).value if bound is None else bound.physical_offset
        if place > case.end.physical_offset and not case.live:
            text = f"the {decoded.bound} bound points to {place}, but the log ends at {case.end.physical_offset}"
            place_of = Place(paths.CONSUME_QUEUE, None, None, decoded.topic, decoded.queue_id)
            yield new_finding("CQ-AHEAD", text, place_of)


def _check_json(_case: Case, key: bytes, value: bytes) -> str | None:
    """Return the fault of a row whose value should be JSON, a version, or one number."""
    if len(value) in (layouts.LONG.size, layouts.ROCKSDB_DATA_VERSION.size):
        return None
    for text in (value, value[1:]):
        try:
            json.loads(text)
        except ValueError:
            continue
        return None
    return f"the value of {decode_text(key[:64])!r} is not JSON"


def _check_config_key(case: Case, key: bytes, value: bytes) -> str | None:
    decoded = rocksdb_rows.decode_config_key(key)
    return decoded.message if isinstance(decoded, Flaw) else _check_json(case, key, value)


def _check_pop_row(case: Case, key: bytes, value: bytes) -> str | None:
    decoded = rocksdb_rows.decode_pop_key(key)
    return decoded.message if isinstance(decoded, Flaw) else _check_json(case, key, value)


def _check_index_row(case: Case, key: bytes, _value: bytes) -> str | None:
    if key.startswith(_BOOKKEEPING):
        return None
    decoded = rocksdb_rows.decode_index_key(key)
    if isinstance(decoded, Flaw):
        return decoded.message
    return _fault_at(case, decoded.physical_offset, None)


def _check_timer_row(case: Case, key: bytes, value: bytes) -> str | None:
    if key.startswith(_BOOKKEEPING):
        return None
    decoded = rocksdb_rows.decode_timer_key(key)
    layout = layouts.ROCKSDB_TIMER_VALUE
    if isinstance(decoded, Flaw) or len(value) != layout.size:
        return decoded.message if isinstance(decoded, Flaw) else f"a timer of {len(value)} bytes"
    found = layout.decode(value)
    return _fault_at(case, found.physical_offset, found.size)


def _check_trans_row(case: Case, key: bytes, value: bytes) -> str | None:
    if key.startswith(_BOOKKEEPING):
        return None
    decoded = rocksdb_rows.decode_trans_key(key)
    layout = layouts.ROCKSDB_TRANS_VALUE
    if isinstance(decoded, Flaw) or len(value) != layout.size:
        return decoded.message if isinstance(decoded, Flaw) else f"a transaction of {len(value)} bytes"
    return _fault_at(case, decoded.physical_offset, layout.decode(value).size)


def _fault_at(case: Case, physical_offset: int, size: int | None) -> str | None:
    """Return the fault of a row that points to a record, with ``size`` if the row has it."""
    inside = case.log.min_offset <= physical_offset < case.end.physical_offset
    if not inside or case.explains(physical_offset) is not None:
        return None
    record = read_record(case.log, physical_offset)
    if record is None:
        return f"the row points to {physical_offset}, where no record begins"
    if size is not None and record.total_size != size:
        return f"the row says {size} bytes at {physical_offset}, the record has {record.total_size}"
    return None


_CHECKS: dict[tuple[str, str], Callable[[Case, bytes, bytes], str | None]] = {
    (f"{paths.CONFIG}/rdb", "default"): _check_config_key,
    (paths.KV_STORE, "popState"): _check_pop_row,
    (paths.ROCKSDB_STORE, "default"): _check_index_row,
    (paths.ROCKSDB_STORE, "timer"): _check_timer_row,
    (paths.ROCKSDB_STORE, "trans"): _check_trans_row,
}
