"""Adds many messages to a store at once, all or none of them: they are staged in files beside the store, then put.

The messages are put into a clone beside the store, with the broker's lock held; if there is no store yet, into an empty
one. It replaces the store when it is complete and durable. So no reader ever sees the store with some of the messages.
Upstream has nothing like it.

A streaming query asks again for a batch if it was stopped before it noted that the batch is stored. So the store has a
file that names the last batch of each query. It changes together with the messages, and a batch that it names is not
stored again. The file also names the last record of the batch: a recovery can cut it off the log, and then the batch
is stored again.
"""

from __future__ import annotations

import json
import os
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
from rmqtool.errors import FileMissing, Refused, StoreError, WriteFailed
from rmqtool.files.filesystem import ReadableFileSystem, WritableFileSystem
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.files.publish import (
    NEW,
    ClonedFileSystem,
    JobDirectory,
    clone,
    held_place,
    make_durable,
    publish,
    require_replaceable,
)
from rmqtool.formats.commit_log import Message
from rmqtool.formats.topics import check_topic_name, is_allowed_to_send
from rmqtool.log.end import find_log_end, read_record
from rmqtool.store.config_files import add_topics, queue_counts
from rmqtool.store.listing import beneath
from rmqtool.store.open import SINK_BATCHES, Store, open_store
from rmqtool.store.queues import simple_queues

if TYPE_CHECKING:
    import pyarrow as pa


def is_new(root: str) -> bool:
    """Return whether a store can be made here: the path does not exist or is an empty directory."""
    return not os.path.lexists(root) or (os.path.isdir(root) and not os.listdir(root))


def require_ready(root: str) -> None:
    """Raise an error if a store cannot take messages now; a place where a new store can be made passes.

    It cannot if it is in use, was not closed, is a mount point, or is spread over several directories.
    """
    if is_new(root):
        return
    with open_store(root) as store:
        _require_fit(store)
        if store.is_live:
            with PosixWritableFileSystem(store.root) as files:
                files.lock().close()  # raises StoreInUse, which names the owner of the lock


@contextmanager
def replaced_store(root: str, topics: Mapping[str, int]) -> Iterator[MessageStore]:
    """Give the store at ``root``, open for puts. It replaces the old store at the end; on an error nothing is changed.

    A missing store is created, and missing ``topics`` with their numbers of queues. Other callers of this function wait
    meanwhile. A store that is open elsewhere raises StoreInUse.
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
    """Yield the store in ``files``, with ``topics`` added, open for puts; it is closed when the caller goes on."""
    add_topics(files, config.version, topics, SystemClock().now())
    with MessageStore.open(Setup(files, config)) as store:
        yield store


def _publish(new: str, root: str) -> None:
    # Durable first: after a power cut there is the old store or the whole new one.
    make_durable(new)
    publish(new, root)


def _require_fit(store: Store) -> None:
    """Raise for a store that was not closed, is a mount point, or is spread over several directories."""
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


# Queues of a new topic; as many as a client's producer asks for.
_DEFAULT_QUEUES = 4
# Batches that are put before their queues are built: larger passes of the dispatcher cost less for each record.
_DISPATCH = 8


class StagedFile(NamedTuple):
    """A staged file of messages, in the form of ``columns.outgoing``.

    ``queues`` has the highest queue id that the messages of each topic ask for, or -1.
    """

    path: str
    queues: dict[str, int]


@contextmanager
def staged_file(staging: JobDirectory, name: str) -> Iterator[StagingWriter]:
    """Give the writer of a new file; the file is removed again on an error."""
    with staging.new_file(name) as path, StagingWriter(path) as writer:
        yield writer


class StagingWriter:
    """Writes one staged file. It is created with the first batch, so a task without messages leaves no file."""

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
        """Append a batch of messages, and note the highest queue id that each topic asks for."""
        import pyarrow

        if self._writer is None:
            self._writer = pyarrow.ipc.new_file(self.path, batch.schema)
        self._writer.write_batch(batch)
        found = pyarrow.table([batch.column("topic"), batch.column("queue_id")], names=["topic", "queue"])
        for row in found.group_by("topic").aggregate([("queue", "max")]).to_pylist():
            self.queues[row["topic"]] = max(row["queue_max"], self.queues.get(row["topic"], -1))

    def file(self) -> StagedFile | None:
        """Return the file, or None if no message was written."""
        return StagedFile(self.path, self.queues) if self._writer is not None else None


class StreamBatch(NamedTuple):
    """A batch of a streaming query. The numbers of a query's batches rise."""

    query: str
    number: int


