"""``StoreCheckpoint``: the times that decide where recovery begins after a crash."""

from __future__ import annotations

from rmqtool.formats import layouts, paths
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_checkpoint, min_timestamp
from rmqtool.upstream.files import StoreFiles

_FIELDS = layouts.STORE_CHECKPOINT
_FIELDS_4_9 = 3 * layouts.LONG.size


class Checkpoint:
    """The fields in memory, and when they are written. Bytes after the fields are never written."""

    def __init__(self, files: StoreFiles, v4_9: bool) -> None:
        self._files = files
        self._length = _FIELDS_4_9 if v4_9 else _FIELDS.size
        if not files.exists(paths.CHECKPOINT):
            files.create(paths.CHECKPOINT, PAGE_SIZE)
        elif files.size(paths.CHECKPOINT) < PAGE_SIZE:
            files.resize(paths.CHECKPOINT, PAGE_SIZE)
        values = decode_checkpoint(files.read(paths.CHECKPOINT, 0, _FIELDS.size))
        # The time that recovery uses, before it changes a field.
        self.min_timestamp = min_timestamp(values)
        self._physic_msg_timestamp = values.physic_msg_timestamp
        self._master_flushed_offset = values.master_flushed_offset
        # The store time of the last dispatched record.
        self.logics_msg_timestamp = values.logics_msg_timestamp
        # The end time of the last full index file.
        self.index_msg_timestamp = values.index_msg_timestamp
        # The confirmed end of the log (5.x).
        self.confirm_phy_offset = values.confirm_phy_offset

    def flush(self) -> None:
        """Write the fields."""
        values = layouts.StoreCheckpoint(
            self._physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self._master_flushed_offset,
            self.confirm_phy_offset,
        )
        self._files.write(paths.CHECKPOINT, 0, _FIELDS.encode(values)[: self._length])
