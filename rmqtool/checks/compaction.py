"""Checks compacted topics: their logs, and their queues against the logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from rmqtool.checks.case import Case
from rmqtool.files.filesystem import split
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.formats import consume_queue, layouts
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import FileKind
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.listing import FoundFile, QueueId

_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT
# Findings of one file that are reported.
_NAMED = 100


def check_compaction(case: Case) -> Iterator[Finding]:
    """Yield the findings of the compaction store; a file that is being written is left out."""
    logs = _by_queue(case, FileKind.COMPACTION_LOG)
    queues = _by_queue(case, FileKind.COMPACTION_QUEUE)
    return (_with_way_out(finding, logs) for finding in _iter_findings(case, logs, queues))


def _with_way_out(finding: Finding, logs: dict[QueueId, list[FoundFile]]) -> Finding:
    """Return a finding with the command that saves the messages of its compacted log."""
    files = logs.get(QueueId(finding.topic or "", finding.queue_id or 0))
    if not files:
        return finding
    directory = shlex.quote(split(files[0].path)[0])
    saved = f"rmqtool cat {{store}}/{directory} --jsonl > messages.jsonl"
    return replace(finding, fix=f"save its messages: {saved}; then restore the directory from a backup")


def _iter_findings(
    case: Case, logs: dict[QueueId, list[FoundFile]], queues: dict[QueueId, list[FoundFile]]
) -> Iterator[Finding]:
    for queue, files in logs.items():
        sizes: dict[int, int] = {}
        for file in files:
            yield from _check_log(case, queue, file, sizes)
        of_queue = queues.get(queue, [])
        for file in of_queue:
            yield from _check_queue(case, queue, file, sizes)
        if {file.what.base_offset for file in of_queue} == set() and sizes:
            text = "the compacted log has no queue file"
            yield new_finding("CM-WRONG", text, Place(files[0].path, None, None, *queue))


def _by_queue(case: Case, kind: FileKind) -> dict[QueueId, list[FoundFile]]:
    found: dict[QueueId, list[FoundFile]] = {}
    for file in case.files(kind):
        what = file.what
        if what.topic is not None and what.queue_id is not None and what.stage is None:
            found.setdefault(QueueId(what.topic, what.queue_id), []).append(file)
    return found


def _check_log(case: Case, queue: QueueId, file: FoundFile, sizes: dict[int, int]) -> Iterator[Finding]:
    """Yield the flaws of one file; add offset and size of each record to ``sizes``."""
    base = file.what.base_offset or 0
    named = 0
    with case.store.filesystem.open_read(file.path) as opened:
        for place in SegmentWalk(opened, base, compacted=True).places():
            if isinstance(place.what, Message):
                sizes[base + place.file_offset] = place.what.total_size
            elif isinstance(place.what, Flaw) and not case.live and named < _NAMED:
                named += 1
                text = f"{place.what.code}: {place.what.message}"
                yield new_finding("CM-WRONG", text, Place(file.path, place.file_offset, place.length, *queue))


def _check_queue(case: Case, queue: QueueId, file: FoundFile, sizes: dict[int, int]) -> Iterator[Finding]:
    named = 0
    with case.store.filesystem.open_read(file.path) as opened:
        data = opened.pread(file.size, 0)
    for number, unit in enumerate(_UNIT.iter_decode(data)):
        if not consume_queue.is_batch_written(unit):
            return
        if sizes.get(unit.physical_offset) != unit.size and not case.live and named < _NAMED:
            named += 1
            text = f"the entry points to {unit.physical_offset} ({unit.size} bytes), where no such record begins"
            yield new_finding("CM-WRONG", text, Place(file.path, number * _UNIT.size, _UNIT.size, *queue))
