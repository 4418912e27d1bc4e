"""Names in a store that no broker gives: links, and files and directories with other names.

Whether a broker accepts them depends on the directory and on its version; ``recover`` runs the whole start and agrees.
Upstream: ``MappedFileQueue.doLoad``, ``IndexService.load``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from rmqtool.config import Version
from rmqtool.files.filesystem import Kind, join, split
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.store.listing import Stranger
from rmqtool.store.open import BROKER_CONF, SINK_BATCHES, Store
from rmqtool.store.segments import usual_size

_IGNORED = "brokers ignore it"
_REFUSED = "a broker refuses to start"
_UNLINK = "put what it leads to in its place, or mount it there: only links of the commit log are followed"
_MOUNT = "mount what it leads to; if it is gone, restore it from a backup"
# Files with one place each; a directory of that name prevents them.
_SINGLE_FILES = (
    paths.CHECKPOINT,
    *(join(paths.CONFIG, f"{name}{end}") for name in paths.CONFIG_FILES for end in ("", ".bak")),
)
_QUEUE_KINDS = (FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE)


def iter_strangers(store: Store) -> Iterator[Finding]:
    """Yield a finding for every name that does not belong in a store, and for every link."""
    for link in store.listing.followed:
        text = f"{link.path} is a symbolic link to {link.target}"
        why = "commands that read follow it; commands that write need --conf storePathCommitLog=DIR"
        yield new_finding("ST-LINK", text, Place(link.path), severity=Severity.NOTICE, consequence=why)
    yield from _linked(store)
    yield from _linked_outside(store)
    sizes = _file_sizes(store)
    told = set()
    for stranger in store.listing.strangers:
        if stranger.path not in (BROKER_CONF, SINK_BATCHES):
            told.add(stranger.path)
            yield _judge(store, stranger, sizes.get(split(stranger.path)[0]))
    for directory in sorted({*sizes, paths.INDEX}):
        status = store.filesystem.find_stat(directory)
        for entry in store.filesystem.listdir(directory) if status and status.kind is Kind.DIRECTORY else ():
            path = join(directory, entry.name)
            if entry.kind is Kind.DIRECTORY and path not in told:
                yield _judge(store, Stranger(path, entry.kind), sizes.get(directory))
    for path in _SINGLE_FILES:
        status = store.filesystem.find_stat(path)
        if status is not None and status.kind is Kind.DIRECTORY:
            yield _in_the_way(path)


def _in_the_way(path: str) -> Finding:
    """Return the finding for a directory with the name of a file."""
    why = "the file can neither be read nor made there"
    text = f"{path} is a directory"
    return new_finding("ST-FOREIGN", text, Place(path), severity=Severity.ERROR, consequence=why)


def _linked(store: Store) -> Iterator[Finding]:
    """Yield a finding for each file with several names in the store."""
    for names in store.listing.iter_linked():
        shown = store.listing.filesystem.shown(names[1])
        own = quote(f"{shown}.own")
        yield Finding(
            "ST-LINK",
            Severity.WARNING,
            f"{' and '.join(names)} are one file under several names (hard links)",
            file=names[1],
            consequence="a write to one of them changes the others",
            fix=f"cp -p {quote(shown)} {own} && mv {own} {quote(shown)}",
        )


def _linked_outside(store: Store) -> Iterator[Finding]:
    """Yield a finding for files with other names outside the store: a copy by hard links is not a backup."""
    found = store.listing.linked_outside()
    if found:
        some = counted(len(found), "file has another name", "files have other names")
        yield Finding(
            "ST-LINK",
            Severity.NOTICE,
            f"{some} outside the store (hard links); the first is {found[0]}",
            file=found[0],
            consequence="a write to the store changes the file under its other names, too",
        )


def _file_sizes(store: Store) -> dict[str, int]:
    """Return the size that a broker expects of the files in each directory of the log and the queues."""
    elsewhere = store.config.store_path_commit_log is not None
    usual = store.listing.log_directories or ([] if elsewhere else [paths.COMMIT_LOG])
    sizes = dict.fromkeys(usual, store.commit_log.segment_size)
    for kind in _QUEUE_KINDS:
        queues = store.listing.queues(kind)
        size = usual_size(segment for queue in queues.values() for segment in queue)
        sizes |= {paths.segment_directory(kind, *queue): size for queue in queues}
    return sizes


def _judge(store: Store, stranger: Stranger, size: int | None) -> Finding:
    """Return the finding for a foreign name; ``size`` is that of the files that a broker loads beside it."""
    path, kind = stranger
    directory, name = split(path)
    text = f"{path} is not a file of a store" if kind is Kind.FILE else f"{path} is a {kind}"
    if kind is Kind.SYMLINK:
        leads = os.path.exists(store.listing.filesystem.shown(path))
        text += "; it is not followed" if leads else " to nothing"
        return replace(new_finding("ST-LINK", text, Place(path)), fix=_UNLINK if leads else _MOUNT)
    if size is None and directory == paths.COMMIT_LOG and store.config.store_path_commit_log is not None:
        text = f"{path} is not read: storePathCommitLog names another directory"
    if size is not None and kind is Kind.DIRECTORY and paths.parse_segment_name(name) is not None:
        return _in_the_way(path)
    if size is None or (kind is Kind.DIRECTORY and store.version is not Version.V4_9):
        return _harmless(text, path, _IGNORED)
    if kind is not Kind.FILE:
        return _refused(text, path)
    status = store.filesystem.find_stat(path)
    found = 0 if status is None else status.size
    is_number = paths.parse_numeric_name(name) is not None
    if found == size and is_number:
        text = f"{name} is a number but not 20 digits: a broker takes it for an offset in the log"
        return new_finding("CL-NAME", text, Place(path))
    if not found and store.version is not Version.V4_9 and _is_last(store, directory, name):
        return _harmless(f"{text}, and empty", path, "the next start of a broker deletes it")
    why = "its name is not a number" if found == size else f"it has {found} bytes, not {size}"
    return _refused(f"{text}: {why}", path)


def _refused(text: str, path: str) -> Finding:
    return new_finding("ST-FOREIGN", text, Place(path), severity=Severity.ERROR, consequence=_REFUSED)


def _harmless(text: str, path: str, consequence: str) -> Finding:
    return new_finding("ST-FOREIGN", text, Place(path), severity=Severity.NOTICE, consequence=consequence)


def _is_last(store: Store, directory: str, name: str) -> bool:
    """Return whether this name is the last of its directory."""
    return max(entry.name for entry in store.filesystem.listdir(directory)) == name
