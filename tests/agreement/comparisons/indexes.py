"""Index files: headers, entries, and every byte made anew from the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rmqtool.formats import declarations, dispatch, index, layouts
from rmqtool.formats.commit_log import Message
from rmqtool.formats.layouts import IndexEntry, IndexHeader
from tests.agreement.comparisons.queues import rules_of
from tests.agreement.ledger import Subject, comparison
from tests.agreement.logs import CLEANED, KILLED, RECOVERED, messages, report_missing
from tests.support.stores import content_digest

Geometry = tuple[int, int]

DISTURBED = KILLED | CLEANED | RECOVERED

# Files with entries of records that the log does not hold any more: (at the beginning, at the end). Their slots and
# the numbers of later entries cannot come from the log; the entries of records that are there can.
LOST = {
    ("49-cleaned", "20261118120456752"): (3, 0),  # retention took the log below
    ("53-cleaned", "20261118121748809"): (173, 0),
    ("49-killed-torn", "20261118120543070"): (0, 9),  # the log was zeroed from there on
}


def geometry_of(subject: Subject) -> Geometry:
    """Slots and entries, which a broker has from its settings."""
    config = subject.truth["config"]
    slots, entries = index.DEFAULT_GEOMETRY
    return config.get("maxHashSlotNum", slots), config.get("maxIndexNum", entries)


def index_files(root: Path) -> list[Path]:
    """The index files in the order of their names."""
    return sorted((root / "index").glob("*"))


def header_of(path: Path) -> IndexHeader:
    """The head of a file."""
    with path.open("rb") as file:
        return layouts.INDEX_HEADER.decode(file.read(index.HEADER_SIZE))


@comparison("index headers", rows="headers")
def headers(subject: Subject) -> None:
    """What the real class reads, by struct and by construct; written back; and the size that the geometry gives."""
    truth = {one["name"]: one for one in subject.truth["index_files"]}
    for path in index_files(subject.root):
        with path.open("rb") as file:
            data = file.read(index.HEADER_SIZE)
        header = layouts.INDEX_HEADER.decode(data)
        theirs = truth.pop(path.name)
        names = "beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount"
        real = [theirs[name] for name in names]
        parsed = declarations.INDEX_HEADER.parse(data)
        ours = {
            "struct": list(header),
            "construct": [parsed[name] for name in IndexHeader._fields],
            "back": layouts.INDEX_HEADER.encode(header),
            "built": declarations.INDEX_HEADER.build(parsed),
            "entries": (path.stat().st_size - index.entry_offset(geometry_of(subject)[0], 0)) / index.ENTRY_SIZE,
            "size": path.stat().st_size,
        }
        size = index.file_size(*geometry_of(subject))
        expected = {"struct": real, "construct": real, "back": data, "built": data, "entries": geometry_of(subject)[1]}
        expected["size"] = size
        subject.compare(path.name, ours, expected)
    report_missing(subject, "index file", truth)


@comparison("index entries", rows="entries")
def entries(subject: Subject) -> None:
    """By struct and by construct, and written back; every chain hashes home."""
    slots, most = geometry_of(subject)
    for path in index_files(subject.root):
        header = header_of(path)
        with path.open("rb") as file:
            start = index.entry_offset(slots, 1)
            data = os.pread(file.fileno(), (header.index_count - 1) * index.ENTRY_SIZE, start)
        found = list(layouts.INDEX_ENTRY.iter_decode(data))
        for number, entry in enumerate(found, 1):
            raw = data[(number - 1) * index.ENTRY_SIZE : number * index.ENTRY_SIZE]
            parsed = declarations.INDEX_ENTRY.parse(raw)
            previous = found[entry.prev_index - 1].key_hash if entry.prev_index else entry.key_hash
            ours = {
                "construct": [parsed[name] for name in IndexEntry._fields],
                "back": layouts.INDEX_ENTRY.encode(entry),
                "built": declarations.INDEX_ENTRY.build(parsed),
                "slot": entry.key_hash % slots,
                "earlier": entry.prev_index < number <= most,
            }
            theirs = {
                "construct": list(entry),
                "back": raw,
                "built": raw,
                "slot": previous % slots,
                "earlier": True,
            }
            subject.compare(f"{path.name}, entry {number}", ours, theirs)


class Indexed(NamedTuple):
    """One key of one message."""

    text: str
    message: Message


class IndexImage:
    """An index file as a broker fills it: header, slots, entries."""

    def __init__(self, geometry: Geometry, preset: IndexHeader | None) -> None:
        self.slots_number, self.most = geometry
        self.begin = preset.end_timestamp if preset else 0
        self.header = IndexHeader(0, 0, 0, 0, 0, 1)
        self.slots: dict[int, int] = {}
        self.entries: list[IndexEntry] = []

    def put(self, text: str, message: Message) -> None:
        """Add one entry. The first one's time is still counted from the end of the file before."""
        slot = index.key_hash(text) % self.slots_number
        diff = index.time_diff(message.store_timestamp, self.begin)
        self.entries.append(IndexEntry(index.key_hash(text), message.physical_offset, diff, self.slots.get(slot, 0)))
        self.slots[slot] = len(self.entries)
        if len(self.entries) == 1:
            self.begin = message.store_timestamp
            self.header = self.header._replace(begin_timestamp=self.begin, begin_phy_offset=message.physical_offset)
        self.header = self.header._replace(
            end_timestamp=message.store_timestamp,
            end_phy_offset=message.physical_offset,
            hash_slot_count=len(self.slots),
            index_count=len(self.entries) + 1,
        )

    @property
    def is_full(self) -> bool:
        """Whether the next key opens another file."""
        return self.header.index_count >= self.most

    def write(self, path: Path) -> None:
        """Write the file, with holes where nothing stands."""
        with path.open("wb") as file:
            os.truncate(file.fileno(), index.file_size(self.slots_number, self.most))
            os.pwrite(file.fileno(), layouts.INDEX_HEADER.encode(self.header), 0)
            for slot, number in self.slots.items():
                os.pwrite(file.fileno(), layouts.INDEX_SLOT.pack(number), index.slot_offset(slot))
            data = b"".join(map(layouts.INDEX_ENTRY.encode, self.entries))
            os.pwrite(file.fileno(), data, index.entry_offset(self.slots_number, 1))


