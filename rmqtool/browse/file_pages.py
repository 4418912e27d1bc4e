"""Files as bytes: a row for each field, or for each eight bytes of a long one, with its name and its value.

The positions of such a page are file offsets. Only the part of a file around the shown rows is read, and the file is
opened for each reading: it may grow, shrink or vanish meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.browse.page import Column, Link, ListPage, Page, Row, Scope, line, step_back
from rmqtool.files.filesystem import ReadableFile, ReadableFileSystem
from rmqtool.formats import index, layouts, paths
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.log.end import read_record
from rmqtool.look.dump import find_wrong, iter_regions_from
from rmqtool.look.regions import Region
from rmqtool.look.suspects import SUSPECT
from rmqtool.render.text import count, neutral, size, timestamp
from rmqtool.store.index_files import Geometry, open_index
from rmqtool.store.open import Store

if TYPE_CHECKING:
    from rmqtool.browse.explorer import Explorer

_BYTES = 8
# Bytes before a row that are looked at for earlier ones; more of them if they are one run.
_REACH, _GROWTH = 1 << 9, 8
# No entry of a file of entries is longer.
_ENTRY = 64
# Runs of such regions are one row, however long they are.
_RUNS = frozenset({"zeros", "opaque", "undefined"})
_MARKS = {None: "", True: "✓", False: "✗"}
_CHAIN = (
    Column("entry", 9, is_number=True),
    Column("hash", 11, is_number=True),
    Column("log offset", 12, is_number=True),
    Column("message"),
)
_MOST_LINKS = 1000
_COLUMNS = (Column("offset", 10, is_number=True), Column("bytes", 23), Column("name", 14), Column("value"))


class FileAt(NamedTuple):
    """A file of a store: where it is, and what its path says."""

    filesystem: ReadableFileSystem
    path: str
    what: StorePath
    hints: tuple[Geometry, ...] = ()


class Leaf(NamedTuple):
    """A region without regions inside it, and those around it, the outermost first."""

    region: Region
    around: tuple[Region, ...]


# Returns where Enter goes from a field, given the regions around it, the innermost first; None: nowhere.
Follow = Callable[[FileAt, Leaf], Link | None]


class FilePage(Page):
    """The bytes of a file with their names."""

    columns = _COLUMNS
    place = "a byte of this file; @N: of the log"
    is_wide = True

    def __init__(self, file: FileAt, follow: Follow, at: int = 0, note: str = "", why: Sequence[str] = ()) -> None:
        """Open the page at ``at``; ``why`` says what is wrong with the bytes there."""
        self.file, self.follow, self._said, self.why = file, follow, note, why
        self.scope = Scope(file.what.topic, file.what.queue_id)
        self.title = file.path
        self.first_position = at
        self.refresh()

    @property
    def command(self) -> str:  # type: ignore[override]
        """The command that prints the same."""
        where = quote(self.file.filesystem.shown(self.file.path))
        at = f"@{self.first_position}" if self.first_position else ""
        return f"rmqtool dump {where}{at}"

    def refresh(self) -> None:
        status = self.file.filesystem.find_stat(self.file.path)
        self.end = 0 if status is None else status.size

    def note(self) -> str:
        return self._said or f"{self.file.what.kind}, {size(self.end)}"

    def rows(self, position: int, count: int) -> list[Row]:
        found: list[Row] = []
        if position >= self.end:
            return found
        with self.file.filesystem.open_read(self.file.path) as file:
            for row in self._iter_rows(file, max(position, 0)):
                found.append(row)
                if len(found) >= count:
                    break
        return found

    def back(self, position: int, count: int) -> int:
        with self.file.filesystem.open_read(self.file.path) as file:
            reach = max(_REACH, 2 * count * _BYTES)
            return step_back(partial(self._offsets, file), min(position, self.end), count, reach)

    def wrong_in(self, start: int, end: int) -> int | None:
        """Return the first byte in a span that is known to have changed; else of a wrong body, or a wrong field."""
        with self.file.filesystem.open_read(self.file.path) as file:
            found = find_wrong(file, self.file.what, (start, end), self.file.hints)
        return None if found is None else found.offset

    def _offsets(self, file: ReadableFile, start: int, end: int) -> list[int]:
        found: list[int] = []
        for leaf in self._iter_leaves(file, start):
            if leaf.region.offset >= end:
                break
            if leaf.region.kind in _RUNS and not found and 0 < start - _ENTRY < leaf.region.offset:
                # A run of zeros is one row, wherever the reading began in it.
                return self._offsets(file, max(end - (end - start) * _GROWTH, 0), end)
            if leaf.region.end > start:
                found += [at for at in _row_offsets(leaf.region, start) if at < end]
        return found

    def _iter_leaves(self, file: ReadableFile, at: int) -> Iterator[Leaf]:
        for region in iter_regions_from(file, self.file.what, at, self.file.hints):
            yield from _leaves(region, ())

    def _iter_rows(self, file: ReadableFile, position: int) -> Iterator[Row]:
        previous: Region | None = None
        for leaf in self._iter_leaves(file, position):
            top = leaf.around[0] if leaf.around else leaf.region
            if leaf.region.end > position:
                is_first = top is not previous and leaf.region.offset == top.offset
                for at in _row_offsets(leaf.region, position):
                    yield self._row(file, leaf, at, is_first=is_first and at == leaf.region.offset)
            previous = top

    def _row(self, file: ReadableFile, leaf: Leaf, at: int, *, is_first: bool) -> Row:
        region = leaf.region
        is_run = region.kind in _RUNS
        data = file.pread(min(_BYTES, region.end - at), at)
        begins = at == region.offset or is_run
        value = (value_text(region) if begins else "") or _ascii(data)
        name = neutral(region.label) if begins else f" +{at - region.offset}"
        mark = _MARKS[region.right] if begins else ""
        shown = data[: _BYTES - 1].hex(" ") + " .." if is_run and region.length > _BYTES else data.hex(" ")
        style = SUSPECT if region.kind == SUSPECT else "error" if region.right is False else ""
        style = style or ("error" if region.kind == "damage" else "dim" if is_run else "")
        link = self.follow(self.file, leaf)
        if is_first and leaf.around:
            name = "▸ " + name
        details = (*self._sought_in(leaf, at), *_details(leaf, self._log_base), *self.why[:2])
        return Row(at, (str(at), shown, name, f"{mark} {value}".strip()), link, style, details)

    def _sought_in(self, leaf: Leaf, at: int) -> Iterator[str]:
        """Yield which byte of a field was asked for, if it is in the row at ``at``."""
        region, sought = leaf.region, self.sought
        end = min(at + _BYTES, region.end) if _is_long(region) else region.end
        if sought is None or not at <= sought.position < end:
            return
        outer = next((one for one in leaf.around if one.kind == "record"), leaf.around[0] if leaf.around else None)
        name = "" if outer is None else neutral(_short_name(outer))
        begin = region.offset if outer is None else outer.offset
        yield sought.told(neutral(region.label), region.offset, region.length, name, begin)

    @property
    def _log_base(self) -> int:
        """The offset in the log of the first byte; 0 if the file is not of the log, or its first one."""
        return (self.file.what.base_offset or 0) if self.file.what.kind is FileKind.COMMIT_LOG else 0


def _is_long(region: Region) -> bool:
    """Return whether a region has a row for each eight bytes."""
    return region.kind not in _RUNS and region.length > _BYTES


def _row_offsets(region: Region, position: int) -> range | list[int]:
    """Return where the rows of a region begin, from the row with the byte at ``position`` on."""
    if not _is_long(region):
        return [region.offset]
    first = max(position - region.offset, 0) // _BYTES * _BYTES
    return range(region.offset + first, region.end, _BYTES)


def _leaves(region: Region, around: tuple[Region, ...]) -> Iterator[Leaf]:
    """Yield the regions without others inside, in order; bytes between them keep the name of what is around."""
    if not region.children:
        if region.length:
            yield Leaf(region, around)
        return
    at, inner = region.offset, (*around, region)
    previous = None
    for child in region.children:
        if child.offset > at:
            name = f"rest of {region.label}" if previous == SUSPECT else region.label
            yield Leaf(Region(at, child.offset - at, region.kind, name, right=_shared(region)), inner)
        if child.offset >= at:
            yield from _leaves(child, inner)
            at, previous = child.end, child.kind
    if at < region.end:
        yield Leaf(Region(at, region.end - at, "unknown", f"rest of {region.label}", right=_shared(region)), inner)


def _shared(region: Region) -> bool | None:
    """Return the judgement that holds for bytes of a region outside those inside it."""
    return region.right if region.kind == "field" else None


def value_text(region: Region) -> str:
    """Return the value of a region and its meaning on one line."""
    value = region.value
    # Of a whole file of JSON, or a topic's whole configuration, the text itself is shown.
    shown = "" if value is None or isinstance(value, dict | list) else str(value)
    words = region.words or ("" if shown else f"{count(region.length)} bytes" if region.kind in _RUNS else "")
    return "  ".join(neutral(part) for part in (shown, words) if part)


def _details(leaf: Leaf, log_base: int) -> Iterator[str]:
    """Yield the lines for a row; ``log_base`` is the offset in the log of the first byte of the file."""
    region = leaf.region
    outer = " › ".join(neutral(_outer_name(one)) for one in leaf.around)
    span = f"{region.offset} to {region.end - 1}, {count(region.length)} byte{'' if region.length == 1 else 's'}"
    if log_base:
        span += f", log offset {log_base + region.offset}"
    yield f"{neutral(region.label)}: {value_text(region) or 'as shown'}"
    checked = {None: "nothing to compare", True: "✓ checked: right", False: "✗ checked: wrong"}[region.right]
    checked = "✗ changed" if region.kind == SUSPECT else checked
    yield f"{span}; {checked}" + (f"; in {outer}" if outer else "")
    if region.right is False:
        yield from (text for text in _wrong_words(leaf) if text != f"{region.label}: {region.words}")


def _short_name(region: Region) -> str:
    """Return the place of a message in its queue, as it is typed; of another region, its name."""
    if region.kind == "record" and region.words:
        return region.words.replace(" @ ", "@")
    return _outer_name(region)


def _outer_name(region: Region) -> str:
    """Return how a region around another is named."""
    before, after = "damage " * (region.kind == "damage"), f" {region.words}" * (region.kind == "record")
    return f"{before}{region.label}{after}"


def _wrong_words(leaf: Leaf) -> Iterator[str]:
    """Yield what is wrong with the fields of a record, in words."""
    for region in leaf.around:
        for child in region.children:
            if child.right is False and child.words and child.label != "body":
                yield f"{child.label}: {neutral(child.words)}"


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def field_of(leaf: Leaf, name: str) -> Any:
    """Return the value of a field of the entry that a leaf belongs to; None if it has no such field."""
    for region in reversed(leaf.around):
        for child in region.children:
            if child.label == name:
                return child.value
    return None


def file_in(store: Store, path: str, what: StorePath | None = None) -> FileAt:
    """Return a file below the root of a store."""
    what = what or paths.classify(path, store.listing.log_directories)
    config = store.config
    hints = (Geometry(config.max_hash_slot_num, config.max_index_num),) if what.kind is FileKind.INDEX else ()
    return FileAt(store.filesystem, path, what, hints)


def newest_page(explorer: Explorer, file: FileAt, index_no: int) -> Page:
    """Return the chain of a slot, whose newest entry has this number."""
    with file.filesystem.open_read(file.path) as opened:
        found = open_index(opened, file.hints)
    slots = found.geometry.slots if found else 0
    return chain_page(explorer, file, index.entry_offset(slots, index_no))


def chain_page(explorer: Explorer, file: FileAt, at: int) -> Page:
    """Return the entries of an index file that have the slot of the entry at a file offset, this one first."""
    rows: list[Row] = []
    with file.filesystem.open_read(file.path) as opened:
        found = open_index(opened, file.hints)
        slots = found.geometry.slots if found else 0
        index_no = (at - index.entry_offset(slots, 0)) // index.ENTRY_SIZE
        while found is not None and index_no > 0 and len(rows) < _MOST_LINKS:
            entry = found.entry(index_no)
            if entry is None:
                break
            rows.append(_chain_row(explorer, index_no, entry, found.entry_time(entry)))
            index_no = entry.prev_index if entry.prev_index < index_no else 0
    rows.append(line("", "", "", "the bytes of the first entry", link=explorer.to_file(file, at), style="dim"))
    note = "entries of one slot, the newest first: Enter shows the message"
    shown = f"rmqtool dump {quote(file.filesystem.shown(file.path))}@{at}"
    return ListPage(f"chain in {file.path}", _CHAIN, rows, shown, note)


def _chain_row(explorer: Explorer, index_no: int, entry: layouts.IndexEntry, time_ms: int) -> Row:
    message = read_record(explorer.log(), entry.phy_offset)
    words = "no valid record there" if message is None else f"{neutral(message.topic)}  {neutral(message.keys or '')}"
    when = f"stored {timestamp(time_ms, explorer.zone)[:19]}, exact to the second"
    return line(
        str(index_no),
        str(entry.key_hash),
        str(entry.phy_offset),
        words,
        link=explorer.to_message(entry.phy_offset),
        style="error" if message is None else "",
        details=(words, when),
    )
