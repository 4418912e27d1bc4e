"""The journal: the old state of a store's files, written before each change, so that changes can be undone.

``JournalledFileSystem`` writes old bytes, names and attributes to a journal and syncs them before it makes a change;
``undo`` restores them. A journal is a directory of two files. ``old-bytes`` holds old bytes, one piece after the other.
``journal`` is text: each line is a digest, a blank and a JSON array of entries. A line is written and synced before
each change. An entry is an object, and its first key is its type:

* ``begin``: the version of this format, and ``about``, the caller's own data
* ``absent``: the name did not exist
* ``directory``, ``file``: the name was a directory or a file; its mode, owner, group, time, and size
* ``bytes``: a span of a file is in ``pieces`` of ``old-bytes``; bytes between the pieces were a hole
* ``taken``: the file is about to lose this name; all its bytes are saved
* ``done``: the changes are complete; size and time of each file after them
* ``undoing``, ``undone``: an undo was begun, was completed

Only the last line can be torn by a crash, because a line is durable before the next is begun. The change that a torn
line was written for did not happen. An undo can be repeated: after a crash the next run completes it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.errors import ReadFailed, Refused, WriteFailed
from rmqtool.files.filesystem import (
    Attributes,
    Buffer,
    Closable,
    Entry,
    Extent,
    Kind,
    LockState,
    ReadableFile,
    ReadableFileSystem,
    Space,
    Status,
    WritableFile,
    WritableFileSystem,
    path_parts,
    require_range,
    split,
)
from rmqtool.files.lock import LOCK_CONTENT
from rmqtool.formats.paths import LOCK

LOG = "journal"
OLD_BYTES = "old-bytes"
VERSION = 1
# Old bytes are saved in blocks of this size: small enough to save little, large enough to sync rarely.
BLOCK = 64 << 10
CHUNK = 1 << 20
_DIGEST_SIZE = 16

JournalEntry = dict[str, Any]


class Piece(NamedTuple):
    """A span of a file whose old bytes are ``at`` an offset of ``old-bytes``."""

    file_offset: int
    length: int
    at: int
    digest: str


@dataclass(slots=True)
class Original:
    """The state of a name before the first change."""

    kind: Kind | None
    size: int = 0
    attributes: Attributes | None = None
    # Whether the file lost this name by a rename or removal; all its bytes are saved then.
    taken: bool = False
    blocks: set[int] = field(default_factory=set)
    spans: list[tuple[int, int]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


@dataclass(slots=True)
class Journal:
    """The content of a journal: original states, and how far the change and its undo came."""

    about: dict[str, Any] = field(default_factory=dict)
    originals: dict[str, Original] = field(default_factory=dict)
    # The files after the completed change: (size, mtime_ns), or None for a removed file. None while it is not complete.
    done: dict[str, tuple[int, int] | None] | None = None
    undoing: bool = False
    undone: bool = False
    # The offset in the log after the last valid line.
    end: int = 0

    def learn(self, entries: list[JournalEntry]) -> None:
        """Apply the entries of one line."""
        for entry in entries:
            self._learn(entry)

    def _learn(self, entry: JournalEntry) -> None:
        what, value = next(iter(entry.items()))
        if what == "begin":
            self.about = entry["about"]
        elif what == "absent":
            self.originals[value] = Original(None)
        elif what in ("file", "directory"):
            attributes = Attributes(entry["mode"], entry["owner"], entry["group"], entry["mtime_ns"])
            kind = Kind.FILE if what == "file" else Kind.DIRECTORY
            self.originals[value] = Original(kind, entry.get("size", 0), attributes)
        elif what == "bytes":
            original = self.originals[value]
            start, length = entry["file_offset"], entry["length"]
            original.blocks.update(range(start // BLOCK, -(-(start + length) // BLOCK)))
            original.spans.append((start, length))
            original.pieces.extend(pieces_of(entry))
        elif what == "taken":
            self.originals[value].taken = True
        elif what == "done":
            self.done = {path: None if left is None else (left[0], left[1]) for path, left in value.items()}
        elif what == "undoing":
            self.undoing = True
        else:
            self.undone = True


class JournalLine(NamedTuple):
    """A valid line and its offsets in the log."""

    start: int
    end: int
    entries: list[JournalEntry]


def entry_of(path: str, status: Status | None) -> JournalEntry:
    """Return the entry for the present state of a name."""
    if status is None:
        return {"absent": path}
    entry: JournalEntry = {
        "directory" if status.kind is Kind.DIRECTORY else "file": path,
        "mode": status.mode,
        "owner": status.owner,
        "group": status.group,
        "mtime_ns": status.mtime_ns,
    }
    return entry if status.kind is Kind.DIRECTORY else entry | {"size": status.size}


def begin_entry(about: Mapping[str, object]) -> JournalEntry:
    return {"begin": VERSION, "about": dict(about)}


def pieces_of(entry: JournalEntry) -> list[Piece]:
    """Return the pieces of a ``bytes`` entry."""
    return [Piece(*piece) for piece in entry["pieces"]]


def digest(data: bytes) -> str:
    """Return the digest of a line's text or of a piece."""
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()


