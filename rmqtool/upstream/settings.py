"""The settings that change what a start does, as one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmqtool.config import FlushDiskType, StoreConfig, Version
from rmqtool.errors import StoreError
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.dispatch import DispatchRules, parse_delay_levels, rules_of
from rmqtool.formats.java import INT_MAX
from rmqtool.storage.discovery import beneath

# Files that 5.4 looks at when commitLogRecoverMaxNum is not a positive number.
DEFAULT_RECOVER_MAX_NUM = 10

# A broker allocates as many bytes as a record's size asks for. No setting names its heap; with the smallest heap that
# was measured (512 MiB) it runs out of memory above this size.
LARGEST_ARRAY = 340 << 20
# No heap holds a larger one.
LARGEST_ARRAY_OF_ALL = INT_MAX - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """What the model of a start has to know."""

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
    largest_array: int = LARGEST_ARRAY

    @classmethod
    def of(cls, config: StoreConfig) -> StartSettings:
        """Pick from ``config`` what matters here; directories become relative to the store's root."""
        directories = dict.fromkeys((*config.commit_log_dirs, *config.read_only_commit_log_dirs))
        max_num = config.commit_log_recover_max_num or 0
        rules = rules_of(
            str(config.version),
            parse_delay_levels(config.message_delay_level),
            multi_dispatch=config.enable_multi_dispatch,
            lmq=config.enable_lmq,
        )
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
                f"the commit log lies at {directory}, outside of the store {root}; its start cannot be rehearsed",
                file=directory,
                hint="copy all directories of the log below one root and set storePathCommitLog",
            )
        yield relative