class _IsStored(Exception):
    """Ends an import whose batch the store already has."""


def import_staged(staging: JobDirectory, files: Sequence[StagedFile], batch: StreamBatch | None = None) -> int:
    """Put the staged messages into the store, file by file; return the number of messages.

    A ``batch`` that the store has is not stored again: then the result is 0. The staged files are removed, also after
    an error.
    """
    try:
        if not files or _has_batch_at(staging.beside, batch):
            return 0
        named: dict[str, int] = {}
        for file in files:
            for topic, queue in file.queues.items():
                named[topic] = max(queue, named.get(topic, -1))
        wanted = {topic: max(most + 1, _DEFAULT_QUEUES) for topic, most in named.items()}
        with suppress(_IsStored), replaced_store(staging.beside, wanted) as store:
            # Only with the lock held can no other process store it.
            if _has_batch_at(staging.beside, batch):
                raise _IsStored
            importing = _Import(store, named)
            for file in files:
                importing.take(file.path)
            if batch is not None:
                _note_batch(store.setup.files, batch, SystemClock().now(), importing.last_record())
            return importing.count
        return 0
    finally:
        staging.remove()


def _has_batch_at(root: str, batch: StreamBatch | None) -> bool:
    """Return whether the store has a batch. If it has, its broker may run already: nothing is written then."""
    if batch is None or is_new(root):
        return False
    # Another job may be replacing the store now; the file is read again when it has finished.
    with suppress(FileMissing):
        with PosixReadableFileSystem(root) as files:
            noted = _read_batches(files).get(batch.query)
        return noted is not None and batch.number <= noted["batch"] and _is_in_log(root, noted.get("last"))
    return False


def _is_in_log(root: str, last: Mapping[str, int] | None) -> bool:
    """Return whether the log still has the ``last`` record of a batch, or had it until retention deleted it.

    A record that cannot be read does not count: to store a batch twice is better than to lose it.
    """
    if last is None:
        return True
    with open_store(root) as store:
        log = store.commit_log
        if len(log) and last[_PLACE] < log.min_offset:
            return True
        found = read_record(log, last[_PLACE], verify=False)
        if found is None or _told(found) != last:
            return False
        # After the end of the log can be records that a recovery cut off.
        return last[_PLACE] < find_log_end(log, simple_queues(store.listing), dledger=store.is_dledger).physical_offset


_PLACE = "physicalOffset"
# A record has the values of these keys for itself: a cut log may have another one at the same place.
_OF_LAST = (_PLACE, "size", "bodyCRC", "storeTimestamp")
_VERSION = 1


def _told(record: Message) -> dict[str, int]:
    values = (record.physical_offset, record.total_size, record.body_crc, record.store_timestamp)
    return dict(zip(_OF_LAST, values, strict=True))


