"""Configuration files and their copies: the one that can be read takes the place of the one that cannot.

A broker that starts with a bad file takes the copy, and soon copies the bad file over it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.files.filesystem import WritableFileSystem
from rmqtool.formats.paths import Copy, FileKind, config_path
from rmqtool.store.config_files import loads
from rmqtool.store.listing import StoreListing

# What stands for nothing in a text: blanks, and the zeros that a crash leaves of a file that was never flushed.
_BLANK = b"\0 \t\r\n"


def restore_copies(files: WritableFileSystem, listing: StoreListing) -> Iterator[tuple[str, str]]:
    """Put the readable one of each pair in place of the other; yield the path that is written, and why."""
    names = {file.what.name for file in listing.of_kind(FileKind.CONFIG) if file.what.copy is not Copy.TMP}
    for name in sorted(name for name in names if name is not None):
        main, copy = config_path(name), config_path(name, Copy.BAK)
        texts = {path: _read(files, path) for path in (main, copy)}
        good = {path: text is not None and loads(name, text) for path, text in texts.items()}
        if good[copy] and not good[main]:
            _write(files, main, texts[copy] or b"")
            yield (
                main,
                f"CF-BAK: {'it does not parse' if texts[main] is not None else 'it is missing'}; taken from .bak",
            )
        elif good[main] and not good[copy] and (texts[copy] or b"").strip(_BLANK):
            _write(files, copy, texts[main] or b"")
            yield copy, "CF-JSON: the copy does not parse; taken from the file"


def _read(files: WritableFileSystem, path: str) -> bytes | None:
    if not files.exists(path):
        return None
    with files.open_read(path) as file:
        return file.pread(file.size(), 0)


def _write(files: WritableFileSystem, path: str, text: bytes) -> None:
    with files.open_write(path) if files.exists(path) else files.create(path) as file:
        file.pwrite(text, 0)
        file.truncate(len(text))
