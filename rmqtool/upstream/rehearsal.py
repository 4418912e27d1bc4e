"""The rehearsal of a broker's start: what it would delete, cut, write and add.

The model of a broker runs over an overlay of a store, and the difference is the outcome.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from shlex import quote

from rmqtool.config import Version
from rmqtool.errors import NoSpace, StoreError, WriteFailed
from rmqtool.files.filesystem import Closable, Kind, ReadableFileSystem
from rmqtool.files.overlay import Action, Change, OverlayFileSystem
from rmqtool.formats import layouts, paths
from rmqtool.formats.commit_log import Blank, Message, Nothing, check_record, decode_record
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.log.read import keep_freed_memory
from rmqtool.store.open import Store
from rmqtool.upstream import index_file
from rmqtool.upstream.commit_log import CommitLog
from rmqtool.upstream.config_files import ConfigLoad, load_config, unread_config, wipe_consumer_offsets
from rmqtool.upstream.files import StoreFiles, StoreView
from rmqtool.upstream.intact import find_log_files, find_lost, find_unreached
from rmqtool.upstream.outcome import (
    Cut,
    LostIndex,
    QueueOutcome,
    Scan,
    StartOutcome,
    Trap,
    config_traps,
    find_rewinds,
    find_traps,
    heap_trap,
    merge_changes,
)
from rmqtool.upstream.settings import LARGEST_ARRAY_OF_ALL, StartSettings, assumed_settings, with_found_settings
from rmqtool.upstream.startup import MessageStore

_HEADER = layouts.INDEX_HEADER
# Larger records are not read to find out what is wrong with them.
_MOST_READ = 8 << 20


def read_cut(files: StoreView, log: CommitLog) -> Cut | None:
    """Return where the log is cut, and why; None if recovery read nothing."""
    if log.end is None or not files.is_file(log.end.path):
        return None
    path, at = log.end
    left = files.size(path) - at
    data = files.read(path, at, min(left, _MOST_READ))
    found = decode_record(data)
    if isinstance(found, Message):
        found = next(check_record(found, data, 0, None), found)
    if isinstance(found, Message):
        return Cut(path, at, None, "a whole record that this broker does not accept")
    if isinstance(found, Blank):
        return Cut(path, at, None, "the end of the last segment")
    if isinstance(found, Nothing):
        return Cut(path, at, None, "the written part of the log ends here" if left else "the file ends here")
    return Cut(path, at, found.code, found.message)


def read_lost_indexes(files: StoreView, changes: Iterable[Change]) -> Iterator[LostIndex]:
    """Yield the deleted index files."""
    for change in changes:
        if change.action is Action.DELETE and change.path.startswith(f"{paths.INDEX}/"):
            data = files.read(change.path, 0, _HEADER.size)
            header = _HEADER.decode(data.ljust(_HEADER.size, b"\0"))
            entries = max(header.index_count - 1, 0)
            times = header.begin_timestamp, header.end_timestamp
            yield LostIndex(change.path, entries, *times, header.begin_phy_offset, header.end_phy_offset)


class Rehearsal(Closable):
    """One start of one broker on one store, which is never written.

    Without ``contents`` the index files in the overlay differ from those of the broker; the outcome is the same.
    """

    def __init__(self, base: ReadableFileSystem, settings: StartSettings, *, contents: bool = True) -> None:
        self._filesystem = base
        self._base = StoreView(base, salvages=True)
        self._settings = settings
        self.overlay = OverlayFileSystem(base)
        self._files = StoreFiles(self.overlay)
        self.store = MessageStore(self._files, settings, contents=contents)

    def close(self) -> None:
        """Drop every change and close the files; the caller's file system stays open."""
        self._base.close()
        self._files.close()
        self.overlay.close()

    def name_new_indexes(self, now: datetime) -> None:
        """Give the new index files in the overlay the names that a broker of this time and its zone gives them."""
        index_file.name_new(self.overlay, now)

    def run(self, *, finds_unreached: bool = True) -> StartOutcome:
        """Load the config files, then construct, load, start and stop the store; return the outcome.

        Without ``finds_unreached`` the log is read only where the broker reads it, or deletes it; which messages are in
        no queue is then unknown.
        """
        try:
            return self._run(finds_unreached=finds_unreached)
        except NoSpace:
            raise
        except WriteFailed as error:
            # The overlay itself does not fail: something else has the name of a file that the broker needs.
            hint = error.hint or "move it out of the store, then run the command again"
            raise StoreError(error.message, file=error.file, hint=hint) from error

    def _run(self, *, finds_unreached: bool) -> StartOutcome:
        if self._settings.unreadable is not None:
            # upstream: ``Properties.load`` throws, and ``BrokerStartup`` exits before it looks at the store.
            return StartOutcome(
                version=self._settings.version,
                clean=self.store.clean,
                reason=self._settings.unreadable,
                config=unread_config().files,
            )
        keep_freed_memory()
        config = load_config(self._base, self._settings.version)
        if config.unreadable is not None:
            return self._refused_for_config(config)
        store = self.store
        log_files = find_log_files(self._base, self._settings.commit_log_dirs)
        constructed = store.construct()
        loads = constructed and store.load()
        after_load = self._changes()
        started = store.start() if loads else None
        is_known = bool(loads) and finds_unreached
        unreached = find_unreached(store) if is_known else []
        unreachable = sum(one.messages for one in unreached) if is_known else None
        if constructed:
            store.shutdown(started)
        mapped = store.commit_log.mapped
        lost = tuple(find_lost(self._base, log_files, store, loads))
        leftovers_alone = bool(lost) and all(part.leftover for part in lost)
        changes = merge_changes(after_load, self._changes())
        abort_stays = self._files.exists(paths.ABORT)
        return StartOutcome(
            version=self._settings.version,
            clean=store.clean,
            loads=loads,
            starts=started or False,
            reason=store.reason,
            min_physical_offset=mapped.min_offset if constructed else None,
            max_physical_offset=mapped.max_offset if loads else None,
            changes=changes,
            queues=self._queues() if loads else None,
            scan=self._scan(len(log_files)),
            cut=read_cut(self._base, store.commit_log),
            lost=lost,
            lost_indexes=tuple(read_lost_indexes(self._base, changes)),
            rewinds=tuple(find_rewinds(self._base, store, unreached, mapped.max_offset if leftovers_alone else None))
            if loads
            else (),
            unreachable=unreachable,
            unreached=tuple(unreached),
            traps=(
                *config_traps(config, self._settings),
                *find_traps(store, started, unreachable, abort_stays),
                *self._heap_traps(),
            ),
            config=config.files,
            log_lines=tuple(store.log.templates),
        )

    def _heap_traps(self) -> Iterator[Trap]:
        """Rehearse the start again with a larger heap, if a record was too large for this one."""
        size = self.store.out_of_memory
        if size is None:
            return
        lost = None
        if size <= LARGEST_ARRAY_OF_ALL:
            roomy = replace(self._settings, largest_array=LARGEST_ARRAY_OF_ALL)
            with Rehearsal(self._filesystem, roomy, contents=False) as other:
                lost = other.run().messages_lost
        yield heap_trap(size, lost)

    def _scan(self, of_files: int) -> Scan | None:
        scanned = self.store.commit_log.scanned
        if not scanned:
            return None
        size = len(scanned) * self._settings.commit_log_file_size
        latest = None if self.store.clean else self.store.checkpoint.min_timestamp or None
        return Scan(scanned[0], len(scanned), of_files, size, _why_from_there(self.store), latest)

    def _refused_for_config(self, config: ConfigLoad) -> StartOutcome:
        """Return the outcome of a broker that ends before it has constructed its store."""
        if self._settings.version is Version.V4_9:
            # upstream: ``BrokerStartup`` calls shutdown(), which writes offsets that were never loaded.
            wipe_consumer_offsets(self._files)
        for path in config.deleted:
            self._files.delete(path)
        changes = self._changes()
        return StartOutcome(
            version=self._settings.version,
            clean=self.store.clean,
            reason=f"neither {config.unreadable} nor its .bak parses",
            changes=merge_changes([change for change in changes if change.action is Action.DELETE], changes),
            traps=tuple(config_traps(config, self._settings)),
            config=config.files,
        )

    def _changes(self) -> list[Change]:
        own = paths.ROCKSDB_STORE + "/"
        return [change for change in self.overlay.changes() if not change.path.startswith(own)]

    def _queues(self) -> tuple[QueueOutcome, ...]:
        found = []
        for (topic, queue_id), queue in sorted(self.store.queues.queues.items()):
            if topic == SCHEDULE_TOPIC and queue.max_offset == 0:
                continue  # 4.9 creates one for each delay level, and they are empty
            found.append(QueueOutcome(topic, queue_id, queue.min_offset, queue.max_offset))
        return tuple(found)


