"""``recover``: rehearse a broker's next start; and rmqtool's own recovery, which keeps every valid message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rmqtool.api.store import Place, Store, require_whole, store_of
from rmqtool.errors import Exit, OptionalMissing, Refused, StoreError
from rmqtool.findings import Severity

if TYPE_CHECKING:
    from rmqtool.api.shapes import Recovered, Rehearsed
    from rmqtool.engine.recovery.report import RecoveryReport
    from rmqtool.files.overlay import OverlayFileSystem
    from rmqtool.progress import Progress
    from rmqtool.store.open import Store as OpenStore

_WHOLE = "a rehearsal needs a whole store"
# Free space that a recovery needs at its start; it deletes index and queues before it writes them again.
_ROOM = 1 << 20


class Foretold(NamedTuple):
    """A rehearsed start: the object of the contract, and the version and sizes that were assumed."""

    root: str
    shown: Rehearsed
    notes: list[str]
    loses_nothing: bool

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        return Exit.DONE if self.loses_nothing else Exit.NO


class Mended(NamedTuple):
    """A recovered store; ``missing`` is the optional library without which a part was not cleared.

    ``is_sound``: no damage stays that lost messages, and the next start of its broker would lose none.
    """

    shown: Recovered
    missing: OptionalMissing | None
    is_sound: bool

    @property
    def status(self) -> Exit:
        """Return the exit status of the command: that of `recover` afterwards, and 1 for damage that stays."""
        return Exit.DONE if self.is_sound else Exit.NO


def recover(store: Place, *, to: str | os.PathLike[str] | None = None) -> Rehearsed:
    """Return what the next start of the store's broker would do and destroy. Nothing is changed.

    With ``to`` the store as that broker would leave it is written into a new directory.
    """
    return foretell(store, to=to).shown


def recover_apply(store: Place, *, progress: Progress | None = None) -> Recovered:
    """Recover the store with rmqtool's own rules: no valid message is lost. It cannot be undone."""
    done = mend(store, progress=progress)
    if done.missing is not None:
        raise done.missing
    return done.shown


