"""Compares the index with the log, and rebuilds it from the first wrong file on.

A file is right if its chains match its entries and it has every key of every record in its part of the log. Entries of
removed or damaged records may stay, because a lookup reads the record. The comparison is that of ``audit.index``.

upstream: IndexService.load deletes files that may be unfinished, and rebuilds only what recovery dispatches again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.engine.index_file import IndexFileWriter, IndexService
from rmqtool.files.filesystem import WritableFileSystem, join
from rmqtool.formats import index
from rmqtool.formats.paths import INDEX
from rmqtool.store.index_files import open_index
from rmqtool.store.segments import SegmentQueue

if TYPE_CHECKING:
    from rmqtool.audit.due import Batch
    from rmqtool.audit.index import ExaminedIndex, IndexComparison
    from rmqtool.columns.index_build import Keys


class Covered(NamedTuple):
    """The end of the index: the offset of a record, -1 without entries, and how many of its keys have entries."""

    place: int
    keys: int


class IndexCheck:
    """Compares the files of ``service`` while the log is read.

    ``before_write`` is called with each file and the action on it. With ``has_tags`` tags get entries too. ``as_left``
    is True for a store that its broker closed. Its index may lack the records before the segment where a broker's
    recovery began, because that recovery did not index them again. With ``thorough`` wrong times are repaired too, and
    only gaps that such a recovery certainly left are accepted.
    """

    def __init__(
        self,
        files: WritableFileSystem,
        service: IndexService,
        before_write: Callable[[str, str], None],
        log: SegmentQueue,
        *,
        has_tags: bool,
        as_left: bool,
        thorough: bool,
    ) -> None:
        # The first wrong file, if it was found too late: then the log must be read again.
        self.wrong_file: int | None = None
        self.is_rewriting = False
        self._files = files
        self._names = list(service.names)
        self._service = service
        self._has_tags = has_tags
        self._before_write = before_write
        self._log = log
        self._as_left = as_left
        self._thorough = thorough
        # Keys that a broker's recovery had left out.
        self.left_out = 0
        self._last_geometry = service.geometry
        # The files before the first inconsistent one, None before they are examined; and where each of them ends.
        self._examined: list[ExaminedIndex] | None = None
        self._ends: list[Covered] = []
        self._comparison: IndexComparison | None = None
        self._opened = ExitStack()
        self._last_place = -1
        self._covered = Covered(-1, 0)
        self._rest: Keys | None = None
        # Times that differ from those of records: (place of the record, or -1 for a header; number of the file).
        self._wrong_times: list[tuple[int, int]] = []

    def take(self, batch: Batch) -> None:
        """Compare the keys of some records, or add them to the index being rebuilt."""
        if self.wrong_file is not None:
            return
        self._last_place = int(batch.physical_offsets[-1])
        if not self.is_rewriting:
            self._compare(batch)
        if not self.is_rewriting:
            self._keep_rest(batch)
            return
        keys = self._with_rest(self._beyond(_keys(batch, tagged=self._has_tags)))
        known = set(self._service.names)
        if len(keys.key_hashes):
            self._service.put_keys(keys, self._last_place)
            self._service.write_pending()
        for name in self._service.names:
            if name not in known:
                self._before_write(join(INDEX, name), "create")

    def finish(self, is_odd_time: Callable[[int], bool]) -> None:
        """Find entries past the end of the log, and wrong times; set ``wrong_file`` if a file must be rebuilt.

        ``is_odd_time`` tells whether the store time of a record is wrong instead of that of its entry.
        """
        if self.wrong_file is None and not self.is_rewriting:
            wrong = [number for number, end in enumerate(self._ends) if end.place > self._last_place]
            if self._sound < len(self._names):
                wrong.append(self._sound)
            if self._thorough:
                wrong += [number for place, number in self._wrong_times if not is_odd_time(place)]
                wrong += self._out_of_order()
            self.wrong_file = min(wrong, default=None)
        self.close()

    def close(self) -> None:
        """Close the files that were opened to be examined."""
        self._opened.close()

    def restart(self) -> int:
        """Delete the files from the wrong one on; return the offset from which the log must be read."""
        assert self.wrong_file is not None
        self._rewrite_from(self.wrong_file)
        self.wrong_file = None
        return max(self._covered.place, 0)

    @property
    def _sound(self) -> int:
        """The number of consistent files, counted from the first."""
        return len(self._examined or ())

    def _examine(self) -> IndexComparison:
        """Examine the files up to the first one that is not consistent; return their comparison with the log."""
        from rmqtool.audit.index import IndexComparison

        self._examined, end = [], Covered(-1, 0)
        for name in self._names:
            examined = self._examine_file(join(INDEX, name))
            if examined is None:
                break
            self._examined.append(examined)
            self._last_geometry = examined.part.geometry
            if examined.examination.last is not None:
                place = examined.examination.last[0]
                keys = sum(len(entries) for _, entries in examined.part.entries_between(place, place + 1))
                end = Covered(place, keys)
            self._ends.append(end)
        self._covered = end
        return IndexComparison(examined.part for examined in self._examined)

    def _examine_file(self, path: str) -> ExaminedIndex | None:
        """Return a file whose chains and header match its entries, and whose entries are in the order of the log.

        Returns None for any other file.
        """
        from rmqtool.audit import index as audit

        file = self._opened.enter_context(self._files.open_read(path))
        opened = open_index(file, (self._last_geometry, self._service.geometry))
        if opened is None or opened.header.index_count < 0:
            return None
        geometry = opened.geometry
        if opened.next_index_no > geometry.entries or file.size() != index.file_size(*geometry):
            return None
        examined = audit.examine_index(audit.IndexPart(file, path, geometry, opened.header, ()))
        is_sound = len(examined.part.runs) < 2 and audit.is_consistent(examined, was_killed=not self._as_left)
        return examined if is_sound else None

    def _beyond(self, keys: Keys) -> Keys:
        """Return the keys that are not in the index yet."""
        import numpy as np

        from rmqtool.columns.index_build import Keys

        places = keys.physical_offsets
        # The index may end between two keys of a record: as many of its keys as have entries are skipped.
        rank = np.cumsum(places == self._covered.place)
        new = (places > self._covered.place) | ((places == self._covered.place) & (rank > self._covered.keys))
        return Keys(keys.key_hashes[new], places[new], keys.store_timestamps[new])

    def _keep_rest(self, batch: Batch) -> None:
        """Keep the missing keys of the record that the index ends in. A later batch tells whether more is missing."""
        if batch.physical_offsets[0] <= self._covered.place <= self._last_place:
            keys = self._beyond(_keys(batch, tagged=self._has_tags))
            self._rest = keys.cut(0, int((keys.physical_offsets == self._covered.place).sum()))

    def _with_rest(self, keys: Keys) -> Keys:
        """Return ``keys`` after those that ``_keep_rest`` kept."""
        from rmqtool.columns.index_build import join_keys

        rest, self._rest = self._rest, None
        return keys if rest is None else join_keys(rest, keys)

    def _compare(self, batch: Batch) -> None:
        """Compare the entries of a batch; begin to add keys where the sound files end."""
        comparison = self._comparison = self._comparison or self._examine()
        comparison.compare(batch, int(batch.physical_offsets[0]), self._last_place + int(batch.sizes[-1]))
        self._note_times(batch, comparison)
        gaps = []
        for missing in comparison.take_missing():
            if self._was_left_out(missing.start):
                self.left_out += missing.keys
            else:
                gaps.append(missing.start)
        number = bisect_left(self._ends, min(gaps), key=lambda end: end.place) if gaps else self._sound
        if number < self._sound:
            self.wrong_file = number
        elif self._sound < len(self._names) and self._last_place >= self._covered.place:
            self._rewrite_from(self._sound)
        elif gaps and self._sound == len(self._names):
            self._append()

    def _note_times(self, batch: Batch, comparison: IndexComparison) -> None:
        """Note the entries and headers of sound files whose times differ from those of their records."""
        import numpy as np

        from rmqtool.audit.index import EntryFault

        numbers = {examined.part.path: number for number, examined in enumerate(self._examined or ())}
        for flaw in comparison.take_flaws():
            if flaw.fault is EntryFault.TIME:
                self._wrong_times.append((flaw.entry[1], numbers[flaw.file]))
        for number, examined in enumerate(self._examined or ()):
            header, examination = examined.part.header, examined.examination
            for edge, time in ((examination.first, header.begin_timestamp), (examination.last, header.end_timestamp)):
                if edge is not None and batch.physical_offsets[0] <= edge[0] <= self._last_place:
                    row = int(np.searchsorted(batch.physical_offsets, edge[0]))
                    if batch.physical_offsets[row] == edge[0] and batch.store_timestamps[row] != time:
                        self._wrong_times.append((-1, number))

    def _out_of_order(self) -> Iterator[int]:
        """Yield the files that begin before the end of the file before them."""
        filled = [(number, one.part.header) for number, one in enumerate(self._examined or ()) if one.examination.runs]
        for (_, before), (number, header) in pairwise(filled):
            if header.begin_phy_offset < before.end_phy_offset:
                yield number

    def _was_left_out(self, place: int) -> bool:
        """Return whether a broker's recovery left out the keys of a record, because it began in a later segment.

        With ``thorough`` only if the first file after the gap begins with a segment, as it certainly does then.
        """
        number = bisect_left(self._ends, place, key=lambda end: end.place)
        if not self._as_left or number >= self._sound or self._examined is None:
            return False
        begin = self._examined[number].part.header.begin_phy_offset
        segment = self._log.find(begin)
        if segment is None or not place < segment.base_offset <= begin:
            return False
        return begin == segment.base_offset or not self._thorough

    def _append(self) -> None:
        """Continue in the last file, whose entries are right, or begin the first one."""
        current = None
        if self._examined:
            part = self._examined[-1].part
            self._before_write(part.path, "modify")
            current = IndexFileWriter(self._files.open_write(part.path), part.geometry, part.header)
        self._begin(self._names, current)

    def _rewrite_from(self, number: int) -> None:
        """Delete the files from a number on, in order to rebuild them."""
        self.close()
        for name in self._names[number:]:
            self._before_write(join(INDEX, name), "delete")
            self._files.unlink(join(INDEX, name))
        if self._names[number:]:
            self._files.fsync_dir(INDEX)
        self._covered = self._ends[number - 1] if number else Covered(-1, 0)
        self._rest = None
        self._begin(self._names[:number], None)

    def _begin(self, names: Sequence[str], current: IndexFileWriter | None) -> None:
        """Have the service continue after the files ``names``; keys are added from now on."""
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
