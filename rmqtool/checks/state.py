"""Checks the state beside the messages: checkpoint, configuration, offsets of consumers and of delay levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from rmqtool.checks.case import Case
from rmqtool.findings import Finding, Place, Severity, find_code, new_finding
from rmqtool.formats import checkpoints, control_texts, layouts, paths
from rmqtool.formats.config_files import LARGEST_TEXT, decode_config, salvage_config
from rmqtool.formats.config_shapes import OWN_GROUPS
from rmqtool.formats.dispatch import has_queue_unit
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import StoreCheckpoint
from rmqtool.formats.paths import Copy, FileKind
from rmqtool.log.end import read_record
from rmqtool.look.absent_queues import find_absent_queues, find_dispatched, iter_absent_queues, iter_odd_offsets
from rmqtool.look.queue_bounds import iter_file_bounds, read_database_bounds
from rmqtool.store.config_files import loads
from rmqtool.store.index_files import read_header
from rmqtool.store.listing import QueueId
from rmqtool.store.queues import greatest_end, simple_queues

_LAYOUT = layouts.STORE_CHECKPOINT
_READS_MORE = "after a crash a broker reads more of the log than it needs"
# The advice for empty tables whose content is in no other file.
_OFFSETS_GONE = "restore it from a backup; these offsets are only in this file"
_GONE = {paths.CONSUMER_OFFSET: _OFFSETS_GONE, paths.LMQ_CONSUMER_OFFSET: _OFFSETS_GONE}


def check_checkpoint(case: Case) -> Iterator[Finding]:
    """Yield the contradictions of the checkpoint."""
    data = case.store.read_file(paths.CHECKPOINT, 1 << 20)
    if data is None:
        yield new_finding("CP-BAD", "there is no checkpoint", Place(paths.CHECKPOINT))
        return
    flaw = checkpoints.check_checkpoint(data)
    if flaw is not None:
        yield new_finding(flaw.code, flaw.message, Place(paths.CHECKPOINT, flaw.at, flaw.length))
    checkpoint = checkpoints.decode_checkpoint(data)
    if not case.live:  # a live store writes it again and again
        yield from _check_ahead(case, checkpoint)
    is_told = flaw is None and not case.abort and not case.live
    if is_told and case.store.has_file_queues:
        yield from _check_old(case, checkpoint)
    yield from _check_confirmed(case, checkpoint)


def _place_of(name: str) -> Place:
    field = _LAYOUT.field(name)
    return Place(paths.CHECKPOINT, field.offset, field.size)


def _check_ahead(case: Case, checkpoint: StoreCheckpoint) -> Iterator[Finding]:
    last = case.end.last
    if last is None:
        return
    for name in ("physic_msg_timestamp", "logics_msg_timestamp"):
        said = getattr(checkpoint, name)
        if said > max(last.store_timestamp, case.last_seen):
            name_of_it = _LAYOUT.field(name).upstream_name
            text = f"{name_of_it} is {said}, but the last message was stored at {last.store_timestamp}"
            yield new_finding("CP-AHEAD", text, _place_of(name))
    newest = max((end for _, end in _index_times(case)), default=None)
    if newest is not None and checkpoint.index_msg_timestamp > newest:
        text = f"indexMsgTimestamp is {checkpoint.index_msg_timestamp}, but the newest index file ends at {newest}"
        yield new_finding("CP-AHEAD", text, _place_of("index_msg_timestamp"))
    for name in ("master_flushed_offset", "confirm_phy_offset"):
        said = getattr(checkpoint, name)
        if said > case.end.physical_offset:
            text = f"{_LAYOUT.field(name).upstream_name} is {said}, but the log ends at {case.end.physical_offset}"
            yield new_finding("CP-AHEAD", text, _place_of(name))


def _check_old(case: Case, checkpoint: StoreCheckpoint) -> Iterator[Finding]:
    """Yield times that a clean stop does not leave: it writes the time of the last dispatched message."""
    last = case.end.last
    if last is not None and has_queue_unit(last.sys_flag):
        said, due = checkpoint.logics_msg_timestamp, last.store_timestamp
        if said < due:
            text = f"logicsMsgTimestamp is {said}; after a clean stop it is that of the last message, {due}"
            yield new_finding("CP-OLD", text, _place_of("logics_msg_timestamp"), consequence=_READS_MORE)
    full = [end for is_full, end in _index_times(case) if is_full]
    newest = max((end for _, end in _index_times(case)), default=0)
    if full and checkpoint.index_msg_timestamp not in full and checkpoint.index_msg_timestamp <= newest:
        text = f"indexMsgTimestamp is {checkpoint.index_msg_timestamp}, but no index file ends at that time"
        yield new_finding("CP-OLD", text, _place_of("index_msg_timestamp"), consequence=_READS_MORE)


def _check_confirmed(case: Case, checkpoint: StoreCheckpoint) -> Iterator[Finding]:
    """Yield a confirm offset where no record begins: a recovery sets it to the start of the last record."""
    said = checkpoint.confirm_phy_offset
    inside = case.log.min_offset < said < case.end.physical_offset
    if inside and case.explains(said) is None and read_record(case.log, said) is None:
        text = f"confirmPhyOffset is {said}, where no record begins"
        yield new_finding("CP-OLD", text, _place_of("confirm_phy_offset"), consequence=_READS_MORE)


def _index_times(case: Case) -> list[tuple[bool, int]]:
    """Return for each index file whether another follows, and its end time."""
    found = []
    files = case.files(FileKind.INDEX)
    for file in files:
        with case.store.filesystem.open_read(file.path) as opened:
            header = read_header(opened)
        if header is not None:
            found.append((file is not files[-1], header.end_timestamp))
    return found


def check_configs(case: Case) -> Iterator[Finding]:
    """Yield the findings about configuration files and their copies."""
    return (_with_cure(case, finding) for finding in _iter_configs(case))


def _iter_configs(case: Case) -> Iterator[Finding]:
    told = {finding.file for finding in case.configs.findings}
    yield from map(_with_registered, case.configs.findings)
    yield from _check_tables(case)
    read = {
        paths.TOPICS,
        paths.SUBSCRIPTION_GROUP,
        paths.CONSUMER_OFFSET,
        paths.LMQ_CONSUMER_OFFSET,
        paths.DELAY_OFFSET,
    }
    for file in case.files(FileKind.CONFIG, FileKind.COMPACTION_POSITION):
        name = file.what.name or paths.POSITION_CHECKPOINT
        if (name in read and file.what.copy is Copy.MAIN) or file.path in told:
            continue
        yield from _check_text(case, file.path, file.what.copy, partial(decode_config, name))
    others: dict[FileKind, Callable[[bytes], Any]] = {
        FileKind.EPOCH: control_texts.decode_epoch_file,
        FileKind.BROKER_IDENTITY: control_texts.decode_broker_identity,
    }
    for kind, decode in others.items():
        for file in case.files(kind):
            yield from _check_text(case, file.path, file.what.copy, decode)


def _with_registered(finding: Finding) -> Finding:
    """Return a finding of the readers with the texts that are registered for its code."""
    entry = find_code(finding.code)
    if entry is None or finding.fix is not None:
        return finding
    return replace(finding, consequence=entry.consequence, fix=entry.fix)


def _with_cure(case: Case, finding: Finding) -> Finding:
    """Return a finding with the next step that helps: a repair if content can be recovered, else what is lost."""
    repair, lost = find_code("CF-JSON"), find_code("CF-EMPTY")
    if finding.code not in ("CF-JSON", "CF-EMPTY") or finding.file is None or repair is None or lost is None:
        return finding
    what = paths.classify(finding.file, ())
    if what.kind is not FileKind.CONFIG or what.name is None:
        return replace(finding, fix=lost.fix) if finding.code == "CF-JSON" and finding.fix is not None else finding
    texts = [case.store.read_file(paths.config_path(what.name, copy), LARGEST_TEXT) for copy in (Copy.MAIN, Copy.BAK)]
    if any(text is not None and _is_readable(what.name, text) for text in texts) or _can_be_made(case, what.name):
        return replace(finding, fix=repair.fix)
    fix = _GONE.get(what.name, lost.fix)
    # a file that does not parse and has no copy is loaded as an empty table
    if finding.code == "CF-JSON" and None in texts:
        return replace(finding, consequence=lost.consequence, fix=fix)
    return replace(finding, fix=fix)


def _is_readable(name: str, text: bytes) -> bool:
    return loads(name, text) or salvage_config(name, text) is not None


def _can_be_made(case: Case, name: str) -> bool:
    """Return whether a table can be rebuilt from the rest of the store."""
    if case.store.listing.databases():
        return False
    if name == paths.TOPICS:
        return bool(case.queues or case.batch_queues)
    return name == paths.SUBSCRIPTION_GROUP and bool(case.configs.offsets)


def _check_tables(case: Case) -> Iterator[Finding]:
    """Yield tables that are empty or missing although other files refer to their content."""
    configs = case.configs
    groups = {group for group in configs.groups if group not in OWN_GROUPS}
    for name, table, is_empty, others in (
        (paths.TOPICS, b"topicConfigTable", not configs.topics, len(configs.offsets) or len(groups)),
        (paths.SUBSCRIPTION_GROUP, b"subscriptionGroupTable", not configs.groups, len(configs.offsets)),
        (paths.CONSUMER_OFFSET, b"offsetTable", not configs.offsets, len(groups)),
    ):
        path = paths.config_path(name)
        bad = any(finding.file == path for finding in configs.findings)
        if not is_empty or not others or bad or case.store.listing.databases():
            continue
        data = case.store.read_file(path, LARGEST_TEXT)
        text = "it is missing" if data is None else "it is empty"
        # A broker also writes a table without content: groups that never committed leave such a file.
        as_written = data is not None and table in data
        place = Place(path, None if data is None else 0, None if data is None else len(data))
        severity = Severity.NOTICE if as_written else None
        yield new_finding("CF-EMPTY", f"{text}, but other files show that it had content", place, severity=severity)


def _check_text(case: Case, path: str, copy: Copy, decode: Callable[[bytes], Any]) -> Iterator[Finding]:
    data = case.store.read_file(path, LARGEST_TEXT)
    if data is None or copy is Copy.TMP:
        return
    decoded = decode(data) if data else Flaw("CF-JSON", "it is empty")
    if isinstance(decoded, Flaw):
        severity = None if copy is Copy.MAIN else Severity.WARNING
        place = Place(path, decoded.at, decoded.length or None)
        yield new_finding(decoded.code, f"does not parse: {decoded.message}", place, severity=severity)


def check_offsets(case: Case) -> Iterator[Finding]:
    """Yield offsets of groups and of delay levels that are outside of their queues."""
    if case.configs.offsets or case.configs.delay_offsets:
        yield from iter_odd_offsets(case.configs, _ends(case), case.log_queues | case.unread_queues)


def check_queues_quickly(case: Case) -> Iterator[Finding]:
    """Yield missing queues and odd offsets, for a check that does not read the log."""
    ends = _ends(case)
    is_closed = not (case.abort or case.live)
    end = 0 if is_closed else greatest_end(simple_queues(case.store.listing))
    dispatched = find_dispatched(end, has_queues=bool(ends), is_live=case.live, is_closed=is_closed)
    absent = find_absent_queues(case.store, case.configs, ends.keys() | case.unread_queues, dispatched)
    yield from iter_absent_queues(absent)
    yield from iter_odd_offsets(case.configs, ends, absent.missing.keys() | case.unread_queues)


def _ends(case: Case) -> dict[QueueId, int]:
    """Return the next offset of each queue, in files or in a database."""
    found = dict(iter_file_bounds(case.store, simple_queues(case.store.listing), case.end))
    return {queue: bounds.max_offset for queue, bounds in (found | read_database_bounds(case.store)).items()}