def recover_until(
    store: Place,
    until: int,
    *,
    to: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Recovered:
    """Return what the store would be if its log ended before the first message stored at ``until`` (ms) or later.

    With ``to`` that store is written into a new directory. Nothing of the store itself is changed.
    """
    return earlier(store, until, to=to, progress=progress).shown


class Past(NamedTuple):
    """A store as it was earlier, with notes for the user."""

    shown: Recovered
    notes: list[str]


def earlier(
    store: Place, until: int, *, to: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Past:
    """End the log of a store before a time, over an overlay; write the result into the new directory ``to``."""
    from rmqtool.log.ranges import Effort
    from rmqtool.log.sources import open_source
    from rmqtool.progress import NoProgress
    from rmqtool.repairs.areas import Areas
    from rmqtool.repairs.earlier import make_earlier

    named, target = store_of(store), None if to is None else os.fspath(to)
    require_whole(named, "recover", _WHOLE)
    if target is not None:
        _require_new(target)
    with named.use() as opened, open_source(opened.root, named.reopen) as source, Areas(opened) as areas:
        made = make_earlier(areas, source, until, Effort(progress=progress or NoProgress()))
        start = _start_of(areas.view())
        if target is not None:
            _write(areas.main.overlay, target, opened.root)
    shown = {**made.as_json(), "applied": target is not None, "until": until, "to": target, "brokerStart": start}
    return Past(cast("Recovered", shown), made.notes)


def foretell(store: Place, *, to: str | os.PathLike[str] | None = None) -> Foretold:
    """Rehearse the next start of the store's broker over an overlay."""
    from rmqtool.upstream.rehearsal import assumed, rehearse

    named = store_of(store)
    require_whole(named, "recover", _WHOLE)
    with named.use() as opened, rehearse(opened, contents=to is not None) as rehearsal:
        outcome = rehearsal.run()
        notes = list(_iter_taken(opened, assumed(opened, outcome)))
        shown = cast("Rehearsed", {**outcome.as_json(), "holes": _holes(opened)})
        if to is not None:
            _require_new(os.fspath(to))
            rehearsal.name_new_indexes(datetime.now(UTC).astimezone())
            _write(rehearsal.overlay, os.fspath(to), opened.root)
        return Foretold(opened.root, shown, notes, outcome.loses_nothing)


def mend(store: Place, *, progress: Progress | None = None) -> Mended:
    """Recover the store, then rehearse the next start of its broker."""
    from rmqtool.progress import NoProgress

    named, bar = store_of(store), progress or NoProgress()
    require_whole(named, "recover", _WHOLE)
    with named.reopen_without_queues() as opened:
        bar.start("recover", sum(segment.size for segment in opened.commit_log), "bytes")
        report = _recover(opened, bar.advance)
        bar.finish()
    start = _broker_start(named)
    shown = {**report.as_json(), "lost": _lost(named, report, bar), "brokerStart": start}
    stays = bool(report.misfits) or any(finding.severity is not Severity.NOTICE for finding in report.left)
    return Mended(cast("Recovered", shown), report.missing, not stays and (start is None or start["losesNothing"]))


def _lost(store: Store, report: RecoveryReport, bar: Progress) -> list[dict[str, object]]:
    """Return how many messages of each queue are lost: entries that were removed, and those that still name damage.

    The log is read again for those, by a check, so that both give the same number; a sound log is not.
    """
    from collections import Counter

    from rmqtool.checks.check import Check, CheckOptions, lost_rows
    from rmqtool.log.ranges import Effort

    lost = report.cut_off()
    if report.left or report.bridges:
        with store.reopen() as opened:
            check = Check(opened, CheckOptions(only=("CQ",)), Effort(progress=bar))
            for _ in check:
                pass
            lost += Counter(check.summary.lost)
    return lost_rows(lost)


def _holes(store: OpenStore) -> list[dict[str, int]]:
    """Return the ranges of the log that no file holds."""
    gaps = store.commit_log.gaps()
    return [{"offset": gap.start_offset, "length": gap.end_offset - gap.start_offset} for gap in gaps]


def _iter_taken(store: OpenStore, by_default: dict[str, object]) -> Iterator[str]:
    """Yield the assumed version and sizes, where the user named none."""
    from rmqtool.formats.paths import CONSUME_QUEUE_EXT, LOCK

    if store.version_reason != "as asked":
        yield f"version {store.version} ({store.version_reason}); --as names another"
    if not store.filesystem.is_directory(LOCK) and store.filesystem.lock_state().held:
        yield "a broker is running on this store: this rehearses a start on what is on disk now"
    if store.filesystem.is_directory(CONSUME_QUEUE_EXT):
        yield f"{CONSUME_QUEUE_EXT}/ is shown unchanged: what a start does to queue extensions is not modelled"
    for gap in store.commit_log.gaps():
        span = f"from {gap.start_offset} to {gap.end_offset}"
        yield f"the log has a gap {span}: its messages are lost already; rmqtool check counts them"
    for name, value in by_default.items():
        yield f"no file shows {name}: using {value}; to change it: --conf {name}=..."


def _require_new(target: str) -> None:
    """Refuse a directory that has something in it."""
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise Refused(f"{target} exists and is not empty", file=target, hint="name a new or empty directory")


def _write(overlay: OverlayFileSystem, target: str, like: str) -> None:
    """Write the store into a new directory, which appears whole or not at all."""
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.files.publish import staged

    # How much it needs is only known when it is written: the holes of the store stay holes.
    with staged(target, like, 0) as staging, PosixWritableFileSystem(staging.store) as filesystem:
        overlay.write_to(filesystem)


def _recover(opened: OpenStore, advance: Any) -> RecoveryReport:
    from rmqtool.engine.commit_log import LogDirectory
    from rmqtool.engine.parts import Setup
    from rmqtool.engine.recovery.recover import recover
    from rmqtool.files.posix_write import PosixWritableFileSystem

    with PosixWritableFileSystem(opened.root) as files:
        configured = any(directory.startswith("/") for directory in opened.listing.log_directories)
        found = [LogDirectory(files, directory) for directory in opened.listing.log_directories]
        elsewhere = configured or any(segment.filesystem is not opened.filesystem for segment in opened.commit_log)
        setup = Setup(files, opened.config, directories=() if elsewhere else found)
        return recover(setup, advance, room=_ROOM)


def _broker_start(store: Store) -> dict[str, Any] | None:
    """Return what the next broker start would do to the recovered store; None if that cannot be rehearsed."""
    with store.reopen() as opened:
        return _start_of(opened)


def _start_of(opened: OpenStore) -> dict[str, Any] | None:
    from rmqtool.upstream.rehearsal import rehearse

    try:
        with rehearse(opened) as rehearsal:
            outcome = rehearsal.run()
    except StoreError:
        return None
    shown = outcome.as_json()
    found = {name: shown[name] for name in ("as", "loads", "starts", "messagesLost", "messagesUnreachable")}
    return {**found, "messagesDeleted": outcome.messages_destroyed, "losesNothing": outcome.loses_nothing}
