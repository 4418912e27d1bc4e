"""The parts of a store beside its log that a copy takes along: configuration, progress, and the timers of 5.x.

Settings are kept for the copied topics, and progress is moved to the new queue offsets. The timer log refers to
messages by physical offset, so these are replaced; the wheel refers to the timer log and is copied as it is.
Brokers rebuild the rest (compacted logs, RocksDB, epochs), or a note tells that it is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import WritableFileSystem, copy_data, make_directories, split
from rmqtool.findings import Finding
from rmqtool.findings.finding import UNREAD
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.store.config_files import Configs, read_config, read_configs
from rmqtool.store.open import Store, unread_finding

if TYPE_CHECKING:
    from rmqtool.log.transfer import Places

# Units have 52 bytes; a piece ends between two of them.
_PIECE = 52 << 15
_LEFT_BEHIND = {
    FileKind.COMPACTION_LOG: "compacted logs are left out: a broker compacts the log again",
    FileKind.EPOCH: "the epochs of the controller are left out: they name offsets of the old log",
}


def carry_services(store: Store, files: WritableFileSystem, places: Places, notes: list[str]) -> None:
    """Copy the timers into the new store; add a note for each part that is left out."""
    for file in store.listing.of_kind(FileKind.TIMER_LOG):
        _carry_timer_log(store, file.path, files, places)
    for file in store.listing.of_kind(FileKind.TIMER_WHEEL, FileKind.TIMER_CHECK):
        make_directories(files, split(file.path)[0])
        with store.filesystem.open_read(file.path) as old, files.create(file.path) as new:
            copy_data(old, new)
    kinds = {file.what.kind for file in store.listing.files}
    notes += [text for kind, text in _LEFT_BEHIND.items() if kind in kinds]
    if paths.ROCKSDB_STORE in store.listing.databases():
        notes.append("timers and transactions in RocksDB (rocksdbstore) are left out: they name offsets of the old log")


def _carry_timer_log(store: Store, path: str, files: WritableFileSystem, places: Places) -> None:
    from rmqtool.log.transfer import moved_timer_log

    make_directories(files, split(path)[0])
    with store.filesystem.open_read(path) as old, files.create(path) as new:
        new.truncate(old.size())
        for extent in old.iter_data():
            begin = extent.file_offset - extent.file_offset % _PIECE
            for at in range(begin, extent.end, _PIECE):
                new.pwrite(moved_timer_log(old.pread(_PIECE, at), places), at)


Queue = tuple[str, int]
Move = Callable[[Queue, int], int]

# The tables by file whose keys are topics, or topic@group.
_BY_TOPIC = {
    paths.TOPICS: "topicConfigTable",
    paths.CONSUMER_FILTER: "filterDataByTopic",
    paths.TOPIC_QUEUE_MAPPING: "topicQueueMappingInfoMap",
    paths.MESSAGE_REQUEST_MODE: "messageRequestModeMap",
    paths.TIMER_METRICS: "timingCount",
    paths.TRANSACTION_METRICS: "transactionCount",
}
_OFFSETS = {
    paths.CONSUMER_OFFSET: "offsetTable",
    paths.LMQ_CONSUMER_OFFSET: "offsetTable",
}
_LMQ_TABLE = "lmqOffsetTable"
_SEPARATOR = "@"


class Carrying(NamedTuple):
    """How names and offsets change: copied topics, purged ones, renumbered ones, and the new offset of an old one."""

    keeps: Callable[[str], bool]
    is_purged: Callable[[str], bool]
    begins_anew: Callable[[str], bool]
    move: Move


def read_texts(store: Store, unread: list[Finding] | None = None) -> dict[str, dict[str, Any]]:
    """Return the configuration files of a store as a broker would load them; databases become files.

    With a list ``unread``, files that cannot be read are left out, and their findings added to it.
    """
    texts = {}
    for name in (*_BY_TOPIC, *_OFFSETS, paths.SUBSCRIPTION_GROUP, paths.DELAY_OFFSET, paths.CONSUMER_ORDER_INFO):
        try:
            value, _ = read_config(store, name)
        except ReadFailed as error:
            if unread is None:
                raise
            unread.append(unread_finding(store.root, error))
            continue
        if value is not None:
            texts[name] = value
    if any(directory.startswith(paths.CONFIG + "/") for directory in store.listing.databases()):
        configs = read_configs(store, tolerant=unread is not None)
        if unread is not None:
            unread += [finding for finding in configs.findings if finding.code in UNREAD and finding not in unread]
        _add_databases(texts, configs)
    return texts


def _add_databases(texts: dict[str, dict[str, Any]], configs: Configs) -> None:
    """Add entries that only the databases have.

    A broker with its configuration there reads newer files at its start.
    """
    tables: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
        (paths.TOPICS, "topicConfigTable", configs.topics),
        (paths.SUBSCRIPTION_GROUP, "subscriptionGroupTable", configs.groups),
        (
            paths.CONSUMER_OFFSET,
            "offsetTable",
            {_SEPARATOR.join(key): queues for key, queues in configs.offsets.items()},
        ),
    )
    for name, field, table in tables:
        if table:
            text = texts.setdefault(name, {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 0}})
            text[field] = {**table, **(text.get(field) or {})}


def watched_offsets(texts: Mapping[str, Mapping[str, Any]]) -> dict[Queue, set[int]]:
    """Return the offsets in the configuration of a store, by queue."""
    found: dict[Queue, set[int]] = {}
    for name, field in _OFFSETS.items():
        for key, queues in (texts.get(name, {}).get(field) or {}).items():
            for queue_id, offset in queues.items():
                found.setdefault((key.split(_SEPARATOR)[0], int(queue_id)), set()).add(int(offset))
    return found


def groups_of(texts: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the groups with settings or progress."""
    found = set(texts.get(paths.SUBSCRIPTION_GROUP, {}).get("subscriptionGroupTable") or {})
    for name, field in _OFFSETS.items():
        table = texts.get(name, {}).get(field) or {}
        found |= {group for _, at, group in (key.partition(_SEPARATOR) for key in table) if at}
    return found