def keys_of_log(subject: Subject) -> Iterator[Indexed]:
    """Every key of every message, in the order a broker indexes them."""
    rules = rules_of(subject)
    for message in messages(subject.root):
        for text in dispatch.iter_index_texts(message, rules):
            yield Indexed(text, message)


def rebuilt(subject: Subject) -> Iterator[IndexImage]:
    """The files of a store whose history nothing disturbed, by the log alone."""
    image: IndexImage | None = None
    for text, message in keys_of_log(subject):
        if image is None or image.is_full:
            if image is not None:
                yield image
            image = IndexImage(geometry_of(subject), image.header if image else None)
        image.put(text, message)
    if image is not None:
        yield image


def compare_image(subject: Subject, path: Path, image: IndexImage) -> None:
    """A file made anew against the one on disk, holes and all."""
    with TemporaryDirectory(prefix="rmqtool-index-") as directory:
        made = Path(directory) / "made"
        image.write(made)
        subject.compare(path.name, {"digest": content_digest(made)}, {"digest": content_digest(path)})


@comparison("index files, rebuilt from the log", rows="files")
def rebuilt_files(subject: Subject) -> None:
    """Each file, every byte of it, comes from the log.

    Where retention, a kill or a recovery came between, it is told where a file begins and how much it holds.
    """
    files = index_files(subject.root)
    if subject.name not in DISTURBED:
        for path, image in zip(files, rebuilt(subject), strict=True):
            compare_image(subject, path, image)
        return
    keys = list(keys_of_log(subject))
    places = {key.message.physical_offset for key in keys}
    before = None
    for path in files:
        header = header_of(path)
        with path.open("rb") as file:
            start = index.entry_offset(geometry_of(subject)[0], 1)
            data = os.pread(file.fileno(), (header.index_count - 1) * index.ENTRY_SIZE, start)
        found = list(layouts.INDEX_ENTRY.iter_decode(data))
        known = [entry.phy_offset in places for entry in found]
        first, last = known.index(True), len(known) - known[::-1].index(True)
        at = next(
            number
            for number, key in enumerate(keys)
            if (index.key_hash(key.text), key.message.physical_offset) == found[first][:2]
        )
        part = keys[at : at + last - first]
        lost = first, len(found) - last
        image = IndexImage(geometry_of(subject), before)
        image.begin = image.begin if first == 0 else header.begin_timestamp
        for text, message in part:
            image.put(text, message)
            image.begin = header.begin_timestamp
        if lost == (0, 0):
            compare_image(subject, path, image)
        else:
            # Without those entries the numbers of the others differ, but not what they say.
            ours = {"lost": LOST.get((subject.name, path.name)), "entries": [entry[:3] for entry in image.entries]}
            subject.compare(path.name, ours, {"lost": lost, "entries": [entry[:3] for entry in found[first:last]]})
        before = header
