"""Removes timer files: without its wheel a 5.x broker reads the timer topic again from its first message."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.files.filesystem import WritableFileSystem
from rmqtool.formats.paths import FileKind
from rmqtool.store.listing import StoreListing

_KINDS = (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG, FileKind.TIMER_CHECK)


def forget_timers(files: WritableFileSystem, listing: StoreListing) -> Iterator[tuple[str, str]]:
    """Remove the files that a broker rebuilds from the log; yield each path with the reason."""
    for file in listing.of_kind(*_KINDS):
        files.unlink(file.path)
        yield file.path, "a broker rebuilds it from the log, and delivers remaining timer messages again"