def _why_from_there(store: MessageStore) -> str:
    """Return why recovery begins with its first file."""
    settings, log = store.settings, store.commit_log
    if log.limited:
        return f"none of the last {settings.recover_max_num} files qualifies, and it does not look at older ones"
    if not store.clean and store.checkpoint.min_timestamp <= 0:
        return "the checkpoint has no time, so it reads from the first file on"
    if not store.clean:
        return "from the newest file that begins at or before the checkpoint's time minus 3 s"
    if settings.is_4_9:
        return "after a clean stop it reads the last 3 files"
    if store.max_physic_offset < 0:
        return "after a clean stop it reads from the end of the queues, and they are empty: the whole log"
    where = f"{store.max_physic_offset}, where the queues end"
    return f"after a clean stop it reads from the newest file that begins at or before {where}"


def rehearse(store: Store, *, contents: bool = False) -> Rehearsal:
    """Return the rehearsal of a start on ``store``, by the broker whose version it was opened with.

    Sizes without a setting are taken from the files. The model covers brokers with a commit log of their own and queues
    in files; other stores are refused.
    """
    if store.is_dledger:
        raise StoreError("the start of a DLedger broker is not modelled", file=store.root, hint=_LOOK)
    if paths.CONSUME_QUEUE in store.listing.databases():
        raise StoreError("the start of a broker with RocksDB queues is not modelled", file=store.root, hint=_LOOK)
    if any(True for _ in store.listing.of_kind(FileKind.BATCH_CONSUME_QUEUE)):
        raise StoreError("the start of a broker with batch queues is not modelled", file=store.root, hint=_LOOK)
    _require_log(store)
    settings = StartSettings.of(with_found_settings(store.config, store.listing))
    return Rehearsal(store.filesystem, settings, contents=contents)


def _require_log(store: Store) -> None:
    """Refuse a commit log that is a link to nothing: a rehearsal on an empty log would show every queue deleted."""
    for stranger in store.listing.strangers:
        place = store.filesystem.shown(stranger.path)
        if stranger.kind is Kind.SYMLINK and stranger.path == paths.COMMIT_LOG and not os.path.exists(place):
            raise StoreError(
                f"{stranger.path} is a symbolic link to nothing: is its volume mounted?",
                file=place,
                hint=f"findmnt --target {quote(place)}",
            )


def assumed(store: Store, outcome: StartOutcome) -> dict[str, object]:
    """Return the settings that were assumed by default although what the start creates depends on them."""
    created = (change.path for change in outcome.changes if change.action is Action.CREATE)
    return assumed_settings(with_found_settings(store.config, store.listing), created)


_LOOK = "rmqtool check STORE"