def append_line(log: WritableFile, end: int, entries: list[JournalEntry]) -> int:
    """Write a line at ``end`` and sync it; return the offset after it. On an error the journal is as before."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    line = digest(text).encode() + b" " + text + b"\n"
    try:
        log.pwrite(line, end)
        log.fdatasync()
    except BaseException:
        with suppress(WriteFailed):  # a torn line at the end is never read
            log.truncate(end)
        raise
    return end + len(line)


def read_journal(journal: ReadableFileSystem) -> Journal:
    """Read a journal without its old bytes."""
    return _journal_of(_read_lines(journal))


def read_verified_journal(journal: ReadableFileSystem) -> Journal:
    """Read a journal and verify all old bytes. Nothing may be undone from a journal that does not verify."""
    lines = _read_lines(journal)
    if lines:
        with journal.open_read(OLD_BYTES) as old:
            for line in lines:
                for piece in (piece for entry in line.entries if "bytes" in entry for piece in pieces_of(entry)):
                    # Old bytes are durable before the line that refers to them, so this is damage and not a torn write.
                    if digest(old.pread(piece.length, piece.at)) != piece.digest:
                        raise _damaged(old, piece.at, "old bytes do not match their digest")
    return _journal_of(lines)


def _journal_of(lines: list[JournalLine]) -> Journal:
    found = Journal()
    for line in lines:
        found.learn(line.entries)
        found.end = line.end
    return found


def _read_lines(journal: ReadableFileSystem) -> list[JournalLine]:
    names = {entry.name for entry in journal.listdir()}
    if not {LOG, OLD_BYTES} <= names:
        if names <= {LOG, OLD_BYTES}:
            return []  # a crash while the journal was begun: nothing was changed yet
        raise ReadFailed(
            f"{journal.shown('')} is not an undo journal",
            file=journal.shown(""),
            hint=f"a journal contains {LOG} and {OLD_BYTES}; repair --apply shows where it is",
        )
    valid: list[JournalLine] = []
    with journal.open_read(LOG) as log:
        torn = False
        for line in _iter_lines(log.pread_exactly(log.size(), 0)):
            if line is not None and torn:
                raise _damaged(log, line.start, "an earlier line does not match its digest")
            if line is None:
                torn = True
            else:
                valid.append(line)
        if valid and valid[0].entries[0].get("begin") != VERSION:
            raise ReadFailed(
                f"{log.shown} is not a journal of version {VERSION}",
                file=log.shown,
                hint="undo it with the version of rmqtool that made the change",
            )
    return valid


def _iter_lines(text: bytes) -> Iterator[JournalLine | None]:
    """Yield the lines; None for one that is not whole."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start) + 1 or len(text)
        stated, _, body = text[start:end].removesuffix(b"\n").partition(b" ")
        whole = text[end - 1 : end] == b"\n" and stated == digest(body).encode()
        yield JournalLine(start, end, json.loads(body)) if whole else None
        start = end


def _damaged(file: ReadableFile, offset: int, what: str) -> ReadFailed:
    return ReadFailed(
        f"{file.shown} is damaged: {what}; nothing was undone",
        file=file.shown,
        offset=offset,
        hint="the old bytes in it can still be restored by hand",
    )


@dataclass(frozen=True)
class Undone:
    """The result of an undo: paths restored, and paths deleted because the change had created them."""

    restored: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def __add__(self, other: Undone) -> Undone:
        return Undone(self.restored + other.restored, self.deleted + other.deleted)


def undo(files: WritableFileSystem, journal: WritableFileSystem) -> Undone:
    """Restore all files, directories, modes, owners and times that a journal has; return what was done.

    Nothing is changed unless the whole journal verifies and, if the change was completed, the files are still as it
    left them. A second undo does nothing.
    """
    if not require_undoable(files, journal):
        return Undone()
    recorded = read_verified_journal(journal)
    made = {path for path, original in recorded.originals.items() if original.kind is None and files.exists(path)}
    with journal.open_write(LOG) as log, journal.open_read(OLD_BYTES) as old:
        log.truncate(recorded.end)
        end = append_line(log, recorded.end, [{"undoing": True}])
        _Restoration(files, recorded, old).run()
        append_line(log, end, [{"undone": True}])
    return Undone(
        [path for path in sorted(recorded.originals) if recorded.originals[path].kind is not None], sorted(made)
    )


