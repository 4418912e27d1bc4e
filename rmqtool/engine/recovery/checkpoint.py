"""The checkpoint after a recovery: everything is durable, up to the last record.

upstream: a recovery never corrects it, and the next crash believes it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.engine.recovery.log_pass import LogPass
from rmqtool.engine.recovery.places import BeforeWrite
from rmqtool.formats.checkpoints import PAGE_SIZE, check_checkpoint, decode_checkpoint, encode_checkpoint
from rmqtool.formats.layouts import StoreCheckpoint
from rmqtool.formats.paths import CHECKPOINT, INDEX
from rmqtool.storage.filesystem import Kind, WritableFileSystem
from rmqtool.storage.index_files import read_header

# The clock of a broker may be set back; no clock is set back by more than this without anybody noticing.
_AHEAD_MS = 3_600_000


def heal_checkpoint(
    files: WritableFileSystem,
    reading: LogPass,
    log_end: int,
    before_write: BeforeWrite,
    *,
    abnormal: bool,
    has_queues: bool,
) -> None:
    """Write what a clean stop would have written, if the store was not closed or the file cannot be right.

    Queues that are in RocksDB (``has_queues`` is False) are not ours, and how far they go we do not say.
    """
    data = _read(files)
    fields = decode_checkpoint(data or b"")
    newest = reading.newest_timestamp
    times = fields.physic_msg_timestamp, fields.logics_msg_timestamp, fields.index_msg_timestamp
    is_wrong = data is None or check_checkpoint(data) is not None or max(times) > newest + _AHEAD_MS
    is_wrong |= max(fields.confirm_phy_offset, fields.master_flushed_offset) > log_end
    # A clean stop writes the time of the last record, whatever the clock did before.
    last = min(reading.last_timestamp, newest)
    indexed = min(max(fields.index_msg_timestamp, 0), last)
    ends = _iter_index_ends(files)
    if fields.index_msg_timestamp > next(ends, fields.index_msg_timestamp):
        # What it was about is gone from the index. A clean stop leaves the end of the last file that is full.
        indexed, is_wrong = next(ends, 0), True
    if not (is_wrong or abnormal):
        return
    made = StoreCheckpoint(
        physic_msg_timestamp=last,
        logics_msg_timestamp=last if has_queues else min(max(fields.logics_msg_timestamp, 0), last),
        index_msg_timestamp=indexed,
        master_flushed_offset=min(max(fields.master_flushed_offset, 0), log_end),
        confirm_phy_offset=min(max(fields.confirm_phy_offset, 0), log_end),
    )
    page = encode_checkpoint(made)
    if page == data:
        return
    before_write(CHECKPOINT, "modify" if data is not None else "create")
    with files.create(CHECKPOINT, PAGE_SIZE) if data is None else files.open_write(CHECKPOINT) as file:
        file.pwrite(page, 0)
        file.truncate(PAGE_SIZE)
        file.fsync()
    files.fsync_dir()


def _iter_index_ends(files: WritableFileSystem) -> Iterator[int]:
    """Yield when the newest entry of each index file was stored, the newest file first, where it has any."""
    for entry in reversed(files.listdir(INDEX) if files.is_directory(INDEX) else []):
        if entry.kind is not Kind.FILE:
            continue
        with files.open_read(f"{INDEX}/{entry.name}") as file:
            header = read_header(file)
        if header is not None and header.end_timestamp > 0:
            yield header.end_timestamp


def _read(files: WritableFileSystem) -> bytes | None:
    if not files.exists(CHECKPOINT):
        return None
    with files.open_read(CHECKPOINT) as file:
        return file.pread(2 * PAGE_SIZE, 0)
