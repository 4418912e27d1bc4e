"""Compares the index with the log, and rebuilds it from the first wrong file on.

A file is right if its chains match its entries and it has every key of every record in its part of the log. Entries of
removed or damaged records may stay, because a lookup reads the record.

upstream: IndexService.load deletes files that may be unfinished, and rebuilds only what recovery dispatches again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.engine.index_file import IndexFileWriter, IndexService
from rmqtool.files.filesystem import WritableFileSystem, join
from rmqtool.formats import index
from rmqtool.formats.layouts import IndexHeader
from rmqtool.formats.paths import INDEX
from rmqtool.store.index_files import Geometry, open_index
from rmqtool.store.segments import SegmentQueue

if TYPE_CHECKING:
    from rmqtool.audit.due import Batch, IndexKeys
    from rmqtool.columns.index_build import Keys

# The number of the first entry: entry 0 is not used.
_FIRST = 1


class Covered(NamedTuple):
    """The end of the index: a record, and how many of its keys have entries."""

    place: int
    keys: int


class IndexEntries:
    """The entries of one consistent file, in order."""

    def __init__(self, header: IndexHeader, geometry: Geometry, entries: Any) -> None:
        self.header = header
        self.geometry = geometry
        self.hashes = entries["key_hash"].astype("int32")
        self.places = entries["phy_offset"].astype("int64")

    def covered(self, count: int) -> Covered:
        """Return the end of the first ``count`` entries."""
        place = int(self.places[count - 1])
        return Covered(place, int((self.places[:count] == place).sum()))


def read_entries(
    files: WritableFileSystem, path: str, hints: Sequence[Geometry], *, was_killed: bool
) -> IndexEntries | None:
    """Return the entries of a file, or None unless they match chains and header and are in the order of the log."""
    from rmqtool.audit import index as audit

    with files.open_read(path) as file:
        opened = open_index(file, hints)
        if opened is None or opened.header.index_count < 0:
            return None
        geometry, count = opened.geometry, opened.next_index_no
        if count > geometry.entries or file.size() != index.file_size(*geometry):
            return None
        examined = audit.examine_index(audit.IndexPart(file, path, geometry, opened.header, ()))
        if len(examined.part.runs) > 1 or not audit.is_consistent(examined, was_killed=was_killed):
            return None
        return IndexEntries(opened.header, geometry, audit.read_entries(file, geometry.slots, _FIRST, count))


class IndexCheck:
    """Compares the index while the log is read. ``before_write`` is called with each file and the action on it.

    With ``has_tags`` tags get entries too. ``as_left`` is True for a store that its broker closed. Its index may lack
    the records before the segment where a broker's recovery began, because that recovery did not index them again.
    """

    def __init__(
        self,
        files: WritableFileSystem,
        names: Sequence[str],
        service: IndexService,
        before_write: Callable[[str, str], None],
        log: SegmentQueue,
        *,
        has_tags: bool,
        as_left: bool,
    ) -> None:
        # The first wrong file, if it was found too late: then the log must be read again.
        self.wrong_file: int | None = None
        self.is_rewriting = False
        self._files = files
        self._names = list(names)
        self._service = service
        self._has_tags = has_tags
        self._before_write = before_write
        self._log = log
        self._as_left = as_left
        # Keys that a broker's recovery had left out.
        self.left_out = 0
        self._begins: list[int] = []
        self._entries: IndexEntries | None = None
        self._last_geometry = service.geometry
        self._next_file = 0
        self._used = 0
        self._ends: list[Covered] = []
        self._covered = Covered(-1, 0)
        self._rest: Keys | None = None

    def take(self, batch: Batch) -> None:
        """Compare the keys of some records, or add them to the index being rebuilt."""
        if self.wrong_file is not None:
            return
        last_place = int(batch.physical_offsets[-1])
        if not self.is_rewriting:
            self._compare(batch.keys, last_place)
        if not self.is_rewriting:
            self._keep_rest(batch)
        else:
            keys = self._with_rest(self._beyond(_keys(batch, tagged=self._has_tags)))
            known = set(self._service.names)
            if len(keys.key_hashes):
                self._service.put_keys(keys, last_place)
                self._service.write_pending()
            for name in self._service.names:
                if name not in known:
                    self._before_write(join(INDEX, name), "create")

    def finish(self) -> None:
        """Find entries that no record was compared with: they point past the end of the log."""
        if self.wrong_file is None and not self.is_rewriting:
            has_more = self._entries is not None and self._used < len(self._entries.places)
            if has_more or self._next_file < len(self._names) - (self._entries is not None):
                self.wrong_file = self._next_file

    def restart(self) -> int:
        """Delete the files from the wrong one on; return the offset from which the log must be read."""
        assert self.wrong_file is not None
        self._rewrite_from(self.wrong_file)
        self.wrong_file = None
        return max(self._covered.place, 0)

    def _beyond(self, keys: Keys) -> Keys:
        """Return the keys that are not in the index yet."""
        import numpy as np

        from rmqtool.columns.index_build import Keys

        places = keys.physical_offsets
        rank = np.cumsum(places == self._covered.place)
        new = (places > self._covered.place) | ((places == self._covered.place) & (rank > self._covered.keys))
        return Keys(keys.key_hashes[new], places[new], keys.store_timestamps[new])

    def _keep_rest(self, batch: Batch) -> None:
        """Keep the missing keys of the record that the index ends in. A later batch tells whether more is missing."""
        if self._next_file == len(self._names) and self._covered.place >= batch.physical_offsets[0]:
            keys = self._beyond(_keys(batch, tagged=self._has_tags))
            self._rest = keys.cut(0, int((keys.physical_offsets == self._covered.place).sum()))

    def _with_rest(self, keys: Keys) -> Keys:
        from rmqtool.columns.index_build import join_keys

        rest, self._rest = self._rest, None
        return keys if rest is None else join_keys(rest, keys)

    def _compare(self, keys: IndexKeys, last_place: int) -> None:
        """Compare the entries up to a record with the keys of the log."""
        from rmqtool.audit.index import find_lacking

        found = self._entries_until(last_place)
        missing = find_lacking(keys, found.physical_offsets, found.key_hashes.astype("int64"))
        if self.is_rewriting:
            missing = missing[keys.physical_offsets[missing] < self._covered.place]
        places = [place for place in keys.physical_offsets[missing].tolist() if not self._was_left_out(place)]
        self.left_out += len(missing) - len(places)
        if not places:
            return
        place = min(places)
        number = bisect_left(self._ends, place, key=lambda end: end.place)
        if number < len(self._names) or self.is_rewriting:
            self.wrong_file, self.is_rewriting = min(number, len(self._names) - 1), False
        else:
            self._append()

    def _was_left_out(self, place: int) -> bool:
        """Return whether a broker's recovery left a key out: it began in a later segment than the record's."""
        number = bisect_left(self._ends, place, key=lambda end: end.place)
        if not self._as_left or number >= len(self._begins) or self._begins[number] <= place:
            return False
        segment = self._log.find(self._begins[number])
        return segment is not None and place < segment.base_offset

    def _entries_until(self, last_place: int) -> Keys:
        """Return the next entries, up to those of a record. A wrong file is deleted at once."""
        import numpy as np

        from rmqtool.columns.index_build import Keys

        hashes, places = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        while self._next_file < len(self._names):
            if self._entries is None:
                path, hints = join(INDEX, self._names[self._next_file]), (self._last_geometry, self._service.geometry)
                self._entries, self._used = read_entries(self._files, path, hints, was_killed=not self._as_left), 0
                if self._entries is None:
                    self._rewrite_from(self._next_file)
                    break
                self._last_geometry = self._entries.geometry
                self._begins.append(self._entries.header.begin_phy_offset)
            entries = self._entries
            end = int(np.searchsorted(entries.places, last_place, "right"))
            if end > self._used:
                hashes.append(entries.hashes[self._used : end])
                places.append(entries.places[self._used : end])
                self._covered, self._used = entries.covered(end), end
            if end < len(entries.places):
                break
            self._ends.append(self._covered)
            self._next_file += 1
            self._entries = None
        found = np.concatenate(places)
        return Keys(np.concatenate(hashes), found, found)

    def _append(self) -> None:
        """Continue in the last file, whose entries are right, or begin the first one."""
        current = None
        if self._names:
            path = join(INDEX, self._names[-1])
            entries = read_entries(self._files, path, (self._last_geometry,), was_killed=not self._as_left)
            assert entries is not None, "the file was right a moment ago"
            self._before_write(path, "modify")
            current = IndexFileWriter(self._files.open_write(path), entries.geometry, entries.header)
        self._begin(self._names, current)

    def _rewrite_from(self, number: int) -> None:
        """Delete the files from a number on, in order to rebuild them."""
        for name in self._names[number:]:
            self._before_write(join(INDEX, name), "delete")
            self._files.unlink(join(INDEX, name))
        if self._names[number:]:
            self._files.fsync_dir(INDEX)
        self._covered = self._ends[number - 1] if number else Covered(-1, 0)
        self._rest = None
        self._begin(self._names[:number], None)

    def _begin(self, names: Sequence[str], current: IndexFileWriter | None) -> None:
        self._before_write(INDEX, "modify")
        self._service.restore(names, current)
        self._service.geometry = self._last_geometry
        # The index may end between two keys of a record. ``_beyond`` leaves out the existing ones, by number.
        self._service.indexed_offset = min(self._service.indexed_offset, self._covered.place - 1)
        self.is_rewriting = True


def _keys(batch: Batch, *, tagged: bool) -> Keys:
    """Return the keys of some records in the order in which a broker adds them: the tag of a record is last."""
    import numpy as np

    from rmqtool.columns.index_build import Keys

    parts = [batch.keys, batch.tag_keys] if tagged else [batch.keys]
    places, hashes, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places, kind="stable") if tagged else slice(None)
    return Keys(hashes[order].astype(np.int32), places[order], times[order])
