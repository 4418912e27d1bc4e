"""The index compared with the log, and made anew from the first file on that is not what the log says.

A file is right when its chains are those that its entries make in their order, and when every key of every record in
its part of the log is in it. Entries of records that are gone or damaged may stay: whoever asks reads the record.

upstream: IndexService.load destroys what may be unfinished, and makes anew only what recovery dispatches again.
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

_FIRST = 1


class Covered(NamedTuple):
    """How far the index goes: to a record, and to so many of its keys."""

    place: int
    keys: int


class IndexEntries:
    """The entries of one file that is consistent in itself, in their order."""

    def __init__(self, header: IndexHeader, geometry: Geometry, entries: Any) -> None:
        self.header = header
        self.geometry = geometry
        self.hashes = entries["key_hash"].astype("int32")
        self.places = entries["phy_offset"].astype("int64")

    def covered(self, count: int) -> Covered:
        """Return how far the first ``count`` entries go."""
        place = int(self.places[count - 1])
        return Covered(place, int((self.places[:count] == place).sum()))


def read_entries(
    files: WritableFileSystem, path: str, hints: Sequence[Geometry], *, was_killed: bool
) -> IndexEntries | None:
    """Return the entries of a file in the order of the log; None when it is not what its entries make of it."""
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
    """The index while the log is read. ``before_write`` is told every file and what is done to it.

    ``has_tags``: entries for tags are made too. ``as_left`` is True for a store that its broker closed: then the
    index may lack what a broker's recovery did not make again, all records before the segment that it began with.
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
        # The first file that is wrong, when that was seen too late: the log has to be read once more.
        self.wrong_file: int | None = None
        self.is_rewriting = False
        self._files = files
        self._names = list(names)
        self._service = service
        self._has_tags = has_tags
        self._before_write = before_write
        self._log = log
        self._as_left = as_left
        # Keys of so many records are not in the index, and were not when its broker stopped.
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
        """Compare the keys of some records, or put them."""
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
        """Judge what no record was compared with: entries beyond the log."""
        if self.wrong_file is None and not self.is_rewriting:
            has_more = self._entries is not None and self._used < len(self._entries.places)
            if has_more or self._next_file < len(self._names) - (self._entries is not None):
                self.wrong_file = self._next_file

    def restart(self) -> int:
        """Throw away the files from the wrong one on; return from where the log must be read."""
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
        """Keep what the index lacks of the record that it ends in: only a later batch may tell that more is missing."""
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
        """Tell whether a broker's recovery left a key out: it began with a later segment than the record's."""
        number = bisect_left(self._ends, place, key=lambda end: end.place)
        if not self._as_left or number >= len(self._begins) or self._begins[number] <= place:
            return False
        segment = self._log.find(self._begins[number])
        return segment is not None and place < segment.base_offset

    def _entries_until(self, last_place: int) -> Keys:
        """Return the next entries, those of records up to one; a file that is wrong is thrown away at once."""
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
        """Go on in the last file, whose entries are right; or begin the first one."""
        current = None
        if self._names:
            path = join(INDEX, self._names[-1])
            entries = read_entries(self._files, path, (self._last_geometry,), was_killed=not self._as_left)
            assert entries is not None, "the file was right a moment ago"
            self._before_write(path, "modify")
            current = IndexFileWriter(self._files.open_write(path), entries.geometry, entries.header)
        self._begin(self._names, current)

    def _rewrite_from(self, number: int) -> None:
        """Throw away the files from one on, to make them anew."""
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
        # The index may end within the keys of a record: what is there already is left out here, by number.
        self._service.indexed_offset = min(self._service.indexed_offset, self._covered.place - 1)
        self.is_rewriting = True


def _keys(batch: Batch, *, tagged: bool) -> Keys:
    """Return the keys of some records in the order in which a broker makes their entries: the tag is the last."""
    import numpy as np

    from rmqtool.columns.index_build import Keys

    parts = [batch.keys, batch.tag_keys] if tagged else [batch.keys]
    places, hashes, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places, kind="stable") if tagged else slice(None)
    return Keys(hashes[order].astype(np.int32), places[order], times[order])
