"""A store at a glance, from names, sizes, headers, and first and last records. No message in between is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.files.filesystem import LockState
from rmqtool.findings import Finding, addressed
from rmqtool.findings.finding import UNREAD
from rmqtool.formats import checkpoints, paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.hosts import format_address, format_host
from rmqtool.formats.layouts import IndexHeader, StoreCheckpoint
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import TopicKind, find_own_names, topic_kind
from rmqtool.log.end import LogEnd, aligned_log, find_log_end, first_record
from rmqtool.look.disk import DiskUse, read_disk_use
from rmqtool.look.queue_bounds import QueueBounds, find_first_stored, iter_file_bounds, read_database_bounds
from rmqtool.look.strangers import iter_strangers
from rmqtool.store.config_files import Configs, read_configs
from rmqtool.store.index_files import read_header
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store, unread_finding
from rmqtool.store.queues import ConsumeQueueFiles, greatest_end, simple_queues

T = TypeVar("T")


class IndexOverview(NamedTuple):
    """An index file by its header."""

    file: str
    header: IndexHeader

    @property
    def entries(self) -> int:
        """The number of entries."""
        return max(self.header.index_count - 1, 0)


@dataclass
class TopicOverview:
    """A topic and its queues on disk.

    ``configured`` is how many queues it may have, None if no configuration says it.
    """

    kind: TopicKind
    queues: dict[int, QueueBounds] = field(default_factory=dict)
    configured: int | None = None

    def as_json(self) -> dict[str, object]:
        """Return the topic as the contract has it."""
        queues = {}
        for queue, bounds in self.queues.items():
            shown = {"minOffset": bounds.min_offset, "maxOffset": bounds.max_offset}
            if bounds.first_available is not None:
                shown["firstAvailable"] = bounds.first_available
            queues[str(queue)] = shown
        return {"kind": self.kind.value, "queues": queues}


class GroupQueue(NamedTuple):
    """The committed offset of a group in a queue, its lag, and when the first unread message was stored."""

    committed: int
    lag: int
    oldest_unread: int | None = None

    def as_json(self) -> dict[str, int]:
        """Return the place of a group as the contract has it."""
        unread = {} if self.oldest_unread is None else {"oldestUnreadTimestamp": self.oldest_unread}
        return {"committed": self.committed, "lag": self.lag, **unread}


@dataclass
class Attempts:
    """Reads parts of a store. A part that cannot be read becomes a finding, and the overview continues."""

    root: str
    findings: list[Finding] = field(default_factory=list)

    def get(self, read: Callable[[], T], otherwise: T) -> T:
        """Return what ``read`` returns, or ``otherwise`` if reading fails."""
        try:
            return read()
        except ReadFailed as error:
            finding = unread_finding(self.root, error)
            if finding not in self.findings:
                self.findings.append(finding)
            return otherwise


@dataclass
class Overview:
    """Everything that ``info`` shows."""

    store: str
    layout: str
    version: str
    version_reason: str
    lock: str
    has_lock_file: bool
    lock_pid: int | None
    abort: bool
    log_files: int
    log_file_size: int
    log_min: int
    log_end: LogEnd
    queues_end: int
    first: Message | None
    topics: dict[str, TopicOverview]
    index: list[IndexOverview]
    checkpoint: StoreCheckpoint | None
    groups: dict[str, dict[str, dict[int, GroupQueue]]]
    findings: list[Finding]
    disk: DiskUse | None = None
    missing: OptionalMissing | None = None
    # None if part of the configuration could not be read: missing queues are not judged then.
    configs: Configs | None = None
    attempts: Attempts = field(default_factory=lambda: Attempts(""))
    tier: dict[str, object] | None = None

    @property
    def host(self) -> tuple[str, int] | None:
        """The address that the newest record was stored with."""
        last = self.log_end.last
        return None if last is None else (format_address(last.store_host_ip), last.store_host_port)

    def as_json(self) -> dict[str, object]:
        """Return the object of docs/contract.md."""
        last = self.log_end.last
        log: dict[str, object] = {
            "files": self.log_files,
            "fileSize": self.log_file_size,
            "minOffset": self.log_min,
            "maxOffset": self.log_end.physical_offset,
        }
        if self.first is not None:
            log["firstStoreTimestamp"] = self.first.store_timestamp
        if last is not None:
            log["lastStoreTimestamp"] = last.store_timestamp
        return {
            "store": self.store,
            "layout": self.layout,
            "version": self.version,
            "versionReason": self.version_reason,
            "broker": {} if last is None else {"host": format_host(last.store_host_ip, last.store_host_port)},
            "lock": self.lock,
            "abort": self.abort,
            "commitLog": log,
            "topics": {name: topic.as_json() for name, topic in self.topics.items()},
            "index": [
                {
                    "file": index.file,
                    "entries": index.entries,
                    "beginTimestamp": index.header.begin_timestamp,
                    "endTimestamp": index.header.end_timestamp,
                }
                for index in self.index
            ],
            "checkpoint": _checkpoint_json(self.checkpoint),
            "groups": {
                group: {
                    topic: {str(queue): place.as_json() for queue, place in queues.items()}
                    for topic, queues in topics.items()
                }
                for group, topics in self.groups.items()
            },
            "findings": [finding.as_json() for finding in self.findings],
            **({} if self.disk is None else {"disk": self.disk.as_json()}),
            **({} if self.tier is None else {"tier": self.tier}),
        }


def _checkpoint_json(checkpoint: StoreCheckpoint | None) -> dict[str, int] | None:
    if checkpoint is None:
        return None
    return {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp,
        "masterFlushedOffset": checkpoint.master_flushed_offset,
        "confirmPhyOffset": checkpoint.confirm_phy_offset,
    }


def read_overview(store: Store) -> Overview:
    """Read the overview of a store. Without the extra for RocksDB, ``missing`` says what could not be read."""
    attempts = Attempts(store.root)
    dledger = store.is_dledger
    log = attempts.get(lambda: aligned_log(store.commit_log), store.commit_log)
    queues = [
        queue for queue in simple_queues(store.listing) if attempts.get(partial(_is_readable, queue), otherwise=False)
    ]
    nowhere = LogEnd(log.min_offset, None)
    end = attempts.get(lambda: find_log_end(log, queues, dledger=dledger), nowhere)
    none: dict[QueueId, QueueBounds] = {}
    bounds = attempts.get(lambda: dict(iter_file_bounds(store, queues, end)), none)
    files = {queue.queue for queue in simple_queues(store.listing)} - bounds.keys()
    in_database: dict[QueueId, QueueBounds] | None = {}
    missing: OptionalMissing | None = None
    try:
        in_database = attempts.get(lambda: read_database_bounds(store), None)
        bounds = bounds | (in_database or {})
        configs = attempts.get(lambda: read_configs(store, tolerant=True), Configs())
    except OptionalMissing as error:
        missing, configs = error, Configs()
    lock = _lock_state(store)
    is_read = not any(finding.code in UNREAD for finding in configs.findings)
    return Overview(
        store=store.root,
        layout=_layout(store),
        version=store.version.value,
        version_reason=store.version_reason,
        lock="free" if lock is None else str(lock),
        has_lock_file=lock is not None,
        lock_pid=None if lock is None else lock.pid,
        abort=store.listing.find(paths.ABORT) is not None,
        log_files=len(store.commit_log),
        log_file_size=log.segment_size,
        log_min=log.min_offset,
        log_end=end,
        queues_end=greatest_end(queues),
        first=attempts.get(lambda: first_record(log, dledger=dledger), None),
        topics=_topics(configs, bounds),
        index=list(_index_files(store, attempts)),
        checkpoint=attempts.get(lambda: _checkpoint(store), None),
        groups=_groups(
            configs,
            bounds,
            lambda queue: queue in files or (queue not in bounds and in_database is None),
            partial(_find_unread, attempts, store, {one.queue: one for one in queues}),
        ),
        findings=[
            addressed(one, store.root) for one in (*store.config.findings, *iter_strangers(store), *configs.findings)
        ],
        disk=read_disk_use(store),
        missing=missing,
        configs=configs if is_read else None,
        attempts=attempts,
    )


def _is_readable(queue: ConsumeQueueFiles) -> bool:
    """Return True for a queue whose first and last entries can be read; raise ``ReadFailed`` for others."""
    queue.require_ends()
    return True


def _lock_state(store: Store) -> LockState | None:
    """Return the state of the lock, or None if its file cannot be opened."""
    try:
        return store.filesystem.lock_state()
    except ReadFailed:
        return None


def _layout(store: Store) -> str:
    if store.is_dledger:
        return "DLedger log, file queues"
    if paths.CONSUME_QUEUE in store.listing.databases():
        return "RocksDB and file queues" if store.has_file_queues else "RocksDB queues"
    return "file queues"


def _topics(configs: Configs, bounds: dict[QueueId, QueueBounds]) -> dict[str, TopicOverview]:
    own_names = find_own_names(configs.topics)
    names = sorted({queue.topic for queue in bounds} | configs.topics.keys())
    topics = {
        name: TopicOverview(topic_kind(name, own_names), configured=_configured_queues(configs, name)) for name in names
    }
    for queue in sorted(bounds):
        topics[queue.topic].queues[queue.queue_id] = bounds[queue]
    return topics


def _configured_queues(configs: Configs, topic: str) -> int | None:
    """Return the larger of the two numbers of queues; a broker creates and serves no others."""
    config = configs.topics.get(topic, {})
    counts = [config.get(name) for name in ("readQueueNums", "writeQueueNums")]
    return max((count for count in counts if isinstance(count, int)), default=None)


def _groups(
    configs: Configs,
    bounds: dict[QueueId, QueueBounds],
    is_unread: Callable[[QueueId], bool],
    oldest_in: Callable[[QueueId, int, int], int | None],
) -> dict[str, dict[str, dict[int, GroupQueue]]]:
    """Return the committed offsets of each group. Queues that cannot be read are left out: their lag is not known."""
    groups: dict[str, dict[str, dict[int, GroupQueue]]] = {}
    for (topic, group), offsets in sorted(configs.offsets.items(), key=lambda item: item[0][::-1]):
        places = groups.setdefault(group, {}).setdefault(topic, {})
        for queue_id, committed in sorted(offsets.items()):
            queue = QueueId(topic, queue_id)
            if is_unread(queue):
                continue
            low, end = bounds[queue][:2] if queue in bounds else (0, 0)
            oldest = oldest_in(queue, max(committed, low), end) if committed < end else None
            places[queue_id] = GroupQueue(committed, end - committed, oldest)
    return groups


def _find_unread(
    attempts: Attempts, store: Store, queues: Mapping[QueueId, ConsumeQueueFiles], queue: QueueId, *span: int
) -> int | None:
    """Return when the first message of a queue between two offsets was stored; None for a queue in a database."""
    files = queues.get(queue)
    return None if files is None else attempts.get(lambda: find_first_stored(store, files, *span), None)


def _index_files(store: Store, attempts: Attempts) -> Iterator[IndexOverview]:
    for file in store.listing.of_kind(FileKind.INDEX):
        header = attempts.get(partial(_read_header, store, file.path), None)
        if header is not None:
            yield IndexOverview(file.path, header)


def _read_header(store: Store, path: str) -> IndexHeader | None:
    with store.filesystem.open_read(path) as opened:
        return read_header(opened)


def _checkpoint(store: Store) -> StoreCheckpoint | None:
    data = store.read_file(paths.CHECKPOINT, checkpoints.PAGE_SIZE)
    return None if data is None else checkpoints.decode_checkpoint(data)
