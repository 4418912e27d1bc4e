"""Checks the broker's own topics: records of transactions and of pop consumption against the queues they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rmqtool.checks.case import Case, Depth
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.system_bodies import ROCKSDB_OP_BODY, decode_op_body, decode_pop_body
from rmqtool.formats.topics import HALF_TOPIC, OP_HALF_TOPIC, REVIVE_PREFIX
from rmqtool.log.end import read_record
from rmqtool.store.listing import QueueId
from rmqtool.store.queues import ConsumeQueueFiles

# Records of one queue that are read without --deep: the newest.
_NEWEST = 10_000
# Committed records without their half message that are reported one by one.
_FEW = 5
_WHOLE = "the committed messages are intact; only their half messages are gone"


def check_internal(case: Case) -> Iterator[Finding]:
    """Yield the contradictions in the broker's own topics."""
    for queue in case.queues:
        check = _check_of(queue.topic)
        if check is not None:
            for record in _records(case, queue):
                yield from check(case, record)


def _check_of(topic: str) -> Callable[[Case, Message], Iterator[Finding]] | None:
    if topic == OP_HALF_TOPIC:
        return _check_op
    return _check_pop if topic.startswith(REVIVE_PREFIX) else None


def _records(case: Case, queue: QueueId) -> Iterator[Message]:
    files = ConsumeQueueFiles(queue, case.queues[queue])
    first = 0 if case.depth is Depth.DEEP else files.max_offset - _NEWEST
    for _, unit in files.iter_units(first):
        if case.log.min_offset <= unit.physical_offset < case.end.physical_offset:
            record = read_record(case.log, unit.physical_offset)
            if record is not None and (record.topic, record.queue_id) == tuple(queue):
                yield record


def _place(case: Case, record: Message) -> Place:
    place = case.place(record.physical_offset, record.total_size)
    return place._replace(topic=record.topic, queue_id=record.queue_id)


def _max_offset(case: Case, topic: str, queue_id: int) -> int | None:
    segments = case.queues.get(QueueId(topic, queue_id))
    return None if segments is None else ConsumeQueueFiles(QueueId(topic, queue_id), segments).max_offset


def _check_op(case: Case, record: Message) -> Iterator[Finding]:
    """Compare an op record with the half queue that it refers to."""
    if record.raw_body == ROCKSDB_OP_BODY:
        return
    offsets = decode_op_body(record.raw_body)
    if isinstance(offsets, Flaw):
        yield new_finding(offsets.code, offsets.message, _place(case, record))
        return
    end = _max_offset(case, HALF_TOPIC, record.queue_id)
    beyond = [offset for offset in offsets if end is not None and offset >= end]
    if beyond and not case.live:
        text = f"the op record decides half message {beyond[0]}, the half queue ends at {end}"
        yield new_finding("TX-WRONG", text, _place(case, record))


def _check_pop(case: Case, record: Message) -> Iterator[Finding]:
    """Compare a check point or ack with the queue that it refers to."""
    tag = record.tags
    if tag not in list(PopTag):
        return
    decoded = decode_pop_body(PopTag(tag), record.raw_body)
    if isinstance(decoded, Flaw):
        yield new_finding("PO-WRONG", f"the {tag} does not parse: {decoded.message}", _place(case, record))
        return
    value: dict[str, Any] = decoded.value
    topic, queue_id, offset = value.get("t"), value.get("q"), value.get("so")
    if not isinstance(topic, str) or not isinstance(queue_id, int) or not isinstance(offset, int):
        yield new_finding("PO-WRONG", f"the {tag} does not name a topic, queue and offset", _place(case, record))
        return
    end = _max_offset(case, topic, queue_id)
    if end is not None and offset > end and not case.live:
        text = f"the {tag} begins at {topic}/{queue_id} @ {offset}, the queue ends at {end}"
        yield new_finding("PO-WRONG", text, _place(case, record))


def check_commits(case: Case, commits: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield committed records whose half message is not where they claim; ``commits`` has both physical offsets."""
    wrong = [commit for commit in commits if not _is_half(case, commit[1])]
    for physical_offset, prepared_offset in wrong if len(wrong) <= _FEW else ():
        text = f"the record commits a half message at {prepared_offset}, where no record begins"
        record = read_record(case.log, physical_offset)
        place = case.place(physical_offset, record.total_size if record is not None else None)
        yield new_finding("TX-WRONG", text, place, consequence=_WHOLE)
    if len(wrong) > _FEW:
        text = f"{len(wrong)} committed records name half messages that are not there, this one {wrong[0][1]}"
        yield new_finding("TX-WRONG", text, case.place(wrong[0][0]), consequence=_WHOLE, records=len(wrong))


def _is_half(case: Case, physical_offset: int) -> bool:
    """Return whether there is a half message at an offset, or may have been: the log there is removed or damaged."""
    if (physical_offset < case.log.min_offset and case.log.min_offset > 0) or case.explains(physical_offset):
        return True
    half = read_record(case.log, physical_offset)
    return half is not None and (
        half.topic == HALF_TOPIC or transaction_type(half.sys_flag) is TransactionType.PREPARED
    )
