"""``StoreCheckpoint``: the times that decide where recovery after a crash begins."""

from __future__ import annotations

from rmqtool.formats import layouts, paths
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_checkpoint, min_timestamp
from rmqtool.upstream.files import StoreFiles

_FIELDS = layouts.STORE_CHECKPOINT
_FIELDS_4_9 = 3 * layouts.LONG.size


class Checkpoint:
    """The fields in memory, and when they reach the file. Bytes behind the fields are never written."""

    def __init__(self, files: StoreFiles, v4_9: bool) -> None:
        self._files = files
        self._length = _FIELDS_4_9 if v4_9 else _FIELDS.size
        if not files.exists(paths.CHECKPOINT):
            files.create(paths.CHECKPOINT, PAGE_SIZE)
        elif files.size(paths.CHECKPOINT) < PAGE_SIZE:
            files.resize(paths.CHECKPOINT, PAGE_SIZE)
        values = decode_checkpoint(files.read(paths.CHECKPOINT, 0, _FIELDS.size))
        self.values = values
        self.min_timestamp = min_timestamp(values)

    @property
    def index_msg_timestamp(self) -> int:
        """The end time of the last full index file."""
        return self.values.index_msg_timestamp

    def set_logics(self, timestamp: int) -> None:
        """Note the store time of a dispatched record."""
        self.values = self.values._replace(logics_msg_timestamp=timestamp)

    def set_index(self, timestamp: int) -> None:
        """Note the end time of an index file that is full."""
        self.values = self.values._replace(index_msg_timestamp=timestamp)

    def set_confirm(self, offset: int) -> None:
        """Note how far the log is confirmed (5.x)."""
        self.values = self.values._replace(confirm_phy_offset=offset)

    def flush(self) -> None:
        """Write the fields."""
        self._files.write(paths.CHECKPOINT, 0, _FIELDS.encode(self.values)[: self._length])
