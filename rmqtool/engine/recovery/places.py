"""Repairs names and sizes of files before anything is read from them.

The records of a segment tell where it belongs. Files that no broker puts among segments are moved to ``quarantine/``:
upstream refuses to load such a store, or deletes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rmqtool.engine.commit_log import LogDirectory
from rmqtool.errors import StoreError
from rmqtool.files.filesystem import Kind, WritableFileSystem, join, make_directories, split
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import CONSUME_QUEUE, FileKind, parse_segment_name, segment_name
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.listing import FoundFile, StoreListing
from rmqtool.store.segments import Segment, usual_size

# The directory for files that are moved out of the way, at the root of the file system that they are on.
QUARANTINE = "quarantine"

# Called with the path of a file before it is written, and the action.
BeforeWrite = Callable[[str, str], None]


def restore_names(
    directories: Sequence[LogDirectory], segment_size: int, before_write: BeforeWrite
) -> Iterator[Finding]:
    """Rename segments to the offset of their records, and move other files out of the way."""
    for directory in directories:
        files, where = directory
        if not files.exists(where):
            continue
        entries = [entry for entry in files.listdir(where) if entry.kind is Kind.FILE]
        taken = {base for entry in entries if (base := _aligned(entry.name, segment_size)) is not None}
        for entry in entries:
            if _aligned(entry.name, segment_size) is not None:
                continue
            path = join(where, entry.name)
            base = _base_of(files, path)
            if base is not None and base % segment_size == 0 and base not in taken:
                taken.add(base)
                target = join(where, segment_name(base))
                text = f"its records belong to {segment_name(base)}: renamed to that"
            else:
                target = join(QUARANTINE, path)
                text = f"no broker puts it among segments: moved to {QUARANTINE}/"
            _move(files, path, target, before_write)
            yield new_finding("CL-NAME", text, Place(path))


def remove_directories(directories: Sequence[LogDirectory], before_write: BeforeWrite) -> Iterator[Finding]:
    """Remove empty directories among segments, which a 4.9 broker refuses to load; report the others."""
    for files, where in directories:
        for entry in files.listdir(where) if files.exists(where) else ():
            if entry.kind is not Kind.DIRECTORY:
                continue
            path = join(where, entry.name)
            text = (
                "there is a directory among the segments, and a 4.9 broker refuses to start: move it out of the store"
            )
            if not files.listdir(path):
                before_write(path, "delete")
                files.rmdir(path)
                files.fsync_dir(where)
                text = "removed an empty directory among the segments"
            yield new_finding("CL-NAME", text, Place(path))


def _aligned(name: str, segment_size: int) -> int | None:
    """Return the base offset in a file name, or None if no segment can have this name."""
    base = parse_segment_name(name)
    return base if base is not None and base % segment_size == 0 else None


def _base_of(files: WritableFileSystem, path: str) -> int | None:
    """Return the base offset of a segment by its records, or None without records or if they disagree."""
    bases = set()
    with files.open_read(path) as file:
        for place in SegmentWalk(file, None).places():
            if isinstance(place.what, Message):
                bases.add(place.what.physical_offset - place.file_offset)
    return bases.pop() if len(bases) == 1 else None


def _move(files: WritableFileSystem, path: str, target: str, before_write: BeforeWrite) -> None:
    """Rename a file durably; a file that has the name already stays, and this one gets another."""
    before_write(path, "rename")
    make_directories(files, split(target)[0])
    while files.exists(target):
        target += "-"
    files.rename(path, target)
    files.fsync_dir(split(target)[0])
    files.fsync_dir(split(path)[0])


def segment_size_of(segments: Sequence[Segment], configured: int | None) -> int:
    """Return the size of the log's segments, 0 without any.

    A single segment may have been cut, so it counts as one of the ``configured`` size if that is larger. The first
    record of a segment tells where it belongs; a wrong name must not decide about the size.
    """
    size = usual_size(segment._replace(base_offset=_first_base(segment)) for segment in segments)
    if len(segments) == 1 and configured is not None and configured > size:
        return configured
    return size


def _first_base(segment: Segment) -> int:
    """Return the base offset of a segment by its first record, or by its name if it does not begin with a record."""
    with segment.filesystem.open_read(segment.path) as file:
        found = SegmentWalk(file, None).record_at(0)
    return found.physical_offset if isinstance(found, Message) else segment.base_offset


def restore_segment_sizes(
    directories: Sequence[LogDirectory], segments: Sequence[Segment], size: int, before_write: BeforeWrite
) -> Iterator[Finding]:
    """Give each segment its size; remove the last one if it is empty. Those in read-only directories stay.

    Raises StoreError if bytes that would be cut off hold records.
    """
    last = max((segment.base_offset for segment in segments), default=0)
    for segment in segments:
        directory = next((one for one in directories if one.filesystem is segment.filesystem), None)
        if segment.size == size or directory is None:
            continue
        files, path = directory.filesystem, segment.path
        text = f"the segment has {segment.size} bytes, the others have {size}"
        cut = find_cut_record(files, segment, size) if segment.size < size else None
        if cut is not None:
            text += f"; its record at {cut} is cut off, and cleared"
        yield new_finding("CL-SIZE", text, Place(path))
        if not segment.size and segment.base_offset == last:
            before_write(path, "delete")
            files.unlink(path)
            files.fsync_dir(split(path)[0])
            continue
        with files.open_write(path) as file:
            if segment.size > size and SegmentWalk(file, segment.base_offset).find_record(size) is not None:
                raise StoreError(
                    f"{text}, and the excess bytes hold records",
                    file=files.shown(path),
                    hint="rmqtool repair STORE",
                )
            before_write(path, "resize")
            if cut is not None:
                # Before the file grows: with zeros after them, these bytes would be a record.
                file.pwrite(bytes(segment.size - cut), cut)
                file.fsync()
            file.truncate(size)
            file.fsync()


def find_cut_record(files: WritableFileSystem, segment: Segment, size: int) -> int | None:
    """Return where the last record of a short segment begins, if zeros up to ``size`` made it look whole, or None.

    No checksum covers the properties of a record, so zeros pass for bytes of them that are missing.
    """
    with OverlayFileSystem(files) as overlay, overlay.open_write(segment.path) as file:
        # Where the last record begins, or the end of the file if it is whole.
        at = segment.size
        for place in SegmentWalk(file, segment.base_offset).places():
            is_last = place.file_offset + place.length == segment.size
            at = place.file_offset if is_last and isinstance(place.what, Flaw) else segment.size
        file.truncate(size)
        walk = SegmentWalk(file, segment.base_offset)
        found = at if isinstance(walk.record_at(at, verify=False), Message) else walk.find_record(at)
        while found is not None and found < segment.size:
            record = walk.record_at(found, verify=False)
            if isinstance(record, Message) and found + record.total_size > segment.size:
                return found
            found = walk.find_record(found + 1)
    return None


def queue_size_of(
    files: WritableFileSystem, found: Sequence[FoundFile], unit: int, setting: int, *, is_stated: bool
) -> int:
    """Return the size of queue files of one kind: a multiple of ``unit``, and ``setting`` if there are no files.

    It is the size that most files show. A stated ``setting`` goes before it if all files may be of that size and only
    lack their ends: after a power cut the only file of a queue can end after its first entries.
    """
    bases = [file.what.base_offset or 0 for file in found]
    if is_stated and all(file.size <= setting for file in found) and not any(base % setting for base in bases):
        return setting
    shown = usual_size(Segment(0, file.size, file.path, files) for file in found)
    return -(-(shown or setting) // unit) * unit


def restore_queue_files(
    files: WritableFileSystem, listing: StoreListing, kind: FileKind, size: int, before_write: BeforeWrite
) -> Iterator[Finding]:
    """Give each queue file its size, and move files with impossible names out of the way."""
    whose = "others have" if any(found.size == size for found in listing.of_kind(kind)) else "the setting is"
    for found in listing.of_kind(kind):
        if found.size != size:
            yield new_finding("CQ-SIZE", f"the file has {found.size} bytes, {whose} {size}", Place(found.path))
            before_write(found.path, "resize")
            with files.open_write(found.path) as file:
                file.truncate(size)
                file.fsync()
        elif found.what.base_offset is not None and found.what.base_offset % size:
            yield new_finding("CQ-SIZE", f"no file of {size} bytes begins there", Place(found.path))
            _move(files, found.path, join(QUARANTINE, found.path), before_write)
    if kind is FileKind.CONSUME_QUEUE:
        for stranger in listing.strangers:
            parts = stranger.path.split("/")
            if len(parts) == 4 and parts[0] == CONSUME_QUEUE and parts[2].isdecimal() and stranger.kind is Kind.FILE:
                yield new_finding("ST-FOREIGN", f"moved to {QUARANTINE}/", Place(stranger.path))
                _move(files, stranger.path, join(QUARANTINE, stranger.path), before_write)
