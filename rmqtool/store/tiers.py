"""A tier opened for reading: the files that tiered storage keeps of one broker, by topic and queue.

``MessageStorePlugIn`` copies messages from the store below ``tieredStoreFilePath``, and retention may then delete them
from the store. Each queue has a log of its own there: records in the order of the queue, as in a commit log, except
that a record names its offset in this log as its physical offset. The checksum over the whole record, if there is one,
is the one from before. The entries of the queue point into this log. Its first segment begins at the queue offset from
which messages were copied. A segment begins where the one before it ends, and has no reserved room. Up to 5.1 its last
16 bytes are a coda, which begins like a blank record.

The broker keeps the metadata of its tier in its store: ``config/tieredStoreMetadata.json``. It takes sizes of segments
from that file, except of the last one of each log and queue.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from rmqtool.errors import ReadFailed, StoreError
from rmqtool.files.filesystem import Kind, join
from rmqtool.formats import layouts, paths
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.paths import FileKind
from rmqtool.store.listing import QueueId, Stranger
from rmqtool.store.open import Root, Store, absolute, is_directory, is_file, open_root
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue
from rmqtool.store.time_search import StoreTimes

# Brokers that an error names at most.
_MOST_NAMED = 8


class TierPlace(NamedTuple):
    """The place in a tier that a path names: the directory of a broker, and a queue or one of its files, if any."""

    root: str
    topic: str | None = None
    queue_id: int | None = None
    file: str | None = None


@dataclass
class TierQueue:
    """The segments of one queue in a tier: its log, and its entries. Either can be empty."""

    queue: QueueId
    log: list[Segment] = field(default_factory=list)
    entries: list[Segment] = field(default_factory=list)


@dataclass(repr=False)
class Tier:
    """An open tier. ``root`` is the directory of its broker; ``cluster`` and ``broker`` are the names that it tells."""

    root: str
    filesystem: Root
    cluster: str
    broker: str
    queues: dict[QueueId, TierQueue] = field(default_factory=dict)
    index: list[Segment] = field(default_factory=list)
    strangers: list[Stranger] = field(default_factory=list)
    open_files: OpenFiles = field(default_factory=OpenFiles)
    # Logs and entries by queue. To make one takes a look at the sizes of all its segments, which differ.
    _logs: dict[QueueId, SegmentQueue] = field(default_factory=dict)
    _entries: dict[QueueId, SegmentQueue] = field(default_factory=dict)

    def log_of(self, queue: QueueId) -> SegmentQueue:
        """Return the log of a queue; it is empty if the tier does not have the queue."""
        if queue not in self._logs:
            found = self.queues.get(queue)
            self._logs[queue] = SegmentQueue(found.log if found else (), files=self.open_files)
        return self._logs[queue]

    def entries_of(self, queue: QueueId) -> SegmentQueue:
        """Return the queue itself; it is empty if the tier does not have it."""
        if queue not in self._entries:
            found = self.queues.get(queue)
            self._entries[queue] = SegmentQueue(found.entries if found else (), files=self.open_files)
        return self._entries[queue]

    def last_time(self, queue: QueueId) -> int | None:
        """Return when the last message of a queue that has an entry was stored (ms); None if that is not known."""
        entries, log = self.entries_of(queue), self.log_of(queue)
        count = (entries.end_offset - entries.min_offset) // UNIT_SIZE if len(entries) else 0
        if not count:
            return None
        data = entries.read(entries.min_offset + (count - 1) * UNIT_SIZE, UNIT_SIZE)
        if len(data) < UNIT_SIZE:
            return None
        unit = layouts.CONSUME_QUEUE_UNIT.decode(data)
        time = StoreTimes(log, log.end_offset).read(unit.physical_offset, unit.size)
        return time if time > 0 else None

    @property
    def size(self) -> int:
        """The bytes of all its segments."""
        parts = [part for queue in self.queues.values() for part in (*queue.log, *queue.entries)]
        return sum(part.size for part in (*parts, *self.index))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.open_files.close()
        self.filesystem.close()


def find_tier(path: str) -> TierPlace | None:
    """Return the place in a tier that ``path`` names, or None if no directory of a tier is above or below it.

    The directory of a cluster shows that it is a tier: its name has a hash. Raises StoreError if ``path`` has
    tiers of several brokers.
    """
    parts = absolute(path).split("/")
    for number in range(len(parts) - 1, 0, -1):
        if paths.parse_tier_cluster(parts[number]) is not None:
            return _below_cluster(parts, number, path)
    if not is_directory(path):
        return None
    with open_root(absolute(path)) as files:
        clusters = [name for name in _directories(files, "") if paths.parse_tier_cluster(name) is not None]
    return _only_broker(path, [join(absolute(path), name) for name in clusters]) if clusters else None


def _below_cluster(parts: list[str], number: int, path: str) -> TierPlace:
    """Return the place of a path whose part ``number`` is the directory of a cluster."""
    cluster, below = "/".join(parts[: number + 1]), parts[number + 1 :]
    if not below:
        return _only_broker(path, [cluster])
    root = f"{cluster}/{below[0]}"
    if len(below) == 1:
        return TierPlace(root)
    queue_id = below[2] if len(below) > 2 else ""
    is_one = is_file(path)
    return TierPlace(
        root, below[1], int(queue_id) if queue_id.isdecimal() else None, "/".join(below[1:]) if is_one else None
    )


def _brokers(clusters: list[str]) -> list[str]:
    """Return the directories of the brokers of some clusters."""
    found = []
    for cluster in clusters:
        with open_root(cluster) as files:
            found += [f"{cluster}/{name}" for name in _directories(files, "")]
    return found


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{' and '.join(names[:_MOST_NAMED])}{more}"


def _only_broker(path: str, clusters: list[str]) -> TierPlace:
    found = _brokers(clusters)
    if len(found) == 1:
        return TierPlace(found[0])
    if not found:
        raise StoreError(f"{path} is tiered storage without a broker", file=path, hint="give the tieredStoreFilePath")
    names = _named(found)
    raise StoreError(f"{path} has the tiers of several brokers: {names}", file=path, hint="name one of them as STORE")


def _directories(files: Root, path: str) -> list[str]:
    return sorted(entry.name for entry in files.listdir(path) if entry.kind is Kind.DIRECTORY)


def open_tier(root: str) -> Tier:
    """Open the tier of one broker, by the directory of that broker."""
    above, broker = posixpath.split(absolute(root))
    cluster = paths.parse_tier_cluster(posixpath.basename(above)) or ""
    tier = Tier(root, open_root(root), cluster, broker)
    try:
        for path, kind in _iter_files(tier.filesystem, ""):
            _add(tier, path, kind)
    except BaseException:
        tier.close()
        raise
    for queue in tier.queues.values():
        queue.log.sort()
        queue.entries.sort()
    tier.queues = dict(sorted(tier.queues.items()))
    tier.index.sort()
    return tier


def _iter_files(files: Root, directory: str) -> Iterator[tuple[str, Kind]]:
    for entry in sorted(files.listdir(directory)):
        path = join(directory, entry.name)
        if entry.kind is Kind.DIRECTORY:
            yield from _iter_files(files, path)
        else:
            yield path, entry.kind


def _add(tier: Tier, path: str, kind: Kind) -> None:
    what = paths.classify(path)
    status = tier.filesystem.find_stat(path) if kind is Kind.FILE else None
    if status is None or what.owner or what.topic is None or what.queue_id is None or what.base_offset is None:
        tier.strangers.append(Stranger(path, kind))
        return
    segment = Segment(what.base_offset, status.size, path, tier.filesystem)
    queue = QueueId(what.topic, what.queue_id)
    if what.kind is FileKind.TIER_INDEX:
        tier.index.append(segment)
    elif what.kind is FileKind.TIER_LOG:
        tier.queues.setdefault(queue, TierQueue(queue)).log.append(segment)
    elif what.kind is FileKind.TIER_QUEUE:
        tier.queues.setdefault(queue, TierQueue(queue)).entries.append(segment)
    else:
        tier.strangers.append(Stranger(path, kind))


class TierAbsent(NamedTuple):
    """The reason why the tier that the settings of a store name is not read."""

    path: str
    reason: str


def tier_of(store: Store) -> Tier | TierAbsent | None:
    """Open the tier that the settings of a store name; None if they name none.

    Without the name of the broker in the settings this is the only one in the cluster.
    """
    base = store.config.tiered_store_file_path
    if not base:
        return None
    if not is_directory(base):
        return TierAbsent(base, f"{base}, which tieredStoreFilePath names, does not exist")
    cluster = os.path.join(base, paths.tier_cluster_name(store.config.broker_cluster_name))
    root = os.path.join(cluster, store.config.broker_name)
    try:
        if "brokerName" not in store.config.origins and is_directory(cluster):
            brokers = _brokers([cluster])
            if len(brokers) > 1:
                names = _named([posixpath.basename(one) for one in brokers])
                return TierAbsent(base, f"{base} has the tiers of {names}, and brokerName (--conf) is not set")
            root = brokers[0] if brokers else root
        if not is_directory(root):
            names = f"{store.config.broker_cluster_name}/{store.config.broker_name}"
            return TierAbsent(base, f"{base}, which tieredStoreFilePath names, has no tier of {names}")
        return open_tier(root)
    except ReadFailed as error:
        return TierAbsent(base, error.message)
