"""Timers made anew: without its wheel a broker of 5.x reads the topic of timers again, from its first message on."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.files.filesystem import WritableFileSystem
from rmqtool.formats.paths import FileKind
from rmqtool.store.listing import StoreListing

_KINDS = (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG, FileKind.TIMER_CHECK)


def forget_timers(files: WritableFileSystem, listing: StoreListing) -> Iterator[tuple[str, str]]:
    """Take away what a broker makes anew of the log; yield each path, and why."""
    for file in listing.of_kind(*_KINDS):
        files.unlink(file.path)
        yield file.path, "a broker rebuilds it from the log, and delivers remaining timer messages again"
