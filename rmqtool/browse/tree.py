"""The tree of a store: a node for each part, with its page. The nodes below one are made when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rmqtool.browse.damage_pages import findings_page
from rmqtool.browse.explorer import Explorer
from rmqtool.browse.message_pages import LogPage
from rmqtool.browse.page import Column, Link, ListPage, Page, Scope, line
from rmqtool.browse.queue_pages import configured_ids, topic_page
from rmqtool.browse.store_pages import (
    delayed_page,
    first_page,
    groups_page,
    rows_page,
    settings_page,
    text_page,
    transactions_page,
    wheel_page,
)
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import SYSTEM_PREFIX
from rmqtool.render.text import neutral, size
from rmqtool.store.segments import Segment

Nodes = Callable[[], "list[Node]"]
_FILES = (Column("file"), Column("size", 10, is_number=True))
# Files with a node below "other files".
_OTHERS = (
    FileKind.CHECKPOINT,
    FileKind.ABORT,
    FileKind.LOCK,
    FileKind.EPOCH,
    FileKind.BROKER_IDENTITY,
    FileKind.TIERED_INDEX,
    FileKind.TIER_LOG,
    FileKind.TIER_QUEUE,
    FileKind.TIER_INDEX,
    FileKind.DLEDGER_INDEX,
    FileKind.DLEDGER_STATE,
    FileKind.COMPACTION_QUEUE,
    FileKind.COMPACTION_POSITION,
    FileKind.UNKNOWN,
)


@dataclass(eq=False)
class Node:
    """A part of a store: its label, its page, and what makes the nodes below it; ``is_open`` shows them."""

    label: str
    page: Link
    make: Nodes | None = None
    depth: int = 0
    is_open: bool = False
    nodes: list[Node] | None = None

    def below(self) -> list[Node]:
        """Return the nodes below, made at the first time."""
        if self.nodes is None:
            self.nodes = self.make() if self.make else []
            for node in self.nodes:
                node.depth = self.depth + 1
        return self.nodes

    def shown(self) -> Iterator[Node]:
        """Yield this node and, where it is open, those below it."""
        yield self
        if self.is_open:
            for node in self.below():
                yield from node.shown()


def store_tree(explorer: Explorer) -> Node:
    """Return the root of the tree of a store."""
    store = explorer.store
    listing = store.listing
    parts = [Node("log", partial(_files, explorer, "log"), partial(_log_nodes, explorer))]
    parts.append(Node("topics", partial(_topics, explorer), partial(_topic_nodes, explorer)))
    if any(True for _ in listing.of_kind(FileKind.INDEX)):
        parts.append(Node("index", partial(_files, explorer, "index"), partial(_index_nodes, explorer)))
    parts.append(Node("groups", partial(groups_page, explorer)))
    parts.append(Node("delayed", partial(delayed_page, explorer)))
    if listing.find(paths.TIMER_WHEEL) is not None or any(True for _ in listing.of_kind(FileKind.TIMER_LOG)):
        parts.append(Node("timer", partial(wheel_page, explorer), partial(_timer_nodes, explorer)))
    parts.append(Node("transactions", partial(transactions_page, explorer)))
    if any(True for _ in listing.of_kind(FileKind.COMPACTION_LOG)):
        parts.append(Node("compaction", partial(_files, explorer, "compaction"), partial(_compacted_nodes, explorer)))
    parts.append(Node("configuration", partial(settings_page, explorer), partial(_config_nodes, explorer)))
    if listing.databases():
        parts.append(Node("RocksDB", partial(_databases, explorer), partial(_database_nodes, explorer)))
    parts.append(Node("other files", partial(_files, explorer, "others"), partial(_other_nodes, explorer)))
    parts.append(Node("damage", partial(findings_page, explorer, Scope())))
    root = Node(neutral(store.root.rstrip("/").rpartition("/")[2]), partial(first_page, explorer), lambda: parts)
    root.is_open = True
    return root


def _log_nodes(explorer: Explorer) -> list[Node]:
    return [_log_node(explorer, segment) for segment in explorer.log()]


def _log_node(explorer: Explorer, segment: Segment) -> Node:
    name = segment.path.rpartition("/")[2].lstrip("0") or "0"
    file = explorer.segment_file(segment)
    bytes_node = Node("bytes", explorer.to_file(file))
    return Node(neutral(name), lambda: LogPage(explorer, file), lambda: [bytes_node])


def _topic_nodes(explorer: Explorer) -> list[Node]:
    """Return a node for each topic, those of the broker itself last."""
    names = explorer.topic_names()
    names.sort(key=lambda name: (name.startswith(("%", SYSTEM_PREFIX, "SCHEDULE_", "RMQ_SYS_")), name))
    return [
        Node(neutral(name), partial(_topic_page, explorer, name), partial(_queues, explorer, name)) for name in names
    ]


def _queues(explorer: Explorer, topic: str) -> list[Node]:
    return [_queue_node(explorer, topic, queue_id) for queue_id in explorer.queue_ids(topic)]


def _queue_node(explorer: Explorer, topic: str, queue_id: int) -> Node:
    def files() -> list[Node]:
        segments = explorer.queue_files(topic, queue_id).segments
        return [_file_node(explorer, segment.path) for segment in segments]

    return Node(f"queue {queue_id}", partial(explorer.queue_page, topic, queue_id), files)


def _topics(explorer: Explorer) -> Page:
    rows = [line(neutral(name), link=partial(_topic_page, explorer, name)) for name in explorer.topic_names()]
    return ListPage("topics", (Column("topic"),), rows, f"rmqtool info {explorer.name} topics")


def _topic_page(explorer: Explorer, topic: str) -> Page:
    ids = explorer.queue_ids(topic)
    if len(ids) == 1 and not set(configured_ids(explorer, topic)) - {ids[0]}:
        return explorer.queue_page(topic, ids[0])
    return topic_page(explorer, topic)


def _file_node(explorer: Explorer, path: str) -> Node:
    return Node(neutral(path.rpartition("/")[2]), explorer.to_file(explorer.file_at(path)))


def _index_nodes(explorer: Explorer) -> list[Node]:
    return [_file_node(explorer, file.path) for file in explorer.store.listing.of_kind(FileKind.INDEX)]


def _timer_nodes(explorer: Explorer) -> list[Node]:
    listing = explorer.store.listing
    found = [_file_node(explorer, file.path) for file in listing.of_kind(FileKind.TIMER_LOG, FileKind.TIMER_CHECK)]
    for file in listing.of_kind(FileKind.TIMER_WHEEL):
        name = f"{file.path} bytes"
        found.append(Node(neutral(name), explorer.to_file(explorer.file_at(file.path))))
    return found


def _compacted_nodes(explorer: Explorer) -> list[Node]:
    found = []
    for file in explorer.store.listing.of_kind(FileKind.COMPACTION_LOG):
        at = explorer.file_at(file.path)
        label = neutral(file.path.removeprefix(paths.COMPACTION_LOG + "/"))
        bytes_of = Node("bytes", explorer.to_file(at))
        found.append(Node(label, partial(LogPage, explorer, at), partial(list, [bytes_of])))
    return found


def _config_nodes(explorer: Explorer) -> list[Node]:
    found = []
    for file in explorer.store.listing.of_kind(FileKind.CONFIG):
        bytes_node = Node("bytes", explorer.to_file(explorer.file_at(file.path)))
        label = neutral(file.path.removeprefix(paths.CONFIG + "/"))
        found.append(Node(label, partial(text_page, explorer, file.path), partial(list, [bytes_node])))
    return found


def _databases(explorer: Explorer) -> Page:
    names = explorer.store.listing.databases()
    rows = [line(neutral(name), "database", link=partial(rows_page, explorer, name)) for name in names]
    return ListPage("databases", _FILES, rows, f"rmqtool info {explorer.name} files")


def _database_nodes(explorer: Explorer) -> list[Node]:
    names = explorer.store.listing.databases()
    return [Node(neutral(name), partial(rows_page, explorer, name)) for name in names]


def _other_nodes(explorer: Explorer) -> list[Node]:
    files = explorer.store.listing.of_kind(*_OTHERS)
    return [Node(neutral(file.path), explorer.to_file(explorer.file_at(file.path))) for file in files]


def _files(explorer: Explorer, part: str) -> Page:
    """Return the files of a part of the store."""
    rows = []
    if part == "log":
        for segment in explorer.log():
            file = explorer.segment_file(segment)
            rows.append(line(neutral(segment.path), size(segment.size), link=partial(LogPage, explorer, file)))
    else:
        kinds = {"index": (FileKind.INDEX,), "compaction": (FileKind.COMPACTION_LOG,)}.get(part, _OTHERS)
        for found in explorer.store.listing.of_kind(*kinds):
            link = explorer.to_file(explorer.file_at(found.path))
            rows.append(line(neutral(found.path), size(found.size), link=link))
    return ListPage(part, _FILES, rows, f"rmqtool info {explorer.name} files")
