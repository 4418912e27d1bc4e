"""The log of a store by the store's path: for readers that have no other business with stores."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rmqtool.errors import UsageError
from rmqtool.formats.paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT, FileKind
from rmqtool.scan.logs import LogDirectory, LogFile, directories_of, logs_of
from rmqtool.scan.queue_units import QueueFiles, queue_files_of
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.log_end import LogEnd, find_log_end
from rmqtool.storage.store import Store, open_store

# What a store's directory is mostly called; the one above it tells more.
_USUAL_NAME = "store"
_QUEUES = (CONSUME_QUEUE, CONSUME_QUEUE_EXT)


class StoreLog(NamedTuple):
    """A store's log: its files, the queues that lead into it, whether a broker is writing it, and the broker's name.

    The name is None where the store's settings have none.
    """

    root: str
    files: list[LogFile]
    queues: list[QueueFiles]
    live: bool
    broker: str | None
    end: LogEnd


class StoreDirectories(NamedTuple):
    """Where a store's log lies, files of it that are yet to be made too, and its broker's name, as in ``StoreLog``."""

    root: str
    broker: str | None
    directories: list[LogDirectory]


@contextmanager
def _opened(path: str, without: Collection[str] = ()) -> Iterator[Store]:
    store = open_store(path, without=without)
    try:
        yield store
    finally:
        store.close()


def read_store_log(path: str) -> StoreLog:
    """Look at the store at ``path``: its files, and where its last sound record ends at this moment."""
    with _opened(path) as store:
        queues = [ConsumeQueueFiles(*item) for item in store.listing.queues(FileKind.CONSUME_QUEUE).items()]
        return StoreLog(
            root=store.root,
            files=logs_of(store),
            queues=queue_files_of(store),
            live=store.is_live,
            broker=_broker_name(store),
            end=find_log_end(store.commit_log, queues, dledger=store.is_dledger),
        )


def read_store_directories(path: str) -> StoreDirectories:
    """Look where the log of the store at ``path`` lies, and not at thousands of queues beside it."""
    with _opened(path, _QUEUES) as store:
        return StoreDirectories(store.root, _broker_name(store), directories_of(store))


def log_up_to(store: StoreDirectories, files: list[LogFile], end: int, queues: list[QueueFiles]) -> StoreLog:
    """Return the log of a store that may be being written, as it is up to the end of a settled record."""
    return StoreLog(store.root, files, queues, live=True, broker=store.broker, end=LogEnd(end, None))


def broker_names(stores: Sequence[StoreLog] | Sequence[StoreDirectories]) -> list[str]:
    """Return a name for each store's broker, no two the same: its own, else its directory's, else its whole path."""
    roots = [store.root for store in stores]
    names = [store.broker or _directory_name(store.root) for store in stores]
    often = Counter(names)
    names = [name if often[name] == 1 else root for name, root in zip(names, roots, strict=True)]
    for root, times in Counter(roots).items():
        if times > 1:
            raise UsageError(
                f"{root} is named {times} times: each message would be counted as often", hint="name it once"
            )
    return names


def _directory_name(root: str) -> str:
    above, name = os.path.split(os.path.abspath(root))
    return os.path.basename(above) or name if name == _USUAL_NAME else name


def _broker_name(store: Store) -> str | None:
    return store.config.broker_name if "brokerName" in store.config.origins else None


def read_queue_files(path: str) -> list[QueueFiles]:
    """Return the queues that the store at ``path`` keeps in files."""
    with _opened(path) as store:
        return queue_files_of(store)
