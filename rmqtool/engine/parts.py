"""Builds the parts of an open store and connects them.

upstream: the constructor of DefaultMessageStore.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rmqtool.config import FlushDiskType, StoreConfig, Version
from rmqtool.engine.clock import Clock, SystemClock
from rmqtool.engine.commit_log import CommitLog, LogDirectory, Writer
from rmqtool.engine.consume_queue import BatchConsumeQueue, ConsumeQueues, DerivedFiles, MeantGap
from rmqtool.engine.dispatch import Dispatcher, DispatchOptions, read_bit_maps
from rmqtool.engine.flush import Checkpoint, Flusher
from rmqtool.engine.health import Health
from rmqtool.engine.index_file import IndexFileWriter, IndexService
from rmqtool.engine.load import StoreState
from rmqtool.engine.message import Encoder, QueueOffsets, store_host
from rmqtool.engine.put import Intake
from rmqtool.engine.reader import LiveDatabaseQueues
from rmqtool.engine.retention import DiskSpace
from rmqtool.errors import StoreError
from rmqtool.files.filesystem import ReadableFileSystem, WritableFileSystem, join
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import rules_of
from rmqtool.formats.paths import INDEX, FileKind
from rmqtool.formats.topics import parse_delay_levels
from rmqtool.store.config_files import read_batch_topics
from rmqtool.store.index_files import read_header
from rmqtool.store.listing import beneath


@dataclass(frozen=True)
class Setup:
    """Everything that a store is opened with.

    ``directories`` are those of the commit log. If empty, they come from the settings: below the root on ``files``,
    elsewhere on the machine's file system. ``read_only_directories`` come in addition to those of the settings.

    ``batch_topics`` and ``bit_map`` (the bloom bits of a message, for queue extensions) are read from the store if not
    given. ``meant_gap`` allows queue offsets to jump where messages were left out. With ``expires`` the store removes
    old segments by itself, as a broker does.
    """

    files: WritableFileSystem
    config: StoreConfig
    clock: Clock = field(default_factory=SystemClock)
    directories: Sequence[LogDirectory] = ()
    read_only_directories: Sequence[tuple[str, ReadableFileSystem]] = ()
    batch_topics: frozenset[str] | None = None
    bit_map: Callable[[Message], bytes] | None = None
    meant_gap: MeantGap = field(default_factory=MeantGap)
    expires: bool = False

    @property
    def is_sync(self) -> bool:
        """Whether a put is acknowledged only when it is durable."""
        return self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def has_pool(self) -> bool:
        """Whether puts go to memory first. 4.9 does that only with asynchronous flush."""
        wanted = self.config.transient_store_pool_enable
        return wanted and not (self.is_sync and self.config.version is Version.V4_9)


def log_directories(setup: Setup) -> tuple[LogDirectory, ...]:
    """Return the directories of the commit log; raise StoreError if one outside of the store is missing."""
    if setup.directories:
        return tuple(setup.directories)
    found = []
    for directory in setup.config.commit_log_dirs:
        inside = beneath(setup.config.root_dir, directory)
        if inside is None and not os.path.isdir(directory):
            raise StoreError(
                "the directory of the commit log is missing", file=directory, hint="is its volume mounted?"
            )
        found.append(
            LogDirectory(PosixWritableFileSystem(directory), "")
            if inside is None
            else LogDirectory(setup.files, inside)
        )
    return tuple(found)


def read_only_directories(setup: Setup) -> tuple[tuple[str, ReadableFileSystem], ...]:
    """Return the directories of the commit log that are never written, without missing ones outside of the store."""
    found = list(setup.read_only_directories)
    for directory in setup.config.read_only_commit_log_dirs:
        inside = beneath(setup.config.root_dir, directory)
        if inside is not None:
            found.append((inside, setup.files))
        elif os.path.isdir(directory):
            found.append(("", PosixReadableFileSystem(directory)))
    return tuple(found)


@dataclass(kw_only=True)
class Engine:
    """The parts of one open store, connected by ``build``."""

    health: Health
    disks: DiskSpace
    log: CommitLog
    offsets: QueueOffsets
    encoder: Encoder
    intake: Intake
    writer: Writer
    checkpoint: Checkpoint
    flusher: Flusher
    dispatcher: Dispatcher

    def close_files(self) -> None:
        """Close all files; nothing is written, so a failed store stays as it is on disk."""
        self.log.close()
        self.dispatcher.close()
        self.dispatcher.queues.close()
        self.dispatcher.index.close()
        self.checkpoint.close()


def build(setup: Setup, state: StoreState, directories: Sequence[LogDirectory]) -> Engine:
    """Build the parts of a store that is on disk as ``state`` says, and connect them."""
    config, clock, health = setup.config, setup.clock, Health()
    disks = DiskSpace(directories, config, health)
    log = CommitLog(directories, state.segment_size, state.segments, state.tail, lambda: disks.full_directories)
    offsets = QueueOffsets()
    batch_topics = _batch_topics(setup, state)
    encoder = Encoder(config, store_host(config, state.store_host), log.largest_record, batch_topics)
    writer = Writer(
        log,
        offsets,
        health,
        clock,
        commit_at_once=not setup.has_pool,
        waits_for_flush=setup.is_sync,
        encoder=encoder,
    )
    checkpoint = Checkpoint(setup.files)
    dispatcher = Dispatcher(
        log,
        _queues(setup, state, log),
        _index(setup, state),
        health,
        _dispatch_options(setup, batch_topics),
    )
    dispatcher.restart_at(state.dispatched)
    return Engine(
        health=health,
        disks=disks,
        log=log,
        offsets=offsets,
        encoder=encoder,
        intake=Intake(encoder),
        writer=writer,
        checkpoint=checkpoint,
        flusher=Flusher(log, writer, checkpoint, health, clock, config),
        dispatcher=dispatcher,
    )


def _batch_topics(setup: Setup, state: StoreState) -> frozenset[str]:
    """Return the topics with batch queues: the given ones, else those of the topics file and of the existing queues."""
    if setup.batch_topics is not None:
        return setup.batch_topics
    return read_batch_topics(setup.files) | {topic for topic, _ in state.batch_queues}


def _dispatch_options(setup: Setup, batch_topics: frozenset[str]) -> DispatchOptions:
    """Return the settings of the dispatch; ``Setup.bit_map`` wins over the filters of the store."""
    config = setup.config
    rules = rules_of(
        config.version.value,
        parse_delay_levels(config.message_delay_level),
        multi_dispatch=config.enable_multi_dispatch,
        lmq=config.enable_lmq,
    )
    return DispatchOptions(
        rules=rules,
        batch_topics=batch_topics,
        with_index=config.message_index_enable and config.index_file_write_enable,
        with_ext=config.enable_consume_queue_ext,
        waits_for_flush=setup.is_sync,
        bit_map=setup.bit_map or _bit_map(setup),
    )


def _bit_map(setup: Setup) -> Callable[[Message], bytes]:
    """Return the function that computes bit maps; they are empty unless the broker is set to compute them."""
    if setup.config.enable_calc_filter_bit_map:
        return read_bit_maps(setup.files, setup.config.version)
    return lambda _message: b""


def _queues(setup: Setup, state: StoreState, log: CommitLog) -> ConsumeQueues:
    """Return the queues; each continues at the end that ``state`` has for it."""
    queues = ConsumeQueues(
        DerivedFiles(setup.files),
        state.queue_sizes,
        with_ext=setup.config.enable_consume_queue_ext,
        meant_gap=setup.meant_gap,
        rows=state.rows,
        in_files=state.in_files,
    )
    if state.rows is not None and not state.in_files:
        queues.database = LiveDatabaseQueues(queues.simple, state.rows.copy.rows, log)
    for key, end in state.queues.items():
        queues.simple[key] = queues.restored(key, end.max_offset, end.max_physic_offset, end.ext_end)
    for key, batch_end in state.batch_queues.items():
        files = queues.files_of(FileKind.BATCH_CONSUME_QUEUE, key)
        queues.batch[key] = BatchConsumeQueue(key, files, *batch_end)
    return queues


def _index(setup: Setup, state: StoreState) -> IndexService:
    """Return the index, with its last file, if it has one, opened for more entries."""
    service = IndexService(setup.files, state.index_geometry, setup.clock)
    if state.index_names:
        file = setup.files.open_write(join(INDEX, state.index_names[-1]))
        header = read_header(file)
        assert header is not None, "the file was opened as an index file before"
        service.restore(state.index_names, IndexFileWriter(file, state.index_geometry, header))
    return service
