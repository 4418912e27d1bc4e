"""The log of a store by the store's path: for readers that have no other business with stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rmqtool.formats.commit_log import Message
from rmqtool.formats.paths import FileKind
from rmqtool.scan.logs import LogFile, logs_of
from rmqtool.scan.queue_units import QueueFiles, queue_files_of
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.log_end import LogEnd, find_log_end
from rmqtool.storage.store import Store, open_store
from rmqtool.storage.walk import SegmentWalk


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


@contextmanager
def _opened(path: str) -> Iterator[Store]:
    store = open_store(path)
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
            broker=store.config.broker_name if "brokerName" in store.config.origins else None,
            end=find_log_end(store.commit_log, queues, dledger=store.is_dledger),
        )


def read_queue_files(path: str) -> list[QueueFiles]:
    """Return the queues that the store at ``path`` keeps in files."""
    with _opened(path) as store:
        return queue_files_of(store)


def read_message(log: StoreLog, physical_offset: int) -> Message | None:
    """Return the sound message at a place of a log, None where none stands."""
    for file in log.files:
        if file.base_offset <= physical_offset < file.end_offset:
            with file.open() as opened:
                what = SegmentWalk(opened, file.base_offset).place_at(physical_offset - file.base_offset).what
            return what if isinstance(what, Message) else None
    return None
