"""The journal on disk: what the files of a store were, before a change touched them.

A journal is a directory of two files. ``old-bytes`` holds old bytes, one piece behind the other. ``journal`` is text:
each line is a digest, a space and a JSON array of entries; one line is written and synced before each change. An entry
is an object whose first key says what it tells:

* ``begin``: the version of this format, and ``about``, which is the caller's
* ``absent``: nothing bore this name
* ``directory``, ``file``: the name was a directory's, a file's; its mode, owner, group, time, and size
* ``bytes``: a span of a file lies in ``pieces`` of ``old-bytes``; what lies between the pieces was a hole
* ``taken``: the name was about to be taken from the file, all of whose bytes are saved
* ``done``: the changes are complete; the size and the time of each file as they left it
* ``undoing``, ``undone``: going back was begun, was completed

Only the last line can be one that a crash tore, since the next is begun when the one before is durable; and what a torn
line was to precede was not begun.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.storage.filesystem import Attributes, Kind, ReadableFile, ReadableFileSystem, Status, WritableFile

LOG = "journal"
OLD_BYTES = "old-bytes"
VERSION = 1
# Old bytes are saved in blocks of this size: small enough to save little, large enough to sync seldom.
BLOCK = 64 << 10
CHUNK = 1 << 20
_DIGEST_SIZE = 16

JournalEntry = dict[str, Any]


class Piece(NamedTuple):
    """Bytes of a file that lie ``at`` an offset of ``old-bytes``."""

    file_offset: int
    length: int
    at: int
    digest: str


@dataclass(slots=True)
class Original:
    """What bore a name before the first change."""

    kind: Kind | None
    size: int = 0
    attributes: Attributes | None = None
    # Whether the file lost its name to a rename or a removal; all its bytes are saved then.
    taken: bool = False
    blocks: set[int] = field(default_factory=set)
    spans: list[tuple[int, int]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


@dataclass(slots=True)
class Journal:
    """A journal as read: what things were, and how far the change and its undoing came."""

    about: dict[str, Any] = field(default_factory=dict)
    originals: dict[str, Original] = field(default_factory=dict)
    # The files as the change left them, once it was complete: (size, mtime_ns), or None for one that is gone.
    done: dict[str, tuple[int, int] | None] | None = None
    undoing: bool = False
    undone: bool = False
    # Where the valid lines end in the log.
    end: int = 0

    def learn(self, entries: list[JournalEntry]) -> None:
        """Take in the entries of one line."""
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
    """A valid line, and where it starts in the log."""

    start: int
    end: int
    entries: list[JournalEntry]


def entry_of(path: str, status: Status | None) -> JournalEntry:
    """Return the entry that tells what bears a name."""
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
    """Return the first entry of a journal."""
    return {"begin": VERSION, "about": dict(about)}


def pieces_of(entry: JournalEntry) -> list[Piece]:
    """Return where the bytes of a ``bytes`` entry lie."""
    return [Piece(*piece) for piece in entry["pieces"]]


def digest(data: bytes) -> str:
    """Return the digest of a line's text or of a piece."""
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()


def append_line(log: WritableFile, end: int, entries: list[JournalEntry]) -> int:
    """Write a line at ``end``, sync it, return where it ends."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    line = digest(text).encode() + b" " + text + b"\n"
    log.pwrite(line, end)
    log.fdatasync()
    return end + len(line)


def read_journal(journal: ReadableFileSystem) -> Journal:
    """Read what a journal tells, its old bytes not looked at."""
    return _told(_read_lines(journal))


def read_verified_journal(journal: ReadableFileSystem) -> Journal:
    """Read a journal and prove that every old byte of it is there; only then may anything be undone by it."""
    lines = _read_lines(journal)
    if lines:
        with journal.open_read(OLD_BYTES) as old:
            for line in lines:
                for piece in (piece for entry in line.entries if "bytes" in entry for piece in pieces_of(entry)):
                    # Old bytes are durable before the line that tells of them: this is damage, and no torn write.
                    if digest(old.pread(piece.length, piece.at)) != piece.digest:
                        raise _damaged(old, piece.at, "old bytes do not have the digest that was written down")
    return _told(lines)


def _told(lines: list[JournalLine]) -> Journal:
    found = Journal()
    for line in lines:
        found.learn(line.entries)
        found.end = line.end
    return found


def _read_lines(journal: ReadableFileSystem) -> list[JournalLine]:
    names = {entry.name for entry in journal.listdir()}
    if not {LOG, OLD_BYTES} <= names:
        if names <= {LOG, OLD_BYTES}:
            return []  # interrupted while it was begun: nothing had been changed
        raise ReadFailed(
            f"{journal.shown('')} is no journal",
            file=journal.shown(""),
            hint=f"a journal holds {LOG} and {OLD_BYTES}; repair --apply says where it is",
        )
    valid: list[JournalLine] = []
    with journal.open_read(LOG) as log:
        torn = False
        for line in _iter_lines(log.pread_exactly(log.size(), 0)):
            if line is not None and torn:
                raise _damaged(log, line.start, "a line before this one does not have its digest")
            if line is None:
                torn = True
            else:
                valid.append(line)
        if valid and valid[0].entries[0].get("begin") != VERSION:
            raise ReadFailed(
                f"{log.shown} is no journal of version {VERSION}",
                file=log.shown,
                hint="undo with the rmqtool that made the change",
            )
    return valid


def _iter_lines(text: bytes) -> Iterator[JournalLine | None]:
    """Walk over the lines; None for one that is not whole."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start) + 1 or len(text)
        told, _, body = text[start:end].removesuffix(b"\n").partition(b" ")
        whole = text[end - 1 : end] == b"\n" and told == digest(body).encode()
        yield JournalLine(start, end, json.loads(body)) if whole else None
        start = end


def _damaged(file: ReadableFile, offset: int, what: str) -> ReadFailed:
    return ReadFailed(
        f"{file.shown} is damaged: {what}; nothing was undone",
        file=file.shown,
        offset=offset,
        hint="the old bytes that are left can still be taken from it by hand",
    )
