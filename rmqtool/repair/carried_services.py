"""What services of a broker keep beside the log, as far as a copy can take it along: the timers of 5.x.

The timer log names messages by their places, so its units get the new ones; the wheel names units of the timer log,
and stays as it is. What else there is (compacted logs, RocksDB, epochs) brokers build again, or it is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.storage.copying import copy_data
from rmqtool.storage.filesystem import WritableFileSystem, make_directories, split
from rmqtool.storage.store import Store

if TYPE_CHECKING:
    from rmqtool.scan.moving import Places

# Units are 52 bytes; pieces end between two of them.
_PIECE = 52 << 15
_LEFT_BEHIND = {
    FileKind.COMPACTION_LOG: "compacted logs are left out: a broker compacts again what the log still has",
    FileKind.EPOCH: "the epochs of the controller are left out: they name places in the old log",
}


def carry_services(store: Store, files: WritableFileSystem, places: Places, notes: list[str]) -> None:
    """Copy the timers into the new store; note what is left out."""
    for file in store.listing.of_kind(FileKind.TIMER_LOG):
        _carry_timer_log(store, file.path, files, places)
    for file in store.listing.of_kind(FileKind.TIMER_WHEEL, FileKind.TIMER_CHECK):
        make_directories(files, split(file.path)[0])
        with store.filesystem.open_read(file.path) as old, files.create(file.path) as new:
            copy_data(old, new)
    kinds = {file.what.kind for file in store.listing.files}
    notes += [text for kind, text in _LEFT_BEHIND.items() if kind in kinds]
    if paths.ROCKSDB_STORE in store.listing.databases():
        notes.append("timers and transactions in RocksDB (rocksdbstore) are left out: they name places in the old log")


def _carry_timer_log(store: Store, path: str, files: WritableFileSystem, places: Places) -> None:
    from rmqtool.scan.moving import moved_timer_log

    make_directories(files, split(path)[0])
    with store.filesystem.open_read(path) as old, files.create(path) as new:
        new.truncate(old.size())
        for extent in old.iter_data():
            begin = extent.file_offset - extent.file_offset % _PIECE
            for at in range(begin, extent.end, _PIECE):
                new.pwrite(moved_timer_log(old.pread(_PIECE, at), places), at)
