"""The journal on disk: the state of a store's files before they were changed, and the undoing of the changes.

A journal is a directory of two files. ``old-bytes`` holds old bytes, one piece after the other. ``journal`` is text:
each line is a digest, a blank and a JSON array of entries. A line is written and synced before each change. An entry is
an object, and its first key is its type:

* ``begin``: the version of this format, and ``about``, the caller's own data
* ``absent``: the name did not exist
* ``directory``, ``file``: the name was a directory or a file; its mode, owner, group, time, and size
* ``bytes``: a span of a file is in ``pieces`` of ``old-bytes``; bytes between the pieces were a hole
* ``taken``: the file is about to lose this name; all its bytes are saved
* ``done``: the changes are complete; size and time of each file after them
* ``undoing``, ``undone``: an undo was begun, was completed

Only the last line can be torn by a crash, because a line is durable before the next is begun. The change that a torn
line was written for did not happen.

An undo can be repeated: after a crash the next run completes it.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.errors import ReadFailed, Refused, WriteFailed
from rmqtool.files.filesystem import (
    Attributes,
    Extent,
    Kind,
    ReadableFile,
    ReadableFileSystem,
    Status,
    WritableFile,
    WritableFileSystem,
)
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
    """Write a line at ``end`` and sync it; return the offset after it."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    line = digest(text).encode() + b" " + text + b"\n"
    log.pwrite(line, end)
    log.fdatasync()
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
