"""A start, rehearsed: the model of a broker runs over an overlay of a store, and the difference is the answer."""

from __future__ import annotations

from typing import Literal

from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.storage.filesystem import Closable, ReadableFileSystem
from rmqtool.storage.overlay import Change, OverlayFileSystem
from rmqtool.upstream.files import StoreFiles, StoreView
from rmqtool.upstream.intact import count_unreachable, find_lost
from rmqtool.upstream.outcome import QueueOutcome, StartOutcome, merge_changes
from rmqtool.upstream.settings import StartSettings
from rmqtool.upstream.startup import MessageStore

ROCKSDB_DIRECTORY = "rocksdbstore"


class Rehearsal(Closable):
    """One start of one broker on one store, which is never touched."""

    def __init__(self, base: ReadableFileSystem, settings: StartSettings) -> None:
        self._base = StoreView(base)
        self._settings = settings
        self.overlay = OverlayFileSystem(base)
        self._files = StoreFiles(self.overlay)
        self.store = MessageStore(self._files, settings)

    def close(self) -> None:
        """Forget every change and close what is open; what lies beneath belongs to the caller."""
        self._base.close()
        self._files.close()
        self.overlay.close()

    def run(self) -> StartOutcome:
        """Construct, load, start and stop; say what became of the store."""
        store = self.store
        started: bool | Literal["hangs"] | None = None
        constructed = store.construct()
        loads = constructed and store.load()
        after_load = self._changes()
        if loads:
            started = store.start()
        queues = self._queues() if loads else None
        unreachable = count_unreachable(store) if started is True else None
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
            queues=queues,
            lost=tuple(find_lost(self._base, store, loads)),
            unreachable=unreachable,
            backlog=store.backlog,
            config=(),
            log_lines=tuple(store.log.templates),
        )

    def _changes(self) -> list[Change]:
        return [change for change in self.overlay.changes() if not change.path.startswith(ROCKSDB_DIRECTORY + "/")]

    def _queues(self) -> tuple[QueueOutcome, ...]:
        found = []
        for (topic, queue_id), queue in sorted(self.store.queues.queues.items()):
            if topic == SCHEDULE_TOPIC and queue.max_offset == 0:
                continue  # 4.9 makes one for each delay level; nothing was ever in it
            before = self.store.loaded_max_offsets.get((topic, queue_id))
            found.append(QueueOutcome(topic, queue_id, queue.min_offset, queue.max_offset, before))
        return tuple(found)
