"""Settings that the files of a store show, where nobody stated them.

A broker refuses every file that has not the configured size. Without the broker's own configuration the sizes that
most of its files have are the likely ones; a file that differs is then the odd one, as it would be for the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rmqtool.config import Origin, StoreConfig, Version
from rmqtool.errors import ReadFailed
from rmqtool.formats import index, paths
from rmqtool.formats.paths import FileKind
from rmqtool.storage.discovery import StoreListing
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.index_files import DEFAULT, Geometry, IndexFile, find_geometries, hashes_home, read_header
from rmqtool.storage.segments import Segment, usual_size

_LOG_SIZE = "mappedFileSizeCommitLog"
_QUEUE_SIZE = "mappedFileSizeConsumeQueue"
_SLOTS = "maxHashSlotNum"
_ENTRIES = "maxIndexNum"
_LOG_PATHS = "storePathCommitLog"
_OF_FILES = (_LOG_SIZE, _QUEUE_SIZE, _SLOTS, _ENTRIES, "mappedFileSizeConsumeQueueExt", "messageDelayLevel")
_OF_FILES_5 = ("mapperFileSizeBatchConsumeQueue",)
_DISPATCHES = ("messageIndexEnable", "enableMultiDispatch", "enableLmq")


def with_found_settings(config: StoreConfig, listing: StoreListing) -> StoreConfig:
    """Return ``config`` with what the files show in place of mere defaults."""
    found: dict[str, object] = {
        _LOG_SIZE: usual_size(listing.log_segments),
        _QUEUE_SIZE: usual_size(_queue_files(listing)),
    }
    if not {_SLOTS, _ENTRIES} <= config.origins.keys():
        geometry = _find_geometry(listing, Geometry(config.max_hash_slot_num, config.max_index_num))
        if geometry is not None:
            found |= {_SLOTS: geometry.slots, _ENTRIES: geometry.entries}
    inside = {segment.path.rpartition("/")[0] for segment in listing.log_segments}
    if inside and "" not in inside:
        found[_LOG_PATHS] = ",".join(f"{config.root_dir}/{directory}" for directory in sorted(inside))
    unstated = {name: value for name, value in found.items() if value and name not in config.origins}
    return config.with_values(unstated, Origin.STORE)


def as_new_store(config: StoreConfig, root: str) -> StoreConfig:
    """Return the settings of ``config`` that decide what files look like, for a new store at ``root``.

    Where a store lies, how it is flushed and who may write it is not taken over. Every dispatch is on: what records
    say of further queues, a broker has written that had it on.
    """
    kept: dict[str, object] = {name: config.value(name) for name in _OF_FILES}
    if config.version is not Version.V4_9:
        kept |= {name: config.value(name) for name in _OF_FILES_5}
    kept |= dict.fromkeys(_DISPATCHES, True)
    kept["storePathRootDir"] = root
    return StoreConfig.default(config.version).with_values(kept, Origin.STORE)


def assumed_settings(config: StoreConfig, created: Iterable[str]) -> dict[str, object]:
    """Return the sizes that are mere defaults although files of that kind are created, by name."""
    directories = {path.partition("/")[0] for path in created}
    sizes = {
        _QUEUE_SIZE: (paths.CONSUME_QUEUE, config.mapped_file_size_consume_queue),
        _SLOTS: (paths.INDEX, config.max_hash_slot_num),
        _ENTRIES: (paths.INDEX, config.max_index_num),
    }
    return {
        name: value
        for name, (directory, value) in sizes.items()
        if directory in directories and name not in config.origins
    }


def _queue_files(listing: StoreListing) -> list[Segment]:
    return [Segment(0, file.size, file.path, listing.filesystem) for file in listing.of_kind(FileKind.CONSUME_QUEUE)]


def _find_geometry(listing: StoreListing, configured: Geometry) -> Geometry | None:
    """Return the geometry that fits most index files; None where there are none, or nothing can be told."""
    votes: Counter[Geometry] = Counter()
    for file in listing.of_kind(FileKind.INDEX):
        try:
            with listing.filesystem.open_read(file.path) as opened:
                votes.update(_geometries(opened, configured))
        except ReadFailed:
            continue
    return max(votes, key=lambda pair: (votes[pair], pair == DEFAULT, pair), default=None)


def _geometries(file: ReadableFile, configured: Geometry) -> list[Geometry]:
    header = read_header(file)
    if header is None:
        return []
    for pair in (configured, DEFAULT):
        # Looking for others means reading the file, which has 400 MB by default.
        if index.file_size(*pair) == file.size() and hashes_home(IndexFile(file, pair, header)):
            return [pair]
    return find_geometries(file, header)
