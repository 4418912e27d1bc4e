"""Taking back what a journal tells of, as often as it takes: whatever a crash leaves, the next run completes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqtool.errors import Refused, WriteFailed
from rmqtool.formats.paths import LOCK
from rmqtool.storage.filesystem import (
    Extent,
    Kind,
    ReadableFile,
    ReadableFileSystem,
    WritableFile,
    WritableFileSystem,
)
from rmqtool.storage.journal_log import (
    CHUNK,
    LOG,
    OLD_BYTES,
    Journal,
    Original,
    append_line,
    read_journal,
    read_verified_journal,
)


@dataclass(frozen=True)
class Undone:
    """What an undoing did: the paths that are as they were again, and those that the change had made and are gone."""

    restored: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def __add__(self, other: Undone) -> Undone:
        return Undone(self.restored + other.restored, self.deleted + other.deleted)


def undo(files: WritableFileSystem, journal: WritableFileSystem) -> Undone:
    """Put every file, directory, mode, owner and time back as the journal tells; return what was done.

    Nothing is changed unless the whole journal proves sound, and, if the journalled change was completed, unless the
    files are still as it left them. Undoing twice is undoing once.
    """
    if not require_undoable(files, journal):
        return Undone()
    told = read_verified_journal(journal)
    made = {path for path, original in told.originals.items() if original.kind is None and files.exists(path)}
    with journal.open_write(LOG) as log, journal.open_read(OLD_BYTES) as old:
        log.truncate(told.end)
        end = append_line(log, told.end, [{"undoing": True}])
        _Restoration(files, told, old).run()
        append_line(log, end, [{"undone": True}])
    return Undone([path for path in sorted(told.originals) if told.originals[path].kind is not None], sorted(made))


def require_undoable(files: ReadableFileSystem, journal: ReadableFileSystem) -> bool:
    """Return whether there is anything to be undone; refuse when the files are not as a completed change left them."""
    told = read_journal(journal)
    if told.undone or not told.originals:
        return False
    if told.done is not None and not told.undoing:
        _require_as_left(files, told.done)
    return True


def _require_as_left(files: ReadableFileSystem, done: dict[str, tuple[int, int] | None]) -> None:
    for path, left in done.items():
        status = files.find_stat(path)
        if (None if status is None else (status.size, status.mtime_ns)) != left:
            raise Refused(
                f"{files.shown(path)} was changed after the change that is to be undone; nothing was undone",
                file=files.shown(path),
                hint="a broker may have worked on the store since: check it instead",
            )


class _Restoration:
    """One run over the originals. Each step asks what is there, so that it does not matter which were done before."""

    def __init__(self, files: WritableFileSystem, told: Journal, old: ReadableFile) -> None:
        self._files = files
        self._originals = sorted(told.originals.items())
        self._old = old

    def run(self) -> None:
        # What holds comes before what it holds in the order of paths; so removal goes backwards.
        for path, original in reversed(self._originals):
            if path != LOCK:
                self._clear(path, original.kind)
        for path, _ in self._of(Kind.DIRECTORY):
            if not self._files.exists(path):
                self._files.mkdir(path)
        for path, original in self._of(Kind.FILE):
            self._restore(path, original)
        # A lock that the change made goes when all else is back: until then it keeps others away.
        for path, original in self._originals:
            if path == LOCK:
                self._clear(path, original.kind)
        # Wherever a name was changed the directory was written down, so this makes the names durable as well.
        for path, original in reversed(self._of(Kind.DIRECTORY)):
            assert original.attributes is not None, "a directory has attributes"
            self._files.set_attributes(path, original.attributes)
            self._files.fsync_dir(path)

    def _of(self, kind: Kind) -> list[tuple[str, Original]]:
        return [(path, original) for path, original in self._originals if original.kind is kind]

    def _clear(self, path: str, kind: Kind | None) -> None:
        """Remove what bears the name and is not of the kind it was."""
        status = self._files.find_stat(path)
        if status is not None and status.kind is not kind:
            if status.kind is Kind.DIRECTORY:
                self._files.rmdir(path)
            else:
                self._files.unlink(path)

    def _restore(self, path: str, original: Original) -> None:
        if original.taken:
            # A new file even where one bears the name: that one may bear another name too.
            if self._files.exists(path):
                self._files.unlink(path)
            file = self._files.create(path)
        else:
            if not self._files.exists(path):
                shown = self._files.shown(path)
                raise WriteFailed(
                    f"{shown} is gone, and was not the journal's to restore",
                    file=shown,
                    hint="put it back, then undo again",
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
    """Walk over what lies between the pieces of the saved spans."""
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