def _read_batches(files: ReadableFileSystem) -> dict[str, Any]:
    """Return the last batch of each query; raise StoreError for a file that does not tell."""
    if not files.exists(SINK_BATCHES):
        return {}
    with files.open_read(SINK_BATCHES) as file:
        data = file.pread_exactly(file.size(), 0)
    try:
        noted = json.loads(data)
        version = noted["version"]
        if version == _VERSION:
            return {str(query): _checked(told) for query, told in noted["queries"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{SINK_BATCHES} does not tell which batches of streaming queries the store has; nothing was stored",
            file=files.shown(SINK_BATCHES),
            hint="restore it from a backup; without it a batch that runs again is stored twice",
        ) from error
    raise StoreError(
        f"{SINK_BATCHES} has version {version}, and this rmqtool knows version {_VERSION}; nothing was stored",
        file=files.shown(SINK_BATCHES),
        hint="write with the newer rmqtool that wrote it",
    )


def _checked(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the batch of a query with its last record. Raises errors for other shapes."""
    found = {**told, "batch": int(told["batch"])}
    if "last" in told:
        found["last"] = {name: int(told["last"][name]) for name in _OF_LAST}
    return found


def _note_batch(files: WritableFileSystem, batch: StreamBatch, now: int, last: Message | None = None) -> None:
    """Note that the store has a batch, with its ``last`` record."""
    queries = _read_batches(files)
    queries[batch.query] = {"batch": batch.number, "storedAt": now}
    if last is not None:
        queries[batch.query]["last"] = _told(last)
    aside = f"{SINK_BATCHES}.tmp"
    with files.create(aside) as file:
        file.pwrite(json.dumps({"version": _VERSION, "queries": queries}, indent=1).encode(), 0)
        file.fsync()
    files.rename(aside, SINK_BATCHES)


class _Import:
    """Puts messages from staged files into a store; ``named`` has the highest queue id asked for, by topic."""

    def __init__(self, store: MessageStore, named: Mapping[str, int]) -> None:
        self.store = store
        self.count = 0
        self._queues = queue_counts(store.setup.files)
        # By topic, the queue of the next message that names no queue and has no sharding key.
        self._turns = dict.fromkeys(named, 0)
        self._undispatched = 0
        self._last_place = -1
        for topic, queue in named.items():
            self._require_sendable(topic)
            if queue >= self._queues[topic]:
                raise Refused(
                    f"topic {topic} has {self._queues[topic]} queues, and a message names queue {queue}",
                    hint=f"rmqtool topic STORE alter {topic}",
                )

    def _require_sendable(self, topic: str) -> None:
        """Refuse a topic to which no client could send with the store's version."""
        version = self.store.setup.config.version
        refusal = check_topic_name(topic, version.value)
        if refusal is None and not is_allowed_to_send(topic, version.value):
            refusal = f"topic {topic} is the broker's own, and clients cannot send to it"
        if refusal is not None:
            raise Refused(refusal, hint="leave out its messages: filter by topic")

    def take(self, path: str) -> None:
        """Put the messages of a staged file. It is mapped, so that only one batch at a time takes memory."""
        import pyarrow

        with pyarrow.memory_map(path) as source, pyarrow.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                self._put(reader.get_batch(number))

    def _put(self, batch: pa.RecordBatch) -> None:
        """Put a batch; the first message that is refused ends the import, before anything is published."""
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
        if len(columns):
            self._last_place = int(put.physical_offsets.max())
        self._undispatched += 1
        if self._undispatched == _DISPATCH:
            self.store.dispatch_now()
            self._undispatched = 0

    def last_record(self) -> Message | None:
        """Return the record of the last message that was put; None without one."""
        return read_record(self.store.commit_log.segments, self._last_place) if self.count else None

    def _queue_ids(self, batch: pa.RecordBatch, topics: Sequence[str]) -> Any:
        """Return the queue of each message: the one it names, the one of its sharding key, or each queue in turn."""
        import numpy as np

        found = batch.column("queue_id").to_numpy().copy()
        hashes = batch.column("hash")
        for row in np.flatnonzero(found < 0).tolist():
            topic, hashed = topics[row], hashes[row].as_py()
            if hashed is None:
                hashed = self._turns[topic]
                self._turns[topic] += 1
            # As a client's SelectMessageQueueByHash.
            found[row] = abs(hashed) % self._queues[topic]
        return found

    def _refusal(self, columns: MessageColumns, row: int, status: PutStatus) -> StoreError | WriteFailed:
        """Return the error for a refused message: StoreError if another message would be stored, else WriteFailed."""
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
