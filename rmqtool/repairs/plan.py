"""The plan of a repair, worked out over overlays: nothing is written, and everything is known before it is done.

Recovery rebuilds queues, index and checkpoint from the log. The steps are the differences between the store and the
overlays after that; what stays wrong is what a check of the outcome finds.

Damage within the log is bridged, so that nothing after it is lost, or cut off together with everything after it. At its
start a broker cuts the log at the first bad record and destroys what follows; a valid record over the damage prevents
that. No valid message is changed, and the damaged bytes are kept in the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from rmqtool.audit.damage import Damage
from rmqtool.audit.log_pass import LogExtract, LogPass, LogReading
from rmqtool.checks.check import Check, lost_rows
from rmqtool.engine.commit_log import LogDirectory
from rmqtool.engine.load import find_unsupported, refuse_linked
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.recovery.report import RecoveryReport
from rmqtool.errors import NoSpace, ReadFailed, StoreError, StoreInUse, WriteFailed
from rmqtool.files.filesystem import WritableFileSystem, split
from rmqtool.files.overlay import Action, OverlayFileSystem
from rmqtool.findings import Finding, Severity, worst_first
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.formats.bridges import bridge_sizes, encode_blank, encode_bridge, least_size
from rmqtool.formats.codes import BLANK_MAGIC
from rmqtool.formats.commit_log import BLANK_SIZE, Message
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.layouts import RECORD_START
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import read_record
from rmqtool.log.queue_entries import AFTER, count_messages, queue_files_of
from rmqtool.log.ranges import Effort
from rmqtool.log.walk import SegmentWalk
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.configs import restore_configs
from rmqtool.repairs.steps import (
    Edit,
    OffsetChange,
    Part,
    Reasons,
    Risk,
    Step,
    digest_of,
    in_order,
    renumber_new_indexes,
    risk_of,
    steps_of,
    transfer,
)
from rmqtool.store.listing import QueueId, StoreListing
from rmqtool.store.open import Root, Store
from rmqtool.store.segments import Segment, SegmentQueue, usual_size
from rmqtool.upstream.settings import assumed_settings, with_found_settings

Json = dict[str, object]

# The smallest span that is bridged by itself: room for a bridge that resembles any neighbour.
_LEAST_ALONE = 256
# A broker accepts a record without a time. No record can be written where a segment is missing.
_NOT_BRIDGED = ("CL-TIME", "CL-GAP")


class Span(NamedTuple):
    """Damaged bytes of one segment, and their flaw."""

    segment: Segment
    start: int
    end: int
    message: str

    @property
    def file_offset(self) -> int:
        """The start of the span in its file."""
        return self.start - self.segment.base_offset

    @property
    def ends_segment(self) -> bool:
        """Whether the span reaches the end of its segment."""
        return self.end == self.segment.end_offset


def read_damage(log: SegmentQueue, now: int, source: LogReading) -> list[Damage]:
    """Return the damage that is followed by valid records, in the order of the log."""
    reading = LogPass(log, now, source)
    for _ in reading.batches():
        pass
    return [one for one in reading.damage.spans if one.segment is not None and one.flaw.code not in _NOT_BRIDGED]


def span_of(damage: Damage) -> Span:
    """Return damage as a span of its segment."""
    assert damage.segment is not None, "a missing segment cannot be repaired"
    return Span(damage.segment, damage.start, damage.end, f"{damage.flaw.code}: {damage.flaw.message}")


def bridge(
    log: SegmentQueue, damage: list[Damage], directories: list[LogDirectory], *, only_tell: bool
) -> Iterator[Span]:
    """Write bridges over damage; yield the bridged spans. Spans too small for a record are left as they are."""
    for span in _spans(damage):
        like = _neighbour(log, span)
        if like is None:
            continue
        pieces = list(_bridge_end(log, span, like) if span.ends_segment else _bridge_middle(span, like))
        overlay = _overlay_of(span.segment, directories)
        if not pieces or overlay is None:
            continue
        if not only_tell:
            with overlay.open_write(span.segment.path) as file:
                for physical_offset, data in pieces:
                    file.pwrite(data, physical_offset - span.segment.base_offset)
        yield span


def _spans(damage: list[Damage]) -> Iterator[Span]:
    """Yield the spans to bridge, one for each damaged place.

    Spans too small for a record are joined with their neighbours.
    """
    held: Span | None = None
    for one in damage:
        span = span_of(one)
        if held is not None and (held.segment, held.end) == (span.segment, span.start):
            small = min(held.end - held.start, span.end - span.start) < _LEAST_ALONE
            if small:
                held = held._replace(end=span.end)
                continue
        if held is not None:
            yield held
        held = span
    if held is not None:
        yield held


def _neighbour(log: SegmentQueue, span: Span) -> Message | None:
    """Return the next valid record after a span. A bridge takes its time, host and kind of checksum."""
    for segment in log:
        if segment.end_offset <= span.end:
            continue
        at = max(span.end - segment.base_offset, 0)
        with segment.filesystem.open_read(segment.path) as file:
            for place in SegmentWalk(file, segment.base_offset).places(at):
                if isinstance(place.what, Message):
                    return place.what
    return read_record(log, log.min_offset)


def _bridge_middle(span: Span, like: Message) -> Iterator[tuple[int, bytes]]:
    at = span.start
    for size in bridge_sizes(span.end - span.start, least_size(like)):
        yield at, encode_bridge(at, size, like)
        at += size


def _bridge_end(log: SegmentQueue, span: Span, like: Message) -> Iterator[tuple[int, bytes]]:
    """Close a segment again: with the blank record alone if only that was damaged, else with a bridge before it."""
    rest, least = span.end - span.start, least_size(like)
    if rest < BLANK_SIZE:
        return
    total_size, magic = RECORD_START.decode(log.read(span.start, RECORD_START.size))
    if magic == BLANK_MAGIC or total_size == rest or rest < least + BLANK_SIZE:
        yield span.start, encode_blank(rest)
        return
    yield span.start, encode_bridge(span.start, least, like)
    yield span.start + least, encode_blank(rest - least)


def truncate(log: SegmentQueue, start: int, directories: list[LogDirectory]) -> None:
    """Cut the log at an offset: zeros to the end of its segment, and no later segments."""
    for segment in log:
        overlay = _overlay_of(segment, directories)
        if overlay is None or segment.end_offset <= start:
            continue
        if segment.base_offset >= start and segment.base_offset != log.min_offset:
            overlay.unlink(segment.path)
            continue
        with overlay.open_write(segment.path) as file:
            file.truncate(max(start - segment.base_offset, 0))
            file.truncate(segment.size)


def _overlay_of(segment: Segment, directories: list[LogDirectory]) -> OverlayFileSystem | None:
    """Return the overlay of a segment; None if it may only be read."""
    for directory in directories:
        if directory.filesystem is segment.filesystem and isinstance(directory.filesystem, OverlayFileSystem):
            return directory.filesystem
    return None


_KINDS = (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG, FileKind.TIMER_CHECK)


def forget_timers(files: WritableFileSystem, listing: StoreListing) -> Iterator[tuple[str, str]]:
    """Remove the files that a broker rebuilds from the log; yield each path with the reason."""
    for file in listing.of_kind(*_KINDS):
        files.unlink(file.path)
        yield file.path, "a broker rebuilds it from the log, and delivers remaining timer messages again"


_ALONE = Effort()
_ID_SIZE = 6
_RECOVERED = (Part.LOG, Part.QUEUES, Part.INDEX, Part.CHECKPOINT, Part.ABORT)
_WHY = {
    Part.LOG: "the end of the log is not clean",
    Part.CONFIG: "only one of the file and its copy can be read",
    Part.OFFSETS: "as asked",
    Part.QUEUES: "so that the queues match the log",
    Part.INDEX: "so that the index matches the log",
    Part.TIMERS: "so that the timers match the log",
    Part.CHECKPOINT: "its times are set to those of the repaired log",
    Part.ABORT: "the last stop was not clean; nothing is left to recover",
}
_STAYS = (
    "only after the repair of the log (needs --allow primary); while it is there, a broker recovers as after a crash"
)
_FOLLOWS = "follows the change of the log: "


class Damaged(StrEnum):
    """What to do with damage within the log."""

    BRIDGE = "bridge"
    TRUNCATE = "truncate"


@dataclass(frozen=True)
class Request:
    """The request: which parts (empty: all), which risks, and what to do with damage in the log."""

    parts: frozenset[Part] = frozenset()
    risks: frozenset[Risk] = frozenset((Risk.DERIVED,))
    damaged: Damaged | None = None
    # Changes offsets in the overlays; yields the changes.
    edit: Callable[[Areas], Iterable[Edit]] | None = None

    def wants(self, part: Part) -> bool:
        """Return whether the repair includes a part."""
        return not self.parts or part in self.parts

    def takes(self, part: Part) -> bool:
        """Return whether a part may be changed."""
        return self.wants(part) and risk_of(part) in self.risks


@dataclass
class Plan:
    """The steps of a repair and the findings that it leaves; ``state`` is the store's when the plan was made.

    ``lost`` has the queues with messages that the repaired store does not have, and how many; ``ahead`` those of them
    whose entries the repair removes, because they point past the end of the log. ``assumed`` are settings that files
    are created with although neither the user nor a file of the store tells them.
    """

    id: str
    state: str
    steps: list[Step]
    left: list[Finding]
    lost: list[Json] = field(default_factory=list)
    ahead: Counter[QueueId] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    assumed: dict[str, object] = field(default_factory=dict)
    applied: bool = False
    undo: str | None = None

    @property
    def risks(self) -> list[str]:
        """The risks that must be allowed for all steps."""
        return sorted({step.risk.value for step in self.steps} - {Risk.DERIVED.value})

    @property
    def allowed(self) -> list[Step]:
        """The allowed steps."""
        return [step for step in self.steps if step.allowed]

    def judge(self, left: Left) -> None:
        """Take what a check finds after the repair: the remaining findings, and the lost messages."""
        self.left, self.lost = left.findings, lost_rows(left.lost + self.ahead)

    def as_json(self) -> dict[str, object]:
        """Return the JSON form."""
        found: dict[str, object] = {
            "plan": self.id,
            "steps": [step.as_json(number) for number, step in enumerate(self.steps, 1)],
            "applied": self.applied,
            "left": [finding.as_json() for finding in self.left],
            "lost": self.lost,
        }
        if self.assumed:
            found["assumed"] = self.assumed
        return found if self.undo is None else found | {"undo": self.undo}


def plan_repair(areas: Areas, request: Request, effort: Effort = _ALONE, *, foresee: bool = True) -> Plan:
    """Work out a repair in the overlays of a store. The store is not changed.

    With ``foresee`` the plan has all steps, also those that are not allowed, and the findings that remain after them,
    which takes as long as a check. Without it the plan has the allowed changes only.
    """
    require_stopped(areas.store)
    refuse_linked(areas.store.listing)
    state = areas.state()
    planner = _Planner(areas, replace(request, risks=frozenset(Risk)) if foresee else request, effort)
    planner.work_out()
    steps = planner.steps()
    done = [step for step in steps if step.allowed]
    overlays = [area.overlay for area in areas.all]
    name = digest_of(done, overlays, state, _ID_SIZE)
    plan = Plan(name, state, steps, [], [], planner.ahead, planner.notes, planner.assumed(done))
    if foresee:
        plan.judge(planner.left(steps))
        plan.steps = [replace(step, allowed=step.risk in request.risks) for step in steps]
        if not request.takes(Part.LOG):
            plan.steps = keep_marker(list(map(planner.as_waiting, plan.steps)), plan.steps)
    return plan


def mend_overlays(areas: Areas, effort: Effort = _ALONE) -> list[Span]:
    """Make the overlays of a store into one in which everything is right; return the damage of the log.

    The damage is bridged, so every message that can be read is in its queue. The store is not changed.
    """
    refuse_linked(areas.store.listing)
    planner = _Planner(areas, Request(frozenset(), frozenset(Risk), Damaged.BRIDGE), effort)
    planner.bridged_codes += ("ST-READ", "DL-")
    planner.work_out()
    return planner.spans


def require_stopped(store: Store) -> None:
    """Refuse a store whose lock is held."""
    if store.filesystem.lock_state().held:
        raise StoreInUse(
            f"{store.root} is in use: a broker or another rmqtool holds its lock",
            file=store.root,
            hint="stop the broker, then run it again",
        )


class _Planner:
    def __init__(self, areas: Areas, request: Request, effort: Effort) -> None:
        self.areas = areas
        self.request = request
        self.effort = effort
        self.notes: list[str] = []
        self.reasons = Reasons(dict(_WHY))
        # The offset changes of an edited table, by its path in the store.
        self.offsets: dict[str, tuple[OffsetChange, ...]] = {}
        # Whether the steps are all changes in the overlays.
        self._is_whole = False
        # The damage of the log, and the codes of damage that is bridged. Bytes that a disk cannot read are left alone,
        # because a later read may succeed.
        self.spans: list[Span] = []
        self.bridged_codes: tuple[str, ...] = ("CL-",)
        # The entries past the end of the log, which are removed.
        self.ahead: Counter[QueueId] = Counter()
        # The files that need a change also if the log is left as it is; None if it needs none.
        self.before: set[str] | None = None
        # Steps on files of the log whose damage is bridged or cut off.
        self.mended: dict[tuple[int, str], Step] = {}

    def work_out(self) -> None:
        """Change the overlays into the repaired store."""
        request, overlay = self.request, self.areas.main.overlay
        if any(request.wants(part) for part in _RECOVERED):
            self._leave_alone()
            self._recover()
        if request.wants(Part.CONFIG) or request.wants(Part.OFFSETS):
            self._take(restore_configs(overlay, self.areas.store, self.areas.view))
        if request.edit is not None:
            self._take(request.edit(self.areas))
        if Part.TIMERS in request.parts:  # only on request: delivered messages are delivered again
            self.reasons.by_path.update(forget_timers(overlay, self.areas.store.listing))

    def _take(self, edits: Iterable[Edit]) -> None:
        for edit in edits:
            self.reasons.by_path[edit.path] = edit.reason
            self.offsets[edit.path] = edit.offsets

    def _leave_alone(self) -> None:
        """Note the part that only its own broker can write; refuse it if it was requested."""
        store = self.areas.store
        error = find_unsupported(store.listing, store.config)
        if error is None:
            return
        part = Part.LOG if store.is_dledger else Part.QUEUES
        if part in self.request.parts:
            raise error
        what = "the log is" if part is Part.LOG else "queues are"
        self.notes.append(f"{what} left alone: {error.message}")

    def _remake_queues(self) -> bool:
        """Remove queue files of another size than the settings have.

        A broker refuses them, and the log has all their content.
        """
        store = self.areas.store
        name, files = "mappedFileSizeConsumeQueue", list(store.listing.of_kind(FileKind.CONSUME_QUEUE))
        stated = -(-store.config.mapped_file_size_consume_queue // UNIT_SIZE) * UNIT_SIZE
        usual = usual_size([Segment(0, file.size, file.path, store.filesystem) for file in files])
        if not files or name not in store.config.origins or usual == stated or not self.request.wants(Part.QUEUES):
            return False
        for file in files:
            self.areas.main.overlay.unlink(file.path)
        self.reasons.by_path[paths.CONSUME_QUEUE] = f"CQ-SIZE: files had {usual} bytes, but {name} is {stated}"
        return True

    def _recover(self) -> None:
        if self._remake_queues():
            self._mark_unclean()
        report = self._recovered()
        if any(finding.code.startswith(self.bridged_codes) for finding in report.findings) and self._mend_log():
            # The log has changed, so recovery must not trust queues and index, as after a crash.
            self._mark_unclean()
            self._learn(report)
            self.before = set(report.changes)
            report = self._recovered()
            self._learn(report, because=_FOLLOWS)
            return
        self._learn(report)

    def _recovered(self) -> RecoveryReport:
        progress = self.effort.progress
        progress.start("recovering", sum(segment.size for segment in self.areas.store.commit_log), "bytes")
        try:
            return recover(
                self.areas.setup(),
                progress.advance,
                self.areas.extract,
                thorough=True,
                past_unread="ST-READ" in self.bridged_codes,
            )
        except NoSpace:
            raise
        except WriteFailed as error:
            # The overlay itself does not fail: something else has the name of a file or directory that is needed.
            hint = error.hint or "nothing was written; move it out of the store, then repair"
            raise StoreError(error.message, file=error.file, hint=hint) from error
        finally:
            progress.finish()

    def _mark_unclean(self) -> None:
        self.areas.main.overlay.create(paths.ABORT).close()

    def _mend_log(self) -> bool:
        """Bridge the damage within the log, or cut it off; return whether the log changed.

        Without permission it is worked out and then dropped, because queues and index must fit the log that stays.
        """
        if not self.request.wants(Part.LOG):
            return False
        allowed = Risk.PRIMARY in self.request.risks
        view = self.areas.view()
        log = view.commit_log
        damage = read_damage(log, self.areas.setup().clock.now(), self.areas.extract)
        if self.areas.store.is_dledger:
            # Records after damage are found by the heads of their entries: nothing has to be bridged.
            self.spans += map(span_of, damage)
            return False
        if self.request.damaged is Damaged.TRUNCATE:
            spans = [span_of(one) for one in damage[:1]]
            if allowed and spans:
                truncate(log, spans[0].start, self.areas.log_directories)
        else:
            spans = list(bridge(log, damage, self.areas.log_directories, only_tell=not allowed))
        self._tell(spans)
        log.close()
        self.spans += spans
        return allowed and bool(spans)

    def _tell(self, spans: list[Span]) -> None:
        """Record the repaired files of the log with reasons; for those that may not be changed, these are the steps."""
        action = "truncate" if self.request.damaged is Damaged.TRUNCATE else "bridge"
        by_file: dict[tuple[int, str], list[Span]] = {}
        for span in spans:
            area = next(n for n, one in enumerate(self.areas.all) if one.overlay is span.segment.filesystem)
            by_file.setdefault((area, span.segment.path), []).append(span)
        for (area, path), mine in by_file.items():
            shown = self.areas.all[area].shown(path)
            more = f", and {len(mine) - 1} more" if len(mine) > 1 else ""
            reason = f"{mine[0].message} (at {mine[0].file_offset}{more}){self._messages_of(mine)}"
            count = sum(span.end - span.start for span in mine)
            self.mended[area, path] = Step(area, Part.LOG, action, path, shown, reason, count, count, allowed=False)

    def _messages_of(self, spans: Sequence[Span]) -> str:
        """Say how many messages queue entries name in spans; after the first of them where the log is cut off there.

        Say nothing without such entries: the files of the queue may be lost as well.
        """
        store = self.areas.store
        cut = self.request.damaged is Damaged.TRUNCATE
        try:
            is_readable = store.has_file_queues and isinstance(store.filesystem, Root)
            queues = queue_files_of(store) if is_readable else []
            count = count_messages(queues, [(span.start, AFTER if cut else span.end) for span in spans])
        except ReadFailed:
            return ""
        what = "from here on would be deleted" if cut else "lost here"
        return f"; {counted(count, 'message')} {what} (counted by queue entries)" if count else ""

    def _learn(self, report: RecoveryReport, because: str = "") -> None:
        if self.request.wants(Part.QUEUES):
            self.ahead += report.cut_off()
        for finding in report.findings:
            if finding.file is not None:
                reason = f"{because}{finding.message}" if because else f"{finding.code}: {finding.message}"
                self.reasons.by_path.setdefault(finding.file, reason)

    def steps(self) -> list[Step]:
        """Return the steps, also those that are not allowed."""
        found = []
        for number, area in enumerate(self.areas.all):
            directories = [one.path for one in self.areas.log_directories if one.filesystem is area.overlay]
            shown = area.shown("")
            found += steps_of(number, area.overlay, directories, self.reasons, shown)
        needed = [step for step in found if not self._is_room_ahead(step)]
        wanted = (step for step in needed if self.request.wants(step.part))
        marked = [replace(step, allowed=step.risk in self.request.risks) for step in wanted]
        there = {(step.area, step.path) for step in marked}
        named = [self._as_mended(step) for step in marked]
        named += (step for key, step in self.mended.items() if key not in there)
        if not self.request.takes(Part.LOG):
            named = keep_marker(named, needed)
        steps = self._with_offsets(renumber_new_indexes(in_order(named)))
        self._is_whole = len(steps) == len(found) and all(step.allowed for step in steps)
        return steps

    def as_waiting(self, step: Step) -> Step:
        """Return a step that is needed only if the log is changed, as one that waits for that."""
        if self.before is None or step.risk is not Risk.DERIVED or step.part is Part.ABORT:
            return step
        # New index files are named by the time.
        known = {Part.INDEX if path.startswith(paths.INDEX + "/") else path for path in self.before}
        own = step.part if step.part is Part.INDEX else step.path
        return step if own in known else replace(step, allowed=False)

    def _with_offsets(self, steps: list[Step]) -> list[Step]:
        """Return steps with the committed offsets that they change; of a database, the first of its files has them."""
        left = dict(self.offsets)
        told = []
        for step in steps:
            own = next((path for path in left if step.path == path or step.path.startswith(path + "/")), None)
            told.append(step if step.area or own is None else replace(step, offsets=left.pop(own)))
        return told

    def assumed(self, steps: Iterable[Step]) -> dict[str, object]:
        """Return the sizes with which files are created although nothing in the store tells them."""
        created = [step.path for step in steps if step.action == Action.CREATE and not step.area]
        store = self.areas.store
        return assumed_settings(with_found_settings(store.config, store.listing), created)

    def _as_mended(self, step: Step) -> Step:
        mended = self.mended.get((step.area, step.path))
        if mended is None:
            return step
        reason = mended.reason
        if step.action == Action.RESIZE:
            reason = f"{step.reason}; it is made that long; {reason}"
        return replace(step, action=mended.action, reason=reason, bytes=mended.bytes)

    def _is_room_ahead(self, step: Step) -> bool:
        """Return whether a step removes an empty segment that a broker has created ahead, which is not wrong."""
        if step.part is not Part.LOG or step.action != Action.DELETE or step.is_directory:
            return False
        start = paths.parse_segment_name(split(step.path)[1])
        if all(segment.end_offset != start for segment in self.areas.store.commit_log):
            return False
        with self.areas.all[step.area].base.open_read(step.path) as file:
            walk = SegmentWalk(file, None)
            return walk.end == self.areas.store.commit_log.segment_size and walk.find_nonzero(0) is None

    def left(self, steps: Iterable[Step]) -> Left:
        """Return what a check finds after the allowed steps."""
        if self._is_whole:
            return check_view(self.areas.view(), self.areas.extract, self.effort)
        overlays = [OverlayFileSystem(area.base) for area in self.areas.all]
        try:
            for step in steps:
                if step.allowed:
                    transfer(step, self.areas.all[step.area].overlay, overlays[step.area])
            return check_view(self.areas.view(overlays), self.areas.extract, self.effort)
        finally:
            for overlay in overlays:
                overlay.close()


def keep_marker(steps: Sequence[Step], needed: Iterable[Step]) -> list[Step]:
    """Return the steps with the abort marker kept while the log still has to be changed.

    Without the marker a broker trusts the end of the log, and bytes that should be cut off would become messages.
    """
    if not any(step.part is Part.LOG for step in (*steps, *needed)):
        return list(steps)
    return [replace(step, allowed=False, reason=_STAYS) if step.part is Part.ABORT else step for step in steps]


class Left(NamedTuple):
    """The result of a check after a repair: remaining findings, and the number of lost messages of each queue."""

    findings: list[Finding]
    lost: Counter[QueueId]


def check_view(store: Store, extract: LogExtract, effort: Effort = _ALONE) -> Left:
    """Return what a check finds in a store, except for notices. ``extract`` may have its log."""
    check = Check(store, effort=effort, extract=extract)
    found = worst_first(finding for finding in check if finding.severity is not Severity.NOTICE)
    store.listing.open_files.close()
    store.commit_log.close()
    return Left(found, Counter(check.summary.lost))
