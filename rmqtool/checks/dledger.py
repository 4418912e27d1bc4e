"""Checks a DLedger log: the heads of its entries, its index, and the state files of the node."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.checks.case import Case
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.formats import control_texts, layouts
from rmqtool.formats.dledger import INDEX_UNIT_SIZE
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import DLedgerEntryHead
from rmqtool.formats.paths import Copy, FileKind
from rmqtool.log.walk import walk_dledger

# Findings that are reported.
_NAMED = 100
# Missing until the node votes for the first time.
_NO_LEADER = "voteLeader"


def check_dledger(case: Case) -> Iterator[Finding]:
    """Yield the findings of a DLedger log, except for its records."""
    for file in case.files(FileKind.DLEDGER_STATE):
        data = case.store.read_file(file.path, 1 << 16)
        if data is None or file.what.copy is Copy.TMP:
            continue
        decoded = control_texts.decode_dledger_state(file.what.name or "", data)
        if isinstance(decoded, Flaw):
            yield new_finding(decoded.code, decoded.message, Place(file.path, decoded.at, decoded.length))
            continue
        keys = control_texts.DLEDGER_KEYS[file.what.name or ""]
        lacking = [key for key in keys if key not in decoded and key != _NO_LEADER]
        if lacking and not case.live:
            yield new_finding("DL-STATE", f"{' and '.join(lacking)} is missing", Place(file.path, 0, len(data)))
    if case.store.is_dledger:
        yield from _check_entries(case)


def _check_entries(case: Case) -> Iterator[Finding]:
    index = case.store.listing.segments(case.files(FileKind.DLEDGER_INDEX))
    before: DLedgerEntryHead | None = None
    named = 0
    for segment in case.log:
        for entry in walk_dledger(case.log.open(segment), segment.base_offset):
            head = entry.head
            if not isinstance(head, DLedgerEntryHead) or named > _NAMED:
                continue
            place = Place(segment.path, entry.file_offset, layouts.DLEDGER_ENTRY_HEAD.size)
            for text in _faults(head, before, segment.base_offset + entry.file_offset):
                named += 1
                yield new_finding("DL-INDEX", text, place)
            unit_at = head.entry_index * INDEX_UNIT_SIZE
            data = index.read(unit_at, INDEX_UNIT_SIZE)
            if len(data) == INDEX_UNIT_SIZE and data.strip(b"\0"):
                unit = layouts.DLEDGER_INDEX_UNIT.decode(data)
                told = (unit.pos, unit.size, unit.entry_index, unit.term)
                if told != (head.pos, head.size, head.entry_index, head.term):
                    named += 1
                    found = index.find(unit_at)
                    file = found.path if found is not None else None
                    at = unit_at - (found.base_offset if found is not None else 0)
                    text = f"the index points to {unit.pos} ({unit.size} bytes) for entry {head.entry_index}"
                    yield new_finding("DL-INDEX", text, Place(file, at, INDEX_UNIT_SIZE))
            elif not case.live:
                named += 1
                yield new_finding("DL-INDEX", f"entry {head.entry_index} is not in the index", place)
            before = head


def _faults(head: DLedgerEntryHead, before: DLedgerEntryHead | None, position: int) -> Iterator[str]:
    if head.pos != position:
        yield f"entry {head.entry_index} is at {position}, but names {head.pos} as its position"
    if before is not None and head.entry_index != before.entry_index + 1:
        yield f"entry {head.entry_index} follows entry {before.entry_index}"
    if before is not None and head.term < before.term:
        yield f"term {head.term} follows term {before.term}"
