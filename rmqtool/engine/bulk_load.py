"""Many messages from files that were staged beside a store, put into it as a whole or not at all.

A store that takes many messages as a whole or not at all: nobody ever sees it with some of them.

Upstream has nothing like it. The work is done on a clone beside the store, with the broker's lock held; see
``storage.replacing``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.clock import SystemClock
from rmqtool.engine.load import create_store, require_closed
from rmqtool.engine.message import PutStatus
from rmqtool.engine.parts import Setup
from rmqtool.engine.put_columns import MessageColumns
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Refused, StoreError, WriteFailed
from rmqtool.files.failures import write_failed
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.files.publish import (
    NEW,
    ClonedFileSystem,
    clone,
    held_place,
    make_durable,
    place_beside,
    publish,
    require_replaceable,
)
from rmqtool.formats.topics import check_topic_name, is_allowed_to_send
from rmqtool.store.config_files import add_topics, queue_counts
from rmqtool.store.listing import beneath
from rmqtool.store.open import Store, open_store

if TYPE_CHECKING:
    import pyarrow as pa


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
                f"the log of this store is outside of it, in {directory}: the two cannot be replaced together",
                file=root,
                hint="write to a new store in another directory",
            )
    require_closed(store.listing)


# Queues of a topic that nobody has created: what a client asks for.
_DEFAULT_QUEUES = 4
# So many batches are put before their queues are built.
_DISPATCH = 8


class StagedFile(NamedTuple):
    """Messages in a file, as ``bulk.outgoing`` makes them; the greatest queue that is named of each topic, or -1."""

    path: str
    queues: dict[str, int]


class Staging:
    """Where one job keeps files beside a store. A plain value that goes to other processes."""

    def __init__(self, root: str, job: str) -> None:
        self.root = os.path.realpath(root)
        self.directory = os.path.join(place_beside(root), f"job-{job}")

    @contextmanager
    def opened(self, name: str) -> Iterator[StagingWriter]:
        """Give a new file; it is gone again if this fails."""
        path = os.path.join(self.directory, name)
        try:
            _make(self.directory)
            with StagingWriter(path) as writer:
                yield writer
        except BaseException as error:
            with suppress(OSError):
                os.unlink(path)
            self._remove_empty()
            if isinstance(error, OSError):
                raise write_failed("write to", path, error) from error
            raise

    def remove(self) -> None:
        """Remove all that the job has staged."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._remove_empty()

    def _remove_empty(self) -> None:
        """Remove what holds nothing: the last one here does, be it a task whose job is over."""
        with suppress(OSError):
            os.rmdir(self.directory)
        with suppress(OSError):
            os.rmdir(os.path.dirname(self.directory))


def _make(directory: str) -> None:
    while True:
        try:
            os.makedirs(directory, exist_ok=True)
        except FileNotFoundError:
            continue  # another job, the last one here, removed the place between two steps
        return


class StagingWriter:
    """Writes messages into a staged file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.queues: dict[str, int] = {}
        self._writer: Any = None

    def __enter__(self) -> StagingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of messages."""
        import pyarrow

        if self._writer is None:
            self._writer = pyarrow.ipc.new_file(self.path, batch.schema)
        self._writer.write_batch(batch)
        found = pyarrow.table([batch.column("topic"), batch.column("queue_id")], names=["topic", "queue"])
        for row in found.group_by("topic").aggregate([("queue", "max")]).to_pylist():
            self.queues[row["topic"]] = max(row["queue_max"], self.queues.get(row["topic"], -1))

    def file(self) -> StagedFile | None:
        """Return what was written, None if that is nothing."""
        return StagedFile(self.path, self.queues) if self._writer is not None else None


def import_staged(staging: Staging, files: Sequence[StagedFile]) -> int:
    """Put what was staged into the store, file after file, and remove it; return how many messages that were."""
    try:
        if not files:
            return 0
        named: dict[str, int] = {}
        for file in files:
            for topic, queue in file.queues.items():
                named[topic] = max(queue, named.get(topic, -1))
        wanted = {topic: max(most + 1, _DEFAULT_QUEUES) for topic, most in named.items()}
        with replaced_store(staging.root, wanted) as store:
            importing = _Import(store, named)
            for file in files:
                importing.take(file.path)
            return importing.count
    finally:
        staging.remove()


class _Import:
    """Messages on their way from staged files into a store."""

    def __init__(self, store: MessageStore, named: Mapping[str, int]) -> None:
        self.store = store
        self.count = 0
        self._queues = queue_counts(store.setup.files)
        self._turns = dict.fromkeys(named, 0)
        self._undispatched = 0
        for topic, queue in named.items():
            self._require_sendable(topic)
            if queue >= self._queues[topic]:
                raise Refused(
                    f"topic {topic} has {self._queues[topic]} queues, and a message names queue {queue}",
                    hint=f"rmqtool topic STORE alter {topic}",
                )

    def _require_sendable(self, topic: str) -> None:
        version = self.store.setup.config.version
        refusal = check_topic_name(topic, version.value)
        if refusal is None and not is_allowed_to_send(topic, version.value):
            refusal = f"topic {topic} is the broker's own, and clients cannot send to it"
        if refusal is not None:
            raise Refused(refusal, hint="leave out its messages: filter by topic")

    def take(self, path: str) -> None:
        """Put the messages of a file."""
        import pyarrow

        with pyarrow.memory_map(path) as source, pyarrow.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                self._put(reader.get_batch(number))

    def _put(self, batch: pa.RecordBatch) -> None:
        topics = batch.column("topic").to_pylist()
        columns = MessageColumns(
            topics,
            batch.column("body").to_pylist(),
            batch.column("text").to_pylist(),
            self._queue_ids(batch, topics),
            batch.column("flag").to_numpy(),
            born_timestamps=batch.column("born").fill_null(self.store.setup.clock.now()).to_numpy(),
        )
        put = self.store.put_columns(columns)
        for row, status in put.refused.items():
            raise self._refusal(columns, row, status)
        self.count += len(columns)
        self._undispatched += 1
        if self._undispatched == _DISPATCH:
            self.store.dispatch_now()
            self._undispatched = 0

    def _queue_ids(self, batch: pa.RecordBatch, topics: Sequence[str]) -> Any:
        """Return the queues: the given one, the one of the sharding key, or one after the other."""
        import numpy as np

        found = batch.column("queue_id").to_numpy().copy()
        hashes = batch.column("hash")
        for row in np.flatnonzero(found < 0).tolist():
            topic, hashed = topics[row], hashes[row].as_py()
            if hashed is None:
                hashed = self._turns[topic]
                self._turns[topic] += 1
            found[row] = abs(hashed) % self._queues[topic]
        return found

    def _refusal(self, columns: MessageColumns, row: int, status: PutStatus) -> StoreError | WriteFailed:
        message = columns.message(row)
        text = f"{status}: message {self.count + row} of topic {message.topic}, {len(message.body or b'')} bytes"
        if status.is_about_message:
            return StoreError(
                f"{text}, is not allowed in this store; nothing was stored",
                hint="leave such messages out: filter by topic or size",
            )
        return WriteFailed(
            f"{text}, could not be stored; nothing was stored", hint="check the store: rmqtool check STORE"
        )