def carry(texts: Mapping[str, Mapping[str, Any]], carrying: Carrying) -> dict[str, dict[str, Any]]:
    """Return the configuration files of the copy. It does not have ``.bak`` copies."""
    carried: dict[str, dict[str, Any]] = copy.deepcopy({name: dict(text) for name, text in texts.items()})
    for name, field in _BY_TOPIC.items():
        if name in carried and carried[name].get(field):
            carried[name][field] = _kept(carried[name][field], carrying.keeps)
    for name, field in _OFFSETS.items():
        if name in carried and carried[name].get(field):
            table = _kept(carried[name][field], lambda key: carrying.keeps(_topic_of(key)))
            carried[name][field] = {
                key: {queue: carrying.move((_topic_of(key), int(queue)), int(at)) for queue, at in queues.items()}
                for key, queues in table.items()
            }
    _carry_rest(carried, carrying)
    scrubbed: dict[str, dict[str, Any]] = _scrubbed(carried, carrying.is_purged)
    return scrubbed


def _scrubbed(value: Any, is_purged: Callable[[str], bool]) -> Any:
    """Return a value without keys and texts that are purged topics, wherever a broker may have written them."""
    if isinstance(value, dict):
        return {
            key: _scrubbed(part, is_purged)
            for key, part in value.items()
            if not any(is_purged(name) for name in (str(key), *str(key).split(_SEPARATOR)))
            and not (isinstance(part, str) and is_purged(part))
        }
    if isinstance(value, list):
        return [_scrubbed(part, is_purged) for part in value if not (isinstance(part, str) and is_purged(part))]
    return value


def _carry_rest(carried: dict[str, dict[str, Any]], carrying: Carrying) -> None:
    light = carried.get(paths.LMQ_CONSUMER_OFFSET, {})
    if light.get(_LMQ_TABLE):
        light[_LMQ_TABLE] = _kept(light[_LMQ_TABLE], lambda key: carrying.keeps(_topic_of(key)))
    order = carried.get(paths.CONSUMER_ORDER_INFO, {})
    if order.get("table"):
        # It has offsets of messages in flight, which are wrong in a renumbered queue.
        order["table"] = _kept(
            order["table"],
            lambda key: carrying.keeps(_topic_of(key)) and not carrying.begins_anew(_topic_of(key)),
        )
    for group in (carried.get(paths.SUBSCRIPTION_GROUP, {}).get("subscriptionGroupTable") or {}).values():
        named = group.get("subscriptionDataSet")
        if named:
            group["subscriptionDataSet"] = [one for one in named if carrying.keeps(one.get("topic") or "")]
    delays = carried.get(paths.DELAY_OFFSET, {})
    if delays.get("offsetTable"):
        delays["offsetTable"] = {
            level: carrying.move((SCHEDULE_TOPIC, int(level) - 1), int(at))
            for level, at in delays["offsetTable"].items()
        }


def _kept(table: Mapping[str, Any], keeps: Callable[[str], bool]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if keeps(key)}


def _topic_of(key: str) -> str:
    return key.split(_SEPARATOR, maxsplit=1)[0]


def merged(texts: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the configurations of several stores as one: values of the first store, but the least progress."""
    found: dict[str, dict[str, Any]] = {}
    for one in texts:
        for name, text in one.items():
            into = found.setdefault(name, {})
            for field, value in text.items():
                known = into.get(field)
                into[field] = value if known is None else _joined(known, value, deepest=name in _OFFSETS)
    return found


def _joined(first: Any, second: Any, *, deepest: bool) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        joined = dict(first)
        for key, value in second.items():
            known = joined.get(key)
            joined[key] = value if known is None else (_joined(known, value, deepest=True) if deepest else known)
        return joined
    return min(first, second) if deepest and isinstance(first, int) and isinstance(second, int) else first
