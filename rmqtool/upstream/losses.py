"""What stands where a start destroys: the damage at which it stops to read, the index files that it deletes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqtool.formats import layouts, paths
from rmqtool.formats.commit_log import Blank, Message, Nothing, check_record, decode_record
from rmqtool.storage.overlay import Action, Change
from rmqtool.upstream.commit_log import CommitLog
from rmqtool.upstream.files import StoreView
from rmqtool.upstream.outcome import Cut, LostIndex

_HEADER = layouts.INDEX_HEADER
# A record that claims more is not read to find out what is wrong with it.
_MOST_READ = 8 << 20


def read_cut(files: StoreView, log: CommitLog) -> Cut | None:
    """Return where the log is cut, and what stands there; None where recovery read nothing."""
    if log.end is None or not files.is_file(log.end.path):
        return None
    path, at = log.end
    left = files.size(path) - at
    data = files.read(path, at, min(left, _MOST_READ))
    found = decode_record(data)
    if isinstance(found, Message):
        found = next(check_record(found, data, 0, None), found)
    if isinstance(found, Message):
        return Cut(path, at, None, "a whole record that this broker does not take")
    if isinstance(found, Blank):
        return Cut(path, at, None, "the end of the last segment")
    if isinstance(found, Nothing):
        return Cut(path, at, None, "nothing was written" if left else "the file ends")
    return Cut(path, at, found.code, found.message)


def read_lost_indexes(files: StoreView, changes: Iterable[Change]) -> Iterator[LostIndex]:
    """Yield the index files that are deleted."""
    for change in changes:
        if change.action is Action.DELETE and change.path.startswith(f"{paths.INDEX}/"):
            data = files.read(change.path, 0, _HEADER.size)
            header = _HEADER.decode(data.ljust(_HEADER.size, b"\0"))
            entries = max(header.index_count - 1, 0)
            yield LostIndex(change.path, entries, header.begin_timestamp, header.end_timestamp)
