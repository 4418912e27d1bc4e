"""Judges index files: header, slots and chains, then their entries against the keys of the log's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqtool.checks.case import Case, Depth, Walk
from rmqtool.errors import ReadFailed
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import index, layouts, paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.paths import FileKind
from rmqtool.formats.properties import key_tokens
from rmqtool.log.end import read_record
from rmqtool.store.index_files import DEFAULT, Geometry, IndexFile, open_index, read_header
from rmqtool.store.listing import FoundFile

if TYPE_CHECKING:
    from rmqtool.audit.index import EntryFlaw, ExaminedIndex, IndexLinks, IndexPart, KeysMissing
    from rmqtool.audit.reports import LinkReport, SegmentReport
    from rmqtool.files.filesystem import ReadableFile
    from rmqtool.formats.layouts import IndexHeader

# Wrong links or entries of one file that are reported one by one.
_NAMED = 20
# With more differences than this in one file, the file is wrong, not the records.
_FEW = 20
# Places in a file, and entries at each, that are examined to find out whether tags are indexed.
_SPOTS = 6
_NEIGHBOURS = 8
# The texts of ``audit.index.EntryFault``, repeated because importing that module loads numpy.
_NO_KEY = "its record does not have this key"
_TIME = "its time differs from that of its record"


_SLOTS, _ENTRIES = "maxHashSlotNum", "maxIndexNum"


class IndexJudge:
    """Examines the files first, then takes the reports of the segments that compared their entries."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.examined: list[ExaminedIndex] = []
        self.keys = 0
        # Whether tags are indexed too, as 5.4 does. Only the entries can tell.
        self.tagged = False
        self._missing: list[KeysMissing] = []
        self._flaws: list[EntryFlaw] = []
        self._left_out = 0
        self._unread: ReadFailed | None = None
        self._untimed: set[str] = set()
        self._before: SegmentReport | None = None
        # The files stay open because segments are compared with their entries.
        self._opened = ExitStack()

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    def examine(self) -> Iterator[Finding]:
        """Examine each file by itself; yield its findings."""
        files = self.case.files(FileKind.INDEX)
        hints = self._hints(files)
        usual = index.file_size(*hints[0]) if hints else None
        for file in files:
            opened = self._opened.enter_context(self.case.store.filesystem.open_read(file.path))
            header = read_header(opened)
            if self.case.live and file is files[-1] and (header is None or opened.size() != usual):
                continue  # a broker is creating it
            if header is None:
                yield _head(file.path, f"{file.size} bytes are less than a header", 0, file.size)
                continue
            if hints and file.size != index.file_size(*hints[0]):
                text = f"{file.size} bytes, the others have {index.file_size(*hints[0])}"
                fits = open_index(opened, hints) is not None
                yield _head(file.path, text, 0, file.size, Severity.NOTICE if fits else None)
            yield from self._examine(file, opened, header, hints)

    def _hints(self, files: list[FoundFile]) -> list[Geometry]:
        """Return the geometries of the settings and those that fit files, the most frequent first."""
        config = self.case.store.config
        told = [Geometry(config.max_hash_slot_num, config.max_index_num)]
        votes: dict[Geometry, int] = {}
        for file in files:
            with self.case.store.filesystem.open_read(file.path) as opened:
                header = read_header(opened)
                known = open_index(opened, told) if header is not None and header.index_count > 1 else None
            if known is not None:
                votes[known.geometry] = votes.get(known.geometry, 0) + 1
        return sorted(votes, key=lambda pair: -votes[pair]) or [
            pair for pair in dict.fromkeys((*told, DEFAULT)) if any(f.size == index.file_size(*pair) for f in files)
        ]

    def _examine(
        self, file: FoundFile, opened: ReadableFile, header: IndexHeader, hints: list[Geometry]
    ) -> Iterator[Finding]:
        from rmqtool.audit.index import IndexPart, examine_index

        fitting = [pair for pair in hints if index.file_size(*pair) == file.size]
        known = None if fitting else open_index(opened, hints)
        if not fitting and known is None:
            if not hints and not self.case.live:
                yield _head(
                    file.path,
                    "index file has an impossible header or size: no number of slots and entries fits it",
                    0,
                    index.HEADER_SIZE,
                )
            return
        geometry = fitting[0] if known is None else known.geometry
        examined = examine_index(IndexPart(opened, file.path, geometry, header, ()))
        self.examined.append(examined)
        self.tagged = self.tagged or self._holds_tags(examined.part, examined.examination.entries)

    def take_links(self, report: LinkReport) -> None:
        """Add the report about some of the links of one file."""
        self.examined[report.number].examination.links.join(report.links)
        self._unread = self._unread or report.error

    def iter_files(self) -> Iterator[Finding]:
        """Yield the findings about headers, slots and links. Call it when all reports are taken."""
        if self._unread is not None:
            raise self._unread
        yield from self._check_stated()
        before: IndexPart | None = None
        for examined in self.examined:
            part, examination = examined.part, examined.examination
            yield from self._check_header(examined)
            yield from self._check_links(part.path, part.geometry, examination.links)
            if before is not None and examination.entries > 0 and not self.case.live:
                yield from _check_order(before, part)
            before = part if examination.entries else before

    def _check_stated(self) -> Iterator[Finding]:
        """Yield a finding if files have other numbers of slots and entries than the settings, where these say any."""
        config = self.case.store.config
        stated = {name: int(str(config.value(name))) for name in (_SLOTS, _ENTRIES) if name in config.origins}
        parts = [one.part for one in self.examined if not one.is_empty]
        other = [part for part in parts if stated.items() - zip((_SLOTS, _ENTRIES), part.geometry, strict=True)]
        if not other:
            return
        first = other[0]
        files, found = counted(len(other), "file has", "files have"), first.geometry
        said = ", ".join(f"{name} is {number}" for name, number in stated.items())
        text = f"{files} {found.slots} slots for {found.entries} entries, but {said}"
        why = "a broker with these settings searches in other places of the files: messages are not found by key"
        fix = f"set {_SLOTS}={found.slots} and {_ENTRIES}={found.entries} in broker.conf, or leave out --conf"
        place = Place(first.path, 0, first.file.size())
        finding = new_finding("IX-HEAD", text, place, consequence=why, files=len(other))
        yield replace(finding, fix=fix)

    def _holds_tags(self, part: IndexPart, entries: int) -> bool:
        """Return whether an entry of a tag is among some samples. The entries of a message are neighbours."""
        found = IndexFile(part.file, part.geometry, part.header)
        records: dict[int, Message | None] = {}
        starts = range(1, entries + 1, max(entries // _SPOTS, 1))
        for number in (at for start in starts for at in range(start, min(start + _NEIGHBOURS, entries + 1))):
            entry = found.entry(number)
            if entry is None:
                continue
            place = entry.phy_offset
            record = records[place] if place in records else read_record(self.case.log, place)
            records[place] = record
            if record is None or not record.tags:
                continue
            if entry.key_hash == index.key_hash(index.tag_key_text(record.topic, record.tags)):
                return True
        return False

    def _check_header(self, examined: ExaminedIndex) -> Iterator[Finding]:
        from rmqtool.audit.index import find_edge_flaw, iter_count_flaws

        part, examination = examined.part, examined.examination
        if self.case.live or examined.is_empty:
            return
        for flaw in iter_count_flaws(examined, was_killed=self.case.abort):
            yield _head(part.path, flaw.text, *_field(flaw.field))
        for name, edge in (("begin", examination.first), ("end", examination.last)):
            if edge is None:
                continue
            wrong = find_edge_flaw(part.header, name, edge[0])
            if wrong is not None:
                yield _head(part.path, wrong.text, *_field(wrong.field))
            yield from self._check_time(part.path, part.header, name, edge[0])

    def _check_time(self, file: str, header: IndexHeader, name: str, physical_offset: int) -> Iterator[Finding]:
        record = read_record(self.case.log, physical_offset)
        said = getattr(header, f"{name}_timestamp")
        if record is not None and record.store_timestamp != said and self.case.explains(physical_offset) is None:
            self._untimed.add(file)
            text = f"{name}Timestamp is {said}, but its message was stored at {record.store_timestamp}"
            yield _head(file, text, *_field(f"{name}_timestamp"))

    def _check_links(self, file: str, geometry: Geometry, links: IndexLinks) -> Iterator[Finding]:
        for number in links.negative[:_NAMED]:
            place = _entry_place(file, geometry, number)
            yield new_finding("IX-WRONG", f"entry {number} has a negative hash", place)
        for link in links.wrong_entries[:_NAMED]:
            text = (
                f"entry {link.index_no} points to entry {link.found}, but the one before it in its slot is {link.due}"
            )
            yield new_finding("IX-LOOP", text, _entry_place(file, geometry, link.index_no))
        # An entry after the last counted one of a live store is being added.
        slots = [] if self.case.live else links.wrong_slots
        for link in slots[:_NAMED]:
            text = f"slot {link.index_no} points to entry {link.found}, but its newest is {link.due}"
            place = Place(file, index.slot_offset(link.index_no), index.SLOT_SIZE)
            yield new_finding("IX-LOOP", text, place)
        many = len(links.wrong_entries) + links.entries_left_out
        many += 0 if self.case.live else len(slots) + links.slots_left_out
        if many > 2 * _NAMED:
            yield new_finding("IX-LOOP", f"{many} links are wrong in total", Place(file), links=many)

    def take(self, report: SegmentReport) -> None:
        """Add the report of one segment."""
        self.keys += report.keys
        from rmqtool.audit.reports import join_missing

        if self._before is None:
            self._missing = list(report.keys_missing)
        else:
            self._missing = join_missing(replace(self._before, keys_missing=self._missing), report)
        self._before = report if report.records else self._before
        self._flaws += report.entry_flaws
        self._left_out += report.entries_left_out

    def settle(self) -> Iterator[Finding]:
        """Yield the records whose properties changed after they were indexed, and remember them.

        An entry whose chain is right and that is in order is as it was written: then the record has changed.
        """
        self._flaws = [flaw for flaw in self._flaws if self.case.explains(flaw.entry[1]) is None]
        blamed: dict[int, list[EntryFlaw]] = {}
        for examined in self.examined:
            flaws = [flaw for flaw in self._flaws if flaw.file == examined.part.path and flaw.fault == _NO_KEY]
            if len(flaws) > max(_FEW, examined.examination.entries // 10):
                continue  # too many records at once: the file is wrong
            edges = {number for run in examined.part.runs for number in run} if len(examined.part.runs) > 1 else set()
            unsafe = edges | {link.index_no for link in examined.examination.links.wrong_entries}
            for flaw in flaws:
                if flaw.index_no not in unsafe and flaw.entry[1] not in self.case.odd_records:
                    blamed.setdefault(flaw.entry[1], []).append(flaw)
        for physical_offset, made in sorted(blamed.items()):
            record = read_record(self.case.log, physical_offset)
            if record is None:
                continue
            number = (
                f"entry {made[0].index_no} of {made[0].file} was" if len(made) == 1 else f"{len(made)} entries were"
            )
            text = f"{number} made from keys that the record no longer has"
            in_doubt = all(_is_one_bit_off(flaw.entry[0], record) for flaw in made)
            if in_doubt:  # then the entry is reported too
                text += "; the two differ in one bit, which may have flipped in the index or in the record"
            else:
                self.case.odd_properties.add(physical_offset)
            place = self.case.place(physical_offset, record.total_size)
            place = place._replace(topic=record.topic, queue_id=record.queue_id)
            severity = Severity.WARNING if in_doubt else None
            entries = [flaw.index_no for flaw in made]
            yield new_finding("CL-PROPS", text, place, severity=severity, entries=entries)

    def iter_findings(self, walk: Walk) -> Iterator[Finding]:
        """Yield the findings about entries and records."""
        geometry = {examined.part.path: examined.part.geometry for examined in self.examined}
        named: dict[str, int] = {}
        for flaw in self._flaws:
            if self._is_explained(flaw):
                continue
            named[flaw.file] = named.get(flaw.file, 0) + 1
            if named[flaw.file] > _NAMED:
                continue
            text = f"entry {flaw.index_no} points to {flaw.entry[1]}: {flaw.fault}"
            place = _entry_place(flaw.file, geometry[flaw.file], flaw.index_no)
            yield new_finding("IX-WRONG", text, place, physicalOffset=flaw.entry[1])
        for file, count in named.items():
            if count > _NAMED:
                text = f"{count + self._left_out} entries in total do not match their records"
                yield new_finding("IX-WRONG", text, Place(file), entries=count + self._left_out)
        if walk.ends:
            yield from self._ahead(walk.end)
        yield from self._lacking()

    def _is_explained(self, flaw: EntryFlaw) -> bool:
        """Return whether the record is known to be wrong, not the entry."""
        place = flaw.entry[1]
        if place in self.case.odd_records or place in self.case.odd_properties:
            return True
        return flaw.fault == _TIME and (flaw.file in self._untimed or self.case.is_odd_in_time(place))

    def _ahead(self, end: int) -> Iterator[Finding]:
        for part, examination, _ in self.examined:
            if examination.highest < end or self.case.live:
                continue
            numbers = [
                number + row
                for number, entries in part.entries_between(end, 1 << 62)
                for row, place in enumerate(entries["phy_offset"].tolist())
                if self.case.explains(place) is None
            ]
            if not numbers:
                continue
            text = f"{counted(len(numbers), 'entry points', 'entries point')} past the end of the log at {end}"
            text += "" if len(numbers) == 1 else f", up to {examination.highest}"
            severity = Severity.NOTICE if self.case.is_stale(examination.highest) else None
            place = _entry_place(part.path, part.geometry, numbers[0])
            yield new_finding("IX-AHEAD", text, place, severity=severity, entries=len(numbers))

    def _lacking(self) -> Iterator[Finding]:
        """Yield the ranges of the log whose keys are in no file."""
        if not self._is_indexed():
            return
        for missing in sorted(self._missing):
            if (self.case.live and missing.end >= self._newest()) or self._is_odd(missing.start):
                continue
            place = self.case.place(missing.start)
            some, be = counted(missing.keys, "key"), "is" if missing.keys == 1 else "are"
            between = f"messages between log offsets {missing.start} and {missing.end}"
            text = f"{some} of {between} {be} in no index file"
            severity, why = None, None
            after = self._first_entry_behind(missing.end)
            segment = self.case.log.find(after) if after is not None else None
            if after is not None and segment is not None and self._is_first_record(after):
                text += "; a recovery after a crash began after them and did not index them"
                severity = Severity.NOTICE
                why = "a broker does not find them by key; rmqtool query does, because it reads the log there"
            place = place._replace(length=min(missing.end - missing.start, self._left(missing.start)))
            yield new_finding("IX-MISSING", text, place, severity=severity, consequence=why, keys=missing.keys)

    def _is_indexed(self) -> bool:
        """Return whether the store should have index files."""
        config = self.case.store.config
        if not config.message_index_enable or self.case.unread_indexes:
            return False
        return bool(self.case.files(FileKind.INDEX)) or not self.case.store.listing.has_rows(paths.ROCKSDB_STORE)

    def _is_odd(self, physical_offset: int) -> bool:
        return physical_offset in self.case.odd_records or physical_offset in self.case.odd_properties

    def _left(self, physical_offset: int) -> int:
        segment = self.case.log.find(physical_offset)
        return segment.end_offset - physical_offset if segment is not None else 0

    def _newest(self) -> int:
        return max((examined.part.header.end_phy_offset for examined in self.examined), default=-1)

    def _first_entry_behind(self, physical_offset: int) -> int | None:
        begins = [e.examination.first[0] for e in self.examined if e.examination.first is not None]
        return min((begin for begin in begins if begin > physical_offset), default=None)

    def _is_first_record(self, physical_offset: int) -> bool:
        segment = self.case.log.find(physical_offset)
        return segment is not None and segment.base_offset == physical_offset


def _check_order(before: IndexPart, part: IndexPart) -> Iterator[Finding]:
    """Yield a finding if a file begins before the end of the file with the name before it: that one was full then."""
    begin, end = part.header.begin_phy_offset, before.header.end_phy_offset
    if begin < end:
        text = f"it begins at {begin}, but {before.path}, older by its name, ends at {end}"
        yield _head(part.path, text, *_field("begin_phy_offset"))


def _is_one_bit_off(key_hash: int, record: Message) -> bool:
    """Return whether a hash differs in one bit from that of one of a record's keys."""
    keys = [*key_tokens(record.properties), *([record.uniq_key] if record.uniq_key else [])]
    texts = [index.key_text(record.topic, key) for key in keys]
    if record.tags:
        texts.append(index.tag_key_text(record.topic, record.tags))
    return any((key_hash ^ index.key_hash(text)).bit_count() == 1 for text in texts)


def _field(name: str) -> tuple[int, int]:
    field = layouts.INDEX_HEADER.field(name)
    return field.offset, field.size


def _head(file: str, text: str, offset: int, length: int, severity: Severity | None = None) -> Finding:
    return new_finding("IX-HEAD", text, Place(file, offset, length), severity=severity)


def _entry_place(file: str, geometry: Geometry, index_no: int) -> Place:
    return Place(file, index.entry_offset(geometry.slots, index_no), index.ENTRY_SIZE)


def check_index_quickly(case: Case) -> Iterator[Finding]:
    """Yield the findings about sizes and headers of index files."""
    assert case.depth is Depth.QUICK
    files = case.files(FileKind.INDEX)
    usual = _usual_size(case, files)
    for file in files:
        if case.live and file is files[-1] and file.size != usual:
            continue  # a broker is creating it
        if file.size < index.HEADER_SIZE:
            yield _head(file.path, f"{file.size} bytes are less than a header", 0, file.size)
            continue
        with case.store.filesystem.open_read(file.path) as opened:
            header = read_header(opened)
            if file.size != usual and open_index(opened) is None:
                yield _head(file.path, f"{file.size} bytes, the others have {usual}", 0, file.size)
        if header is not None and header.index_count < 0:
            yield _head(file.path, f"indexCount is {header.index_count}", *_field("index_count"))


def _usual_size(case: Case, files: list[FoundFile]) -> int | None:
    """Return the size of most index files; of sizes that are as frequent, that of the settings, or the largest."""
    sizes = Counter(file.size for file in files)
    told = index.file_size(case.store.config.max_hash_slot_num, case.store.config.max_index_num)
    return max(sizes, key=lambda size: (sizes[size], size == told, size), default=None)
