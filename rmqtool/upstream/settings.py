"""The settings that decide what a start does, and how the files of a store reveal them.

A broker refuses each file that does not have the configured size. Without the broker's configuration, the size of most
files is the likely setting; a file with another size is then the wrong one, as it would be for the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rmqtool.config import FlushDiskType, Origin, StoreConfig, Version
from rmqtool.errors import ReadFailed, StoreError
from rmqtool.files.filesystem import ReadableFile
from rmqtool.findings import Severity
from rmqtool.formats import index, paths
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.dispatch import DispatchRules, rules_of
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import parse_delay_levels
from rmqtool.store.index_files import DEFAULT, Geometry, IndexFile, find_geometries, hashes_home, read_header
from rmqtool.store.listing import StoreListing, beneath
from rmqtool.store.segments import Segment, usual_size

# The number of files that 5.4 looks at if commitLogRecoverMaxNum is not positive.
DEFAULT_RECOVER_MAX_NUM = 10

# A broker allocates as many bytes as a record's size asks for. No setting tells its heap. The smallest heap that was
# measured (512 MiB) runs out of memory above this size.
LARGEST_ARRAY = 340 << 20
# The largest array in Java, with any heap.
LARGEST_ARRAY_OF_ALL = INT_MAX - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """The settings that the model of a start needs."""

    version: Version
    commit_log_dirs: tuple[str, ...]
    commit_log_file_size: int
    queue_file_size: int
    index_slots: int
    index_entries: int
    index_enabled: bool
    index_safe: bool
    check_crc: bool
    verify_property_crc: bool
    duplication: bool
    sync_flush: bool
    compaction: bool
    recover_max_num: int
    rules: DispatchRules
    # The setting with which the store does not load, and what is wrong with it.
    refused: str | None = None
    # The line for which the broker cannot read its broker.conf.
    unreadable: str | None = None
    largest_array: int = LARGEST_ARRAY

    @classmethod
    def of(cls, config: StoreConfig) -> StartSettings:
        """Take the needed settings from ``config``; directories become relative to the store's root."""
        directories = dict.fromkeys((*config.commit_log_dirs, *config.read_only_commit_log_dirs))
        max_num = config.commit_log_recover_max_num or 0
        rules = rules_of(
            str(config.version),
            parse_delay_levels(config.message_delay_level),
            multi_dispatch=config.enable_multi_dispatch,
            lmq=config.enable_lmq,
        )
        errors = [one for one in config.findings if one.severity is Severity.ERROR]
        return cls(
            version=config.version,
            commit_log_dirs=tuple(_within(config.root_dir, directories)),
            commit_log_file_size=config.mapped_file_size_commit_log,
            queue_file_size=-(-config.mapped_file_size_consume_queue // UNIT_SIZE) * UNIT_SIZE,
            index_slots=config.max_hash_slot_num,
            index_entries=config.max_index_num,
            index_enabled=config.message_index_enable and config.index_file_write_enable,
            index_safe=config.message_index_enable and config.message_index_safe,
            check_crc=config.check_crc_on_recover,
            verify_property_crc=config.force_verify_prop_crc,
            duplication=config.duplication_enable,
            sync_flush=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            compaction=config.enable_compaction,
            recover_max_num=max_num if max_num > 0 else DEFAULT_RECOVER_MAX_NUM,
            rules=rules,
            refused=next((one.message for one in errors if "setting" in one.data), None),
            unreadable=next((f"{one.file}, {one.message}" for one in errors if "setting" not in one.data), None),
        )

    @property
    def is_4_9(self) -> bool:
        """Whether the broker is a 4.9."""
        return self.version is Version.V4_9

    @property
    def is_5_4(self) -> bool:
        """Whether the broker is a 5.4."""
        return self.version is Version.V5_4


def _within(root: str, directories: Iterable[str]) -> Iterable[str]:
    for directory in directories:
        relative = beneath(root, directory)
        if relative is None:
            raise StoreError(
                f"the commit log is in {directory}, outside of the store {root}; its start cannot be rehearsed",
                file=directory,
                hint="copy all directories of the log below one root and set storePathCommitLog",
            )
        yield relative


_LOG_SIZE = "mappedFileSizeCommitLog"
_QUEUE_SIZE = "mappedFileSizeConsumeQueue"
_SLOTS = "maxHashSlotNum"
_ENTRIES = "maxIndexNum"
_LOG_PATHS = "storePathCommitLog"
_OF_FILES = (_LOG_SIZE, _QUEUE_SIZE, _SLOTS, _ENTRIES, "mappedFileSizeConsumeQueueExt", "messageDelayLevel")
_OF_FILES_5 = ("mapperFileSizeBatchConsumeQueue", "storeType", "rocksdbCQDoubleWriteEnable")
_DISPATCHES = ("messageIndexEnable", "enableMultiDispatch", "enableLmq")


def with_found_settings(config: StoreConfig, listing: StoreListing) -> StoreConfig:
    """Return ``config`` with the values that the files reveal, instead of mere defaults."""
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
    """Return the settings of ``config`` that decide the form of files, for a new store at ``root``.

    Directories, flush and permissions are not copied. Every dispatch is on: a broker that had it on wrote the records
    that name further queues.
    """
    kept: dict[str, object] = {name: config.value(name) for name in _OF_FILES}
    if config.version is not Version.V4_9:
        kept |= {name: config.value(name) for name in _OF_FILES_5}
    kept |= dict.fromkeys(_DISPATCHES, True)
    kept["storePathRootDir"] = root
    return StoreConfig.default(config.version).with_values(kept, Origin.STORE)


def assumed_settings(config: StoreConfig, created: Iterable[str]) -> dict[str, object]:
    """Return, by name, the sizes that are mere defaults although the start creates files of that kind."""
    kinds = ((path, paths.classify(path, ()).kind) for path in created)
    directories = {path.partition("/")[0] for path, kind in kinds if kind is not FileKind.ROCKSDB}
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
    """Return the geometry that fits most index files; None if no geometry fits."""
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
        # Finding other geometries means reading the file, which has 400 MB by default.
        if index.file_size(*pair) == file.size() and hashes_home(IndexFile(file, pair, header)):
            return [pair]
    return find_geometries(file, header)
