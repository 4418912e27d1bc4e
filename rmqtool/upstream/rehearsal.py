"""A start, rehearsed: the model of a broker runs over an overlay of a store, and the difference is the answer."""

from __future__ import annotations

from rmqtool.config import Version
from rmqtool.formats import paths
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.storage.filesystem import Closable, ReadableFileSystem
from rmqtool.storage.overlay import Change, OverlayFileSystem
from rmqtool.upstream.config_load import ConfigLoad, load_config
from rmqtool.upstream.files import StoreFiles, StoreView
from rmqtool.upstream.intact import count_unreachable, find_lost
from rmqtool.upstream.outcome import QueueOutcome, StartOutcome, merge_changes
from rmqtool.upstream.service_files import wipe_consumer_offsets
from rmqtool.upstream.settings import StartSettings
from rmqtool.upstream.startup import MessageStore


class Rehearsal(Closable):
    """One start of one broker on one store, which is never touched.

    Without ``contents`` the index files of the overlay are not those that the broker would leave; the outcome is.
    """

    def __init__(self, base: ReadableFileSystem, settings: StartSettings, *, contents: bool = True) -> None:
        self._base = StoreView(base)
        self._settings = settings
        self.overlay = OverlayFileSystem(base)
        self._files = StoreFiles(self.overlay)
        self.store = MessageStore(self._files, settings, contents=contents)

    def close(self) -> None:
        """Forget every change and close what is open; what lies beneath belongs to the caller."""
        self._base.close()
        self._files.close()
        self.overlay.close()

    def run(self) -> StartOutcome:
        """Load the config files, construct, load, start and stop the store; say what became of it."""
        config = load_config(self._base, self._settings.version)
        if config.unreadable is not None:
            return self._refused_for_config(config)
        store = self.store
        constructed = store.construct()
        loads = constructed and store.load()
        after_load = self._changes()
        started = store.start() if loads else None
        unreachable = count_unreachable(store) if loads else None
        if constructed:
            store.shutdown(started)
        mapped = store.commit_log.mapped
        return StartOutcome(
            version=self._settings.version,
            clean=store.clean,
            loads=loads,
            starts=started or False,
            reason=store.reason,
            min_physical_offset=mapped.min_offset if constructed else None,
            max_physical_offset=mapped.max_offset if loads else None,
            changes=merge_changes(after_load, self._changes()),
            queues=self._queues() if loads else None,
            lost=tuple(find_lost(self._base, store, loads)),
            unreachable=unreachable,
            config=config.files,
            log_lines=tuple(store.log.templates),
        )

    def _refused_for_config(self, config: ConfigLoad) -> StartOutcome:
        """Return what becomes of a store whose broker ends before it has constructed it."""
        if self._settings.version is Version.V4_9:
            # upstream: ``BrokerStartup`` calls shutdown(), and that persists offsets that were never loaded.
            wipe_consumer_offsets(self._files)
        return StartOutcome(
            version=self._settings.version,
            clean=self.store.clean,
            reason=f"neither {config.unreadable} nor its .bak parses",
            changes=merge_changes([], self._changes()),
            config=config.files,
        )

    def _changes(self) -> list[Change]:
        own = paths.ROCKSDB_STORE + "/"
        return [change for change in self.overlay.changes() if not change.path.startswith(own)]

    def _queues(self) -> tuple[QueueOutcome, ...]:
        found = []
        for (topic, queue_id), queue in sorted(self.store.queues.queues.items()):
            if topic == SCHEDULE_TOPIC and queue.max_offset == 0:
                continue  # 4.9 makes one for each delay level; nothing was ever in it
            before = self.store.loaded_max_offsets.get((topic, queue_id))
            found.append(QueueOutcome(topic, queue_id, queue.min_offset, queue.max_offset, before))
        return tuple(found)
