"""A store that takes many messages as a whole or not at all: nobody ever sees it with some of them.

Upstream has nothing like it. The work is done on a clone beside the store, with the broker's lock held; see
``storage.replacing``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.building import Setup
from rmqtool.engine.clock import SystemClock
from rmqtool.engine.creation import create_store
from rmqtool.engine.store import MessageStore
from rmqtool.engine.stored_config import add_topics
from rmqtool.errors import Refused
from rmqtool.formats.paths import ABORT
from rmqtool.storage.discovery import beneath
from rmqtool.storage.posix_write import PosixWritableFileSystem
from rmqtool.storage.replacing import (
    NEW,
    ClonedFileSystem,
    clone,
    held_place,
    make_durable,
    publish,
    require_replaceable,
)
from rmqtool.storage.store import Store, open_store


def is_new(root: str) -> bool:
    """Return whether nothing bears the name, or an empty directory does."""
    return not os.path.lexists(root) or (os.path.isdir(root) and not os.listdir(root))


def require_ready(root: str) -> None:
    """Raise where a store cannot take messages now: it is in use, was not closed, or lies in several places."""
    if is_new(root):
        return
    with open_store(root) as store:
        _require_fit(store)
        if store.is_live:
            with PosixWritableFileSystem(store.root) as files:
                files.lock().close()  # says who holds it


@contextmanager
def replaced_store(root: str, topics: Mapping[str, int]) -> Iterator[MessageStore]:
    """Give the store at ``root`` open for puts; they are all there afterwards, or the store is as it was.

    A store that is not there yet is made. ``topics`` that it does not know get so many queues. Others wait meanwhile.
    """
    root = os.path.realpath(root)
    with held_place(root) as place:
        new = os.path.join(place, NEW)
        if is_new(root):
            config = StoreConfig.default(Version.V5_3).with_assignments([f"storePathRootDir={root}"])
            os.mkdir(new)
            with PosixWritableFileSystem(new) as files:
                create_store(files, config)
                yield from _filled(files, config, topics)
            _publish(new, root)
            return
        with PosixWritableFileSystem(root) as original, original.lock():
            with open_store(root) as found:
                _require_fit(found)
                config = found.config
            clone(root, new)
            with ClonedFileSystem(new) as files:
                yield from _filled(files, config, topics)
            _publish(new, root)


def _filled(files: PosixWritableFileSystem, config: StoreConfig, topics: Mapping[str, int]) -> Iterator[MessageStore]:
    add_topics(files, config.version, topics, SystemClock().now())
    with MessageStore.open(Setup(files, config)) as store:
        yield store


def _publish(new: str, root: str) -> None:
    make_durable(new)
    publish(new, root)


def _require_fit(store: Store) -> None:
    """Raise for a store that was not closed, or that lies in several places."""
    root, config = store.root, store.config
    require_replaceable(root)
    for directory in (*config.commit_log_dirs, *config.read_only_commit_log_dirs):
        if beneath(root, directory) is None:
            raise Refused(
                f"the log of this store lies outside of it, in {directory}: both cannot be changed as a whole",
                file=root,
                hint="write into a new store: another directory",
            )
    if store.listing.find(ABORT) is not None:
        raise Refused("the store was not closed: abort is there", file=root, hint="rmqtool recover STORE --apply")
