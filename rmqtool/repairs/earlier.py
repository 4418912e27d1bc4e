"""A store as it was earlier: its log ends before the first record that was stored at a time or after it.

Nothing of the store is changed. Its log is cut in overlays, and recovered there as after a crash, so that queues, index
and checkpoint end with it. Groups that had read further begin at the new end of their queues: else they would skip the
next messages, which get the same queue offsets. The rest of the configuration stays as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from rmqtool.broker.offsets import ConsumerOffsets, progress_file
from rmqtool.engine.clock import SystemClock
from rmqtool.engine.recovery.recover import recover
from rmqtool.errors import Refused, StoreError, StoreInUse
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import ABORT, DELAY_OFFSET, LOCK, ROCKSDB_STORE, FileKind
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.log.cut import Cut, find_cut
from rmqtool.log.ranges import Effort
from rmqtool.log.sources import Source
from rmqtool.look.time_query import TimeLookup
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.plan import forget_timers
from rmqtool.repairs.steps import OffsetChange
from rmqtool.store.config_files import config_text

if TYPE_CHECKING:
    from rmqtool.engine.recovery.report import RecoveryReport
    from rmqtool.store.open import Store


# Where queues end, by topic and number.
Ends = dict[tuple[str, int], int]

_OF_NOW = {
    FileKind.COMPACTION_LOG: "compacted logs, perhaps with later messages,",
    FileKind.EPOCH: "the epochs of the controller",
}


@dataclass
class Earlier:
    """A store in overlays as it was at a time; ``cut`` is missing if all messages are older."""

    areas: Areas
    report: RecoveryReport
    cut: Cut | None
    offsets: list[OffsetChange]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of the recovery; findings that only tell of the cut are left out."""
        shown = self.report.as_json()
        changes = [change for change in self.areas.main.overlay.changes() if change.path != LOCK]
        shown["files"] = [{"path": change.path, "action": change.action.value} for change in changes]
        shown["findings"] = [one for one in shown["findings"] if one["code"].startswith(("CL-", "ST-"))]
        shown["cut"] = None if self.cut is None else self.cut.as_json()
        shown["offsets"] = [one.as_json() for one in self.offsets]
        return shown


def make_earlier(areas: Areas, source: Source, until: int, effort: Effort) -> Earlier:
    """Cut the log in the overlays of a store before the first message stored at ``until`` (ms) or later.

    ``source`` is the log of the same store. Raises Refused for a store whose queues cannot be made in overlays, and if
    no message would be left.
    """
    store, overlay = areas.store, areas.main.overlay
    _refuse_unfit(areas)
    cut = find_cut(source, until, effort)
    if cut is not None and cut.offset <= store.commit_log.min_offset:
        raise Refused(
            "every message was stored at that time or later: none would be left",
            file=store.root,
            hint="name a later time (--until)",
        )
    before = _ends(store)
    notes: list[str] = []
    if cut is not None:
        _cut_log(overlay, areas.view(), cut.offset)
        if not overlay.exists(ABORT):
            overlay.create(ABORT).close()
        if list(forget_timers(overlay, store.listing)):
            notes.append("timers are made of the log again: timer messages that were delivered may be delivered again")
        kinds = {file.what.kind for file in store.listing.files}
        notes += [f"{what} are those of now" for kind, what in _OF_NOW.items() if kind in kinds]
        if cut.stored_before:
            notes.append(
                f"{cut.stored_before} of the messages after the cut were stored before the time: the clock was set "
                f"back. To select each message by its time: rmqtool copy {quote(store.root)} DIR -e TIME"
            )
    report = recover(areas.setup(), effort.progress.advance)
    offsets = list(_lower_offsets(areas, before, cut.queues)) if cut is not None else []
    return Earlier(areas, report, cut, offsets, notes)


def _refuse_unfit(areas: Areas) -> None:
    store = areas.store
    by_copy = f"rmqtool copy {quote(store.root)} DIR -e TIME"
    if not store.filesystem.is_directory(LOCK) and store.filesystem.lock_state().held:
        hint = f"stop it, or copy the messages: {by_copy}"
        raise StoreInUse("a broker is running on this store, and writes to its log", file=store.root, hint=hint)
    why = None
    if store.is_dledger:
        why = "only a DLedger group may cut its log"
    elif set(store.listing.databases()) - {ROCKSDB_STORE} or store.listing.has_rows(ROCKSDB_STORE):
        why = "this store has queues or settings in RocksDB, which would not end with the log"
    elif len(areas.all) > 1 or any(store.config.read_only_commit_log_dirs):
        why = "the log of this store is in other directories"
    if why is not None:
        raise StoreError(why, file=store.root, hint=by_copy)


def _cut_log(overlay: OverlayFileSystem, view: Store, end: int) -> None:
    """End the log of a view: its last segment is zeros from there on, and those after it are removed."""
    for segment in list(view.commit_log):
        if segment.base_offset >= end:
            overlay.unlink(segment.path)
        elif segment.end_offset > end:
            with overlay.open_write(segment.path) as file:
                file.truncate(end - segment.base_offset)
                file.truncate(segment.size)


def _ends(store: Store) -> Ends:
    """Return where each queue ends."""
    return {(queue.topic, queue.queue_id): bounds.max_offset for queue, bounds in TimeLookup(store).bounds.items()}


def _lower_delays(overlay: OverlayFileSystem, version: str, shorter: Ends) -> None:
    """Bring the offsets of delay levels to the new ends of their queues, as a broker does when it loads them."""
    text = config_text(overlay, DELAY_OFFSET)

    def decode(data: bytes) -> dict[str, Any] | Flaw:
        decoded = decode_config(DELAY_OFFSET, data)
        return decoded if isinstance(decoded, Flaw) else decoded.value

    table: dict[str, Any] = text.load(decode) or {}
    offsets = table.get("offsetTable") or {}
    ends = {level: shorter.get((SCHEDULE_TOPIC, int(level) - 1)) for level in offsets}
    lower = {level: end for level, end in ends.items() if end is not None and end < offsets[level]}
    if lower:
        table["offsetTable"] = {**offsets, **lower}
        text.write(encode_config(DELAY_OFFSET, table, dialect_of(version)))


def _lower_offsets(areas: Areas, before: Ends, named: Iterable[tuple[str, int]]) -> Iterator[OffsetChange]:
    """Bring committed offsets to the new ends of the queues that got shorter; yield the changes.

    The queues of a mirror may not be built yet. So those that messages after the cut name count too.
    """
    view = areas.view()
    after = _ends(view)
    shorter = {queue: after.get(queue, 0) for queue, end in before.items() if after.get(queue, 0) < end}
    shorter |= {queue: after.get(queue, 0) for queue in named}
    _lower_delays(areas.main.overlay, view.version.value, shorter)
    text = config_text(areas.main.overlay, progress_file(enable_lmq=view.config.enable_lmq))
    offsets = ConsumerOffsets(text, view.version, SystemClock(), enable_lmq=view.config.enable_lmq)
    found = []
    for topic, group in offsets.iter_subscriptions():
        for queue_id, committed in offsets.offsets_of(group, topic).items():
            end = shorter.get((topic, queue_id))
            if end is not None and committed > end:
                found.append(OffsetChange(group, topic, queue_id, committed, end))
    for one in found:
        offsets.commit_offset(one.group, one.topic, one.queue_id, one.after)
        yield one
    if found:
        offsets.save()