def require_undoable(files: ReadableFileSystem, journal: ReadableFileSystem) -> bool:
    """Return whether there is anything to undo; raise Refused if the files changed after the completed change."""
    recorded = read_journal(journal)
    if recorded.undone or not recorded.originals:
        return False
    if recorded.done is not None and not recorded.undoing:
        _require_as_left(files, recorded.done)
    return True


def _require_as_left(files: ReadableFileSystem, done: dict[str, tuple[int, int] | None]) -> None:
    for path, left in done.items():
        status = files.find_stat(path)
        if (None if status is None else (status.size, status.mtime_ns)) != left:
            raise Refused(
                f"{files.shown(path)} was changed after the repair; nothing was undone",
                file=files.shown(path),
                hint="a broker may have used the store since: check it instead",
            )


class _Restoration:
    """One run over the original states. Each step looks at the present state first, so steps can be repeated."""

    def __init__(self, files: WritableFileSystem, recorded: Journal, old: ReadableFile) -> None:
        self._files = files
        self._originals = sorted(recorded.originals.items())
        self._old = old

    def run(self) -> None:
        # In the order of paths a directory comes before its entries, so removal goes backwards.
        for path, original in reversed(self._originals):
            if path != LOCK:
                self._clear(path, original.kind)
        for path, _ in self._of(Kind.DIRECTORY):
            if not self._files.exists(path):
                self._files.mkdir(path)
        for path, original in self._of(Kind.FILE):
            self._restore(path, original)
        # A lock file that the change created is removed last: until then it keeps other processes away.
        for path, original in self._originals:
            if path == LOCK:
                self._clear(path, original.kind)
        # Every directory in which a name changed is in the journal, so this makes all names durable.
        for path, original in reversed(self._of(Kind.DIRECTORY)):
            assert original.attributes is not None, "a directory has attributes"
            self._files.set_attributes(path, original.attributes)
            self._files.fsync_dir(path)

    def _of(self, kind: Kind) -> list[tuple[str, Original]]:
        return [(path, original) for path, original in self._originals if original.kind is kind]

    def _clear(self, path: str, kind: Kind | None) -> None:
        """Remove what has the name now, if it is of another kind than it was."""
        status = self._files.find_stat(path)
        if status is not None and status.kind is not kind:
            if status.kind is Kind.DIRECTORY:
                self._files.rmdir(path)
            else:
                self._files.unlink(path)

    def _restore(self, path: str, original: Original) -> None:
        if original.taken:
            # Create a new file even if the name exists: that file can have another name too.
            if self._files.exists(path):
                self._files.unlink(path)
            file = self._files.create(path)
        else:
            if not self._files.exists(path):
                shown = self._files.shown(path)
                raise WriteFailed(
                    f"{shown} is missing, and the journal cannot restore it",
                    file=shown,
                    hint="restore it, then undo again",
                )
            file = self._files.open_write(path)
        with file:
            self._restore_bytes(file, original)
            assert original.attributes is not None, "a file has attributes"
            self._files.set_attributes(path, original.attributes)
            file.fsync()

    def _restore_bytes(self, file: WritableFile, original: Original) -> None:
        if file.size() != original.size:
            file.truncate(original.size)
        for piece in original.pieces:
            file.pwrite(self._old.pread_exactly(piece.length, piece.at), piece.file_offset)
        for hole in _iter_holes(original):
            for extent in file.iter_data(hole.file_offset, hole.end):
                for file_offset in range(extent.file_offset, extent.end, CHUNK):
                    file.pwrite(bytes(min(CHUNK, extent.end - file_offset)), file_offset)


def _iter_holes(original: Original) -> Iterator[Extent]:
    """Yield the holes between the pieces of the saved spans."""
    pieces = deque(sorted(original.pieces))
    for start, length in sorted(original.spans):
        position = start
        while pieces and pieces[0].file_offset < start + length:
            piece = pieces.popleft()
            if position < piece.file_offset:
                yield Extent(position, piece.file_offset - position)
            position = piece.file_offset + piece.length
        if position < start + length:
            yield Extent(position, start + length - position)


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
