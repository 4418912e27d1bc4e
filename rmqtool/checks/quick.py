"""The findings of ``info``: everything that is visible without reading the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rmqtool.checks.case import Case, Depth
from rmqtool.checks.files import check_mount, check_queue_files, check_sizes, no_lock_file
from rmqtool.checks.index_files import check_index_quickly
from rmqtool.checks.log import check_gaps, check_last, check_names
from rmqtool.findings import Finding, Place, Severity, addressed, new_finding, worst_first
from rmqtool.formats import checkpoints, paths
from rmqtool.look.absent_queues import find_absent_queues, find_dispatched, iter_absent_queues, iter_odd_offsets
from rmqtool.look.disk import check_disk
from rmqtool.look.overview import Overview
from rmqtool.store.config_files import Configs
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store


def judge(store: Store, overview: Overview) -> None:
    """Add the findings of the overview to it. A failed read is a finding too."""
    attempts = overview.attempts
    configs = None if attempts.findings else overview.configs
    for check in _checks_of(store, overview, configs):
        overview.findings += attempts.get(partial(list, check), [])
    overview.findings += attempts.findings
    if not overview.has_lock_file:
        overview.findings.append(no_lock_file())
    overview.findings = worst_first(overview.findings)


def _checks_of(store: Store, overview: Overview, configs: Configs | None) -> Iterator[Iterator[Finding]]:
    """Yield the findings, part by part, each with the command to type.

    Without ``configs`` a part of the store could not be read, and missing parts are not judged.
    """
    case = Case.of(store, Depth.QUICK)
    for part in (
        check_names(case),
        check_gaps(case),
        check_sizes(case),
        # A running broker may have created a file since the listing.
        iter(()) if overview.lock == "held" else check_last(case, overview.queues_end),
        check_mount(case),
        _check_abort(overview),
        _check_checkpoint(store, overview),
        # A closer check reports the missing messages of a gap; what info reports must stay true then.
        check_queue_files(replace(case, depth=Depth.DEFAULT)),
        check_index_quickly(case),
        iter(()) if configs is None else _check_queues(store, overview, configs),
        check_disk(overview.disk),
    ):
        yield (addressed(one, store.root) for one in part)


def _check_abort(overview: Overview) -> Iterator[Finding]:
    if not overview.abort:
        return
    if overview.lock == "held":
        yield Finding("ST-ABORT", Severity.NOTICE, "abort is present: a broker is running", file=paths.ABORT)
        return
    text = "abort is present: the last stop was not clean"
    # Before a full check it is unknown what needs repair, so there is no fix yet: the next start is rehearsed first.
    yield replace(new_finding("ST-ABORT", text, Place(paths.ABORT)), fix=None)


def _check_checkpoint(store: Store, overview: Overview) -> Iterator[Finding]:
    data = store.read_file(paths.CHECKPOINT, 1 << 20)
    if data is None and not overview.log_files:
        return
    if data is None and len(store.listing.files) == 1:  # a single named or saved file, not a store
        return
    if data is None:
        yield new_finding("CP-BAD", "there is no checkpoint", Place(paths.CHECKPOINT))
        return
    flaw = checkpoints.check_checkpoint(data)
    if flaw is not None:
        yield new_finding(flaw.code, flaw.message, Place(paths.CHECKPOINT, flaw.at, flaw.length))
    last = overview.log_end.last
    times = checkpoints.decode_checkpoint(data)
    if last is not None and checkpoints.min_timestamp(times) > last.store_timestamp:
        text = "the checkpoint is ahead of the log: its times are after the last message"
        yield new_finding("CP-AHEAD", text, Place(paths.CHECKPOINT))


def _check_queues(store: Store, overview: Overview, configs: Configs) -> Iterator[Finding]:
    """Yield queues that should exist, and offsets outside of their queues."""
    if overview.missing is not None or len(store.listing.files) == 1:
        return  # not all queues are known
    bounds = {
        QueueId(name, queue_id): bounds.max_offset
        for name, topic in overview.topics.items()
        for queue_id, bounds in topic.queues.items()
    }
    is_live = overview.lock == "held"
    is_closed = not (overview.abort or is_live)
    dispatched = find_dispatched(overview.queues_end, has_queues=bool(bounds), is_live=is_live, is_closed=is_closed)
    absent = find_absent_queues(store, configs, bounds.keys(), dispatched)
    yield from iter_absent_queues(absent)
    yield from iter_odd_offsets(configs, bounds, absent.missing)
