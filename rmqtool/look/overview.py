"""A store at a glance: from names, sizes, headers, first and last records. No message in between is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.checks import quick
from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.files.filesystem import LockState
from rmqtool.findings import Finding
from rmqtool.formats import checkpoints, paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.hosts import format_host
from rmqtool.formats.layouts import IndexHeader, StoreCheckpoint
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import TopicKind, find_own_names, topic_kind
from rmqtool.log.end import LogEnd, find_log_end, first_record
from rmqtool.look.queue_bounds import QueueBounds, greatest_end, iter_file_bounds, read_database_bounds, simple_queues
from rmqtool.store.config_files import Configs, read_configs
from rmqtool.store.index_files import read_header
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store


class IndexOverview(NamedTuple):
    """An index file by its header."""

    file: str
    header: IndexHeader

    @property
    def entries(self) -> int:
        """How many entries it holds."""
        return max(self.header.index_count - 1, 0)


@dataclass
class TopicOverview:
    """A topic and its queues."""

    kind: TopicKind
    queues: dict[int, QueueBounds] = field(default_factory=dict)


class GroupQueue(NamedTuple):
    """A group's place in a queue."""

    committed: int
    lag: int


@dataclass
class Overview:
    """Everything ``info`` knows."""

    store: str
    layout: str
    version: str
    version_reason: str
    lock: str
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
    missing: OptionalMissing | None = None

    def as_json(self) -> dict[str, object]:
        """Return the object of the contract."""
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
            "topics": {name: _topic_json(topic) for name, topic in self.topics.items()},
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
                    topic: {str(queue): place._asdict() for queue, place in queues.items()}
                    for topic, queues in topics.items()
                }
                for group, topics in self.groups.items()
            },
            "findings": [finding.as_json() for finding in self.findings],
        }


def _topic_json(topic: TopicOverview) -> dict[str, object]:
    queues = {}
    for queue, bounds in topic.queues.items():
        shown = {"minOffset": bounds.min_offset, "maxOffset": bounds.max_offset}
        if bounds.first_available is not None:
            shown["firstAvailable"] = bounds.first_available
        queues[str(queue)] = shown
    return {"kind": topic.kind.value, "queues": queues}


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
    """Look at a store. Without the extra for RocksDB everything else is there, and ``missing`` says what is not."""
    queues = simple_queues(store)
    end = find_log_end(store.commit_log, queues, dledger=store.is_dledger)
    abort = store.listing.find(paths.ABORT) is not None
    bounds = dict(iter_file_bounds(store, queues, end))
    missing: OptionalMissing | None = None
    try:
        bounds |= read_database_bounds(store)
        configs = read_configs(store)
    except OptionalMissing as error:
        missing, configs = error, Configs()
    lock = _lock_state(store)
    overview = Overview(
        store=store.root,
        layout=_layout(store),
        version=store.version.value,
        version_reason=store.version_reason,
        lock="free" if lock is None else str(lock),
        lock_pid=None if lock is None else lock.pid,
        abort=abort,
        log_files=len(store.commit_log),
        log_file_size=store.commit_log.segment_size,
        log_min=store.commit_log.min_offset,
        log_end=end,
        queues_end=greatest_end(queues),
        first=first_record(store.commit_log, dledger=store.is_dledger),
        topics=_topics(configs, bounds),
        index=list(_index_files(store)),
        checkpoint=_checkpoint(store),
        groups=_groups(configs, bounds),
        findings=[*store.findings, *configs.findings],
        missing=missing,
    )
    overview.findings += quick.check_overview(store, overview)
    if lock is None:
        overview.findings.append(quick.no_lock_file())
    return overview


def _lock_state(store: Store) -> LockState | None:
    """Return who holds the lock; None where it is no file that can be opened."""
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
    topics = {name: TopicOverview(topic_kind(name, own_names)) for name in names}
    for queue in sorted(bounds):
        topics[queue.topic].queues[queue.queue_id] = bounds[queue]
    return topics


def _groups(configs: Configs, bounds: dict[QueueId, QueueBounds]) -> dict[str, dict[str, dict[int, GroupQueue]]]:
    groups: dict[str, dict[str, dict[int, GroupQueue]]] = {}
    for (topic, group), offsets in sorted(configs.offsets.items(), key=lambda item: item[0][::-1]):
        places = groups.setdefault(group, {}).setdefault(topic, {})
        for queue_id, committed in sorted(offsets.items()):
            found = bounds.get(QueueId(topic, queue_id))
            places[queue_id] = GroupQueue(committed, (found.max_offset if found else 0) - committed)
    return groups


def _index_files(store: Store) -> Iterator[IndexOverview]:
    for file in store.listing.of_kind(FileKind.INDEX):
        with store.filesystem.open_read(file.path) as opened:
            header = read_header(opened)
        if header is not None:
            yield IndexOverview(file.path, header)


def _checkpoint(store: Store) -> StoreCheckpoint | None:
    data = store.read_file(paths.CHECKPOINT, checkpoints.PAGE_SIZE)
    return None if data is None else checkpoints.decode_checkpoint(data)
