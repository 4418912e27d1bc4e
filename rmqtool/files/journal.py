"""A file system that records the old state before each change, so that everything can be undone.

Old bytes, names and attributes are written to a journal and synced before the change is made. The journal's directory
is beside the store, not in it. ``journal_log`` has the format, and ``undo``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from rmqtool.errors import WriteFailed
from rmqtool.files.filesystem import (
    Attributes,
    Buffer,
    Closable,
    Entry,
    Extent,
    Kind,
    LockState,
    ReadableFile,
    Space,
    Status,
    WritableFile,
    WritableFileSystem,
    path_parts,
    require_range,
    split,
)
from rmqtool.files.journal_log import (
    BLOCK,
    CHUNK,
    LOG,
    OLD_BYTES,
    Journal,
    JournalEntry,
    Piece,
    append_line,
    begin_entry,
    digest,
    entry_of,
)
from rmqtool.files.lock import LOCK_CONTENT


class JournalledFileSystem(WritableFileSystem):
    """A writable file system that writes a journal.

    If the journal cannot be written, the change is not made, and no further change is.
    """

    def __init__(self, files: WritableFileSystem, journal: WritableFileSystem, about: Mapping[str, object]) -> None:
        """Begin a journal in an empty directory, which the caller made durable; ``about`` is stored for readers."""
        if journal.listdir():
            raise WriteFailed(
                f"{journal.shown('')} is not empty: one journal, one directory",
                file=journal.shown(""),
                hint="name an empty directory for the journal",
            )
        self._files = files
        self._journal = Journal()
        self._guard = threading.RLock()
        self._locks: set[str] = set()
        self._old_end = 0
        self._failed = False
        self._log = journal.create(LOG)
        try:
            self._old = journal.create(OLD_BYTES)
        except BaseException:
            self._log.close()
            raise
        self._record([begin_entry(about)])
        journal.fsync_dir()

    def finish(self) -> None:
        """Sync everything that was changed, then record that the changes are complete.

        After that, an undo is refused if the files were changed since. Their times show it, so times are synced
        too.
        """
        with self._guard:
            left: dict[str, list[int] | None] = {}
            directories = set()
            for path, original in self._journal.originals.items():
                if path in self._locks:
                    continue  # an undo takes the lock itself
                status = self._files.find_stat(path)
                directories.add(split(path)[0])
                if status is None:
                    left[path] = None
                elif status.kind is Kind.FILE and original.kind is not Kind.DIRECTORY:
                    with self._files.open_write(path) as file:
                        file.fsync()
                    left[path] = [status.size, status.mtime_ns]
                elif status.kind is Kind.DIRECTORY:
                    directories.add(path)
            for directory in sorted(directories):
                if self._files.is_directory(directory):
                    self._files.fsync_dir(directory)
            self._record([{"done": left}])

    def close(self) -> None:
        """Close the journal. The file system below stays open: it belongs to the caller."""
        self._log.close()
        self._old.close()

    # -- looking: nothing to write down

    def open_read(self, path: str) -> ReadableFile:
        return self._files.open_read(path)

    def listdir(self, path: str = "") -> list[Entry]:
        return self._files.listdir(path)

    def find_stat(self, path: str) -> Status | None:
        return self._files.find_stat(path)

    def space(self) -> Space:
        return self._files.space()

    def lock_state(self, path: str = "lock") -> LockState:
        return self._files.lock_state(path)

    def lock(self, path: str = "lock") -> Closable:
        """Take the broker's lock. Creating or writing its file is recorded like any change."""
        if not self._files.lock_state(path).held:
            self._before_locking(path)
        return self._files.lock(path)

    def shown(self, path: str) -> str:
        return self._files.shown(path)

    # -- changing: write down first

    def create(self, path: str, size: int = 0) -> WritableFile:
        self._before_creating(path)
        return JournalledFile(self, self._files.create(path, size))

    def open_write(self, path: str) -> WritableFile:
        return JournalledFile(self, self._files.open_write(path))

    def rename(self, source: str, target: str) -> None:
        self._before_naming(source, target)
        self._files.rename(source, target)

    def unlink(self, path: str) -> None:
        self._before_naming(path)
        self._files.unlink(path)

    def mkdir(self, path: str) -> None:
        self._before_creating(path)
        self._files.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._before_naming(path)
        self._files.rmdir(path)

    def fsync_dir(self, path: str = "") -> None:
        self._files.fsync_dir(path)

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        with self._guard:
            self._record(self._unknown(path))
        self._files.set_attributes(path, attributes)

    # -- what is written down

    def before_writing(self, path: str, file_offset: int, end: int | None) -> None:
        """Save the original bytes of a file from ``file_offset`` to ``end``, or to its original end."""
        require_range(self.shown(path), 0 if end is None else end - file_offset, file_offset, WriteFailed)
        with self._guard:
            entries = self._unknown(path)
            self._record([*entries, *self._save(path, entries, file_offset, end)])

    def _before_creating(self, path: str) -> None:
        path_parts(path, WriteFailed)
        if not self._files.exists(path):  # an existing name will be refused, so nothing needs to be saved
            self._before_naming(path)

    def _before_locking(self, path: str) -> None:
        self._locks.add(path)
        if not self._files.exists(path):
            self._before_creating(path)
            return
        with self._files.open_read(path) as file:
            is_written = file.pread(len(LOCK_CONTENT), 0) == LOCK_CONTENT
        if not is_written:
            self.before_writing(path, 0, None)

    def _before_naming(self, *paths: str) -> None:
        """Save the files that will lose these names, and the directories of the names."""
        with self._guard:
            entries: list[JournalEntry] = []
            for path in paths:
                known = {next(iter(entry.values())) for entry in entries}
                directory, _ = split(path)
                if directory not in known:
                    entries += self._unknown(directory)
                if path not in known:
                    mine = self._unknown(path)
                    entries += [*mine, *self._save(path, mine, 0, None, taken=True)]
            self._record(entries)

    def _unknown(self, path: str) -> list[JournalEntry]:
        """Return the entry for the state of a name, unless it is recorded already."""
        path_parts(path, WriteFailed)
        if path in self._journal.originals:
            return []
        status = self._files.find_stat(path)
        if status is not None and status.kind not in (Kind.FILE, Kind.DIRECTORY):
            return []  # the change itself will be refused
        return [entry_of(path, status)]

    def _save(
        self, path: str, entries: list[JournalEntry], file_offset: int, end: int | None, *, taken: bool = False
    ) -> list[JournalEntry]:
        """Copy the blocks of a span that are not saved yet into ``old-bytes``; return their entries."""
        new = Journal()
        new.learn(entries)
        original = self._journal.originals.get(path) or new.originals.get(path)
        if original is None or original.kind is not Kind.FILE or original.taken:
            return []
        end = original.size if end is None else min(end, original.size)
        blocks = [block for block in range(file_offset // BLOCK, -(-end // BLOCK)) if block not in original.blocks]
        found: list[JournalEntry] = []
        if blocks:
            self._require_journal()
            with self._files.open_read(path) as file:
                for first, last in _runs(blocks):
                    start, stop = first * BLOCK, min((last + 1) * BLOCK, original.size)
                    pieces = list(self._copy(file, start, stop))
                    found.append({"bytes": path, "file_offset": start, "length": stop - start, "pieces": pieces})
        return [*found, {"taken": path}] if taken else found

    def _copy(self, file: ReadableFile, start: int, stop: int) -> Iterator[Piece]:
        for extent in file.iter_data(start, stop):
            for file_offset in range(extent.file_offset, extent.end, CHUNK):
                data = file.pread_exactly(min(CHUNK, extent.end - file_offset), file_offset)
                self._guarded_write(data)
                yield Piece(file_offset, len(data), self._old_end - len(data), digest(data))

    def _guarded_write(self, data: bytes) -> None:
        try:
            self._old.pwrite(data, self._old_end)
        except BaseException:
            self._failed = True
            raise
        self._old_end += len(data)

    def _record(self, entries: list[JournalEntry]) -> None:
        """Make old bytes and entries durable. The change may begin when this returns."""
        if not entries:
            self._require_journal()
            return
        self._require_journal()
        try:
            if any("bytes" in entry for entry in entries):
                self._old.fdatasync()
            self._journal.end = append_line(self._log, self._journal.end, entries)
        except BaseException:
            self._failed = True
            raise
        self._journal.learn(entries)

    def _require_journal(self) -> None:
        if self._failed:
            raise WriteFailed(
                f"{self._log.shown} could not be written before, so no further change is made",
                file=self._log.shown,
                hint="undo the changes made so far",
            )


class JournalledFile(WritableFile):
    """A file whose old bytes are saved before they are overwritten."""

    def __init__(self, owner: JournalledFileSystem, file: WritableFile) -> None:
        self.path = file.path
        self.shown = file.shown
        self._owner = owner
        self._file = file

    def pread(self, length: int, file_offset: int) -> bytes:
        return self._file.pread(length, file_offset)

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        return self._file.pread_into(buffer, file_offset)

    def stat(self) -> Status:
        return self._file.stat()

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        return self._file.iter_data(file_offset, end)

    def pwrite(self, data: Buffer, file_offset: int) -> None:
        self._owner.before_writing(self.path, file_offset, file_offset + memoryview(data).nbytes)
        self._file.pwrite(data, file_offset)

    def truncate(self, size: int) -> None:
        self._owner.before_writing(self.path, size, None)
        self._file.truncate(size)

    def fdatasync(self) -> None:
        self._file.fdatasync()

    def fsync(self) -> None:
        self._file.fsync()

    def close(self) -> None:
        self._file.close()


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
