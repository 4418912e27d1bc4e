"""The directories that a repair works on: the store's own, and those of a commit log elsewhere.

Each has an overlay. A repair is worked out in the overlays before a byte of the store is changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rmqtool.audit.due import Inflating, Wanted
from rmqtool.audit.log_pass import LogExtract
from rmqtool.engine.commit_log import LogDirectory
from rmqtool.engine.parts import Setup
from rmqtool.files.filesystem import Closable, Kind, ReadableFileSystem, WritableFileSystem, iter_tree
from rmqtool.files.kept_changes import KeptChanges, KeptOverlay
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats.paths import LOCK, FileKind
from rmqtool.store.config_files import read_batch_topics
from rmqtool.store.listing import beneath, list_store
from rmqtool.store.open import Store

_DIGEST_SIZE = 16


@dataclass(frozen=True)
class Area:
    """One directory that a repair may change; ``root`` is absolute."""

    root: str
    base: ReadableFileSystem
    overlay: OverlayFileSystem
    is_store: bool

    def shown(self, path: str) -> str:
        """Return a path for findings: relative to the store, or absolute in another area."""
        return path if self.is_store else os.path.join(self.root, path)


class Areas(Closable):
    """All areas of one store; the first is the store itself. Closing them leaves the store open.

    With ``kept_in`` they begin with the changes that are kept in that directory, and go on to keep theirs there.
    """

    def __init__(self, store: Store, kept_in: WritableFileSystem | None = None) -> None:
        self.store = store
        self._overlay_over: type[OverlayFileSystem] = OverlayFileSystem if kept_in is None else KeptOverlay
        overlay = self._overlay_over(store.filesystem)
        self._extract: LogExtract | None = None
        self.all = [Area(os.path.realpath(store.root), store.filesystem, overlay, is_store=True)]
        self.log_directories = self._log_directories()
        # Directories that are only read. None is the file system of the store.
        self._read_only = list(self._open_read_only())
        overlays = [one.overlay for one in self.all if isinstance(one.overlay, KeptOverlay)]
        self._kept = None if kept_in is None else KeptChanges(kept_in, overlays)

    def _log_directories(self) -> list[LogDirectory]:
        store, overlay = self.store, self.main.overlay
        found = []
        for directory in store.config.commit_log_dirs:
            inside = beneath(store.root, directory)
            if inside is not None:
                found.append(LogDirectory(overlay, inside))
            elif os.path.isdir(directory):
                found.append(LogDirectory(self._open_elsewhere(os.path.realpath(directory)), ""))
        if not any(directory.filesystem.exists(directory.path) for directory in found):
            # No setting tells where the log is, so it is where its files were found.
            there = [LogDirectory(overlay, path) for path in store.listing.log_directories if overlay.exists(path)]
            return there or found
        return found

    def _open_elsewhere(self, root: str) -> OverlayFileSystem:
        base = PosixReadableFileSystem(root)
        self.all.append(Area(root, base, self._overlay_over(base), is_store=False))
        return self.all[-1].overlay

    def _open_read_only(self) -> Iterator[tuple[str, ReadableFileSystem | None]]:
        for directory in self.store.config.read_only_commit_log_dirs:
            inside = beneath(self.store.root, directory)
            if inside is not None:
                yield inside, None
            elif os.path.isdir(directory):
                yield "", PosixReadableFileSystem(directory)

    @property
    def left_out(self) -> str | None:
        """Return the sentence on changes that were kept and are lost now; None without."""
        return None if self._kept is None else self._kept.left_out

    @property
    def main(self) -> Area:
        """The store's own directory."""
        return self.all[0]

    @property
    def extract(self) -> LogExtract:
        """The batches of the log, which is read once, even if the overlays are compared with it several times."""
        if self._extract is None:
            listing = self.store.listing
            topics = read_batch_topics(self.store.filesystem)
            topics |= {queue.topic for queue in listing.queues(FileKind.BATCH_CONSUME_QUEUE)}
            rules = self.store.dispatch_rules
            wanted = Wanted(rules, topics, Inflating.HEADS, tag_keys=rules.tag_entries)
            entries = frozenset(segment.path for segment in listing.dledger_data())
            self._extract = LogExtract(wanted, entries)
        return self._extract

    def setup(self) -> Setup:
        """Return the setup of the engine's recovery, with the overlays."""
        return Setup(self.main.overlay, self.store.config, directories=self.log_directories)

    def view(self, overlays: Sequence[OverlayFileSystem] | None = None) -> Store:
        """Return the store as it is in the overlays, or in other ones over the same areas, for reading."""
        chosen = [area.overlay for area in self.all] if overlays is None else list(overlays)
        by_own = {id(area.overlay): one for area, one in zip(self.all, chosen, strict=True)}
        where: list[tuple[str, ReadableFileSystem]] = [
            (directory.path, by_own[id(directory.filesystem)]) for directory in self.log_directories
        ]
        where += [(path, chosen[0] if files is None else files) for path, files in self._read_only]
        store = self.store
        listing = list_store(chosen[0], where)
        return Store(store.root, chosen[0], store.config, listing, store.version, store.version_reason)

    def state(self) -> str:
        """Return a digest of names, sizes and times. The lock is left out, because taking it may touch the file."""
        found = [[number, *row] for number, area in enumerate(self.all) for row in _rows(area.base)]
        return hashlib.blake2b(json.dumps(found).encode(), digest_size=_DIGEST_SIZE).hexdigest()

    def close(self) -> None:
        """Drop every change."""
        if self._kept is not None:
            self._kept.close()
        if self._extract is not None:
            self._extract.close()
        for area in self.all:
            area.overlay.close()
            if not area.is_store:
                area.base.close()
        for _, files in self._read_only:
            if files is not None:
                files.close()

    def __enter__(self) -> Self:
        return self


def _rows(files: ReadableFileSystem) -> list[tuple[str, str, int, int]]:
    found = []
    for path, kind in iter_tree(files):
        status = files.find_stat(path)
        if path != LOCK and status is not None:
            is_file = kind is Kind.FILE
            found.append((path, kind.value, status.size if is_file else 0, status.mtime_ns if is_file else 0))
    return found
